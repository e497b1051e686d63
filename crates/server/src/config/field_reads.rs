//! Compares the fields that workers and their messages read with those that flows map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_domain::action::Action;
use sluice_domain::alert;
use sluice_domain::flow::Flow;
use sluice_domain::template::{Expression, Messages, Template};
use sluice_domain::worker::Worker;

use super::cross_checks::types_of;
use super::declarations::Placed;
use super::diagnostics::Diagnostics;
use super::message;
use super::node::{Span, YamlKind, YamlNode};
use super::problem::did_you_mean;
use super::read::Files;
use super::worker::ReadWorker;

/// Fields that every event has.
const SHAPE: [&str; 10] = [
    "schema_version",
    "event_id",
    "event_type",
    "source",
    "occurred_at",
    "idempotency_key",
    "identity",
    "attributes",
    "routing",
    "audit",
];
/// Keys whose text is an expression without braces.
const BARE_EXPRESSIONS: [&str; 2] = ["if", "foreach"];

/// Fields of the event that the document of a worker reads, with their location.
pub(super) fn event_reads(node: &YamlNode) -> Vec<(String, Span)> {
    let mut reads = Vec::new();
    visit(node, "", &mut reads);
    reads
}

fn visit(node: &YamlNode, key: &str, reads: &mut Vec<(String, Span)>) {
    match &node.kind {
        YamlKind::Map(entries) => {
            // A program is not a template.
            let templates = entries.iter().filter(|entry| entry.key != "script");
            templates.for_each(|entry| visit(&entry.value, &entry.key, reads));
        }
        YamlKind::List(items) => items.iter().for_each(|item| visit(item, key, reads)),
        YamlKind::Scalar(scalar) if scalar.text.contains("event") => {
            let mut read = |expression: &Expression| {
                reads.extend(expression.members("event").into_iter().map(|name| (name, node.span)));
            };
            if scalar.text.contains("{{") {
                if let Ok(template) = Template::parse_text(&scalar.text) {
                    template.visit_expressions(&mut |expression| read(expression));
                }
            } else if BARE_EXPRESSIONS.contains(&key)
                && let Ok(expression) = Expression::parse(&scalar.text)
            {
                read(&expression);
            }
        }
        YamlKind::Scalar(_) => {}
    }
}

/// Names of the messages that a worker sends, in safe mode too.
fn messages_sent(worker: &Worker) -> BTreeSet<&str> {
    let named = worker.steps.iter().filter(|step| step.action == Action::SendTemplate).filter_map(|step| {
        let Template::Map(entries) = &step.with else { return None };
        match entries.iter().find(|(name, _)| name == "template") {
            Some((_, Template::Literal(name))) => name.as_str(),
            _ => None,
        }
    });
    let sent: BTreeSet<&str> = named.collect();
    let safer = sent.iter().filter_map(|name| worker.safe_mode.templates.get(*name)).map(String::as_str);
    sent.iter().copied().chain(safer).collect()
}

/// Warns of fields that a worker or one of its messages reads and that no flow which feeds it maps.
pub(super) fn check(
    diagnostics: &Diagnostics<'_>,
    files: &Files,
    messages: &Messages,
    flows: &BTreeMap<String, Placed<Arc<Flow>>>,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) {
    let filled_by_steps: BTreeSet<&str> =
        workers.values().flat_map(|worker| worker.value.fills.iter()).map(String::as_str).collect();
    let mut reported = BTreeSet::new();
    for placed in workers.values() {
        let worker = &placed.value.worker;
        if worker.schedule.is_some() || filled_by_steps.contains(worker.queue.as_str()) {
            continue;
        }
        let feeding: Vec<&Flow> = flows.values().map(|flow| &*flow.value).filter(|flow| feeds(flow, worker)).collect();
        let Some(mapped) = mapped_fields(&feeding) else { continue };
        let own = placed.value.event_reads.iter().map(|(name, span)| (placed.place.file.clone(), name.clone(), *span));
        let sent = messages_sent(worker).into_iter().flat_map(|name| message::event_reads(files, messages, name));
        for (file, name, span) in own.chain(sent) {
            if mapped.contains(name.as_str()) || !reported.insert((file.clone(), name.clone(), span.start)) {
                continue;
            }
            warn(diagnostics, (&file, span), &name, &feeding, &mapped);
        }
    }
}

fn warn(
    diagnostics: &Diagnostics<'_>,
    (file, span): (&str, Span),
    name: &str,
    feeding: &[&Flow],
    mapped: &BTreeSet<&str>,
) {
    let flows: Vec<String> = feeding.iter().map(|flow| format!("`{}`", flow.name)).collect();
    let hint = match did_you_mean(name, mapped.iter().copied()) {
        Some(near) => format!("did you mean `event.{near}`?"),
        None => {
            format!("map it under `event: attributes:` of {}, or read the request: body.{name}", flows.join(" or "))
        }
    };
    let message = format!("`event.{name}` never has a value: the mapping of {} has no such field", flows.join(" and "));
    diagnostics.report(file).warning(span, "field-not-mapped", message).hint(hint);
}

fn feeds(flow: &Flow, worker: &Worker) -> bool {
    let by_queue = flow.enqueue.iter().any(|enqueue| enqueue.queue == worker.queue);
    let types = types_of(flow);
    let is_own = |on: &str| alert::OWN_EVENT_TYPES.contains(&on);
    let by_type = worker.on.as_deref().is_some_and(|on| types.contains(&on) || (types.is_empty() && !is_own(on)));
    by_queue || by_type
}

/// The fields that these flows map; `None` if one of them passes the whole body on, or there is none.
fn mapped_fields<'a>(flows: &[&'a Flow]) -> Option<BTreeSet<&'a str>> {
    if flows.is_empty() {
        return None;
    }
    let mut mapped: BTreeSet<&str> = SHAPE.into_iter().collect();
    for flow in flows {
        mapped.extend(flow.event.identity.iter().map(|(name, _)| name.as_str()));
        mapped.extend(flow.event.attributes.as_ref()?.iter().map(|(name, _)| name.as_str()));
    }
    Some(mapped)
}
