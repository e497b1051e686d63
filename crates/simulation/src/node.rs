//! A simulated node: the scheduler, the queue of the writer, and everything else that a crash forgets.

use std::collections::VecDeque;
use std::sync::Arc;

use sluice_domain::hash::Map;
use sluice_domain::job::{JobId, Term};
use sluice_domain::ledger_clock::LedgerClock;
use sluice_domain::mutant::Mutant;
use sluice_domain::random::Random;
use sluice_domain::record::JobRecord;
use sluice_domain::run::RunResult;
use sluice_domain::safe_mode::Modes;
use sluice_domain::schedule::backlog::{BacklogPage, BacklogQuery};
use sluice_domain::schedule::{Input, Limits, Scheduler, SchedulerAction};
use sluice_domain::time::Time;
use sluice_domain::worker::{LaneOrder, Worker};
use sluice_ledger::KeepClock;

use super::coverage::Fault;
use super::gates::SimSlot;
use super::operators::{OperatorAction, Stop};
use super::ops::{SimOp, SimReply};
use super::plan::{SimPlan, WORKER_NAMES, WORKERS};
use super::run::{SimGroup, SimRun};
use super::trace::About;
use super::watching::WatchQueue;
use super::world::{SimEvent, Simulation};

/// Delay before a job is loaded again that memory has lost.
pub(super) const RELOAD_AFTER_MS: i64 = 500;

/// Who waits for a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    Nobody,
    Sender(u32),
    Run(u32),
    /// The scheduler, for the route of a job.
    Reroute(JobId),
    /// The scheduler, for the wait of a job for a budget.
    Postpone(JobId),
    /// The scheduler, for calls of the budget of this destination.
    Charge(usize),
    Operator(OperatorAction),
    Watch,
}

/// A load of jobs under way.
#[derive(Debug)]
pub(super) enum Load {
    Wanted(BacklogQuery),
    Read(BacklogQuery, BacklogPage),
    Failed(BacklogQuery),
}

/// The memory of a process.
#[derive(Debug)]
pub(super) struct SimNode {
    /// How far its steady clock is ahead of the true time.
    pub shift: i64,
    pub clock: LedgerClock,
    pub term: Term,
    pub scheduler: Scheduler,
    /// The jobs that the scheduler holds.
    pub cache: Map<JobId, JobRecord>,
    pub queue: VecDeque<(SimOp, Waiter)>,
    pub committing: bool,
    pub replies: Vec<Option<(Waiter, Result<SimReply, SimOp>)>>,
    pub loads: Vec<Option<Load>>,
    pub runs: Vec<Option<Box<SimRun>>>,
    free_runs: Vec<u32>,
    pub groups: Vec<Option<SimGroup>>,
    free_groups: Vec<u32>,
    pub free_replies: Vec<u32>,
    pub wake: Option<Time>,
    pub wake_planned: Option<i64>,
    pub actions: Vec<SchedulerAction>,
    /// Ends of the runs that only write a wait for a budget.
    pub postponed: Map<JobId, RunResult>,
    pub safe_modes: Modes,
    /// Writes of the last look that wait.
    pub watching: WatchQueue,
    pub is_watch_waiting: bool,
}

impl SimNode {
    fn new(clock: LedgerClock, now: i64, term: Term, limits: Limits) -> SimNode {
        let shift = clock.record().scheduled.0 - now;
        SimNode {
            shift,
            clock,
            term,
            scheduler: Scheduler::with_limits(Random::seeded((now + shift) as u64), limits),
            cache: Map::default(),
            queue: VecDeque::new(),
            committing: false,
            replies: Vec::new(),
            loads: Vec::new(),
            runs: Vec::new(),
            free_runs: Vec::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            free_replies: Vec::new(),
            wake: None,
            wake_planned: None,
            actions: Vec::new(),
            postponed: Map::default(),
            safe_modes: Modes::default(),
            watching: WatchQueue::new(),
            is_watch_waiting: false,
        }
    }

    /// How many writes wait.
    pub(crate) fn waiting_ops(&self) -> usize {
        self.queue.len()
    }

    /// The time of the steady clock.
    pub(crate) fn steady(&self, now: i64) -> Time {
        Time(now + self.shift)
    }

    pub(crate) fn take_run(&mut self, slot: u32) -> Option<Box<SimRun>> {
        let run = self.runs[slot as usize].take()?;
        self.free_runs.push(slot);
        Some(run)
    }

    /// Place of a new group.
    pub(crate) fn new_group(&mut self) -> u32 {
        self.free_groups.pop().unwrap_or_else(|| {
            self.groups.push(None);
            (self.groups.len() - 1) as u32
        })
    }

    /// The scheduler knows the ends of all runs of a group.
    pub(crate) fn free_group(&mut self, group: u32) {
        self.groups[group as usize] = None;
        self.free_groups.push(group);
    }

    pub(crate) fn keep_run(&mut self, run: Box<SimRun>) -> u32 {
        match self.free_runs.pop() {
            Some(slot) => {
                self.runs[slot as usize] = Some(run);
                slot
            }
            None => {
                self.runs.push(Some(run));
                (self.runs.len() - 1) as u32
            }
        }
    }
}

impl Simulation {
    /// The process ends at this point with the rate of crashes.
    pub(super) fn crashes_at(&mut self, point: Fault) -> bool {
        let hit = self.rates.crash > 0.0 && self.node.is_some() && self.random.chance(self.rates.crash);
        if hit {
            self.crash(point);
        }
        hit
    }

    /// The process ends. What it had not committed is gone.
    pub(super) fn crash(&mut self, why: Fault) {
        let Some(node) = self.node.take() else { return };
        self.keep_late_write(*node);
        self.happened(why);
        self.epoch += 1;
        self.crashes += 1;
        self.crash_shadow();
        if self.random.chance(0.2) {
            self.reboot();
        }
        let down = 500 + self.some_ms(20_000);
        self.plan_in(down, SimEvent::Boot);
    }

    /// Stores the ledger's clock.
    pub(super) fn keep_clock(&mut self) {
        let Some(record) = self.node.as_ref().map(|node| node.clock.record()) else { return };
        self.submit(SimOp::KeepClock(KeepClock { record, confirmed: None }), Waiter::Nobody);
    }

    /// A write that the process had submitted may reach the store after another process owns the jobs.
    fn keep_late_write(&mut self, node: SimNode) {
        let settlement = node.queue.into_iter().map(|(op, _)| op).find(|op| matches!(op, SimOp::Settle(_)));
        if let Some(op) = settlement.filter(|_| self.random.chance(0.5)) {
            self.late_writes.push(Some(op));
            let (index, ms) = ((self.late_writes.len() - 1) as u32, 20_000 + self.some_ms(60_000));
            self.plan_in(ms, SimEvent::LateWrite { index });
        }
    }

    /// The late write arrives.
    pub(super) fn late_write(&mut self, index: u32) {
        if let Some(op) = self.late_writes[index as usize].take() {
            self.happened(Fault::LateWrite);
            self.apply(op, Waiter::Nobody);
        }
    }

    /// The process starts.
    pub(super) fn boot(&mut self) {
        let limits = sim_limits(self.options.seed);
        let term = self.store.reopen();
        let clock = LedgerClock::start(self.store.clock(), self.observation());
        // What the last process had not stored may be counted again.
        self.last_ledger_time = clock.reading().time;
        self.node = Some(Box::new(SimNode::new(clock, self.now, term, limits)));
        self.keep_clock();
        self.trace.note(self.now, "boot", About::Nothing, u64::from(self.epoch));
        self.checker.gates.forget();
        self.check_promises();
        self.load_safe_modes();
        if !Mutant::PauseForgottenByRestart.is_on() {
            for pause in self.store.pauses() {
                if let Some(stop) = Stop::parse(&pause.target, &self.plan) {
                    self.step(Input::Pause(stop.target(&self.plan)));
                }
            }
        }
        self.note_pauses();
        self.configure();
    }

    fn note_pauses(&mut self) {
        for pause in self.store.pauses() {
            match Stop::parse(&pause.target, &self.plan) {
                Some(Stop::Destination(destination)) => self.checker.gates.pause_destination(destination, true),
                Some(Stop::Worker(worker)) => self.checker.gates.pause_worker(worker, true),
                None => {}
            }
        }
    }

    /// Gives the active configuration to the scheduler.
    pub(super) fn configure(&mut self) {
        let revision = self.plan.active();
        let concurrency: [u32; WORKERS] = std::array::from_fn(|worker| revision.worker(worker).concurrency);
        let workers = WORKER_NAMES.iter().zip(concurrency).map(|(name, most)| (Arc::from(*name), most)).collect();
        let destinations = self.plan.destinations.iter().cloned().zip(revision.gates.iter().cloned()).collect();
        let worker_batches = |worker: &Arc<Worker>| {
            let name: Arc<str> = Arc::from(worker.name.as_str());
            let batches = worker.batches().map(move |(to, max)| (name.clone(), to.clone(), max));
            batches.collect::<Vec<_>>()
        };
        let batches = (0..WORKERS).flat_map(|worker| worker_batches(revision.worker(worker))).collect();
        self.checker.gates.configure(self.now, concurrency, &revision.gates);
        self.step(Input::Configured { workers, destinations, batches });
    }
}

/// Small windows in most runs, so that jobs are evicted and loaded all the time.
fn sim_limits(seed: u64) -> Limits {
    match seed % 3 {
        0 => Limits { jobs: 24, lane_jobs: 6, load_jobs: 8, in_flight: 12 },
        1 => Limits { jobs: 200, lane_jobs: 20, load_jobs: 50, in_flight: 64 },
        _ => Limits::default(),
    }
}

/// What a job occupies while it runs.
pub(super) fn slot_of(job: &JobRecord, plan: &SimPlan) -> SimSlot {
    let lane = (job.order == LaneOrder::Fifo).then_some(job.entity);
    SimSlot {
        job: job.id,
        worker: SimPlan::worker_index(&job.worker),
        destination: plan.destination_index(&job.destination),
        lane,
    }
}
