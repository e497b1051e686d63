//! Message templates: a subject, plain text and HTML under one name, rendered with an event.
//!
//! Rendering a value that is absent, null or empty is an error: an incomplete message is not sent.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::{Environment, ErrorKind, UndefinedBehavior, escape_formatter};
use serde_json::{Map, Value};

use super::expression::{TemplateProblem, describe, quote_hyphens};
use super::function::Function;
use super::scope::Scope;

/// Maximum number of instructions per part: enough for a loop over a large cart.
const FUEL: u64 = 500_000;

/// Part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// One line.
    Subject,
    Text,
    /// Values are HTML-escaped.
    Html,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::Subject, Part::Text, Part::Html];

    /// File extension of this part.
    pub fn extension(self) -> &'static str {
        match self {
            Part::Subject => "subject",
            Part::Text => "txt",
            Part::Html => "html",
        }
    }

    /// The part with this file extension.
    pub fn of_extension(extension: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.extension() == extension)
    }
}

/// All message templates of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    by_name: BTreeMap<String, MessageTemplate>,
}

/// One message template.
#[derive(Clone, Debug, Default)]
pub struct MessageTemplate {
    parts: BTreeMap<Part, PartTemplate>,
}

#[derive(Clone)]
struct PartTemplate {
    source: String,
    environment: Environment<'static>,
}

impl std::fmt::Debug for PartTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PartTemplate").field(&self.source).finish()
    }
}

/// A rendered message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// One line.
    pub subject: String,
    pub text: Option<String>,
    pub html: Option<String>,
}

/// Why a part could not be parsed or rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartProblem {
    /// From 1.
    pub line: usize,
    pub message: String,
}

impl Messages {
    /// Parses and adds a part.
    pub fn add(&mut self, name: &str, part: Part, source: &str) -> Result<(), PartProblem> {
        let template = PartTemplate::read(part, source)?;
        self.by_name.entry(name.to_owned()).or_default().parts.insert(part, template);
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&MessageTemplate> {
        self.by_name.get(name)
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Renders a message. `vars` are values that the step passes besides the event.
    pub fn render(&self, name: &str, scope: &Scope, vars: Option<&Value>) -> Result<Message, TemplateProblem> {
        let Some(message) = self.get(name) else {
            let known: Vec<&str> = self.names().collect();
            return Err(TemplateProblem(match known.as_slice() {
                [] => format!("unknown template `{name}`; add it to templates/ in the configuration directory"),
                known => format!("unknown template `{name}`; known templates: {}", known.join(", ")),
            }));
        };
        let mut variables = Map::new();
        for root in scope.names() {
            variables.extend(scope.read(root)?.map(|value| (root.to_owned(), value.clone())));
        }
        variables.insert("request".to_owned(), request(scope));
        variables.insert("vars".to_owned(), vars.cloned().unwrap_or_else(|| Value::Object(Map::new())));
        variables.values_mut().for_each(remove_empty);
        let variables = Value::Object(variables);
        let part = |part: Part| -> Result<Option<String>, TemplateProblem> {
            let Some(template) = message.parts.get(&part) else { return Ok(None) };
            let file_name = format!("{name}.{}", part.extension());
            template.render(&variables).map(Some).map_err(|problem| {
                TemplateProblem(format!("template `{file_name}`, line {}: {}", problem.line, problem.message))
            })
        };
        let subject = part(Part::Subject)?.unwrap_or_default();
        Ok(Message { subject: subject.trim().to_owned(), text: part(Part::Text)?, html: part(Part::Html)? })
    }
}

fn request(scope: &Scope) -> Value {
    let part = |name: &str| (name.to_owned(), scope.get(name).cloned().unwrap_or(Value::Null));
    Value::Object(Map::from_iter([part("body"), part("headers")]))
}

/// Treats null and empty values as absent, so that rendering them fails: no message greets with "Hello ,".
fn remove_empty(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !is_empty(member));
            members.values_mut().for_each(remove_empty);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_empty),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.chars().all(is_invisible),
        _ => false,
    }
}

/// White space, control characters and characters without width: they promise a name and show none.
fn is_invisible(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

impl MessageTemplate {
    pub fn has(&self, part: Part) -> bool {
        self.parts.contains_key(&part)
    }

    /// Variables that each part reads: the part, a dotted name such as `event.email`, and the line of its first use.
    pub fn reads(&self) -> Vec<(Part, String, usize)> {
        let mut reads = vec![];
        for (part, template) in &self.parts {
            let mut names: Vec<String> = template.names().into_iter().collect();
            names.sort();
            reads.extend(names.into_iter().map(|name| {
                let line = template.line_of(&name);
                (*part, name, line)
            }));
        }
        reads
    }
}

/// Name of the only template in an environment; its extension selects the escaping.
fn inner_name(part: Part) -> &'static str {
    match part {
        Part::Html => "message.html",
        Part::Subject | Part::Text => "message.txt",
    }
}

impl PartTemplate {
    fn read(part: Part, source: &str) -> Result<PartTemplate, PartProblem> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_fuel(Some(FUEL));
        environment.set_formatter(|out, state, value| {
            if value.is_none() || value.is_undefined() {
                return Err(minijinja::Error::from(ErrorKind::UndefinedError));
            }
            escape_formatter(out, state, value)
        });
        Function::register(&mut environment);
        let problem =
            |error: minijinja::Error| PartProblem { line: error.line().unwrap_or(1), message: describe(&error) };
        environment.add_template_owned(inner_name(part), quote_names(source)).map_err(problem)?;
        let template = PartTemplate { source: source.to_owned(), environment };
        // Filters are resolved when called: rendering without values finds the unknown ones on the path that it takes. Other
        // failures are ignored, since they may not occur with an event.
        let mut lenient = template.clone();
        lenient.environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        lenient.environment.set_formatter(escape_formatter);
        match lenient.run(&Value::Object(Map::new())) {
            Err(error) if is_unknown_name(&error) => Err(problem(error)),
            _ => Ok(template),
        }
    }

    fn run(&self, variables: &Value) -> Result<String, minijinja::Error> {
        let Some((_, template)) = self.environment.templates().next() else { return Ok(String::new()) };
        template.render(minijinja::Value::from(minijinja::value::Serde(variables)))
    }

    fn render(&self, variables: &Value) -> Result<String, PartProblem> {
        self.run(variables).map_err(|error| {
            let line = error.line().unwrap_or(1);
            if error.kind() != ErrorKind::UndefinedError {
                return PartProblem { line, message: describe(&error) };
            }
            let missing = self.missing_on(line, variables);
            let message = match missing.as_slice() {
                [] => "a value is missing".to_owned(),
                [one] => format!("`{one}` has no value"),
                several => format!(
                    "{} have no value",
                    several.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
                ),
            };
            PartProblem { line, message }
        })
    }

    /// Dotted names that it reads and does not set itself.
    fn names(&self) -> BTreeSet<String> {
        let Some((_, template)) = self.environment.templates().next() else { return BTreeSet::new() };
        let roots = template.undeclared_variables(false);
        let root = |name: &String| name.split('.').next().is_some_and(|root| roots.contains(root));
        let mut names: BTreeSet<String> = dotted_names(&self.source).into_iter().filter(root).collect();
        let unlisted =
            roots.iter().filter(|root| !names.iter().any(|name| name.split('.').next() == Some(root.as_str())));
        let unlisted: Vec<String> = unlisted.cloned().collect();
        names.extend(unlisted);
        names
    }

    /// Names without a value on this line, or on any line if there are none.
    fn missing_on(&self, line: usize, variables: &Value) -> Vec<String> {
        let text = self.source.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let absent = |name: &String| {
            let found = name.split('.').try_fold(variables, |value, key| value.get(key));
            found.is_none_or(Value::is_null)
        };
        let missing: Vec<String> = self.names().into_iter().filter(absent).collect();
        let here: Vec<String> = missing.iter().filter(|name| text.contains(name.as_str())).cloned().collect();
        if here.is_empty() { missing } else { here }
    }

    /// Line of the first use of a dotted name.
    fn line_of(&self, name: &str) -> usize {
        let found = self.source.lines().position(|line| line.contains(name));
        let root = name.split('.').next().unwrap_or(name);
        found.or_else(|| self.source.lines().position(|line| line.contains(root))).map_or(1, |line| line + 1)
    }
}

fn is_unknown_name(error: &minijinja::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnknownFilter | ErrorKind::UnknownFunction | ErrorKind::UnknownTest)
}

/// Quotes names with hyphens, as in expressions.
fn quote_names(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((at, close)) = next_block(rest) {
        out.push_str(&rest[..at]);
        let inside = &rest[at..];
        let end = inside.find(close).unwrap_or(inside.len());
        out.push_str(&quote_hyphens(&inside[..end]));
        rest = &inside[end..];
    }
    out.push_str(rest);
    out
}

/// Every `a.b-c.d` inside of `{{ }}` and `{% %}`, outside of quotes.
fn dotted_names(source: &str) -> Vec<String> {
    let mut names = vec![];
    let mut rest = source;
    while let Some((at, close)) = next_block(rest) {
        let inside = &rest[at..];
        let end = inside.find(close).unwrap_or(inside.len());
        let mut quote: Option<char> = None;
        let mut name = String::new();
        for c in inside[..end].chars().chain([' ']) {
            let in_name = c.is_alphanumeric() || matches!(c, '_' | '.') || (c == '-' && name.contains('.'));
            match quote {
                Some(open) if c == open => quote = None,
                Some(_) => {}
                None if in_name => name.push(c),
                None => {
                    quote = Some(c).filter(|c| matches!(c, '"' | '\''));
                    names.push(std::mem::take(&mut name));
                }
            }
        }
        rest = &inside[end..];
    }
    let whole = |name: &String| name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    names.into_iter().map(|name| name.trim_end_matches(['-', '.']).to_owned()).filter(whole).collect()
}

/// Start of the inside of the next `{{ }}` or `{% %}`, and its closing delimiter.
fn next_block(text: &str) -> Option<(usize, &'static str)> {
    let open = |mark: &str, close: &'static str| text.find(mark).map(|at| (at + mark.len(), close));
    [open("{{", "}}"), open("{%", "%}")].into_iter().flatten().min_by_key(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(parts: &[(Part, &str)]) -> Messages {
        let mut messages = Messages::default();
        for (part, source) in parts {
            messages.add("cart", *part, source).unwrap();
        }
        messages
    }

    fn scope() -> Scope {
        let mut scope = Scope::new();
        scope.set("event", json!({"first_name": "Ada <3", "email": "ada@example.com", "city": null, "zip": " "}));
        scope.set_step_output("make-code", json!({"code": "SAVE10"}));
        scope
    }

    #[test]
    fn a_name_that_shows_nothing_is_no_name() {
        let messages = messages(&[(Part::Text, "Hello {{ event.first_name }},")]);
        for name in ["", " \t", "\u{200b}", "\u{a0}\u{feff}", "\u{7}"] {
            let mut scope = Scope::new();
            scope.set("event", json!({ "first_name": name }));
            let problem = messages.render("cart", &scope, None).unwrap_err();
            assert!(problem.0.contains("`event.first_name` has no value"), "{name:?}: {problem}");
        }
    }

    #[test]
    fn all_parts_are_rendered_and_only_html_is_escaped() {
        let messages = messages(&[
            (Part::Subject, "Your cart, {{ event.first_name }}\n"),
            (Part::Text, "Hello {{ event.first_name }}, use {{ steps.make-code.output.code }}."),
            (Part::Html, "<p>Hello {{ event.first_name }}, {{ vars.offer }}</p>"),
        ]);
        let message = messages.render("cart", &scope(), Some(&json!({"offer": "10 % off"}))).unwrap();
        assert_eq!(message.subject, "Your cart, Ada <3");
        assert_eq!(message.text.as_deref(), Some("Hello Ada <3, use SAVE10."));
        assert_eq!(message.html.as_deref(), Some("<p>Hello Ada &lt;3, 10 % off</p>"));
    }

    #[test]
    fn absent_null_or_empty_value_fails_the_rendering() {
        for name in ["event.absent", "event.city", "event.zip", "vars.offer", "steps.make-code.output.id"] {
            let messages = messages(&[(Part::Subject, "x"), (Part::Text, &format!("one\nHello {{{{ {name} }}}}"))]);
            let problem = messages.render("cart", &scope(), None).unwrap_err().0;
            assert!(problem.contains("`cart.txt`, line 2"), "{problem}");
            assert!(problem.contains(&format!("`{name}` has no value")), "{problem}");
        }
    }

    #[test]
    fn default_filter_and_condition_handle_missing_values() {
        let text = "Hello {{ event.city | default('friend') }}{% if event.zip %} in {{ event.zip }}{% endif %}";
        let messages = messages(&[(Part::Subject, "x"), (Part::Text, text)]);
        assert_eq!(messages.render("cart", &scope(), None).unwrap().text.as_deref(), Some("Hello friend"));
    }

    #[test]
    fn invalid_parts_are_rejected_on_load() {
        let mut messages = Messages::default();
        let problem = messages.add("cart", Part::Text, "one\n{{ event.email").unwrap_err();
        assert_eq!(problem.line, 2, "{problem:?}");
        let problem = messages.add("cart", Part::Text, "{{ event.name | uper }}").unwrap_err();
        assert!(problem.message.contains("uper"), "{problem:?}");
        let unknown = messages.render("cart", &scope(), None).unwrap_err().0;
        assert!(unknown.contains("unknown template `cart`"), "{unknown}");
    }

    #[test]
    fn variables_of_a_message_are_known_without_an_event() {
        let messages =
            messages(&[(Part::Text, "a\n{{ evnt.email }} {% for item in event.items %}{{ item.name }}{% endfor %}")]);
        let reads = messages.get("cart").unwrap().reads();
        let names: Vec<(&str, usize)> = reads.iter().map(|(_, name, line)| (name.as_str(), *line)).collect();
        assert_eq!(names, [("event.items", 2), ("evnt.email", 2)]);
    }

    proptest::proptest! {
        #[test]
        fn add_and_render_never_panic(text in "[a-z{}%# .|()'-]{0,60}") {
            let mut messages = Messages::default();
            if messages.add("m", Part::Html, &text).is_ok() {
                let _ = messages.render("m", &scope(), None);
            }
        }
    }
}
