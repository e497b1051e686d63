//! Checks across documents for playbooks and `queue_pull`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sluice_domain::alert;
use sluice_domain::flow::Flow;
use sluice_domain::template::Template;

use super::compile::is_dead_letter_queue;
use super::declarations::{Declarations, Placed};
use super::diagnostics::Diagnostics;
use super::problem::did_you_mean;
use super::worker::ReadWorker;

/// Event types that a flow produces, as far as they are literals.
pub(super) fn types_of(flow: &Flow) -> Vec<&str> {
    match &flow.event.event_type {
        Template::Literal(Value::String(name)) => vec![name],
        _ => vec![],
    }
}

/// Whether the event type depends on the request.
fn is_open(flow: &Flow) -> bool {
    types_of(flow).is_empty()
}

/// Warns of playbooks without a flow for their event type, and of flows whose events no worker handles.
pub(super) fn check_playbooks(
    diagnostics: &Diagnostics<'_>,
    flows: &BTreeMap<String, Placed<Arc<Flow>>>,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) {
    let known: Vec<&str> = flows.values().flat_map(|flow| types_of(&flow.value)).collect();
    let open = flows.values().any(|flow| is_open(&flow.value));
    for placed in workers.values() {
        let (Some(on), Some(span)) = (&placed.value.worker.on, placed.value.on) else { continue };
        if known.contains(&on.as_str()) || open || alert::OWN_EVENT_TYPES.contains(&on.as_str()) {
            continue;
        }
        let hint = match did_you_mean(on, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("set `event: {{type: {on}}}` in the flow that produces it"),
        };
        diagnostics
            .report(&placed.place.file)
            .warning(
                span,
                "type-without-flow",
                format!("no flow produces events of the type `{on}`, so this playbook never runs"),
            )
            .hint(hint);
    }
    for (name, placed) in flows {
        let flow = &placed.value;
        let heard = |name: &str| workers.values().any(|worker| worker.value.worker.on.as_deref() == Some(name));
        let has_playbook = match is_open(flow) {
            true => workers.values().any(|worker| worker.value.worker.on.is_some()),
            false => types_of(flow).iter().any(|name| heard(name)),
        };
        if flow.enqueue.is_empty() && !has_playbook {
            let types = types_of(flow).join(", ");
            diagnostics
                .report(&placed.place.file)
                .error(
                    placed.place.span,
                    "no-steps",
                    format!("the flow `{name}` puts its events into no queue, and no playbook handles them"),
                )
                .hint(format!(
                    "add `steps: [{{queue: NAME}}]`, or a playbook with `on: {}`",
                    if types.is_empty() { "TYPE" } else { &types }
                ));
        }
    }
}

/// `queue_pull` reads dead-letter queues only.
pub(super) fn check_pulls(
    diagnostics: &Diagnostics<'_>,
    names: &Declarations,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) {
    for placed in workers.values() {
        for (queue, span) in &placed.value.pulled {
            if is_dead_letter_queue(queue, names, workers) {
                continue;
            }
            let report = diagnostics.report(&placed.place.file);
            if names.queues.contains_key(queue) {
                report
                    .error(*span, "not-a-dead-letter-queue", format!("`{queue}` is not a dead-letter queue"))
                    .hint(format!("write {queue}-dlq"));
            } else {
                let known = names.queues.keys().map(String::as_str);
                report.error(*span, "unknown-queue", format!("unknown queue `{queue}`")).meant(queue, known, "");
            }
        }
    }
}
