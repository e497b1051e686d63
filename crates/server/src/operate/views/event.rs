//! Events as operators see them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_domain::job::JobState;
use sluice_domain::mask;
use sluice_ledger::{EventBody, EventRecord, JobRecord};
use utoipa::ToSchema;

use super::ClashView;

/// An accepted event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// `evt_…`
    pub id: String,
    /// Who sent it.
    pub source: String,
    /// The flow that took it in.
    pub flow: String,
    /// What happened.
    pub event_type: String,
    /// What makes a repeat recognisable, masked.
    pub idempotency_key: String,
    /// When its request arrived.
    pub received_at: String,
    /// When it became durable.
    pub persisted_at: String,
    /// When it happened, by the source's word.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub occurred_at: Option<String>,
    /// Until when its key is remembered.
    pub expires_at: String,
    /// Which secret proved where it comes from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verified_by: Option<String>,
    /// The configuration that it was accepted under.
    pub revision: String,
    /// Joins what is logged and traced about it.
    pub trace: String,
    /// What became of it: `working`, `done`, `dead`, `unknown`, `dropped` or `unrouted`.
    pub status: String,
    /// Its jobs.
    pub jobs: Vec<JobBrief>,
}

/// A job in a line.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobBrief {
    /// `job_…`
    pub id: String,
    /// Whose.
    pub worker: String,
    /// Where it stands.
    pub state: String,
    /// Tries so far.
    pub attempts: u32,
}

/// An event with everything that is known about it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventDetail {
    /// The event.
    #[serde(flatten)]
    pub event: EventView,
    /// The normalized event, masked unless revealed; absent once its body is past its retention.
    #[schema(value_type = Option<Object>)]
    pub normalized: Option<Value>,
    /// The request as it arrived, masked unless revealed.
    #[schema(value_type = Option<Object>)]
    pub raw: Option<Value>,
    /// The headers that were kept.
    #[schema(value_type = Option<Object>)]
    pub headers: Option<Value>,
    /// What else came under its key, and the event under whose key it came itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clash: Option<ClashView>,
    /// Whether personal data is shown.
    pub revealed: bool,
}

impl EventView {
    pub(in crate::operate) fn new(event: &EventRecord, jobs: &[JobRecord]) -> EventView {
        EventView {
            id: event.id.to_string(),
            source: event.source.to_string(),
            flow: event.flow.to_string(),
            event_type: event.event_type.clone(),
            idempotency_key: mask::text(&event.key_text).into_owned(),
            received_at: event.received_at.to_string(),
            persisted_at: event.persisted_at.to_string(),
            occurred_at: event.occurred_at.map(|at| at.to_string()),
            expires_at: event.expires_at.to_string(),
            verified_by: event.verified_by.clone(),
            revision: event.revision.to_string(),
            trace: event.trace.clone(),
            status: status(jobs).to_owned(),
            jobs: jobs
                .iter()
                .map(|job| JobBrief {
                    id: job.id.to_string(),
                    worker: job.worker.to_string(),
                    state: job.state.to_string(),
                    attempts: job.attempts_total,
                })
                .collect(),
        }
    }
}

/// What became of an event, in a word: the worst of what became of its jobs.
fn status(jobs: &[JobRecord]) -> &'static str {
    let any = |state: JobState| jobs.iter().any(|job| job.state == state);
    if jobs.is_empty() {
        "unrouted"
    } else if any(JobState::Dead) {
        "dead"
    } else if any(JobState::Unknown) {
        "unknown"
    } else if jobs.iter().any(|job| job.state.is_live()) {
        "working"
    } else if any(JobState::Dropped) {
        "dropped"
    } else {
        "done"
    }
}

/// The body of an event as operators see it.
pub(in crate::operate) struct Shown {
    pub normalized: Value,
    pub raw: Value,
    pub headers: Value,
}

pub(in crate::operate) fn show(body: &EventBody, revealed: bool) -> Shown {
    let cover = |value: Value| if revealed { value } else { mask::value(&value) };
    let read = |text: &[u8]| {
        serde_json::from_slice(text).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(text).into_owned()))
    };
    Shown {
        normalized: cover(read(body.normalized.as_bytes())),
        raw: cover(read(&body.raw)),
        headers: cover(read(body.headers.as_bytes())),
    }
}

/// Lines of the payload that fit on a screen, masked.
pub(in crate::operate) fn preview(body: &EventBody) -> Vec<String> {
    const LINES_MAX: usize = 10;
    const LINE_MAX: usize = 160;
    let shown = show(body, false).raw;
    let pretty = serde_json::to_string_pretty(&shown).unwrap_or_default();
    pretty.lines().take(LINES_MAX).map(|line| line.chars().take(LINE_MAX).collect()).collect()
}
