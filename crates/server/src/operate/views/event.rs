//! Views of events.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_domain::duplicate_stats::{DuplicateRequest, EventDuplicates};
use sluice_domain::event::EventStatus;
use sluice_domain::mask;
use sluice_ledger::{EventBody, EventRecord, IdentityLookupRecord, JobSummary};
use utoipa::ToSchema;

use super::{ClashView, IdentifiedView};

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// `evt_…`
    pub id: String,
    pub source: String,
    pub flow: String,
    pub event_type: String,
    /// Masked.
    pub idempotency_key: String,
    pub received_at: String,
    pub persisted_at: String,
    /// Event time of the source.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub occurred_at: Option<String>,
    /// Expiry of its key.
    pub expires_at: String,
    /// Name of the secret that verified it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verified_by: Option<String>,
    /// Revision it was accepted under.
    pub revision: String,
    /// Trace id in logs and traces.
    pub trace: String,
    /// `working`, `done`, `dead`, `unknown`, `dropped` or `unrouted`.
    pub status: String,
    pub jobs: Vec<JobBrief>,
}

/// Summary of a job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobBrief {
    /// `job_…`
    pub id: String,
    pub worker: String,
    pub state: String,
    pub attempts: u32,
}

/// Event with its details.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventDetail {
    #[serde(flatten)]
    pub event: EventView,
    /// Normalized event, masked unless revealed; absent once its body has been deleted by retention.
    #[schema(value_type = Option<Object>)]
    pub normalized: Option<Value>,
    /// Request body, masked unless revealed.
    #[schema(value_type = Option<Object>)]
    pub raw: Option<Value>,
    /// Stored headers.
    #[schema(value_type = Option<Object>)]
    pub headers: Option<Value>,
    /// Variants, or the first event if this is a variant.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clash: Option<ClashView>,
    /// Values that were lost or not found; nothing failed because of them.
    #[serde(default)]
    pub warnings: Vec<EventWarningView>,
    /// The identity that was supplied after the event was accepted. `normalized` has it, the request body has not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub identified: Option<IdentifiedView>,
    /// Why its jobs wait for an identity, if they do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quarantined: Option<String>,
    /// Until when it waits for a later event that supplies an identity.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waits_for_identity_until: Option<String>,
    /// Lookups that may supply an identity for a quarantined event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub identity_lookup: Option<IdentityLookupView>,
    /// Requests that were answered as duplicates of the event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duplicates: Option<DuplicatesView>,
    pub revealed: bool,
}

/// Lookups of a quarantined event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct IdentityLookupView {
    /// How often they were made.
    pub tries: u32,
    /// When they are made next; absent if they are not made again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_at: Option<String>,
    /// Why they found no identity, such as `absent` or `lookup-timed-out`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last: Option<String>,
}

impl IdentityLookupView {
    pub(in crate::operate) fn new(record: &IdentityLookupRecord) -> IdentityLookupView {
        IdentityLookupView {
            tries: record.tries,
            next_at: record.due_at.map(|at| at.to_string()),
            last: record.last.clone(),
        }
    }
}

/// Requests that were answered as duplicates of an event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DuplicatesView {
    pub count: u64,
    pub first_at: String,
    pub last_at: String,
    /// The last ones, oldest first, at most 8.
    pub recent: Vec<DuplicateView>,
}

/// Request that was answered as a duplicate.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DuplicateView {
    pub at: String,
    /// In what it differs from the event: `nothing`, `key` (the same content under another key), `time_bucket` or `content` (the same
    /// key, not accepted).
    pub differs: String,
    /// Trace id of the request.
    pub trace: String,
}

impl DuplicatesView {
    pub(in crate::operate) fn new(duplicates: &EventDuplicates) -> DuplicatesView {
        let view = |request: &DuplicateRequest| DuplicateView {
            at: request.at.to_string(),
            differs: request.differs.as_str().to_owned(),
            trace: request.trace_id(),
        };
        DuplicatesView {
            count: duplicates.count,
            first_at: duplicates.first_at.to_string(),
            last_at: duplicates.last_at.to_string(),
            recent: duplicates.recent.iter().map(view).collect(),
        }
    }
}

impl DuplicateView {
    /// In words: what kind of repeat it was.
    pub fn describe(&self) -> &'static str {
        match self.differs.as_str() {
            "key" => "same content under another key",
            "time_bucket" => "same content in the next time bucket",
            "content" => "other content under the same key, not accepted",
            _ => "same key and content",
        }
    }
}

/// Conversion of the mapping that lost something, or lookup of a job that failed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventWarningView {
    /// Path into the event, or `steps.NAME`.
    pub field: String,
    /// For example `not-a-phone` or `lookup-timed-out`.
    pub code: String,
    /// Job of the lookup.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<String>,
}

impl EventView {
    pub(in crate::operate) fn new(event: &EventRecord, jobs: &[JobSummary]) -> EventView {
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
            trace: event.trace_id().to_owned(),
            status: EventStatus::of(jobs.iter().map(|job| job.state)).to_string(),
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

/// Masked or revealed body of an event.
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

/// First lines of the payload, masked.
pub(in crate::operate) fn preview(body: &EventBody) -> Vec<String> {
    const LINES_MAX: usize = 10;
    const LINE_MAX: usize = 160;
    let shown = show(body, false).raw;
    let pretty = serde_json::to_string_pretty(&shown).unwrap_or_default();
    pretty.lines().take(LINES_MAX).map(|line| line.chars().take(LINE_MAX).collect()).collect()
}
