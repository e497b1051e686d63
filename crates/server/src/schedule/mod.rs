//! Schedule: what runs next.
//!
//! In: new durable jobs, ends of runs, configuration, pauses, time.
//! Out: jobs handed to work, one at a time per lane and never more than there are slots.
//! Touches: ledger: backlogs, jobs with their events (read), routes, auth pauses.
//! Never: knows what a step means; decides anything (that is [`sluice_domain::schedule`]).
//! If the process dies here: nothing is lost. Memory is a cache of the ledger, and loading restores it.

pub(crate) mod cron;
mod deferred_backlogs;
mod gate_changes;
mod handle;
mod job_cache;
mod tasks;

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_connectors::Quota;
use sluice_domain::call_budget::UsageReport;
use sluice_domain::hash::{Map, Set};
use sluice_domain::job::JobId;
use sluice_domain::random::Random;
use sluice_domain::run::{LoadedJob, RunResult};
use sluice_domain::schedule::backlog::BacklogQuery;
use sluice_domain::schedule::{Input, Limits, PendingJob, Scheduler, SchedulerAction};
use sluice_domain::time::Time;
use sluice_domain::worker::Worker;
use sluice_ledger::ChargeCalls;

use crate::work::WorkContext;
pub(crate) use handle::{Inbox, SchedulerHandle};
use handle::{Message, Page};
use job_cache::{BODY_BYTES_MAX, JobCache};
use tasks::Tasks;

/// Messages that are taken from the inbox before the jobs that they start are read, in one read.
const MESSAGES_MAX: usize = 256;

/// The loop around the scheduler: performs its actions and reports their results.
#[derive(Debug)]
pub(crate) struct Loop {
    context: Arc<WorkContext>,
    tasks: Tasks,
    inbox: Inbox,
    scheduler: Scheduler,
    cache: JobCache,
    /// Jobs that are to run, by slot; the events of some are not in memory.
    unread: Vec<Vec<JobId>>,
    wake: Option<Time>,
    stopping: bool,
}

impl Loop {
    pub(crate) fn new(context: WorkContext, handle: SchedulerHandle, inbox: Inbox, limits: Limits) -> Loop {
        let scheduler = Scheduler::with_limits(Random::seeded(context.clock.wall().0 as u64), limits);
        let context = Arc::new(context);
        Loop {
            tasks: Tasks { context: context.clone(), handle },
            context,
            inbox,
            scheduler,
            cache: JobCache::default(),
            unread: Vec::new(),
            wake: None,
            stopping: false,
        }
    }

    /// Runs until it is told to stop and the last job has ended. Pauses that are in the inbox already count from the beginning: no
    /// job is loaded before.
    pub(crate) async fn run(mut self) {
        self.configure();
        let mut messages = Vec::new();
        while !(self.stopping && self.scheduler.in_flight() == 0) {
            let timer = self.wake.map(|at| tokio::time::Instant::from_std(self.context.clock.instant(at)));
            let wait = async { tokio::time::sleep_until(timer.unwrap_or_else(tokio::time::Instant::now)).await };
            tokio::select! {
                any = self.inbox.receive(&mut messages, MESSAGES_MAX) => if !any { return },
                () = wait, if timer.is_some() => self.step(Input::Tick),
            }
            for message in messages.drain(..) {
                self.receive(message);
            }
            if !self.unread.is_empty() {
                self.tasks.read(std::mem::take(&mut self.unread));
            }
        }
        self.give_back_charges().await;
    }

    /// Calls of budgets that are charged and not used count again after a restart. Without it they are lost, as after a crash.
    async fn give_back_charges(&self) {
        for (destination, charge) in self.scheduler.unused_charges(self.context.clock.now()) {
            let charge = ChargeCalls { destination: destination.clone(), charge };
            if let Err(error) = self.context.ledger.charge_calls(charge).await {
                tracing::warn!(%destination, %error, "unused calls of the budget were not given back");
            }
        }
    }

    fn configure(&mut self) {
        let active = self.context.revisions.current();
        let workers = active.config.workers.values();
        let destinations = active.config.destinations.values();
        self.step(Input::Configured {
            workers: workers.map(|worker| (Arc::from(worker.name.as_str()), worker.concurrency)).collect(),
            destinations: destinations.map(|to| (Arc::from(to.name.as_str()), to.gate.clone())).collect(),
            batches: active.config.workers.values().flat_map(|worker| batches(worker)).collect(),
        });
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::New(jobs) => self.new_jobs(jobs),
            Message::Dropped => {
                for ((worker, destination), first) in self.tasks.handle.notices.take_dropped() {
                    self.step(Input::Missed { worker, destination, first });
                }
            }
            Message::BacklogsFound(Ok(found)) => {
                let found = found.into_iter().map(|lane| (lane.worker, lane.destination));
                self.step(Input::BacklogsFound(found.collect()));
            }
            Message::BacklogsFound(Err(error)) => {
                tracing::warn!(%error, "the backlogs could not be read; trying again");
                self.step(Input::FindFailed);
            }
            Message::Loaded(query, Ok(page)) => self.loaded(query, page),
            Message::Loaded(BacklogQuery { worker, destination, .. }, Err(error)) => {
                tracing::warn!(%worker, %destination, %error, "a backlog could not be loaded; trying again");
                self.step(Input::LoadFailed { worker, destination });
            }
            Message::Read(groups, read) => self.read(groups, read),
            Message::Ended(id, result, calls) => {
                self.called(id, calls);
                self.ended(id, result);
            }
            Message::Charged(destination, rows) => {
                let answer = rows.map(|rows| (rows, self.context.clock.ledger_time()));
                self.step(Input::Charged { destination, answer });
            }
            Message::Reloaded(id, Ok(found)) => self.reloaded(id, found),
            Message::Reloaded(id, Err(error)) => {
                tracing::error!(job = %id, %error, "the job could not be read; trying again");
                self.step(Input::ReloadFailed(id));
            }
            Message::Rerouted(id, true) => self.step(Input::Rerouted(id)),
            Message::Rerouted(id, false) => self.step(Input::RerouteFailed(id)),
            Message::Reconfigured => self.configure(),
            Message::Requeued(jobs) => self.requeued(jobs),
            Message::DueNow(jobs) => {
                for (job, worker) in jobs {
                    self.step(Input::DueNow { job, worker });
                }
            }
            Message::Pause(target) => self.step(Input::Pause(target)),
            Message::PauseUnauthorized(name) => self.step(Input::PauseUnauthorized(name)),
            Message::Resume(target) => self.step(Input::Resume(target)),
            Message::View(reply) => drop(reply.send(self.scheduler.view(self.context.clock.now()))),
            Message::Waits(jobs, reply) => {
                let now = self.context.clock.now();
                let waits = jobs.iter().map(|job| self.scheduler.wait_of(now, job)).collect();
                drop(reply.send((waits, self.scheduler.view(now))));
            }
            Message::Stop => {
                self.stopping = true;
                self.step(Input::Drain);
            }
        }
    }

    fn new_jobs(&mut self, mut jobs: Vec<LoadedJob>) {
        self.tasks.handle.notices.taken(jobs.len());
        jobs.retain(|new| !self.scheduler.defers_new(&new.job.worker, &new.job.destination));
        let pending: Vec<PendingJob> = jobs.iter().map(|new| PendingJob::of(&new.job)).collect();
        let ids: Vec<JobId> = pending.iter().map(|job| job.id).collect();
        for new in jobs {
            if !self.scheduler.holds(new.job.id) {
                self.cache.put(new);
            }
        }
        if !pending.is_empty() {
            self.step(Input::Accepted(pending));
            self.forget_unless_held(ids);
        }
    }

    fn loaded(&mut self, query: BacklogQuery, page: Page) {
        let Page { page, loaded } = page;
        let pending = page.pending();
        let mut ids = Vec::with_capacity(page.queued.len() + page.due.len());
        for job in page.due.into_iter().chain(page.queued) {
            if !self.scheduler.holds(job.id) {
                ids.push(job.id);
                self.cache.put_record(job);
            }
        }
        for loaded in loaded {
            self.cache.complete(loaded);
        }
        self.step(Input::Loaded { query, page: pending });
        self.forget_unless_held(ids);
    }

    fn forget_unless_held(&mut self, ids: Vec<JobId>) {
        for id in ids {
            if !self.scheduler.holds(id) {
                self.cache.remove(id);
            }
        }
    }

    /// Jobs that are to run have been read. One that has changed since the scheduler decided about it is reloaded.
    fn read(&mut self, groups: Vec<Vec<JobId>>, read: Result<Vec<LoadedJob>, sluice_ledger::Error>) {
        let loaded = read.unwrap_or_else(|error| {
            let jobs: usize = groups.iter().map(Vec::len).sum();
            tracing::error!(%error, jobs, "jobs could not be read; reloading them");
            vec![]
        });
        let mut loaded: Map<JobId, LoadedJob> = loaded.into_iter().map(|loaded| (loaded.job.id, loaded)).collect();
        let mut missing = Vec::new();
        for group in groups {
            let read = group.into_iter().filter_map(|id| {
                let found = loaded.remove(&id).filter(|loaded| self.cache.matches(&loaded.job));
                missing.extend(found.is_none().then_some(id));
                found
            });
            let read: Vec<LoadedJob> = read.collect();
            self.start(read);
        }
        for id in missing {
            self.step(Input::RunLost(id));
        }
    }

    /// The slot of a job has made so many calls by now.
    fn called(&mut self, job: JobId, calls: Option<u32>) {
        let Some(calls) = calls else { return };
        let destination = self.scheduler.destination_of(job).unwrap_or_default();
        let quota = self.context.revisions.current().connectors.quota(&destination);
        let reported = quota.map(|Quota { used, limit }| UsageReport { used, limit });
        self.step(Input::Called { job, calls, reported });
    }

    fn ended(&mut self, id: JobId, result: Option<Box<RunResult>>) {
        let input = result.as_ref().map_or(Input::RunLost(id), |result| Input::of_run(id, result));
        match result.map(|result| *result) {
            // Its effects may have changed: they are read when it runs again.
            Some(RunResult::Ended { job, .. } | RunResult::Released { job, .. }) if job.state.is_live() => {
                self.cache.put_record(job);
            }
            _ => self.cache.remove(id),
        }
        self.step(input);
        self.forget_unless_held(vec![id]);
    }

    fn reloaded(&mut self, id: JobId, found: Option<Box<LoadedJob>>) {
        let pending = found.as_ref().map(|loaded| PendingJob::of(&loaded.job));
        match found {
            Some(loaded) => self.cache.put(*loaded),
            None => self.cache.remove(id),
        }
        self.step(Input::Reloaded { job: id, found: pending });
        self.forget_unless_held(vec![id]);
    }

    fn requeued(&mut self, jobs: Vec<(JobId, Arc<str>)>) {
        let mut firsts = BTreeMap::<Arc<str>, JobId>::new();
        for (id, worker) in jobs {
            firsts.entry(worker).and_modify(|first| *first = (*first).min(id)).or_insert(id);
        }
        for (worker, first) in firsts {
            self.step(Input::Requeued { worker, first });
        }
    }

    fn step(&mut self, input: Input) {
        let mut actions = Vec::new();
        self.scheduler.step(self.context.clock.now(), input, &mut actions);
        // Before anything is read: see `DeferredBacklogs`.
        self.tasks.handle.deferred.set(self.scheduler.deferring_new());
        self.wake = None;
        for action in actions {
            self.perform(action);
        }
        self.cache.sweep(self.scheduler.jobs_in_memory(), |id| self.scheduler.holds(id));
    }

    fn perform(&mut self, action: SchedulerAction) {
        match action {
            SchedulerAction::Run(jobs) => match jobs.iter().map(|id| self.cache.loaded(*id)).collect() {
                Some(loaded) => self.start(loaded),
                None => self.unread.push(jobs),
            },
            SchedulerAction::Load(query) => self.load(query),
            SchedulerAction::FindBacklogs => self.tasks.find_backlogs(),
            SchedulerAction::Reload(id) => self.tasks.reload(id),
            SchedulerAction::Reroute(job) => match self.cache.record(job.id) {
                Some(record) => self.tasks.reroute(record.clone(), job),
                None => self.tasks.handle.send(Message::Rerouted(job.id, false)),
            },
            SchedulerAction::Postpone(job) => match self.cache.record(job.id) {
                Some(record) => self.tasks.postpone(record.clone(), job),
                None => self.tasks.handle.send(Message::Ended(job.id, None, None)),
            },
            SchedulerAction::Charge(destination, charge) => self.tasks.charge(destination, charge),
            SchedulerAction::WakeAt(at) => self.wake = Some(at),
            SchedulerAction::Gate(destination, change) => gate_changes::report(&self.context, destination, change),
        }
    }

    /// Runs jobs with one slot.
    fn start(&self, loaded: Vec<LoadedJob>) {
        let Some(first) = loaded.first() else { return };
        let destination = self.scheduler.destination_of(first.job.id).unwrap_or_default();
        let allowance = self.scheduler.allowance(first.job.id);
        self.tasks.run(loaded, destination, allowance);
    }

    fn load(&self, query: BacklogQuery) {
        let cached: Set<JobId> = self.scheduler.in_backlog(&query.worker, &query.destination).collect();
        let bytes_max = BODY_BYTES_MAX.saturating_sub(self.cache.body_bytes());
        self.tasks.load(query, move |job| cached.contains(&job.id), bytes_max);
    }
}

/// Where one call of a worker may carry several jobs.
fn batches(worker: &Worker) -> impl Iterator<Item = (Arc<str>, Arc<str>, u32)> {
    let name: Arc<str> = Arc::from(worker.name.as_str());
    worker.batches().map(move |(destination, max)| (name.clone(), destination.clone(), max))
}
