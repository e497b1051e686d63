//! Memory: which jobs come in, which leave, and what is loaded next.

use std::sync::Arc;

use super::backlog::{BacklogPage, BacklogQuery};
use super::backlog_window::{InterruptedScan, LoadKind, LoadUnderWay};
use super::gate::Gate;
use super::place::{LanePlace, Route};
use super::run_end::DeferredJob;
use super::{
    Backlog, DestinationState, HORIZON, LaneId, PendingJob, RETRY_DELAY, ScheduledJob, Scheduler, SchedulerAction,
};
use crate::job::JobId;
use crate::mutant::Mutant;
use crate::time::Time;

/// When a job that leaves memory is loaded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    WhenRoom,
    /// When the older deferred job of its lane is due: then the whole lane is looked for.
    WhenUnblocked,
}

impl Scheduler {
    /// When a backlog that cannot run now can run again, [`Time::NEVER`] if an operator decides; `None` if it can run.
    pub(super) fn closed_until(&self, now: Time, backlog: u32) -> Option<Time> {
        if self.is_worker_paused(backlog) {
            return Some(Time::NEVER);
        }
        let backlog = &self.backlogs[backlog as usize];
        self.destinations[backlog.destination as usize].gate.as_ref()?.closed_until(now, HORIZON)
    }

    /// Jobs of a paused worker must not hold lanes that other workers share: they stay in the ledger.
    pub(super) fn is_worker_paused(&self, backlog: u32) -> bool {
        let worker = self.backlogs[backlog as usize].worker;
        self.workers[worker as usize].paused && !Mutant::WorkerPauseIgnored.is_on()
    }

    /// Whether no further job of the lane fits into memory: one noisy entity gets a part of the share of its backlog.
    pub(super) fn is_full(&self, lane: LaneId, share: usize) -> bool {
        self.lanes.len(lane) >= self.lane_limit(share)
    }

    fn lane_limit(&self, share: usize) -> usize {
        self.limits.lane_jobs.min(share / 4).max(1)
    }

    fn free(&self) -> usize {
        self.limits.jobs.saturating_sub(self.jobs.len() + self.reserved)
    }

    /// Jobs that each backlog may have in memory while others need it too.
    pub(super) fn share(&self, now: Time) -> usize {
        let active: usize = self.destinations.iter().map(|destination| self.active_backlogs(now, destination)).sum();
        (self.limits.jobs / active.max(1)).max(1)
    }

    /// Backlogs of a destination that can run and need memory.
    fn active_backlogs(&self, now: Time, destination: &DestinationState) -> usize {
        let needs_memory = |id: &&u32| {
            let window = &self.backlogs[**id as usize].window;
            (window.jobs > 0 || window.wants_load(now)) && !self.is_worker_paused(**id)
        };
        let active = destination.backlogs.iter().filter(needs_memory).count();
        let is_closed = |gate: &Gate| gate.closed_until(now, HORIZON).is_some();
        if active > 0 && destination.gate.as_ref().is_some_and(is_closed) { 0 } else { active }
    }

    pub(super) fn take_new(&mut self, now: Time, jobs: Vec<PendingJob>) {
        let share = self.share(now);
        for job in jobs {
            let backlog = self.backlog(&job.worker, &job.destination);
            let lane = self.lane_of(backlog, &job);
            if self.jobs.contains_key(&job.id) {
                continue;
            }
            if job.id <= self.window(backlog).seen_until {
                // A load was faster than the notice: the job may have run already.
                self.window(backlog).rewind(job.id);
                continue;
            }
            let is_closed = self.closed_until(now, backlog).is_some();
            let free = self.free();
            let full = lane.filter(|lane| self.is_full(*lane, share));
            let lane_limit = self.lane_limit(share);
            let window = self.window(backlog);
            let has_room = free > 0 && window.jobs < share;
            // A deferred job in the ledger may be of the same lane.
            let may_be_blocked = lane.is_some() && window.next_due.is_some();
            if is_closed || may_be_blocked || !window.is_current() || !has_room {
                window.pass_over_new();
                continue;
            }
            window.new_taken(job.id);
            match full.or(lane.filter(|lane| window.is_lane_full(*lane))) {
                Some(lane) => window.pass_over_full(job.id, lane, lane_limit),
                None => self.enter(now, backlog, &job),
            }
        }
    }

    fn enter(&mut self, now: Time, backlog: u32, job: &PendingJob) {
        let lane = self.lane_of(backlog, job);
        let scheduled = ScheduledJob::new(backlog, lane, job, Route::Recorded);
        self.place(now, job.id, scheduled, LanePlace::ById);
    }

    pub(super) fn take_loaded(&mut self, now: Time, query: &BacklogQuery, page: BacklogPage<PendingJob>) {
        let backlog = self.backlog(&query.worker, &query.destination);
        let Some(load) = self.load_answered(backlog) else { return };
        match load.kind {
            LoadKind::Interrupted => self.take_interrupted(now, backlog, &page),
            // It was paused meanwhile: its jobs stay in the ledger, and are loaded again.
            LoadKind::Window if self.is_worker_paused(backlog) => {}
            LoadKind::Window => {
                self.take_page(now, backlog, &page, load.room);
                self.note_load(backlog, query.due_by);
                self.window(backlog).scan_passed();
            }
        }
        self.window(backlog).load_ended();
    }

    /// The room of the load is free. Its window still has it, so that changes are kept apart until its answer is taken.
    fn load_answered(&mut self, backlog: u32) -> Option<LoadUnderWay> {
        let load = self.window(backlog).load?;
        self.reserved -= load.room;
        Some(load)
    }

    /// Of a backlog that cannot run, only interrupted jobs are taken: they are settled whatever is paused.
    fn take_interrupted(&mut self, now: Time, backlog: u32, page: &BacklogPage<PendingJob>) {
        for job in page.queued.iter().filter(|job| job.interrupted) {
            if !self.jobs.contains_key(&job.id) && !self.window(backlog).has_left(job.id) {
                self.enter(now, backlog, job);
            }
        }
        let window = self.window(backlog);
        if window.scan != InterruptedScan::Done {
            window.scan = match page.more_queued {
                true => InterruptedScan::From(page.looked_until),
                false => InterruptedScan::Done,
            };
        }
    }

    fn take_page(&mut self, now: Time, backlog: u32, page: &BacklogPage<PendingJob>, mut room: usize) {
        let (first, complete) = self.take_due(now, backlog, page, &mut room);
        let window = self.window(backlog);
        window.due_taken(page.next_due, !complete);
        // Earlier loads passed over the jobs behind deferred ones that come into memory now: they are looked for again.
        if let Some(first) = first.filter(|first| *first < window.cursor) {
            window.rewind(JobId(first.0 + 1));
        }
        // Queued jobs must not overtake due jobs of their lanes that are not in memory.
        if complete {
            self.take_queued(now, backlog, page, room);
        } else if !page.queued.is_empty() || page.more_queued {
            self.window(backlog).has_more = true;
        }
    }

    /// A load may have passed over jobs behind an unsettled one of the worker, which the ledger had as deferred already, perhaps in
    /// another backlog than memory.
    fn note_load(&mut self, backlog: u32, due_by: Time) {
        let worker = self.backlogs[backlog as usize].worker;
        for id in &self.unsettled {
            let job = self.jobs.get_mut(id);
            if let Some(job) = job.filter(|job| self.backlogs[job.backlog as usize].worker == worker) {
                job.loaded_by = Some(job.loaded_by.map_or(due_by, |earlier| earlier.min(due_by)));
            }
        }
    }

    /// Takes the due jobs of a page. Returns the first id among them, and whether all due jobs of the ledger are in memory.
    fn take_due(
        &mut self,
        now: Time,
        backlog: u32,
        page: &BacklogPage<PendingJob>,
        room: &mut usize,
    ) -> (Option<JobId>, bool) {
        let (mut first, mut complete): (Option<JobId>, bool) = (None, !page.more_due);
        for job in &page.due {
            let lane = self.lane_of(backlog, job);
            let window = self.window(backlog);
            if window.has_left(job.id) {
                complete &= self.jobs.contains_key(&job.id);
                continue;
            }
            if window.is_blocked(lane, job.id) || self.jobs.contains_key(&job.id) {
                continue;
            }
            if *room == 0 {
                return (first, false);
            }
            *room -= 1;
            first = Some(first.map_or(job.id, |first| first.min(job.id)));
            self.enter(now, backlog, job);
        }
        (first, complete)
    }

    fn take_queued(&mut self, now: Time, backlog: u32, page: &BacklogPage<PendingJob>, mut room: usize) {
        let share = self.share(now);
        let (mut cursor, lane_limit) = (JobId(0), self.lane_limit(share));
        for job in &page.queued {
            if !self.jobs.contains_key(&job.id) && !self.window(backlog).is_outdated(job.id) {
                let lane = self.lane_of(backlog, job).filter(|_| !job.interrupted);
                let full = lane.filter(|lane| self.is_full(*lane, share) || self.window(backlog).is_lane_full(*lane));
                let window = self.window(backlog);
                if let Some(lane) = full {
                    window.pass_over_full(job.id, lane, lane_limit);
                } else if !window.is_blocked(lane, job.id) {
                    if room == 0 {
                        return window.queued_taken(cursor, true);
                    }
                    room -= 1;
                    self.enter(now, backlog, job);
                }
            }
            cursor = job.id;
        }
        self.window(backlog).queued_taken(page.looked_until, page.more_queued);
    }

    pub(super) fn load_failed(&mut self, now: Time, worker: &Arc<str>, destination: &Arc<str>) {
        let backlog = self.backlog(worker, destination);
        if self.load_answered(backlog).is_some() {
            let window = self.window(backlog);
            window.retry_at = now + RETRY_DELAY;
            window.load_ended();
        }
    }

    /// Starts the loads that are wanted. Returns the time at which the next one is.
    pub(super) fn plan_loads(&mut self, now: Time) -> Option<Time> {
        if self.draining {
            return None;
        }
        let mut wake: Option<Time> = None;
        let mut share = None;
        for backlog in 0..super::index(self.backlogs.len()) {
            if let Some(at) = self.plan_load(now, backlog, &mut share) {
                wake = Some(wake.map_or(at, |earlier| earlier.min(at)));
            }
        }
        wake
    }

    fn plan_load(&mut self, now: Time, backlog: u32, share: &mut Option<usize>) -> Option<Time> {
        let window = &self.backlogs[backlog as usize].window;
        let wants_nothing =
            window.scan == InterruptedScan::Done && window.next_due.is_none() && !window.wants_load(now);
        // Most backlogs, at most steps: whether they can run is not asked for.
        if window.load.is_some() || wants_nothing {
            return None;
        }
        let is_closed = self.closed_until(now, backlog);
        let scans = is_closed.is_some() && window.scan != InterruptedScan::Done;
        if !scans && !window.wants_load(now) {
            // Behind a closed gate nothing is loaded until it opens.
            let due = window.next_due.map(|due| is_closed.map_or(due, |until| due.max(until)));
            return due.filter(|due| *due != Time::NEVER);
        }
        if window.retry_at > now {
            return Some(window.retry_at);
        }
        match is_closed {
            Some(_) if scans => self.start_load(backlog, LoadKind::Interrupted, self.limits.load_jobs),
            Some(until) => return Some(until).filter(|until| *until != Time::NEVER),
            None => {
                let share = *share.get_or_insert_with(|| self.share(now));
                if self.backlogs[backlog as usize].window.jobs > share / 2 {
                    self.give_up_waiting(now, backlog);
                }
                let jobs = self.backlogs[backlog as usize].window.jobs;
                if jobs <= share / 2 {
                    self.window(backlog).advance_due_by(now);
                    self.make_room(now, share, share - jobs);
                    self.start_load(backlog, LoadKind::Window, share - jobs);
                }
                return self.backlogs[backlog as usize].window.next_due.filter(|due| *due > now);
            }
        }
        None
    }

    /// Jobs that are not due leave memory if they keep out others that could use a free slot. They are loaded when they are due.
    fn give_up_waiting(&mut self, now: Time, id: u32) {
        let Backlog { worker, in_flight, window, .. } = &self.backlogs[id as usize];
        let has_slot = *in_flight < self.workers[*worker as usize].concurrency;
        if window.waiting == 0 || !has_slot || self.ready.contains_key(&id) {
            return;
        }
        let is_waiting = |job: &ScheduledJob| {
            job.backlog == id && job.due > now && job.phase.may_leave_memory() && job.recorded_in == id
        };
        let mut waiting: Vec<JobId> = self.jobs.iter().filter(|(_, job)| is_waiting(job)).map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        self.window(id).shorten_horizon(now);
        for job in waiting {
            // An older one of the same lane may have taken it along.
            if let Some(ScheduledJob { lane, due, .. }) = self.remove(job) {
                self.defer(now, id, lane, DeferredJob { id: job, due });
            }
        }
    }

    fn start_load(&mut self, backlog: u32, kind: LoadKind, wanted: usize) {
        let room = wanted.min(self.limits.load_jobs).min(self.free());
        if room == 0 {
            return;
        }
        let Backlog { worker, destination, window, .. } = &mut self.backlogs[backlog as usize];
        let (after, due_by) = match (kind, window.scan) {
            (LoadKind::Interrupted, InterruptedScan::From(after)) => (after, Time::NEVER),
            _ => (window.cursor, window.due_by),
        };
        window.load = Some(LoadUnderWay { kind, room });
        self.reserved += room;
        self.actions.push(SchedulerAction::Load(BacklogQuery {
            worker: self.workers[*worker as usize].name.clone(),
            destination: self.destinations[*destination as usize].name.clone(),
            after,
            due_by,
            // The answer may have the due jobs that are in memory already.
            limit: room + if kind == LoadKind::Window { window.timed } else { 0 },
        }));
    }

    /// Backlogs that cannot run, and those beyond their share, give up memory.
    fn make_room(&mut self, now: Time, share: usize, wanted: usize) {
        let wanted = wanted.min(self.limits.load_jobs);
        for backlog in 0..super::index(self.backlogs.len()) {
            let missing = wanted.saturating_sub(self.free());
            if missing == 0 {
                return;
            }
            let allowed = if self.closed_until(now, backlog).is_some() { 0 } else { share };
            let beyond = self.backlogs[backlog as usize].window.jobs.saturating_sub(allowed);
            if beyond > 0 {
                self.evict(now, backlog, beyond.min(missing));
            }
        }
    }

    /// Removes up to this many jobs of a backlog from memory, the youngest first.
    pub(super) fn evict(&mut self, now: Time, backlog: u32, count: usize) {
        let of_backlog = self
            .jobs
            .iter()
            .filter(|(_, job)| job.backlog == backlog && job.phase.may_leave_memory() && !job.interrupted);
        let mut ids: Vec<JobId> = of_backlog.map(|(id, _)| *id).collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.truncate(count);
        let lanes: Vec<Option<LaneId>> = ids.iter().filter_map(|id| self.jobs.get(id)).map(|job| job.lane).collect();
        for id in ids {
            self.evict_job(id, Load::WhenRoom);
        }
        for lane in lanes {
            self.promote_head(now, lane);
        }
    }

    /// Removes a job from memory. If only memory has its route, that is written first.
    pub(super) fn evict_job(&mut self, id: JobId, load: Load) {
        let Some(job) = self.remove(id) else { return };
        if job.recorded_in != job.backlog {
            let backlog = &self.backlogs[job.backlog as usize];
            let pending = PendingJob {
                id,
                worker: self.workers[backlog.worker as usize].name.clone(),
                destination: self.destinations[backlog.destination as usize].name.clone(),
                order: job.order,
                entity: job.entity,
                due: job.due,
                interrupted: false,
                alone: job.alone,
                traffic: job.traffic,
            };
            self.reroute(pending, job);
        } else if load == Load::WhenRoom || id > self.window(job.backlog).cursor {
            self.leave_in_ledger(job.backlog, id, &job);
        }
    }
}
