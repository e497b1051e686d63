//! A node: the scheduler, the queue of the writer, and everything else that a crash forgets.

use std::collections::VecDeque;

use sluice_domain::hash::Map;
use sluice_domain::job::{EffectState, JobId};
use sluice_domain::mutant::Mutant;
use sluice_domain::random::Random;
use sluice_domain::safe_mode::Modes;
use sluice_domain::schedule::{Input, Limits, Scheduler, SchedulerAction};
use sluice_domain::time::Time;
use sluice_domain::transition::{Interrupted, interrupted};
use sluice_domain::worker::LaneOrder;
use sluice_ledger::memory::{Op, Reply};
use sluice_ledger::{InterruptedEffect, JobRecord, Settlement};

use super::coverage::Fault;
use super::gates::SimSlot;
use super::job::{Job, SimPlace};
use super::operators::{OperatorAction, Stop};
use super::plan::WORKERS;
use super::run::SimRun;
use super::trace::About;
use super::world::{SimEvent, Simulation};

/// How long before what memory lost is looked for.
pub(super) const LOOK_AGAIN_MS: i64 = 500;

/// Who waits for an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    Nobody,
    Sender(u32),
    Begin(u32),
    Settle(u32),
    /// A run, for what it asks on its way.
    Inside(u32),
    Operator(OperatorAction),
}

#[derive(Debug)]
pub(super) enum Load {
    Wanted { worker: usize, after: JobId, limit: usize },
    Read { worker: usize, jobs: Vec<Job>, more: bool },
    Failed { worker: usize },
}

/// What a process holds in memory.
#[derive(Debug)]
pub(super) struct SimNode {
    /// How far its steady clock is ahead of the true time.
    pub shift: i64,
    pub scheduler: Scheduler,
    pub held: Map<JobId, (Job, SimPlace)>,
    pub queue: VecDeque<(Op, Waiter)>,
    pub committing: bool,
    pub replies: Vec<Option<(Waiter, Option<Reply>)>>,
    pub loads: Vec<Option<Load>>,
    pub runs: Vec<Option<SimRun>>,
    free_runs: Vec<u32>,
    pub free_replies: Vec<u32>,
    pub wake: Option<Time>,
    pub wake_planned: Option<i64>,
    pub actions: Vec<SchedulerAction>,
    pub safe_modes: Modes,
}

impl SimNode {
    fn new(shift: i64, now: i64, limits: Limits) -> SimNode {
        SimNode {
            shift,
            scheduler: Scheduler::with_limits(Random::seeded((now + shift) as u64), limits),
            held: Map::default(),
            queue: VecDeque::new(),
            committing: false,
            replies: Vec::new(),
            loads: Vec::new(),
            runs: Vec::new(),
            free_runs: Vec::new(),
            free_replies: Vec::new(),
            wake: None,
            wake_planned: None,
            actions: Vec::new(),
            safe_modes: Modes::default(),
        }
    }

    /// How many operations wait for the writer.
    pub fn waiting_ops(&self) -> usize {
        self.queue.len()
    }

    /// The steady clock's time.
    pub fn steady(&self, now: i64) -> Time {
        Time(now + self.shift)
    }

    pub fn take_run(&mut self, slot: u32) -> Option<SimRun> {
        let run = self.runs[slot as usize].take()?;
        self.free_runs.push(slot);
        Some(run)
    }

    pub fn keep_run(&mut self, run: SimRun) -> u32 {
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
    /// The process ends at this point, if the weather wants it.
    pub(super) fn crashes_at(&mut self, point: Fault) -> bool {
        let hit = self.weather.crash > 0.0 && self.node.is_some() && self.random.chance(self.weather.crash);
        if hit {
            self.crash(point);
        }
        hit
    }

    /// The process ends. What it had not committed is gone.
    pub(super) fn crash(&mut self, why: Fault) {
        if self.node.take().is_none() {
            return;
        }
        self.happened(why);
        self.epoch += 1;
        self.crashes += 1;
        self.crash_twin();
        let down = 500 + self.some_ms(20_000);
        self.plan_in(down, SimEvent::Boot);
    }

    /// The process starts: what was interrupted is settled first, as in a node.
    pub(super) fn boot(&mut self) {
        let limits = match self.options.seed % 3 {
            0 => Limits { window_jobs: 24, lane_jobs: 6, in_flight: 12 },
            1 => Limits { window_jobs: 200, lane_jobs: 20, in_flight: 64 },
            _ => Limits::default(),
        };
        self.node = Some(Box::new(SimNode::new(self.clock_error, self.now, limits)));
        self.trace.note(self.now, "boot", About::Nothing, u64::from(self.epoch));
        self.checker.gates.forget();
        self.check_promises();
        self.store.restarted();
        self.load_safe_modes();
        if !Mutant::RecoveryForgetsRunningJobs.is_on() && !self.recover() {
            return;
        }
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

    /// Settles every attempt that nobody saw the end of. `false` if the process ended meanwhile.
    fn recover(&mut self) -> bool {
        let mut after = JobId(0);
        loop {
            let jobs = self.store.running_jobs(after, 64);
            let Some(last) = jobs.last() else { return true };
            after = last.id;
            for job in jobs {
                if self.crashes_at(Fault::CrashInRecovery) {
                    return false;
                }
                let op = self.settle_op(Box::new(self.interrupted(&job)));
                self.apply(op, Waiter::Nobody);
            }
        }
    }

    pub(super) fn interrupted(&self, job: &JobRecord) -> Settlement {
        let Job { worker, revision, .. } = Job::of(job, &self.plan);
        let plan = &self.plan.revisions[revision].workers[worker];
        let policy = &self.plan.current().workers[worker].policy;
        // Steps that were passed over before it are not in the job's row: where the effect was begun, there it stands.
        let effect = self.store.effect_states(job.id).find(|effect| effect.state == EffectState::Intent);
        let step = effect.map_or(job.step, |effect| effect.step);
        let (now, at) = (self.node.as_ref().map_or(self.wall(), |node| node.steady(self.now)), self.wall());
        let case = Interrupted {
            effect: effect.map(|effect| effect.class),
            resend_allowed: plan.steps.get(step as usize).is_some_and(|step| step.repeat_allowed),
            policy,
            step,
            attempts: job.attempts,
            dead_letter_queue: Some(plan.dead_letter_queue),
            now,
            at,
        };
        let next = interrupted(case, &mut Random::seeded(job.id.0 as u64 ^ at.0 as u64));
        let unseen = effect.map(|effect| InterruptedEffect {
            key: effect.key,
            step: effect.step,
            step_id: effect.step_id.clone(),
            since: effect.last_at,
        });
        Settlement::interrupted(job, unseen, next, at)
    }

    /// Tells the scheduler what is in force.
    pub(super) fn configure(&mut self) {
        let revision = self.plan.current();
        let workers = revision.workers.iter().map(|worker| (worker.name.clone(), worker.concurrency)).collect();
        let destinations = self.plan.destinations.iter().cloned().zip(revision.gates.iter().cloned()).collect();
        let concurrency: [u32; WORKERS] = std::array::from_fn(|worker| revision.workers[worker].concurrency);
        self.checker.gates.configure(self.now, concurrency, &revision.gates);
        self.step(Input::Configured { workers, destinations });
    }
}

/// What a job takes up while it runs.
pub(super) fn slot(job: &Job, place: SimPlace) -> SimSlot {
    let lane = (place.order == LaneOrder::Fifo).then_some(job.entity);
    SimSlot { job: job.id, worker: job.worker, destination: place.destination, lane }
}
