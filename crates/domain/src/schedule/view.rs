//! State of the scheduler for operators.

use std::sync::Arc;

use super::{Backlog, BacklogView, JobPhase, JobWait, PendingJob, Scheduler, SchedulerView, WaitsFor};
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
        let waits = self.waits_for(now, id, backlog);
        BacklogView {
            worker: self.workers[backlog.worker as usize].name.to_string(),
            destination: self.destinations[backlog.destination as usize].name.to_string(),
            jobs_in_memory: backlog.window.jobs,
            running: backlog.running,
            has_more: backlog.window.wants_load(now),
            waits_for: waits.map(|wait| wait.waits_for),
            until: waits.and_then(|wait| wait.until),
        }
    }

    /// Why a live job does not run; `None` if it runs, or can run now.
    pub fn wait_of(&self, now: Time, job: &PendingJob) -> Option<JobWait> {
        let known = self.jobs.get(&job.id);
        let backlog = match known {
            Some(known) => Some(known.backlog),
            None => self.backlog_id(&job.worker, &job.destination),
        };
        if known.is_some_and(|known| known.phase.holds_lane() || known.phase == JobPhase::Rerouting) {
            return None;
        }
        // What stops all jobs of the backlog comes before what stops this one: it is what an operator can change.
        let closed = backlog.and_then(|id| self.closed(now, &self.backlogs[id as usize]));
        if closed.is_some() {
            return closed;
        }
        let due = known.map_or(job.due, |known| known.due);
        let wait = |waits_for, until, behind| Some(JobWait { waits_for, until, behind });
        match known.map(|known| known.phase) {
            Some(JobPhase::InLane) => {
                let head = known.and_then(|known| self.lanes.head(known.lane?));
                wait(WaitsFor::Lane, None, head)
            }
            Some(JobPhase::Ready) => backlog.and_then(|id| self.taken(now, &self.backlogs[id as usize])),
            _ if due > now => wait(WaitsFor::Due, Some(due), None),
            _ => wait(WaitsFor::Load, None, None),
        }
    }

    fn backlog_id(&self, worker: &Arc<str>, destination: &Arc<str>) -> Option<u32> {
        let (worker, destination) = (self.worker_ids.get(worker)?, self.destination_ids.get(destination)?);
        self.backlog_ids.get(&(*worker, *destination)).copied()
    }

    /// What stops every job of a backlog until a time or an operator changes it.
    fn closed(&self, now: Time, backlog: &Backlog) -> Option<JobWait> {
        let wait = |waits_for, until| Some(JobWait { waits_for, until, behind: None });
        if self.draining {
            return wait(WaitsFor::Shutdown, None);
        }
        if self.workers[backlog.worker as usize].paused {
            return wait(WaitsFor::Worker, None);
        }
        let gate = self.destinations[backlog.destination as usize].gate.as_ref()?;
        let (waits_for, until) = gate.waits_for(now)?;
        let is_closed = matches!(waits_for, WaitsFor::Destination | WaitsFor::Breaker | WaitsFor::RetryAfter);
        is_closed.then_some(JobWait { waits_for, until, behind: None })
    }

    /// What stops the next due job of a backlog for the moment: a slot or the rate.
    fn taken(&self, now: Time, backlog: &Backlog) -> Option<JobWait> {
        if backlog.in_flight >= self.workers[backlog.worker as usize].concurrency {
            return Some(JobWait { waits_for: WaitsFor::WorkerSlot, until: None, behind: None });
        }
        let gate = self.destinations[backlog.destination as usize].gate.as_ref()?;
        gate.waits_for(now).map(|(waits_for, until)| JobWait { waits_for, until, behind: None })
    }

    fn waits_for(&self, now: Time, id: u32, backlog: &Backlog) -> Option<JobWait> {
        let wait = |waits_for| Some(JobWait { waits_for, until: None, behind: None });
        let has_more = backlog.window.wants_load(now) || backlog.window.load.is_some();
        let waiting = backlog.window.jobs > backlog.running as usize;
        if !waiting && !has_more {
            return None;
        }
        match self.closed(now, backlog).or_else(|| self.taken(now, backlog)) {
            Some(reason) => Some(reason),
            None if self.ready.contains_key(&id) => None,
            None if waiting => wait(WaitsFor::Due),
            None => wait(WaitsFor::Load),
        }
    }
}
