//! What the ledger can be asked to write, as data. A batch of these is one transaction.

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::event::EventId;
use sluice_domain::job::JobId;
pub use sluice_domain::ops::{
    AttemptSettlement, Begin, BeginResult, ChargeResult, EffectSettlement, Fence, Mark, Marked, RetryCharge,
    Settlement, StepResult,
};
use sluice_domain::time::Time;
pub use sluice_domain::transition::JobUpdate;

use crate::guard::{GuardOp, GuardReply};
use crate::record::{EventSeq, JobRecord, NewEvent};
use crate::seal::RootKey;

/// Something to write.
#[derive(Clone, Debug)]
pub enum Op {
    /// Accept an event, unless its key has an owner.
    Accept(Box<NewEvent>),
    /// Accept the events of one request, in their order.
    AcceptAll(Vec<NewEvent>),
    /// An attempt is about to be made.
    Begin(Begin),
    /// An attempt has ended.
    Settle(Box<Settlement>),
    /// An attempt has ended that nobody had to write down before.
    BeginAndSettle(Box<(Begin, Settlement)>),
    /// The same, if the contact has a retry left.
    SettleWithBudget(Box<(Settlement, RetryCharge)>),
    /// Keep what a step inside has come to.
    Note(Box<StepResult>),
    /// Set a mark, unless it is set.
    Mark(Box<Mark>),
    /// Bring jobs back to life.
    Replay(Replay),
    /// A person has decided what became of a parked effect.
    Resolve(Resolve),
    /// Give jobs up.
    Drop(DropJobs),
    /// Stop something.
    Pause {
        /// What, by whom and why.
        target: String,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
        /// When.
        at: Time,
    },
    /// Let it go on.
    Resume {
        /// What.
        target: String,
        /// Who.
        actor: String,
        /// When.
        at: Time,
    },
    /// Keep a revision of the configuration, and that it is in force from here on.
    Revision(NewRevision),
    /// A line for the audit trail alone.
    Audit {
        /// When.
        at: Time,
        /// Who.
        actor: String,
        /// What.
        action: String,
        /// To what.
        object: String,
        /// How.
        detail: String,
    },
    /// What stands between a step and its effect.
    Guard(GuardOp),
    /// Remove what is past its time, a slice at a time.
    Prune(Prune),
    /// Where events may be that have this id.
    Find(EventId),
    /// Since when a worker has had this schedule.
    Schedule {
        /// The worker.
        worker: String,
        /// Its rule, as it was written.
        rule: String,
        /// Since when, if it is new.
        at: Time,
    },
    /// Change the keys that seal the ledger.
    Rotate(Rotate),
    /// Write what came before, then end.
    Close,
}

/// A revision of the configuration that comes into force.
#[derive(Clone, Debug)]
pub struct NewRevision {
    /// Its digest.
    pub hash: Arc<str>,
    /// Path and text of each file, as JSON.
    pub files: String,
    /// Who brought it.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
}

/// Bring jobs back to life, with the same keys.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Which. Those that are live already are left alone.
    pub jobs: Vec<JobId>,
    /// Who asked.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Run under this revision instead of the one they were accepted under. Its steps may have other places, so jobs start
    /// at the first; what is applied already is known by its key and not done again.
    pub revision: Option<Arc<str>>,
    /// When.
    pub at: Time,
}

/// A person has decided what became of an effect whose outcome nobody knows.
#[derive(Clone, Debug)]
pub struct Resolve {
    /// The parked job.
    pub job: JobId,
    /// What is so.
    pub resolution: Resolution,
    /// Who says so.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
}

/// What a person found out about a parked effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It did happen: go on with the next step.
    Happened,
    /// It did not happen: send it.
    NotHappened,
}

/// Give jobs up: they end as dropped.
#[derive(Clone, Debug)]
pub struct DropJobs {
    /// Which. Only dead and unknown ones are dropped.
    pub jobs: Vec<JobId>,
    /// Who signed it off.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
}

/// Remove what is past its time: at most `rows_max` rows of each kind.
#[derive(Clone, Debug)]
pub struct Prune {
    /// Bodies of events accepted before this, none of whose jobs is live or dead.
    pub bodies_before: Time,
    /// Events accepted before this whose key has expired, none of whose jobs is live or dead.
    pub events_before: Time,
    /// A bound on the work of one slice.
    pub rows_max: u32,
    /// When.
    pub at: Time,
}

/// Change the keys that seal the ledger. Payloads are not touched.
#[derive(Clone, Debug)]
pub struct Rotate {
    /// Which.
    pub what: Rotation,
    /// Who asked.
    pub actor: String,
    /// When.
    pub at: Time,
}

/// Which keys are changed.
#[derive(Clone, Debug)]
pub enum Rotation {
    /// The keys of the tenant are wrapped with this root key from here on.
    Root(RootKey),
    /// New data is sealed with a new key of the tenant.
    Tenant,
    /// The keys of the next so many contacts are wrapped with the newest key of the tenant.
    Contacts {
        /// A bound on the work of one slice.
        rows_max: u32,
    },
}

/// What came of an [`Op`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// The event is ours.
    Accepted(Accepted),
    /// Its key has an owner already.
    Duplicate(Duplicate),
    /// What became of each event of a request.
    Acceptances(Vec<Acceptance>),
    /// The attempt may be made.
    Begun,
    /// The effect was applied before: nothing is to be done.
    AlreadyApplied,
    /// It is written.
    Settled,
    /// There was no retry left; the other way is written.
    Exhausted,
    /// The worker has had its schedule since then.
    Since(Time),
    /// The attempt is not the current one any more; nothing was written.
    Stale,
    /// This is what the step has come to: as it is kept.
    Noted(Value),
    /// Whose the mark is.
    Marked(Marked),
    /// These jobs were changed.
    Jobs(Vec<(JobId, Arc<str>)>),
    /// So many rows are gone; `true` if there may be more.
    Pruned {
        /// Rows removed.
        rows: u64,
        /// Whether another slice is worth it.
        more: bool,
    },
    /// What came of a guard.
    Guard(GuardReply),
    /// The keys are changed: the version of a new one, or how many contacts were looked at.
    Rotated(u64),
    /// The places of candidates; their rows decide.
    Candidates(Vec<EventSeq>),
    /// Done.
    Done,
}

/// What became of an event that wanted to be accepted.
#[derive(Clone, Debug)]
pub enum Acceptance {
    /// It is new, and durable.
    Accepted(Accepted),
    /// It is a repeat.
    Duplicate(Duplicate),
}

impl From<Acceptance> for Reply {
    fn from(acceptance: Acceptance) -> Reply {
        match acceptance {
            Acceptance::Accepted(accepted) => Reply::Accepted(accepted),
            Acceptance::Duplicate(duplicate) => Reply::Duplicate(duplicate),
        }
    }
}

/// An event that became ours.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// Its place.
    pub seq: EventSeq,
    /// Its name.
    pub id: EventId,
    /// The event with the same key and another content, when this one was let in beside it.
    pub variant_of: Option<EventId>,
    /// Whether its jobs wait for a person: the event itself asked for that, or it clashed with another.
    pub quarantined: bool,
}

/// A repeat, and what its first was answered.
#[derive(Clone, Debug)]
pub struct Duplicate {
    /// The first's name.
    pub id: EventId,
    /// The key, readable.
    pub key_text: String,
    /// When the first arrived.
    pub received_at: Time,
    /// What it was recognised by.
    pub by: MatchedBy,
    /// Whether the content is another than the first's: it was kept beside the first, and nothing is done with it.
    pub clash: bool,
    /// The first's jobs.
    pub jobs: Vec<JobRecord>,
}

/// What a repeat was recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedBy {
    /// Its key has an owner.
    Key,
    /// A key beside its own has: it came just behind the edge of a time bucket.
    NearKey,
    /// Its content came a moment ago under another key.
    Content,
}
