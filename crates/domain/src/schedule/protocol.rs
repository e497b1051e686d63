//! Scheduler inputs and actions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::backlog::{BacklogPage, BacklogQuery};
use super::gate::{GateChange, GateView};
use crate::call_budget::{BudgetCharge, BudgetRow, Traffic, UsageReport};
use crate::destination::GateSettings;
use crate::job::{JobId, JobState};
use crate::outcome::Failure;
use crate::record::JobRecord;
use crate::run::{RunResult, StepRoute};
use crate::settle::DestinationHealth;
use crate::time::Time;
use crate::worker::LaneOrder;

/// A live job as the scheduler sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingJob {
    pub id: JobId,
    pub worker: Arc<str>,
    /// Destination that the job calls next; empty if internal steps come first.
    pub destination: Arc<str>,
    /// Whether jobs of one entity keep their order there.
    pub order: LaneOrder,
    pub entity: u64,
    /// Not before this time of the steady clock. [`PendingJob::AT_ONCE`] for a job that the ledger has as queued or running.
    pub due: Time,
    /// The ledger has the job as running, and no run of it exists: the next run settles the interrupted attempt and makes no call.
    pub interrupted: bool,
    /// No other job shares its next call: an effect is read back, or a call that it shared was rejected.
    pub alone: bool,
    /// Replays and imports do not use the reserve of a budget.
    pub traffic: Traffic,
}

impl PendingJob {
    /// The due time of a queued job, whatever the wall clock was when it was written.
    pub const AT_ONCE: Time = Time(i64::MIN);

    /// A job as the ledger has it.
    pub fn of(job: &JobRecord) -> PendingJob {
        PendingJob::routed(job, &job.route())
    }

    /// The same with another route than the ledger has.
    pub fn routed(job: &JobRecord, route: &StepRoute) -> PendingJob {
        PendingJob {
            id: job.id,
            worker: job.worker.clone(),
            destination: route.destination.clone(),
            order: route.order,
            entity: job.entity,
            due: match job.state {
                JobState::Queued | JobState::Running => PendingJob::AT_ONCE,
                _ => job.due_at,
            },
            interrupted: job.state == JobState::Running,
            alone: job.verifying || job.failure.as_ref().is_some_and(Failure::is_of_shared_request),
            traffic: job.traffic(),
        }
    }
}

/// What a run left of its job.
#[derive(Clone, Debug, PartialEq)]
pub enum AfterRun {
    Finished,
    /// The ledger has the job so.
    Live(PendingJob),
    /// The job calls another destination next. The ledger has its old route: it was not written.
    Moved(PendingJob),
    /// The slot was used for other jobs of the group: the job is due as before.
    Released {
        /// It needs a slot of its own.
        alone: bool,
    },
}

#[derive(Clone, Debug)]
pub enum Input {
    /// The workers with their concurrency for each destination, in calls, and the destinations with their limits.
    Configured {
        workers: Vec<(Arc<str>, u32)>,
        destinations: Vec<(Arc<str>, GateSettings)>,
        /// Where one call may carry several jobs: worker, destination, and how many at the most.
        batches: Vec<(Arc<str>, Arc<str>, u32)>,
    },
    /// Every (worker, destination) that has live jobs: the answer to [`SchedulerAction::FindBacklogs`].
    BacklogsFound(Vec<(Arc<str>, Arc<str>)>),
    /// [`SchedulerAction::FindBacklogs`] failed.
    FindFailed,
    /// New durable jobs.
    Accepted(Vec<PendingJob>),
    /// New durable jobs of this worker and destination were not announced; this is the lowest id among them.
    Missed {
        worker: Arc<str>,
        destination: Arc<str>,
        first: JobId,
    },
    /// The answer to [`SchedulerAction::Load`].
    Loaded {
        query: BacklogQuery,
        page: BacklogPage<PendingJob>,
    },
    /// [`SchedulerAction::Load`] failed.
    LoadFailed {
        worker: Arc<str>,
        destination: Arc<str>,
    },
    /// Finished jobs of this worker are queued again; this is the lowest id among them.
    Requeued {
        worker: Arc<str>,
        first: JobId,
    },
    /// A waiting job is due now.
    DueNow {
        job: JobId,
        worker: Arc<str>,
    },
    /// The run of this job ends: how many calls its slot has made so far, and what the destination reported with the last one.
    Called {
        job: JobId,
        calls: u32,
        reported: Option<UsageReport>,
    },
    /// The answer to [`SchedulerAction::Charge`]: the rows of the budget and the ledger's time; `None` if it failed.
    Charged {
        destination: Arc<str>,
        answer: Option<(Vec<BudgetRow>, Time)>,
    },
    /// A run has ended and its result is durable.
    Settled {
        job: JobId,
        /// `None` if the destination was not called.
        health: Option<DestinationHealth>,
        /// Duration of the call.
        took: Option<Duration>,
        after: AfterRun,
    },
    /// A run has ended without a result, or the ledger has another state than the run assumed.
    RunLost(JobId),
    /// The answer to [`SchedulerAction::Reload`]: the job as the ledger has it, `None` if it is not live.
    Reloaded {
        job: JobId,
        found: Option<PendingJob>,
    },
    /// [`SchedulerAction::Reload`] failed.
    ReloadFailed(JobId),
    /// The route of the job is durable: the answer to [`SchedulerAction::Reroute`].
    Rerouted(JobId),
    /// [`SchedulerAction::Reroute`] failed or was refused as stale.
    RerouteFailed(JobId),
    Pause(PauseTarget),
    /// A destination that rejected the credentials before the process started: its pause is durable, its gate is new.
    PauseUnauthorized(Arc<str>),
    Resume(PauseTarget),
    /// Start and load nothing more.
    Drain,
    /// Time has passed.
    Tick,
}

impl Input {
    pub fn of_run(job: JobId, result: &RunResult) -> Input {
        match result {
            RunResult::Reload => Input::RunLost(job),
            RunResult::Released { alone, .. } => {
                Input::Settled { job, health: None, took: None, after: AfterRun::Released { alone: *alone } }
            }
            RunResult::Ended { job: record, health, took, route, settled } => {
                let after = match (record.state.is_live(), settled) {
                    (false, _) => AfterRun::Finished,
                    (true, true) => AfterRun::Live(PendingJob::routed(record, route)),
                    (true, false) => AfterRun::Moved(PendingJob::routed(record, route)),
                };
                Input::Settled { job, health: *health, took: *took, after }
            }
        }
    }
}

/// What can be paused, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PauseTarget {
    Destination(Arc<str>),
    Worker(Arc<str>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerAction {
    /// Run these jobs of one worker and destination now, with one slot: at most one call is made. Each ends with an input of its own.
    Run(Vec<JobId>),
    /// Read live jobs. Answer: [`Input::Loaded`] or [`Input::LoadFailed`].
    Load(BacklogQuery),
    /// Find every (worker, destination) that has live jobs. Answer: [`Input::BacklogsFound`] or [`Input::FindFailed`].
    FindBacklogs,
    /// Read this job again. Answer: [`Input::Reloaded`] or [`Input::ReloadFailed`].
    Reload(JobId),
    /// Write the route of this job, which only memory has. Answer: [`Input::Rerouted`] or [`Input::RerouteFailed`].
    Reroute(PendingJob),
    /// Write that this job waits for the budget of its destination until its due time, as a run that makes no call. Answer:
    /// [`Input::Settled`] or [`Input::RunLost`].
    Postpone(PendingJob),
    /// Write a charge of the budget of a destination. Answer: [`Input::Charged`].
    Charge(Arc<str>, BudgetCharge),
    /// Send [`Input::Tick`] at this time, unless another input comes first.
    WakeAt(Time),
    /// A gate changed: log and count it, and make an auth pause durable.
    Gate(Arc<str>, GateChange),
}

/// State of the scheduler for operators.
#[derive(Clone, Debug, Default)]
pub struct SchedulerView {
    pub jobs_in_memory: usize,
    /// Jobs running.
    pub in_flight: usize,
    /// By destination.
    pub gates: BTreeMap<String, GateView>,
    pub workers_paused: Vec<String>,
    /// By worker, then destination.
    pub backlogs: Vec<BacklogView>,
}

/// State of the backlog of one worker and destination.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BacklogView {
    pub worker: String,
    /// Empty for jobs whose internal steps come first.
    pub destination: String,
    pub jobs_in_memory: usize,
    pub running: u32,
    /// Whether the ledger has, or may have, due jobs that are not in memory.
    pub has_more: bool,
    /// Why no further job starts; `None` if one can start or none is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    /// When that ends, by the steady clock, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// Why a live job does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobWait {
    pub waits_for: WaitsFor,
    /// When that ends, by the steady clock, if it is known.
    pub until: Option<Time>,
    /// The job at the head of its lane, if it waits behind that one.
    pub behind: Option<JobId>,
}

/// Why no job of a worker and destination starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// The worker is paused.
    Worker,
    /// The destination is paused.
    Destination,
    /// The breaker is open, or its probe is under way.
    Breaker,
    /// The destination asked for a pause.
    RetryAfter,
    /// No calls are left in the budget of the destination, or the ledger charges them at the moment.
    Budget,
    /// The rate limit of the destination.
    Rate,
    /// A free call at the destination.
    DestinationSlot,
    /// A free slot of the worker.
    WorkerSlot,
    /// A due time, or an earlier job of the same lane.
    Due,
    /// An earlier job of the same lane.
    Lane,
    /// A load from the ledger.
    Load,
    /// The process is stopping.
    Shutdown,
}
