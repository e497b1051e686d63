//! Jobs, their effects and attempts, and why they died.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_domain::mask;
use sluice_domain::outcome::Failure;
use sluice_ledger::{AttemptRecord, EffectRecord, EventRecord, JobRecord};
use utoipa::ToSchema;

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// `job_…`
    pub id: String,
    /// The event that it belongs to.
    pub event_id: String,
    /// The event's key, masked.
    pub idempotency_key: String,
    /// Who sent the event.
    pub source: String,
    /// What happened.
    pub event_type: String,
    /// When the event's request arrived.
    pub first_received_at: String,
    /// Whose job it is.
    pub worker: String,
    /// Where it waits.
    pub queue: String,
    /// Where it stands.
    pub state: String,
    /// What it waits for, other than its turn or its time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// The place of its next step.
    pub step: u32,
    /// Attempts at that step since it was last replayed.
    pub attempts: u32,
    /// Attempts in all.
    pub attempts_total: u32,
    /// Not before.
    pub due_at: String,
    /// When it last changed.
    pub updated_at: String,
    /// When it came to an end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub finished_at: Option<String>,
    /// How often it was replayed.
    pub replays: u32,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<FailureView>,
    /// The dead-letter queue that it lies in.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dead_letter_queue: Option<String>,
    /// What came of it, masked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// The configuration that it runs under.
    pub revision: String,
    /// Joins what is logged and traced about it.
    pub trace: String,
}

/// What went wrong.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureView {
    /// How it is sorted.
    pub class: String,
    /// A short stable code.
    pub code: String,
    /// What happened, masked.
    pub message: String,
    /// The HTTP status, where there was one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
}

/// A job with everything that is known about it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    /// The job.
    #[serde(flatten)]
    pub job: JobView,
    /// Its effects, in the order of its steps.
    pub effects: Vec<EffectView>,
    /// Its attempts.
    pub attempts_made: Vec<AttemptView>,
    /// The first lines of the payload, masked.
    pub preview: Vec<String>,
}

/// An outward action.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EffectView {
    /// Its name for ever; what destinations get as idempotency key.
    pub key: String,
    /// The step.
    pub step: String,
    /// What is done.
    pub action: String,
    /// Where.
    pub destination: String,
    /// How a repeat is treated there.
    pub class: String,
    /// Where it stands.
    pub state: String,
    /// Attempts in all.
    pub attempts: u32,
    /// What the destination said, masked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// When it was first written down.
    pub first_at: String,
    /// When it last changed.
    pub last_at: String,
}

/// One try.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// Its number among the tries of the job.
    pub n: u32,
    /// The step.
    pub step: String,
    /// `call` or `read`.
    pub kind: String,
    /// When it started.
    pub started_at: String,
    /// How long it took.
    pub took_ms: u64,
    /// How it ended.
    pub outcome: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<FailureView>,
}

impl From<&Failure> for FailureView {
    fn from(failure: &Failure) -> FailureView {
        FailureView {
            class: failure.class.as_str().to_owned(),
            code: failure.code.clone(),
            message: mask::text(&failure.message).into_owned(),
            status: failure.status,
        }
    }
}

impl JobView {
    pub(in crate::operate) fn new(job: &JobRecord, event: &EventRecord, waiting_for: Option<String>) -> JobView {
        JobView {
            waiting_for,
            id: job.id.to_string(),
            event_id: event.id.to_string(),
            idempotency_key: mask::text(&event.key_text).into_owned(),
            source: event.source.to_string(),
            event_type: event.event_type.clone(),
            first_received_at: event.received_at.to_string(),
            worker: job.worker.to_string(),
            queue: job.queue.to_string(),
            state: job.state.to_string(),
            step: job.step,
            attempts: job.attempts,
            attempts_total: job.attempts_total,
            due_at: job.due_at.to_string(),
            updated_at: job.updated_at.to_string(),
            finished_at: job.finished_at.map(|at| at.to_string()),
            replays: job.replays,
            failure: job.failure.as_ref().map(FailureView::from),
            dead_letter_queue: job.dead_letter_queue.clone(),
            result: job.result.as_deref().map(mask::value),
            revision: job.revision.to_string(),
            trace: event.trace.clone(),
        }
    }
}

impl From<&EffectRecord> for EffectView {
    fn from(effect: &EffectRecord) -> EffectView {
        EffectView {
            key: effect.key.to_string(),
            step: effect.step_id.clone(),
            action: effect.action.clone(),
            destination: effect.destination.clone(),
            class: effect.class.as_str().to_owned(),
            state: effect.state.as_str().to_owned(),
            attempts: effect.attempts,
            result: effect.result.as_deref().map(mask::value),
            first_at: effect.first_at.to_string(),
            last_at: effect.last_at.to_string(),
        }
    }
}

impl From<&AttemptRecord> for AttemptView {
    fn from(attempt: &AttemptRecord) -> AttemptView {
        AttemptView {
            n: attempt.n,
            step: attempt.step.clone(),
            kind: if attempt.kind == sluice_ledger::AttemptKind::Read { "read" } else { "call" }.to_owned(),
            started_at: attempt.started_at.to_string(),
            took_ms: attempt.ended_at.since(attempt.started_at).as_millis() as u64,
            outcome: attempt.outcome.clone(),
            failure: attempt.failure.as_ref().map(FailureView::from),
        }
    }
}

/// Why jobs died.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReasonView {
    /// How many.
    pub count: u64,
    /// The failure class.
    pub class: String,
    /// The failure code.
    pub code: String,
    /// One of the messages, masked.
    pub message: String,
    /// The newest.
    pub last_at: String,
}
