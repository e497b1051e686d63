//! Views of jobs, effects, attempts and failures.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_domain::mask;
use sluice_domain::outcome::Failure;
use sluice_ledger::{AttemptRecord, EffectRecord, EventRecord, JobRecord};
use utoipa::ToSchema;

use super::WaitView;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// `job_…`
    pub id: String,
    pub event_id: String,
    /// Idempotency key of the event, masked.
    pub idempotency_key: String,
    pub source: String,
    pub event_type: String,
    /// Time the request was received.
    pub first_received_at: String,
    pub worker: String,
    pub queue: String,
    pub state: String,
    /// Why a live job does not run; absent if it runs or can run now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<WaitView>,
    /// Index of the next step.
    pub step: u32,
    /// Attempts at that step since the last replay.
    pub attempts: u32,
    /// Attempts over all steps and replays.
    pub attempts_total: u32,
    /// Earliest time of the next attempt.
    pub due_at: String,
    pub updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub finished_at: Option<String>,
    pub replays: u32,
    /// The last failure. A wait is no failure: see `waiting_for`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<FailureView>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dead_letter_queue: Option<String>,
    /// Masked. Absent in lists.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// Revision it runs under.
    pub revision: String,
    /// Trace id in logs and traces.
    pub trace: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureView {
    pub class: String,
    pub code: String,
    /// Masked.
    pub message: String,
    /// HTTP status, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
}

/// Job with its details.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    #[serde(flatten)]
    pub job: JobView,
    /// In the order of the steps.
    pub effects: Vec<EffectView>,
    pub attempts_made: Vec<AttemptView>,
    /// First lines of the payload, masked.
    pub preview: Vec<String>,
}

/// External action.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EffectView {
    /// Effect key, sent to destinations as idempotency key.
    pub key: String,
    pub step: String,
    pub action: String,
    pub destination: String,
    /// Effect class.
    pub class: String,
    pub state: String,
    /// Attempts over all steps and replays.
    pub attempts: u32,
    /// Response of the destination, masked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// Time of the intent.
    pub first_at: String,
    pub last_at: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// Number of the attempt within the job.
    pub n: u32,
    pub step: String,
    /// `call` or `read`.
    pub kind: String,
    pub started_at: String,
    pub took_ms: u64,
    pub outcome: String,
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
    pub(in crate::operate) fn new(job: &JobRecord, event: &EventRecord, waiting_for: Option<WaitView>) -> JobView {
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
            due_at: if job.due_at == JobRecord::DUE_AT_ONCE { job.updated_at } else { job.due_at }.to_string(),
            updated_at: job.updated_at.to_string(),
            finished_at: job.finished_at.map(|at| at.to_string()),
            replays: job.replays,
            failure: job.last_failure().map(FailureView::from),
            dead_letter_queue: job.dead_letter_queue.clone(),
            result: job.result.as_deref().map(mask::value),
            revision: job.revision.to_string(),
            trace: event.trace_id().to_owned(),
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

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReasonView {
    pub count: u64,
    pub class: String,
    pub code: String,
    /// Example message, masked.
    pub message: String,
    pub last_at: String,
}
