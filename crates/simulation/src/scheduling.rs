//! The thin loop around the scheduler: performs what it decides and tells it what came of it, as a node's does.

use std::sync::Arc;

use sluice_domain::job::JobState;
use sluice_domain::mutant::Mutant;
use sluice_domain::schedule::gate::GateChange;
use sluice_domain::schedule::{Input, PauseTarget, PendingJob, SchedulerAction};

use super::coverage::Fault;
use super::job::{Job, SimPlace};
use super::node::{LOOK_AGAIN_MS, Load};
use super::operators::{OperatorAction, Stop};
use super::run::End;
use super::trace::About;
use super::world::{SimEvent, Simulation};

impl Simulation {
    /// Jobs have become durable: the scheduler hears of them.
    pub(super) fn announce(&mut self, ords: &[i64]) {
        if ords.is_empty() {
            return;
        }
        let mut jobs = Vec::with_capacity(ords.len() * 2);
        for ord in ords {
            jobs.extend(self.store.jobs_of(*ord).map(|job| Job::of(job, &self.plan)));
        }
        let Some(node) = &self.node else { return };
        jobs.retain(|job| !node.scheduler.defers_new(&self.plan.current().workers[job.worker].name));
        if !jobs.is_empty() {
            self.offer(jobs, Input::Accepted);
        }
    }

    /// Puts jobs before the scheduler; memory keeps the records of those that it takes.
    fn offer(&mut self, jobs: Vec<Job>, input: impl FnOnce(Vec<PendingJob>) -> Input) {
        let pending = jobs.iter().map(|job| self.pending(job, job.place(&self.plan))).collect();
        let Some(node) = &mut self.node else { return };
        for job in &jobs {
            node.held.entry(job.id).or_insert((*job, job.place(&self.plan)));
        }
        self.step(input(pending));
        let Some(node) = &mut self.node else { return };
        self.trace.say(self.now, About::Nothing, || {
            let held = jobs.iter().map(|job| job.id).filter(|id| node.scheduler.holds(*id));
            format!("held {:?}", held.collect::<Vec<_>>())
        });
        for job in jobs {
            if !node.scheduler.holds(job.id) {
                node.held.remove(&job.id);
            }
        }
    }

    fn pending(&self, job: &Job, place: SimPlace) -> PendingJob {
        let destination = place.destination.map_or_else(|| Arc::from(""), |at| self.plan.destinations[at].clone());
        PendingJob {
            id: job.id,
            worker: self.plan.current().workers[job.worker].name.clone(),
            destination,
            order: place.order,
            entity: job.entity,
            due: PendingJob::due(job.state, job.due_at),
        }
    }

    /// Lets the scheduler decide, and performs what it says.
    pub(super) fn step(&mut self, input: Input) {
        let Some(node) = &mut self.node else { return };
        let now = node.steady(self.now);
        let mut actions = std::mem::take(&mut node.actions);
        self.trace.say(self.now, About::Nothing, || match &input {
            Input::Accepted(jobs) => format!("Accepted {:?}", jobs.iter().map(|job| job.id).collect::<Vec<_>>()),
            Input::Loaded { worker, jobs, more } => {
                format!("Loaded {worker} {:?} {more}", jobs.iter().map(|job| job.id).collect::<Vec<_>>())
            }
            other => format!("{other:?}"),
        });
        node.scheduler.step(now, input, &mut actions);
        node.wake = None;
        for action in actions.drain(..) {
            self.act_on(action);
        }
        let Some(node) = &mut self.node else { return };
        node.actions = actions;
        if let Some(wake) = node.wake {
            let at = (wake.0.saturating_sub(node.shift)).max(self.now);
            if node.wake_planned.is_none_or(|planned| at < planned) {
                node.wake_planned = Some(at);
                let (epoch, ms) = (self.epoch, at - self.now);
                self.plan_in(ms, SimEvent::Wake { epoch });
            }
        }
    }

    fn act_on(&mut self, action: SchedulerAction) {
        let epoch = self.epoch;
        self.trace.say(self.now, About::Nothing, || format!("{action:?}"));
        match action {
            SchedulerAction::Run(id) => self.start_run(id),
            SchedulerAction::Load { worker, after, limit } => {
                let worker = self.plan.worker(&worker);
                let ms = 1 + self.some_ms(20);
                let Some(node) = &mut self.node else { return };
                node.loads.push(Some(Load::Wanted { worker, after, limit }));
                let slot = (node.loads.len() - 1) as u32;
                self.plan_in(ms, SimEvent::Load { epoch, slot });
            }
            SchedulerAction::WakeAt(at) => {
                if let Some(node) = &mut self.node {
                    node.wake = Some(at);
                }
            }
            SchedulerAction::Gate(name, change) => self.gate_changed(&name, &change),
        }
    }

    fn gate_changed(&mut self, name: &Arc<str>, change: &GateChange) {
        let Some(destination) = self.plan.destinations.iter().position(|other| other == name) else { return };
        let kind = match change {
            GateChange::Opened(_) => 0,
            GateChange::HalfOpen => 1,
            GateChange::Closed => 2,
            GateChange::AuthPaused => 3,
        };
        self.coverage.gate(kind);
        self.trace.note(self.now, super::coverage::GATE_CHANGES[kind], About::Nothing, destination as u64);
        let shift = self.node.as_ref().map_or(0, |node| node.shift);
        self.checker.gates.changed(destination, change, shift);
        if kind == 3 {
            self.act(OperatorAction::NotePause(destination), vec![]);
            if self.is_healing() {
                // A call from before the credentials were mended: whoever mended them looks once more.
                self.plan_in(30_000, SimEvent::Heal);
            }
        }
    }

    /// Time has passed for the scheduler.
    pub(super) fn wake(&mut self) {
        let Some(node) = &mut self.node else { return };
        node.wake_planned = None;
        self.step(Input::Tick);
    }

    /// Live jobs are read.
    pub(super) fn load(&mut self, slot: u32) {
        let epoch = self.epoch;
        let Some(Load::Wanted { worker, after, limit }) =
            self.node.as_mut().and_then(|node| node.loads[slot as usize].take())
        else {
            return;
        };
        let fails = self.random.chance(self.rates.load_fails);
        let (load, ms) = if fails {
            self.happened(Fault::ReadFails);
            (Load::Failed { worker }, LOOK_AGAIN_MS)
        } else {
            let live = self.store.live_jobs(&self.plan.current().workers[worker].name, after, limit);
            let mut jobs: Vec<Job> = live.map(|job| Job::of(job, &self.plan)).collect();
            if Mutant::VerificationForgottenByRestart.is_on() {
                jobs.iter_mut().for_each(|job| job.verifying = false);
            }
            let more = jobs.len() >= limit;
            (Load::Read { worker, jobs, more }, 1 + self.some_ms(20))
        };
        if let Some(node) = &mut self.node {
            node.loads[slot as usize] = Some(load);
        }
        self.plan_in(ms, SimEvent::Loaded { epoch, slot });
    }

    /// The scheduler hears of what was read.
    pub(super) fn loaded(&mut self, slot: u32) {
        match self.node.as_mut().and_then(|node| node.loads[slot as usize].take()) {
            Some(Load::Read { worker, jobs, more }) => {
                let worker = self.plan.current().workers[worker].name.clone();
                self.offer(jobs, |jobs| Input::Loaded { worker, jobs, more });
            }
            Some(Load::Failed { worker }) => {
                let worker = self.plan.current().workers[worker].name.clone();
                self.step(Input::LoadFailed(worker));
            }
            _ => {}
        }
    }

    /// The scheduler hears that a run has ended.
    pub(super) fn finished(&mut self, slot: u32) {
        let Some(run) = self.node.as_mut().and_then(|node| node.take_run(slot)) else { return };
        let id = run.job.id;
        let Some(end) = run.end else {
            // Memory does not know how it ended: the job keeps its slot and its lane, and is read anew in a moment.
            let epoch = self.epoch;
            if let Some(node) = &mut self.node {
                let run = node.keep_run(run);
                self.plan_in(LOOK_AGAIN_MS, SimEvent::LookAgain { epoch, run });
            }
            return;
        };
        self.checker.gates.ended(self.now, run.slot, run.asked_ms, run.unauthorized);
        let place = end.place.or(Some(SimPlace::NOWHERE)).filter(|_| run.job.state.is_live());
        let again = place.map(|place| self.pending(&run.job, place));
        if let Some(node) = &mut self.node {
            match place {
                Some(place) => drop(node.held.insert(id, (run.job, place))),
                None => drop(node.held.remove(&id)),
            }
        }
        self.step(Input::Settled { job: id, verdict: end.verdict, again });
        if let Some(node) = &mut self.node
            && !node.scheduler.holds(id)
        {
            node.held.remove(&id);
        }
    }

    /// What the ledger knows of a job takes the place of what memory lost.
    pub(super) fn look_again(&mut self, slot: u32) {
        let Some(mut run) = self.node.as_mut().and_then(|node| node.take_run(slot)) else { return };
        // What the destination said is lost with the run.
        (run.asked_ms, run.unauthorized) = (None, false);
        match self.store.job(run.job.id).cloned() {
            Some(job) if job.state == JobState::Running => self.settle_interrupted(run, &job),
            Some(job) => {
                run.job = Job::of(&job, &self.plan);
                run.end = Some(End { verdict: None, place: Some(run.job.place(&self.plan)) });
                self.plan_finished(run);
            }
            None => {}
        }
    }

    /// What the plan calls a destination or a worker, for the scheduler.
    pub(super) fn target(&self, stop: Stop) -> PauseTarget {
        stop.target(&self.plan)
    }
}
