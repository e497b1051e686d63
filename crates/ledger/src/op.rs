//! What the ledger can be asked to write, as data. A batch of these is one transaction.

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::event::EventId;
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::outcome::{EffectClass, Failure};
use sluice_domain::time::Time;

use crate::record::{AttemptKind, JobRecord, NewEvent, Ord};

/// Something to write.
#[derive(Clone, Debug)]
pub enum Op {
    /// Accept an event, unless its key has an owner.
    Accept(Box<NewEvent>),
    /// An attempt is about to be made.
    Begin(Begin),
    /// An attempt has ended.
    Settle(Box<Settlement>),
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
    /// Keep a revision of the configuration.
    Revision {
        /// Its digest.
        hash: Arc<str>,
        /// Path and text of each file, as JSON.
        files: String,
        /// Who brought it.
        actor: String,
        /// When.
        at: Time,
    },
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
    /// Remove what is past its time, a slice at a time.
    Prune(Prune),
    /// Where events may be that have this id.
    Find(EventId),
    /// Write what came before, then end.
    Close,
}

/// An attempt is about to be made: the effect is written down before it is done.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The job.
    pub job: JobId,
    /// The number of this try among all of the job.
    pub n: u32,
    /// The place of the step.
    pub step: u32,
    /// Its name.
    pub step_id: Arc<str>,
    /// The effect's name for ever.
    pub key: EffectKey,
    /// How a repeat is treated.
    pub class: EffectClass,
    /// What is done.
    pub action: &'static str,
    /// Where.
    pub destination: Arc<str>,
    /// When.
    pub at: Time,
}

/// An attempt has ended, and this is what comes next.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The job.
    pub job: JobId,
    /// The try that ended; a settlement of an older one is refused.
    pub n: u32,
    /// What became of the effect; `None` if the step had none or it was not touched.
    pub effect: Option<EffectSettlement>,
    /// For the record; `None` if nothing was tried.
    pub attempt: Option<AttemptSettlement>,
    /// Where the job stands now.
    pub next: JobNext,
    /// When.
    pub at: Time,
}

/// What became of an effect.
#[derive(Clone, Debug)]
pub struct EffectSettlement {
    /// The place of its step.
    pub step: u32,
    /// Where it stands now.
    pub state: EffectState,
    /// What the destination said.
    pub result: Option<Value>,
    /// Reads that did not find it, since the last attempt.
    pub absent_reads: u32,
    /// Reads in all, since the last attempt.
    pub reads: u32,
}

/// How an attempt ended, for the record.
#[derive(Clone, Debug)]
pub struct AttemptSettlement {
    /// The name of the step.
    pub step_id: Arc<str>,
    /// A call or a read.
    pub kind: AttemptKind,
    /// When it started.
    pub started_at: Time,
    /// The outcome's word.
    pub outcome: &'static str,
    /// What went wrong.
    pub failure: Option<Failure>,
}

/// Where a job stands after an attempt.
#[derive(Clone, Debug)]
pub struct JobNext {
    /// Its state.
    pub state: JobState,
    /// The next step.
    pub step: u32,
    /// Attempts at that step so far.
    pub attempts: u32,
    /// Not before.
    pub due_at: Time,
    /// Whether an outcome has to be read back first.
    pub verifying: bool,
    /// What went wrong last.
    pub failure: Option<Failure>,
    /// Where it lies if it is dead.
    pub dead_letter_queue: Option<String>,
    /// What came of it, if it is finished.
    pub result: Option<Value>,
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
    /// Run under this revision instead of the one they were accepted under.
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
    pub verdict: Verdict,
    /// Who says so.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
}

/// What a person found out about a parked effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did happen: go on with the next step.
    Happened,
    /// It did not happen: send it.
    DidNotHappen,
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

/// What came of an [`Op`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// The event is ours.
    Accepted(Accepted),
    /// Its key has an owner already.
    Duplicate(Duplicate),
    /// The attempt may be made.
    Begun,
    /// The effect was applied before: nothing is to be done.
    AlreadyApplied,
    /// It is written.
    Settled,
    /// The attempt is not the current one any more; nothing was written.
    Stale,
    /// These jobs were changed.
    Jobs(Vec<(JobId, Arc<str>)>),
    /// So many rows are gone; `true` if there may be more.
    Pruned {
        /// Rows removed.
        rows: u64,
        /// Whether another slice is worth it.
        more: bool,
    },
    /// The places of candidates; their rows decide.
    Candidates(Vec<Ord>),
    /// Done.
    Done,
}

/// An event that became ours.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// Its place.
    pub ord: Ord,
    /// Its name.
    pub id: EventId,
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
    /// Whether the content is another than the first's.
    pub clash: bool,
    /// The first's jobs.
    pub jobs: Vec<JobRecord>,
}
