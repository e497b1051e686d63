//! What the ledger writes, as data, and the replies. The writes of a run are defined in the domain.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_domain::alert::AlertKind;
use sluice_domain::contact::{Conflict, ContactId, Observation, SuppliedIdentity};
use sluice_domain::event::EventId;
use sluice_domain::history::recorder::Point;
use sluice_domain::job::{JobId, Term};
use sluice_domain::key::KeyDigest;
use sluice_domain::ledger_clock::ClockRecord;
pub use sluice_domain::ops::{
    ApprovalRecord, AttemptSettlement, Begin, BeginResult, CappedBeginResult, ChargeResult, DecideApproval,
    EffectSettlement, Fence, Mark, Marked, RequestApproval, RetryCharge, SetConsent, Settlement, Skip, StepResult,
    StepWarning,
};
use sluice_domain::policy::CapReservation;
use sluice_domain::replay::{Reapply, ReplayId, ReplayState};
pub use sluice_domain::run::Settle;
use sluice_domain::time::Time;
pub use sluice_domain::transition::JobUpdate;
use sluice_domain::unit::Rate;

use crate::filter::{JobFilter, Page};
use crate::import::ImportStep;
use crate::record::{EventSeq, JobRecord, NewEvent, ReplayRecord, ShapeRecord};
use crate::seal::RootKey;

/// The intent of an attempt with the caps that it is counted under: all of them have room, or nothing is written.
#[derive(Clone, Debug)]
pub struct CappedBegin {
    pub begin: Begin,
    pub caps: Vec<CapReservation>,
}

/// The events of one request: accepted in one transaction or not at all.
#[derive(Clone, Debug)]
pub(crate) struct RequestEvents {
    pub events: Vec<NewEvent>,
    /// The events are rows of an import, which moves on with them.
    pub import: Option<ImportStep>,
}

/// Stops a target until it is resumed.
#[derive(Clone, Debug)]
pub struct Pause {
    /// `destination:crm`, `worker:contact-upsert`, `source:website`.
    pub target: String,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

#[derive(Clone, Debug)]
pub struct Resume {
    pub target: String,
    pub actor: String,
    /// Empty if none was given.
    pub reason: String,
    pub at: Time,
}

/// An entry of the audit trail.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    pub at: Time,
    pub actor: String,
    pub action: String,
    pub object: String,
    pub detail: String,
}

/// A revision of the configuration that becomes active.
#[derive(Clone, Debug)]
pub struct NewRevision {
    /// Digest of its files.
    pub hash: Arc<str>,
    /// Path and text of each file, as JSON.
    pub files: String,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// The schedule of a worker.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub worker: String,
    /// As it is configured.
    pub rule: String,
    pub at: Time,
}

/// Ends the wait of waiting jobs. Others are skipped.
#[derive(Clone, Debug)]
pub struct MakeDue {
    pub jobs: Vec<JobId>,
    /// Their new due time, by the steady clock.
    pub at: Time,
}

/// Requeues finished and dead jobs with the same effect keys. Live jobs are skipped.
#[derive(Clone, Debug)]
pub struct Replay {
    pub jobs: Vec<JobId>,
    pub actor: String,
    pub reason: String,
    /// Run under this revision instead of the one that the jobs were accepted under. Its steps may be at other places, so a
    /// job starts at the first one; applied effects are known by their keys and not repeated.
    pub revision: Option<Arc<str>>,
    pub at: Time,
}

/// Jobs of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplaySelection {
    /// Evaluated when the batch of a job comes.
    Filter(JobFilter),
    /// Numbers of jobs, ascending.
    Jobs(Vec<i64>),
}

/// A replay that starts.
#[derive(Clone, Debug)]
pub struct NewReplay {
    pub selection: ReplaySelection,
    pub actor: String,
    pub reason: String,
    /// As in [`Replay`].
    pub revision: Option<Arc<str>>,
    /// Effects that are applied again.
    pub reapply: Reapply,
    /// Jobs per time; `None` for no limit.
    pub rate: Option<Rate>,
    /// Jobs per batch.
    pub batch: u32,
    pub at: Time,
}

/// The next batch of a running replay: its jobs are requeued, and the replay continues behind them.
#[derive(Clone, Debug)]
pub struct AdvanceReplay {
    pub id: ReplayId,
    /// The last job that was looked at before; if the replay has moved on since, nothing is written.
    pub after: JobId,
    /// The last job that was looked at now.
    pub until: JobId,
    /// Jobs that are requeued. Those that are not replayable any more are counted as skipped.
    pub jobs: Vec<JobId>,
    /// Jobs that were looked at and are not requeued.
    pub skipped: u64,
    /// No job is left behind these.
    pub is_last: bool,
    /// When the next batch may start, by the wall clock.
    pub next_at: Time,
    pub at: Time,
}

/// An operator pauses, resumes or cancels a replay.
#[derive(Clone, Debug)]
pub struct ControlReplay {
    pub id: ReplayId,
    pub state: ReplayState,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

impl ControlReplay {
    /// As the audit trail names it.
    pub(crate) fn action(&self) -> &'static str {
        match self.state {
            ReplayState::Paused => "pause",
            ReplayState::Cancelled => "cancel",
            ReplayState::Running | ReplayState::Done => "resume",
        }
    }
}

/// The result of a [`ControlReplay`].
#[derive(Clone, Debug, PartialEq)]
pub enum Controlled {
    Changed(ReplayRecord),
    /// It is in that state already.
    Same(ReplayRecord),
    /// It is finished.
    Refused(ReplayRecord),
    Unknown,
}

/// An operator states what became of an effect of unknown outcome; its job continues.
#[derive(Clone, Debug)]
pub struct Resolve {
    pub job: JobId,
    pub resolution: Resolution,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// What became of an effect of unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Continue with the next step.
    Happened,
    /// The effect did not happen: the job is queued again and sends it.
    NotHappened,
}

/// Requeues the jobs whose confirmed write is compared with the record, because a call of their lane may have been applied late.
#[derive(Clone, Copy, Debug)]
pub struct Recheck {
    /// Time of the ledger's clock.
    pub at: Time,
    /// Time of the steady clock, and the new due time of the jobs: calls that may be applied until then have been, or never are.
    pub due_at: Time,
    pub jobs_max: u32,
}

impl Recheck {
    /// How much later a lane is looked at again whose job still runs.
    pub(crate) const LATER: Duration = Duration::from_secs(15);
}

/// Discards dead and unknown jobs; other jobs are skipped.
#[derive(Clone, Debug)]
pub struct DropJobs {
    pub jobs: Vec<JobId>,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// Actor of the drops that maintenance makes.
pub const RETENTION: &str = "retention";

/// A job that a command has changed, and its worker.
pub type ChangedJob = (JobId, Arc<str>);

/// Removes expired rows: at most `rows_max` of each kind.
#[derive(Clone, Debug)]
pub struct Prune {
    /// Bodies of events accepted before this time that have no live, dead or unknown job.
    pub bodies_before: Time,
    /// Events accepted before this time whose key has expired and that have no live, dead or unknown job.
    pub events_before: Time,
    pub rows_max: u32,
    pub at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruned {
    pub rows: u64,
    /// Whether another slice may find more.
    pub more: bool,
}

/// Stores the state of the ledger's clock.
#[derive(Clone, Debug)]
pub struct KeepClock {
    pub record: ClockRecord,
    /// Set if an operator has confirmed the wall clock.
    pub confirmed: Option<ClockConfirmation>,
}

/// An operator marks an alert.
#[derive(Clone, Debug)]
pub struct MarkAlert {
    pub kind: AlertKind,
    /// Empty for the node.
    pub subject: String,
    pub mark: AlertMark,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertMark {
    Acknowledged,
    /// Changes until this time are not notified.
    SnoozedUntil(Time),
}

impl MarkAlert {
    /// As the audit trail names it.
    pub(crate) fn action(&self) -> &'static str {
        match self.mark {
            AlertMark::Acknowledged => "acknowledge",
            AlertMark::SnoozedUntil(_) => "snooze",
        }
    }

    /// As in the audit trail.
    pub(crate) fn object(&self) -> String {
        format!("alert:{}:{}", self.kind.name(), self.subject)
    }
}

/// What was learned of payloads, up to an event.
#[derive(Clone, Debug)]
pub struct KeepShapes {
    /// The last event of the write before, as it was read.
    pub after: Option<EventSeq>,
    pub seen: EventSeq,
    /// With the versions that were read.
    pub shapes: Vec<ShapeRecord>,
}

/// An operator makes departures from the shape of payloads the new normal.
#[derive(Clone, Debug)]
pub struct AcceptDrift {
    pub source: String,
    /// `None`: of every type.
    pub event_type: Option<String>,
    /// `None`: every notice.
    pub path: Option<String>,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

impl AcceptDrift {
    pub(crate) fn is_about(&self, event_type: &str) -> bool {
        self.event_type.as_deref().is_none_or(|meant| meant == event_type)
    }

    /// As in the audit trail.
    pub(crate) fn object(&self) -> String {
        let parts = [Some(self.source.as_str()), self.event_type.as_deref(), self.path.as_deref()];
        format!("shape:{}", parts.into_iter().flatten().collect::<Vec<_>>().join(":"))
    }
}

/// Runs a configuration beside the active one, from the next event on.
#[derive(Clone, Debug)]
pub struct SetShadow {
    pub hash: String,
    /// As of a revision.
    pub files: String,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

#[derive(Clone, Debug)]
pub struct StopShadow {
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// What the configuration that runs beside the active one does otherwise, up to an event.
#[derive(Clone, Debug)]
pub struct KeepShadow {
    pub hash: String,
    pub started_at: Time,
    /// Revision that it was compared with.
    pub active: String,
    /// The last event of the write before, as it was read.
    pub after: EventSeq,
    pub seen: EventSeq,
    pub report: String,
}

/// A minute of the history. Counters of the ledger are added by the verb itself.
#[derive(Clone, Debug)]
pub struct RecordHistory {
    /// The term and the minute together never go back: a repeat writes nothing.
    pub term: Term,
    /// Start of the minute.
    pub minute: Time,
    /// What the node has observed.
    pub points: Vec<Point>,
    /// Removes the intervals that have expired by this time. `None` while the wall clock is in doubt.
    pub expire_at: Option<Time>,
}

/// An operator states that the wall clock is right.
#[derive(Clone, Debug)]
pub struct ClockConfirmation {
    pub actor: String,
    pub reason: String,
    /// The ledger's time before and after.
    pub before: Time,
    pub at: Time,
}

impl ClockConfirmation {
    /// As in the audit trail.
    pub(crate) fn detail(&self) -> String {
        format!("from {} to {}: {}", self.before, self.at, self.reason)
    }
}

/// Changes the keys that seal the ledger. Payloads are not touched.
#[derive(Clone, Debug)]
pub(crate) struct Rotate {
    pub rotation: Rotation,
    pub actor: String,
    pub at: Time,
}

#[derive(Clone, Debug)]
pub(crate) enum Rotation {
    /// Wraps the tenant keys with this root key.
    Root(RootKey),
    /// Seals new data with a new tenant key.
    Tenant,
    /// Wraps the keys of the next contacts with the newest tenant key.
    Contacts { rows_max: u32 },
}

/// Looks up events by their keys, and contacts by their digests.
#[derive(Clone, Debug)]
pub struct KeyLookup {
    pub keys: Vec<KeyDigest>,
    pub contacts: Vec<KeyDigest>,
}

/// Looks up events by what refers to them.
#[derive(Clone, Debug)]
pub enum EventLookup {
    /// A trace id: 32 hexadecimal digits.
    Trace(String),
    /// The id of a record at a destination, as an effect returned it.
    Record(String),
}

/// Looks up the events of a contact and of those that are merged into it.
#[derive(Clone, Copy, Debug)]
pub struct ContactEvents {
    pub contact: ContactId,
    pub page: Page,
}

/// Looks up contacts by their identifiers.
#[derive(Clone, Debug)]
pub struct ContactLookup {
    pub identifiers: Vec<KeyDigest>,
}

/// The result of a [`KeyLookup`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundKeys {
    /// Events that have one of the keys, expired ones too.
    pub seqs: Vec<EventSeq>,
    /// Events of the contacts. Some may have been pruned.
    pub contact_events: Vec<EventSeq>,
}

/// Contacts that must not be written to.
#[derive(Clone, Debug)]
pub struct Suppress {
    /// Each with its masked form, which lists show.
    pub contacts: Vec<(KeyDigest, String)>,
    /// Empty means any channel.
    pub channel: String,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// Contacts that may be written to again.
#[derive(Clone, Debug)]
pub struct Unsuppress {
    pub contacts: Vec<KeyDigest>,
    /// Empty means any channel.
    pub channel: String,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// Turns safe mode on or off.
#[derive(Clone, Debug)]
pub struct SetSafeMode {
    /// `None` means all workers.
    pub worker: Option<String>,
    /// `None` turns it off.
    pub until: Option<Time>,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// The result of a decision on an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// The decision counts; this job continues or ends.
    Counts(JobId, Arc<str>),
    /// The same decision was made before.
    Same,
    /// Another decision was made before.
    Conflict(Box<ApprovalRecord>),
    /// There is no such approval.
    Unknown,
}

/// The result of an accept.
#[derive(Clone, Debug)]
pub enum Acceptance {
    /// The event is new and durable.
    Accepted(Accepted),
    Duplicate(Duplicate),
    /// The proof of the request was used by another one; nothing was written.
    ProofUsed,
}

#[derive(Clone, Debug)]
pub struct Accepted {
    pub seq: EventSeq,
    pub id: EventId,
    /// The event with the same key and other content, if this one is accepted beside it.
    pub variant_of: Option<EventId>,
    /// Whether its jobs are dead letters: the sender asked for it, or the event clashed with another.
    pub quarantined: bool,
}

/// A duplicate, with the result of the first event.
#[derive(Clone, Debug)]
pub struct Duplicate {
    /// The first event.
    pub id: EventId,
    pub key_text: String,
    /// When the first event arrived.
    pub received_at: Time,
    /// The source of the first event, and the name of the secret that verified it.
    pub source: Arc<str>,
    pub verified_by: Option<String>,
    pub by: MatchedBy,
    /// Whether the content differs from the first event's. It is stored beside it and nothing is done with it.
    pub clash: bool,
    /// Jobs of the first event.
    pub jobs: Vec<JobRecord>,
}

/// What a duplicate was recognized by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedBy {
    Key,
    /// The key of an adjacent time bucket.
    AdjacentKey,
    /// The same content under another key, within the content window or as signed content.
    Content,
}

/// Actor of the releases that a later event makes.
pub const RELEASE: &str = "contacts";

/// An operator supplies an identity for a quarantined event.
#[derive(Clone, Debug)]
pub struct IdentifyEvent {
    pub seq: EventSeq,
    /// What the event says with the identity. Has an identifier.
    pub observation: Observation,
    pub supplied: SuppliedIdentity,
    /// Digest of the person, if known: whose key seals the identity.
    pub contact: Option<KeyDigest>,
}

/// The result of an [`IdentifyEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identified {
    /// The event belongs to this contact, and its jobs are queued.
    Done(ContactId),
    NotFound,
    /// No job of the event waits for an identity: it has one already, or was replayed or dropped.
    NotWaiting,
    /// The identifiers belong to several contacts, or contradict the one that they belong to. Nothing is written.
    Conflict(Vec<Conflict>),
}

/// Makes a contact part of another one.
#[derive(Clone, Debug)]
pub struct MergeContacts {
    /// Stays the contact of both.
    pub into: ContactId,
    pub contact: ContactId,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// Takes a contact out of the one that it is merged into, with what was merged into it before.
#[derive(Clone, Debug)]
pub struct SplitContact {
    pub contact: ContactId,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// What came of a merge or a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContactChange {
    Done,
    NotFound,
    /// A contact is not merged with itself.
    Same,
    /// The contact is part of this one already.
    MergedInto(ContactId),
    NotMerged,
    /// More than [`sluice_domain::contact::MEMBERS_MAX`] contacts would be one.
    TooMany,
    /// Live jobs of the contacts, and jobs whose write is still to be compared because a call may be applied late: their lanes must
    /// be empty first, since two lanes of one contact would have no order.
    Busy {
        jobs: u64,
    },
}

/// Why two contacts cannot be merged, each with the one that it is merged into.
pub(crate) fn merge_problem(
    into: (ContactId, Option<ContactId>),
    other: (ContactId, Option<ContactId>),
) -> Option<ContactChange> {
    match (into, other) {
        ((into, _), (other, _)) if into == other => Some(ContactChange::Same),
        (_, (_, Some(parent))) | ((_, Some(parent)), _) => Some(ContactChange::MergedInto(parent)),
        _ => None,
    }
}
