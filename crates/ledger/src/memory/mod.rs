//! The driver without a disk: the same verbs with the same meaning, synchronous and deterministic.
//!
//! The simulation runs on it. A verb that is applied is durable; a crash loses what its owner has not applied yet. A clone is
//! a snapshot.

mod accept;
mod access;
mod alerts;
mod approvals;
mod attempt;
mod call_budgets;
mod commands;
mod event_edit;
mod failure_groups;
mod handle;
mod history;
mod identity;
mod imports;
mod lanes;
mod late_identity;
mod operate;
mod policy;
mod read;
mod read_handle;
mod replays;
mod responses;
mod rows;
mod shadow;
mod shapes;
mod step_result;
mod straggler;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluice_domain::alert::{Alert, AlertKind};
use sluice_domain::call_budget::BudgetRow;
use sluice_domain::duplicate_stats::EventDuplicates;
use sluice_domain::event::EventId;
use sluice_domain::event::MappingWarning;
use sluice_domain::hash::Map;
use sluice_domain::idempotent_command::{CommandDigest, CommandEntry};
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState, Term};
use sluice_domain::key::KeyDigest;
use sluice_domain::ledger_clock::ClockRecord;
use sluice_domain::respond::ResponseClock;
use sluice_domain::time::Time;
use sluice_domain::upsert::RecordIdentity;

use crate::access::UserRecord;
use crate::event_edit::EventRevisionRecord;
use crate::op::{ApprovalRecord, AttemptSettlement, Begin};
use crate::record::{
    AttemptRecord, AuditRecord, EffectRecord, EventBody, EventRecord, EventSeq, ImportRecord, JobRecord, NewEvent,
    PauseRecord, ReplayRecord, RevisionRecord, ShadowRecord, ShapeRecord, SourceDayCounts, Variants,
};
use crate::straggler::Straggler;
pub use handle::StoreHandle;
pub use read::{EffectStatus, EventHead};
use rows::Rows;

const DAY_MS: i64 = 86_400_000;

/// A ledger in memory. Verbs take effect at once.
#[derive(Clone, Debug, Default)]
pub struct Store {
    events: Rows<EventSeq, EventRow>,
    /// Events by key, oldest first. An event of a later generation is found by its own id.
    owners: Map<[u8; 16], Vec<EventSeq>>,
    later_ids: BTreeMap<EventId, EventSeq>,
    jobs: Rows<JobId, JobRow>,
    /// Jobs that have begun an effect of an identity.
    identities: Map<RecordIdentity, BTreeSet<JobId>>,
    /// Number of jobs by their state.
    job_states: [u64; JobState::ALL.len()],
    lanes: lanes::Lanes,
    pauses: BTreeMap<String, PauseRecord>,
    revisions: BTreeMap<Arc<str>, String>,
    revision_history: Vec<RevisionRecord>,
    audit: Vec<AuditRecord>,
    /// By day since the epoch and source.
    source_days: BTreeMap<(i64, Arc<str>), SourceDayCounts>,
    variants: BTreeMap<EventSeq, Variants>,
    /// The newest event of a flow with this type and content.
    contents: BTreeMap<(Arc<str>, String, [u8; 16]), EventSeq>,
    /// The newest event with this signed content.
    signed_contents: Map<[u8; 16], EventSeq>,
    /// Keys of duplicates, each bound to an event.
    bindings: BTreeMap<[u8; 16], BindingRow>,
    /// The longest content window of any flow.
    window: Duration,
    /// By source: within the lifetime of the key, and after it.
    lateness: BTreeMap<Arc<str>, [BTreeMap<u32, u64>; 2]>,
    /// Number and last time, by source.
    mapping_warnings: BTreeMap<(Arc<str>, MappingWarning), (u64, Time)>,
    policies: policy::Policies,
    approvals: Vec<ApprovalRecord>,
    /// By store and key.
    marks: BTreeMap<(String, [u8; 16]), MarkRow>,
    /// By worker and entity: until when each retry counts.
    retries: BTreeMap<(Arc<str>, u64), Vec<Time>>,
    /// By worker: the rule, and since when.
    schedules: BTreeMap<String, (String, Time)>,
    /// In the order of their ids, from 1.
    replays: Vec<ReplayRecord>,
    imports: Vec<ImportRecord>,
    /// By name.
    users: BTreeMap<String, UserRecord>,
    credentials: access::Credentials,
    last_credential: i64,
    history: history::HistoryRows,
    failure_groups: failure_groups::FailureGroups,
    /// Edits of events, in their order.
    event_revisions: BTreeMap<EventSeq, Vec<EventRevisionRecord>>,
    /// When a key was claimed, and what is stored under it.
    commands: BTreeMap<CommandDigest, (Time, CommandEntry)>,
    alerts: BTreeMap<(AlertKind, String), Alert>,
    /// Clocks that run, by event.
    responses: BTreeMap<EventSeq, ResponseClock>,
    contacts: identity::Contacts,
    /// By source and type.
    shapes: BTreeMap<(String, String), ShapeRecord>,
    payloads_seen: Option<EventSeq>,
    /// By destination and start of the interval.
    call_budgets: BTreeMap<Arc<str>, BTreeMap<Time, BudgetRow>>,
    shadow: Option<ShadowRecord>,
    late_identities: late_identity::LateIdentities,
    duplicates: BTreeMap<EventSeq, EventDuplicates>,
    last_seq: EventSeq,
    last_job: i64,
    term: Term,
    change_seq: u64,
    clock: Option<ClockRecord>,
    /// By worker, entity and step.
    stragglers: BTreeMap<(Arc<str>, u64, Arc<str>), Straggler>,
    /// By kind.
    pruned: BTreeMap<String, u64>,
    /// By digest.
    proofs: BTreeMap<[u8; 16], ProofRow>,
}

#[derive(Clone, Copy, Debug)]
struct BindingRow {
    seq: EventSeq,
    expires_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct ProofRow {
    /// See [`Proof::request`](sluice_domain::record::Proof::request).
    request: KeyDigest,
    expires_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct MarkRow {
    owner: EffectKey,
    event: EventId,
    job: JobId,
    expires_at: Time,
}

#[derive(Clone, Debug)]
struct EventRow {
    seq: EventSeq,
    id: EventId,
    generation: u32,
    first_job: JobId,
    jobs: u32,
    new: Box<NewEvent>,
    /// Never changes: shared by everyone who reads it.
    record: Arc<EventRecord>,
    body: Option<Arc<EventBody>>,
}

impl EventRow {
    fn job_ids(&self) -> impl Iterator<Item = JobId> + use<> {
        (self.first_job.0..self.first_job.0 + i64::from(self.jobs)).map(JobId)
    }

    fn head(&self) -> EventHead<'_> {
        let (key_text, received_at) = (self.new.key_text.as_str(), self.new.received_at);
        EventHead { seq: self.seq, id: self.id, key_text, generation: self.generation, received_at, jobs: self.jobs }
    }
}

#[derive(Clone, Debug)]
struct JobRow {
    record: JobRecord,
    effects: Vec<EffectRow>,
    attempts: Vec<AttemptRow>,
}

#[derive(Clone, Debug)]
struct EffectRow {
    /// As it was begun last, with its current step.
    begin: Begin,
    state: EffectState,
    attempts: u32,
    absent_reads: u32,
    reads: u32,
    result: Option<Arc<serde_json::Value>>,
    first_at: Time,
    last_at: Time,
}

impl EffectRow {
    fn record(&self) -> EffectRecord {
        EffectRecord {
            job: self.begin.job,
            step: self.begin.step,
            step_id: self.begin.step_id.to_string(),
            key: self.begin.key,
            action: self.begin.action.to_owned(),
            destination: self.begin.destination.to_string(),
            class: self.begin.class,
            state: self.state,
            attempts: self.attempts,
            absent_reads: self.absent_reads,
            reads: self.reads,
            result: self.result.clone(),
            first_at: self.first_at,
            last_at: self.last_at,
        }
    }
}

#[derive(Clone, Debug)]
struct AttemptRow {
    n: u32,
    ended_at: Time,
    attempt: AttemptSettlement,
}

impl AttemptRow {
    fn record(&self, job: JobId) -> AttemptRecord {
        AttemptRecord {
            job,
            n: self.n,
            step: self.attempt.step_id.to_string(),
            kind: self.attempt.kind,
            started_at: self.attempt.started_at,
            ended_at: self.ended_at,
            outcome: self.attempt.outcome.to_owned(),
            failure: self.attempt.failure.clone(),
        }
    }
}

impl Store {
    pub fn new() -> Store {
        Store::default()
    }

    /// Another process opens the store. Takes a new term for it.
    pub fn reopen(&mut self) -> Term {
        self.term.0 += 1;
        self.term
    }

    /// Sequence number of the last change that all nodes must agree on.
    pub fn change_seq(&self) -> u64 {
        self.change_seq
    }

    /// The term that was taken last.
    pub fn term(&self) -> Term {
        self.term
    }
}
