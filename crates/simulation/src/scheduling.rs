//! The loop around the scheduler of a simulated node: performs its actions and reports their results, as in production.

use std::sync::Arc;

use sluice_domain::job::JobId;
use sluice_domain::mutant::Mutant;
use sluice_domain::record::JobRecord;
use sluice_domain::run::{RunResult, StepRoute, reroute};
use sluice_domain::schedule::gate::GateChange;
use sluice_domain::schedule::{Input, PendingJob, SchedulerAction};

use super::coverage::{Fault, GATE_CHANGES};
use super::gates::SimSlot;
use super::node::{Load, RELOAD_AFTER_MS, Waiter};
use super::operators::{OperatorAction, Stop};
use super::ops::SimOp;
use super::trace::About;
use super::world::{SimEvent, Simulation};

impl Simulation {
    /// New jobs are durable: they are announced to the scheduler.
    pub(super) fn announce(&mut self, events: &[i64]) {
        if events.is_empty() || self.node.is_none() {
            return;
        }
        let jobs: Vec<JobRecord> =
            events.iter().flat_map(|seq| self.store.jobs_of(*seq)).filter(|job| job.state.is_live()).cloned().collect();
        let pending = jobs.iter().map(PendingJob::of).collect();
        self.offer(jobs, Input::Accepted(pending));
    }

    /// Gives jobs to the scheduler; memory keeps the records of those that it takes.
    fn offer(&mut self, jobs: Vec<JobRecord>, input: Input) {
        let Some(node) = &mut self.node else { return };
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        for job in jobs {
            // A job that left memory may have changed since.
            if !node.scheduler.holds(job.id) {
                node.cache.insert(job.id, job);
            }
        }
        self.step(input);
        let Some(node) = &mut self.node else { return };
        for id in ids {
            if !node.scheduler.holds(id) {
                node.cache.remove(&id);
            }
        }
    }

    /// Lets the scheduler decide, and performs its actions.
    pub(super) fn step(&mut self, input: Input) {
        let Some(node) = &mut self.node else { return };
        let now = node.steady(self.now);
        let mut actions = std::mem::take(&mut node.actions);
        self.trace.say(self.now, About::Nothing, || format!("{input:?}"));
        node.scheduler.step(now, input, &mut actions);
        node.wake = None;
        for action in actions.drain(..) {
            self.perform_action(action);
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

    fn perform_action(&mut self, action: SchedulerAction) {
        let epoch = self.epoch;
        self.trace.say(self.now, About::Nothing, || format!("{action:?}"));
        match action {
            SchedulerAction::Run(jobs) => self.start_runs(&jobs),
            SchedulerAction::Load(query) => {
                let ms = 1 + self.some_ms(20);
                let Some(node) = &mut self.node else { return };
                node.loads.push(Some(Load::Wanted(query)));
                let slot = (node.loads.len() - 1) as u32;
                self.plan_in(ms, SimEvent::Load { epoch, slot });
            }
            SchedulerAction::FindBacklogs => {
                let ms = 1 + self.some_ms(20);
                self.plan_in(ms, SimEvent::FindBacklogs { epoch });
            }
            SchedulerAction::Reload(job) => {
                let ms = 1 + self.some_ms(20);
                self.plan_in(ms, SimEvent::ReadAgain { epoch, job: job.0 });
            }
            SchedulerAction::Reroute(job) => self.reroute(&job),
            SchedulerAction::Postpone(job) => self.postpone(&job),
            SchedulerAction::Charge(destination, charge) => self.charge(destination, charge),
            SchedulerAction::WakeAt(at) => {
                if let Some(node) = &mut self.node {
                    node.wake = Some(at);
                }
            }
            SchedulerAction::Gate(name, change) => self.gate_changed(&name, &change),
        }
    }

    /// The backlogs that the ledger has.
    pub(super) fn find_backlogs(&mut self) {
        if self.random.chance(self.rates.load_fails) {
            self.happened(Fault::ReadFails);
            return self.step(Input::FindFailed);
        }
        let found = self.store.live_lanes().into_iter().map(|lane| (lane.worker, lane.destination)).collect();
        self.step(Input::BacklogsFound(found));
    }

    /// Reads a job for the scheduler.
    pub(super) fn read_again(&mut self, id: JobId) {
        if self.random.chance(self.rates.load_fails) {
            self.happened(Fault::ReadFails);
            return self.step(Input::ReloadFailed(id));
        }
        let job = self.store.job(id).filter(|job| job.state.is_live()).cloned();
        let found = job.as_ref().map(PendingJob::of);
        if let Some(node) = &mut self.node {
            match job {
                Some(job) => drop(node.cache.insert(id, job)),
                None => drop(node.cache.remove(&id)),
            }
        }
        self.step(Input::Reloaded { job: id, found });
        self.forget_unless_held(id);
    }

    /// Writes the route of a job that only memory has.
    fn reroute(&mut self, pending: &PendingJob) {
        let Some(job) = self.node.as_ref().and_then(|node| node.cache.get(&pending.id)) else { return };
        let (id, worker) = (job.id, job.worker.clone());
        let route = StepRoute { destination: pending.destination.clone(), order: pending.order };
        let settle = Box::new(reroute(job, &route, self.run_context(&worker)));
        self.coverage.fault(Fault::Rerouted);
        self.submit(SimOp::Settle(settle), Waiter::Reroute(id));
    }

    /// The route of a job is durable, or was refused.
    pub(super) fn rerouted(&mut self, id: JobId, written: bool) {
        let term = self.node.as_ref().map(|node| node.term);
        if let Some(node) = &mut self.node
            && let Some(job) = node.cache.get_mut(&id)
            && let (true, Some(term)) = (written, term)
        {
            job.term = term;
        }
        self.step(if written { Input::Rerouted(id) } else { Input::RerouteFailed(id) });
        self.forget_unless_held(id);
    }

    fn gate_changed(&mut self, name: &Arc<str>, change: &GateChange) {
        let Some(destination) = self.plan.destination_index(name) else { return };
        let kind = match change {
            GateChange::Opened(_) => 0,
            GateChange::HalfOpen => 1,
            GateChange::Closed => 2,
            GateChange::AuthPaused => 3,
        };
        self.coverage.gate(kind);
        self.trace.note(self.now, GATE_CHANGES[kind], About::Nothing, destination as u64);
        let shift = self.node.as_ref().map_or(0, |node| node.shift);
        self.checker.gates.changed(destination, change, shift);
        if kind == 3 {
            self.act(OperatorAction::Pause(Stop::Destination(destination)), vec![]);
            if self.is_healing() {
                // A call from before the credentials were fixed: the operator looks once more.
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
        let wanted = self.node.as_mut().and_then(|node| node.loads[slot as usize].take());
        let Some(Load::Wanted(query)) = wanted else { return };
        let (load, ms) = if self.random.chance(self.rates.load_fails) {
            self.happened(Fault::ReadFails);
            (Load::Failed(query), RELOAD_AFTER_MS)
        } else {
            let mut page = self.store.backlog(&query);
            if Mutant::VerificationForgottenByRestart.is_on() {
                page.queued.iter_mut().chain(&mut page.due).for_each(|job| job.verifying = false);
            }
            if Mutant::RecoveryForgetsRunningJobs.is_on() {
                page.queued.retain(|job| job.state != sluice_domain::job::JobState::Running);
            }
            (Load::Read(query, page), 1 + self.some_ms(20))
        };
        if let Some(node) = &mut self.node {
            node.loads[slot as usize] = Some(load);
        }
        self.plan_in(ms, SimEvent::Loaded { epoch, slot });
    }

    /// The scheduler gets the jobs that were read.
    pub(super) fn loaded(&mut self, slot: u32) {
        match self.node.as_mut().and_then(|node| node.loads[slot as usize].take()) {
            Some(Load::Read(query, page)) => {
                let pending = page.pending();
                let jobs = page.queued.into_iter().chain(page.due).collect();
                self.offer(jobs, Input::Loaded { query, page: pending });
            }
            Some(Load::Failed(query)) => {
                self.step(Input::LoadFailed { worker: query.worker, destination: query.destination });
            }
            _ => {}
        }
    }

    /// The scheduler gets the end of a run.
    pub(super) fn finished(&mut self, slot: u32) {
        let Some(mut run) = self.node.as_mut().and_then(|node| node.take_run(slot)) else { return };
        let id = run.slot.job;
        let Some(result) = run.result.take() else { return };
        // What the destination said is lost with the run.
        let lost = matches!(result, RunResult::Reload);
        let said = (run.asked_ms.filter(|_| !lost), run.unauthorized && !lost);
        let calls = self.calls_made(run.group);
        self.member_ended(run.group, run.slot, said, run.recovering);
        if let Some(calls) = calls {
            self.step(Input::Called { job: id, calls, reported: None });
        }
        let input = Input::of_run(id, &result);
        match (&mut self.node, result) {
            (Some(node), RunResult::Ended { job, route, .. }) if job.state.is_live() => {
                node.cache.insert(id, JobRecord { destination: route.destination, order: route.order, ..job });
            }
            (Some(node), RunResult::Ended { .. }) => drop(node.cache.remove(&id)),
            (Some(node), RunResult::Released { job, .. }) => drop(node.cache.insert(id, job)),
            _ => {}
        }
        self.step(input);
        self.forget_unless_held(id);
    }

    /// The run of one member of a group has ended; with the last one, the slot is free.
    fn member_ended(&mut self, group: u32, slot: SimSlot, said: (Option<i64>, bool), recovering: bool) {
        let Some(node) = &mut self.node else { return };
        let Some(ended) = node.groups[group as usize].as_mut() else { return };
        ended.left -= 1;
        ended.asked_ms = ended.asked_ms.max(said.0);
        ended.unauthorized |= said.1;
        let call = (ended.left == 0).then_some((ended.asked_ms, ended.unauthorized));
        if call.is_some() {
            node.free_group(group);
        }
        if !recovering {
            self.checker.gates.release_lane(slot);
            if let Some((asked_ms, unauthorized)) = call {
                self.checker.gates.ended(self.now, slot, asked_ms, unauthorized);
            }
        }
    }

    pub(super) fn forget_unless_held(&mut self, id: JobId) {
        if let Some(node) = &mut self.node
            && !node.scheduler.holds(id)
        {
            node.cache.remove(&id);
        }
    }

    /// Jobs were requeued.
    pub(super) fn requeued(&mut self, jobs: Vec<(JobId, Arc<str>)>) {
        let mut firsts = std::collections::BTreeMap::<Arc<str>, JobId>::new();
        for (id, worker) in jobs {
            firsts.entry(worker).and_modify(|first| *first = (*first).min(id)).or_insert(id);
        }
        for (worker, first) in firsts {
            self.step(Input::Requeued { worker, first });
        }
        self.step(Input::Tick);
    }

    /// A waiting job is due now.
    pub(super) fn due_now(&mut self, job: JobId, worker: &Arc<str>) {
        self.step(Input::DueNow { job, worker: worker.clone() });
    }

    /// What the plan calls a destination or a worker, for the scheduler.
    pub(super) fn target(&self, stop: Stop) -> sluice_domain::schedule::PauseTarget {
        stop.target(&self.plan)
    }
}
