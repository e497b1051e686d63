//! The end of a run: the job finishes, waits in its lane, moves to another one, or is read again.

use std::time::Duration;

use super::load::Load;
use super::place::{LanePlace, Route};
use super::{AfterRun, JobPhase, LaneId, PendingJob, RETRY_DELAY, ScheduledJob, Scheduler, SchedulerAction};
use crate::job::JobId;
use crate::mutant::Mutant;
use crate::settle::DestinationHealth;
use crate::time::Time;

/// What the end of a run says about its call. Nothing, if it made none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallReport {
    pub health: Option<DestinationHealth>,
    pub took: Option<Duration>,
}

/// A job that leaves memory until it is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeferredJob {
    pub id: JobId,
    pub due: Time,
}

impl Scheduler {
    pub(super) fn run_ended(&mut self, now: Time, id: JobId, call: CallReport, after: AfterRun) {
        if self.release(now, id, call) {
            match after {
                AfterRun::Released { alone } => self.ready_again(now, id, alone),
                after => self.continue_unless_due(now, id, after),
            }
        }
    }

    /// The job has done nothing at the destination: it waits for a slot again, in its old turn unless an older job has come into
    /// its lane.
    fn ready_again(&mut self, now: Time, id: JobId, alone: bool) {
        self.unsettled.remove(&id);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        (job.phase, job.alone) = (JobPhase::InLane, job.alone || alone);
        (job.requeued, job.due_now, job.wait_ended, job.loaded_by) = (false, false, false, None);
        let (lane, backlog, turn) = (job.lane, job.backlog, job.turn);
        if let Some(lane) = lane {
            self.lanes.remove(lane, id);
            let head = self.lanes.head(lane).and_then(|head| self.jobs.get(&head));
            let fixed = head.is_some_and(|head| head.phase.holds_lane());
            self.lanes.insert(lane, id, usize::from(fixed));
            if self.lanes.head(lane) != Some(id) {
                return self.promote_head(now, Some(lane));
            }
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            job.phase = JobPhase::Ready;
            self.ready.entry(backlog).or_default().insert((turn, id));
        }
    }

    /// The job keeps the head of its lane until it is read again, so that no other overtakes it.
    pub(super) fn run_lost(&mut self, now: Time, id: JobId) {
        if self.release(now, id, CallReport::default()) {
            self.reload_at(now + RETRY_DELAY, id);
        }
    }

    pub(super) fn reloaded(&mut self, now: Time, id: JobId, found: Option<PendingJob>) {
        if self.is_in(id, JobPhase::Reloading) {
            self.continue_unless_due(now, id, found.map_or(AfterRun::Finished, AfterRun::Live));
        }
    }

    /// A wait was ended meanwhile, perhaps the one that the job begins now: only the ledger knows. The job is read again.
    fn continue_unless_due(&mut self, now: Time, id: JobId, after: AfterRun) {
        let waits = matches!(&after, AfterRun::Live(job) if job.due > now);
        match self.jobs.get_mut(&id).filter(|job| job.due_now && waits) {
            Some(job) => {
                (job.due_now, job.wait_ended, job.phase) = (false, true, JobPhase::Reloading);
                self.actions.push(SchedulerAction::Reload(id));
            }
            None => self.continue_after(now, id, after),
        }
    }

    pub(super) fn reload_failed(&mut self, now: Time, id: JobId) {
        if self.is_in(id, JobPhase::Reloading) {
            self.reload_at(now + RETRY_DELAY, id);
        }
    }

    fn is_in(&self, id: JobId, phase: JobPhase) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.phase == phase)
    }

    fn continue_after(&mut self, now: Time, id: JobId, after: AfterRun) {
        let Some(before) = self.remove(id) else { return };
        match after {
            AfterRun::Finished if before.requeued => {
                let worker = self.backlogs[before.backlog as usize].worker;
                let worker = self.workers[worker as usize].name.clone();
                self.requeued(&worker, id);
            }
            AfterRun::Finished | AfterRun::Released { .. } => {}
            AfterRun::Live(job) => self.continue_with(now, &before, job, Route::Recorded),
            AfterRun::Moved(job) => {
                let route = Route::InMemory { recorded_in: before.recorded_in };
                self.continue_with(now, &before, job, route);
            }
        }
        self.promote_head(now, before.lane);
    }

    /// The job waits in its lane again, or in that of another destination; or it stays in the ledger.
    fn continue_with(&mut self, now: Time, before: &ScheduledJob, job: PendingJob, route: Route) {
        let backlog = self.backlog(&job.worker, &job.destination);
        let lane = self.lane_of(backlog, &job);
        let next = ScheduledJob::new(backlog, lane, &job, route);
        if next.interrupted {
            return self.place(now, job.id, next, LanePlace::ById);
        }
        let window = self.window(backlog);
        window.extend_due_by(now);
        if before.wait_ended || before.loaded_by.is_some_and(|due_by| job.due > due_by) {
            // A load may have taken it for deferred and passed over the jobs behind it.
            window.rewind(JobId(job.id.0 + 1));
        }
        let is_deferred = next.timed && next.due > window.due_by;
        let is_back = backlog == before.backlog && lane == before.lane && !self.is_worker_paused(backlog);
        match route {
            Route::Recorded if is_deferred => self.defer(now, backlog, lane, DeferredJob { id: job.id, due: next.due }),
            Route::Recorded if is_back && Mutant::RetryGoesToTheBackOfTheLane.is_on() => {
                self.place(now, job.id, next, LanePlace::Last);
            }
            // It keeps its place in the lane: the jobs behind it were accepted later.
            Route::Recorded if is_back => self.place(now, job.id, next, LanePlace::ById),
            _ if !is_deferred && self.can_move(now, backlog, lane, job.id) => {
                self.place(now, job.id, next, LanePlace::ById);
            }
            Route::Recorded => self.leave_in_ledger(backlog, job.id, &next),
            Route::InMemory { .. } => self.reroute(job, next),
        }
    }

    /// Whether a job that comes from another lane can be placed in this one without overtaking a job in the ledger.
    fn can_move(&self, now: Time, backlog: u32, lane: Option<LaneId>, id: JobId) -> bool {
        let window = &self.backlogs[backlog as usize].window;
        let share = self.share(now);
        if self.closed_until(now, backlog).is_some() || window.jobs >= share {
            return false;
        }
        lane.is_none_or(|lane| {
            window.keeps_order(id)
                && window.next_due.is_none()
                && !self.is_full(lane, share)
                && !window.is_lane_full(lane)
        })
    }

    /// The job is not in memory and the ledger has it in this backlog: it is loaded in its turn.
    pub(super) fn leave_in_ledger(&mut self, backlog: u32, id: JobId, job: &ScheduledJob) {
        match job.timed {
            true => self.window(backlog).job_deferred(job.due),
            false => self.window(backlog).rewind(id),
        }
    }

    /// A deferred job leaves memory with those of its backlog behind it in its lane: the ledger does not show them until it is due.
    pub(super) fn defer(&mut self, now: Time, backlog: u32, lane: Option<LaneId>, job: DeferredJob) {
        let DeferredJob { id, due } = job;
        self.window(backlog).job_deferred(due);
        let Some(lane) = lane else { return };
        self.window(backlog).lane_blocked(lane, id);
        for behind in self.lanes.youngest_first(lane) {
            let may_leave = self
                .jobs
                .get(&behind)
                .is_some_and(|job| job.backlog == backlog && job.phase.may_leave_memory() && !job.interrupted);
            if behind > id && may_leave {
                self.evict_job(behind, Load::WhenUnblocked);
            }
        }
        // A job of another worker may be the first now.
        self.promote_head(now, Some(lane));
    }

    /// Writes the route of a job that has no place in memory. Until then it stays in memory, in no lane.
    pub(super) fn reroute(&mut self, job: PendingJob, next: ScheduledJob) {
        let window = self.window(next.backlog);
        window.jobs += 1;
        window.timed += usize::from(next.timed);
        window.incoming += 1;
        self.jobs.insert(job.id, ScheduledJob { lane: None, phase: JobPhase::Rerouting, ..next });
        self.actions.push(SchedulerAction::Reroute(job));
    }

    pub(super) fn rerouted(&mut self, id: JobId) {
        if self.is_in(id, JobPhase::Rerouting)
            && let Some(job) = self.remove(id)
        {
            self.window(job.backlog).incoming -= 1;
            self.leave_in_ledger(job.backlog, id, &job);
        }
    }

    pub(super) fn reroute_failed(&mut self, now: Time, id: JobId) {
        if self.is_in(id, JobPhase::Rerouting)
            && let Some(job) = self.jobs.get(&id)
        {
            self.backlogs[job.backlog as usize].window.incoming -= 1;
            self.reload_at(now + RETRY_DELAY, id);
        }
    }
}
