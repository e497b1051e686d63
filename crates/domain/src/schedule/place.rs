//! Jobs take and leave their places: lanes, timers, due heads.

use std::cmp::Reverse;

use super::{JobPhase, LaneId, PendingJob, ScheduledJob, Scheduler, SchedulerAction};
use crate::job::JobId;
use crate::mutant::Mutant;
use crate::time::Time;

/// Where in its lane a job is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LanePlace {
    ById,
    Last,
}

/// Whether the ledger has the job in the backlog where it is placed, or in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Recorded,
    InMemory { recorded_in: u32 },
}

impl ScheduledJob {
    pub(super) fn new(backlog: u32, lane: Option<LaneId>, job: &PendingJob, route: Route) -> ScheduledJob {
        ScheduledJob {
            backlog,
            lane,
            order: job.order,
            entity: job.entity,
            due: job.due,
            timed: job.due != PendingJob::AT_ONCE,
            recorded_in: match route {
                Route::Recorded => backlog,
                Route::InMemory { recorded_in } => recorded_in,
            },
            interrupted: job.interrupted,
            phase: JobPhase::InLane,
            turn: 0,
            alone: job.alone,
            traffic: job.traffic,
            requeued: false,
            due_now: false,
            wait_ended: false,
            loaded_by: None,
        }
    }
}

impl Scheduler {
    /// Adds a job to memory: in its lane, or due at once if it has none. It goes behind a job that holds the lane, even if that
    /// one is younger; an interrupted job goes before all others.
    pub(super) fn place(&mut self, now: Time, id: JobId, job: ScheduledJob, place: LanePlace) {
        let (lane, interrupted) = (job.lane, job.interrupted);
        let window = self.window(job.backlog);
        window.jobs += 1;
        window.timed += usize::from(job.timed);
        self.jobs.insert(id, job);
        let Some(lane) = lane else { return self.promote(now, id) };
        let head = self.lanes.head(lane);
        let fixed = head.and_then(|head| self.jobs.get(&head)).is_some_and(|head| head.phase.holds_lane());
        match place {
            _ if interrupted => self.lanes.insert_first(lane, id, usize::from(fixed)),
            LanePlace::ById => self.lanes.insert(lane, id, usize::from(fixed)),
            LanePlace::Last => self.lanes.push_back(lane, id),
        }
        if self.lanes.head(lane) == Some(id) {
            if let Some(head) = head {
                self.demote(head);
            }
            self.promote(now, id);
        }
    }

    /// Removes a job from memory. The caller promotes the next of its lane.
    pub(super) fn remove(&mut self, id: JobId) -> Option<ScheduledJob> {
        let job = self.jobs.remove(&id)?;
        self.unsettled.remove(&id);
        self.forget_ready(id, &job);
        let window = &mut self.backlogs[job.backlog as usize].window;
        window.jobs -= 1;
        window.timed -= usize::from(job.timed);
        window.waiting -= usize::from(job.phase == JobPhase::Timed);
        window.job_left(id);
        if job.recorded_in != job.backlog {
            self.backlogs[job.recorded_in as usize].window.job_left(id);
        }
        if let Some(lane) = job.lane {
            let left = self.lanes.remove(lane, id);
            // Any backlog of the destination may have left jobs of this lane in the ledger.
            for backlog in &self.destinations[lane.destination as usize].backlogs {
                self.backlogs[*backlog as usize].window.lane_shrank(lane, left);
            }
        }
        Some(job)
    }

    fn forget_ready(&mut self, id: JobId, job: &ScheduledJob) {
        if job.phase == JobPhase::Ready
            && let Some(ready) = self.ready.get_mut(&job.backlog)
        {
            ready.remove(&(job.turn, id));
            if ready.is_empty() {
                self.ready.remove(&job.backlog);
            }
        }
    }

    /// A job is not the head of its lane any more.
    fn demote(&mut self, id: JobId) {
        let Some(mut job) = self.jobs.remove(&id) else { return };
        self.forget_ready(id, &job);
        self.window(job.backlog).waiting -= usize::from(job.phase == JobPhase::Timed);
        job.phase = JobPhase::InLane;
        self.jobs.insert(id, job);
    }

    pub(super) fn promote_head(&mut self, now: Time, lane: Option<LaneId>) {
        let Some(head) = lane.and_then(|lane| self.lanes.head(lane)) else { return };
        if self.jobs.get(&head).is_some_and(|job| job.phase == JobPhase::InLane) {
            self.promote(now, head);
        }
    }

    /// The head of a lane waits for its time, or for a slot.
    pub(super) fn promote(&mut self, now: Time, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let window = &mut self.backlogs[job.backlog as usize].window;
        window.waiting -= usize::from(job.phase == JobPhase::Timed);
        if job.interrupted {
            job.phase = JobPhase::Interrupted;
            self.interrupted.push_back(id);
        } else if job.due <= now {
            job.phase = JobPhase::Ready;
            job.turn = self.ready_count;
            self.ready_count += 1;
            self.ready.entry(job.backlog).or_default().insert((job.turn, id));
        } else {
            job.phase = JobPhase::Timed;
            window.waiting += 1;
            if Mutant::TimerLost.is_on() && id.0 % 16 == 0 {
                return;
            }
            self.timers.push(Reverse((job.due, id)));
        }
    }

    /// The job is read again at this time.
    pub(super) fn reload_at(&mut self, at: Time, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            (job.phase, job.due) = (JobPhase::Lost, at);
            self.timers.push(Reverse((at, id)));
        }
    }

    pub(super) fn fire_timers(&mut self, now: Time) {
        while let Some(Reverse((at, id))) = self.timers.peek().copied() {
            let phase = self.jobs.get(&id).filter(|job| job.due == at).map(|job| job.phase);
            let is_current = matches!(phase, Some(JobPhase::Timed | JobPhase::Lost));
            if is_current && at > now {
                return;
            }
            self.timers.pop();
            match phase {
                Some(JobPhase::Timed) => self.promote(now, id),
                Some(JobPhase::Lost) => {
                    if let Some(job) = self.jobs.get_mut(&id) {
                        job.phase = JobPhase::Reloading;
                    }
                    self.actions.push(SchedulerAction::Reload(id));
                }
                _ => {}
            }
        }
    }

    pub(super) fn next_timer(&self) -> Option<Time> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }
}
