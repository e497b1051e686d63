//! `respond_within:` of a flow: a deadline for the effect that answers an event, and the second path to a person.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_domain::alert;
use sluice_domain::event::FieldMapping;
use sluice_domain::flow::Flow;
use sluice_domain::path::Path;
use sluice_domain::respond::{ClockStart, EVENT_TYPE, ResponseRule};
use sluice_domain::unit;

use super::cross_checks::types_of;
use super::declarations::{Declarations, Placed};
use super::diagnostics::{Diagnostics, Report};
use super::fields::Fields;
use super::node::{Span, YamlNode};
use super::notify;
use super::table::{LASTING, SectionSpec, ValueType, key};
use super::worker::ReadWorker;

pub(super) static RESPOND_WITHIN: SectionSpec = SectionSpec {
    title: "a response time",
    about: "Deadline of each event of the flow for the effect that answers it. When it is at risk, a person is told once, through the channels of `notify` and by playbooks with `on: response.at_risk`; the first path continues. A replay starts no clock.",
    keys: &[
        key("time", LASTING, "Time until the effect is done.").required(),
        key("until", ValueType::Described("WORKER or WORKER.STEP"), "The job or the effect that answers the event.")
            .or("the job of the only worker that handles the flow's events"),
        key(
            "from",
            ValueType::OneOf(&["receipt", "occurred_at"]),
            "Start: when the request was received, or the event's own time.",
        )
        .or("receipt"),
        key("warn_before", LASTING, "How long before the deadline a person is told.").or("a fifth of `time`"),
        key(
            "age_max",
            LASTING,
            "Events whose own time is longer ago when they are accepted have no deadline: imports and very late deliveries. One whose deadline is over when it is accepted is told at once.",
        )
        .or("1h"),
        key("notify", ValueType::Described("a list of names of channels"), "Channels of `alerts.notify` that tell a person.")
            .or("none: playbooks with `on: response.at_risk` do"),
        key(
            "show",
            ValueType::Described("a list of paths into the event, such as identity.email"),
            "Fields of the event that the person is told.",
        )
        .or("the identity fields"),
        key("mask", ValueType::Flag, "Mask email addresses, phone numbers and names in these fields.").or("true"),
    ],
    later: &[],
    rules: &[],
};

/// Events that are older when they are accepted have no clock.
const AGE_MAX: Duration = Duration::from_secs(3600);

/// A rule whose worker is not known yet.
#[derive(Clone, Debug)]
pub(super) struct ReadResponse {
    rule: ResponseRule,
    until: Option<(String, Span)>,
    notify: Vec<(String, Span)>,
    span: Span,
}

pub(super) fn read(report: Report<'_>, node: &YamlNode, identity: &[(String, FieldMapping)]) -> Option<ReadResponse> {
    let rule = |within: Duration| ResponseRule {
        within,
        start: ClockStart::Receipt,
        warn_before: within / 5,
        age_max: AGE_MAX,
        worker: "".into(),
        step: None,
        fields: identity.iter().filter_map(|(name, _)| Path::parse(name)).collect(),
        masked: true,
    };
    if let Some(text) = node.text() {
        let Some(within) = unit::duration(text).ok().filter(|time| !time.is_zero()) else {
            report
                .error(node.span, "bad-value", format!("`respond_within` must be a duration or a map, found `{text}`"))
                .hint("such as: respond_within: 5m");
            return None;
        };
        return Some(ReadResponse { rule: rule(within), until: None, notify: vec![], span: node.span });
    }
    let fields = Fields::open(report, node, &[&RESPOND_WITHIN])?;
    let (warn_before, age_max) = (fields.duration("warn_before"), fields.duration("age_max"));
    let start = match fields.one_of("from") {
        Some("occurred_at") => ClockStart::Occurred,
        _ => ClockStart::Receipt,
    };
    let until = fields.text("until").map(|text| (text.to_owned(), fields.value_span("until")));
    let notify = fields.node("notify").map(|node| notify::channel_names(report, node)).unwrap_or_default();
    let shown = fields.node("show").map(|node| read_paths(report, node));
    let masked = fields.flag("mask").unwrap_or(true);
    let rule = rule(fields.duration("time")?);
    let warn_before = warn_before.unwrap_or(rule.warn_before);
    if warn_before >= rule.within {
        report
            .error(fields.value_span("warn_before"), "contradiction", "`warn_before` must be shorter than `time`")
            .hint("a person would be told of every event");
    }
    let fields_shown = shown.unwrap_or_else(|| rule.fields.clone());
    let age_max = age_max.unwrap_or(rule.age_max);
    let rule = ResponseRule { start, warn_before, age_max, fields: fields_shown, masked, ..rule };
    Some(ReadResponse { rule, until, notify, span: fields.span })
}

fn read_paths(report: Report<'_>, node: &YamlNode) -> Vec<Path> {
    let items = node.items().map_or_else(|| vec![node], |items| items.iter().collect());
    let mut paths = vec![];
    for item in items {
        let text = item.text().unwrap_or_default();
        match Path::parse(text.strip_prefix("event.").unwrap_or(text)) {
            Some(path) => paths.push(path),
            None => report
                .error(item.span, "bad-path", format!("`{text}` is not a path into the event"))
                .hint("such as: identity.email"),
        }
    }
    paths
}

/// A flow with its rule, and the file that it is in.
pub(super) struct FlowResponse {
    pub(super) flow: String,
    pub(super) file: String,
    pub(super) read: ReadResponse,
}

/// Sets the rules of the flows and adds the playbooks of their channels.
pub(super) fn resolve(
    diagnostics: &Diagnostics<'_>,
    names: &Declarations,
    responses: Vec<FlowResponse>,
    flows: &mut BTreeMap<String, Placed<Arc<Flow>>>,
    workers: &mut BTreeMap<String, Placed<ReadWorker>>,
) {
    for FlowResponse { flow: name, file, read } in responses {
        let report = diagnostics.report(&file);
        let Some(placed) = flows.get_mut(&name) else { continue };
        let Some((worker, step)) = answering(report, &placed.value, &read, names, workers) else { continue };
        let mut flow = Flow::clone(&placed.value);
        flow.respond = Some(ResponseRule { worker, step, ..read.rule });
        placed.value = Arc::new(flow);
        // The triggers of one document are flows of their own; their playbook is shared.
        let is_first = !name.contains('#');
        let is_own = |other: &&String| **other == name || other.starts_with(&format!("{name}#"));
        let own: Vec<String> = flows.keys().filter(is_own).map(|other| format!("'{other}'")).collect();
        for channel in read.notify.iter().filter(|_| is_first) {
            let Some(channel) = notify::check_channel(report, (&channel.0, channel.1), names) else { continue };
            let condition = format!("event.source == '{}' and event.flow in [{}]", alert::SOURCE, own.join(", "));
            let playbook = format!("respond-{name}-{}", channel.name);
            notify::add_playbook(report, (channel, names), (playbook, EVENT_TYPE, condition), workers);
        }
        let is_told = workers.values().any(|worker| worker.value.worker.on.as_deref() == Some(EVENT_TYPE));
        if is_first && !is_told && !names.incomplete {
            report.warning(read.span, "no-second-path", "nobody is told when this deadline is at risk").hint(format!(
                "add `notify:` with a channel of `alerts.notify`, or a playbook with `on: {EVENT_TYPE}`"
            ));
        }
    }
}

type Answer = (Arc<str>, Option<Arc<str>>);

/// The worker and the step that answer the events of a flow.
fn answering(
    report: Report<'_>,
    flow: &Flow,
    read: &ReadResponse,
    names: &Declarations,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) -> Option<Answer> {
    let types = types_of(flow);
    let handles = |worker: &ReadWorker| {
        let by_queue = flow.enqueue.iter().any(|enqueue| enqueue.queue == worker.worker.queue);
        by_queue || worker.worker.on.as_deref().is_some_and(|on| types.is_empty() || types.contains(&on))
    };
    let own = |on: Option<&str>| on.is_some_and(|on| alert::OWN_EVENT_TYPES.contains(&on));
    let fed: Vec<&ReadWorker> = (workers.values().map(|worker| &worker.value))
        .filter(|worker| handles(worker) && !own(worker.worker.on.as_deref()))
        .collect();
    let known = || fed.iter().map(|worker| worker.worker.name.as_str()).collect::<Vec<_>>();
    let Some((text, span)) = &read.until else {
        return match fed.as_slice() {
            [only] => Some((only.worker.name.as_str().into(), None)),
            _ if names.incomplete => None,
            _ => {
                let message =
                    format!("{} workers handle the events of this flow; name the one that answers", fed.len());
                report
                    .error(read.span, "ambiguous-worker", message)
                    .hint(format!("until: one of {}", known().join(", ")));
                None
            }
        };
    };
    let named = |name: &str| fed.iter().find(|worker| worker.worker.name == name);
    // A name may contain dots, so the whole text is tried first.
    if let Some(worker) = named(text) {
        return Some((worker.worker.name.as_str().into(), None));
    }
    let found = text.rsplit_once('.').and_then(|(worker, step)| Some((named(worker)?, step)));
    let Some((worker, step)) = found else {
        if !names.incomplete {
            let message = format!("no worker `{text}` handles the events of this flow");
            report.error(*span, "unknown-worker", message).meant(
                text,
                known(),
                &format!("it may be one of {}", known().join(", ")),
            );
        }
        return None;
    };
    let steps: Vec<&str> = worker.worker.steps.iter().map(|step| &*step.id).collect();
    if !steps.contains(&step) {
        report.error(*span, "unknown-step", format!("`{}` has no step `{step}`", worker.worker.name)).meant(
            step,
            steps.iter().copied(),
            &format!("its steps are {}", steps.join(", ")),
        );
        return None;
    }
    Some((worker.worker.name.as_str().into(), Some(step.into())))
}
