//! State of the scheduler for operators.

use super::{Backlog, BacklogView, Scheduler, SchedulerView, WaitsFor};
use crate::time::Time;

impl Scheduler {
    pub fn view(&self, now: Time) -> SchedulerView {
        let gates = self
            .destinations
            .iter()
            .filter_map(|destination| Some((destination.name.to_string(), destination.gate.as_ref()?.view(now))));
        let paused = self.workers.iter().filter(|worker| worker.paused);
        let mut backlogs: Vec<BacklogView> =
            (0..super::index(self.backlogs.len())).map(|backlog| self.view_backlog(now, backlog)).collect();
        backlogs.sort_by(|a, b| (&a.worker, &a.destination).cmp(&(&b.worker, &b.destination)));
        SchedulerView {
            jobs_in_memory: self.jobs.len(),
            in_flight: self.in_flight,
            gates: gates.collect(),
            workers_paused: paused.map(|worker| worker.name.to_string()).collect(),
            backlogs,
        }
    }

    fn view_backlog(&self, now: Time, id: u32) -> BacklogView {
        let backlog = &self.backlogs[id as usize];
        BacklogView {
            worker: self.workers[backlog.worker as usize].name.to_string(),
            destination: self.destinations[backlog.destination as usize].name.to_string(),
            jobs_in_memory: backlog.window.jobs,
            running: backlog.in_flight,
            has_more: backlog.window.wants_load(now),
            waits_for: self.waits_for(now, id, backlog),
        }
    }

    fn waits_for(&self, now: Time, id: u32, backlog: &Backlog) -> Option<WaitsFor> {
        let worker = &self.workers[backlog.worker as usize];
        let gate = self.destinations[backlog.destination as usize].gate.as_ref();
        let has_more = backlog.window.wants_load(now) || backlog.window.load.is_some();
        let waiting = backlog.window.jobs > backlog.in_flight as usize;
        match () {
            () if !waiting && !has_more => None,
            () if self.draining => Some(WaitsFor::Shutdown),
            () if worker.paused => Some(WaitsFor::Worker),
            () if backlog.in_flight >= worker.concurrency => Some(WaitsFor::WorkerSlot),
            () => match gate.and_then(|gate| gate.waits_for(now)) {
                Some(reason) => Some(reason),
                None if self.ready.contains_key(&id) => None,
                None if waiting => Some(WaitsFor::Due),
                None => Some(WaitsFor::Load),
            },
        }
    }
}
