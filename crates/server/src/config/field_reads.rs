//! Compares the fields that workers read with those that flows map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_domain::flow::Flow;
use sluice_domain::template::{Expression, Template};
use sluice_domain::worker::Worker;

use super::cross_checks::types_of;
use super::declarations::Placed;
use super::diagnostics::Diagnostics;
use super::node::{Span, YamlKind, YamlNode};
use super::problem::did_you_mean;
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

/// Warns of fields that a worker reads and that no flow which feeds it maps.
pub(super) fn check(
    diagnostics: &Diagnostics<'_>,
    flows: &BTreeMap<String, Placed<Arc<Flow>>>,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) {
    let filled_by_steps: BTreeSet<&str> =
        workers.values().flat_map(|worker| worker.value.fills.iter()).map(String::as_str).collect();
    for placed in workers.values() {
        let worker = &placed.value.worker;
        if worker.schedule.is_some() || filled_by_steps.contains(worker.queue.as_str()) {
            continue;
        }
        let feeding: Vec<&Flow> = flows.values().map(|flow| &*flow.value).filter(|flow| feeds(flow, worker)).collect();
        let Some(mapped) = mapped_fields(&feeding) else { continue };
        let mut reported = BTreeSet::new();
        for (name, span) in &placed.value.event_reads {
            if mapped.contains(name.as_str()) || !reported.insert((name, span.start)) {
                continue;
            }
            let names: Vec<String> = feeding.iter().map(|flow| format!("`{}`", flow.name)).collect();
            let hint = match did_you_mean(name, mapped.iter().copied()) {
                Some(near) => format!("did you mean `event.{near}`?"),
                None => format!(
                    "map it under `event: attributes:` of {}, or read the request: body.{name}",
                    names.join(" or ")
                ),
            };
            diagnostics
                .report(&placed.place.file)
                .warning(
                    *span,
                    "field-not-mapped",
                    format!(
                        "`event.{name}` never has a value: the mapping of {} has no such field",
                        names.join(" and ")
                    ),
                )
                .hint(hint);
        }
    }
}

fn feeds(flow: &Flow, worker: &Worker) -> bool {
    let by_queue = flow.enqueue.iter().any(|enqueue| enqueue.queue == worker.queue);
    let types = types_of(flow);
    let by_type = worker.on.as_deref().is_some_and(|on| types.is_empty() || types.contains(&on));
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
