//! `queue`: puts an event into a queue under a key, or requeues a dead letter that a `queue_pull` found.

use serde_json::{Value, json};

use super::super::item::StepItem;
use super::super::{Command, JobRun, Notice, Requeue, RunContext, first_route};
use super::{InternalOutcome, InternalStep, bad_parameter};
use crate::contact::Observation;
use crate::event::{Event, EventId, scalar};
use crate::flow::Idempotency;
use crate::job::{JobId, JobState};
use crate::key::{self, KEY_BYTES_MAX};
use crate::record::{EventDraft, NewEvent};
use crate::template::Scope;
use crate::trace::EventTrace;

impl JobRun {
    pub(super) fn queue(&self, item: &StepItem, with: Value, context: RunContext) -> InternalOutcome {
        let pulled = item.step().foreach.as_ref().is_some_and(|foreach| foreach.pulled_by.is_some());
        let of_item = || self.scope.get("item")?.get("job")?.as_str().and_then(JobId::parse);
        match pulled.then(of_item).flatten() {
            Some(job) => {
                let queue = with["name"].as_str().unwrap_or_default().to_owned();
                InternalOutcome::ask(Command::ReadJobIn { job, queue }, InternalStep::QueuedJob(job, with))
            }
            None => self.enqueue(item, &with, context),
        }
    }

    /// A dead letter is requeued with its own key. One that is live or has succeeded meanwhile is left alone.
    pub(super) fn queued_job(
        &self,
        item: &StepItem,
        job: JobId,
        state: JobState,
        context: RunContext,
    ) -> InternalOutcome {
        match state {
            JobState::Dead => {
                let actor = format!("worker:{}", item.worker.name);
                InternalOutcome::ask(Command::Requeue { job, actor }, InternalStep::Requeue(job))
            }
            state => self.record(item, json!({ "job": job, "replayed": false, "state": state }), context),
        }
    }

    pub(super) fn requeued(
        &mut self,
        item: &StepItem,
        job: JobId,
        requeued: Requeue,
        context: RunContext,
    ) -> InternalOutcome {
        match requeued {
            Requeue::Paused(why) => InternalOutcome::End(why),
            Requeue::Requeued(replayed) => {
                if replayed {
                    self.notices.push(Notice::Requeued);
                }
                self.record(item, json!({ "job": job, "replayed": replayed }), context)
            }
        }
    }

    pub(super) fn event_accepted(
        &self,
        item: &StepItem,
        id: EventId,
        new: bool,
        context: RunContext,
    ) -> InternalOutcome {
        self.record(item, json!({ "event_id": id, "accepted": new }), context)
    }

    /// Anything else is a new event for the workers of that queue, once for its key.
    pub(super) fn enqueue(&self, item: &StepItem, with: &Value, context: RunContext) -> InternalOutcome {
        let (step, queue) = (item.step(), with["name"].as_str().unwrap_or_default());
        if self.config.active.config.consumers(queue).next().is_none() {
            return bad_parameter(step, &format!("no worker consumes the queue `{queue}`"));
        }
        let key = match with.get("key") {
            Some(value) => scalar(value),
            None if step.with_names("key") => None,
            None => Some(format!("{}|{}", self.event.key_text, item.label)),
        };
        let Some(key) = key.filter(|key| key.len() <= KEY_BYTES_MAX) else {
            return bad_parameter(step, "`key_from` has no value that can be a key");
        };
        let body = with.get("body").or_else(|| self.scope.get("body")).cloned().unwrap_or_default();
        match self.new_event(queue, &key, &body, context) {
            Ok(event) => InternalOutcome::ask(Command::Accept(Box::new(event)), InternalStep::Accept),
            Err(problem) => bad_parameter(step, &problem),
        }
    }

    /// An event about the same person or thing, with another content.
    fn new_event(&self, queue: &str, key: &str, body: &Value, context: RunContext) -> Result<NewEvent, String> {
        let mut normalized: Event = serde_json::from_str(&self.body.normalized)
            .map_err(|error| format!("the event cannot be read: {error}"))?;
        normalized.event_id = format!("{}:{key}", normalized.source);
        normalized.idempotency_key = key.to_owned();
        normalized.audit.received_at = context.at;
        if let Value::Object(members) = body {
            normalized.attributes = members.clone();
        }
        let flow = format!("queue:{queue}");
        normalized.audit.locate(EventDraft::event_id(&flow, key));
        // With their routes, so that jobs of one entity keep their order whichever way they were accepted.
        let mut scope = Scope::new();
        scope.set("event", normalized.to_scope());
        scope.set("body", body.clone());
        let consumers = self.config.active.config.consumers(queue);
        let jobs = consumers.map(|worker| worker.new_job().routed(first_route(worker, &scope))).collect();
        // It leads to the contact of its event. The values were observed with that one.
        let observation = self.config.active.config.contacts.as_ref().map(|rules| rules.observe(&normalized));
        let observation = observation.filter(|observation| !observation.identifiers.is_empty());
        let observation = observation.map(|observation| Box::new(Observation { values: vec![], ..observation }));
        let new = NewEvent::new(EventDraft {
            flow: &flow,
            source: &self.event.source,
            expires_at: context.at + Idempotency::TTL,
            revision: &self.config.active.name,
            trace: &EventTrace::from(self.trace.context).to_string(),
            fingerprint: key::fingerprint_digest(body, &[]),
            headers: self.body.headers.clone(),
            raw: body.to_string().into_bytes(),
            event: &normalized,
            jobs,
        });
        // As intake does, so that the runs of its jobs do not parse it again.
        if let Some(event) = normalized.into_cacheable() {
            new.body.decoded.put(event);
        }
        Ok(NewEvent { observation, ..new })
    }
}
