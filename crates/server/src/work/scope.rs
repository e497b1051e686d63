//! What the steps of a job can see.

use serde_json::Value;
use sluice_domain::event::{Event, Origin};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::template::Scope;
use sluice_ledger::{EventBody, EventRecord};

use crate::live::Live;

/// The event, the request's body and headers, as expressions see them. Under another configuration than the event's own, the
/// event is mapped anew from the request.
pub fn scope_of(live: &Live, event: &EventRecord, body: &EventBody, queue: &str) -> Result<Scope, Failure> {
    let unreadable = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(
            FailureClass::Mapping,
            "unreadable",
            format!("the stored {what} of this event cannot be read: {error}"),
        )
    };
    let mut raw: Value = serde_json::from_slice(&body.raw).map_err(|error| unreadable("body", &error))?;
    let headers: Value = serde_json::from_str(&body.headers).map_err(|error| unreadable("headers", &error))?;
    let mut scope = Scope::new();
    let flow = live.config.flows.get(&event.flow);
    let normalized = match flow.filter(|_| *live.revision != *event.revision) {
        // The job runs under another configuration than its event was mapped by: a replay asked for that mapping.
        Some(flow) => {
            flow.body.dropped.iter().for_each(|path| {
                path.remove(&mut raw);
            });
            scope.set("headers", headers);
            scope.set("body", raw);
            let origin = Origin {
                source: &event.source,
                idempotency_key: &event.key_text,
                id: event.id,
                received_at: event.received_at,
            };
            flow.event.apply(&scope, origin).map_err(|problem| {
                Failure::new(
                    FailureClass::Mapping,
                    "mapping",
                    format!("the newer mapping does not fit this event: {problem}"),
                )
            })?
        }
        None => {
            let mut normalized: Event =
                serde_json::from_str(&body.normalized).map_err(|error| unreadable("normalized event", &error))?;
            normalized.audit.raw_event_ref = format!("ledger://events/{}/raw", event.id);
            scope.set("headers", headers);
            scope.set("body", raw);
            normalized
        }
    };
    scope.set("event", normalized.to_scope());
    if let Some(expression) = flow.and_then(|flow| {
        flow.enqueue.iter().find(|enqueue| enqueue.queue == queue).and_then(|enqueue| enqueue.body_from.as_ref())
    }) {
        let chosen = expression
            .evaluate(&scope)
            .map_err(|problem| Failure::new(FailureClass::Mapping, "body_from", problem.to_string()))?;
        scope.set("body", chosen.unwrap_or(Value::Null));
    }
    Ok(scope)
}
