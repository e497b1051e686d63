//! Lists and queues in a step: `foreach:`, `rate_limit:`, `queue:` and `queue_pull:`.

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
    about: "How far apart two items of a list are. The job waits in between, over restarts too.",
    keys: &[
        key("per_integration", ValueType::Rate, "So many in so long, evenly spread.").required(),
        key("jitter", ValueType::Described("a span of time such as 200-600ms"), "By chance so much longer.").or("none"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static PULL: SectionSpec = SectionSpec {
    title: "a pull",
    about: "Dead letters to look at.",
    keys: &[
        key("from", ValueType::Name, "The dead-letter queue.").required(),
        key("max_messages", ValueType::Count(1, 1000), "How many, oldest first.").or("20"),
        key("max_replays", ValueType::Count(1, 1000), "One that was replayed this often is left for a person.").or("5"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static PUT: SectionSpec = SectionSpec {
    title: "the queue of a worker's step",
    about: "Where something is put, what, and under which key.",
    keys: &[
        key("name", ValueType::Name, "The queue.").required(),
        key("body_from", ValueType::Expression("item.body"), "What its workers see as `body`.")
            .or("the body of this event"),
        key("key_from", ValueType::Expression("item.id"), "The key under which it is accepted once.")
            .or("the key of this event, the step and the item"),
    ],
    later: &[],
    rules: &[],
};

/// A list: `step:NAME.path`, or an expression with or without `{{ }}`.
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

/// One expression, as `step:NAME.path`, in `{{ }}` or bare.
fn one_expression(report: Report<'_>, node: &YamlNode, name: &str, visible: Visible<'_>) -> Option<Expression> {
    let Some(text) = node.text().map(str::trim) else {
        report
            .error(node.span, "wrong-type", format!("`{name}` must be an expression, and this is {}", node.describe()))
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

/// What `queue:`, `queue_pull:` or their `with:` says.
pub(super) fn queueing<'n>(fields: &Fields<'n, '_>, action: Action) -> Option<&'n YamlNode> {
    match action {
        Action::Queue => fields.node_if_known("queue").or(fields.node("with")),
        Action::QueuePull => fields.node_if_known("queue_pull").or(fields.node("with")),
        _ => None,
    }
}

/// The parameters of a step that puts into a queue or pulls from one.
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
