//! Schedule: what runs next.
//!
//! In: jobs that became durable, runs that ended, configuration, pauses, the passing of time.
//! Out: jobs handed to work, one at a time per lane and never more than there are slots.
//! Touches: ledger: live jobs, events (read), pause.
//! Never: knows what a step means; decides anything itself (that is `sluice_domain::schedule`).
//! If the process dies here: nothing is lost. Memory is a window on the ledger, and loading restores it.

pub mod cron;
mod deferred_workers;
mod job_cache;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sluice_domain::destination::GateSettings;
use sluice_domain::job::JobId;
use sluice_domain::random::Random;
use sluice_domain::schedule::gate::GateChange;
use sluice_domain::schedule::{Input, PauseTarget, PendingJob, Scheduler, SchedulerAction, SchedulerView};
use sluice_domain::time::Time;
use sluice_ledger::{JobRecord, LoadedJob};
use tokio::sync::{mpsc, oneshot};

use crate::observe::metrics::GateLabels;
use crate::work::{RunInput, RunResult, StepRoute, WorkContext, recover_one, work};
use deferred_workers::DeferredWorkers;
use job_cache::JobCache;

/// How long to wait before the ledger is asked again for what memory lost.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How other rooms speak to the scheduler. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SchedulerHandle {
    messages: mpsc::UnboundedSender<Message>,
    behind: DeferredWorkers,
}

#[derive(Debug)]
enum Message {
    Fresh(Vec<LoadedJob>),
    Loaded(Arc<str>, Result<(Vec<JobRecord>, bool), sluice_ledger::Error>),
    Finished(JobId, RunEnd),
    Reconfigured,
    Revived(Vec<(JobId, Arc<str>)>),
    Woken(Vec<(JobId, Arc<str>)>),
    Pause(PauseTarget),
    Resume(PauseTarget),
    View(oneshot::Sender<SchedulerView>),
    Stop,
}

/// How a run ended.
#[derive(Debug)]
enum RunEnd {
    /// As the run itself says.
    Told(Box<RunResult>),
    /// The run was lost, or the ledger knew better: this is what the ledger says now. `None` if it has no such job.
    Read(Option<Box<JobRecord>>),
}

impl SchedulerHandle {
    /// A handle and what the loop listens to. The handle can be used before the loop runs.
    pub fn new() -> (SchedulerHandle, Inbox) {
        let (messages, inbox) = mpsc::unbounded_channel();
        (SchedulerHandle { messages, behind: DeferredWorkers::default() }, Inbox(inbox))
    }

    fn send(&self, message: Message) {
        // After the end nobody has to know any more.
        let _ = self.messages.send(message);
    }

    /// Whether fresh jobs of this worker are to be announced.
    pub fn wants_fresh(&self, worker: &str) -> bool {
        !self.behind.has(worker)
    }

    /// These jobs are durable.
    pub fn fresh(&self, jobs: Vec<LoadedJob>) {
        self.send(Message::Fresh(jobs));
    }

    /// The configuration in force has changed.
    pub fn reconfigured(&self) {
        self.send(Message::Reconfigured);
    }

    /// These jobs are alive again.
    pub fn revived(&self, jobs: Vec<(JobId, Arc<str>)>) {
        self.send(Message::Revived(jobs));
    }

    /// These jobs waited, and are due now.
    pub fn woken(&self, jobs: Vec<(JobId, Arc<str>)>) {
        self.send(Message::Woken(jobs));
    }

    /// Starts nothing more for this target.
    pub fn pause(&self, target: PauseTarget) {
        self.send(Message::Pause(target));
    }

    /// Goes on with this target.
    pub fn resume(&self, target: PauseTarget) {
        self.send(Message::Resume(target));
    }

    /// What a person sees. `None` once it has stopped.
    pub async fn view(&self) -> Option<SchedulerView> {
        let (reply, view) = oneshot::channel();
        self.send(Message::View(reply));
        view.await.ok()
    }

    /// Takes no more; what runs may finish.
    pub fn stop(&self) {
        self.send(Message::Stop);
    }
}

/// The other end of the [`Handle`].
#[derive(Debug)]
pub struct Inbox(mpsc::UnboundedReceiver<Message>);

/// The thin loop around the scheduler: performs what it decides and tells it what came of it.
#[derive(Debug)]
pub struct Loop {
    context: Arc<WorkContext>,
    handle: SchedulerHandle,
    inbox: Inbox,
    scheduler: Scheduler,
    held: JobCache,
    paused: Vec<PauseTarget>,
    stopping: bool,
}

impl Loop {
    /// Prepares the loop. `paused` is what the ledger says is paused.
    pub fn new(context: WorkContext, handle: SchedulerHandle, inbox: Inbox, paused: Vec<PauseTarget>) -> Loop {
        let scheduler = Scheduler::new(Random::seeded(context.clock.wall().0 as u64));
        Loop {
            context: Arc::new(context),
            handle,
            inbox,
            scheduler,
            held: JobCache::default(),
            paused,
            stopping: false,
        }
    }

    /// Runs until it is told to stop and the last job has ended.
    pub async fn run(mut self, more_workers: Vec<String>) {
        for target in std::mem::take(&mut self.paused) {
            self.step(Input::Pause(target));
        }
        let mut wake = self.configure(more_workers);
        loop {
            let timer = wake.map(|at| tokio::time::Instant::from_std(self.context.clock.instant(at)));
            let input = tokio::select! {
                message = self.inbox.0.recv() => match message {
                    Some(message) => self.receive(message),
                    None => break,
                },
                () = async { tokio::time::sleep_until(timer.unwrap_or_else(tokio::time::Instant::now)).await }, if timer.is_some() => Some(Input::Tick),
            };
            if let Some(input) = input {
                wake = self.step(input);
            }
            if self.stopping && self.scheduler.view(self.context.clock.now()).in_flight == 0 {
                break;
            }
        }
    }

    fn configure(&mut self, more_workers: Vec<String>) -> Option<Time> {
        let live = self.context.revisions.current();
        let mut workers: Vec<(Arc<str>, u32)> =
            live.config.workers.values().map(|worker| (Arc::from(worker.name.as_str()), worker.concurrency)).collect();
        // Workers of older revisions that still have jobs.
        for name in more_workers {
            if !live.config.workers.contains_key(&name) {
                workers.push((Arc::from(name), 1));
            }
        }
        let destinations: Vec<(Arc<str>, GateSettings)> = live
            .config
            .destinations
            .values()
            .map(|destination| (Arc::from(destination.name.as_str()), destination.gate.clone()))
            .collect();
        self.step(Input::Configured { workers, destinations })
    }

    /// One message, turned into what the scheduler understands.
    fn receive(&mut self, message: Message) -> Option<Input> {
        match message {
            Message::Fresh(mut jobs) => {
                jobs.retain(|fresh| !self.scheduler.defers_new(&fresh.job.worker));
                if jobs.is_empty() {
                    return None;
                }
                let pending: Vec<PendingJob> = jobs.iter().map(|fresh| self.placed(&fresh.job)).collect();
                self.held.offer(jobs.into_iter().zip(pending.iter().map(|pending| pending.destination.clone())));
                Some(Input::Accepted(pending))
            }
            Message::Loaded(worker, Ok((jobs, more))) => {
                let pending: Vec<PendingJob> = jobs.iter().map(|job| self.placed(job)).collect();
                self.held.load(jobs.into_iter().zip(pending.iter().map(|pending| pending.destination.clone())));
                Some(Input::Loaded { worker, jobs: pending, more })
            }
            Message::Loaded(worker, Err(error)) => {
                tracing::warn!(%worker, %error, "loading jobs failed; trying again");
                Some(Input::LoadFailed(worker))
            }
            Message::Finished(id, finished) => Some(self.finished(id, finished)),
            Message::Reconfigured => {
                self.configure(vec![]);
                Some(Input::Tick)
            }
            Message::Revived(jobs) => {
                let mut firsts = std::collections::BTreeMap::<Arc<str>, JobId>::new();
                for (id, worker) in jobs {
                    firsts.entry(worker).and_modify(|first| *first = (*first).min(id)).or_insert(id);
                }
                for (worker, first) in firsts {
                    self.step(Input::Requeued { worker, first });
                }
                Some(Input::Tick)
            }
            Message::Woken(jobs) => {
                for (job, worker) in jobs {
                    self.step(Input::DueNow { job, worker });
                }
                Some(Input::Tick)
            }
            Message::Pause(target) => Some(Input::Pause(target)),
            Message::Resume(target) => Some(Input::Resume(target)),
            Message::View(reply) => {
                let _ = reply.send(self.scheduler.view(self.context.clock.now()));
                None
            }
            Message::Stop => {
                self.stopping = true;
                Some(Input::Drain)
            }
        }
    }

    /// A run has ended.
    fn finished(&mut self, id: JobId, ended: RunEnd) -> Input {
        let (job, verdict, place) = match ended {
            RunEnd::Told(finished) => (finished.job, finished.verdict, finished.place),
            RunEnd::Read(Some(job)) => {
                let place = self.place_of(&job);
                (*job, None, Some(place))
            }
            RunEnd::Read(None) => {
                self.held.remove(id);
                return Input::Settled { job: id, verdict: None, again: None };
            }
        };
        let again = job.state.is_live().then(|| {
            let place = place.unwrap_or_else(StepRoute::nowhere);
            let again = pending(&job, place.clone());
            self.held.update(job, &place);
            again
        });
        if again.is_none() {
            self.held.remove(id);
        }
        Input::Settled { job: id, verdict, again }
    }

    /// Where the job's next step goes, as far as is known without asking; the run itself knows for sure.
    fn placed(&self, job: &JobRecord) -> PendingJob {
        pending(job, self.place_of(job))
    }

    fn place_of(&self, job: &JobRecord) -> StepRoute {
        let place = self.context.revisions.ready(&job.revision).and_then(|live| {
            let worker = live.config.workers.get(&*job.worker)?;
            StepRoute::of(worker, job.step)
        });
        place.unwrap_or_else(StepRoute::nowhere)
    }

    fn step(&mut self, input: Input) -> Option<Time> {
        let mut actions = Vec::new();
        self.scheduler.step(self.context.clock.now(), input, &mut actions);
        self.held.keep_new(|id| self.scheduler.holds(id));
        // Before anything is read.
        self.handle.behind.set(self.scheduler.workers_deferring_new());
        let mut wake = None;
        let mut without_event = Vec::new();
        for action in actions {
            match action {
                SchedulerAction::Run(id) => match self.held.order(id) {
                    Some(Ok(order)) => start(self.context.clone(), self.handle.clone(), order),
                    Some(Err(job)) => without_event.push(job),
                    None => read_anew(self.context.clone(), self.handle.clone(), id),
                },
                SchedulerAction::Load { worker, after, limit } => self.load(worker, after, limit),
                SchedulerAction::WakeAt(at) => wake = Some(at),
                SchedulerAction::Gate(destination, change) => self.gate_changed(destination, change),
            }
        }
        if !without_event.is_empty() {
            self.start_with_events(without_event);
        }
        wake
    }

    /// Jobs whose events are not in memory: read them in one go, then start.
    fn start_with_events(&self, jobs: Vec<(JobRecord, Arc<str>)>) {
        let (context, handle) = (self.context.clone(), self.handle.clone());
        tokio::spawn(async move {
            let ords = jobs.iter().map(|(job, _)| job.seq).collect();
            let events: std::collections::HashMap<i64, _> = match context.ledger.events(ords).await {
                Ok(events) => {
                    events.into_iter().map(|(event, body)| (event.seq, (Arc::new(event), body.map(Arc::new)))).collect()
                }
                Err(error) => {
                    tracing::error!(%error, "reading events failed; their jobs are tried again");
                    Default::default()
                }
            };
            for (job, destination) in jobs {
                match events.get(&job.seq) {
                    Some((event, Some(body))) => {
                        let order = RunInput { job, event: event.clone(), body: body.clone(), destination };
                        start(context.clone(), handle.clone(), order);
                    }
                    _ => read_anew(context.clone(), handle.clone(), job.id),
                }
            }
        });
    }

    fn load(&self, worker: Arc<str>, after: JobId, limit: usize) {
        let (context, handle) = (self.context.clone(), self.handle.clone());
        tokio::spawn(async move {
            let loaded = context.ledger.live_jobs(worker.clone(), after, limit).await.map(|jobs| {
                let more = jobs.len() >= limit;
                (jobs, more)
            });
            if let Ok((jobs, _)) = &loaded {
                let revisions: std::collections::BTreeSet<&Arc<str>> = jobs.iter().map(|job| &job.revision).collect();
                for revision in revisions {
                    context.revisions.get(revision, &context.ledger).await;
                }
            } else {
                // A moment's peace before it is asked for again.
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            handle.send(Message::Loaded(worker, loaded));
        });
    }

    fn gate_changed(&self, destination: Arc<str>, change: GateChange) {
        let word = match &change {
            GateChange::Opened(_) => "opened",
            GateChange::HalfOpen => "half_open",
            GateChange::Closed => "closed",
            GateChange::AuthPaused => "auth_paused",
        };
        let labels = GateLabels { destination: destination.to_string(), change: word.to_owned() };
        self.context.metrics.gates.get_or_create(&labels).inc();
        match change {
            GateChange::Opened(until) => {
                let (safe_modes, now) = (self.context.safe_modes.clone(), self.context.clock.wall());
                let workers = self.context.revisions.current().config.workers.values().cloned().collect();
                let opened = destination.clone();
                tokio::spawn(async move { safe_modes.breaker_opened(workers, &opened, now).await });
                tracing::warn!(%destination, %until, "the destination keeps failing: its breaker is open and its jobs wait");
            }
            GateChange::HalfOpen => {
                tracing::info!(%destination, "one call goes through to see whether the destination is back")
            }
            GateChange::Closed => tracing::info!(%destination, "the destination is back: its breaker is closed"),
            GateChange::AuthPaused => {
                tracing::error!(
                    %destination,
                    "the destination refuses our credentials: it is paused so that no other job dies; mend them, then `sluice resume destination:{destination}`"
                );
                let (ledger, at) = (self.context.ledger.clone(), self.context.clock.wall());
                tokio::spawn(async move {
                    let target = format!("destination:{destination}");
                    let reason = "the destination refused our credentials".to_owned();
                    if let Err(error) = ledger.pause(target, "sluice".to_owned(), reason, at).await {
                        tracing::error!(%destination, %error, "the pause could not be written");
                    }
                });
            }
        }
    }
}

/// Starts a run. The loop hears of its end even if it panics.
fn start(context: Arc<WorkContext>, handle: SchedulerHandle, order: RunInput) {
    let id = order.job.id;
    tokio::spawn(async move {
        // A task is copied whole whenever it changes hands: what is large of it stays in its place.
        match caught(Box::pin(work(&context, order))).await {
            Ok(Ok(Some(finished))) => return handle.send(Message::Finished(id, RunEnd::Told(Box::new(finished)))),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::error!(job = %id, %error, "the ledger did not take the end of this run"),
            Err(Panicked) => tracing::error!(job = %id, "a run panicked; its outcome counts as unknown"),
        }
        read_anew(context, handle, id);
    });
}

/// Memory does not know how a run ended: what the ledger knows takes its place, in a moment. Until then the job keeps its
/// slot and the head of its lane, so that nobody overtakes it; and an attempt that was lost is settled first, as after a
/// crash, so that nothing is sent again that nobody knows the outcome of.
fn read_anew(context: Arc<WorkContext>, handle: SchedulerHandle, id: JobId) {
    tokio::spawn(async move {
        let job = loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            match recover_one(&context, id).await {
                Ok(job) => break job,
                Err(sluice_ledger::Error::Failed) => break None,
                Err(error) => tracing::error!(job = %id, %error, "the job could not be read anew; trying again"),
            }
        };
        handle.send(Message::Finished(id, RunEnd::Read(job.map(Box::new))));
    });
}

/// A future panicked.
struct Panicked;

/// The value of a future, or that it panicked. What it held is dropped and never looked at again.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}

/// A job as the scheduler sees it.
fn pending(job: &JobRecord, place: StepRoute) -> PendingJob {
    PendingJob {
        id: job.id,
        worker: job.worker.clone(),
        destination: place.destination,
        order: place.order,
        entity: job.entity,
        due: PendingJob::due(job.state, job.due_at),
    }
}
