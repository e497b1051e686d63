//! Fencing: which writes of a run may change a job. Every driver applies these rules to the row as it is in the transaction.

use sluice_domain::job::{JobState, Term};
use sluice_domain::mutant::Mutant;
use sluice_domain::ops::{Begin, Fence, Settlement};
use sluice_domain::record::{AttemptKind, JobRecord};

/// The part of a job that decides whether a write is stale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobGuard {
    pub state: JobState,
    pub attempts_total: u32,
    pub term: Term,
}

impl From<&JobRecord> for JobGuard {
    fn from(job: &JobRecord) -> JobGuard {
        JobGuard { state: job.state, attempts_total: job.attempts_total, term: job.term }
    }
}

impl JobGuard {
    /// A begin needs a live job that is not running, with one attempt less.
    pub(crate) fn may_begin(self, begin: &Begin) -> bool {
        begin.n.checked_sub(1).is_some_and(|before| self.is_idle(before, begin.fence))
    }

    /// A settlement of a call needs the job to be running that attempt. Without a call the job must not be running, unless the
    /// attempt belongs to an older owner: a job that was interrupted before its intent was recorded has no call to settle.
    pub(crate) fn may_settle(self, settlement: &Settlement) -> bool {
        if Mutant::LateResponseAccepted.is_on() {
            return true;
        }
        let Settlement { n, fence, .. } = *settlement;
        let is_call = settlement.attempt.as_ref().is_some_and(|attempt| attempt.kind == AttemptKind::Call);
        match self.state {
            JobState::Running => self.is_at(n, fence) && (is_call || fence.expected < fence.owner),
            _ => !is_call && self.is_idle(n, fence),
        }
    }

    /// Whether the job is live and not running, as the writer believes.
    pub(crate) fn is_idle(self, n: u32, fence: Fence) -> bool {
        self.state.is_live() && self.state != JobState::Running && self.is_at(n, fence)
    }

    fn is_at(self, n: u32, fence: Fence) -> bool {
        self.attempts_total == n && self.term == fence.expected
    }
}
