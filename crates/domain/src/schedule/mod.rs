//! The scheduler: a plain struct that decides what runs next. It performs nothing.
//!
//! [`Scheduler::step`] takes one input and answers with actions. A loop elsewhere performs them and passes the results back as
//! inputs. Memory is a cache of the ledger: all of it can be lost at any moment, and loading restores it.
//!
//! A job is scheduled at its next external step. It waits in the lane (destination, entity) of that step, one at a time and
//! ascending by id; the head of a lane runs when it is due, its worker has a free slot for the destination and the gate of the
//! destination ([`gate`]) admits it. Jobs whose internal steps come first wait in lanes (worker, entity) and pass no gate.
//!
//! Memory is divided by (worker, destination): each such backlog has a window ([`backlog_window`]) and a fair share of the total.
//! A backlog that cannot run is not loaded. A job that is due after the time up to which its backlog is loaded is *deferred*: it
//! leaves memory together with the jobs of its backlog behind it in its lane, and the ledger says when to load it again.
//!
//! Jobs of one worker keep their order in a lane. Jobs of several workers share the lanes of a destination, so that no two run at
//! once for one entity; they run in the order of their ids as far as they are in memory.

pub mod backlog;
mod backlog_window;
mod budget;
mod dispatch;
pub mod gate;
mod lane;
mod latency;
mod load;
mod pace;
mod place;
mod protocol;
mod run_end;
mod view;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::call_budget::{Reservation, Traffic};
use crate::destination::GateSettings;
use crate::hash::{Map, Set};
use crate::job::JobId;
use crate::mutant::Mutant;
use crate::random::Random;
use crate::settle::DestinationHealth;
use crate::time::Time;
use crate::worker::LaneOrder;
use backlog_window::BacklogWindow;
pub use backlog_window::{IN_FLIGHT_MAX, JOBS_MAX, LANE_JOBS_MAX, LOAD_JOBS_MAX, Limits};
use gate::{Gate, PauseReason};
pub use lane::LaneId;
use lane::Lanes;
pub use protocol::{
    AfterRun, BacklogView, Input, JobWait, PauseTarget, PendingJob, SchedulerAction, SchedulerView, WaitsFor,
};
use run_end::CallReport;

/// Jobs that are due within this time are loaded and kept in memory.
pub const HORIZON: Duration = Duration::from_secs(30);
/// Wait before a failed read or write of the ledger is repeated, and before a lost job is read again.
pub const RETRY_DELAY: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobPhase {
    /// Behind another job of its lane.
    InLane,
    /// At the head of its lane, not due yet.
    Timed,
    /// At the head of its lane and due: waits for a slot.
    Ready,
    /// At the head of its lane and interrupted: waits to be settled. Takes no slot.
    Interrupted,
    Running(Slot),
    /// Its run was lost: it is read again after a delay.
    Lost,
    Reloading,
    /// Its route is being written; then it leaves memory.
    Rerouting,
}

impl JobPhase {
    /// Whether the job keeps the head of its lane, whatever comes.
    fn holds_lane(self) -> bool {
        matches!(self, JobPhase::Interrupted | JobPhase::Running(_) | JobPhase::Lost | JobPhase::Reloading)
    }

    fn may_leave_memory(self) -> bool {
        matches!(self, JobPhase::InLane | JobPhase::Timed | JobPhase::Ready)
    }
}

/// Whether a run takes a slot of its worker and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// That of this call.
    Taken(CallId),
    NotNeeded,
}

/// Number of a call since the start.
type CallId = u64;

/// A slot that is taken: one call to the destination, for one job or several.
#[derive(Debug)]
struct CallInFlight {
    backlog: u32,
    started: Time,
    /// Jobs whose runs have not ended.
    jobs: usize,
    /// What the runs that have ended say about the destination.
    health: Option<DestinationHealth>,
    took: Option<Duration>,
    /// Calls that the budget of the destination allows it, and those that it has made. Unless they are reported, it has made all.
    reserved: Option<Reservation>,
    made: Option<u32>,
}

#[derive(Debug)]
struct ScheduledJob {
    backlog: u32,
    lane: Option<LaneId>,
    order: LaneOrder,
    entity: u64,
    due: Time,
    /// The ledger has the job as retrying or waiting.
    timed: bool,
    /// The backlog in which the ledger has the job. If it is another one, the job's route is known to memory alone.
    recorded_in: u32,
    interrupted: bool,
    phase: JobPhase,
    /// Place among the due jobs of its backlog.
    turn: u64,
    /// Shares no call with another job.
    alone: bool,
    traffic: Traffic,
    /// Jobs of its worker were queued again while it ran: it may be one of them.
    requeued: bool,
    /// The ledger made it due at once since it was read last.
    due_now: bool,
    /// The ledger made it due at once while it was unsettled.
    wait_ended: bool,
    /// `due_by` of the first load that ended while it was unsettled.
    loaded_by: Option<Time>,
}

#[derive(Debug)]
struct WorkerState {
    name: Arc<str>,
    concurrency: u32,
    paused: bool,
}

#[derive(Debug)]
struct DestinationState {
    name: Arc<str>,
    /// `None` for internal steps.
    gate: Option<Gate>,
    /// Its backlogs.
    backlogs: Vec<u32>,
}

/// The live jobs of one worker and destination.
#[derive(Debug)]
struct Backlog {
    worker: u32,
    destination: u32,
    /// Calls in flight: slots that are taken.
    in_flight: u32,
    /// Jobs that run with these slots.
    running: u32,
    window: BacklogWindow,
}

/// Search for backlogs in the ledger.
#[derive(Debug, Default)]
struct Search {
    wanted: bool,
    under_way: bool,
    retry_at: Option<Time>,
}

/// Decides what runs next.
#[derive(Debug)]
pub struct Scheduler {
    workers: Vec<WorkerState>,
    worker_ids: Map<Arc<str>, u32>,
    destinations: Vec<DestinationState>,
    destination_ids: Map<Arc<str>, u32>,
    backlogs: Vec<Backlog>,
    backlog_ids: Map<(u32, u32), u32>,
    /// Jobs that one call may carry, by worker and destination; one where nothing is said.
    batches: Map<(u32, u32), u32>,
    calls: Map<CallId, CallInFlight>,
    call_count: CallId,
    jobs: Map<JobId, ScheduledJob>,
    /// Jobs that run, or whose run was lost: the ledger may have another state of them than memory.
    unsettled: Set<JobId>,
    lanes: Lanes,
    timers: BinaryHeap<Reverse<(Time, JobId)>>,
    /// Due heads of lanes by backlog, in the order in which they became due.
    ready: BTreeMap<u32, BTreeSet<(u64, JobId)>>,
    ready_count: u64,
    interrupted: VecDeque<JobId>,
    /// Backlogs in the order in which they get a slot; kept for its allocation.
    turns: VecDeque<u32>,
    turn: usize,
    in_flight: usize,
    /// Room in memory that is reserved for loads under way.
    reserved: usize,
    search: Search,
    draining: bool,
    random: Random,
    limits: Limits,
    actions: Vec<SchedulerAction>,
}

impl Scheduler {
    pub fn new(random: Random) -> Scheduler {
        Scheduler::with_limits(random, Limits::default())
    }

    pub fn with_limits(random: Random, limits: Limits) -> Scheduler {
        Scheduler {
            workers: Vec::new(),
            worker_ids: Map::default(),
            destinations: Vec::new(),
            destination_ids: Map::default(),
            backlogs: Vec::new(),
            backlog_ids: Map::default(),
            batches: Map::default(),
            calls: Map::default(),
            call_count: 0,
            jobs: Map::default(),
            unsettled: Set::default(),
            lanes: Lanes::default(),
            timers: BinaryHeap::new(),
            ready: BTreeMap::new(),
            ready_count: 0,
            interrupted: VecDeque::new(),
            turns: VecDeque::new(),
            turn: 0,
            in_flight: 0,
            reserved: 0,
            search: Search { wanted: true, ..Search::default() },
            draining: false,
            random,
            limits,
            actions: Vec::new(),
        }
    }

    /// Takes one input and appends the actions that follow from it. `now` is the time of the steady clock.
    pub fn step(&mut self, now: Time, input: Input, actions: &mut Vec<SchedulerAction>) {
        self.take(now, input);
        self.fire_timers(now);
        let wakes = [
            self.dispatch(now),
            self.plan_charges(now),
            self.plan_loads(now),
            self.plan_search(now),
            self.next_timer(),
        ];
        actions.append(&mut self.actions);
        if let Some(at) = wakes.into_iter().flatten().min() {
            actions.push(SchedulerAction::WakeAt(at));
        }
    }

    fn take(&mut self, now: Time, input: Input) {
        match input {
            Input::Configured { workers, destinations, batches } => {
                self.configure(workers, destinations);
                self.configure_batches(&batches);
            }
            Input::BacklogsFound(found) => self.backlogs_found(&found),
            Input::FindFailed => self.search_failed(now),
            Input::Accepted(jobs) => self.take_new(now, jobs),
            Input::Missed { worker, destination, first } => {
                let backlog = self.backlog(&worker, &destination);
                self.window(backlog).rewind(first);
            }
            Input::Loaded { query, page } => self.take_loaded(now, &query, page),
            Input::LoadFailed { worker, destination } => self.load_failed(now, &worker, &destination),
            Input::Requeued { worker, first } => self.requeued(&worker, first),
            Input::DueNow { job, worker } => self.due_now(now, job, &worker),
            Input::Called { job, calls, reported } => self.called(now, job, calls, reported),
            Input::Charged { destination, answer } => self.charged(now, &destination, answer),
            Input::Settled { job, health, took, after } => self.run_ended(now, job, CallReport { health, took }, after),
            Input::RunLost(job) => self.run_lost(now, job),
            Input::Reloaded { job, found } => self.reloaded(now, job, found),
            Input::ReloadFailed(job) => self.reload_failed(now, job),
            Input::Rerouted(job) => self.rerouted(job),
            Input::RerouteFailed(job) => self.reroute_failed(now, job),
            Input::Pause(target) => self.pause(now, &target),
            Input::PauseUnauthorized(name) => self.pause_destination(&name, PauseReason::Auth),
            Input::Resume(target) => self.resume(&target),
            Input::Drain => self.draining = true,
            Input::Tick => {}
        }
    }

    /// Whether [`Input::Accepted`] would change nothing for a job of this backlog: it stays in the ledger, as others before it.
    pub fn defers_new(&self, worker: &Arc<str>, destination: &Arc<str>) -> bool {
        let (Some(worker), Some(destination)) = (self.worker_ids.get(worker), self.destination_ids.get(destination))
        else {
            return false;
        };
        let backlog = self.backlog_ids.get(&(*worker, *destination));
        backlog.is_some_and(|backlog| self.backlogs[*backlog as usize].window.defers_new())
    }

    /// The backlogs, as worker and destination, for which [`Scheduler::defers_new`] holds.
    pub fn deferring_new(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> + Clone {
        let deferring = self.backlogs.iter().filter(|backlog| backlog.window.defers_new());
        deferring.map(|backlog| {
            let worker = &self.workers[backlog.worker as usize].name;
            (worker, &self.destinations[backlog.destination as usize].name)
        })
    }

    /// Whether this job is in memory.
    pub fn holds(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    pub fn jobs_in_memory(&self) -> usize {
        self.jobs.len()
    }

    /// The jobs of a backlog that are in memory.
    pub fn in_backlog(&self, worker: &Arc<str>, destination: &Arc<str>) -> impl Iterator<Item = JobId> {
        let ids = self.worker_ids.get(worker).zip(self.destination_ids.get(destination));
        let backlog = ids.and_then(|(worker, destination)| self.backlog_ids.get(&(*worker, *destination)).copied());
        let jobs = self.jobs.iter().filter(move |(_, job)| Some(job.backlog) == backlog);
        jobs.map(|(id, _)| *id)
    }

    /// The destination whose slot a job in memory waits for or has; empty for internal steps.
    pub fn destination_of(&self, job: JobId) -> Option<Arc<str>> {
        let backlog = &self.backlogs[self.jobs.get(&job)?.backlog as usize];
        Some(self.destinations[backlog.destination as usize].name.clone())
    }

    /// The jobs that run now, with their lanes.
    pub fn running(&self) -> impl Iterator<Item = (JobId, Option<LaneId>)> {
        let unsettled = self.unsettled.iter().filter_map(|id| Some((*id, self.jobs.get(id)?)));
        let running = unsettled.filter(|(_, job)| matches!(job.phase, JobPhase::Running(_)));
        running.map(|(id, job)| (id, job.lane))
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn configure(&mut self, workers: Vec<(Arc<str>, u32)>, destinations: Vec<(Arc<str>, GateSettings)>) {
        for (name, concurrency) in workers {
            let worker = self.worker(&name);
            self.workers[worker as usize].concurrency = concurrency.max(1);
        }
        for (name, settings) in destinations {
            if let Some(gate) = self.gate(&name) {
                gate.configure(settings);
            }
        }
    }

    fn configure_batches(&mut self, batches: &[(Arc<str>, Arc<str>, u32)]) {
        self.batches.clear();
        for (worker, destination, max) in batches {
            let pair = (self.worker(worker), self.destination(destination));
            let most = self.batches.entry(pair).or_insert(1);
            *most = (*most).max(*max);
        }
    }

    fn worker(&mut self, name: &Arc<str>) -> u32 {
        if let Some(id) = self.worker_ids.get(name) {
            return *id;
        }
        let id = index(self.workers.len());
        self.workers.push(WorkerState { name: name.clone(), concurrency: 1, paused: false });
        self.worker_ids.insert(name.clone(), id);
        id
    }

    fn destination(&mut self, name: &Arc<str>) -> u32 {
        if let Some(id) = self.destination_ids.get(name) {
            return *id;
        }
        let id = index(self.destinations.len());
        let gate = (!name.is_empty()).then(|| Gate::new(GateSettings::default()));
        self.destinations.push(DestinationState { name: name.clone(), gate, backlogs: Vec::new() });
        self.destination_ids.insert(name.clone(), id);
        id
    }

    fn gate(&mut self, name: &Arc<str>) -> Option<&mut Gate> {
        let destination = self.destination(name);
        self.destinations[destination as usize].gate.as_mut()
    }

    /// The backlog of a worker and destination. A new one is loaded before any job of it runs.
    fn backlog(&mut self, worker: &Arc<str>, destination: &Arc<str>) -> u32 {
        let (worker, destination) = (self.worker(worker), self.destination(destination));
        if let Some(id) = self.backlog_ids.get(&(worker, destination)) {
            return *id;
        }
        let id = index(self.backlogs.len());
        self.destinations[destination as usize].backlogs.push(id);
        self.backlogs.push(Backlog { worker, destination, in_flight: 0, running: 0, window: BacklogWindow::new() });
        self.backlog_ids.insert((worker, destination), id);
        id
    }

    fn window(&mut self, backlog: u32) -> &mut BacklogWindow {
        &mut self.backlogs[backlog as usize].window
    }

    fn backlogs_of(&self, worker: u32) -> Vec<u32> {
        let of_worker = |id: &u32| self.backlogs[*id as usize].worker == worker;
        (0..index(self.backlogs.len())).filter(of_worker).collect()
    }

    fn lane_of(&self, backlog: u32, job: &PendingJob) -> Option<LaneId> {
        let Backlog { worker, destination, .. } = self.backlogs[backlog as usize];
        let is_internal = self.destinations[destination as usize].gate.is_none();
        let lane = LaneId { destination, worker: is_internal.then_some(worker), entity: job.entity };
        (job.order == LaneOrder::Fifo && !Mutant::LaneIgnored.is_on()).then_some(lane)
    }

    fn pause(&mut self, now: Time, target: &PauseTarget) {
        match target {
            PauseTarget::Destination(name) => self.pause_destination(name, PauseReason::Operator),
            PauseTarget::Worker(name) => {
                let worker = self.worker(name);
                self.workers[worker as usize].paused = true;
                for backlog in self.backlogs_of(worker) {
                    self.evict(now, backlog, usize::MAX);
                }
            }
        }
    }

    fn pause_destination(&mut self, name: &Arc<str>, reason: PauseReason) {
        if let Some(gate) = self.gate(name) {
            gate.pause(reason);
        }
    }

    fn resume(&mut self, target: &PauseTarget) {
        match target {
            PauseTarget::Destination(name) => {
                if let Some(gate) = self.gate(name) {
                    gate.resume();
                }
            }
            PauseTarget::Worker(name) => {
                let worker = self.worker(name);
                self.workers[worker as usize].paused = false;
            }
        }
    }

    /// Finished jobs of a worker are queued again, in whichever backlog: those that memory knows are read again, others searched.
    fn requeued(&mut self, worker: &Arc<str>, first: JobId) {
        let worker = self.worker(worker);
        for backlog in self.backlogs_of(worker) {
            self.window(backlog).rewind(first);
        }
        for id in &self.unsettled {
            if let Some(job) = self.jobs.get_mut(id)
                && *id >= first
                && self.backlogs[job.backlog as usize].worker == worker
            {
                job.requeued = true;
            }
        }
        self.search.wanted = true;
    }

    fn due_now(&mut self, now: Time, id: JobId, worker: &Arc<str>) {
        let Some(job) = self.jobs.get_mut(&id) else {
            let worker = self.worker(worker);
            for backlog in self.backlogs_of(worker) {
                self.window(backlog).job_deferred(now);
            }
            return;
        };
        match job.phase {
            JobPhase::InLane => job.due = now,
            JobPhase::Timed => {
                job.due = now;
                self.promote(now, id);
            }
            JobPhase::Ready => {}
            _ => job.due_now = true,
        }
    }

    fn backlogs_found(&mut self, found: &[(Arc<str>, Arc<str>)]) {
        self.search.under_way = false;
        for (worker, destination) in found {
            self.backlog(worker, destination);
        }
    }

    fn search_failed(&mut self, now: Time) {
        self.search = Search { wanted: true, under_way: false, retry_at: Some(now + RETRY_DELAY) };
    }

    fn plan_search(&mut self, now: Time) -> Option<Time> {
        if !self.search.wanted || self.search.under_way || self.draining {
            return None;
        }
        if let Some(at) = self.search.retry_at.filter(|at| *at > now) {
            return Some(at);
        }
        self.search = Search { wanted: false, under_way: true, retry_at: None };
        self.actions.push(SchedulerAction::FindBacklogs);
        None
    }
}

fn index(len: usize) -> u32 {
    u32::try_from(len).expect("fewer than 2^32 names in a configuration")
}

#[cfg(test)]
mod gate_tests;
#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod pace_tests;
#[cfg(test)]
mod starvation_tests;
#[cfg(test)]
mod test_world;
#[cfg(test)]
mod tests;
