//! What operators see. Personal data is masked here, before anything leaves the room.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_domain::job::JobState;
use sluice_domain::mask;
use sluice_domain::outcome::Failure;
use sluice_ledger::{AttemptRecord, EffectRecord, EventBody, EventRecord, JobRecord};
use utoipa::ToSchema;

pub use super::advice::{KeyAdvice, LatenessView, LifetimeView, LimitView, SourceDetail};
pub use super::clash::{ChangeView, ClashView, VariantView};
use super::guards::SafeModeView;

/// A stretch of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// The rows, newest first.
    pub items: Vec<T>,
    /// Pass this as `after` to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

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
    pub tries: u32,
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

impl EventView {
    pub(super) fn new(event: &EventRecord, jobs: &[JobRecord]) -> EventView {
        EventView {
            id: event.id.to_string(),
            source: event.source.clone(),
            flow: event.flow.clone(),
            event_type: event.event_type.clone(),
            idempotency_key: mask::text(&event.key_text).into_owned(),
            received_at: event.received_at.to_string(),
            persisted_at: event.persisted_at.to_string(),
            occurred_at: event.occurred_at.map(|at| at.to_string()),
            expires_at: event.expires_at.to_string(),
            verified_by: event.verified_by.clone(),
            revision: event.revision.clone(),
            trace: event.trace.clone(),
            status: status(jobs).to_owned(),
            jobs: jobs
                .iter()
                .map(|job| JobBrief {
                    id: job.id.to_string(),
                    worker: job.worker.to_string(),
                    state: job.state.to_string(),
                    attempts: job.tries,
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
pub(super) struct Shown {
    pub normalized: Value,
    pub raw: Value,
    pub headers: Value,
}

pub(super) fn show(body: &EventBody, revealed: bool) -> Shown {
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
pub(super) fn preview(body: &EventBody) -> Vec<String> {
    const LINES_MAX: usize = 10;
    const LINE_MAX: usize = 160;
    let shown = show(body, false).raw;
    let pretty = serde_json::to_string_pretty(&shown).unwrap_or_default();
    pretty.lines().take(LINES_MAX).map(|line| line.chars().take(LINE_MAX).collect()).collect()
}

impl JobView {
    pub(super) fn new(job: &JobRecord, event: &EventRecord, waiting_for: Option<String>) -> JobView {
        JobView {
            waiting_for,
            id: job.id.to_string(),
            event_id: event.id.to_string(),
            idempotency_key: mask::text(&event.key_text).into_owned(),
            source: event.source.clone(),
            event_type: event.event_type.clone(),
            first_received_at: event.received_at.to_string(),
            worker: job.worker.to_string(),
            queue: job.queue.to_string(),
            state: job.state.to_string(),
            step: job.step,
            attempts: job.attempts,
            tries: job.tries,
            due_at: job.due_at.to_string(),
            updated_at: job.updated_at.to_string(),
            finished_at: job.finished_at.map(|at| at.to_string()),
            replays: job.replays,
            failure: job.failure.as_ref().map(FailureView::from),
            dead_letter_queue: job.dead_letter_queue.clone(),
            result: job.result.as_ref().map(mask::value),
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
            result: effect.result.as_ref().map(mask::value),
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

/// What a replay or a drop came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Acted {
    /// Jobs that were asked for.
    pub matched: u64,
    /// Jobs that were changed; with `dry_run`, those that would be.
    pub changed: u64,
    /// Jobs that were left alone, with the reason.
    pub left: Vec<Left>,
    /// Whether nothing was changed because it was only tried.
    pub dry_run: bool,
}

/// A job that was left alone.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Left {
    /// Which.
    pub job: String,
    /// Why.
    pub reason: String,
}

/// The node at a glance.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The version of this build.
    pub version: String,
    /// The configuration in force.
    pub revision: String,
    /// Where senders come in; empty while no node runs.
    pub intake: String,
    /// Accepted events.
    pub events: u64,
    /// Jobs by state.
    #[schema(value_type = Object)]
    pub jobs: std::collections::BTreeMap<String, u64>,
    /// Jobs in memory.
    pub jobs_held: u64,
    /// Jobs running.
    pub in_flight: u64,
    /// What is paused.
    pub paused: Vec<PauseView>,
    /// Who is in safe mode.
    pub safe_modes: Vec<SafeModeView>,
    /// Questions that wait for a person; a thousand means a thousand or more.
    pub approvals_pending: u64,
}

/// Something that is paused.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PauseView {
    /// `destination:crm`, `worker:contact-upsert`, `source:website`.
    pub target: String,
    /// Since when.
    pub at: String,
    /// By whom.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// A destination.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationView {
    /// Its name.
    pub name: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its gate: breaker, concurrency, pause.
    #[schema(value_type = Option<Object>)]
    pub gate: Option<Value>,
}

/// A source.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SourceView {
    /// Its name.
    pub name: String,
    /// Its flows: method, path, and how it proves itself.
    pub flows: Vec<FlowView>,
    /// Whether it is paused.
    pub paused: bool,
    /// Requests answered 202 for the first time, in the last 7 days.
    pub accepted: u64,
    /// Repeats, in the last 7 days.
    pub duplicates: u64,
    /// Repeats with another content, in the last 7 days.
    pub clashes: u64,
    /// Requests that were refused in the last day, by code.
    #[schema(value_type = Object)]
    pub refused: std::collections::BTreeMap<String, u64>,
    /// The same in the last minute, hour and day, so that a jump shows.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub refused_lately: std::collections::BTreeMap<String, RefusedView>,
    /// The newest of them.
    #[serde(default)]
    pub refusals: Vec<RefusalView>,
}

/// How many requests were refused lately for one reason.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RefusedView {
    /// In this minute and the one before.
    pub minute: u64,
    /// In the last hour.
    pub hour: u64,
    /// In the last day.
    pub day: u64,
    /// Whether that is far more than before.
    #[serde(default)]
    pub jump: bool,
}

/// A request that was refused.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusalView {
    /// When.
    pub at: String,
    /// From where.
    pub address: String,
    /// The problem's code.
    pub code: String,
    /// The problem's detail, masked.
    pub detail: String,
}

/// A flow in a line.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowView {
    /// Its name.
    pub name: String,
    /// Its method and path.
    pub route: String,
    /// How senders prove themselves; `nobody is verified` if they do not.
    pub verify: String,
    /// Whether it believes everybody who finds its address. Shown in red.
    #[serde(default)]
    pub open: bool,
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

/// A line of the audit trail.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    /// Its place.
    pub id: i64,
    /// When.
    pub at: String,
    /// Who.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// To what.
    pub object: String,
    /// Why, or how.
    pub detail: String,
}
