//! The writer: one thread that alone changes the file.
//!
//! Batches form by themselves: while one flush runs, the next operations gather and are applied. Every operation of a batch is
//! answered after the flush of its COMMIT, never before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rusqlite::{Connection, ErrorCode};
use sluice_domain::mutant::Mutant;
use tokio::sync::{mpsc, oneshot};

use super::apply::{Batch, Counters};
use super::ballast::Ballast;
use super::checkpoint::{Checkpointer, DataFile};
use super::flush::{self, Committed, Fatal, Flushed, Flusher};
use super::keys::{self, Keys};
use super::net::Net;
use super::vault::{Changes, Vault};
use super::{Role, open};
use crate::op::{Op, Reply};
use crate::record::Fresh;
use crate::{Clock, Error, Options, Stats};

/// Operations in one transaction, at the most.
const BATCH_OPS_MAX: usize = 512;
/// Above this many pages in the WAL the writer itself resets it between two batches: a checkpoint beside a busy writer never
/// finds the moment to, and the file would grow without end.
const WAL_PAGES_RESET: u64 = 16 * 1024;
/// It does so once no more pages than these are left to be moved, since everybody waits meanwhile; or when the WAL is twice as
/// long as that.
const WAL_PAGES_LEFT: u64 = 512;
/// From this many pages on a checkpoint runs beside the writer.
const WAL_PAGES_CHECKPOINT: u64 = 4 * 1024;

/// An operation and who waits for it.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub op: Op,
    pub reply: Answer,
}

/// Who waits for an operation, if anybody does.
pub(crate) type Answer = Option<oneshot::Sender<Result<Reply, Error>>>;
/// Called with the jobs of each commit.
pub(crate) type OnFresh = Box<dyn Fn(Vec<Fresh>) + Send>;

/// The state of the writer thread.
pub(crate) struct Writer {
    connection: Connection,
    vault: Arc<Vault>,
    keys: Keys,
    contacts: Keys,
    net: Net,
    counters: Counters,
    directory: PathBuf,
    clock: Clock,
    flusher: Flusher,
    on_fatal: Fatal,
    stats: Arc<Stats>,
    wal_pages: Arc<AtomicU64>,
    wal_pages_max: u64,
    checkpointer: Checkpointer,
    /// At so many pages the next checkpoint is asked for.
    next_checkpoint: u64,
    recent_keys_max: Option<usize>,
    ballast: Ballast,
    /// Upkeep found no room: it waits until an event could be accepted again.
    upkeep_rests: bool,
    failed: bool,
    /// It was told to end.
    closing: bool,
    /// Dropped last.
    file: DataFile,
}

/// A commit that is not flushed yet.
struct Done {
    number: u64,
    replies: Vec<Reply>,
    fresh: Vec<Fresh>,
    started: Instant,
}

impl Writer {
    pub fn open(directory: &Path, options: Options, stats: Arc<Stats>) -> Result<Writer, Error> {
        let Options { clock, on_fresh, on_fatal, recent_keys_max, wal_pages_max, root_key, flush } = options;
        let mut connection = open(directory, Role::Write)?;
        settle_log(&connection)?;
        let vault = Arc::new(Vault::open(&mut connection, root_key, clock())?);
        let keys = load_keys(&connection, recent_keys_max)?;
        let contacts = load_contacts(&connection, recent_keys_max)?;
        let net = Net::load(&connection)?;
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
        let file = DataFile::open(directory);
        let checkpointer = Checkpointer::spawn(directory, file.clone())?;
        let mut flush = flush.map_or_else(|| flush::log_in(directory), Ok)?;
        // What was done above is built upon.
        flush().map_err(|source| Error::Directory { path: directory.to_owned(), source })?;
        let on_fatal = Arc::new(Mutex::new(Some(on_fatal)));
        let flusher = Flusher::spawn(flush, on_fresh, on_fatal.clone(), stats.clone())?;
        let ballast =
            Ballast::new(directory).map_err(|source| Error::Directory { path: directory.join("ballast"), source })?;
        Ok(Writer {
            connection,
            vault,
            keys,
            contacts,
            net,
            counters,
            directory: directory.to_owned(),
            clock,
            flusher,
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
            closing: false,
            file,
        })
    }

    /// What opens the rows, for readers.
    pub fn vault(&self) -> Arc<Vault> {
        self.vault.clone()
    }

    /// What readers have to hold on to.
    pub fn file(&self) -> DataFile {
        self.file.clone()
    }

    /// What of it is on the disk, for readers.
    pub fn flushed(&self) -> Arc<Flushed> {
        self.flusher.flushed()
    }

    /// Works until it is told to end, or every sender is gone.
    pub fn run(mut self, mut operations: mpsc::Receiver<Envelope>) {
        let mut batch = Vec::with_capacity(BATCH_OPS_MAX);
        while operations.blocking_recv_many(&mut batch, BATCH_OPS_MAX) > 0 {
            self.commit(std::mem::take(&mut batch), Some(&mut operations));
            self.stats.batches.fetch_add(1, Ordering::Relaxed);
            if !self.failed {
                self.keep_up();
            }
            if self.closing {
                break;
            }
            batch.reserve(BATCH_OPS_MAX);
        }
        self.failed |= !self.flusher.wait();
        if !self.failed
            && let Err(error) = self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        {
            tracing::warn!(%error, "the last checkpoint failed; the next start recovers from the WAL");
        }
    }

    /// Commits a batch and gives it to be flushed. What comes meanwhile goes with it, if there is more.
    fn commit(&mut self, batch: Vec<Envelope>, more: Option<&mut mpsc::Receiver<Envelope>>) {
        self.closing |= has_close(&batch);
        if self.failed {
            for envelope in batch {
                self.turn_down(envelope, Error::Failed);
            }
            return;
        }
        let (mut batch, more) = match self.has_room() {
            Ok(true) => (batch, more),
            Ok(false) => (self.turn_away(batch), None),
            Err(error) => return self.fail(batch, &error),
        };
        match self.transact(&mut batch, more) {
            Ok(done) => self.give(batch, done),
            Err(error) if is_full(&error) => self.shed(batch),
            Err(error) if is_fatal(&error) => self.fail(batch, &error),
            Err(error) if batch.len() == 1 => {
                for envelope in batch {
                    self.turn_down(envelope, refused(&error));
                }
            }
            // One of them is at fault, and its neighbours must not suffer for it.
            Err(_) => {
                for envelope in batch {
                    self.commit(vec![envelope], None);
                }
            }
        }
    }

    /// All or nothing. What memory knows of the batch is undone when it does not commit.
    fn transact(
        &mut self,
        envelopes: &mut Vec<Envelope>,
        more: Option<&mut mpsc::Receiver<Envelope>>,
    ) -> rusqlite::Result<Done> {
        let started = Instant::now();
        let before = self.counters;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut batch = Batch {
            connection: &self.connection,
            vault: &self.vault,
            key_changes: Changes::default(),
            keys: &mut self.keys,
            contacts: &mut self.contacts,
            counters: &mut self.counters,
            now: (self.clock)(),
            fresh: Vec::new(),
            taken: Vec::new(),
            contacts_taken: Vec::new(),
            net: &mut self.net,
            remembered: Vec::new(),
            tallies: BTreeMap::new(),
            lateness: BTreeMap::new(),
        };
        let mut replies = Vec::with_capacity(envelopes.len());
        let mut applied = batch.apply_all(envelopes, &mut replies);
        // Beside the flush of the one before.
        if applied.is_ok() && !self.flusher.wait() {
            applied = Err(flush_failed());
        }
        if let (Ok(()), Some(more)) = (&applied, more) {
            let from = envelopes.len();
            while envelopes.len() < BATCH_OPS_MAX
                && let Ok(envelope) = more.try_recv()
            {
                envelopes.push(envelope);
            }
            self.closing |= has_close(&envelopes[from..]);
            batch.now = (self.clock)();
            applied = batch.apply_all(&envelopes[from..], &mut replies);
        }
        let result = applied.and_then(|()| batch.finish()).and_then(|()| {
            let number = self.flusher.begin();
            match self.connection.execute_batch("COMMIT") {
                Err(error) if !Mutant::FailedCommitAnswered.is_on() => {
                    self.flusher.withdraw(number);
                    Err(error)
                }
                _ => Ok(number),
            }
        });
        let Batch { fresh, taken, contacts_taken, remembered, key_changes, .. } = batch;
        match result {
            Ok(number) => {
                self.vault.commit(key_changes);
                self.net.trim();
                self.upkeep_rests &= taken.is_empty();
                Ok(Done { number, replies, fresh, started })
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

    /// Lets a commit be flushed, and who waits for it be told.
    fn give(&mut self, batch: Vec<Envelope>, done: Done) {
        let Done { number, replies, fresh, started } = done;
        self.stats.operations.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let answers = batch.into_iter().map(|envelope| envelope.reply).zip(replies).collect();
        self.flusher.give(Committed { number, answers, fresh, started });
    }

    /// The disk is full: new events are turned away, everything else goes on, with the ballast's room if need be.
    fn shed(&mut self, batch: Vec<Envelope>) {
        let mut others = self.turn_away(batch);
        let mut result = self.transact(&mut others, None);
        if result.as_ref().is_err_and(is_full) {
            // Growing the file by what lies in the WAL would take the very room that is made here.
            self.checkpointer.rest();
            self.ballast.spend();
            result = self.transact(&mut others, None);
        }
        match result {
            Ok(done) => self.give(others, done),
            Err(error) if is_full(&error) => {
                for envelope in others {
                    self.turn_down(envelope, Error::DiskFull);
                }
            }
            Err(error) if is_fatal(&error) => self.fail(others, &error),
            Err(_) => {
                for envelope in others {
                    self.commit(vec![envelope], None);
                }
            }
        }
    }

    /// Whether new events may be written, as far as is known.
    fn has_room(&mut self) -> std::io::Result<bool> {
        let kept = self.ballast.is_kept()?;
        if kept && self.checkpointer.is_resting() {
            self.checkpointer.go_on();
        }
        Ok(kept)
    }

    /// Answers that there is no room for new events, and leaves the rest of the batch.
    fn turn_away(&mut self, batch: Vec<Envelope>) -> Vec<Envelope> {
        let (accepts, others): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|envelope| matches!(envelope.op, Op::Accept(_) | Op::AcceptAll(_)));
        if !accepts.is_empty() {
            self.stats.disk_full.fetch_add(1, Ordering::Relaxed);
        }
        for envelope in accepts {
            self.turn_down(envelope, Error::DiskFull);
        }
        others
    }

    fn turn_down(&self, envelope: Envelope, error: Error) {
        self.stats.queued.fetch_sub(1, Ordering::Relaxed);
        answer(envelope.reply, Err(error));
    }

    /// Whether the batch is on disk is unknown, and what memory holds may be wrong: nothing more is written by this process.
    fn fail(&mut self, batch: Vec<Envelope>, error: &dyn std::error::Error) {
        self.failed = true;
        flush::stop(&self.on_fatal, error);
        // After a flush that failed, nothing more was committed.
        let nothing_done = self.flusher.has_failed();
        for envelope in batch {
            let in_doubt = || Error::InDoubt { message: error.to_string() };
            self.turn_down(envelope, if nothing_done { Error::Failed } else { in_doubt() });
        }
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
                index.tend(&self.connection)?;
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
fn settle_log(connection: &Connection) -> Result<(), Error> {
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0)) {
        Ok(false) => {}
        Ok(true) => tracing::warn!("somebody reads the ledger, so that its log could not be emptied at the start"),
        Err(error) if is_full(&error) => tracing::warn!(%error, "no room to empty the log at the start"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

pub(super) fn answer(reply: Answer, result: Result<Reply, Error>) {
    if let Some(reply) = reply {
        // Whoever asked may have hung up; what is written stays written.
        let _ = reply.send(result);
    }
}

fn load_keys(connection: &Connection, recent_max: Option<usize>) -> rusqlite::Result<Keys> {
    Keys::load(connection, &keys::EVENTS, recent_max.unwrap_or(keys::RECENT_KEYS_MAX))
}

fn load_contacts(connection: &Connection, recent_max: Option<usize>) -> rusqlite::Result<Keys> {
    Keys::load(connection, &keys::CONTACTS, recent_max.unwrap_or(keys::RECENT_CONTACTS_MAX))
}

/// Nothing was written.
fn refused(error: &rusqlite::Error) -> Error {
    Error::sealed(error).unwrap_or_else(|| Error::Refused { message: error.to_string() })
}

fn has_close(envelopes: &[Envelope]) -> bool {
    envelopes.iter().any(|envelope| matches!(envelope.op, Op::Close))
}

/// As SQLite would say it.
fn flush_failed() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC), None)
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
