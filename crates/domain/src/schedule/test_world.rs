//! A ledger and a loop around the scheduler, for its tests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::backlog::{BacklogPage, BacklogQuery};
use super::{AfterRun, Input, Limits, PendingJob, Scheduler, SchedulerAction};
use crate::destination::GateSettings;
use crate::job::JobId;
use crate::random::Random;
use crate::settle::DestinationHealth;
use crate::time::Time;
use crate::worker::LaneOrder;

pub(super) const LIMITS: Limits = Limits { jobs: 64, lane_jobs: 8, load_jobs: 16, in_flight: 32 };

pub(super) fn name(text: &str) -> Arc<str> {
    Arc::from(text)
}

/// A queued fifo job of worker `w` to `crm`.
pub(super) fn job(id: i64, entity: u64) -> PendingJob {
    PendingJob {
        id: JobId(id),
        worker: name("w"),
        destination: name("crm"),
        order: LaneOrder::Fifo,
        entity,
        due: PendingJob::AT_ONCE,
        interrupted: false,
        alone: false,
        traffic: Default::default(),
    }
}

/// The same of another worker.
pub(super) fn of(worker: &str, job: PendingJob) -> PendingJob {
    PendingJob { worker: name(worker), ..job }
}

/// The same to another destination.
pub(super) fn to(destination: &str, job: PendingJob) -> PendingJob {
    PendingJob { destination: name(destination), ..job }
}

pub(super) fn configured(concurrency: u32) -> Input {
    let gate = GateSettings { concurrency_max: 1_000, ..GateSettings::default() };
    Input::Configured {
        workers: vec![(name("w"), concurrency), (name("v"), concurrency)],
        destinations: vec![(name("crm"), gate.clone()), (name("ads"), gate)],
        batches: vec![],
    }
}

/// The same, where one call of `w` to `crm` carries so many jobs.
pub(super) fn with_batches(input: Input, max: u32) -> Input {
    let Input::Configured { workers, destinations, .. } = input else { panic!("{input:?}") };
    Input::Configured { workers, destinations, batches: vec![(name("w"), name("crm"), max)] }
}

/// The live jobs of a ledger, as [`BacklogQuery`] defines its answer.
#[derive(Debug, Default)]
pub(super) struct FakeLedger {
    pub live: BTreeMap<JobId, PendingJob>,
}

impl FakeLedger {
    fn is_deferred(job: &PendingJob, due_by: Time) -> bool {
        job.due > due_by
    }

    fn same_lane(a: &PendingJob, b: &PendingJob) -> bool {
        a.destination == b.destination && a.entity == b.entity && a.worker == b.worker
    }

    fn is_blocked(&self, job: &PendingJob, due_by: Time) -> bool {
        let mut older = self.live.range(..job.id).map(|(_, other)| other);
        job.order == LaneOrder::Fifo
            && !job.interrupted
            && older.any(|other| FakeLedger::same_lane(job, other) && FakeLedger::is_deferred(other, due_by))
    }

    pub(super) fn backlog(&self, query: &BacklogQuery) -> BacklogPage<PendingJob> {
        let of_backlog = |job: &&PendingJob| job.worker == query.worker && job.destination == query.destination;
        let mut page = BacklogPage { looked_until: query.after, ..BacklogPage::default() };
        for job in self.live.range(JobId(query.after.0 + 1)..).map(|(_, job)| job).filter(of_backlog) {
            if job.due != PendingJob::AT_ONCE {
                continue;
            }
            if page.queued.len() == query.limit {
                page.more_queued = true;
                break;
            }
            page.looked_until = job.id;
            if !self.is_blocked(job, query.due_by) {
                page.queued.push(job.clone());
            }
        }
        let timed = self.live.values().filter(of_backlog).filter(|job| job.due != PendingJob::AT_ONCE);
        let (deferred, mut due): (Vec<&PendingJob>, Vec<&PendingJob>) =
            timed.partition(|job| FakeLedger::is_deferred(job, query.due_by));
        due.retain(|job| !self.is_blocked(job, query.due_by));
        due.sort_by_key(|job| (job.due, job.id));
        page.more_due = due.len() > query.limit;
        page.due = due.into_iter().take(query.limit).cloned().collect();
        page.next_due = deferred.iter().map(|job| job.due).min();
        page
    }

    pub(super) fn backlogs(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let all = self.live.values().map(|job| (job.worker.clone(), job.destination.clone()));
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// A scheduler whose actions are performed at once; runs end when the test says so.
#[derive(Debug)]
pub(super) struct World {
    pub scheduler: Scheduler,
    pub ledger: FakeLedger,
    pub now: i64,
    pub wake: Option<Time>,
    /// Jobs that were handed out and have not ended.
    pub running: Vec<JobId>,
    /// The jobs of every call, in the order of their starts.
    pub calls: Vec<Vec<i64>>,
    pub loads: usize,
    pub most_in_memory: usize,
}

impl World {
    /// A ledger with these jobs, and a scheduler that has just started.
    pub(super) fn new(limits: Limits, concurrency: u32, jobs: Vec<PendingJob>) -> World {
        let mut world = World {
            scheduler: Scheduler::with_limits(Random::seeded(1), limits),
            ledger: FakeLedger { live: jobs.into_iter().map(|job| (job.id, job)).collect() },
            now: 0,
            wake: None,
            running: Vec::new(),
            calls: Vec::new(),
            loads: 0,
            most_in_memory: 0,
        };
        world.step(configured(concurrency));
        world
    }

    /// Performs an input and everything that follows from it. Returns the jobs that were handed out.
    pub(super) fn step(&mut self, input: Input) -> Vec<i64> {
        let mut inputs = VecDeque::from([input]);
        let mut runs = Vec::new();
        let mut steps = 0;
        while let Some(input) = inputs.pop_front() {
            let mut actions = Vec::new();
            self.scheduler.step(Time(self.now), input, &mut actions);
            self.wake = None;
            self.most_in_memory = self.most_in_memory.max(self.scheduler.view(Time(self.now)).jobs_in_memory);
            for action in actions {
                match action {
                    SchedulerAction::Run(jobs) => {
                        self.calls.push(jobs.iter().map(|id| id.0).collect());
                        runs.extend(jobs);
                    }
                    SchedulerAction::Load(query) => {
                        self.loads += 1;
                        let page = self.ledger.backlog(&query);
                        inputs.push_back(Input::Loaded { query, page });
                    }
                    SchedulerAction::FindBacklogs => {
                        inputs.push_back(Input::BacklogsFound(self.ledger.backlogs()));
                    }
                    SchedulerAction::Reload(job) => {
                        let found = self.ledger.live.get(&job).cloned();
                        inputs.push_back(Input::Reloaded { job, found });
                    }
                    SchedulerAction::Reroute(job) => {
                        let id = job.id;
                        self.ledger.live.insert(id, job);
                        inputs.push_back(Input::Rerouted(id));
                    }
                    SchedulerAction::WakeAt(at) => self.wake = Some(at),
                    SchedulerAction::Gate(..) | SchedulerAction::Charge(..) | SchedulerAction::Postpone(_) => {}
                }
            }
            steps += 1;
            assert!(steps < 10_000, "the scheduler loads without end");
        }
        self.running.extend(runs.iter().copied());
        runs.into_iter().map(|id| id.0).collect()
    }

    pub(super) fn accept(&mut self, jobs: Vec<PendingJob>) -> Vec<i64> {
        self.ledger.live.extend(jobs.iter().map(|job| (job.id, job.clone())));
        self.step(Input::Accepted(jobs))
    }

    /// Time passes until the scheduler wants to be woken, or by one millisecond.
    pub(super) fn tick(&mut self) -> Vec<i64> {
        self.now = self.wake.map_or(self.now + 1, |at| at.0.max(self.now + 1));
        self.step(Input::Tick)
    }

    pub(super) fn done(&mut self, id: i64) -> Vec<i64> {
        self.ledger.live.remove(&JobId(id));
        self.end(id, DestinationHealth::Healthy, AfterRun::Finished)
    }

    /// A run has ended and the ledger has the job so.
    pub(super) fn live(&mut self, health: DestinationHealth, job: PendingJob) -> Vec<i64> {
        self.ledger.live.insert(job.id, job.clone());
        self.end(job.id.0, health, AfterRun::Live(job))
    }

    pub(super) fn end(&mut self, id: i64, health: DestinationHealth, after: AfterRun) -> Vec<i64> {
        self.running.retain(|other| other.0 != id);
        self.step(Input::Settled { job: JobId(id), health: Some(health), took: None, after })
    }

    /// Lets running jobs succeed, and time pass, until nothing happens any more. Returns the jobs in the order of their starts.
    pub(super) fn drain(&mut self) -> Vec<i64> {
        let mut started: Vec<i64> = self.running.iter().map(|id| id.0).collect();
        loop {
            let runs = match self.running.first() {
                Some(id) => self.done(id.0),
                None if self.wake.is_some_and(|at| at < Time::NEVER) => self.tick(),
                None => return started,
            };
            started.extend(runs);
        }
    }
}
