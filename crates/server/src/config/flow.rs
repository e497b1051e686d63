//! A document with `triggers:` to [`Flow`]s.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_domain::alert;
use sluice_domain::flow::{DuplicateResult, Enqueue, Flow, PayloadRules, ResultField};
use sluice_domain::path::{Path, Segment};
use sluice_domain::template::{Expression, Template};
use sluice_domain::verify::Verifier;

use super::declarations::{Declarations, SourceLocation};
use super::diagnostics::Report;
use super::document::DOCUMENT;
use super::event;
use super::expression::{ACCEPTED, condition, expression, text_template};
use super::fields::{Fields, check_name};
use super::known_fields;
use super::node::{Span, YamlEntry, YamlNode};
use super::path_list;
use super::problem::did_you_mean;
use super::respond_within::{self, ReadResponse};
use super::rule::{KeyRule, same};
use super::table::{SectionSpec, ValueType, key};
use super::trigger::{self, Trigger};

pub(super) static FLOW: SectionSpec = SectionSpec {
    title: "a flow",
    about: "Turns requests of a source into events. A document with `triggers:` is a flow.",
    keys: &[
        key("version", ValueType::OneOf(&["1"]), "Version of the configuration language.").or("1"),
        key("name", ValueType::Name, "Unique name.").required(),
        key("source", ValueType::Name, "System that sends the requests.").or("the flow's name"),
        key("triggers", ValueType::Tables("a trigger"), "Triggers of the flow.").required(),
        key("event", ValueType::Table("an event"), "Mapping of the payload to an event.")
            .or("the body, with the id, type and time of the sender's scheme"),
        key(
            "drop",
            ValueType::Described("a list of paths into the body, or headers.NAME"),
            "Fields removed before anything is stored. A path through a list applies to every item.",
        )
        .or("fields known to hold secrets of the sender"),
        key("steps", ValueType::Tables("a step of a flow"), "Queues that receive the event.")
            .or("none: playbooks of its event type handle it"),
        key("responses", ValueType::Table("responses"), "Responses to the sender."),
        key(
            "respond_within",
            ValueType::Described("a duration, or a map with time and more"),
            "Deadline for the effect that answers an event: a person is told before it is over.",
        ),
    ],
    later: &["schedule", "on"],
    rules: &[],
};

pub(super) const NAME_OR_ID: KeyRule = same(&["name", "id"], "`id` and `name` are synonyms");

pub(super) static FLOW_STEP: SectionSpec = SectionSpec {
    title: "a step of a flow",
    about: "Puts the event into a queue.",
    keys: &[
        key("name", ValueType::Name, "Unique name.").or("the queue's name"),
        key("id", ValueType::Name, "Synonym of `name`."),
        key("if", ValueType::Condition, "Run only if this is true."),
        key(
            "queue",
            ValueType::Described("the name of a queue, or a map with name, body_from and key_from"),
            "The queue.",
        )
        .required(),
    ],
    later: &["run", "uses", "with", "foreach", "queue_pull"],
    rules: &[NAME_OR_ID],
};

pub(super) static ENQUEUE: SectionSpec = SectionSpec {
    title: "the queue of a step",
    about: "Queue, and the body for its workers.",
    keys: &[
        key("name", ValueType::Name, "The queue.").required(),
        key("body_from", ValueType::Expression("request.body"), "Value of `body` in the worker.").or("request.body"),
        key(
            "key_from",
            ValueType::Described("what the trigger's key_from says"),
            "Must equal the trigger's `key_from`: an event has one key.",
        ),
    ],
    later: &[],
    rules: &[],
};

pub(super) static RESPONSES: SectionSpec = SectionSpec {
    title: "responses",
    about: "Responses to the sender. A duplicate gets the status and the event id of the first request, and the values of `result`.",
    keys: &[
        key(
            "deduplicated_from",
            ValueType::OneOf(&["idempotency"]),
            "A duplicate gets the `id` in the output of each worker, once every job has succeeded.",
        )
        .or("a duplicate gets the status and the event id"),
        key(
            "result",
            ValueType::Described("a map of names to WORKER.PATH"),
            "Values that a duplicate gets instead: text and numbers in the output of a worker's job, such as the id of a CRM record. Only a request with the content of the first one, verified with the same secret, gets them.",
        )
        .or("what `deduplicated_from` says"),
        key("success_from", ValueType::Described("step:NAME"), "The step whose commit completes the request."),
    ],
    later: &[],
    rules: &[],
};

pub(super) struct ReadFlow {
    pub(super) name: (String, Span),
    pub(super) place: SourceLocation,
    pub(super) flow: Arc<Flow>,
    pub(super) respond: Option<ReadResponse>,
}

/// Reads a document: one flow per trigger.
pub(super) fn read(report: Report<'_>, node: &YamlNode, names: &Declarations) -> Vec<ReadFlow> {
    let Some(fields) = Fields::open(report, node, &[&FLOW, &DOCUMENT]) else { return vec![] };
    fields.one_of("version");
    let (name, name_span) = fields.name("name").unwrap_or(("", fields.span));
    let source = fields.name("source").map_or(name, |(source, _)| source);
    for key in ["name", "source"] {
        check_reserved(&fields, key);
    }
    let event = event::read(report, fields.node("event"), name, names);
    let triggers = trigger::read_all(report, fields.node("triggers"), &event);
    let (dropped, dropped_headers) = fields.node("drop").map(|node| read_drop(report, node)).unwrap_or_default();
    let enqueue = read_steps(&fields, names, &triggers);
    let result = fields.node("responses").map(|node| read_responses(report, node, &enqueue)).unwrap_or_default();
    let respond =
        fields.node("respond_within").and_then(|node| respond_within::read(report, node, &event.mapping.identity));
    let build = |(index, mut trigger): (usize, Trigger)| {
        trigger.body.dropped.extend(dropped.iter().cloned());
        trigger.body.dropped_headers.extend(dropped_headers.iter().cloned());
        let name = if index == 0 { name.to_owned() } else { format!("{name}#{}", index + 1) };
        let place = SourceLocation::new(report, trigger.path_span);
        let flow = Flow { result: result.clone(), ..assemble(&name, source, trigger, &event.admission, &enqueue) };
        ReadFlow { name: (name, name_span), place, flow: Arc::new(flow), respond: respond.clone() }
    };
    triggers.into_iter().enumerate().map(build).collect()
}

/// The events of the node itself have these names: a flow with one could take their keys or pass for them.
fn check_reserved(fields: &Fields<'_, '_>, key: &'static str) {
    if fields.node(key).and_then(YamlNode::text) == Some(alert::SOURCE) {
        let message = format!("`{}` is the source of the node's own events", alert::SOURCE);
        fields.report.error(fields.value_span(key), "reserved-name", message).hint("choose another name");
    }
}

/// Paths into the body, and names of headers.
fn read_drop(report: Report<'_>, node: &YamlNode) -> (Vec<Path>, Vec<String>) {
    let (headers, paths): (Vec<Path>, Vec<Path>) = path_list::read(report, node, "drop")
        .into_iter()
        .partition(|path| path.split_root().is_some_and(|(root, rest)| root == "headers" && !rest.is_empty()));
    let name = |path: &Path| match path.0.get(1) {
        Some(Segment::Key(name)) => Some(name.to_ascii_lowercase()),
        _ => None,
    };
    (paths, headers.iter().filter_map(name).collect())
}

fn assemble(name: &str, source: &str, trigger: Trigger, admission: &PayloadRules, enqueue: &[Enqueue]) -> Flow {
    let known_fields = known_fields::of(&trigger, admission, enqueue);
    let headers_read = headers_read(&trigger, enqueue);
    Flow {
        headers_read,
        result: DuplicateResult::Nothing,
        name: name.to_owned(),
        source: source.to_owned(),
        path: trigger.path,
        method: trigger.method,
        verify: trigger.verify,
        rate_limit: trigger.rate_limit,
        secret_limits: trigger.secret_limits,
        body_bytes_max: trigger.body_bytes_max,
        admission: PayloadRules { known_fields, ..admission.clone() },
        body: trigger.body,
        event: trigger.event,
        enqueue: enqueue.to_vec(),
        success: trigger.success,
        idempotency: trigger.idempotency,
        respond: None,
    }
}

/// Headers that the intake itself reads.
const OWN_HEADERS: [&str; 2] = ["content-encoding", "content-type"];

/// Headers, in lower case, that decide about a request: a request may carry each of them once only.
fn headers_read(trigger: &Trigger, enqueue: &[Enqueue]) -> BTreeSet<String> {
    let event = &trigger.event;
    let mut names: BTreeSet<String> = OWN_HEADERS.map(str::to_owned).into();
    names.extend(trigger.verify.iter().flat_map(Verifier::headers_read).map(str::to_owned));
    names.extend(trigger.idempotency.strategies.iter().flat_map(|strategy| strategy.headers(event)));
    let single = [Some(&event.event_type), event.source_event_id.as_ref(), event.occurred_at.as_ref()];
    let sections = [Some(&event.identity), event.attributes.as_ref(), Some(&event.routing)];
    let listed = sections.into_iter().flatten().flatten().map(|(_, field)| &field.from);
    names.extend(single.into_iter().flatten().chain(listed).flat_map(Template::headers));
    let read = enqueue.iter().flat_map(|step| step.condition.iter().chain(&step.body_from));
    names.extend(read.flat_map(Expression::headers));
    names
}

fn read_steps(fields: &Fields<'_, '_>, names: &Declarations, triggers: &[Trigger]) -> Vec<Enqueue> {
    let report = fields.report;
    let Some(node) = fields.node("steps") else { return vec![] };
    let Some(items) = node.items() else {
        report.error(node.span, "wrong-type", format!("`steps` must be a list, found {}", node.describe()));
        return vec![];
    };
    if items.is_empty() {
        report
            .error(node.span, "no-steps", "the flow has an empty list of steps, so its events would not be processed")
            .hint("such as: steps: [{queue: contacts}]");
    }
    let mut steps: Vec<Enqueue> = vec![];
    for item in items {
        if let Some(step) = read_step(report, item, names, triggers) {
            if steps.iter().any(|other| other.step == step.step) {
                report.error(item.span, "duplicate-name", format!("two steps have the name `{}`", step.step));
            }
            steps.push(step);
        }
    }
    steps
}

fn read_step(report: Report<'_>, node: &YamlNode, names: &Declarations, triggers: &[Trigger]) -> Option<Enqueue> {
    let fields = Fields::open(report, node, &[&FLOW_STEP])?;
    let name = step_name(&fields);
    let condition = fields.node("if").and_then(|node| condition(report, node, ACCEPTED));
    let queue_node = fields.node("queue")?;
    let mut body_from = None;
    let (queue, span) = match queue_node.text() {
        Some(queue) => (queue, queue_node.span),
        None => {
            let fields = Fields::open(report, queue_node, &[&ENQUEUE])?;
            body_from = fields.node("body_from").and_then(|node| read_body(report, node));
            if let Some(key) = fields.node("key_from") {
                check_key(report, key, triggers);
            }
            fields.name("name")?
        }
    };
    names.check_queue(report, span, queue);
    let step = name.map_or(queue, |(name, _)| name).to_owned();
    Some(Enqueue { step, queue: queue.to_owned(), condition, body_from })
}

/// A step's `name` or `id`.
pub(super) fn step_name<'n>(fields: &Fields<'n, '_>) -> Option<(&'n str, Span)> {
    let node = fields.node("name").or(fields.node("id"))?;
    let Some(text) = node.text() else {
        fields.report.error(node.span, "wrong-type", format!("a step name must be text, found {}", node.describe()));
        return None;
    };
    if text.contains('.') {
        fields
            .report
            .error(
                node.span,
                "bad-name",
                format!("`{text}` is not a valid step name: a dot ends a name in expressions"),
            )
            .hint(format!("write {}", text.replace('.', "-")));
    } else {
        check_name(fields.report, node.span, text);
    }
    Some((text, node.span))
}

/// `request.body` is the default.
fn read_body(report: Report<'_>, node: &YamlNode) -> Option<Expression> {
    let Some(text) = node.text().map(str::trim) else {
        report.error(node.span, "wrong-type", format!("`body_from` must be an expression, found {}", node.describe()));
        return None;
    };
    let read = match text.contains("{{") {
        true => match text_template(report, node.span, text, ACCEPTED)? {
            Template::Expression(expression) => Some(expression),
            _ => {
                report
                    .error(node.span, "bad-expression", "`body_from` must be one expression")
                    .hint("such as {{ body.payload }}");
                None
            }
        },
        false => expression(report, node.span, text, ACCEPTED),
    };
    read.filter(|expression| !matches!(expression.source(), "request.body" | "body"))
}

fn check_key(report: Report<'_>, node: &YamlNode, triggers: &[Trigger]) {
    let same = |trigger: &Trigger| trigger.key_written.as_ref().is_some_and(|written| *written == node.to_value());
    if !triggers.iter().all(same) {
        report
            .error(node.span, "key-differs", "this key differs from the trigger's; an event has one key")
            .hint("remove `key_from` here; the trigger's `idempotency.key_from` applies");
    }
}

fn read_responses(report: Report<'_>, node: &YamlNode, steps: &[Enqueue]) -> DuplicateResult {
    let Some(fields) = Fields::open(report, node, &[&RESPONSES]) else { return DuplicateResult::Nothing };
    check_success_step(&fields, steps);
    match (fields.node("result"), fields.one_of("deduplicated_from")) {
        (Some(node), _) => DuplicateResult::Named(read_result(report, node)),
        (None, Some(_)) => DuplicateResult::RecordIds,
        (None, None) => DuplicateResult::Nothing,
    }
}

/// `result`: names of the fields, each with a worker and a path into the output of its job.
fn read_result(report: Report<'_>, node: &YamlNode) -> Vec<ResultField> {
    let Some(entries) = node.entries() else {
        report
            .error(
                node.span,
                "wrong-type",
                format!("`result` must be a map of names to values, found {}", node.describe()),
            )
            .hint("such as: result: {contact_id: contact-upsert.id}");
        return vec![];
    };
    let read = |entry: &YamlEntry| {
        let text = entry.value.text().unwrap_or_default();
        let field = text.split_once('.').and_then(|(worker, path)| {
            let (name, worker) = (entry.key.clone(), worker.to_owned());
            Some(ResultField { name, worker, path: Path::parse(path)? })
        });
        if field.is_none() {
            report
                .error(
                    entry.value.span,
                    "bad-path",
                    format!("`{text}` does not name a worker and a path into its output"),
                )
                .hint("such as contact-upsert.id; `sluice jobs show` prints the output as `result`");
        }
        field
    };
    entries.iter().filter_map(read).collect()
}

fn check_success_step(fields: &Fields<'_, '_>, steps: &[Enqueue]) {
    let report = fields.report;
    let Some(text) = fields.text("success_from") else { return };
    let span = fields.node("success_from").map_or(fields.span, |node| node.span);
    match text.strip_prefix("step:") {
        Some(step) if steps.iter().any(|known| known.step == step) => {}
        Some(step) => {
            let known = || steps.iter().map(|known| known.step.as_str());
            report.error(span, "unknown-step", format!("unknown step `{step}`")).meant(step, known(), "");
        }
        None => {
            let near = did_you_mean(text, steps.iter().map(|known| known.step.as_str()));
            let step = near.or(steps.first().map(|known| known.step.as_str())).unwrap_or("NAME");
            report
                .error(span, "bad-value", format!("`success_from` must name a step, found `{text}`"))
                .hint(format!("write step:{step}"));
        }
    }
}
