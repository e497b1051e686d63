//! What the ledger stores, as callers see it. No SQL type leaves this crate.

use std::sync::Arc;

use serde::Serialize;
use sluice_domain::contact::{ContactId, ContactState, SuppliedIdentity};
use sluice_domain::drift::Shape;
use sluice_domain::event::{EventId, MappingWarning};
use sluice_domain::history::{Labels, Measure};
use sluice_domain::import::{ImportCounts, ImportId, ImportState};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::outcome::Failure;
pub use sluice_domain::record::{
    AttemptKind, ClashPolicy, DecodedEvent, EffectRecord, EventBody, EventDraft, EventRecord, EventSeq, JobRecord,
    NewEvent, NewJob, Proof, Quarantine,
};
use sluice_domain::replay::{Reapply, ReplayId, ReplayState};
use sluice_domain::respond::ResponseState;
pub use sluice_domain::run::LoadedJob;
use sluice_domain::time::Time;
use sluice_domain::unit::Rate;
use sluice_domain::wait::WaitReason;

use crate::op::{NewReplay, ReplaySelection};

/// An event of a list with its jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedEvent {
    pub event: EventRecord,
    pub jobs: Vec<JobSummary>,
}

/// A job without its failure and result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSummary {
    pub id: JobId,
    pub worker: Arc<str>,
    pub state: JobState,
    pub attempts_total: u32,
}

impl From<&JobRecord> for JobSummary {
    fn from(job: &JobRecord) -> JobSummary {
        let (id, state, attempts_total) = (job.id, job.state, job.attempts_total);
        JobSummary { id, worker: job.worker.clone(), state, attempts_total }
    }
}

/// A replay and how far it has come.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayRecord {
    pub id: ReplayId,
    pub selection: ReplaySelection,
    pub actor: String,
    pub reason: String,
    /// `None`: each job runs under the revision that it was accepted under.
    pub revision: Option<Arc<str>>,
    pub reapply: Reapply,
    pub rate: Option<Rate>,
    pub batch: u32,
    pub state: ReplayState,
    pub created_at: Time,
    pub updated_at: Time,
    /// The last job that was looked at.
    pub after: JobId,
    /// The last job when the replay started: later ones are not looked at.
    pub last_job: JobId,
    /// When the next batch may start, by the wall clock.
    pub next_at: Time,
    pub replayed: u64,
    pub skipped: u64,
}

/// An import and how far it has come.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportRecord {
    /// Ascending in the order in which imports were started.
    pub n: i64,
    pub id: ImportId,
    pub flow: String,
    /// Name of the file.
    pub file: String,
    /// Rows of the file.
    pub rows: u64,
    /// Rows that were looked at, in the order of the import.
    pub position: u64,
    pub counts: ImportCounts,
    pub state: ImportState,
    pub actor: String,
    pub reason: String,
    pub created_at: Time,
    pub updated_at: Time,
}

/// Other contents that were received under the key of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variants {
    /// The first few of them.
    pub kept: Vec<VariantRecord>,
    /// Requests with yet other contents, which were counted and not stored.
    pub further: u64,
}

/// Another content under the key of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantRecord {
    /// When it was received first.
    pub received_at: Time,
    pub fingerprint: [u8; 16],
    /// How often it was received.
    pub times: u64,
    /// The event that it became, unless it was dropped.
    pub event: Option<EventSeq>,
    /// `None` once the body is pruned.
    pub body: Option<EventBody>,
}

/// An event with its request, and the requests that were dropped because of its key.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    pub event: EventRecord,
    /// `None` once the body is pruned.
    pub body: Option<EventBody>,
    /// Other contents under its key that became no event.
    pub dropped: Vec<VariantRecord>,
}

impl StoredEvent {
    pub(crate) fn body_bytes(&self) -> usize {
        let dropped = self.dropped.iter().filter_map(|variant| variant.body.as_ref());
        self.body.iter().chain(dropped).map(EventBody::bytes).sum()
    }
}

/// The learned shape of the payloads of one source and type.
#[derive(Clone, Debug, PartialEq)]
pub struct ShapeRecord {
    pub source: String,
    pub event_type: String,
    /// Number of its writes; 0 if it was never written.
    pub version: u64,
    pub shape: Shape,
}

impl ShapeRecord {
    pub(crate) fn key(&self) -> (String, String) {
        (self.source.clone(), self.event_type.clone())
    }
}

/// The configuration that runs beside the active one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowRecord {
    pub hash: String,
    /// As of a revision.
    pub files: String,
    pub started_at: Time,
    pub actor: String,
    pub reason: String,
    /// Revision that it was compared with; empty at the beginning.
    pub active: String,
    /// The last event that was compared, or left out.
    pub seen: EventSeq,
    /// What differs, as its writer formats it; empty at the beginning.
    pub report: String,
}

/// An attempt at a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptRecord {
    pub job: JobId,
    /// Number of the attempt among all of the job.
    pub n: u32,
    /// Label of the step.
    pub step: String,
    pub kind: AttemptKind,
    pub started_at: Time,
    pub ended_at: Time,
    /// done, noop, retry, wait, reject, unsure, interrupted; of a read-back: present, absent, unreadable.
    pub outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// An entry of the audit trail.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditRecord {
    pub id: i64,
    pub at: Time,
    pub actor: String,
    pub action: String,
    pub object: String,
    pub detail: String,
}

/// A target that is paused by an operator or because its credentials were rejected.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PauseRecord {
    /// `destination:crm`, `worker:contact-upsert`, `source:website`.
    pub target: String,
    pub at: Time,
    pub actor: String,
    pub reason: String,
}

/// An activation of a revision of the configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RevisionRecord {
    /// Number of the activation, from 1.
    pub n: i64,
    pub at: Time,
    pub hash: String,
    pub actor: String,
    pub reason: String,
}

/// Safe mode of one worker or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeModeRecord {
    /// `None` means all workers.
    pub worker: Option<String>,
    pub at: Time,
    pub until: Time,
    pub actor: String,
    pub reason: String,
}

/// A contact that must not be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuppressionRecord {
    /// Ascending in the order in which contacts were suppressed.
    pub id: i64,
    /// The masked contact.
    pub label: String,
    /// Empty means any channel.
    pub channel: String,
    pub at: Time,
    pub actor: String,
    pub reason: String,
}

/// Describes a replay in the audit trail.
pub(crate) fn audited_replay(new: &NewReplay) -> String {
    let mut detail = new.reason.clone();
    if !new.reapply.is_empty() {
        detail.push_str(&format!("; applies again: {}", new.reapply));
    }
    detail
}

/// Describes contacts in the audit trail, which does not name them.
pub(crate) fn describe_contacts(count: usize, channel: &str) -> String {
    let contacts = if count == 1 { "1 contact".to_owned() } else { format!("{count} contacts") };
    if channel.is_empty() { contacts } else { format!("{contacts} ({channel})") }
}

/// A contact as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ContactRecord {
    pub id: ContactId,
    /// The contact that it is part of.
    pub merged_into: Option<ContactId>,
    /// Itself first, then everything that is merged into it.
    pub members: Vec<ContactId>,
    pub created_at: Time,
    /// Of all members.
    pub state: ContactState,
}

/// An event that was identified after it was accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct IdentityRecord {
    pub event: EventId,
    /// The contact that it was assigned to then.
    pub contact: ContactId,
    pub at: Time,
    /// `None` once the key of the person is destroyed.
    pub supplied: Option<SuppliedIdentity>,
}

/// What is known of the identity of an event beyond the event itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventIdentity {
    pub supplied: Option<IdentityRecord>,
    /// Until when it waits for a later event that supplies one.
    pub waits_until: Option<Time>,
    /// Lookups that may supply one. `None` if there are none, or once it is identified.
    pub lookup: Option<IdentityLookupRecord>,
}

/// Lookups of a quarantined event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityLookupRecord {
    pub seq: EventSeq,
    /// How often they were made.
    pub tries: u32,
    /// When they are made next; `None` if they are not made again.
    pub due_at: Option<Time>,
    /// Code of the last result.
    pub last: Option<String>,
}

/// A worker and a destination (empty: internal steps) with live jobs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveLane {
    pub worker: Arc<str>,
    pub destination: Arc<str>,
}

/// Number of jobs of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobTotal {
    pub worker: Arc<str>,
    /// Empty if internal steps come next, or none is left.
    pub destination: Arc<str>,
    pub state: JobState,
    pub dead_letter_queue: Option<Arc<str>>,
    /// Only of waiting jobs.
    #[serde(serialize_with = "wait_word", skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitReason>,
    pub count: u64,
}

fn wait_word<S: serde::Serializer>(wait: &Option<WaitReason>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(wait.map_or("", WaitReason::as_str))
}

/// A lane in which queued jobs wait behind a deferred one.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockedLane {
    /// The deferred job at its head.
    pub head: JobRecord,
    /// The oldest of the jobs behind it, and when that was created.
    pub first_behind: JobId,
    pub waits_since: Time,
    /// Jobs behind it, among the oldest of the backlog: there may be more.
    pub jobs_behind: u64,
}

/// Times of the oldest jobs, to compute ages from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OldestJobs {
    /// When the oldest live job of each worker was created; of a replayed job, when it changed last.
    pub live: Vec<(Arc<str>, Time)>,
    /// When the first of the dead and unknown jobs of each dead-letter queue has ended; `None` for jobs without such a queue.
    pub dead_letters: Vec<(Option<Arc<str>>, Time)>,
}

/// Jobs that need the same parts of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PinnedRecord {
    /// The revision that they run under.
    pub revision: String,
    pub worker: String,
    pub queue: String,
    /// Only of dead and unknown jobs.
    pub dead_letter_queue: Option<String>,
    pub live: u64,
    /// Dead and unknown jobs.
    pub parked: u64,
}

/// A frequent failure of dead and unknown jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    pub class: String,
    pub code: String,
    /// The message of one of the jobs.
    pub message: String,
    pub count: u64,
    /// When the newest of the jobs changed.
    pub last_at: Time,
}

/// Response clocks that run, of one flow in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseCount {
    pub flow: Arc<str>,
    pub state: ResponseState,
    pub count: u64,
}

/// What a source has sent on one day, counted in the transaction that accepts it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceDayCounts {
    /// `2026-11-15`, UTC.
    pub day: String,
    pub source: String,
    /// New events.
    pub accepted: u64,
    pub duplicates: u64,
    /// Requests whose content differs from the first one with their key, whatever was done with them.
    pub clashes: u64,
    /// Duplicates that were recognized by their content alone; they count as duplicates too.
    pub by_content: u64,
    /// Events that retention has deleted since.
    pub pruned: u64,
}

/// How often the conversion of a field lost something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingWarningCount {
    pub warning: MappingWarning,
    pub count: u64,
    pub last_at: Time,
}

/// A counter of the ledger since it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterTotal {
    pub measure: Measure,
    pub labels: Labels,
    pub total: u64,
}

/// The keys that seal the ledger, without their values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeysRecord {
    /// Id of the root key.
    pub root: String,
    /// Tenant keys, oldest first. New data is sealed with the last one.
    pub tenant: Vec<TenantKeyRecord>,
    /// Number of contacts that have a key.
    pub contacts: u64,
    /// Number of contact keys that a rotation of the tenant key has not wrapped yet.
    pub to_rewrap: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenantKeyRecord {
    pub version: u32,
    pub created_at: Time,
}

/// How many queued jobs a backlog query looks at for a limit of jobs: a page ends early if most of them are blocked.
pub(crate) fn looked_at_max(limit: usize) -> usize {
    limit.saturating_mul(8).max(1024)
}
