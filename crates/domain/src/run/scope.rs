//! What the expressions of a job see.

use std::sync::Arc;

use serde_json::Value;

use super::ConfigRevision;
use crate::event::EventOrigin;
use crate::flow::Flow;
use crate::outcome::{Failure, FailureClass};
use crate::record::{EventBody, EventRecord};
use crate::template::{Scope, TemplateProblem};

/// The event, the body and the headers of its request. Under another revision than the event's own, the event is mapped again
/// from the request, unless it was edited.
pub fn scope_of(
    revision: &ConfigRevision,
    event: &EventRecord,
    body: &Arc<EventBody>,
    queue: &str,
) -> Result<Scope, Failure> {
    let mut scope = Scope::new();
    scope.set_pseudonyms(revision.pseudonyms.clone());
    // Most steps read the event alone.
    let stored = body.clone();
    scope.set_lazy("headers", move || {
        serde_json::from_str(&stored.headers).map_err(|error| TemplateProblem(unreadable("headers", &error)))
    });
    let flow = revision.config.flows.get(&*event.flow);
    // An edit counts under every revision.
    let normalized = match flow.filter(|_| *revision.name != *event.revision && body.edits == 0) {
        Some(flow) => map_again(flow, event, body, &mut scope)?,
        None => {
            let stored = body.clone();
            scope.set_lazy("body", move || {
                serde_json::from_slice(&stored.raw).map_err(|error| TemplateProblem(unreadable("body", &error)))
            });
            let stored = body.scope(event.id);
            stored.map_err(|error| unreadable_failure("normalized event", &error))?
        }
    };
    scope.set_shared("event", normalized);
    let enqueue = flow.and_then(|flow| flow.enqueue.iter().find(|enqueue| enqueue.queue == queue));
    if let Some(expression) = enqueue.and_then(|enqueue| enqueue.body_from.as_ref()) {
        let chosen = expression
            .evaluate(&scope)
            .map_err(|problem| Failure::new(FailureClass::Mapping, "body_from", problem.to_string()))?;
        scope.set("body", chosen.unwrap_or(Value::Null));
    }
    Ok(scope)
}

/// A replay asked for another revision: its mapping is applied to the stored request. An identity that was supplied since then is kept.
fn map_again(flow: &Flow, event: &EventRecord, body: &EventBody, scope: &mut Scope) -> Result<Arc<Value>, Failure> {
    let mut raw: Value = serde_json::from_slice(&body.raw).map_err(|error| unreadable_failure("body", &error))?;
    for path in &flow.body.dropped {
        path.remove(&mut raw);
    }
    scope.set("body", raw);
    let origin = EventOrigin {
        source: &event.source,
        idempotency_key: &event.key_text,
        id: event.id,
        received_at: event.received_at,
    };
    let mut mapped = flow.event.apply(scope, origin).map_err(|problem| {
        let message = format!("the newer mapping does not fit this event: {problem}");
        Failure::new(FailureClass::Mapping, "mapping", message)
    })?;
    mapped.identity.extend(body.supplied.clone());
    Ok(Arc::new(mapped.to_scope()))
}

fn unreadable(what: &str, error: &serde_json::Error) -> String {
    format!("the stored {what} of this event cannot be read: {error}")
}

fn unreadable_failure(what: &str, error: &serde_json::Error) -> Failure {
    Failure::new(FailureClass::Mapping, "unreadable", unreadable(what, error))
}
