//! The scheduler: a plain struct that decides what runs next. It performs nothing.
//!
//! `step(now, input)` takes one thing that happened and answers with actions. A thin loop elsewhere performs them and
//! feeds back what came of it. Memory holds a window on the ledger ([`window`]); all of it can be lost at any moment and
//! loading restores it.
//!
//! What is scheduled is a job *at its next outward step*. It waits in the lane (destination, entity) of that step, one at
//! a time and first come first served; the head of a lane runs when it is due, its worker has a free slot and the gate
//! of the destination ([`gate`]) lets it. A job that failed for now keeps the head of its lane.

pub mod backlog;
mod backlog_window;
pub mod gate;
mod protocol;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::destination::GateSettings;
use crate::hash::Map;
use crate::job::JobId;
use crate::mutant::Mutant;
use crate::random::Random;
use crate::settle::DestinationHealth;
use crate::time::Time;
use crate::worker::LaneOrder;
use backlog_window::BacklogWindow;
pub use backlog_window::{LANE_JOBS_MAX, Limits, WINDOW_JOBS_MAX};
use gate::{Admission, Gate, PauseReason};
pub use protocol::{Input, PauseTarget, PendingJob, SchedulerAction, SchedulerView};

/// Names a lane: (destination, entity).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneId(u32, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobPhase {
    /// Behind another job of its lane.
    InLane,
    /// At the head, not due yet.
    Timed,
    /// At the head and due: waits for a slot.
    Ready,
    Running,
}

#[derive(Debug)]
struct ScheduledJob {
    worker: u32,
    destination: u32,
    lane: Option<LaneId>,
    due: Time,
    phase: JobPhase,
    started: Time,
    /// A load has shown it as alive while it ran. Should it end, it may have come back to life before.
    seen_alive: bool,
    /// It was to be due at once while it ran: what it is told to wait for has happened meanwhile.
    woken: bool,
}

#[derive(Debug)]
struct WorkerState {
    name: Arc<str>,
    concurrency: u32,
    in_flight: u32,
    paused: bool,
    window: BacklogWindow,
}

/// Jobs running at once over all workers, at the most.
pub const IN_FLIGHT_MAX: usize = 1_024;

/// Decides what runs next.
#[derive(Debug)]
pub struct Scheduler {
    workers: Vec<WorkerState>,
    worker_ids: Map<Arc<str>, u32>,
    gates: Vec<(Arc<str>, Gate)>,
    gate_ids: Map<Arc<str>, u32>,
    jobs: Map<JobId, ScheduledJob>,
    lanes: Map<LaneId, VecDeque<JobId>>,
    timers: BinaryHeap<Reverse<(Time, JobId)>>,
    /// Due heads by (worker, destination), so that one full worker or closed gate holds nobody else.
    ready: BTreeMap<(u32, u32), VecDeque<JobId>>,
    /// Whose turn it is, while jobs are handed out; kept for its room.
    turns: VecDeque<(u32, u32)>,
    turn: usize,
    in_flight: usize,
    draining: bool,
    random: Random,
    limits: Limits,
}

impl Scheduler {
    /// Knows nothing yet.
    pub fn new(random: Random) -> Scheduler {
        Scheduler::with_limits(random, Limits::default())
    }

    /// The same with other limits than a node's.
    pub fn with_limits(random: Random, limits: Limits) -> Scheduler {
        Scheduler {
            limits,
            workers: Vec::new(),
            worker_ids: Map::default(),
            gates: Vec::new(),
            gate_ids: Map::default(),
            jobs: Map::default(),
            lanes: Map::default(),
            timers: BinaryHeap::new(),
            ready: BTreeMap::new(),
            turns: VecDeque::new(),
            turn: 0,
            in_flight: 0,
            draining: false,
            random,
        }
    }

    /// Takes in one thing that happened and appends what to do now.
    pub fn step(&mut self, now: Time, input: Input, actions: &mut Vec<SchedulerAction>) {
        match input {
            Input::Configured { workers, destinations } => self.configure(workers, destinations),
            Input::Accepted(jobs) => {
                for job in jobs {
                    self.take_fresh(now, job);
                }
            }
            Input::Loaded { worker, jobs, more } => self.take_loaded(now, &worker, jobs, more),
            Input::LoadFailed(worker) => {
                let worker = self.worker(&worker);
                self.workers[worker as usize].window.load_failed();
            }
            Input::Requeued { worker, first } => {
                let worker = self.worker(&worker);
                self.workers[worker as usize].window.rewind(first);
            }
            Input::DueNow { job, worker } => self.wake(now, job, &worker),
            Input::Settled { job, verdict, again } => self.settle(now, job, verdict, again, actions),
            Input::Pause(target) => self.set_paused(&target, true),
            Input::Resume(target) => self.set_paused(&target, false),
            Input::Drain => self.draining = true,
            Input::Tick => {}
        }
        self.fire_timers(now);
        let gate_wake = self.dispatch(now, actions);
        for worker in self.workers.iter_mut().filter(|_| !self.draining) {
            if let Some((after, limit)) = worker.window.want_load() {
                actions.push(SchedulerAction::Load { worker: worker.name.clone(), after, limit });
            }
        }
        let timer_wake = self.timers.peek().map(|Reverse((at, _))| *at);
        if let Some(at) = gate_wake.into_iter().chain(timer_wake).min() {
            actions.push(SchedulerAction::WakeAt(at));
        }
    }

    /// What a person sees.
    pub fn view(&self, now: Time) -> SchedulerView {
        SchedulerView {
            jobs_in_memory: self.jobs.len(),
            in_flight: self.in_flight,
            gates: self.gates.iter().map(|(name, gate)| (name.to_string(), gate.view(now))).collect(),
            workers_paused: self
                .workers
                .iter()
                .filter(|worker| worker.paused)
                .map(|worker| worker.name.to_string())
                .collect(),
        }
    }

    /// Whether [`Input::Accepted`] would change nothing for a job of this worker: it stays in the ledger, as others before it.
    pub fn defers_new(&self, worker: &Arc<str>) -> bool {
        self.worker_ids.get(worker).is_some_and(|id| self.workers[*id as usize].window.defers_new())
    }

    /// The workers of which that is so.
    pub fn workers_deferring_new(&self) -> impl Iterator<Item = &Arc<str>> + Clone {
        self.workers.iter().filter(|worker| worker.window.defers_new()).map(|worker| &worker.name)
    }

    /// Whether this job is in memory. For tests and for the simulator's checks.
    pub fn holds(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// The jobs that run right now. For tests and for the simulator's checks.
    pub fn running(&self) -> impl Iterator<Item = (JobId, Option<LaneId>)> {
        self.jobs.iter().filter(|(_, entry)| entry.phase == JobPhase::Running).map(|(id, entry)| (*id, entry.lane))
    }

    fn configure(&mut self, workers: Vec<(Arc<str>, u32)>, destinations: Vec<(Arc<str>, GateSettings)>) {
        for (name, concurrency) in workers {
            let worker = self.worker(&name);
            self.workers[worker as usize].concurrency = concurrency.max(1);
        }
        for (name, settings) in destinations {
            let gate = self.gate(&name);
            self.gates[gate as usize].1.configure(settings);
        }
    }

    fn worker(&mut self, name: &Arc<str>) -> u32 {
        if let Some(id) = self.worker_ids.get(name) {
            return *id;
        }
        let id = u32::try_from(self.workers.len()).expect("fewer than 2^32 workers");
        self.workers.push(WorkerState {
            name: name.clone(),
            concurrency: 1,
            in_flight: 0,
            paused: false,
            window: BacklogWindow::new(self.limits),
        });
        self.worker_ids.insert(name.clone(), id);
        id
    }

    fn gate(&mut self, name: &Arc<str>) -> u32 {
        if let Some(id) = self.gate_ids.get(name) {
            return *id;
        }
        let id = u32::try_from(self.gates.len()).expect("fewer than 2^32 destinations");
        self.gates.push((name.clone(), Gate::new(GateSettings::default())));
        self.gate_ids.insert(name.clone(), id);
        id
    }

    /// A job that waits is due now; one that runs is when it has ended; one that is not in memory is looked for.
    fn wake(&mut self, now: Time, id: JobId, worker: &Arc<str>) {
        let Some(entry) = self.jobs.get_mut(&id) else {
            let worker = self.worker(worker);
            self.workers[worker as usize].window.rewind(id);
            return;
        };
        match entry.phase {
            JobPhase::Running => entry.woken = true,
            JobPhase::InLane => entry.due = now,
            JobPhase::Timed => {
                entry.due = now;
                self.promote(now, id);
            }
            JobPhase::Ready => {}
        }
    }

    fn set_paused(&mut self, target: &PauseTarget, paused: bool) {
        match target {
            PauseTarget::Destination(name) => {
                let gate = self.gate(name);
                let gate = &mut self.gates[gate as usize].1;
                if paused { gate.pause(PauseReason::Operator) } else { gate.resume() }
            }
            PauseTarget::Worker(name) => {
                let worker = self.worker(name);
                self.workers[worker as usize].paused = paused;
            }
        }
    }

    fn lane_of(&mut self, job: &PendingJob) -> Option<LaneId> {
        let destination = self.gate(&job.destination);
        (job.order == LaneOrder::Fifo && !Mutant::LaneIgnored.is_on()).then_some(LaneId(destination, job.entity))
    }

    fn is_full(&self, lane: LaneId) -> bool {
        self.lanes.get(&lane).is_some_and(|jobs| jobs.len() >= self.limits.lane_jobs)
    }

    /// Whether a job of this lane has to stay in the ledger for now: there is no room, or others wait there before it.
    fn stays_behind(&self, worker: u32, lane: LaneId) -> bool {
        self.is_full(lane) || self.workers[worker as usize].window.has_deferred(lane)
    }

    fn take_fresh(&mut self, now: Time, job: PendingJob) {
        let worker = self.worker(&job.worker);
        let lane = self.lane_of(&job);
        let full = lane.filter(|lane| self.is_full(*lane));
        if self.jobs.contains_key(&job.id) || !self.workers[worker as usize].window.admits_new(job.id, lane) {
            return;
        }
        if let Some(lane) = full {
            self.workers[worker as usize].window.defer(job.id, lane);
            return;
        }
        self.enter(now, worker, job);
    }

    fn take_loaded(&mut self, now: Time, worker: &Arc<str>, jobs: Vec<PendingJob>, more: bool) {
        let worker = self.worker(worker);
        let last = jobs.last().map(|job| job.id);
        for job in jobs {
            if let Some(entry) = self.jobs.get_mut(&job.id) {
                entry.seen_alive |= entry.phase == JobPhase::Running;
                continue;
            }
            if self.workers[worker as usize].window.is_outdated(job.id) {
                continue;
            }
            if let Some(lane) = self.lane_of(&job)
                && self.stays_behind(worker, lane)
            {
                self.workers[worker as usize].window.defer(job.id, lane);
                continue;
            }
            self.enter(now, worker, job);
        }
        self.workers[worker as usize].window.loaded(last, more);
    }

    /// A job comes into memory.
    fn enter(&mut self, now: Time, worker: u32, job: PendingJob) {
        self.workers[worker as usize].window.held += 1;
        self.place(now, worker, job);
    }

    /// A job takes its place: at the end of its lane, or at once where there is no lane.
    fn place(&mut self, now: Time, worker: u32, job: PendingJob) {
        let destination = self.gate(&job.destination);
        let lane = self.lane_of(&job);
        let head = match lane {
            Some(lane) => {
                let jobs = self.lanes.entry(lane).or_default();
                jobs.push_back(job.id);
                jobs.len() == 1
            }
            None => true,
        };
        self.jobs.insert(
            job.id,
            ScheduledJob {
                worker,
                destination,
                lane,
                due: job.due,
                phase: JobPhase::InLane,
                started: Time(0),
                seen_alive: false,
                woken: false,
            },
        );
        if head {
            self.promote(now, job.id);
        }
    }

    /// The head of a lane waits for its time, or for a slot.
    fn promote(&mut self, now: Time, id: JobId) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        if entry.due <= now {
            entry.phase = JobPhase::Ready;
            self.ready.entry((entry.worker, entry.destination)).or_default().push_back(id);
        } else {
            entry.phase = JobPhase::Timed;
            if Mutant::TimerLost.is_on() && id.0 % 16 == 0 {
                return;
            }
            self.timers.push(Reverse((entry.due, id)));
        }
    }

    fn fire_timers(&mut self, now: Time) {
        while let Some(Reverse((at, id))) = self.timers.peek().copied() {
            let current = self.jobs.get(&id).is_some_and(|entry| entry.phase == JobPhase::Timed && entry.due == at);
            if current && at > now {
                return;
            }
            self.timers.pop();
            if current {
                self.promote(now, id);
            }
        }
    }

    /// Runs what may run. Answers when a gate opens by itself.
    fn dispatch(&mut self, now: Time, actions: &mut Vec<SchedulerAction>) -> Option<Time> {
        let mut wake: Option<Time> = None;
        if self.ready.is_empty() || self.draining {
            return None;
        }
        self.turn = self.turn.wrapping_add(1);
        let mut open = std::mem::take(&mut self.turns);
        open.extend(self.ready.keys().copied());
        open.rotate_left(self.turn % self.ready.len());
        // One from each in turn, so that no worker waits behind another's backlog.
        while let Some(key) = open.pop_front() {
            if self.in_flight >= self.limits.in_flight {
                break;
            }
            let worker = &mut self.workers[key.0 as usize];
            let paused = worker.paused && !Mutant::WorkerPauseIgnored.is_on();
            let full = worker.in_flight >= worker.concurrency && !Mutant::WorkerConcurrencyIgnored.is_on();
            if paused || full {
                continue;
            }
            let (name, gate) = &mut self.gates[key.1 as usize];
            match gate.admit(now) {
                Admission::Go => {}
                Admission::NotBefore(at) => {
                    wake = Some(wake.map_or(at, |earlier| earlier.min(at)));
                    continue;
                }
                Admission::Full | Admission::Paused => continue,
            }
            let Some(queue) = self.ready.get_mut(&key) else { continue };
            let Some(id) = queue.pop_front() else { continue };
            if queue.is_empty() {
                self.ready.remove(&key);
            } else {
                open.push_back(key);
            }
            let Some(entry) = self.jobs.get_mut(&id) else { continue };
            entry.phase = JobPhase::Running;
            entry.started = now;
            worker.in_flight += 1;
            self.in_flight += 1;
            if let Some(change) = gate.start(now) {
                actions.push(SchedulerAction::Gate(name.clone(), change));
            }
            actions.push(SchedulerAction::Run(id));
        }
        open.clear();
        self.turns = open;
        wake
    }

    fn settle(
        &mut self,
        now: Time,
        id: JobId,
        verdict: Option<DestinationHealth>,
        again: Option<PendingJob>,
        actions: &mut Vec<SchedulerAction>,
    ) {
        let Some(entry) = self.jobs.get_mut(&id).filter(|entry| entry.phase == JobPhase::Running) else {
            return;
        };
        let (worker, destination, started) = (entry.worker, entry.destination, entry.started);
        self.in_flight -= 1;
        self.workers[worker as usize].in_flight -= 1;
        let (name, gate) = &mut self.gates[destination as usize];
        if let Some(change) = gate.finish(now, started, verdict.unwrap_or(DestinationHealth::Silent), &mut self.random)
        {
            actions.push(SchedulerAction::Gate(name.clone(), change));
        }
        let woken = self.jobs[&id].woken;
        let again = again.map(|job| if woken { PendingJob { due: now, ..job } } else { job });
        match again {
            Some(job)
                if self.lane_of(&job) == self.jobs[&id].lane
                    && self.gate(&job.destination) == destination
                    && !Mutant::RetryGoesToTheBackOfTheLane.is_on() =>
            {
                // It keeps the head of its lane: those behind it were accepted later.
                let entry = self.jobs.get_mut(&id).expect("it was there a moment ago");
                (entry.due, entry.seen_alive, entry.woken) = (job.due, false, false);
                self.promote(now, id);
            }
            Some(job) => {
                self.leave_lane(now, id);
                let lane = self.lane_of(&job);
                let full = lane.is_some_and(|lane| self.is_full(lane));
                let window = &mut self.workers[worker as usize].window;
                // Without a verdict it was only handed on: the ledger does not know its new lane, and could not bring it back
                // to it.
                if verdict.is_some() && lane.is_some_and(|lane| !window.takes_moved(job.id, lane, full)) {
                    window.evicted(job.id);
                } else {
                    self.place(now, worker, job);
                }
            }
            None => {
                let seen_alive = self.jobs.get(&id).is_some_and(|entry| entry.seen_alive);
                self.leave_lane(now, id);
                let window = &mut self.workers[worker as usize].window;
                window.evicted(id);
                if seen_alive {
                    window.rewind(id);
                }
            }
        }
    }

    /// A job that runs gives up the head of its lane; the next one moves up.
    fn leave_lane(&mut self, now: Time, id: JobId) {
        let Some(entry) = self.jobs.remove(&id) else { return };
        let Some(lane) = entry.lane else { return };
        let Some(jobs) = self.lanes.get_mut(&lane) else { return };
        if jobs.front() == Some(&id) {
            jobs.pop_front();
        }
        let (next, left) = (jobs.front().copied(), jobs.len());
        if next.is_none() {
            self.lanes.remove(&lane);
        }
        // Whoever left jobs of this lane in the ledger: it need not be the worker whose job has just gone.
        for worker in &mut self.workers {
            worker.window.lane_shrank(lane, left);
        }
        if let Some(next) = next {
            self.promote(now, next);
        }
    }
}

#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod tests;
