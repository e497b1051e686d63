//! Remembers: the only crate that speaks SQL to Sluice's own store.
//!
//! Callers hold a [`Ledger`]: concrete, cheap to clone, with verbs instead of tables. Each verb is one transaction, and
//! a repeat of it does no harm. That many callers are grouped into one commit is the driver's own business.

pub mod bench;
mod error;
mod guard;
pub mod memory;
mod op;
mod queries;
mod record;
mod seal;
mod sqlite;
mod submission_queue;
mod view;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_domain::job::JobId;
use sluice_domain::time::Time;
use tokio::sync::oneshot;

pub use error::Error;
pub use guard::{
    ApprovalFilter, ApprovalRecord, CappedBeginResult, DecideApproval, Decided, GuardOp, GuardReply, RequestApproval,
    SafeModeRecord, SetConsent, SetSafeMode, Skip, Suppress, SuppressionRecord, Unsuppress,
};
pub use op::{
    Acceptance, Accepted, AttemptSettlement, Begin, BeginResult, ChargeResult, DropJobs, Duplicate, EffectSettlement,
    Fence, JobUpdate, Mark, Marked, MatchedBy, NewRevision, Prune, Replay, Resolution, Resolve, RetryCharge,
    Settlement, StepResult,
};
use op::{Op, Reply, Rotate, Rotation};
pub use record::*;
pub use seal::{RootKey, RootKeyProblem};
pub use sqlite::{AttemptEntry, Balance, Inspector, InvariantViolation, JobFilter, Page, Reason, Verification};
use sqlite::{Submission, Writer};
use submission_queue::{Submitter, submission_queue};
use view::ReadBackend;

/// Where the ledger gets the time from.
pub type ClockFn = Arc<dyn Fn() -> Time + Send + Sync>;

/// Operations that may wait for the writer.
const QUEUE_OPS_MAX: usize = 16 * 1024;
/// New events are turned away above this, so that completions always find room.
const QUEUE_ACCEPTS_MAX: u64 = 8 * 1024;

/// Counters of the writer, for metrics.
#[derive(Debug, Default)]
pub struct Stats {
    /// Operations that wait for the writer.
    pub queued: AtomicU64,
    /// Transactions.
    pub batches: AtomicU64,
    /// Operations in them.
    pub operations: AtomicU64,
    /// Time spent in them.
    pub commit_micros: AtomicU64,
    /// Pages in the write-ahead log.
    pub wal_pages: AtomicU64,
    /// Times that the disk was full.
    pub disk_full: AtomicU64,
}

/// What the owner of a ledger has to provide.
pub struct LedgerOptions {
    /// The time.
    pub clock: ClockFn,
    /// Whether the jobs of this worker are to be announced. Asked after the commit that makes them, when they can be read: who
    /// says no first and looks into the ledger then finds every job that was not announced.
    pub wants_new_jobs: Box<dyn Fn(&str) -> bool + Send>,
    /// Called from the writer with the jobs of each commit that are to be announced, in order.
    pub on_new_jobs: Box<dyn Fn(Vec<LoadedJob>) + Send>,
    /// Called once when the file can no longer be trusted; the process should end.
    pub on_fatal: Box<dyn Fn(&str) + Send>,
    /// How many of the newest keys are held in memory; the default when left out. Small values are for tests.
    pub recent_keys_max: Option<usize>,
    /// How long the write-ahead log may become before the writer resets it, in pages; the default when left out. Small values
    /// are for tests.
    pub wal_pages_max: Option<u64>,
    /// What opens the ledger. There is no ledger on disk without it.
    pub root_key: Option<RootKey>,
}

impl std::fmt::Debug for LedgerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("recent_keys_max", &self.recent_keys_max).finish_non_exhaustive()
    }
}

impl LedgerOptions {
    /// For tools that look at a ledger or act on it while no node runs.
    pub fn quiet(clock: ClockFn) -> LedgerOptions {
        LedgerOptions {
            clock,
            wants_new_jobs: Box::new(|_| false),
            on_new_jobs: Box::new(|_| {}),
            on_fatal: Box::new(|_| {}),
            recent_keys_max: None,
            wal_pages_max: None,
            root_key: None,
        }
    }

    /// The same with this root key.
    pub fn with_root_key(self, root_key: RootKey) -> LedgerOptions {
        LedgerOptions { root_key: Some(root_key), ..self }
    }
}

/// The ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    operations: Submitter<Submission>,
    reads: ReadBackend,
    stats: Arc<Stats>,
    writer: Arc<WriterThread>,
}

#[derive(Debug)]
struct WriterThread(std::sync::Mutex<Option<std::thread::JoinHandle<()>>>);

impl Ledger {
    /// Whether there is a ledger in a directory. Nothing is opened or created.
    pub fn exists_in(directory: &Path) -> bool {
        sqlite::is_in(directory)
    }

    /// Whether this root key opens the ledger in a directory; any key does where there is none yet. Nothing is written.
    pub fn is_opened_by(directory: &Path, root_key: &RootKey) -> Result<bool, Error> {
        sqlite::is_opened_by(directory, root_key)
    }

    /// Opens the embedded ledger in a directory, creating it if need be, and starts its writer.
    pub fn open(directory: &Path, options: LedgerOptions) -> Result<Ledger, Error> {
        let lock = sqlite::lock(directory)?;
        let stats = Arc::new(Stats::default());
        let writer = Writer::open(directory, options, stats.clone())?;
        let reads = ReadBackend::Sqlite(sqlite::ReadPool::open(directory, writer.vault())?);
        let (operations, received) = submission_queue(QUEUE_OPS_MAX);
        let thread = std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || {
                // The writer holds it: the directory is free for another process once the last write is done.
                let _lock: File = lock;
                writer.run(received);
            })
            .map_err(|source| Error::Thread { source })?;
        let writer = Arc::new(WriterThread(std::sync::Mutex::new(Some(thread))));
        Ok(Ledger { operations, reads, stats, writer })
    }

    /// Opens a ledger that lies in memory: nothing outlives the process, and nothing is sealed.
    pub fn in_memory(place: &memory::StoreHandle, options: LedgerOptions) -> Result<Ledger, Error> {
        let shared = place.lock()?;
        let stats = Arc::new(Stats::default());
        let (operations, received) = submission_queue(QUEUE_OPS_MAX);
        let counted = stats.clone();
        let thread = std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || shared.run(received, &options, &counted))
            .map_err(|source| Error::Thread { source })?;
        let writer = Arc::new(WriterThread(std::sync::Mutex::new(Some(thread))));
        Ok(Ledger { operations, reads: ReadBackend::Memory(place.clone()), stats, writer })
    }

    /// Waits until the writer has written everything and ended. What another clone sends afterwards fails.
    pub async fn close(self) {
        let _ = self.submit(Op::Close).await;
        let writer = self.writer.clone();
        // Joined under the mutex, so that whoever else closes waits for it as well.
        let join = move || writer.0.lock().ok().and_then(|mut thread| thread.take().map(std::thread::JoinHandle::join));
        let _ = tokio::task::spawn_blocking(join).await;
    }

    /// Counters for metrics.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether a new event would be turned away right now. Asked before its body is read.
    pub fn is_overloaded(&self) -> bool {
        self.stats.queued.load(Ordering::Relaxed) >= QUEUE_ACCEPTS_MAX
    }

    async fn send(&self, envelope: Submission) -> Result<(), Error> {
        // Counted once there is room: a caller that goes away while it waits for room must leave nothing behind.
        let slot = self.operations.reserve().await.map_err(|_| Error::Failed)?;
        self.stats.queued.fetch_add(1, Ordering::Relaxed);
        slot.submit(envelope);
        Ok(())
    }

    async fn submit(&self, op: Op) -> Result<Reply, Error> {
        let (reply, answer) = oneshot::channel();
        self.send(Submission { op, reply: Some(reply) }).await?;
        answer.await.map_err(|_| Error::Failed)?
    }

    /// Writes operations in their order, and answers them in it. For who has them as data: a simulation that keeps two ledgers.
    pub async fn perform(&self, ops: Vec<memory::Op>) -> Vec<Result<memory::Reply, Error>> {
        let mut answers = Vec::with_capacity(ops.len());
        for op in ops {
            let (reply, answer) = oneshot::channel();
            let sent = self.send(Submission { op, reply: Some(reply) }).await;
            answers.push(sent.map(|()| answer));
        }
        let mut replies = Vec::with_capacity(answers.len());
        for answer in answers {
            replies.push(match answer {
                Ok(answer) => answer.await.unwrap_or(Err(Error::Failed)),
                Err(error) => Err(error),
            });
        }
        replies
    }

    /// Accepts an event: its key, its body and its jobs in one commit. Answers after that commit. When the caller goes
    /// away meanwhile, the event is accepted all the same.
    pub async fn accept(&self, event: NewEvent) -> Result<Acceptance, Error> {
        if self.is_overloaded() {
            return Err(Error::Overloaded);
        }
        match self.submit(Op::Accept(Box::new(event))).await? {
            Reply::Accepted(accepted) => Ok(Acceptance::Accepted(accepted)),
            Reply::Duplicate(duplicate) => Ok(Acceptance::Duplicate(duplicate)),
            other => unreachable!("an accept is not answered with {other:?}"),
        }
    }

    /// Accepts the events of one request, all in one commit or none of them, and answers in their order.
    pub async fn accept_all(&self, events: Vec<NewEvent>) -> Result<Vec<Acceptance>, Error> {
        if events.is_empty() {
            return Ok(vec![]);
        }
        if self.is_overloaded() {
            return Err(Error::Overloaded);
        }
        match self.submit(Op::AcceptAll(events)).await? {
            Reply::Acceptances(acceptances) => Ok(acceptances),
            other => unreachable!("an accept is not answered with {other:?}"),
        }
    }

    /// Writes down that an attempt is about to be made, and waits until that is durable.
    pub async fn begin(&self, begin: Begin) -> Result<BeginResult, Error> {
        match self.submit(Op::Begin(begin)).await? {
            Reply::Begun => Ok(BeginResult::Go),
            Reply::AlreadyApplied => Ok(BeginResult::AlreadyApplied),
            Reply::Stale => Ok(BeginResult::Stale),
            other => unreachable!("a begin is not answered with {other:?}"),
        }
    }

    /// Writes down that an attempt is about to be made, without waiting. It becomes durable before the settlement that
    /// follows it, since operations keep their order. For effects that may be repeated without harm.
    pub async fn begin_without_waiting(&self, begin: Begin) -> Result<(), Error> {
        self.send(Submission { op: Op::Begin(begin), reply: None }).await
    }

    /// Writes down how an attempt ended and what comes next. `false` if the job has moved on without it.
    pub async fn settle(&self, settlement: Settlement) -> Result<bool, Error> {
        Ok(matches!(self.submit(Op::Settle(Box::new(settlement))).await?, Reply::Settled))
    }

    /// Writes down an attempt and how it ended, in one. For effects that may be repeated without harm and were answered before
    /// anybody wrote down that they were begun. `false` if the job has moved on without it.
    pub async fn begin_and_settle(&self, begin: Begin, settlement: Settlement) -> Result<bool, Error> {
        Ok(matches!(self.submit(Op::BeginAndSettle(Box::new((begin, settlement)))).await?, Reply::Settled))
    }

    /// The same for a job that wants to be retried, if its contact has a retry left; otherwise the other way is written.
    pub async fn settle_with_budget(&self, settlement: Settlement, draw: RetryCharge) -> Result<ChargeResult, Error> {
        Ok(match self.submit(Op::SettleWithBudget(Box::new((settlement, draw)))).await? {
            Reply::Settled => ChargeResult::Settled,
            Reply::Exhausted => ChargeResult::Exhausted,
            _ => ChargeResult::Stale,
        })
    }

    /// Since when a worker has had this schedule: since now, if it is another than before.
    pub async fn schedule(&self, worker: String, rule: String, at: Time) -> Result<Time, Error> {
        match self.submit(Op::Schedule { worker, rule, at }).await? {
            Reply::Since(since) => Ok(since),
            other => unreachable!("a schedule is not answered with {other:?}"),
        }
    }

    /// Keeps what a step inside has come to, and answers with what is kept: the first one counts. `None` if the job has
    /// moved on without this run.
    pub async fn note(&self, note: StepResult) -> Result<Option<serde_json::Value>, Error> {
        match self.submit(Op::Note(Box::new(note))).await? {
            Reply::Noted(result) => Ok(Some(result)),
            Reply::Stale => Ok(None),
            other => unreachable!("a note is not answered with {other:?}"),
        }
    }

    /// Sets a mark, unless another has set it. `None` if the job has moved on without this run.
    pub async fn mark(&self, mark: Mark) -> Result<Option<Marked>, Error> {
        match self.submit(Op::Mark(Box::new(mark))).await? {
            Reply::Marked(marked) => Ok(Some(marked)),
            Reply::Stale => Ok(None),
            other => unreachable!("a mark is not answered with {other:?}"),
        }
    }

    /// Brings finished or dead jobs back to life. Answers with those that were, and their workers.
    pub async fn replay(&self, replay: Replay) -> Result<Vec<(JobId, Arc<str>)>, Error> {
        self.jobs_changed(Op::Replay(replay)).await
    }

    /// Records what a person found out about a parked effect, and lets its job go on.
    pub async fn resolve(&self, resolve: Resolve) -> Result<Vec<(JobId, Arc<str>)>, Error> {
        self.jobs_changed(Op::Resolve(resolve)).await
    }

    /// Gives up dead or parked jobs.
    pub async fn drop_jobs(&self, drop: DropJobs) -> Result<Vec<(JobId, Arc<str>)>, Error> {
        self.jobs_changed(Op::Drop(drop)).await
    }

    async fn jobs_changed(&self, op: Op) -> Result<Vec<(JobId, Arc<str>)>, Error> {
        match self.submit(op).await? {
            Reply::Jobs(jobs) => Ok(jobs),
            other => unreachable!("a change of jobs is not answered with {other:?}"),
        }
    }

    /// Stops something until it is resumed; survives restarts.
    pub async fn pause(&self, target: String, actor: String, reason: String, at: Time) -> Result<(), Error> {
        self.submit(Op::Pause { target, actor, reason, at }).await.map(drop)
    }

    /// Lets something go on.
    pub async fn resume(&self, target: String, actor: String, at: Time) -> Result<(), Error> {
        self.submit(Op::Resume { target, actor, at }).await.map(drop)
    }

    /// Keeps a revision of the configuration, so that jobs can run under the one they were accepted under, and writes down
    /// that it is in force from here on, unless it was already.
    pub async fn keep_revision(&self, revision: NewRevision) -> Result<(), Error> {
        self.submit(Op::Revision(revision)).await.map(drop)
    }

    /// A line for the audit trail.
    pub async fn audit(&self, at: Time, actor: &str, action: &str, object: &str, detail: &str) -> Result<(), Error> {
        let (actor, action) = (actor.to_owned(), action.to_owned());
        let (object, detail) = (object.to_owned(), detail.to_owned());
        self.submit(Op::Audit { at, actor, action, object, detail }).await.map(drop)
    }

    /// Removes a slice of what is past its time. Answers how many rows, and whether there may be more.
    pub async fn prune(&self, prune: Prune) -> Result<(u64, bool), Error> {
        match self.submit(Op::Prune(prune)).await? {
            Reply::Pruned { rows, more } => Ok((rows, more)),
            other => unreachable!("a prune is not answered with {other:?}"),
        }
    }

    /// Seals with another root key from here on: what opened the ledger before does not open it any more.
    pub async fn rotate_root(&self, new: RootKey, actor: String, at: Time) -> Result<(), Error> {
        self.submit(Op::Rotate(Rotate { what: Rotation::Root(new), actor, at })).await.map(drop)
    }

    /// Seals new data with a new key of the tenant, and answers its version. [`Ledger::rewrap_contacts`] does the rest.
    pub async fn rotate_tenant(&self, actor: String, at: Time) -> Result<u64, Error> {
        self.rotated(Rotate { what: Rotation::Tenant, actor, at }).await
    }

    /// Wraps a slice of the keys of contacts with the newest key of the tenant. Answers how many were looked at: none
    /// when all is done. Goes on where it stopped, also after a restart.
    pub async fn rewrap_contacts(&self, rows_max: u32, at: Time) -> Result<u64, Error> {
        self.rotated(Rotate { what: Rotation::Contacts { rows_max }, actor: String::new(), at }).await
    }

    async fn rotated(&self, rotate: Rotate) -> Result<u64, Error> {
        match self.submit(Op::Rotate(rotate)).await? {
            Reply::Rotated(count) => Ok(count),
            other => unreachable!("a rotation is not answered with {other:?}"),
        }
    }
}
