//! Parses expressions and templates and checks the names they read.

use serde_json::Value;
use sluice_domain::template::{Expression, Scope, Template};

use super::diagnostics::Report;
use super::node::{Span, YamlKind, YamlNode};
use super::problem::did_you_mean;

/// Names visible to an expression.
#[derive(Clone, Copy)]
pub(super) struct Visible<'a> {
    /// Allowed first names of a path.
    pub(super) roots: &'static [&'static str],
    /// Steps that run before.
    pub(super) earlier: &'a [String],
    /// The steps that have not run yet.
    pub(super) later: &'a [String],
    pub(super) secrets: SecretUse,
}

/// Whether `${secrets.NAME}` is allowed in a template.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretUse {
    /// Replaced when the step runs.
    AtRunTime,
    /// Rejected, because the result is stored and displayed.
    Refused,
    /// Rejected, because a connector gets its secrets from the keys of a destination.
    OfDestination,
}

/// Scope of a flow's key and mapping.
pub(super) const REQUEST: Visible<'static> =
    Visible { roots: &["body", "headers", "request"], earlier: &[], later: &[], secrets: SecretUse::Refused };

/// Scope of a flow's steps.
pub(super) const ACCEPTED: Visible<'static> = Visible { roots: &["event", "body", "headers", "request"], ..REQUEST };

/// Scope of a worker's steps.
pub(super) const WORKED: &[&str] = &["event", "body", "headers", "request", "steps", "safe_mode"];

/// Scope of a step with `foreach`.
pub(super) const WORKED_ITEM: &[&str] = &["event", "body", "headers", "request", "steps", "item", "index"];

/// Functions available in every expression.
pub(super) const FUNCTIONS: [&str; 13] = [
    "range",
    "dict",
    "namespace",
    "debug",
    "normalize_email",
    "email_hash",
    "e164",
    "phone_hash",
    "sha256",
    "md5",
    "seconds",
    "urlencode",
    "raw_url",
];

/// Filters offered as suggestions.
pub(super) const FILTERS: [&str; 31] = [
    "abs",
    "capitalize",
    "default",
    "e164",
    "email_hash",
    "first",
    "float",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "max",
    "md5",
    "min",
    "normalize_email",
    "phone_hash",
    "raw_url",
    "replace",
    "round",
    "seconds",
    "sha256",
    "sort",
    "split",
    "string",
    "title",
    "trim",
    "upper",
    "urlencode",
];

/// Parses one expression, without `{{ }}`.
pub(super) fn expression(report: Report<'_>, span: Span, source: &str, visible: Visible<'_>) -> Option<Expression> {
    match Expression::parse(source) {
        Ok(expression) => {
            check(report, span, &expression, visible);
            Some(expression)
        }
        Err(problem) => {
            report.error(span, "bad-expression", problem.to_string());
            None
        }
    }
}

/// Parses a condition: an expression with or without `{{ }}`.
pub(super) fn condition(report: Report<'_>, node: &YamlNode, visible: Visible<'_>) -> Option<Expression> {
    let Some(text) = node.text() else {
        report.error(node.span, "wrong-type", format!("`if` must be an expression, found {}", node.describe()));
        return None;
    };
    let trimmed = text.trim();
    match trimmed.strip_prefix("{{").and_then(|inside| inside.strip_suffix("}}")) {
        Some(inside) if !inside.contains("{{") => expression(report, node.span, inside, visible),
        None if !trimmed.contains("{{") => expression(report, node.span, trimmed, visible),
        _ => {
            report
                .error(node.span, "bad-expression", "`if` must be one expression, not text with expressions in it")
                .hint("write {{ a == b }}, and `and` or `or` between two conditions");
            None
        }
    }
}

/// Parses a value of any type that may contain templates.
pub(super) fn template(report: Report<'_>, node: &YamlNode, visible: Visible<'_>) -> Option<Template> {
    match &node.kind {
        YamlKind::Scalar(scalar) => match scalar.to_value() {
            Value::String(text) => {
                if !scalar.quoted {
                    warn_of_path(report, node.span, &text, visible.roots);
                }
                text_template(report, node.span, &text, visible)
            }
            value => Some(Template::Literal(value)),
        },
        YamlKind::List(items) => {
            let items: Vec<_> = items.iter().map(|item| template(report, item, visible)).collect();
            items.into_iter().collect::<Option<_>>().map(Template::List)
        }
        YamlKind::Map(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|entry| Some((entry.key.clone(), template(report, &entry.value, visible)?)))
                .collect();
            entries.into_iter().collect::<Option<_>>().map(Template::Map)
        }
    }
}

/// Warns of unquoted text that looks like a path to a value, with a root that is known or nearly so: it is sent as text.
fn warn_of_path(report: Report<'_>, span: Span, text: &str, roots: &[&str]) {
    let Some(first) = first_of_path(text) else { return };
    let Some(near) =
        roots.iter().find(|root| **root == first).copied().or_else(|| did_you_mean(first, roots.iter().copied()))
    else {
        return;
    };
    let meant = format!("{near}{}", &text[first.len()..]);
    // The mapping of a flow takes a path without braces.
    let meant = if roots == REQUEST.roots { format!("`{meant}`") } else { format!("{{{{ {meant} }}}}") };
    path_as_text(report, span, text, &format!("did you mean {meant}? Put text in quotes"));
}

pub(super) fn path_as_text(report: Report<'_>, span: Span, text: &str, hint: &str) {
    report.warning(span, "path-as-text", format!("`{text}` is used as text: it is no value")).hint(hint);
}

/// The first name of unquoted text that looks like a path: names with dots between them, such as `bdy.company`.
pub(super) fn first_of_path(text: &str) -> Option<&str> {
    let (first, rest) = text.split_once('.')?;
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '[' | ']'))
    };
    (is_name(first) && rest.split('.').all(is_name)).then_some(first)
}

pub(super) fn text_template(report: Report<'_>, span: Span, text: &str, visible: Visible<'_>) -> Option<Template> {
    let template = match Template::parse_text(text) {
        Ok(template) => template,
        Err(problem) => {
            report.error(span, "bad-expression", problem.to_string());
            return None;
        }
    };
    template.visit_expressions(&mut |expression| check(report, span, expression, visible));
    for name in template.secrets() {
        match visible.secrets {
            SecretUse::AtRunTime => report.secret_at_run_time(span, &name),
            SecretUse::Refused => report
                .error(span, "secret-not-here", format!("the secret `{name}` would become part of a stored event"))
                .hint("use secrets in `verify:`, in `destinations:` and under `with:`"),
            SecretUse::OfDestination => report
                .error(span, "secret-not-here", format!("a connector cannot read the secret `{name}`"))
                .hint("declare a key of type secret under `destination:` and write {{ destination.NAME }}"),
        }
    }
    if let Some(at) = text.find("${").filter(|at| !text[*at..].starts_with("${secrets.")) {
        let written: String = text[at..].chars().take_while(|c| *c != '}').take(40).collect();
        report
            .warning(
                span,
                "unknown-interpolation",
                format!("`{written}}}` is not replaced: only secrets are written so"),
            )
            .hint("write ${secrets.NAME} for a secret and {{ … }} for a value");
    }
    Some(template)
}

/// Warns of a value that identifies something and has a value of its own where the payload has none: everything that lacks the
/// part would be one.
pub(super) fn warn_of_fallback(report: Report<'_>, span: Span, template: &Template, what: &str) {
    let mut reads = false;
    let mut blank = None;
    template.visit_expressions(&mut |expression| {
        reads |= !expression.roots().is_empty();
        let squeezed: String = expression.source().chars().filter(|c| !c.is_whitespace()).collect();
        let is_blank = ["default('')", "default(\"\")", "or''", "or\"\""].iter().any(|text| squeezed.contains(text));
        blank = blank.or(is_blank.then(|| expression.source()));
    });
    let hidden = reads && matches!(template.render_identity(&Scope::new()), Ok(Some(_)));
    let (message, hint) = match blank {
        _ if hidden => (
            format!(
                "this {what} has a value even if the payload lacks what it reads, so everything that lacks it counts as the same"
            ),
            "remove the fallback: a part that is missing makes the whole value missing",
        ),
        Some(source) => (
            format!("the fallback in `{source}` has no effect: a blank {what} counts as missing"),
            "remove the fallback",
        ),
        None => return,
    };
    report.warning(span, "fallback-in-identity", message).hint(hint);
}

/// Checks the names that an expression reads.
fn check(report: Report<'_>, span: Span, expression: &Expression, visible: Visible<'_>) {
    let source = expression.source();
    for root in expression.roots() {
        if visible.roots.contains(&root.as_str()) || FUNCTIONS.contains(&root.as_str()) {
            continue;
        }
        if root == "secrets" {
            report
                .error(span, "secret-in-expression", format!("`{source}` reads a secret; expressions cannot"))
                .hint("write ${secrets.NAME} outside of {{ }}");
            continue;
        }
        if root == "steps" && visible.roots == REQUEST.roots {
            report
                .error(
                    span,
                    "unknown-name",
                    format!("`{source}` reads the output of a step, and a flow is mapped before any step runs"),
                )
                .hint("for the identity of an event, write `identity:` on the `enrich` step of the worker");
            continue;
        }
        let names = visible.roots.join(", ");
        let first = if visible.roots.contains(&"event") { "event" } else { "body" };
        let message = match source == root {
            true => format!("unknown name `{root}`"),
            false => format!("`{source}` reads `{root}`, which is not available here"),
        };
        let hint = match did_you_mean(&root, visible.roots.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if source == root => {
                format!("a value starts with {names}, such as {first}.{root}; put text in quotes")
            }
            None => format!("a value starts with {names}"),
        };
        report.error(span, "unknown-name", message).hint(hint);
    }
    for step in expression.steps() {
        if visible.earlier.contains(&step) || !visible.roots.contains(&"steps") {
            continue;
        }
        if visible.later.contains(&step) {
            report
                .error(span, "step-order", format!("`{source}` reads the step `{step}`, which runs later"))
                .hint("a step can read the outputs of earlier steps");
        } else {
            report
                .error(span, "unknown-step", format!("`{source}` reads the step `{step}`, which does not exist"))
                .meant(&step, visible.earlier.iter().map(String::as_str), "");
        }
    }
    // Filters and functions are resolved when they are called. An evaluation with an empty scope finds the unknown
    // ones; other failures of it are ignored, because they may succeed with an event.
    let unknown = ["unknown filter", "unknown function", "unknown test", "unknown method"];
    if let Err(problem) = expression.evaluate(&Scope::new())
        && unknown.iter().any(|kind| problem.0.contains(kind))
    {
        let filter =
            problem.0.split("filter ").last().and_then(|rest| rest.strip_suffix(" is unknown")).unwrap_or_default();
        report.error(span, "bad-expression", problem.0.as_str()).meant(filter, FILTERS, "");
    }
}
