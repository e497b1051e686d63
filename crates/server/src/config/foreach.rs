//! `foreach:`, `rate_limit:`, `queue:` and `queue_pull:` of a step.

use serde_json::json;
use sluice_domain::action::Action;
use sluice_domain::path::Segment;
use sluice_domain::template::{Expression, Template};
use sluice_domain::unit;
use sluice_domain::worker::{Foreach, Pace};

use super::declarations::Declarations;
use super::diagnostics::Report;
use super::expression::{Visible, expression, text_template};
use super::fields::Fields;
use super::node::YamlNode;
use super::table::{SectionSpec, ValueType, key};

pub(super) static PACE: SectionSpec = SectionSpec {
    title: "a pace",
    about: "Pace of the items of a list. The job waits in between, also across restarts.",
    keys: &[
        key("per_integration", ValueType::Rate, "Maximum rate of items, evenly spread.").required(),
        key("jitter", ValueType::Described("a span of time such as 200-600ms"), "Random additional delay.").or("none"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static PULL: SectionSpec = SectionSpec {
    title: "a pull",
    about: "Reads dead letters.",
    keys: &[
        key("from", ValueType::Name, "The dead-letter queue.").required(),
        key("max_messages", ValueType::Count(1, 1000), "Maximum number of messages, oldest first.").or("20"),
        key(
            "max_replays",
            ValueType::Count(1, 1000),
            "A dead letter replayed this many times is left for an operator.",
        )
        .or("5"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static PUT: SectionSpec = SectionSpec {
    title: "the queue of a worker's step",
    about: "Queue, body and key of the new event.",
    keys: &[
        key("name", ValueType::Name, "The queue.").required(),
        key("body_from", ValueType::Expression("item.body"), "Value of `body` in its workers.")
            .or("the body of this event"),
        key("key_from", ValueType::Expression("item.id"), "Idempotency key of the new event.")
            .or("the key of this event, the step and the item"),
    ],
    later: &[],
    rules: &[],
};

/// List expression: `step:NAME.path`, or an expression with or without `{{ }}`.
pub(super) fn foreach(report: Report<'_>, node: &YamlNode, visible: Visible<'_>, pulls: &[String]) -> Option<Foreach> {
    let list = one_expression(report, node, "foreach", visible)?;
    let pulled_by = list.as_path().and_then(|(root, path)| match (root, path.0.as_slice()) {
        ("steps", [Segment::Key(step), Segment::Key(output), Segment::Key(messages)])
            if output == "output" && messages == "messages" =>
        {
            pulls.iter().find(|pull| *pull == step).cloned()
        }
        _ => None,
    });
    Some(Foreach { list, pulled_by })
}

/// One expression: `step:NAME.path`, with or without `{{ }}`.
fn one_expression(report: Report<'_>, node: &YamlNode, name: &str, visible: Visible<'_>) -> Option<Expression> {
    let Some(text) = node.text().map(str::trim) else {
        report
            .error(node.span, "wrong-type", format!("`{name}` must be an expression, found {}", node.describe()))
            .hint("such as step:NAME.path or {{ body.items }}");
        return None;
    };
    if let Some(path) = text.strip_prefix("step:") {
        let (step, rest) =
            path.split_once('.').map_or((path, String::new()), |(step, rest)| (step, format!(".{rest}")));
        return expression(report, node.span, &format!("steps.{step}.output{rest}"), visible);
    }
    if text.contains("{{") {
        return match text_template(report, node.span, text, visible)? {
            Template::Expression(expression) => Some(expression),
            _ => {
                report.error(node.span, "bad-expression", format!("`{name}` must be one expression"));
                None
            }
        };
    }
    expression(report, node.span, text, visible)
}

/// `rate_limit:` of a step.
pub(super) fn pace(fields: &Fields<'_, '_>) -> Option<Pace> {
    let node = fields.node("rate_limit")?;
    let report = fields.report;
    let fields = Fields::open(report, node, &[&PACE])?;
    let rate = fields.rate("per_integration")?;
    let jitter = match fields.node("jitter").map(|node| (node, node.text().map(unit::span))) {
        None => Default::default(),
        Some((_, Some(Ok(span)))) => span,
        Some((node, Some(Err(problem)))) => {
            report.error(node.span, "bad-value", format!("`jitter`: {problem}"));
            return None;
        }
        Some((node, None)) => {
            report.error(node.span, "wrong-type", "`jitter` must be a span of time such as 200-600ms");
            return None;
        }
    };
    Some(Pace { rate, jitter })
}

/// Node of `queue:`, `queue_pull:` or their `with:`.
pub(super) fn queueing<'n>(fields: &Fields<'n, '_>, action: Action) -> Option<&'n YamlNode> {
    match action {
        Action::Queue => fields.node_if_known("queue").or(fields.node("with")),
        Action::QueuePull => fields.node_if_known("queue_pull").or(fields.node("with")),
        _ => None,
    }
}

/// Parameters of a `queue` or `queue_pull` step.
pub(super) fn queue(
    report: Report<'_>,
    action: Action,
    node: &YamlNode,
    visible: Visible<'_>,
    names: &Declarations,
) -> Option<Template> {
    let literal = |name: &str, value| (name.to_owned(), Template::Literal(value));
    if action == Action::QueuePull {
        let fields = Fields::open(report, node, &[&PULL])?;
        let (from, _) = fields.name("from")?;
        return Some(Template::Map(vec![
            literal("from", json!(from)),
            literal("max_messages", json!(fields.count("max_messages").unwrap_or(20))),
            literal("max_replays", json!(fields.count("max_replays").unwrap_or(5))),
        ]));
    }
    if let Some(name) = node.text() {
        names.check_queue(report, node.span, name);
        return Some(Template::Map(vec![literal("name", json!(name))]));
    }
    let fields = Fields::open(report, node, &[&PUT])?;
    let Some((name, name_span)) = fields.name("name") else {
        return Some(Template::Map(vec![literal("name", json!(""))]));
    };
    names.check_queue(report, name_span, name);
    let mut with = vec![literal("name", json!(name))];
    for (key, written) in [("body", "body_from"), ("key", "key_from")] {
        let node = if key == "body" { fields.node("body_from") } else { fields.node("key_from") };
        if let Some(read) = node.and_then(|node| one_expression(report, node, written, visible)) {
            with.push((key.to_owned(), Template::Expression(read)));
        }
    }
    Some(Template::Map(with))
}
