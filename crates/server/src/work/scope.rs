//! What the steps of a job can see.

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::event::{Event, EventOrigin};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::template::{Scope, TemplateProblem};
use sluice_ledger::{EventBody, EventRecord};

use crate::revisions::LoadedRevision;

/// The event, the request's body and headers, as expressions see them. Under another configuration than the event's own, the
/// event is mapped anew from the request.
pub fn scope_of(
    live: &LoadedRevision,
    event: &EventRecord,
    body: &Arc<EventBody>,
    queue: &str,
) -> Result<Scope, Failure> {
    let unreadable =
        |what: &str, error: &serde_json::Error| format!("the stored {what} of this event cannot be read: {error}");
    let stored = |problem: String| Failure::new(FailureClass::Mapping, "unreadable", problem);
    let mut scope = Scope::new();
    // Most steps read the event alone.
    let kept = body.clone();
    scope.set_lazy("headers", move || {
        serde_json::from_str(&kept.headers).map_err(|error| TemplateProblem(unreadable("headers", &error)))
    });
    let flow = live.config.flows.get(&*event.flow);
    let normalized = match flow.filter(|_| *live.revision != *event.revision) {
        // The job runs under another configuration than its event was mapped by: a replay asked for that mapping.
        Some(flow) => {
            let mut raw: Value =
                serde_json::from_slice(&body.raw).map_err(|error| stored(unreadable("body", &error)))?;
            flow.body.dropped.iter().for_each(|path| {
                path.remove(&mut raw);
            });
            scope.set("body", raw);
            let origin = EventOrigin {
                source: &event.source,
                idempotency_key: &event.key_text,
                id: event.id,
                received_at: event.received_at,
            };
            let event = flow.event.apply(&scope, origin).map_err(|problem| {
                Failure::new(
                    FailureClass::Mapping,
                    "mapping",
                    format!("the newer mapping does not fit this event: {problem}"),
                )
            })?;
            event.to_scope()
        }
        None => {
            let raw_event_ref = format!("ledger://events/{}/raw", event.id);
            let normalized = match body.decoded.take() {
                Some(mut event) => {
                    event.audit.raw_event_ref = raw_event_ref;
                    event.into_scope()
                }
                None => Event::scope_of_text(&body.normalized, raw_event_ref)
                    .map_err(|error| stored(unreadable("normalized event", &error)))?,
            };
            let kept = body.clone();
            scope.set_lazy("body", move || {
                serde_json::from_slice(&kept.raw).map_err(|error| TemplateProblem(unreadable("body", &error)))
            });
            normalized
        }
    };
    scope.set("event", normalized);
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

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_domain::event::EventId;
    use sluice_domain::time::Time;

    use crate::config::{EnvironmentThenFiles, Files};
    use crate::intake::{RequestMeta, prepare};

    const CONFIG: &str = "
name: leads
triggers: [{ http: { path: /in, idempotency: { key_from: body.id }, verify: none } }]
event:
  type: lead.created
  identity: { email: \"{{ body.email | lower }}\" }
  attributes: { company: body.company }
steps: [{ queue: leads }]
queues: [leads]
";

    #[test]
    fn later_runs_see_the_same_event_as_the_first_run() {
        let files = Files::from_texts([("flow.yml", CONFIG)]);
        let (live, _) = crate::run::ready(&files, &EnvironmentThenFiles::new(".")).unwrap();
        let flow = &live.config.flows["leads"];
        for n in 0..8 {
            let body = format!(r#"{{"id": "lead-{n}", "email": "Ada{n}@Example.com", "company": "Engines"}}"#);
            let request = RequestMeta { received_at: Time(1_000), verified_by: None, trace: "" };
            let headers = hyper::HeaderMap::from_iter([(
                hyper::header::CONTENT_TYPE,
                hyper::header::HeaderValue::from_static("application/json"),
            )]);
            let new = prepare(&live, flow, &headers, body.as_bytes(), request).unwrap().into_new().1;
            // Not the first event of its key: its id differs from the one that intake expected.
            let event = new.record(EventId::new(new.key, 1));
            let seen = || scope_of(&live, &event, &new.body, "leads").unwrap().get("event").unwrap().to_string();
            let (first, later) = (seen(), seen());
            assert_eq!(first, later);
            assert!(first.contains(&format!("ledger://events/{}/raw", event.id)), "{first}");
            assert!(new.body.decoded.take().is_none(), "the first run has taken it");
        }
    }
}
