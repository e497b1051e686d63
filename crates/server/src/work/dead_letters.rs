//! Dead letters as messages, for `queue_pull`.

use std::str::FromStr;

use serde_json::{Map, Value, json};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::run::LoadedJob;
use sluice_ledger::{JobFilter, Ledger};

/// Dead letters that are read at once.
const PAGE: u32 = 256;
/// Pages in one pull. What lies behind so many dead letters that are not pulled waits for the next pull.
const PAGES_MAX: usize = 16;
/// Bytes of bodies in one pull; messages beyond have none.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The oldest dead letters of a queue that were replayed fewer than `replays_max` times.
pub(super) async fn pull(
    ledger: &Ledger,
    queue: &str,
    limit: usize,
    replays_max: u32,
) -> Result<Vec<JobId>, sluice_ledger::Error> {
    let filter =
        JobFilter { states: vec![JobState::Dead], dead_letter_queue: Some(queue.to_owned()), ..JobFilter::default() };
    let (mut found, mut after) = (Vec::new(), JobId(0));
    for _ in 0..PAGES_MAX {
        let page = ledger.matching_jobs(filter.clone(), after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = *last;
        for id in page {
            if found.len() >= limit {
                return Ok(found);
            }
            let job = ledger.job(id).await?;
            found.extend(job.filter(|job| job.replays < replays_max).map(|job| job.id));
        }
    }
    Ok(found)
}

/// The messages of these jobs.
pub(super) async fn messages(ledger: &Ledger, jobs: Vec<JobId>) -> Result<Value, sluice_ledger::Error> {
    let mut bytes = 0;
    let messages: Vec<Value> = ledger
        .load_jobs(jobs, usize::MAX)
        .await?
        .iter()
        .map(|loaded| {
            bytes += loaded.body.bytes();
            message(loaded, bytes <= BODY_BYTES_MAX)
        })
        .collect();
    Ok(json!({ "messages": messages }))
}

fn message(loaded: &LoadedJob, with_body: bool) -> Value {
    let LoadedJob { job, event, body, .. } = loaded;
    let body = Some(body).filter(|_| with_body);
    let content = body.and_then(|body| serde_json::from_slice::<Value>(&body.raw).ok()).unwrap_or_default();
    let mut headers = match body.and_then(|body| Value::from_str(&body.headers).ok()) {
        Some(Value::Object(headers)) => headers,
        _ => Map::new(),
    };
    // The event's own key, wherever its flow found it.
    headers.insert("Idempotency-Key".to_owned(), json!(event.key_text));
    json!({
        "body": content,
        "headers": headers,
        "job": job.id,
        "event_id": event.id,
        "idempotency_key": event.key_text,
        "attempts": job.attempts_total,
        "error": job.failure,
    })
}
