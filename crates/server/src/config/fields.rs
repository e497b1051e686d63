//! Reads one map by its section spec: unknown keys are rejected, value types are checked.

use serde_json::Value;
use sluice_domain::template::{Piece, Template};
use sluice_domain::verify::SecretValue;

use super::diagnostics::Report;
use super::node::{Span, YamlEntry, YamlNode};
use super::plaintext_secrets::secret_in_file;
use super::problem::did_you_mean;
use super::renamed::current_name;
use super::rule::Holds;
use super::table::{Absent, KeySpec, SectionSpec, ValueType};

/// Typed access to the entries of a map.
pub(super) struct Fields<'n, 'r> {
    pub(super) report: Report<'r>,
    pub(super) span: Span,
    tables: Vec<&'static SectionSpec>,
    entries: &'n [YamlEntry],
    /// Suggested names of unknown keys; their absence is not reported again.
    meant: Vec<&'static str>,
}

impl<'n, 'r> Fields<'n, 'r> {
    /// Opens a map with the keys of `tables`. Reports a value that is not a map, unknown keys and missing required
    /// keys.
    pub(super) fn open(
        report: Report<'r>,
        node: &'n YamlNode,
        tables: &[&'static SectionSpec],
    ) -> Option<Fields<'n, 'r>> {
        Fields::open_except(report, node, tables, &[])
    }

    /// Like [`Fields::open`], for a resource whose name may be the key it is declared under.
    pub(super) fn open_named(
        report: Report<'r>,
        node: &'n YamlNode,
        tables: &[&'static SectionSpec],
    ) -> Option<Fields<'n, 'r>> {
        Fields::open_except(report, node, tables, &["name"])
    }

    fn open_except(
        report: Report<'r>,
        node: &'n YamlNode,
        tables: &[&'static SectionSpec],
        elsewhere: &[&str],
    ) -> Option<Fields<'n, 'r>> {
        let title = tables.first().map_or("a map", |table| table.title);
        let Some(entries) = node.entries() else {
            report
                .error(node.span, "wrong-type", format!("{title} must be a map, found {}", node.describe()))
                .hint(format!("its keys are {}", list_keys(tables)));
            return None;
        };
        let mut fields = Fields { report, span: first_key_or(node), tables: tables.to_vec(), entries, meant: vec![] };
        for entry in entries {
            fields.check_key(entry, title);
        }
        for key in tables.iter().flat_map(|table| table.keys) {
            let excused = elsewhere.contains(&key.name) || fields.is_meant(key.name);
            let there = entries.iter().any(|entry| entry.key == key.name);
            if key.default == Absent::Required && !there && !excused {
                report.error(fields.span, "missing-key", format!("{title} needs `{}`", key.name)).hint(format!(
                    "add `{}:` with {}",
                    key.name,
                    key.shape.describe()
                ));
            }
        }
        fields.check_rules();
        Some(fields)
    }

    /// Reports violated key rules.
    fn check_rules(&self) {
        for rule in self.tables.iter().flat_map(|table| table.rules) {
            let there: Vec<&str> = rule.keys.iter().copied().filter(|name| self.has(name)).collect();
            let meant = |names: &[&str]| names.iter().any(|name| self.is_meant(name));
            let span = match (rule.holds, there.as_slice()) {
                (Holds::AtMostOne, [_, second, ..]) => self.key_span(second),
                (Holds::AtLeastOne, []) if !meant(rule.keys) => self.span,
                (Holds::FirstNeedsSecond, [only]) if *only == rule.keys[0] && !meant(&rule.keys[1..]) => {
                    self.key_span(only)
                }
                _ => continue,
            };
            let named = |place: usize| there.get(place).copied().unwrap_or_default();
            let message = rule.message.replace("{first}", named(0)).replace("{second}", named(1));
            let reported = self.report.error(span, rule.code, message);
            if !rule.hint.is_empty() {
                reported.hint(rule.hint);
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == name && !entry.value.is_null())
    }

    /// Whether an unknown key is probably a misspelling of this one.
    pub(super) fn is_meant(&self, name: &str) -> bool {
        self.meant.contains(&name)
    }

    fn check_key(&mut self, entry: &YamlEntry, title: &str) {
        let name = entry.key.as_str();
        if let Some(key) = self.key(name) {
            if entry.value.is_null() {
                self.report
                    .error(entry.key_span, "empty-value", format!("`{name}` has no value"))
                    .hint(format!("set {}, or remove the line", key.shape.describe()));
            }
        } else if self.tables.iter().any(|table| table.later.contains(&name)) {
            self.report.error(
                entry.key_span,
                "not-yet-supported",
                format!("`{name}` in {title} is not supported by this version yet"),
            );
        } else {
            let names = || self.tables.iter().flat_map(|table| table.keys).map(|key| key.name);
            if let Some(current) = current_name(name, names()) {
                self.meant.push(current);
                self.report
                    .error(entry.key_span, "renamed-key", format!("`{name}` in {title} is now called `{current}`"))
                    .hint(format!("write `{current}:` with the same value"));
                return;
            }
            let hint = match did_you_mean(name, names()) {
                Some(meant) => {
                    self.meant.push(meant);
                    format!("did you mean `{meant}`?")
                }
                None => format!("its keys are {}", list_keys(&self.tables)),
            };
            self.report.error(entry.key_span, "unknown-key", format!("{title} has no key `{name}`")).hint(hint);
        }
    }

    pub(super) fn key(&self, name: &str) -> Option<&'static KeySpec> {
        self.tables.iter().find_map(|table| table.key(name))
    }

    /// Value of a key of the tables.
    pub(super) fn node(&self, name: &'static str) -> Option<&'n YamlNode> {
        debug_assert!(self.key(name).is_some(), "`{name}` is read but is not in any table");
        self.entries.iter().find(|entry| entry.key == name).map(|entry| &entry.value).filter(|node| !node.is_null())
    }

    /// Value of a key that the tables may lack.
    pub(super) fn node_if_known(&self, name: &'static str) -> Option<&'n YamlNode> {
        self.key(name).and_then(|key| self.node(key.name))
    }

    /// Location of a key; of the map if the key is absent.
    pub(super) fn key_span(&self, name: &str) -> Span {
        self.entries.iter().find(|entry| entry.key == name).map_or(self.span, |entry| entry.key_span)
    }

    /// Location of a value; of the map if the key is absent.
    pub(super) fn value_span(&self, name: &str) -> Span {
        self.entries.iter().find(|entry| entry.key == name).map_or(self.span, |entry| entry.value.span)
    }

    pub(super) fn wrong<T>(&self, name: &'static str, node: &YamlNode) -> Option<T> {
        let shape = self.key(name).map_or_else(String::new, |key| key.shape.describe());
        let written = match node.text() {
            Some(text) if text.len() <= 60 => format!("`{text}`"),
            _ => node.describe().to_owned(),
        };
        self.report.error(node.span, "wrong-type", format!("`{name}` must be {shape}, found {written}"));
        None
    }

    pub(super) fn text(&self, name: &'static str) -> Option<&'n str> {
        let node = self.node(name)?;
        node.text().or_else(|| self.wrong(name, node))
    }

    /// Name with its location.
    pub(super) fn name(&self, name: &'static str) -> Option<(&'n str, Span)> {
        let node = self.node(name)?;
        let text = node.text().or_else(|| self.wrong(name, node))?;
        check_name(self.report, node.span, text);
        Some((text, node.span))
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, name: &'static str) -> Option<bool> {
        let node = self.node(name)?;
        match node.scalar().map(|scalar| scalar.to_value()) {
            Some(Value::Bool(flag)) => Some(flag),
            _ => self.wrong(name, node),
        }
    }

    /// Integer in the range of its spec.
    pub(super) fn count(&self, name: &'static str) -> Option<u32> {
        let node = self.node(name)?;
        let number = node.text().and_then(|text| text.parse().ok());
        match (number, self.key(name).map(|key| key.shape)) {
            (Some(number), Some(ValueType::Count(min, max))) if (min..=max).contains(&number) => Some(number),
            _ => self.wrong(name, node),
        }
    }

    /// Number in the range of its spec.
    pub(super) fn number(&self, name: &'static str) -> Option<f64> {
        let node = self.node(name)?;
        let number: Option<f64> = node.text().and_then(|text| text.parse().ok());
        match (number, self.key(name).map(|key| key.shape)) {
            (Some(number), Some(ValueType::Number(min, max)))
                if (f64::from(min)..=f64::from(max)).contains(&number) =>
            {
                Some(number)
            }
            _ => self.wrong(name, node),
        }
    }

    /// One of the words of its spec, case-insensitive.
    pub(super) fn one_of(&self, name: &'static str) -> Option<&'static str> {
        let node = self.node(name)?;
        let text = node.text().or_else(|| self.wrong(name, node))?;
        let Some(ValueType::OneOf(words)) = self.key(name).map(|key| key.shape) else { return None };
        let found = words.iter().copied().find(|word| word.eq_ignore_ascii_case(text));
        if found.is_none() {
            let shape = ValueType::OneOf(words).describe();
            self.report.error(node.span, "bad-value", format!("`{name}` must be {shape}, found `{text}`")).meant(
                text,
                words.iter().copied(),
                "",
            );
        }
        found
    }

    /// Secret, or text that contains secrets, resolved now.
    pub(super) fn secret(&self, name: &'static str) -> Option<SecretValue> {
        secret_text(self.report, self.node(name)?, name, Literal::Refused)
    }
}

/// Whether plain text is allowed in place of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Accepted,
    /// Rejected, because it would be a secret in a file.
    Refused,
}

/// Text with `${secrets.NAME}` resolved now.
pub(super) fn secret_text(report: Report<'_>, node: &YamlNode, name: &str, literal: Literal) -> Option<SecretValue> {
    let Some(text) = node.text() else {
        report.error(node.span, "wrong-type", format!("`{name}` must be text, found {}", node.describe()));
        return None;
    };
    let pieces = match Template::parse_text(text) {
        Ok(Template::Text(pieces)) => pieces,
        Ok(Template::Literal(_)) if literal == Literal::Accepted => return Some(SecretValue::from(text)),
        Ok(Template::Literal(_)) => {
            secret_in_file(report, node.span, name);
            return None;
        }
        Ok(_) => {
            expression_not_here(report, node.span, name);
            return None;
        }
        Err(problem) => {
            report.error(node.span, "bad-expression", problem.to_string());
            return None;
        }
    };
    let mut whole = String::new();
    let mut complete = true;
    for piece in &pieces {
        match piece {
            Piece::Text(text) => whole.push_str(text),
            Piece::Secret(secret) => match report.secret(node.span, secret) {
                Some(value) => whole.push_str(value.expose()),
                None => complete = false,
            },
            Piece::Expression(_) => {
                expression_not_here(report, node.span, name);
                return None;
            }
        }
    }
    complete.then(|| SecretValue::from(whole))
}

fn expression_not_here(report: Report<'_>, span: Span, name: &str) {
    report
        .error(
            span,
            "expression-not-here",
            format!("`{name}` is read at startup, so {{{{ … }}}} is not available here"),
        )
        .hint("write literal text, with ${secrets.NAME} for secrets");
}

/// Checks the syntax of a resource name.
pub(super) fn check_name(report: Report<'_>, span: Span, name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let good = !name.is_empty()
        && name.len() <= 100
        && name.chars().all(allowed)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !good {
        report
            .error(span, "bad-name", format!("`{name}` is not a valid name"))
            .hint("a name has letters, digits, `-`, `_` and `.`, starts with a letter or digit, and has at most 100 characters");
    }
    good
}

fn first_key_or(node: &YamlNode) -> Span {
    node.entries().and_then(|entries| entries.first()).map_or(node.span, |entry| entry.key_span)
}

fn list_keys(tables: &[&'static SectionSpec]) -> String {
    tables.iter().flat_map(|table| table.keys).map(|key| key.name).collect::<Vec<_>>().join(", ")
}
