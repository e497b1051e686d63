//! People: they pause, resume, replay, drop, decide and change the configuration, at any moment.

use std::sync::Arc;

use sluice_domain::approval::{ApprovalId, Choice};
use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::mutant::Mutant;
use sluice_domain::safe_mode::Modes;
use sluice_domain::schedule::{Input, PauseTarget};
use sluice_domain::time::Time;
use sluice_domain::transition::JobUpdate;
use sluice_ledger::memory::{Op, Reply};
use sluice_ledger::{
    DecideApproval, DropJobs, EffectSettlement, GuardOp, GuardReply, Prune, Replay, Resolution, Resolve, SetSafeMode,
    Settlement,
};

use super::coverage::Fault;
use super::node::Waiter;
use super::plan::{DESTINATIONS, SimPlan, WORKERS};
use super::trace::About;
use super::world::{SimEvent, Simulation};

/// How long finished events are kept: longer than any destination remembers a key.
const KEEP_MS: i64 = 6 * 3_600_000;

/// What can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Destination(usize),
    Worker(usize),
}

impl Stop {
    fn name(self, plan: &SimPlan) -> String {
        match self {
            Stop::Destination(at) => format!("destination:{}", plan.destinations[at]),
            Stop::Worker(at) => format!("worker:{}", plan.current().workers[at].name),
        }
    }

    pub fn parse(text: &str, plan: &SimPlan) -> Option<Stop> {
        let (kind, name) = text.split_once(':')?;
        match kind {
            "destination" => plan.destinations.iter().position(|other| **other == *name).map(Stop::Destination),
            _ => plan.current().workers.iter().position(|other| *other.name == *name).map(Stop::Worker),
        }
    }

    pub fn target(self, plan: &SimPlan) -> PauseTarget {
        match self {
            Stop::Destination(at) => PauseTarget::Destination(plan.destinations[at].clone()),
            Stop::Worker(at) => PauseTarget::Worker(plan.current().workers[at].name.clone()),
        }
    }
}

/// What somebody does.
#[derive(Clone, Copy, Debug)]
pub(super) enum OperatorAction {
    Pause(Stop),
    /// The gate has closed by itself; that is only written down.
    NotePause(usize),
    Resume(Stop),
    Replay {
        newest: bool,
    },
    Drop,
    Resolve {
        happened: bool,
    },
    Prune,
    Decide {
        id: ApprovalId,
        choice: Choice,
    },
    SafeMode {
        worker: Option<usize>,
        until: Option<Time>,
    },
}

impl Simulation {
    /// About every quarter of a minute somebody does something.
    pub(super) fn operate(&mut self) {
        if self.is_healing() {
            return;
        }
        let next = 5_000 + self.some_ms(25_000);
        self.plan_in(next, SimEvent::Operator);
        if !self.weather.operators {
            return;
        }
        match self.random.below(16) {
            12..=13 => self.answer_a_question(),
            14 => self.turn_safe_mode(),
            0 => {
                let stop = self.some_stop();
                self.act(OperatorAction::Pause(stop), vec![]);
            }
            1..=3 => {
                let paused = self.store.pauses();
                let some = self.random.below(paused.len().max(1) as u64) as usize;
                if let Some(stop) = paused.get(some).and_then(|pause| Stop::parse(&pause.target, &self.plan)) {
                    self.act(OperatorAction::Resume(stop), vec![]);
                }
            }
            4..=6 => {
                let newest = self.random.chance(0.4);
                let jobs = self.some_jobs(&[JobState::Succeeded, JobState::Noop, JobState::Dead]);
                self.act(OperatorAction::Replay { newest }, jobs);
            }
            7 => {
                let jobs = self.some_jobs(&[JobState::Dead, JobState::Unknown]);
                self.act(OperatorAction::Drop, jobs);
            }
            8..=9 => {
                for job in self.some_jobs(&[JobState::Unknown]) {
                    let happened = self.has_happened(job);
                    self.act(OperatorAction::Resolve { happened }, vec![job]);
                }
            }
            10 => {
                let mut random = self.random.clone();
                self.plan.revise(&mut random);
                self.random = random;
                self.happened(Fault::Reconfigure);
                self.configure();
            }
            _ => {}
        }
    }

    fn some_stop(&mut self) -> Stop {
        match self.random.below((DESTINATIONS + WORKERS) as u64) as usize {
            at if at < DESTINATIONS => Stop::Destination(at),
            at => Stop::Worker(at - DESTINATIONS),
        }
    }

    /// A few jobs in one of these states.
    fn some_jobs(&mut self, states: &[JobState]) -> Vec<JobId> {
        let last = self.store.last_job().0 as u64;
        let mut jobs: Vec<JobId> = (0..24).map(|_| JobId(1 + self.random.below(last.max(1)) as i64)).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs.retain(|id| self.store.job(*id).is_some_and(|job| states.contains(&job.state)));
        jobs
    }

    /// What a person finds who looks at the destination for what the job is parked for: the last of what nobody knows.
    fn has_happened(&mut self, id: JobId) -> bool {
        let Some(job) = self.store.job(id) else { return false };
        let id = job.id;
        let unknown = self.store.effect_states(id).filter(|effect| effect.state == EffectState::Unknown);
        let identity = unknown
            .max_by_key(|effect| effect.n)
            .and_then(|effect| self.plan.effect_identity(effect.step_id))
            .unwrap_or(0);
        self.checker.job(id).effects[identity].shown > 0
    }

    /// Submits an act. The scheduler hears of it once it is durable.
    pub(super) fn act(&mut self, act: OperatorAction, jobs: Vec<JobId>) {
        let at = self.wall();
        let (actor, reason) = (String::from("ann"), String::new());
        let op = match act {
            OperatorAction::Pause(stop) => Op::Pause { target: stop.name(&self.plan), actor, reason, at },
            OperatorAction::NotePause(destination) => {
                Op::Pause { target: Stop::Destination(destination).name(&self.plan), actor, reason, at }
            }
            OperatorAction::Resume(stop) => Op::Resume { target: stop.name(&self.plan), actor, at },
            OperatorAction::Replay { newest } => {
                let revision = newest.then(|| self.plan.current().name.clone());
                Op::Replay(Replay { jobs, actor, reason, revision, at })
            }
            OperatorAction::Drop => Op::Drop(DropJobs { jobs, actor, reason, at }),
            OperatorAction::Resolve { happened } => {
                let Some(job) = jobs.first().copied() else { return };
                let verdict = if happened { Resolution::Happened } else { Resolution::NotHappened };
                Op::Resolve(Resolve { job, resolution: verdict, actor, reason, at })
            }
            OperatorAction::Decide { id, choice } => {
                Op::Guard(GuardOp::Decide(DecideApproval { ids: vec![id], choice, actor, reason, at }))
            }
            OperatorAction::SafeMode { worker, until } => {
                let worker = worker.map(|worker| self.plan.current().workers[worker].name.to_string());
                Op::Guard(GuardOp::SafeMode(SetSafeMode { worker, until, actor, reason, at }))
            }
            OperatorAction::Prune => {
                let before = Time(at.0 - KEEP_MS);
                Op::Prune(Prune { bodies_before: before, events_before: before, rows_max: 200, at })
            }
        };
        self.submit(op, Waiter::Operator(act));
    }

    /// Somebody answers a question, perhaps one that was answered before.
    fn answer_a_question(&mut self) {
        let asked = self.store.questions().len();
        let some = self.random.below(asked.max(1) as u64) as usize;
        let newest = asked.saturating_sub(1 + some.min(6));
        let choice = if self.random.chance(0.6) { Choice::Approve } else { Choice::Reject };
        if let Some(id) = self.store.questions().get(newest).map(|asked| asked.id) {
            self.act(OperatorAction::Decide { id, choice }, vec![]);
        }
    }

    /// Safe mode begins or ends, for a worker or for all.
    fn turn_safe_mode(&mut self) {
        let worker = self.random.chance(0.7).then(|| self.random.below(WORKERS as u64) as usize);
        let until = self.random.chance(0.6).then(|| Time(self.wall().0 + 1_000 + self.some_ms(300_000)));
        self.act(OperatorAction::SafeMode { worker, until }, vec![]);
    }

    /// What a process that starts finds in the ledger.
    pub(super) fn load_safe_modes(&mut self) {
        let mut modes = Modes::default();
        for record in self.store.safe_modes() {
            match record.worker {
                Some(worker) => drop(modes.workers.insert(worker, record.until)),
                None => modes.all = Some(record.until),
            }
        }
        if let Some(node) = self.node.as_mut().filter(|_| !Mutant::SafeModeForgottenByRestart.is_on()) {
            node.safe_modes = modes.clone();
        }
        self.checker.guards.safe_modes = modes;
    }

    fn safe_mode_set(&mut self, worker: Option<usize>, until: Option<Time>) {
        let name = worker.map(|worker| self.plan.current().workers[worker].name.to_string());
        let known = self.node.as_mut().map(|node| &mut node.safe_modes);
        for modes in known.into_iter().chain([&mut self.checker.guards.safe_modes]) {
            match (&name, until) {
                (None, until) => modes.all = until,
                (Some(name), Some(until)) => drop(modes.workers.insert(name.clone(), until)),
                (Some(name), None) => drop(modes.workers.remove(name)),
            }
        }
    }

    /// An act is durable.
    pub(super) fn acted(&mut self, act: OperatorAction, reply: Option<Reply>) {
        let Some(reply) = reply else { return };
        self.trace.note(self.now, "act", About::Nothing, 0);
        match (act, reply) {
            (OperatorAction::Pause(stop), _) => {
                self.happened(Fault::Pause);
                self.set_paused(stop, true);
                self.step(Input::Pause(self.target(stop)));
            }
            (OperatorAction::Resume(stop), _) => {
                self.happened(Fault::Resume);
                if let Stop::Destination(at) = stop {
                    // Nobody resumes a destination without mending its credentials.
                    self.destinations.0[at].unauthorized = false;
                }
                self.set_paused(stop, false);
                self.step(Input::Resume(self.target(stop)));
            }
            (OperatorAction::Replay { newest }, Reply::Jobs(jobs)) => {
                for _ in &jobs {
                    self.coverage.fault(if newest { Fault::ReplayNewest } else { Fault::Replay });
                }
                self.revived(jobs);
            }
            (OperatorAction::Resolve { happened }, Reply::Jobs(jobs)) => {
                for _ in &jobs {
                    self.coverage.fault(if happened { Fault::ResolveHappened } else { Fault::ResolveDidNotHappen });
                }
                self.revived(jobs);
            }
            (OperatorAction::Drop, Reply::Jobs(jobs)) => jobs.iter().for_each(|_| self.coverage.fault(Fault::Drop)),
            (OperatorAction::Decide { .. }, Reply::Guard(GuardReply::Decided(decided))) => {
                self.answered_by_person(decided)
            }
            (OperatorAction::SafeMode { worker, until }, _) => {
                self.happened(if until.is_some() { Fault::SafeModeOn } else { Fault::SafeModeOff });
                self.safe_mode_set(worker, until);
            }
            (OperatorAction::Prune, Reply::Pruned { rows, .. }) if rows > 0 => self.happened(Fault::Prune),
            _ => {}
        }
    }

    fn set_paused(&mut self, stop: Stop, paused: bool) {
        match stop {
            Stop::Destination(at) => self.checker.gates.pause_destination(at, paused),
            Stop::Worker(at) => self.checker.gates.pause_worker(at, paused),
        }
    }

    fn revived(&mut self, jobs: Vec<(JobId, Arc<str>)>) {
        let mut firsts = std::collections::BTreeMap::<Arc<str>, JobId>::new();
        for (id, worker) in jobs {
            firsts.entry(worker).and_modify(|first| *first = (*first).min(id)).or_insert(id);
        }
        for (worker, first) in firsts {
            self.step(Input::Requeued { worker, first });
        }
        self.step(Input::Tick);
    }

    /// Upkeep comes by.
    pub(super) fn prune(&mut self) {
        if self.is_healing() {
            return;
        }
        self.plan_in(600_000, SimEvent::Upkeep);
        self.act(OperatorAction::Prune, vec![]);
    }

    /// Somebody mends everything; again after each start until nothing is paused.
    pub(super) fn resume_everything(&mut self) {
        if self.node.is_none() {
            // Once the node is back.
            self.plan_in(30_000, SimEvent::Heal);
            return;
        }
        for pause in self.store.pauses() {
            if let Some(stop) = Stop::parse(&pause.target, &self.plan) {
                self.act(OperatorAction::Resume(stop), vec![]);
            }
        }
        let open = (0..DESTINATIONS).map(Stop::Destination).chain((0..WORKERS).map(Stop::Worker));
        for stop in open {
            self.act(OperatorAction::Resume(stop), vec![]);
        }
    }

    /// An answer that comes after the attempt was given up. A node does not listen any more.
    pub(super) fn plan_late_answer(&mut self, job: JobId, n: u32, step: u32, after_ms: i64) {
        if Mutant::LateResponseAccepted.is_on() {
            let epoch = self.epoch;
            self.plan_in(after_ms, SimEvent::LateAnswer { epoch, job: job.0, n, step });
        }
    }

    pub(super) fn late_answer(&mut self, job: i64, n: u32, step: u32) {
        let at = self.wall();
        let Some(key) =
            self.store.effect_states(JobId(job)).find(|effect| effect.step == step).map(|effect| effect.key)
        else {
            return;
        };
        let (state, result) = (EffectState::Applied, None);
        let effect = EffectSettlement { key, step, state, result, absent_reads: 0, reads: 0 };
        let next = JobUpdate {
            state: JobState::Succeeded,
            step: step + 1,
            attempts: 0,
            due_at: at,
            verifying: false,
            failure: None,
            dead_letter_queue: None,
            result: None,
        };
        let settlement = Settlement { job: JobId(job), n, effect: Some(effect), attempt: None, next, at };
        self.submit(Op::Settle(Box::new(settlement)), Waiter::Nobody);
    }
}
