//! What only the whole configuration can show of playbooks and of pulls.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sluice_domain::flow::Flow;
use sluice_domain::template::Template;

use super::compile::is_dead_letter_queue;
use super::declarations::{Declarations, Placed};
use super::diagnostics::Diagnostics;
use super::problem::did_you_mean;
use super::worker::ReadWorker;

/// The types of event that a flow makes, as far as they are written.
pub(super) fn types_of(flow: &Flow) -> Vec<&str> {
    match &flow.event.event_type {
        Template::Literal(Value::String(name)) => vec![name],
        _ => vec![],
    }
}

/// Whether the types of a flow depend on its requests.
fn is_open(flow: &Flow) -> bool {
    types_of(flow).is_empty()
}

/// A playbook whose type nobody makes does nothing, and neither does a flow without steps that no playbook is for.
pub(super) fn check_playbooks(
    desk: &Diagnostics<'_>,
    flows: &BTreeMap<String, Placed<Arc<Flow>>>,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) {
    let known: Vec<&str> = flows.values().flat_map(|flow| types_of(&flow.value)).collect();
    let open = flows.values().any(|flow| is_open(&flow.value));
    for placed in workers.values() {
        let (Some(on), Some(span)) = (&placed.value.worker.on, placed.value.on) else { continue };
        if known.contains(&on.as_str()) || open {
            continue;
        }
        let hint = match did_you_mean(on, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write `event: {{type: {on}}}` into the flow that it is for"),
        };
        desk.report(&placed.place.file)
            .warning(
                span,
                "type-without-flow",
                format!("no flow makes events of the type `{on}`, so this playbook has nothing to do"),
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
            desk.report(&placed.place.file)
                .error(
                    placed.place.span,
                    "no-steps",
                    format!("the flow `{name}` puts its events into no queue, and no playbook is for them"),
                )
                .hint(format!(
                    "add `steps: [{{queue: NAME}}]`, or a playbook with `on: {}`",
                    if types.is_empty() { "TYPE" } else { &types }
                ));
        }
    }
}

/// Only dead letters can be pulled.
pub(super) fn check_pulls(
    desk: &Diagnostics<'_>,
    names: &Declarations,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) {
    for placed in workers.values() {
        for (queue, span) in &placed.value.pulled {
            if is_dead_letter_queue(queue, names, workers) {
                continue;
            }
            let report = desk.report(&placed.place.file);
            if names.queues.contains_key(queue) {
                report
                    .error(
                        *span,
                        "not-a-dead-letter-queue",
                        format!("`{queue}` holds no dead letters, and only those can be pulled"),
                    )
                    .hint(format!("write {queue}-dlq"));
            } else {
                let known = names.queues.keys().map(String::as_str);
                report.error(*span, "unknown-queue", format!("no queue is called `{queue}`")).meant(queue, known, "");
            }
        }
    }
}
