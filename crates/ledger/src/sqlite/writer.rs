//! The writer: the only thread that changes the file.
//!
//! Batches form by themselves: while one flush runs, the next operations wait in the
//! [submission queue](crate::submission_queue). Every operation of a batch is answered after its COMMIT, never before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rusqlite::{Connection, ErrorCode, OptionalExtension};
use sluice_domain::job::Term;
use sluice_domain::mutant::Mutant;
use sluice_domain::time::Time;
use tokio::sync::watch;

use super::batch::{Batch, Counters};
use super::checkpoint::Checkpointer;
use super::content_cache::ContentCache;
use super::counters::CounterChanges;
use super::key_index::KeyIndexes;
use super::key_store::{Changes, KeyStore};
use super::late_identity::WaitingLinks;
use super::new_jobs::InsertedEvent;
use super::prune::PruneCursors;
use super::reserve_file::ReserveFile;
use super::statements::Statements;
use super::totals::{Names, TotalChanges};
use super::upkeep::{WAL_PAGES_CHECKPOINT, WAL_PAGES_RESET, truncate_wal};
use super::{Role, open};
use crate::op::{Acceptance, ChangedJob};
use crate::options::Opened;
use crate::submission_queue::BatchReceiver;
use crate::write_store::Op;
use crate::{ClockFn, Error, LedgerOptions, LoadedJob, Stats};

/// Operations in one transaction, at most.
const BATCH_OPS_MAX: usize = 512;

/// What a committed transaction leaves to be announced.
struct Committed {
    inserted: Vec<InsertedEvent>,
    requeued: Vec<ChangedJob>,
    at: Time,
}

/// The state of the writer thread.
pub(crate) struct Writer {
    pub(super) connection: Connection,
    key_store: Arc<KeyStore>,
    pub(super) indexes: KeyIndexes,
    contents: ContentCache,
    waiting: WaitingLinks,
    names: Names,
    counters: Counters,
    term: Term,
    /// Whether the term is durable. On a full disk it is written with the first commit that succeeds.
    term_recorded: bool,
    changes: watch::Sender<u64>,
    directory: PathBuf,
    clock: ClockFn,
    wants_new_jobs: Box<dyn Fn(&str) -> bool + Send>,
    on_new_jobs: Box<dyn Fn(Vec<LoadedJob>) + Send>,
    on_requeued: Box<dyn Fn(Vec<ChangedJob>) + Send>,
    on_fatal: Box<dyn Fn(&str) + Send>,
    pub(super) stats: Arc<Stats>,
    pub(super) wal_pages: Arc<AtomicU64>,
    pub(super) wal_pages_max: u64,
    pub(super) checkpointer: Checkpointer,
    /// Number of pages in the log at which the next checkpoint is requested.
    pub(super) next_checkpoint: u64,
    pub(super) recent_keys_max: Option<usize>,
    reserve_file: ReserveFile,
    /// Set when compaction finds no room, until an event can be accepted again.
    pub(super) compaction_paused: bool,
    failed: bool,
}

impl Writer {
    pub(crate) fn open(directory: &Path, options: LedgerOptions, stats: Arc<Stats>) -> Result<Writer, Error> {
        let mut connection = open(directory, Role::Write)?;
        truncate_wal(&connection)?;
        let key_store = Arc::new(KeyStore::open(&mut connection, options.root_key, (options.clock)())?);
        let (term, term_recorded) = take_term(&connection)?;
        if Mutant::BudgetResetByRestart.is_on() {
            connection.execute(include_str!("sql/delete_retries.sql"), [i64::MAX, i64::MAX])?;
        }
        let change_seq = read_change_seq(&connection)?;
        let wal_pages = Arc::new(AtomicU64::new(0));
        let counted = wal_pages.clone();
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
            counted.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        let reserve_file = ReserveFile::new(directory)
            .map_err(|source| Error::Directory { path: directory.join("ballast"), source })?;
        Ok(Writer {
            indexes: KeyIndexes::load(&connection, options.recent_keys_max)?,
            contents: ContentCache::load(&connection)?,
            waiting: WaitingLinks::load(&connection)?,
            names: Names::default(),
            counters: load_counters(&connection)?,
            connection,
            key_store,
            term,
            term_recorded,
            changes: watch::Sender::new(change_seq),
            directory: directory.to_owned(),
            clock: options.clock,
            wants_new_jobs: options.wants_new_jobs,
            on_new_jobs: options.on_new_jobs,
            on_requeued: options.on_requeued,
            on_fatal: options.on_fatal,
            stats,
            wal_pages,
            wal_pages_max: options.wal_pages_max.unwrap_or(WAL_PAGES_RESET),
            checkpointer: Checkpointer::spawn(directory)?,
            next_checkpoint: WAL_PAGES_CHECKPOINT,
            recent_keys_max: options.recent_keys_max,
            reserve_file,
            compaction_paused: false,
            failed: false,
        })
    }

    /// Opens sealed rows, for readers.
    pub(crate) fn key_store(&self) -> Arc<KeyStore> {
        self.key_store.clone()
    }

    pub(crate) fn opened(&self) -> Opened {
        let pseudonyms = self.key_store.pseudonym_key();
        Opened { term: self.term, changes: self.changes.subscribe(), pseudonyms }
    }

    /// Runs until it receives a close, or every sender is gone.
    pub(crate) fn run(mut self, mut operations: BatchReceiver<Op>) {
        let mut batch = Vec::with_capacity(BATCH_OPS_MAX);
        while operations.recv_batch(&mut batch, BATCH_OPS_MAX) > 0 {
            self.stats.queued.fetch_sub(batch.len() as u64, Ordering::Relaxed);
            let started = Instant::now();
            let size = batch.len() as u64;
            let closing = batch.iter().any(|op| matches!(op, Op::Close(_)));
            self.commit(std::mem::take(&mut batch));
            self.stats.batches.fetch_add(1, Ordering::Relaxed);
            self.stats.operations.fetch_add(size, Ordering::Relaxed);
            self.stats.commit_micros.fetch_add(started.elapsed().as_micros() as u64, Ordering::Relaxed);
            if !self.failed {
                self.run_upkeep();
            }
            if closing {
                break;
            }
            batch.reserve(BATCH_OPS_MAX);
        }
        if !self.failed
            && let Err(error) = self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        {
            tracing::warn!(%error, "last checkpoint failed; the next start recovers from the write-ahead log");
        }
    }

    fn commit(&mut self, batch: Vec<Op>) {
        if self.failed {
            return fail_all(batch, || Error::Failed);
        }
        let mut batch = match self.has_room() {
            Ok(true) => batch,
            Ok(false) => self.reject_accepts(batch),
            Err(error) => return self.fail(batch, &error),
        };
        match self.transact(&mut batch) {
            Ok(committed) => {
                self.stats.is_disk_full.store(self.reserve_file.is_spent(), Ordering::Relaxed);
                self.answer_all(batch, committed);
            }
            Err(error) if is_full(&error) => self.commit_on_full_disk(batch),
            Err(error) if is_fatal(&error) => self.fail(batch, &error),
            Err(error) if batch.len() == 1 => fail_all(batch, || refused(&error)),
            // One operation is at fault; the others must not fail with it.
            Err(_) => batch.into_iter().for_each(|op| self.commit(vec![op])),
        }
    }

    /// All or nothing. Changes in memory are undone if the transaction does not commit.
    fn transact(&mut self, ops: &mut [Op]) -> rusqlite::Result<Committed> {
        let (before, window_before, at) = (self.counters, self.contents.window(), (self.clock)());
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut batch = Batch {
            connection: &self.connection,
            statements: &mut Statements::new(&self.connection),
            key_store: &self.key_store,
            key_changes: Changes::default(),
            indexes: &mut self.indexes,
            counters: &mut self.counters,
            names: &mut self.names,
            now: at,
            inserted: Vec::new(),
            requeued: Vec::new(),
            waiting: &mut self.waiting,
            contents: &mut self.contents,
            content_undo: Vec::new(),
            source_days: BTreeMap::new(),
            lateness: BTreeMap::new(),
            duplicates: BTreeMap::new(),
            mapping_warnings: BTreeMap::new(),
            totals: TotalChanges::default(),
            counts: CounterChanges::default(),
            is_change: false,
            change_seq: None,
        };
        let result = ops
            .iter_mut()
            .try_for_each(|op| op.apply(&mut batch))
            .and_then(|()| batch.finish())
            .and_then(|()| if self.term_recorded { Ok(()) } else { record_term(&self.connection, self.term) })
            .and_then(|()| match self.connection.execute_batch("COMMIT") {
                Err(error) if !Mutant::FailedCommitAnswered.is_on() => Err(error),
                _ => Ok(()),
            });
        let Batch { inserted, requeued, content_undo, key_changes, change_seq, .. } = batch;
        match result {
            Ok(()) => {
                self.term_recorded = true;
                let _previous = change_seq.map(|seq| self.changes.send_replace(seq));
                self.key_store.commit(key_changes);
                self.contents.trim();
                self.compaction_paused &= !self.indexes.commit();
                Ok(Committed { inserted, requeued, at })
            }
            Err(error) => {
                self.indexes.roll_back();
                self.waiting.roll_back();
                content_undo.into_iter().rev().for_each(|undo| self.contents.undo(undo));
                self.contents.undo_widening(window_before);
                self.counters = before;
                self.roll_back().and(Err(error))
            }
        }
    }

    fn roll_back(&self) -> rusqlite::Result<()> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.connection.execute_batch("ROLLBACK").inspect_err(|error| tracing::error!(%error, "rollback failed"))
    }

    /// Announces the new and the released jobs of a commit and sends the replies; the inputs are dropped afterwards.
    fn answer_all(&self, mut batch: Vec<Op>, committed: Committed) {
        let Committed { inserted, requeued, at } = committed;
        let mut inserted = inserted.into_iter().peekable();
        let mut new_jobs = Vec::new();
        for op in &batch {
            let Op::Accept(request) = op else { continue };
            for (event, acceptance) in request.input.events.iter().zip(request.output.iter().flatten()) {
                if let Acceptance::Accepted(accepted) = acceptance
                    && let Some(inserted) = inserted.next_if(|inserted| inserted.seq == accepted.seq)
                {
                    new_jobs.extend(inserted.announced(event, at, &self.wants_new_jobs));
                }
            }
        }
        if !new_jobs.is_empty() {
            (self.on_new_jobs)(new_jobs);
        }
        if !requeued.is_empty() {
            (self.on_requeued)(requeued);
        }
        batch.iter_mut().for_each(Op::answer);
    }

    /// Accepts are rejected; everything else is written, with the room of the reserve file if necessary.
    fn commit_on_full_disk(&mut self, batch: Vec<Op>) {
        self.stats.is_disk_full.store(true, Ordering::Relaxed);
        let mut others = self.reject_accepts(batch);
        let mut result = self.transact(&mut others);
        if result.as_ref().is_err_and(is_full) {
            // A checkpoint would grow the file into the room that is made here.
            self.checkpointer.pause();
            self.reserve_file.spend();
            result = self.transact(&mut others);
        }
        match result {
            Ok(committed) => self.answer_all(others, committed),
            Err(error) if is_full(&error) => fail_all(others, || Error::DiskFull),
            Err(error) if is_fatal(&error) => self.fail(others, &error),
            Err(_) => others.into_iter().for_each(|op| self.commit(vec![op])),
        }
    }

    /// Whether accepts may be written: the reserve file is there.
    fn has_room(&mut self) -> std::io::Result<bool> {
        let kept = self.reserve_file.is_kept()?;
        if kept && self.checkpointer.is_paused() {
            self.checkpointer.resume();
        }
        Ok(kept)
    }

    /// Answers accepts with "disk full" and returns the rest of the batch.
    fn reject_accepts(&mut self, batch: Vec<Op>) -> Vec<Op> {
        let (accepts, others): (Vec<_>, Vec<_>) = batch.into_iter().partition(|op| matches!(op, Op::Accept(_)));
        if !accepts.is_empty() {
            self.stats.disk_full.fetch_add(1, Ordering::Relaxed);
        }
        fail_all(accepts, || Error::DiskFull);
        others
    }

    /// Whether the batch is on disk is unknown, and memory may be wrong: this process writes nothing more.
    pub(super) fn fail(&mut self, batch: Vec<Op>, error: &dyn std::error::Error) {
        self.failed = true;
        tracing::error!(%error, "the ledger cannot be written any more; stopping");
        fail_all(batch, || Error::InDoubt { message: error.to_string() });
        (self.on_fatal)(&error.to_string());
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("directory", &self.directory).finish_non_exhaustive()
    }
}

fn fail_all(batch: Vec<Op>, error: impl Fn() -> Error) {
    batch.into_iter().for_each(|op| op.fail(error()));
}

/// Takes the next term, and says whether it is durable.
fn take_term(connection: &Connection) -> Result<(Term, bool), Error> {
    let last: Option<u32> = connection.query_row(include_str!("sql/term.sql"), [], |row| row.get(0)).optional()?;
    let term = Term(last.unwrap_or(0) + 1);
    match record_term(connection, term) {
        Ok(()) => Ok((term, true)),
        Err(error) if is_full(&error) => Ok((term, false)),
        Err(error) => Err(error.into()),
    }
}

fn record_term(connection: &Connection, term: Term) -> rusqlite::Result<()> {
    connection.prepare_cached(include_str!("sql/take_term.sql"))?.execute([term.0]).map(drop)
}

pub(super) fn read_change_seq(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row(include_str!("sql/change_seq.sql"), [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

fn load_counters(connection: &Connection) -> rusqlite::Result<Counters> {
    let after = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(|last| last + 1);
    Ok(Counters {
        next_seq: after(include_str!("sql/last_seq.sql"))?,
        next_job: after(include_str!("sql/last_job.sql"))?,
        next_contact: after(include_str!("sql/last_contact.sql"))?,
        next_binding: after(include_str!("sql/last_key_binding.sql"))?,
        next_contact_id: after(include_str!("sql/last_contact_id.sql"))?,
        next_identifier: after(include_str!("sql/last_identifier.sql"))?,
        next_record_ref: after(include_str!("sql/last_record_ref.sql"))?,
        prune: PruneCursors::default(),
    })
}

/// For an operation that was not written.
fn refused(error: &rusqlite::Error) -> Error {
    super::sealed_error(error).unwrap_or_else(|| Error::Refused { message: error.to_string() })
}

pub(super) fn is_full(error: &rusqlite::Error) -> bool {
    // A WAL index that cannot grow has an error code of its own; nothing is in doubt then, since no frame was written.
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

/// Errors after which the content of the disk is unknown.
pub(super) fn is_fatal(error: &rusqlite::Error) -> bool {
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
