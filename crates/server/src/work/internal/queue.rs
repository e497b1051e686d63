//! `queue`: something is put into a queue, under a key.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_domain::event::{Event, EventId, scalar};
use sluice_domain::flow::Idempotency;
use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::key::{self, KEY_BYTES_MAX, KeyDigest, TENANT};
use sluice_domain::time::Time;
use sluice_ledger::{Acceptance, ClashPolicy, EventBody, NewEvent, NewJob, Replay};

use super::{InternalOutcome, InternalStep, bad_parameter};
use crate::intake::job_for;
use crate::schedule::pauses;
use crate::work::run::JobRun;

pub(super) async fn perform(
    run: &JobRun<'_>,
    inside: &InternalStep<'_>,
) -> Result<InternalOutcome, sluice_ledger::Error> {
    let queue = inside.with["name"].as_str().unwrap_or_default();
    let pulled = inside.step.foreach.as_ref().is_some_and(|foreach| foreach.pulled_by.is_some());
    let job = pulled.then(|| inside.scope.get("item")?.get("job")?.as_str().and_then(JobId::parse)).flatten();
    let job = match job {
        Some(job) => run.context.ledger.job(job).await?.filter(|job| *job.queue == *queue),
        None => None,
    };
    let output = match job {
        Some(job) => match replay(run, inside, job.id, job.state).await? {
            Ok(output) => output,
            Err(ended) => return Ok(ended),
        },
        None => match accept(run, inside, queue).await? {
            Ok(output) => output,
            Err(ended) => return Ok(ended),
        },
    };
    let note = run.note(inside.step, inside.turn, EffectState::Applied, output);
    Ok(run.context.ledger.note(note).await?.map_or(InternalOutcome::Stale, InternalOutcome::Done))
}

/// A dead letter comes back to life with its own key. What is alive or has succeeded meanwhile is left alone.
async fn replay(
    run: &JobRun<'_>,
    inside: &InternalStep<'_>,
    job: JobId,
    state: JobState,
) -> Result<Result<Value, InternalOutcome>, sluice_ledger::Error> {
    if state != JobState::Dead {
        return Ok(Ok(json!({ "job": job, "replayed": false, "state": state })));
    }
    if let Some(pause) = pauses::of_replays(&run.context.ledger.pauses().await?) {
        let reason = json!({ "noop": "replays are paused", "since": pause.at, "reason": pause.reason });
        return Ok(Err(InternalOutcome::End(reason)));
    }
    let order = Replay {
        jobs: vec![job],
        actor: format!("worker:{}", inside.worker.name),
        reason: "scheduled replay".to_owned(),
        revision: None,
        at: run.context.clock.wall(),
    };
    let revived = run.context.ledger.replay(order).await?;
    run.context.metrics.replays.inc_by(revived.len() as u64);
    let replayed = !revived.is_empty();
    run.context.scheduler.revived(revived);
    Ok(Ok(json!({ "job": job, "replayed": replayed })))
}

/// Anything else is a new event for the workers of that queue, once for its key.
async fn accept(
    run: &JobRun<'_>,
    inside: &InternalStep<'_>,
    queue: &str,
) -> Result<Result<Value, InternalOutcome>, sluice_ledger::Error> {
    let live = run.context.revisions.current();
    let jobs: Vec<NewJob> = live.config.consumers(queue).map(|worker| job_for(worker)).collect();
    if jobs.is_empty() {
        return Ok(Err(bad_parameter(inside.step, &format!("no worker consumes the queue `{queue}`"))));
    }
    let key = match inside.with.get("key") {
        Some(value) => scalar(value),
        None if inside.step.with_names("key") => None,
        None => Some(format!("{}|{}", run.event.key_text, inside.turn.label)),
    };
    let Some(key) = key.filter(|key| key.len() <= KEY_BYTES_MAX) else {
        return Ok(Err(bad_parameter(inside.step, "`key_from` has no value that can be a key")));
    };
    let body = inside.with.get("body").or_else(|| inside.scope.get("body")).cloned().unwrap_or_default();
    let event = match event(run, &live.revision, queue, &key, body, jobs) {
        Ok(event) => event,
        Err(problem) => return Ok(Err(bad_parameter(inside.step, &problem))),
    };
    Ok(Ok(match run.context.ledger.accept(event).await? {
        Acceptance::Accepted(accepted) => json!({ "event_id": accepted.id, "accepted": true }),
        Acceptance::Duplicate(first) => json!({ "event_id": first.id, "accepted": false }),
    }))
}

fn event(
    run: &JobRun<'_>,
    revision: &Arc<str>,
    queue: &str,
    key: &str,
    body: Value,
    jobs: Vec<NewJob>,
) -> Result<NewEvent, String> {
    let now: Time = run.context.clock.wall();
    let flow = format!("queue:{queue}");
    let digest = KeyDigest::new(TENANT, &flow, key);
    let mut normalized: Event =
        serde_json::from_str(&run.body.normalized).map_err(|error| format!("the event cannot be read: {error}"))?;
    // It is about the same person or thing, and says something else.
    normalized.event_id = format!("{}:{key}", normalized.source);
    normalized.idempotency_key = key.to_owned();
    normalized.audit.raw_event_ref = format!("ledger://events/{}/raw", EventId::new(digest, 0));
    normalized.audit.received_at = now;
    if let Value::Object(members) = &body {
        normalized.attributes = members.clone();
    }
    Ok(NewEvent {
        key: digest,
        key_text: key.to_owned(),
        expires_at: now + Idempotency::TTL,
        flow: Arc::from(flow.as_str()),
        source: run.event.source.clone(),
        event_type: normalized.event_type.clone(),
        entity: normalized.entity(),
        received_at: now,
        occurred_at: normalized.occurred_at,
        verified_by: None,
        revision: revision.clone(),
        trace: run.event.trace.clone(),
        fingerprint: key::fingerprint_digest(&body, &[]),
        contact: normalized.contact(),
        body: Arc::new(EventBody {
            headers: run.body.headers.clone(),
            raw: body.to_string().into_bytes(),
            normalized: serde_json::to_string(&normalized).expect("an event has a JSON form"),
            ..EventBody::default()
        }),
        jobs,
        adjacent_keys: vec![],
        clash: ClashPolicy::Drop,
        content_window: None,
        quarantine: None,
    })
}
