//! The scheduler's query to the ledger: live jobs of one worker and destination.

use std::sync::Arc;

use super::PendingJob;
use crate::job::JobId;
use crate::record::JobRecord;
use crate::time::Time;

/// Asks for live jobs of one worker whose next call goes to one destination (empty: internal steps come first).
///
/// A job is *deferred* if it is retrying or waiting with `due_at` later than `due_by`. A fifo job is *blocked* if an older live job
/// of the same worker, destination and entity is deferred. A running job is never blocked. Deferred and blocked jobs are never part
/// of the answer: they cannot run, and must not occupy memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacklogQuery {
    pub worker: Arc<str>,
    pub destination: Arc<str>,
    /// Queued and running jobs with a higher id.
    pub after: JobId,
    /// Retrying and waiting jobs that are due by this time of the steady clock.
    pub due_by: Time,
    /// At most this many of each kind.
    pub limit: usize,
}

/// The answer to a [`BacklogQuery`], read in one snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct BacklogPage<Job = JobRecord> {
    /// Queued and running jobs beyond `after`, ascending by id.
    pub queued: Vec<Job>,
    /// The last id that was looked at: `after` for the next query. Blocked jobs up to here were passed over.
    pub looked_until: JobId,
    /// Whether there are queued jobs beyond `looked_until`.
    pub more_queued: bool,
    /// Retrying and waiting jobs that are due, ascending by due time, then id.
    pub due: Vec<Job>,
    pub more_due: bool,
    /// The earliest due time after `due_by` of a retrying or waiting job.
    pub next_due: Option<Time>,
}

impl<Job> Default for BacklogPage<Job> {
    fn default() -> BacklogPage<Job> {
        BacklogPage {
            queued: Vec::new(),
            looked_until: JobId(0),
            more_queued: false,
            due: Vec::new(),
            more_due: false,
            next_due: None,
        }
    }
}

impl BacklogPage {
    /// The page as the scheduler needs it.
    pub fn pending(&self) -> BacklogPage<PendingJob> {
        BacklogPage {
            queued: self.queued.iter().map(PendingJob::of).collect(),
            looked_until: self.looked_until,
            more_queued: self.more_queued,
            due: self.due.iter().map(PendingJob::of).collect(),
            more_due: self.more_due,
            next_due: self.next_due,
        }
    }
}
