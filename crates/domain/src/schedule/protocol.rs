//! What the scheduler is told, and what it says.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::gate::{GateChange, GateView};
use crate::destination::GateSettings;
use crate::job::{JobId, JobState};
use crate::settle::DestinationHealth;
use crate::time::Time;
use crate::worker::LaneOrder;

/// A job as the scheduler sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingJob {
    /// Which.
    pub id: JobId,
    /// Whose.
    pub worker: Arc<str>,
    /// Where its next outward step goes.
    pub destination: Arc<str>,
    /// Whether it keeps its place among the jobs of its entity.
    pub order: LaneOrder,
    /// Who or what it is about.
    pub entity: u64,
    /// Not before.
    pub due: Time,
}

impl PendingJob {
    /// When a job in this state may run. One that has not failed is due at once, whatever the wall clock said when it was
    /// written.
    pub fn due(state: JobState, due_at: Time) -> Time {
        if state == JobState::Queued { Time(i64::MIN) } else { due_at }
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// These are the workers (with their concurrency) and the destinations (with their limits) from now on.
    Configured {
        /// Name and jobs in flight at once.
        workers: Vec<(Arc<str>, u32)>,
        /// Name and limits.
        destinations: Vec<(Arc<str>, GateSettings)>,
    },
    /// Jobs that have just been accepted, durably.
    Accepted(Vec<PendingJob>),
    /// What a [`Action::Load`] brought.
    Loaded {
        /// Whose.
        worker: Arc<str>,
        /// In ascending order of their ids.
        jobs: Vec<PendingJob>,
        /// Whether the ledger had more than was asked for.
        more: bool,
    },
    /// A [`Action::Load`] could not be carried out.
    LoadFailed(Arc<str>),
    /// Jobs of this worker came back to life, the first of them being this one.
    Requeued {
        /// Whose.
        worker: Arc<str>,
        /// The lowest id among them.
        first: JobId,
    },
    /// A job that waited is due now.
    DueNow {
        /// Which.
        job: JobId,
        /// Whose.
        worker: Arc<str>,
    },
    /// A job's run has ended and what came of it is durable.
    Settled {
        /// Which.
        job: JobId,
        /// What was learned of the destination; `None` if it was not asked.
        verdict: Option<DestinationHealth>,
        /// The job again, if it is not finished.
        again: Option<PendingJob>,
    },
    /// A destination is closed by an operator.
    Pause(PauseTarget),
    /// A destination is open again.
    Resume(PauseTarget),
    /// Start nothing more.
    Drain,
    /// Time has passed.
    Tick,
}

/// What can be paused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PauseTarget {
    /// A destination, by name.
    Destination(Arc<str>),
    /// A worker, by name.
    Worker(Arc<str>),
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerAction {
    /// Run this job now. A slot of its worker and its destination is taken.
    Run(JobId),
    /// Read live jobs of this worker from the ledger.
    Load {
        /// Whose.
        worker: Arc<str>,
        /// Beyond this id.
        after: JobId,
        /// This many.
        limit: usize,
    },
    /// Come back at this moment with a [`Input::Tick`], if nothing happens before.
    WakeAt(Time),
    /// A gate changed: log it, count it, remember an auth pause.
    Gate(Arc<str>, GateChange),
}

/// What a person sees of the scheduler.
#[derive(Clone, Debug, Default)]
pub struct SchedulerView {
    /// Jobs in memory.
    pub jobs_in_memory: usize,
    /// Jobs running.
    pub in_flight: usize,
    /// Gates by destination.
    pub gates: BTreeMap<String, GateView>,
    /// Paused workers.
    pub workers_paused: Vec<String>,
}
