//! Hands out jobs: which of the due heads of lanes run now.

use super::gate::{Admission, Gate};
use super::run_end::CallReport;
use super::{Backlog, CallInFlight, JobPhase, Scheduler, SchedulerAction, Slot};
use crate::call_budget::Traffic;
use crate::job::JobId;
use crate::mutant::Mutant;
use crate::settle::DestinationHealth;
use crate::time::Time;

impl Scheduler {
    /// Runs what may run. Returns the time at which a gate opens by itself.
    pub(super) fn dispatch(&mut self, now: Time) -> Option<Time> {
        if self.draining {
            return None;
        }
        self.run_interrupted();
        if self.ready.is_empty() {
            return None;
        }
        let mut wake: Option<Time> = None;
        self.turn = self.turn.wrapping_add(1);
        let mut turns = std::mem::take(&mut self.turns);
        turns.extend(self.ready.keys().copied());
        turns.rotate_left(self.turn % self.ready.len());
        // One call for each in turn, so that no backlog waits behind another.
        while let Some(backlog) = turns.pop_front() {
            if self.in_flight >= self.limits.in_flight {
                break;
            }
            if self.has_no_slot(backlog) {
                continue;
            }
            match self.admit(now, backlog) {
                Admission::Go => {}
                Admission::NotBefore(at) => {
                    wake = Some(wake.map_or(at, |earlier| earlier.min(at)));
                    continue;
                }
                Admission::Full | Admission::Paused => continue,
            }
            self.postpone_background(now, backlog);
            let jobs = self.pop_group(now, backlog);
            if !jobs.is_empty() {
                self.start_call(now, backlog, jobs);
                turns.push_back(backlog);
            }
        }
        turns.clear();
        self.turns = turns;
        wake
    }

    /// A run of an interrupted job only settles its attempt: it needs no slot and passes no gate, so that a paused destination
    /// does not delay it.
    fn run_interrupted(&mut self) {
        while self.in_flight < self.limits.in_flight {
            let Some(id) = self.interrupted.pop_front() else { return };
            if self.jobs.get(&id).is_some_and(|job| job.phase == JobPhase::Interrupted) {
                self.start(id, Slot::NotNeeded);
                self.actions.push(SchedulerAction::Run(vec![id]));
            }
        }
    }

    /// Whether the worker is paused, or all its slots for the destination are taken.
    fn has_no_slot(&self, backlog: u32) -> bool {
        let is_paused = self.is_worker_paused(backlog);
        let backlog = &self.backlogs[backlog as usize];
        let worker = &self.workers[backlog.worker as usize];
        is_paused || backlog.in_flight >= worker.concurrency && !Mutant::WorkerConcurrencyIgnored.is_on()
    }

    fn admit(&mut self, now: Time, backlog: u32) -> Admission {
        let destination = self.backlogs[backlog as usize].destination;
        self.destinations[destination as usize].gate.as_mut().map_or(Admission::Go, |gate| gate.admit(now))
    }

    fn traffic_of(&self, id: JobId) -> Traffic {
        self.jobs.get(&id).map_or(Traffic::Live, |job| job.traffic)
    }

    /// Takes the jobs of the next call: those that are ready now, in their order. None is waited for. Each is the head of its own
    /// lane, so that no two are of one lane. No job of a replay or an import comes along for the reserve of a budget.
    fn pop_group(&mut self, now: Time, backlog: u32) -> Vec<JobId> {
        let (max, keeps_reserve) = (self.group_max(backlog), self.keeps_reserve(now, backlog));
        let Some(ready) = self.ready.get_mut(&backlog) else { return vec![] };
        let is_alone = |id: &JobId| self.jobs.get(id).is_none_or(|job| job.alone);
        let mut jobs = Vec::new();
        while let Some((_, id)) = ready.first().copied() {
            let is_background = self.jobs.get(&id).is_some_and(|job| job.traffic == Traffic::Background);
            if jobs.len() == max || (!jobs.is_empty() && is_alone(&id)) || (keeps_reserve && is_background) {
                break;
            }
            ready.pop_first();
            jobs.push(id);
            if is_alone(&id) {
                break;
            }
        }
        if ready.is_empty() {
            self.ready.remove(&backlog);
        }
        jobs
    }

    /// Jobs that the next call of a backlog may carry. A probe carries one: its failure costs one attempt.
    fn group_max(&self, backlog: u32) -> usize {
        let Backlog { worker, destination, .. } = self.backlogs[backlog as usize];
        let is_probe = self.destinations[destination as usize].gate.as_ref().is_none_or(Gate::is_probing);
        let max = self.batches.get(&(worker, destination)).filter(|_| !is_probe).map_or(1, |max| *max as usize);
        max.clamp(1, self.limits.in_flight.saturating_sub(self.in_flight).max(1))
    }

    /// Starts the runs of these jobs with one slot of their worker and one call of the gate.
    fn start_call(&mut self, now: Time, backlog: u32, jobs: Vec<JobId>) {
        self.call_count += 1;
        let call = self.call_count;
        for id in &jobs {
            self.start(*id, Slot::Taken(call));
        }
        let all_background = jobs.iter().all(|id| self.traffic_of(*id) == Traffic::Background);
        let traffic = if all_background { Traffic::Background } else { Traffic::Live };
        let destination = self.backlogs[backlog as usize].destination;
        let gate = self.destinations[destination as usize].gate.as_mut();
        let reserved = gate.and_then(|gate| gate.reserve(now, traffic));
        let flight =
            CallInFlight { backlog, started: now, jobs: jobs.len(), health: None, took: None, reserved, made: None };
        self.calls.insert(call, flight);
        let backlog = &mut self.backlogs[backlog as usize];
        backlog.in_flight += 1;
        backlog.running += super::index(jobs.len());
        let destination = &mut self.destinations[backlog.destination as usize];
        if let Some(change) = destination.gate.as_mut().and_then(|gate| gate.start(now)) {
            self.actions.push(SchedulerAction::Gate(destination.name.clone(), change));
        }
        self.actions.push(SchedulerAction::Run(jobs));
    }

    pub(super) fn start(&mut self, id: JobId, slot: Slot) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.phase = JobPhase::Running(slot);
        self.in_flight += 1;
        self.unsettled.insert(id);
    }

    /// A run has ended. The slot of its call is free once the runs of all its jobs have ended. Returns whether there was such a run.
    pub(super) fn release(&mut self, now: Time, id: JobId, call: CallReport) -> bool {
        let CallReport { health, took } = call;
        let Some(job) = self.jobs.get(&id) else { return false };
        let JobPhase::Running(slot) = job.phase else { return false };
        self.in_flight -= 1;
        if let Slot::Taken(call) = slot
            && let Some(flight) = self.calls.get_mut(&call)
        {
            flight.jobs -= 1;
            flight.health = DestinationHealth::of_call(flight.health, health);
            flight.took = flight.took.max(took);
            let backlog = &mut self.backlogs[flight.backlog as usize];
            backlog.running -= 1;
            if health == Some(DestinationHealth::Unauthorized)
                && let Some(gate) = &mut self.destinations[backlog.destination as usize].gate
            {
                // At once: jobs behind those that have ended would be called for while the others are being settled.
                gate.credentials_rejected();
            }
            if flight.jobs == 0
                && let Some(flight) = self.calls.remove(&call)
            {
                self.end_call(now, &flight);
            }
        }
        true
    }

    fn end_call(&mut self, now: Time, flight: &CallInFlight) {
        let backlog = &mut self.backlogs[flight.backlog as usize];
        backlog.in_flight -= 1;
        let destination = &mut self.destinations[backlog.destination as usize];
        let call = (flight.health.unwrap_or(DestinationHealth::Silent), flight.took);
        let mut gate = destination.gate.as_mut();
        if let (Some(budget), Some(reserved)) = (gate.as_mut().and_then(|gate| gate.budget_mut()), flight.reserved) {
            budget.finish(now, reserved, flight.made);
        }
        if let Some(change) = gate.and_then(|gate| gate.finish(now, flight.started, call, &mut self.random)) {
            self.actions.push(SchedulerAction::Gate(destination.name.clone(), change));
        }
    }
}
