//! One item of `run:` to a [`Step`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluice_domain::action::{Action, BatchForm};
use sluice_domain::outcome::EffectClass;
use sluice_domain::retry::RetryPolicy;
use sluice_domain::template::Template;
use sluice_domain::worker::{LaneOrder, OnError, Step};

use super::approval;
use super::contacts;
use super::declarations::Declarations;
use super::destination::TIMEOUT;
use super::diagnostics::Report;
use super::expression::{SecretUse, Visible, WORKED, WORKED_ITEM, condition};
use super::fields::Fields;
use super::flow::{NAME_OR_ID, step_name};
use super::lookup::{self, NeededDatabase};
use super::message;
use super::node::{Span, YamlNode};
use super::policy;
use super::rule::{KeyRule, at_least_one, at_most_one, needs, same};
use super::safe_mode;
use super::script::{self, NeededRuntime};
use super::table::{SectionSpec, ValueType, key};
use super::{foreach, parameters, retry, step_action, step_destination};

const RUN_OR_USES: KeyRule = same(&["run", "uses"], "`run` and `uses` are synonyms");
const TWO_THINGS: &str = "a step has one action, and this one has `{first}` and `{second}`";

pub(super) static STEP: SectionSpec = SectionSpec {
    title: "a step",
    about: "One action of a worker, with its parameters and destination.",
    keys: &[
        key(
            "name",
            ValueType::Name,
            "Name, unique in its worker and part of the effect key. A renamed step is a different effect.",
        )
        .or("required, unless `id` is set"),
        key("id", ValueType::Name, "Synonym of `name`."),
        key("if", ValueType::Condition, "Run only if this is true."),
        key("run", ValueType::Described("the name of an action"), "The action."),
        key(
            "uses",
            ValueType::Described("the name of an action, or what runs a script: node:18, python:3, bash"),
            "Synonym of `run`, or the runtime of `script`.",
        ),
        key("script", ValueType::Text, "Source code of the script, verbatim; requires `uses`."),
        key("command", ValueType::Described("a list of texts"), "Program and arguments; requires `run: script`."),
        key("env", ValueType::Described("a map of names to text"), "Additional environment variables of a script."),
        key("with", ValueType::Described("a map of the action's parameters"), "Parameters of the action."),
        key("destination", ValueType::Name, "Destination; also allowed under `with`.")
            .or("the only destination of the required type"),
        key("retry", ValueType::Table("a retry policy"), "Retry policy of the step; inherits from the worker's."),
        key(
            "policy",
            ValueType::Described("the name of a policy, or a list of them"),
            "Policies evaluated before the effect; a denied effect is a no-op.",
        ),
        key(
            "order",
            ValueType::OneOf(&["fifo", "latest", "none"]),
            "fifo: jobs of one entity run this step one at a time, in order of acceptance. latest: the same, and the merged state of the contact is written instead of the values of the event; a job whose values were written by another one is a no-op. none: no order.",
        )
        .or("fifo"),
        key(
            "fields",
            ValueType::OneOf(&["changed", "all"]),
            "For `order: latest`. changed: send the fields that changed since the last confirmed write. all: send every field; postgres.upsert always does.",
        )
        .or("changed"),
        key(
            "queue",
            ValueType::Described("the name of a queue, or a map with name, body_from and key_from"),
            "Puts an event into a queue; see the action `queue`.",
        ),
        key("queue_pull", ValueType::Table("a pull"), "Reads dead letters; see the action `queue_pull`."),
        key(
            "foreach",
            ValueType::Described("a list: step:NAME.path, or an expression"),
            "Runs the step once per item; expressions see `item` and `index`. At most 1000 items. Each item is a separate effect, and the output is the list of their outputs.",
        ),
        key("rate_limit", ValueType::Table("a pace"), "Pace of the items of `foreach`."),
        key(
            "on_error",
            ValueType::OneOf(&["fail", "continue", "dead"]),
            "Handling of a permanent failure. fail: applied effects are undone, and the job is a dead letter. continue: the job continues, and the output has error. dead: the job is a dead letter immediately; nothing is undone.",
        )
        .or("fail"),
        key("undo", ValueType::Table("an undo"), "Reverses the effect if a later step fails permanently."),
        key(
            "identity",
            ValueType::Described(lookup::IDENTITY),
            "For an `enrich` step in front of every other action: identity fields that its output supplies for an event that was quarantined without one. The event is released if they identify a contact.",
        ),
    ],
    later: &[],
    rules: &[
        NAME_OR_ID,
        at_least_one(&["name", "id"], "a step needs `name` or `id`", "such as: name: upsert-contact"),
        RUN_OR_USES,
        at_most_one(&["queue", "queue_pull", "run"], TWO_THINGS, "split it into two steps"),
        at_most_one(&["queue", "queue_pull", "uses"], TWO_THINGS, "split it into two steps"),
        at_least_one(
            &["run", "uses", "queue", "queue_pull"],
            "a step needs `run`, the name of an action",
            "such as: run: http.request; `sluice reference actions` lists them all",
        ),
        needs(
            &["rate_limit", "foreach"],
            "`rate_limit` requires `foreach`",
            "to limit calls to a destination set its `rate:` under `destinations:`",
        ),
        at_most_one(&["foreach", "queue_pull"], "`queue_pull` cannot be combined with `foreach`", ""),
        at_most_one(
            &["foreach", "undo"],
            "`undo` cannot be combined with `foreach`",
            "undo all items in a separate step, or remove `undo`",
        ),
        at_most_one(&["foreach", "identity"], "`identity` cannot be combined with `foreach`", ""),
    ],
};

pub(super) static UNDO: SectionSpec = SectionSpec {
    title: "an undo",
    about: "A step that reverses an effect. Undos run in reverse order, each is a separate effect, and the job ends as a dead letter that lists them. A replay starts at the first step.",
    keys: &[
        key("if", ValueType::Condition, "Run only if this is true."),
        key("run", ValueType::Described("the name of an action"), "The action."),
        key(
            "uses",
            ValueType::Described("the name of an action, or what runs a script"),
            "Synonym of `run`, or the runtime of `script`.",
        ),
        key("script", ValueType::Text, "Source code of the script, verbatim; requires `uses`."),
        key("command", ValueType::Described("a list of texts"), "Program and arguments; requires `run: script`."),
        key("env", ValueType::Described("a map of names to text"), "Additional environment variables of a script."),
        key(
            "with",
            ValueType::Described("a map of the action's parameters"),
            "Parameters of the action; expressions can also read the output of the step.",
        ),
        key("destination", ValueType::Name, "Destination; also allowed under `with`.")
            .or("the only destination of the required type"),
        key("retry", ValueType::Table("a retry policy"), "Retry policy of the step; inherits from the worker's."),
    ],
    later: &[],
    rules: &[
        RUN_OR_USES,
        at_least_one(&["run", "uses"], "an undo needs `run`, the name of an action", "such as: run: http.request"),
    ],
};

pub(super) struct Timeout {
    pub(super) span: Span,
    pub(super) destination: String,
    pub(super) timeout: Duration,
}

#[derive(Default)]
pub(super) struct ReadSteps {
    pub(super) steps: Vec<Step>,
    /// Undo steps, in the order of the steps.
    pub(super) undo: Vec<Step>,
    pulls: Vec<String>,
    /// Dead-letter queues they read, with their location.
    pub(super) pulled: Vec<(String, Span)>,
    pub(super) timeouts: Vec<Timeout>,
    /// Built-in destinations in use.
    pub(super) built_in: BTreeSet<&'static str>,
    pub(super) runtimes: Vec<NeededRuntime>,
    pub(super) databases: Vec<NeededDatabase>,
    /// Replacement messages in safe mode.
    safer: BTreeMap<String, String>,
}

/// Reads `run:` or `steps:` of a worker that consumes this queue.
pub(super) fn read_all(fields: &Fields<'_, '_>, context: (&Declarations, &str), policy: &RetryPolicy) -> ReadSteps {
    let report = fields.report;
    let safer = safe_mode::written_templates(fields.node("safe_mode"));
    let mut read = ReadSteps { safer, ..ReadSteps::default() };
    let node = match (fields.node("run"), fields.node("steps")) {
        (Some(_), Some(_)) => return read,
        (run, steps) => run.or(steps),
    };
    let items = match node.map(|node| (node, node.items())) {
        Some((node, None)) => {
            report
                .error(
                    node.span,
                    "wrong-type",
                    format!("the steps of a worker must be a list, found {}", node.describe()),
                )
                .hint("write `- name: …` for each step");
            return read;
        }
        Some((_, Some(items))) if !items.is_empty() => items,
        None => return read,
        Some((node, _)) => {
            report.error(node.span, "no-steps", "the worker has no steps").hint("add `run:` with a list of steps");
            return read;
        }
    };
    let ids: Vec<String> = items.iter().map(|item| written_id(item).to_owned()).collect();
    for (index, item) in items.iter().enumerate() {
        let visible =
            Visible { roots: WORKED, earlier: &ids[..index], later: &ids[index..], secrets: SecretUse::AtRunTime };
        read_one(report, item, visible, context, policy, &mut read);
    }
    // Undos run in reverse order.
    read.undo.reverse();
    read
}

fn written_id(node: &YamlNode) -> &str {
    node.get("name").or_else(|| node.get("id")).and_then(YamlNode::text).unwrap_or_default()
}

fn read_one(
    report: Report<'_>,
    node: &YamlNode,
    visible: Visible<'_>,
    (names, consumed): (&Declarations, &str),
    retry_policy: &RetryPolicy,
    read: &mut ReadSteps,
) {
    let Some(fields) = Fields::open(report, node, &[&STEP]) else { return };
    let id = step_name(&fields);
    match id {
        Some((id, span)) if visible.earlier.iter().any(|other| other == id) => {
            report
                .error(span, "duplicate-name", format!("two steps of this worker have the name `{id}`"))
                .hint("a step name is part of the effect key, so it must be unique");
        }
        _ => {}
    }
    let id = id.map_or_else(String::new, |(id, _)| id.to_owned());
    let foreach = fields.node("foreach").and_then(|node| foreach::foreach(report, node, visible, &read.pulls));
    let visible = if fields.node("foreach").is_some() { Visible { roots: WORKED_ITEM, ..visible } } else { visible };
    let order = match fields.one_of("order") {
        Some("none") => LaneOrder::None,
        _ => LaneOrder::Fifo,
    };
    let retry = fields.node("retry").map(|node| retry::read(report, node, retry_policy, (names, consumed)));
    let pace = foreach::pace(&fields);
    let on_error = match fields.one_of("on_error") {
        Some("continue") => OnError::Continue,
        Some("dead") => OnError::Dead,
        _ => OnError::Fail,
    };
    let Some(step) = read_body(&fields, id.clone(), visible, names, read) else { return };
    if step.action == Action::QueuePull {
        read.pulls.push(id.clone());
        let from = foreach::queueing(&fields, step.action).and_then(|node| node.get("from"));
        read.pulled.extend(from.and_then(|from| Some((from.text()?.to_owned(), from.span))));
    }
    if fields.node("queue_pull").is_none() && foreach.is_some() && step.action == Action::QueuePull {
        report.error(fields.key_span("foreach"), "exclusive-keys", "`queue_pull` cannot be combined with `foreach`");
    }
    let policies = fields.node("policy").map_or_else(Vec::new, |node| policy::read_names(report, node, names));
    if step.action.is_internal() && fields.node("policy").is_some() {
        report
            .error(
                fields.key_span("policy"),
                "unknown-parameter",
                format!("{} has no external effect", step.action.name()),
            )
            .hint("move `policy:` to an external step");
    }
    let merged = contacts::merged_write(&fields, step.action, names);
    let seen: Vec<String> = visible.earlier.iter().cloned().chain([id.clone()]).collect();
    let identity = lookup::read_identity(&fields, &step, &read.steps, Visible { earlier: &seen, ..visible }, names);
    let step = Step { order, retry, foreach, pace, on_error, policies, merged, identity, ..step };
    if step.action == Action::ApprovalRequest {
        read.steps.extend(approval::message(report, &step, fields.node("with"), names, visible));
    }
    let place = read.steps.len();
    read.steps.push(step);
    if let Some(node) = fields.node("undo") {
        // An undo runs after its step, so it can read the step's output.
        let seen: Vec<String> = visible.earlier.iter().cloned().chain([id.clone()]).collect();
        let visible = Visible { earlier: &seen, ..visible };
        read_undo(&fields, node, (&id, place), visible, (names, consumed), retry_policy, read);
    }
}

fn read_undo(
    step: &Fields<'_, '_>,
    node: &YamlNode,
    (id, place): (&str, usize),
    visible: Visible<'_>,
    context: (&Declarations, &str),
    policy: &RetryPolicy,
    read: &mut ReadSteps,
) {
    let report = step.report;
    if step.node("foreach").is_some() {
        return;
    }
    let Some(fields) = Fields::open(report, node, &[&UNDO]) else { return };
    let retry = fields.node("retry").map(|node| retry::read(report, node, policy, context));
    let Some(undo) = read_body(&fields, format!("{id}.undo"), visible, context.0, read) else { return };
    if undo.action.is_internal() {
        report.error(fields.span, "bad-value", format!("{} is internal and cannot be an undo", undo.action.name()));
    }
    read.undo.push(Step { retry, undoes: Some(place), ..undo });
}

/// Reads the keys that steps and undos share.
fn read_body(
    fields: &Fields<'_, '_>,
    id: String,
    visible: Visible<'_>,
    names: &Declarations,
    read: &mut ReadSteps,
) -> Option<Step> {
    let report = fields.report;
    let condition = fields.node("if").and_then(|node| condition(report, node, visible));
    let Some((action, action_span)) = step_action::read(fields, &names.connectors) else {
        // Expressions are checked even if the action is unknown.
        if let Some(node) = fields.node("with") {
            super::expression::template(report, node, visible);
        }
        return None;
    };
    let script = (action == Action::Script).then(|| {
        let named = fields.node("run").or(fields.node("uses")).and_then(YamlNode::text).unwrap_or_default();
        script::read(fields, fields.node("with"), named, action_span)
    });
    if script.is_none() {
        script::refuse_keys(fields, action);
    }
    let with_node = script.as_ref().map(|script| &script.with).or(fields.node("with"));
    let raw = with_node.map(YamlNode::to_value).unwrap_or_default();
    let step = |destination: String, with: Option<Template>, class: EffectClass, batch: Option<BatchForm>| Step {
        id: id.into(),
        condition,
        action,
        destination: destination.into(),
        with: with.unwrap_or(Template::Map(vec![])),
        class,
        batch,
        resend_allowed: action.resend_allowed(&raw),
        retry: None,
        order: LaneOrder::Fifo,
        foreach: None,
        pace: None,
        on_error: OnError::Fail,
        undoes: None,
        policies: vec![],
        announces: None,
        identity: vec![],
        merged: None,
    };
    if let Some(node) = foreach::queueing(fields, action) {
        let with = foreach::queue(report, action, node, visible, names);
        return Some(step(String::new(), with, action.class(&raw), None));
    }
    let with = parameters::read(report, action, with_node, fields.key_span("with"), action_span, visible);
    if action == Action::SendTemplate {
        message::check_step(report, with_node, names, visible, &read.safer);
    }
    if let (Action::PolicyCheck, Some(node)) = (action, with_node.and_then(|with| with.get("policy")))
        && !parameters::is_filled_in(node)
    {
        policy::read_names(report, node, names);
    }
    read.databases.extend(lookup::needed_database(report, action, with_node));
    if action.spec().destination.is_empty() {
        step_destination::refuse(fields, action, with_node);
        return Some(step(String::new(), with, action.class(&raw), None));
    }
    let (name, span) = step_destination::read(fields, action, with_node, names)?;
    if action.is_lookup() {
        return Some(step(name, with, action.class(&raw), None));
    }
    let found = names.destinations.get(&name).and_then(|placed| placed.value.as_ref());
    let longest = found.map_or(TIMEOUT, |found| found.timeout);
    let timeout = script.as_ref().map_or(longest, |script| script.timeout);
    read.timeouts.push(Timeout { span, destination: name.clone(), timeout });
    read.built_in.extend((!names.destinations.contains_key(&name)).then_some(action.spec().destination));
    read.runtimes.extend(script.as_ref().and_then(|script| script.needed.clone()));
    let class = found.map_or_else(|| action.class(&raw), |found| action.class_at(&raw, &found.kind));
    let batch_max = found.and_then(|found| found.batch_max).unwrap_or(u32::MAX);
    let batch = action.batch_form(&raw).and_then(|form| form.limited(batch_max));
    Some(step(name, with, class, batch))
}
