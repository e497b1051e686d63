//! `queue_pull`: dead letters to look at.
//!
//! What is kept is which jobs they are, never what they say: a body belongs to its event, and goes when that goes.

use std::str::FromStr;

use serde_json::{Map, Value, json};
use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_ledger::{EventBody, EventRecord, JobFilter, JobRecord, Ledger};

use super::{InternalOutcome, InternalStep};
use crate::schedule::pauses;
use crate::work::run::JobRun;

/// Dead letters that are looked at in one go.
const SLICE: u32 = 256;
/// Slices in one pull: behind so many that are left for a person, the rest waits for the next pull.
const SLICES_MAX: usize = 16;
/// Bytes of bodies that one pull brings; the messages beyond have none.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

pub(super) async fn perform(
    run: &JobRun<'_>,
    inside: &InternalStep<'_>,
) -> Result<InternalOutcome, sluice_ledger::Error> {
    let ledger = &run.context.ledger;
    if let Some(pause) = pauses::of_replays(&ledger.pauses().await?) {
        return Ok(InternalOutcome::End(
            json!({ "noop": "replays are paused", "since": pause.at, "reason": pause.reason }),
        ));
    }
    let number = |name: &str, otherwise: u64| inside.with[name].as_u64().unwrap_or(otherwise);
    let (limit, replays) = (number("max_messages", 20) as usize, number("max_replays", 5));
    let from = inside.with["from"].as_str().unwrap_or_default();
    let jobs = pull(ledger, from, limit, replays).await?;
    let kept = json!({ "jobs": jobs });
    let note = run.note(inside.step, inside.turn, EffectState::Applied, kept);
    match ledger.note(note).await? {
        // The first run's word counts.
        Some(kept) => Ok(InternalOutcome::Done(messages(ledger, &kept).await?)),
        None => Ok(InternalOutcome::Stale),
    }
}

async fn pull(ledger: &Ledger, from: &str, limit: usize, replays: u64) -> Result<Vec<JobId>, sluice_ledger::Error> {
    let filter =
        JobFilter { states: vec![JobState::Dead], dead_letter_queue: Some(from.to_owned()), ..JobFilter::default() };
    let (mut found, mut after) = (Vec::new(), JobId(0));
    for _ in 0..SLICES_MAX {
        let slice = ledger.matching_jobs(filter.clone(), after, SLICE).await?;
        let Some(last) = slice.last() else { break };
        after = *last;
        for id in slice {
            if found.len() >= limit {
                return Ok(found);
            }
            let job = ledger.job(id).await?;
            found.extend(job.filter(|job| u64::from(job.replays) < replays).map(|job| job.id));
        }
    }
    Ok(found)
}

/// The messages that these jobs are.
pub(super) async fn messages(ledger: &Ledger, kept: &Value) -> Result<Value, sluice_ledger::Error> {
    let ids = kept["jobs"].as_array().into_iter().flatten().filter_map(|id| JobId::parse(id.as_str()?));
    let mut messages = Vec::new();
    let mut bytes = 0;
    for id in ids {
        let Some(job) = ledger.job(id).await? else { continue };
        let Some((event, body)) = ledger.events(vec![job.seq]).await?.pop() else { continue };
        bytes += body.as_ref().map_or(0, EventBody::bytes);
        messages.push(message(&job, &event, body.filter(|_| bytes <= BODY_BYTES_MAX).as_ref()));
    }
    Ok(json!({ "messages": messages }))
}

fn message(job: &JobRecord, event: &EventRecord, body: Option<&EventBody>) -> Value {
    let said = body.and_then(|body| serde_json::from_slice::<Value>(&body.raw).ok()).unwrap_or_default();
    let headers = body.and_then(|body| Value::from_str(&body.headers).ok());
    let mut headers = match headers {
        Some(Value::Object(headers)) => headers,
        _ => Map::new(),
    };
    // The event's own key, wherever its flow found it.
    headers.insert("Idempotency-Key".to_owned(), json!(event.key_text));
    json!({
        "body": said,
        "headers": headers,
        "job": job.id,
        "event_id": event.id,
        "idempotency_key": event.key_text,
        "attempts": job.attempts_total,
        "error": job.failure,
    })
}
