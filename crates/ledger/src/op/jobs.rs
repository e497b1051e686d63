//! Commands on jobs, and what an approval became.

use std::sync::Arc;
use std::time::Duration;

use sluice_domain::job::JobId;
use sluice_domain::ops::ApprovalRecord;
use sluice_domain::time::Time;

/// Ends the wait of waiting jobs. Others are skipped.
#[derive(Clone, Debug)]
pub struct MakeDue {
    pub jobs: Vec<JobId>,
    /// Their new due time, by the steady clock.
    pub at: Time,
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
    pub(crate) const RUNS_LATER: Duration = Duration::from_secs(15);
    /// The same for a job that failed after its confirmed write: it may be replayed.
    pub(crate) const FAILED_LATER: Duration = Duration::from_secs(60);
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
