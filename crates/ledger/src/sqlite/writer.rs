//! The writer: one thread that alone changes the file.
//!
//! Batches form by themselves: while one flush runs, the next operations gather in the [line](crate::line). Every operation of a
//! batch is answered after its COMMIT, never before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rusqlite::{Connection, ErrorCode};
use sluice_domain::mutant::Mutant;
use sluice_domain::time::Time;
use tokio::sync::oneshot;

use super::apply::{Batch, Counters};
use super::checkpoint::Checkpointer;
use super::content_cache::ContentCache;
use super::key_index::{self, KeyIndex};
use super::key_store::{Changes, KeyStore};
use super::new_jobs::InsertedEvent;
use super::reserve_file::ReserveFile;
use super::statements::Statements;
use super::{PAGE_BYTES, Role, open};
use crate::op::{Acceptance, Accepted, Op, Reply};
use crate::record::{LoadedJob, NewEvent};
use crate::submission_queue::BatchReceiver;
use crate::{ClockFn, Error, LedgerOptions, Stats};

/// Operations in one transaction, at the most.
const BATCH_OPS_MAX: usize = 512;
/// Above this many pages in the WAL the writer itself resets it between two batches: a checkpoint beside a busy writer never
/// finds the moment to, and the file would grow without end.
const WAL_PAGES_RESET: u64 = 64 * MIB / PAGE_BYTES;
/// It does so once no more pages than these are left to be moved, since everybody waits meanwhile; or when the WAL is twice as
/// long as that.
const WAL_PAGES_LEFT: u64 = 2 * MIB / PAGE_BYTES;
/// From this many pages on a checkpoint runs beside the writer.
const WAL_PAGES_CHECKPOINT: u64 = 16 * MIB / PAGE_BYTES;
const MIB: u64 = 1024 * 1024;

/// An operation and who waits for it.
#[derive(Debug)]
pub(crate) struct Submission {
    pub op: Op,
    pub reply: Option<oneshot::Sender<Result<Reply, Error>>>,
}

/// Called once when the file can no longer be trusted.
pub(crate) type Fatal = Box<dyn Fn(&str) + Send>;
/// Called with the jobs of each commit.
type OnNewJobs = Box<dyn Fn(Vec<LoadedJob>) + Send>;
/// Whether the jobs of a worker are among them.
type WantsFresh = Box<dyn Fn(&str) -> bool + Send>;

/// What a transaction has come to.
struct Committed {
    replies: Vec<Reply>,
    let_in: Vec<InsertedEvent>,
    at: Time,
}

/// The state of the writer thread.
pub(crate) struct Writer {
    connection: Connection,
    vault: Arc<KeyStore>,
    keys: KeyIndex,
    contacts: KeyIndex,
    net: ContentCache,
    counters: Counters,
    directory: PathBuf,
    clock: ClockFn,
    wants_fresh: WantsFresh,
    on_fresh: OnNewJobs,
    on_fatal: Fatal,
    stats: Arc<Stats>,
    wal_pages: Arc<AtomicU64>,
    wal_pages_max: u64,
    checkpointer: Checkpointer,
    /// At so many pages the next checkpoint is asked for.
    next_checkpoint: u64,
    recent_keys_max: Option<usize>,
    ballast: ReserveFile,
    /// Upkeep found no room: it waits until an event could be accepted again.
    upkeep_rests: bool,
    failed: bool,
}

impl Writer {
    pub fn open(directory: &Path, options: LedgerOptions, stats: Arc<Stats>) -> Result<Writer, Error> {
        let LedgerOptions {
            clock,
            wants_new_jobs: wants_fresh,
            on_new_jobs: on_fresh,
            on_fatal,
            recent_keys_max,
            wal_pages_max,
            root_key,
        } = options;
        let mut connection = open(directory, Role::Write)?;
        truncate_wal(&connection)?;
        let vault = Arc::new(KeyStore::open(&mut connection, root_key, clock())?);
        let keys = load_keys(&connection, recent_keys_max)?;
        let contacts = load_contacts(&connection, recent_keys_max)?;
        let net = ContentCache::load(&connection)?;
        let counters = Counters {
            next_ord: connection.query_row(include_str!("sql/last_ord.sql"), [], |row| row.get::<_, i64>(0))? + 1,
            next_job: connection.query_row(include_str!("sql/last_job.sql"), [], |row| row.get::<_, i64>(0))? + 1,
            next_contact: connection.query_row(include_str!("sql/last_contact.sql"), [], |row| row.get::<_, i64>(0))?
                + 1,
        };
        let wal_pages = Arc::new(AtomicU64::new(0));
        let counted = wal_pages.clone();
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
            counted.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        let checkpointer = Checkpointer::spawn(directory)?;
        let ballast = ReserveFile::new(directory)
            .map_err(|source| Error::Directory { path: directory.join("ballast"), source })?;
        Ok(Writer {
            connection,
            vault,
            keys,
            contacts,
            net,
            counters,
            directory: directory.to_owned(),
            clock,
            wants_fresh,
            on_fresh,
            on_fatal,
            stats,
            wal_pages,
            wal_pages_max: wal_pages_max.unwrap_or(WAL_PAGES_RESET),
            checkpointer,
            next_checkpoint: WAL_PAGES_CHECKPOINT,
            recent_keys_max,
            ballast,
            upkeep_rests: false,
            failed: false,
        })
    }

    /// What opens the rows, for readers.
    pub fn vault(&self) -> Arc<KeyStore> {
        self.vault.clone()
    }

    /// Works until it is told to end, or every sender is gone.
    pub fn run(mut self, mut operations: BatchReceiver<Submission>) {
        let mut batch = Vec::with_capacity(BATCH_OPS_MAX);
        while operations.recv_batch(&mut batch, BATCH_OPS_MAX) > 0 {
            self.stats.queued.fetch_sub(batch.len() as u64, Ordering::Relaxed);
            let started = Instant::now();
            let size = batch.len() as u64;
            let closing = batch.iter().any(|envelope| matches!(envelope.op, Op::Close));
            self.commit(std::mem::take(&mut batch));
            self.stats.batches.fetch_add(1, Ordering::Relaxed);
            self.stats.operations.fetch_add(size, Ordering::Relaxed);
            self.stats.commit_micros.fetch_add(started.elapsed().as_micros() as u64, Ordering::Relaxed);
            if !self.failed {
                self.keep_up();
            }
            if closing {
                break;
            }
            batch.reserve(BATCH_OPS_MAX);
        }
        if !self.failed
            && let Err(error) = self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        {
            tracing::warn!(%error, "the last checkpoint failed; the next start recovers from the WAL");
        }
    }

    fn commit(&mut self, batch: Vec<Submission>) {
        if self.failed {
            for envelope in batch {
                answer(envelope.reply, Err(Error::Failed));
            }
            return;
        }
        let batch = match self.has_room() {
            Ok(true) => batch,
            Ok(false) => self.turn_away(batch),
            Err(error) => return self.fail(batch, &error),
        };
        match self.transact(batch.iter().map(|envelope| &envelope.op)) {
            Ok(committed) => self.answer_all(batch, committed),
            Err(error) if is_full(&error) => self.shed(batch),
            Err(error) if is_fatal(&error) => self.fail(batch, &error),
            Err(error) if batch.len() == 1 => {
                for envelope in batch {
                    answer(envelope.reply, Err(refused(&error)));
                }
            }
            // One of them is at fault, and its neighbours must not suffer for it.
            Err(_) => {
                for envelope in batch {
                    self.commit(vec![envelope]);
                }
            }
        }
    }

    /// All or nothing. What memory knows of the batch is undone when it does not commit.
    fn transact<'a>(&mut self, ops: impl Iterator<Item = &'a Op>) -> rusqlite::Result<Committed> {
        let before = self.counters;
        let at = (self.clock)();
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut batch = Batch {
            connection: &self.connection,
            often: &mut Statements::new(&self.connection),
            vault: &self.vault,
            key_changes: Changes::default(),
            keys: &mut self.keys,
            contacts: &mut self.contacts,
            counters: &mut self.counters,
            now: at,
            let_in: Vec::new(),
            taken: Vec::new(),
            contacts_taken: Vec::new(),
            net: &mut self.net,
            remembered: Vec::new(),
            tallies: BTreeMap::new(),
            lateness: BTreeMap::new(),
        };
        let result = ops
            .map(|op| batch.apply(op))
            .collect::<rusqlite::Result<Vec<Reply>>>()
            .and_then(|replies| batch.finish().map(|()| replies))
            .and_then(|replies| match self.connection.execute_batch("COMMIT") {
                Err(error) if !Mutant::FailedCommitAnswered.is_on() => Err(error),
                _ => Ok(replies),
            });
        let Batch { let_in, taken, contacts_taken, remembered, key_changes, .. } = batch;
        match result {
            Ok(replies) => {
                self.vault.commit(key_changes);
                self.net.trim();
                self.upkeep_rests &= taken.is_empty();
                Ok(Committed { replies, let_in, at })
            }
            Err(error) => {
                for (prefix, ord) in taken {
                    self.keys.forget(prefix, ord);
                }
                for (prefix, id) in contacts_taken {
                    self.contacts.forget(prefix, id);
                }
                remembered.into_iter().rev().for_each(|undo| self.net.undo(undo));
                self.counters = before;
                if !self.connection.is_autocommit()
                    && let Err(rollback) = self.connection.execute_batch("ROLLBACK")
                {
                    tracing::error!(%rollback, "rolling back failed");
                    return Err(rollback);
                }
                Err(error)
            }
        }
    }

    /// Announces the jobs of a commit and answers everybody; what they asked for is let go afterwards.
    fn answer_all(&self, batch: Vec<Submission>, committed: Committed) {
        let Committed { replies, let_in, at } = committed;
        let mut let_in = let_in.into_iter().peekable();
        let mut fresh = Vec::new();
        let mut announce = |event: &NewEvent, accepted: &Accepted| {
            if let Some(entry) = let_in.next_if(|entry| entry.ord == accepted.seq) {
                fresh.extend(entry.announced(event, at, &self.wants_fresh));
            }
        };
        for (Submission { op, .. }, reply) in batch.iter().zip(&replies) {
            match (op, reply) {
                (Op::Accept(event), Reply::Accepted(accepted)) => announce(event, accepted),
                (Op::AcceptAll(events), Reply::Acceptances(acceptances)) => {
                    for (event, acceptance) in events.iter().zip(acceptances) {
                        if let Acceptance::Accepted(accepted) = acceptance {
                            announce(event, accepted);
                        }
                    }
                }
                _ => {}
            }
        }
        if !fresh.is_empty() {
            (self.on_fresh)(fresh);
        }
        let mut done = Vec::with_capacity(batch.len());
        for (Submission { op, reply }, came) in batch.into_iter().zip(replies) {
            answer(reply, Ok(came));
            done.push(op);
        }
    }

    /// The disk is full: new events are turned away, everything else goes on, with the ballast's room if need be.
    fn shed(&mut self, batch: Vec<Submission>) {
        let others = self.turn_away(batch);
        let mut result = self.transact(others.iter().map(|envelope| &envelope.op));
        if result.as_ref().is_err_and(is_full) {
            // Growing the file by what lies in the WAL would take the very room that is made here.
            self.checkpointer.pause();
            self.ballast.spend();
            result = self.transact(others.iter().map(|envelope| &envelope.op));
        }
        match result {
            Ok(committed) => self.answer_all(others, committed),
            Err(error) if is_full(&error) => {
                for envelope in others {
                    answer(envelope.reply, Err(Error::DiskFull));
                }
            }
            Err(error) if is_fatal(&error) => self.fail(others, &error),
            Err(_) => {
                for envelope in others {
                    self.commit(vec![envelope]);
                }
            }
        }
    }

    /// Whether new events may be written, as far as is known.
    fn has_room(&mut self) -> std::io::Result<bool> {
        let kept = self.ballast.is_kept()?;
        if kept && self.checkpointer.is_resting() {
            self.checkpointer.resume();
        }
        Ok(kept)
    }

    /// Answers that there is no room for new events, and leaves the rest of the batch.
    fn turn_away(&mut self, batch: Vec<Submission>) -> Vec<Submission> {
        let (accepts, others): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|envelope| matches!(envelope.op, Op::Accept(_) | Op::AcceptAll(_)));
        if !accepts.is_empty() {
            self.stats.disk_full.fetch_add(1, Ordering::Relaxed);
        }
        for envelope in accepts {
            answer(envelope.reply, Err(Error::DiskFull));
        }
        others
    }

    /// Whether the batch is on disk is unknown, and what memory holds may be wrong: nothing more is written by this process.
    fn fail(&mut self, batch: Vec<Submission>, error: &dyn std::error::Error) {
        self.failed = true;
        tracing::error!(%error, "the ledger can no longer be written; stopping");
        for envelope in batch {
            answer(envelope.reply, Err(Error::InDoubt { message: error.to_string() }));
        }
        (self.on_fatal)(&error.to_string());
    }

    /// Between two batches: a slice of upkeep of the keys, and the WAL kept within its bounds.
    fn keep_up(&mut self) {
        if !self.upkeep_rests && (self.keys.wants_tending() || self.contacts.wants_tending()) {
            match self.tend() {
                Ok(()) => {}
                // Nothing that was not flushed may be built upon.
                Err(error) if is_fatal(&error) && !is_full(&error) => return self.fail(vec![], &error),
                Err(error) => self.recover_keys(&error),
            }
        }
        let pages = self.wal_pages.load(Ordering::Relaxed);
        self.stats.wal_pages.store(pages, Ordering::Relaxed);
        if self.checkpointer.is_resting() || Mutant::CheckpointNeverResets.is_on() {
            return;
        }
        let (moved, moving) = self.checkpointer.moved();
        let nearly_done = !moving && pages.saturating_sub(moved) <= WAL_PAGES_LEFT;
        if pages >= self.wal_pages_max && (nearly_done || pages >= 2 * self.wal_pages_max) {
            // RESTART, so that the next batch writes from the beginning of the file.
            if let Err(error) = self.connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())) {
                tracing::warn!(%error, "a checkpoint failed; it is tried again after the next batch");
            }
        } else if pages >= self.wal_pages_max.min(self.next_checkpoint) {
            // Not after every batch: the pages that every batch changes would be copied each time.
            self.next_checkpoint = pages + WAL_PAGES_CHECKPOINT;
            self.checkpointer.wake();
        } else if pages + WAL_PAGES_CHECKPOINT < self.next_checkpoint {
            // The WAL began anew.
            self.next_checkpoint = WAL_PAGES_CHECKPOINT;
            self.checkpointer.begin_anew();
        }
    }

    fn tend(&mut self) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        for index in [&mut self.keys, &mut self.contacts] {
            if index.wants_tending() {
                index.compact_slice(&self.connection)?;
            }
        }
        self.connection.execute_batch("COMMIT")
    }

    fn recover_keys(&mut self, error: &rusqlite::Error) {
        tracing::warn!(%error, "upkeep of the keys failed; reading them anew");
        self.upkeep_rests = true;
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        let loaded = load_keys(&self.connection, self.recent_keys_max)
            .and_then(|keys| Ok((keys, load_contacts(&self.connection, self.recent_keys_max)?)));
        match loaded {
            Ok((keys, contacts)) => (self.keys, self.contacts) = (keys, contacts),
            Err(error) => self.fail(vec![], &error),
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Moves everything from the log into the file, and empties the log, before anything is built upon it. The last process may have
/// stopped because a flush failed. The system then goes on to show what it has not written and will not write any more: what
/// was appended to that would be lost with the power.
fn truncate_wal(connection: &Connection) -> Result<(), Error> {
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0)) {
        Ok(false) => {}
        Ok(true) => tracing::warn!("somebody reads the ledger, so that its log could not be emptied at the start"),
        Err(error) if is_full(&error) => tracing::warn!(%error, "no room to empty the log at the start"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn answer(reply: Option<oneshot::Sender<Result<Reply, Error>>>, result: Result<Reply, Error>) {
    if let Some(reply) = reply {
        // Whoever asked may have hung up; what is written stays written.
        let _ = reply.send(result);
    }
}

fn load_keys(connection: &Connection, recent_max: Option<usize>) -> rusqlite::Result<KeyIndex> {
    KeyIndex::load(connection, &key_index::EVENTS, recent_max.unwrap_or(key_index::RECENT_KEYS_MAX))
}

fn load_contacts(connection: &Connection, recent_max: Option<usize>) -> rusqlite::Result<KeyIndex> {
    KeyIndex::load(connection, &key_index::CONTACTS, recent_max.unwrap_or(key_index::RECENT_CONTACTS_MAX))
}

/// Nothing was written.
fn refused(error: &rusqlite::Error) -> Error {
    Error::sealed(error).unwrap_or_else(|| Error::Refused { message: error.to_string() })
}

fn is_full(error: &rusqlite::Error) -> bool {
    // A WAL index that cannot grow says so in a way of its own; nothing is in doubt then, since no frame was written.
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

/// After these nobody can say what is on the disk.
fn is_fatal(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::InternalMalfunction
                | ErrorCode::OutOfMemory
        )
    )
}
