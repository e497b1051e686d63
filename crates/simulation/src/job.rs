//! A job in the memory of a node: what it has to know to work on it, and no more.

use sluice_domain::job::{JobId, JobState};
use sluice_domain::time::Time;
use sluice_domain::worker::LaneOrder;
use sluice_ledger::JobRecord;

use super::plan::SimPlan;

/// A job as a node holds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub id: JobId,
    pub ord: i64,
    /// Which worker, by its place in the plan.
    pub worker: usize,
    /// Which revision, by its place in the plan.
    pub revision: usize,
    pub entity: u64,
    pub state: JobState,
    pub step: u32,
    pub attempts: u32,
    pub tries: u32,
    pub due_at: Time,
    pub verifying: bool,
    pub created_at: Time,
    pub replays: u32,
}

impl Job {
    pub fn of(record: &JobRecord, plan: &SimPlan) -> Job {
        Job {
            id: record.id,
            ord: record.seq,
            worker: plan.worker(&record.worker),
            revision: plan.revision_number(&record.revision),
            entity: record.entity,
            state: record.state,
            step: record.step,
            attempts: record.attempts,
            tries: record.attempts_total,
            due_at: record.due_at,
            verifying: record.verifying,
            created_at: record.created_at,
            replays: record.replays,
        }
    }

    /// Where its next step goes.
    pub fn place(&self, plan: &SimPlan) -> SimPlace {
        let step = plan.revisions[self.revision].workers[self.worker].steps.get(self.step as usize);
        step.map_or(SimPlace::NOWHERE, |step| SimPlace { destination: Some(step.destination), order: step.order })
    }
}

/// Where a job's next step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SimPlace {
    pub destination: Option<usize>,
    pub order: LaneOrder,
}

impl SimPlace {
    pub const NOWHERE: SimPlace = SimPlace { destination: None, order: LaneOrder::Fifo };
}
