//! `with:` against the catalogue of actions.

use serde_json::Value;
use sluice_domain::action::{Action, Parameter, Shape};
use sluice_domain::key::names_a_moment;
use sluice_domain::template::Template;
use sluice_domain::unit;

use super::expression::{Visible, template};
use super::node::{Entry, Kind, Node, Span};
use super::problem::did_you_mean;
use super::report::Report;

/// Parameters that decide how an effect is treated before any event is there: no template can fill them.
const DECIDED_BEFORE: [&str; 3] = ["class", "repeat", "policy"];

/// Reads and checks the parameters; `destination` is somebody else's.
pub(super) fn read(
    report: Report<'_>,
    action: Action,
    node: Option<&Node>,
    with_span: Span,
    action_span: Span,
    visible: Visible<'_>,
) -> Option<Template> {
    let spec = action.spec();
    let empty = Node { span: action_span, kind: Kind::Map(vec![]) };
    let node = node.unwrap_or(&empty);
    let Some(entries) = node.entries() else {
        report
            .error(node.span, "wrong-type", format!("`with` is a map, and this is {}", node.describe()))
            .hint(format!("its keys are {}", list(spec.parameters)));
        return None;
    };
    let mut meant = vec![];
    for entry in entries.iter().filter(|entry| entry.key != "destination") {
        match spec.parameters.iter().find(|parameter| parameter.name == entry.key) {
            Some(parameter) => check_shape(report, &entry.value, parameter),
            None => {
                let names = spec.parameters.iter().map(|parameter| parameter.name).chain(["destination"]);
                let near = did_you_mean(&entry.key, names);
                meant.extend(near);
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("its parameters are {}", list(spec.parameters)),
                };
                let message = format!("{} has no parameter `{}`", spec.name, entry.key);
                report.error(entry.key_span, "unknown-parameter", message).hint(hint);
            }
        }
    }
    let at = if entries.is_empty() { action_span } else { with_span };
    for parameter in spec.parameters.iter().filter(|parameter| parameter.required) {
        if node.get(parameter.name).is_none_or(Node::is_null) && !meant.contains(&parameter.name) {
            report
                .error(at, "missing-parameter", format!("{} needs the parameter `{}`", spec.name, parameter.name))
                .hint(parameter.about);
        }
    }
    match action {
        Action::HttpRequest => check_http(report, node),
        Action::EmailSend => check_one_of(report, node, at, ["text", "html"]),
        Action::SlackPost => check_one_of(report, node, at, ["text", "blocks"]),
        Action::StoreSetnx => check_one_of(report, node, at, ["ttl_seconds", "ttl"]),
        Action::ComputeDedupKey => check_fields(report, node),
        Action::SalesforceUpsert
        | Action::PostgresUpsert
        | Action::Script
        | Action::SendTemplate
        | Action::Queue
        | Action::QueuePull => {}
        Action::PolicyCheck | Action::ConsentSet | Action::ApprovalRequest => {}
    }
    let taken = |entry: &&Entry| entry.key != "destination" && !is_verbatim(action, &entry.key);
    let rest = entries.iter().filter(taken).cloned().collect();
    let read = template(report, &Node { span: node.span, kind: Kind::Map(rest) }, visible)?;
    let Template::Map(mut parameters) = read else { return Some(read) };
    for entry in entries.iter().filter(|entry| is_verbatim(action, &entry.key)) {
        parameters.push((entry.key.clone(), Template::Literal(entry.value.to_value())));
    }
    Some(Template::Map(parameters))
}

/// A program has braces and dollar signs of its own.
fn is_verbatim(action: Action, name: &str) -> bool {
    action == Action::Script && name == "script"
}

/// One of the two must be there.
fn check_one_of(report: Report<'_>, node: &Node, at: Span, names: [&str; 2]) {
    if names.iter().all(|name| node.get(name).is_none()) {
        report.error(at, "missing-parameter", format!("there is neither `{}` nor `{}`", names[0], names[1]));
    }
}

fn list(parameters: &[Parameter]) -> String {
    parameters.iter().map(|parameter| parameter.name).collect::<Vec<_>>().join(", ")
}

/// What the value of a parameter must be, in words.
pub(super) fn describe(shape: &Shape) -> String {
    match shape {
        Shape::Text => "text".into(),
        Shape::Flag => "true or false".into(),
        Shape::OneOf(words) => super::table::Shape::OneOf(words).describe(),
        Shape::Map => "a map of names to values".into(),
        Shape::Any => "anything".into(),
        Shape::Duration => "a duration such as 10s".into(),
        Shape::Numbers => "a list of whole numbers".into(),
        Shape::Texts => "text, or a list of texts".into(),
        Shape::Number => "a number above zero".into(),
    }
}

fn check_shape(report: Report<'_>, node: &Node, parameter: &Parameter) {
    let filled_in = node.text().is_some_and(|text| text.contains("{{") || text.contains("${secrets."));
    let value = node.to_value();
    let good = match &parameter.shape {
        _ if filled_in && DECIDED_BEFORE.contains(&parameter.name) => {
            report.error(
                node.span,
                "expression-not-here",
                format!("`{}` is decided before any event is there, so {{{{ … }}}} has no value here", parameter.name),
            );
            return;
        }
        Shape::Any => true,
        Shape::Map => node.entries().is_some() || filled_in,
        Shape::Numbers => node.items().is_some_and(|items| items.iter().all(|item| item.to_value().is_u64())),
        Shape::Texts if node.items().is_some() => {
            node.items().is_some_and(|items| items.iter().all(|item| item.text().is_some()))
        }
        _ if filled_in => true,
        Shape::Text | Shape::Texts => node.text().is_some(),
        Shape::Number => value.as_f64().is_some_and(|number| number > 0.0),
        Shape::Flag => value.is_boolean(),
        Shape::OneOf(words) => node.text().is_some_and(|text| words.contains(&text)),
        Shape::Duration => match node.text().map(unit::duration) {
            Some(Err(problem)) => {
                report.error(node.span, "bad-value", format!("`{}`: {problem}", parameter.name));
                return;
            }
            found => found.is_some(),
        },
    };
    if good {
        return;
    }
    let written = match &value {
        Value::String(text) if text.len() <= 60 => format!("`{text}`"),
        _ => node.describe().to_owned(),
    };
    let message = format!("`{}` must be {}, and this is {written}", parameter.name, describe(&parameter.shape));
    let reported = report.error(node.span, "wrong-type", message);
    if let (Shape::OneOf(words), Some(text)) = (&parameter.shape, node.text()) {
        reported.meant(text, words.iter().copied(), "");
    }
}

/// A key in stretches of time needs a moment.
fn check_fields(report: Report<'_>, node: &Node) {
    let Some(fields) = node.get("fields").and_then(Node::items) else { return };
    let is_moment = |field: &Node| field.text().is_some_and(|name| name.contains("{{") || names_a_moment(name));
    if let Some(width) = node.get("bucket_minutes")
        && !fields.iter().any(is_moment)
    {
        report
            .warning(
                width.span,
                "no-moment",
                "no field is named like a moment, and only a moment is cut into stretches",
            )
            .hint("add the field that says when it happened, such as timestamp or occurred_at");
    }
}

/// What the catalogue cannot say: parameters that exclude or need one another.
fn check_http(report: Report<'_>, node: &Node) {
    let bodies = node
        .entries()
        .unwrap_or_default()
        .iter()
        .filter(|entry| ["json", "form", "text"].contains(&entry.key.as_str()));
    if let Some(second) = bodies.clone().nth(1) {
        report
            .error(second.key_span, "exclusive-keys", "a request has one body: `json`, `form` or `text`")
            .hint("keep one of them");
    }
    let Some(class) = node.get("class") else { return check_verify(report, node) };
    for (word, means) in [("keyed", "idempotency_header"), ("verifiable", "verify")] {
        if class.text() == Some(word) && node.get(means).is_none() {
            report
                .error(class.span, "class-without-means", format!("a {word} effect needs `{means}`"))
                .hint(format!("add `{means}`, or leave `class` out"));
        }
    }
    check_verify(report, node);
}

fn check_verify(report: Report<'_>, node: &Node) {
    let Some(verify) = node.get("verify").filter(|verify| verify.entries().is_some()) else { return };
    for entry in verify.entries().unwrap_or_default() {
        if !["url", "headers"].contains(&entry.key.as_str()) {
            report.error(entry.key_span, "unknown-parameter", format!("`verify` has no key `{}`", entry.key)).meant(
                &entry.key,
                ["url", "headers"],
                "its keys are url and headers",
            );
        }
    }
    if verify.get("url").is_none() {
        report.error(verify.span, "missing-parameter", "`verify` needs `url`, which answers 2xx or 404");
    }
}
