//! How other components speak to the scheduler, and the bounded inbox behind it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sluice_domain::call_budget::BudgetRow;
use sluice_domain::job::JobId;
use sluice_domain::run::{LoadedJob, RunResult};
use sluice_domain::schedule::backlog::{BacklogPage, BacklogQuery};
use sluice_domain::schedule::{JobWait, PauseTarget, PendingJob, SchedulerView};
use sluice_ledger::{JobRecord, LiveLane};
use tokio::sync::{mpsc, oneshot};

use super::deferred_backlogs::DeferredBacklogs;

/// New jobs that wait in the inbox. Notices beyond this are dropped: their jobs are found by loading.
const NEW_JOBS_MAX: usize = 8_192;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct SchedulerHandle {
    messages: mpsc::UnboundedSender<Message>,
    pub(super) deferred: DeferredBacklogs,
    pub(super) notices: Arc<Notices>,
}

/// New jobs in the inbox, and those whose notice was dropped.
#[derive(Debug, Default)]
pub(super) struct Notices {
    waiting: AtomicUsize,
    dropped: Mutex<Dropped>,
}

/// The lowest id of the jobs that were dropped, by worker and destination.
pub(super) type Dropped = BTreeMap<(Arc<str>, Arc<str>), JobId>;

/// Messages to the loop. Their number is bounded: by [`NEW_JOBS_MAX`], by the loads and runs under way, and by the requests of
/// operators.
#[derive(Debug)]
pub(super) enum Message {
    New(Vec<LoadedJob>),
    /// Notices were dropped.
    Dropped,
    BacklogsFound(Result<Vec<LiveLane>, sluice_ledger::Error>),
    Loaded(BacklogQuery, Result<Page, sluice_ledger::Error>),
    /// Jobs that are to run, read because memory had only their records.
    Read(Vec<Vec<JobId>>, Result<Vec<LoadedJob>, sluice_ledger::Error>),
    /// The result is `None` if the run was lost. With the calls that its slot has made so far, if they are counted.
    Ended(JobId, Option<Box<RunResult>>, Option<u32>),
    /// The rows of a budget after a charge; `None` if it failed.
    Charged(Arc<str>, Option<Vec<BudgetRow>>),
    Reloaded(JobId, Result<Option<Box<LoadedJob>>, sluice_ledger::Error>),
    /// Whether the route is durable.
    Rerouted(JobId, bool),
    Reconfigured,
    Requeued(Vec<(JobId, Arc<str>)>),
    DueNow(Vec<(JobId, Arc<str>)>),
    Pause(PauseTarget),
    PauseUnauthorized(Arc<str>),
    Resume(PauseTarget),
    View(oneshot::Sender<SchedulerView>),
    /// Why each of these jobs does not run.
    Waits(Vec<PendingJob>, oneshot::Sender<(Vec<Option<JobWait>>, SchedulerView)>),
    Stop,
}

/// A page of a backlog, with as many of its jobs read as a load may bring.
#[derive(Debug)]
pub(super) struct Page {
    pub page: BacklogPage<JobRecord>,
    pub loaded: Vec<LoadedJob>,
}

/// The loop's end of a [`SchedulerHandle`].
#[derive(Debug)]
pub struct Inbox(mpsc::UnboundedReceiver<Message>);

impl SchedulerHandle {
    /// The handle can be used before the loop runs.
    pub fn new() -> (SchedulerHandle, Inbox) {
        let (messages, inbox) = mpsc::unbounded_channel();
        let handle =
            SchedulerHandle { messages, deferred: DeferredBacklogs::default(), notices: Arc::new(Notices::default()) };
        (handle, Inbox(inbox))
    }

    pub(super) fn send(&self, message: Message) {
        // After its end the loop needs no messages.
        let _ = self.messages.send(message);
    }

    /// Announces new durable jobs. Called by the ledger's writer with the jobs of each commit, in order.
    pub fn announce(&self, mut jobs: Vec<LoadedJob>) {
        jobs.retain(|loaded| !self.deferred.has(&loaded.job.worker, &loaded.job.destination));
        if jobs.is_empty() {
            return;
        }
        match self.notices.admit(jobs) {
            Ok(jobs) if jobs.is_empty() => {}
            Ok(jobs) => self.send(Message::New(jobs)),
            Err(DroppedFirst) => self.send(Message::Dropped),
        }
    }

    /// The active configuration has changed.
    pub(crate) fn reconfigured(&self) {
        self.send(Message::Reconfigured);
    }

    /// These finished jobs are queued again.
    pub fn requeued(&self, jobs: Vec<(JobId, Arc<str>)>) {
        self.send(Message::Requeued(jobs));
    }

    /// These jobs waited, and are due now.
    pub fn due_now(&self, jobs: Vec<(JobId, Arc<str>)>) {
        self.send(Message::DueNow(jobs));
    }

    pub fn pause(&self, target: PauseTarget) {
        self.send(Message::Pause(target));
    }

    /// Pauses a destination that rejected the credentials, as the gate that saw it did.
    pub(crate) fn pause_unauthorized(&self, destination: Arc<str>) {
        self.send(Message::PauseUnauthorized(destination));
    }

    pub fn resume(&self, target: PauseTarget) {
        self.send(Message::Resume(target));
    }

    /// `None` once the loop has stopped.
    pub async fn view(&self) -> Option<SchedulerView> {
        let (reply, view) = oneshot::channel();
        self.send(Message::View(reply));
        view.await.ok()
    }

    /// Why each of these live jobs does not run, in their order; `None` in place of one that runs or can run now. `None` once the
    /// loop has stopped.
    pub async fn waits(&self, jobs: Vec<PendingJob>) -> Option<(Vec<Option<JobWait>>, SchedulerView)> {
        let (reply, waits) = oneshot::channel();
        self.send(Message::Waits(jobs, reply));
        waits.await.ok()
    }

    /// Starts no more jobs; those that run may finish.
    pub fn stop(&self) {
        self.send(Message::Stop);
    }
}

/// The first notices were dropped since the loop took the last ones: it has to be told.
struct DroppedFirst;

impl Notices {
    /// The jobs whose notices fit into the inbox. Once a notice of a backlog is dropped, the following ones are too, until the
    /// loop knows: otherwise a job would overtake an older one.
    fn admit(&self, mut jobs: Vec<LoadedJob>) -> Result<Vec<LoadedJob>, DroppedFirst> {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = self.waiting.load(Ordering::Relaxed) >= NEW_JOBS_MAX;
        if !is_full && dropped.is_empty() {
            self.waiting.fetch_add(jobs.len(), Ordering::Relaxed);
            return Ok(jobs);
        }
        let is_first = dropped.is_empty();
        jobs.retain(|loaded| {
            let backlog = (loaded.job.worker.clone(), loaded.job.destination.clone());
            let drops = is_full || dropped.contains_key(&backlog);
            if drops {
                let first = dropped.entry(backlog).or_insert(loaded.job.id);
                *first = (*first).min(loaded.job.id);
            }
            !drops
        });
        self.waiting.fetch_add(jobs.len(), Ordering::Relaxed);
        if is_first { Err(DroppedFirst) } else { Ok(jobs) }
    }

    /// The loop has taken this many new jobs from the inbox.
    pub(super) fn taken(&self, jobs: usize) {
        self.waiting.fetch_sub(jobs, Ordering::Relaxed);
    }

    pub(super) fn take_dropped(&self) -> Dropped {
        std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inbox {
    /// Waits for messages and takes those that are there, up to a limit. Returns false once every handle is gone.
    pub(super) async fn receive(&mut self, messages: &mut Vec<Message>, limit: usize) -> bool {
        self.0.recv_many(messages, limit).await > 0
    }
}
