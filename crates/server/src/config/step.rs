//! One item of `run:` to a [`Step`].

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_domain::action::Action;
use sluice_domain::destination::DestinationKind;
use sluice_domain::outcome::EffectClass;
use sluice_domain::retry::RetryPolicy;
use sluice_domain::script::Runtime;
use sluice_domain::template::Template;
use sluice_domain::worker::{OnError, Order, Step};

use super::destination::TIMEOUT;
use super::expression::{SecretUse, Visible, WORKED, condition};
use super::fields::Fields;
use super::flow::step_name;
use super::names::Names;
use super::node::{Node, Span};
use super::report::Report;
use super::retry;
use super::script::{self, NeededRuntime};
use super::table::{Shape, Table, key};
use super::with;

pub(super) static STEP: Table = Table {
    title: "a step",
    about: "One line of a worker: an action, with what and where.",
    keys: &[
        key(
            "name",
            Shape::Name,
            "Its name, unique in its worker and part of the effect's key; do not change it lightly.",
        )
        .or("must be there, unless `id` is"),
        key("id", Shape::Name, "The same."),
        key("if", Shape::Condition, "Run only if this holds."),
        key("run", Shape::Described("the name of an action"), "What it does; the actions are listed below."),
        key(
            "uses",
            Shape::Described("the name of an action, or what runs a script: node:18, python:3, bash"),
            "The same, or the runtime of `script`.",
        ),
        key("script", Shape::Text, "The program itself, taken as it stands; goes with `uses`."),
        key("command", Shape::Described("a list of texts"), "A program and its arguments; goes with `run: script`."),
        key("env", Shape::Described("a map of names to text"), "More of a script's environment."),
        key("with", Shape::Described("a map of the action's parameters"), "With what."),
        key("destination", Shape::Name, "Where; may stand under `with` too.")
            .or("the only destination of the type that the action needs"),
        key("retry", Shape::Table("a retry policy"), "Its own retry policy, where it differs from the worker's."),
        key(
            "order",
            Shape::OneOf(&["fifo", "none"]),
            "fifo: jobs of one entity come here one at a time, first come first served.",
        )
        .or("fifo"),
    ],
    later: &["foreach", "queue", "queue_pull", "rate_limit"],
};

/// Actions of a later release: a known name deserves a better answer than "unknown".
const LATER: [&str; 8] = [
    "hubspot.upsert",
    "analytics.track",
    "messaging.send_template",
    "enrich.geoip",
    "policy.check",
    "approval.request",
    "queue",
    "queue_pull",
];

/// How long a step's call may take.
pub(super) struct Timeout {
    pub(super) span: Span,
    pub(super) destination: String,
    pub(super) timeout: Duration,
}

/// Every step of a worker.
#[derive(Default)]
pub(super) struct ReadSteps {
    pub(super) steps: Vec<Step>,
    pub(super) timeouts: Vec<Timeout>,
    /// The destinations that are always there, as far as they are used.
    pub(super) built_in: BTreeSet<&'static str>,
    pub(super) runtimes: Vec<NeededRuntime>,
}

/// Reads `run:` or `steps:` of a worker that consumes this queue.
pub(super) fn read_all(fields: &Fields<'_, '_>, context: (&Names, &str), policy: &RetryPolicy) -> ReadSteps {
    let report = fields.report;
    let mut read = ReadSteps::default();
    let node = match (fields.node("run"), fields.node("steps")) {
        (Some(_), Some(_)) => {
            report
                .error(fields.key_span("steps"), "exclusive-keys", "`run` and `steps` say the same thing")
                .hint("keep one of them");
            return read;
        }
        (run, steps) => run.or(steps),
    };
    let items = match node.map(|node| (node, node.items())) {
        Some((node, None)) => {
            report
                .error(
                    node.span,
                    "wrong-type",
                    format!("the steps of a worker are a list, and this is {}", node.describe()),
                )
                .hint("write `- name: …` for each step");
            return read;
        }
        Some((_, Some(items))) if !items.is_empty() => items,
        None if fields.is_meant("run") || fields.is_meant("steps") => return read,
        _ => {
            report
                .error(node.map_or(fields.span, |node| node.span), "no-steps", "this worker does nothing")
                .hint("add `run:` with a list of steps");
            return read;
        }
    };
    let ids: Vec<String> = items.iter().map(|item| written_id(item).to_owned()).collect();
    for (index, item) in items.iter().enumerate() {
        let visible =
            Visible { roots: WORKED, earlier: &ids[..index], later: &ids[index..], secrets: SecretUse::AtRunTime };
        read_one(report, item, visible, context, policy, &mut read);
    }
    read
}

fn written_id(node: &Node) -> &str {
    node.get("name").or_else(|| node.get("id")).and_then(Node::text).unwrap_or_default()
}

fn read_one(
    report: Report<'_>,
    node: &Node,
    visible: Visible<'_>,
    (names, consumed): (&Names, &str),
    policy: &RetryPolicy,
    read: &mut ReadSteps,
) {
    let Some(fields) = Fields::open(report, node, &[&STEP]) else { return };
    let id = step_name(&fields);
    match id {
        Some((id, span)) if visible.earlier.iter().any(|other| other == id) => {
            report
                .error(span, "duplicate-name", format!("two steps of this worker are called `{id}`"))
                .hint("a step's name is part of its effect's key, so it must be its own");
        }
        Some(_) => {}
        None if fields.is_meant("name") || fields.is_meant("id") => {}
        None => report
            .error(fields.span, "missing-key", "a step needs `name` or `id`")
            .hint("such as: name: upsert-contact"),
    }
    let condition = fields.node("if").and_then(|node| condition(report, node, visible));
    let order = match fields.one_of("order") {
        Some("none") => Order::None,
        _ => Order::Fifo,
    };
    let retry = fields.node("retry").map(|node| retry::read(report, node, policy, (names, consumed)));
    let Some((action, action_span)) = read_action(&fields, node) else {
        // The expressions are worth a look even when nobody knows what they are for.
        if let Some(node) = fields.node("with") {
            super::expression::template(report, node, visible);
        }
        return;
    };
    let script = (action == Action::Script).then(|| {
        let named = fields.node("run").or(fields.node("uses")).and_then(Node::text).unwrap_or_default();
        script::read(&fields, fields.node("with"), named, action_span)
    });
    if script.is_none() {
        script::refuse_keys(&fields, action);
    }
    let with_node = script.as_ref().map(|script| &script.with).or(fields.node("with"));
    let with = with::read(report, action, with_node, fields.key_span("with"), action_span, visible);
    let raw = with_node.map(Node::to_value).unwrap_or_default();
    let step = |destination: String, class: EffectClass| Step {
        id: id.map_or_else(String::new, |(id, _)| id.to_owned()),
        condition,
        action,
        destination,
        with: with.unwrap_or(Template::Map(vec![])),
        class,
        repeat_allowed: action.repeat_allowed(&raw),
        retry,
        order,
        foreach: None,
        pace: None,
        on_error: OnError::Fail,
        undoes: None,
    };
    if action.is_inner() {
        refuse_destination(&fields, action, with_node);
        read.steps.push(step(String::new(), action.class(&raw)));
        return;
    }
    let destination = read_destination(&fields, action, with_node, names);
    let Some(destination) = destination else { return };
    let (name, span) = destination;
    let found = names.destinations.get(&name).and_then(|placed| placed.value.as_ref());
    let longest = found.map_or(TIMEOUT, |found| found.timeout);
    let timeout = script.as_ref().map_or(longest, |script| script.timeout);
    read.timeouts.push(Timeout { span, destination: name.clone(), timeout });
    read.built_in.extend((!names.destinations.contains_key(&name)).then_some(action.spec().destination));
    read.runtimes.extend(script.as_ref().and_then(|script| script.needed.clone()));
    let class = found.map_or_else(|| action.class(&raw), |found| action.class_at(&raw, &found.kind));
    read.steps.push(step(name, class));
}

/// What stays inside goes nowhere.
fn refuse_destination(fields: &Fields<'_, '_>, action: Action, with: Option<&Node>) {
    let inside =
        with.and_then(|with| with.entries()).unwrap_or_default().iter().find(|entry| entry.key == "destination");
    let span = fields.node("destination").map(|_| fields.key_span("destination"));
    if let Some(span) = span.or(inside.map(|entry| entry.key_span)) {
        fields
            .report
            .error(span, "unknown-parameter", format!("{} has no destination: it stays inside", action.name()))
            .hint("leave `destination` out");
    }
}

fn read_action(fields: &Fields<'_, '_>, node: &Node) -> Option<(Action, Span)> {
    let report = fields.report;
    let found = match (fields.node("run"), fields.node("uses")) {
        (Some(_), Some(_)) => {
            report
                .error(fields.key_span("uses"), "exclusive-keys", "`run` and `uses` say the same thing")
                .hint("keep one of them");
            return None;
        }
        (run, uses) => run.or(uses),
    };
    let names = || Action::ALL.into_iter().map(Action::name);
    let Some(found) = found else {
        let is_later = |key: &str| STEP.later.contains(&key);
        let excused = fields.is_meant("run") || fields.is_meant("uses");
        if !excused && !node.entries().unwrap_or_default().iter().any(|entry| is_later(&entry.key)) {
            report
                .error(fields.span, "missing-key", "a step needs `run`, the name of an action")
                .hint(format!("the actions are {}", names().collect::<Vec<_>>().join(" and ")));
        }
        return None;
    };
    let Some(name) = found.text() else {
        report.error(
            found.span,
            "wrong-type",
            format!("`run` is the name of an action, and this is {}", found.describe()),
        );
        return None;
    };
    let runtime = (fields.node("uses").is_some() && Runtime::parse(name).is_some()).then_some(Action::Script);
    let action = Action::parse(name).or(runtime).map(|action| (action, found.span));
    if action.is_none() {
        if LATER.contains(&name) {
            report.error(
                found.span,
                "not-yet-supported",
                format!("the action `{name}` is not supported by this version yet"),
            );
        } else if name.contains(':') {
            script::unknown_runtime(report, found.span, name);
        } else {
            let otherwise = format!("the actions are {}", names().collect::<Vec<_>>().join(" and "));
            report.error(found.span, "unknown-action", format!("no action is called `{name}`")).meant(
                name,
                names(),
                &otherwise,
            );
        }
    }
    action
}

/// The name of the step's destination, and the place to speak of it.
fn read_destination(
    fields: &Fields<'_, '_>,
    action: Action,
    with: Option<&Node>,
    names: &Names,
) -> Option<(String, Span)> {
    let report = fields.report;
    let spec = action.spec();
    let inside = with.and_then(|with| with.get("destination"));
    let named = fields.node("destination").or(inside);
    if let (Some(outer), Some(inner)) = (fields.node("destination"), inside)
        && outer.text() != inner.text()
    {
        report
            .error(inner.span, "exclusive-keys", "`destination` stands on the step too, with another name")
            .hint("keep one of them");
    }
    let of_type = |wanted: &str| {
        let fits = move |kind: &DestinationKind| kind.as_str() == wanted;
        names
            .destinations
            .iter()
            .filter(move |(_, placed)| placed.value.as_ref().is_some_and(|found| fits(&found.kind)))
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
    };
    let fitting = of_type(spec.destination);
    let Some(named) = named else {
        return choose(fields, action, &fitting, with, names);
    };
    let Some(name) = named.text() else {
        report.error(named.span, "wrong-type", format!("`destination` is a name, and this is {}", named.describe()));
        return None;
    };
    match names.destinations.get(name).map(|placed| &placed.value) {
        Some(Some(found)) if found.kind.as_str() == spec.destination => {}
        Some(None) => return None,
        Some(Some(found)) => {
            report
                .error(
                    named.span,
                    "wrong-destination",
                    format!(
                        "{} needs a destination of type {}, and `{name}` is of type {}",
                        spec.name,
                        spec.destination,
                        found.kind.as_str()
                    ),
                )
                .meant("", [], &offer(&fitting));
            return None;
        }
        None if names.incomplete => return None,
        // The built-in destination may be named, as long as nothing else has its name.
        None if name == spec.destination && !spec.destination_required => {}
        None => {
            let known = names.destinations.keys().map(String::as_str);
            report.error(named.span, "unknown-destination", format!("no destination is called `{name}`")).meant(
                name,
                known,
                "declare it under `destinations:`",
            );
            return None;
        }
    }
    Some((name.to_owned(), named.span))
}

fn offer(fitting: &[&str]) -> String {
    match fitting {
        [] => String::new(),
        _ => format!("of that type there are {}", fitting.join(", ")),
    }
}

/// The only destination of the needed type, or the one that is always there.
fn choose(
    fields: &Fields<'_, '_>,
    action: Action,
    fitting: &[&str],
    with: Option<&Node>,
    names: &Names,
) -> Option<(String, Span)> {
    let spec = action.spec();
    let report = fields.report;
    let span = fields.node("run").or(fields.node("uses")).map_or(fields.span, |node| node.span);
    match fitting {
        [only] if !leads_elsewhere(only, with, names) => Some(((*only).to_owned(), span)),
        [] | [_] if !spec.destination_required => Some((spec.destination.to_owned(), span)),
        [] => {
            if !names.incomplete && !names.destinations.values().any(|placed| placed.value.is_none()) {
                report
                    .error(
                        span,
                        "no-destination",
                        format!("{} needs a destination of type {}, and there is none", spec.name, spec.destination),
                    )
                    .hint(format!("declare one: destinations: {{crm: {{type: {}, …}}}}", spec.destination));
            }
            None
        }
        several => {
            report
                .error(
                    span,
                    "ambiguous-destination",
                    format!("there are {} destinations of type {}", several.len(), spec.destination),
                )
                .hint(format!("write `destination:` with one of {}", several.join(", ")));
            None
        }
    }
}

/// A whole URL that is not below the destination's own must not be sent the destination's credentials.
fn leads_elsewhere(destination: &str, with: Option<&Node>, names: &Names) -> bool {
    let url = with.and_then(|with| with.get("url")).and_then(Node::text).unwrap_or_default();
    let is_whole = url.starts_with("http://") || url.starts_with("https://");
    let base = names.destinations.get(destination).and_then(|placed| match &placed.value.as_ref()?.kind {
        DestinationKind::Http(http) => http.base_url.as_deref(),
        _ => None,
    });
    is_whole
        && base.is_none_or(|base| {
            let base = base.trim_end_matches('/');
            url.strip_prefix(base).is_none_or(|rest| !(rest.is_empty() || rest.starts_with(['/', '?', '#'])))
        })
}
