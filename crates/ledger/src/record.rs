//! What the ledger remembers, as callers see it. No SQL type leaves this crate.

use std::collections::BTreeMap;

use serde::Serialize;
use sluice_domain::job::JobId;
use sluice_domain::outcome::Failure;
pub use sluice_domain::record::{
    AttemptKind, ClashPolicy, DecodedEvent, EffectRecord, EventBody, EventDraft, EventRecord, EventSeq, JobRecord,
    NewEvent, NewJob, Quarantine,
};
pub use sluice_domain::run::LoadedJob;
use sluice_domain::time::Time;

/// The contents that came under the key of an event after it and say something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variants {
    /// The first few of them.
    pub kept: Vec<VariantRecord>,
    /// Requests with yet other contents, which were counted and not kept.
    pub further: u64,
}

/// Another content under the key of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantRecord {
    /// When it came first.
    pub received_at: Time,
    /// What tells it from others.
    pub fingerprint: [u8; 16],
    /// How often it came.
    pub times: u64,
    /// The event that it became, unless it was dropped.
    pub event: Option<EventSeq>,
    /// What it says, while that is kept.
    pub body: Option<EventBody>,
}

/// One try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptRecord {
    /// The job.
    pub job: JobId,
    /// Its number among the tries of the job.
    pub n: u32,
    /// The name of the step.
    pub step: String,
    /// `call`, or `read` when an outcome was read back.
    pub kind: AttemptKind,
    /// When it started.
    pub started_at: Time,
    /// When it ended.
    pub ended_at: Time,
    /// done, noop, retry, wait, reject, unsure, interrupted.
    pub outcome: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// A line of the audit trail.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditRecord {
    /// Its place.
    pub id: i64,
    /// When.
    pub at: Time,
    /// Who.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// To what.
    pub object: String,
    /// And why, or how.
    pub detail: String,
}

/// Something that is stopped by a person or by a refused credential.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PauseRecord {
    /// `destination:crm`, `worker:contact-upsert`, `source:website`.
    pub target: String,
    /// Since when.
    pub at: Time,
    /// By whom.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// A revision of the configuration that came into force.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RevisionRecord {
    /// Its place among all changes, from 1.
    pub n: i64,
    /// Since when.
    pub at: Time,
    /// The revision.
    pub hash: String,
    /// Who brought it.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// Jobs that belong together, by what they need of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PinnedRecord {
    /// The revision whose steps they do.
    pub revision: String,
    /// Their worker.
    pub worker: String,
    /// The queue that they were put into.
    pub queue: String,
    /// Where they lie when they are dead.
    pub dead_letter_queue: Option<String>,
    /// How many are live.
    pub live: u64,
    /// How many wait for a person: dead letters, and those whose outcome is unknown.
    pub parked: u64,
}

impl PinnedRecord {
    /// What one job counts for.
    pub(crate) fn one(
        revision: String,
        worker: String,
        queue: String,
        dead_letter_queue: Option<String>,
        parked: bool,
    ) -> PinnedRecord {
        let (live, parked) = (u64::from(!parked), u64::from(parked));
        PinnedRecord { revision, worker, queue, dead_letter_queue, live, parked }
    }

    /// Each of these so many times.
    pub(crate) fn counted(groups: BTreeMap<PinnedRecord, u64>) -> Vec<PinnedRecord> {
        let times = |(one, count): (PinnedRecord, u64)| PinnedRecord {
            live: one.live * count,
            parked: one.parked * count,
            ..one
        };
        groups.into_iter().map(times).collect()
    }
}

/// What a source has sent on one day, counted when it was committed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceDayCounts {
    /// The day, as `2026-11-15`.
    pub day: String,
    /// Who sent.
    pub source: String,
    /// Requests answered 202 for the first time.
    pub accepted: u64,
    /// Repeats answered with the first answer.
    pub duplicates: u64,
    /// Requests whose content was another than that of the first with their key, whatever was done with them.
    pub clashes: u64,
    /// Repeats that were recognised by their content alone; they are among the duplicates.
    pub by_content: u64,
    /// Accepted events by what became of their jobs; only in a balance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobCounts>,
}

/// Jobs by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobCounts {
    /// By the word for the state.
    #[serde(flatten)]
    pub by_state: std::collections::BTreeMap<&'static str, u64>,
}

/// What may be told about the keys that seal the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeysRecord {
    /// The name of the root key.
    pub root: String,
    /// The keys of the tenant, oldest first. New data is sealed with the last one.
    pub tenant: Vec<TenantKeyRecord>,
    /// How many contacts have a key.
    pub contacts: u64,
    /// How many of those a rotation of the tenant's key has not come to yet.
    pub to_rewrap: u64,
}

/// A key of the tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenantKeyRecord {
    /// Its version.
    pub version: u32,
    /// Since when.
    pub created_at: Time,
}
