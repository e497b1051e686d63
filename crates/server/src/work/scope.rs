//! What the steps of a job can see.

use serde_json::Value;
use sluice_domain::event::Event;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::template::Scope;
use sluice_ledger::{EventBody, EventRecord};

use crate::live::Live;

/// The event, the request's body and headers, as expressions see them.
pub fn scope_of(live: &Live, event: &EventRecord, body: &EventBody, queue: &str) -> Result<Scope, Failure> {
    let unreadable = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(FailureClass::Mapping, "unreadable", format!("the stored {what} of this event cannot be read: {error}"))
    };
    let mut normalized: Event =
        serde_json::from_str(&body.normalized).map_err(|error| unreadable("normalized event", &error))?;
    normalized.audit.raw_event_ref = format!("ledger://events/{}/raw", event.id);
    let raw: Value = serde_json::from_slice(&body.raw).map_err(|error| unreadable("body", &error))?;
    let headers: Value = serde_json::from_str(&body.headers).map_err(|error| unreadable("headers", &error))?;
    let mut scope = Scope::new();
    scope.set("event", normalized.to_scope());
    scope.set("headers", headers);
    scope.set("body", raw);
    if let Some(expression) = live.config.flows.get(&event.flow).and_then(|flow| {
        flow.enqueue.iter().find(|enqueue| enqueue.queue == queue).and_then(|enqueue| enqueue.body_from.as_ref())
    }) {
        let chosen = expression
            .evaluate(&scope)
            .map_err(|problem| Failure::new(FailureClass::Mapping, "body_from", problem.to_string()))?;
        scope.set("body", chosen.unwrap_or(Value::Null));
    }
    Ok(scope)
}
