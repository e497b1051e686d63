//! Hands out jobs: which of the due heads of lanes run now.

use std::time::Duration;

use super::gate::Admission;
use super::{JobPhase, Scheduler, SchedulerAction, Slot};
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
        self.run_interrupted(now);
        if self.ready.is_empty() {
            return None;
        }
        let mut wake: Option<Time> = None;
        self.turn = self.turn.wrapping_add(1);
        let mut turns = std::mem::take(&mut self.turns);
        turns.extend(self.ready.keys().copied());
        turns.rotate_left(self.turn % self.ready.len());
        // One from each in turn, so that no backlog waits behind another.
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
            if let Some(id) = self.pop_ready(backlog) {
                self.start(now, id, Slot::Taken);
                turns.push_back(backlog);
            }
        }
        turns.clear();
        self.turns = turns;
        wake
    }

    /// A run of an interrupted job only settles its attempt: it needs no slot and passes no gate, so that a paused destination
    /// does not delay it.
    fn run_interrupted(&mut self, now: Time) {
        while self.in_flight < self.limits.in_flight {
            let Some(id) = self.interrupted.pop_front() else { return };
            if self.jobs.get(&id).is_some_and(|job| job.phase == JobPhase::Interrupted) {
                self.start(now, id, Slot::NotNeeded);
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

    fn pop_ready(&mut self, backlog: u32) -> Option<JobId> {
        let ready = self.ready.get_mut(&backlog)?;
        let (_, id) = ready.pop_first()?;
        if ready.is_empty() {
            self.ready.remove(&backlog);
        }
        Some(id)
    }

    fn start(&mut self, now: Time, id: JobId, slot: Slot) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        (job.phase, job.started) = (JobPhase::Running(slot), now);
        self.in_flight += 1;
        self.unsettled.insert(id);
        if slot == Slot::Taken {
            let backlog = &mut self.backlogs[job.backlog as usize];
            backlog.in_flight += 1;
            let destination = &mut self.destinations[backlog.destination as usize];
            if let Some(change) = destination.gate.as_mut().and_then(|gate| gate.start(now)) {
                self.actions.push(SchedulerAction::Gate(destination.name.clone(), change));
            }
        }
        self.actions.push(SchedulerAction::Run(vec![id]));
    }

    /// A run has ended: its slot is free again. Returns whether there was such a run.
    pub(super) fn release(
        &mut self,
        now: Time,
        id: JobId,
        call: (Option<DestinationHealth>, Option<Duration>),
    ) -> bool {
        let Some(job) = self.jobs.get(&id) else { return false };
        let JobPhase::Running(slot) = job.phase else { return false };
        self.in_flight -= 1;
        if slot == Slot::Taken {
            let backlog = &mut self.backlogs[job.backlog as usize];
            backlog.in_flight -= 1;
            let destination = &mut self.destinations[backlog.destination as usize];
            let (health, took) = (call.0.unwrap_or(DestinationHealth::Silent), call.1);
            let gate = destination.gate.as_mut();
            let change = gate.and_then(|gate| gate.finish(now, job.started, (health, took), &mut self.random));
            if let Some(change) = change {
                self.actions.push(SchedulerAction::Gate(destination.name.clone(), change));
            }
        }
        true
    }
}
