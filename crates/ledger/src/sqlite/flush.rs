//! A thread that flushes the log, so that the writer need not wait for the disk: meanwhile it applies the next operations.
//!
//! SQLite writes a commit to the log and does not flush it; here that is done, and only then is anybody told of it. There is one
//! flush at a time. What is committed meanwhile waits for the next one.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sluice_domain::mutant::Mutant;

use super::FILE_NAME;
use super::writer::{Answer, OnFresh, answer};
use crate::op::Reply;
use crate::record::Fresh;
use crate::{Error, Stats};

/// Puts on the disk what was written to the log.
pub type Flush = Box<dyn FnMut() -> io::Result<()> + Send>;
/// Called once when the file can no longer be trusted.
pub(super) type Fatal = Arc<Mutex<Option<Box<dyn Fn(&str) + Send>>>>;

/// A commit that is in the log.
pub(super) struct Committed {
    /// Its number.
    pub number: u64,
    /// Who waits for it, and for what.
    pub answers: Vec<(Answer, Reply)>,
    /// Its jobs.
    pub fresh: Vec<Fresh>,
    /// When it was begun.
    pub started: Instant,
}

/// What is on the disk, for who has to know.
#[derive(Debug, Default)]
pub(crate) struct Flushed {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The last commit that was begun, and the last one that is on the disk.
    begun: u64,
    flushed: u64,
    next: Option<Committed>,
    failed: bool,
    ended: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let State { begun, flushed, failed, .. } = self;
        write!(f, "{flushed} of {begun} flushed, failed: {failed}")
    }
}

impl Flushed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything is on the disk that could be seen until now, however long that takes. `false` if it never will be.
    fn wait(&self) -> bool {
        let state = self.state();
        let seen = state.begun;
        let waits = |state: &mut State| state.flushed < seen && !state.failed;
        self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner).flushed >= seen
    }

    /// The same, but not for longer than this.
    pub fn wait_within(&self, time: Duration) -> Result<(), Error> {
        let state = self.state();
        let seen = state.begun;
        let waits = |state: &mut State| state.flushed < seen && !state.failed;
        let (state, _) = self.changed.wait_timeout_while(state, time, waits).unwrap_or_else(PoisonError::into_inner);
        match (state.flushed >= seen, state.failed) {
            (true, _) => Ok(()),
            (false, true) => Err(Error::Failed),
            (false, false) => Err(Error::DiskSlow),
        }
    }
}

/// The writer's end of it. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Flusher {
    flushed: Arc<Flushed>,
    thread: Option<JoinHandle<()>>,
}

/// Flushes the log that lies in a directory, which is there once something was written to it.
pub(super) fn log_in(directory: &Path) -> Result<Flush, Error> {
    let path = directory.join(format!("{FILE_NAME}-wal"));
    let log = File::open(&path).map_err(|source| Error::Directory { path, source })?;
    Ok(Box::new(move || log.sync_data()))
}

impl Flusher {
    pub fn spawn(mut flush: Flush, on_fresh: OnFresh, on_fatal: Fatal, stats: Arc<Stats>) -> Result<Flusher, Error> {
        let flushed = Arc::new(Flushed::default());
        let shared = flushed.clone();
        let work = move || {
            while let Some(committed) = next(&shared) {
                let result = if Mutant::CommitNotSynced.is_on() { Ok(()) } else { flush() };
                let result = if Mutant::FailedCommitAnswered.is_on() { Ok(()) } else { result };
                {
                    let mut state = shared.state();
                    match result {
                        Ok(()) => state.flushed = committed.number,
                        Err(_) => state.failed = true,
                    }
                    shared.changed.notify_all();
                }
                stats.queued.fetch_sub(committed.answers.len() as u64, Ordering::Relaxed);
                stats.commit_micros.fetch_add(committed.started.elapsed().as_micros() as u64, Ordering::Relaxed);
                tell(committed, result, &on_fresh, &on_fatal);
            }
        };
        let thread = std::thread::Builder::new().name("flush".into()).spawn(work);
        let thread = thread.map_err(|source| Error::Thread { source })?;
        Ok(Flusher { flushed, thread: Some(thread) })
    }

    /// What is on the disk.
    pub fn flushed(&self) -> Arc<Flushed> {
        self.flushed.clone()
    }

    /// Waits until no flush is under way. `false` if one has failed.
    pub fn wait(&self) -> bool {
        self.flushed.wait()
    }

    /// Whether a flush has failed.
    pub fn has_failed(&self) -> bool {
        self.flushed.state().failed
    }

    /// A commit is about to be seen by readers. There must be no other one on its way.
    pub fn begin(&self) -> u64 {
        let mut state = self.flushed.state();
        state.begun += 1;
        state.begun
    }

    /// Nothing came of it.
    pub fn withdraw(&self, number: u64) {
        self.flushed.state().flushed = number;
        self.flushed.changed.notify_all();
    }

    /// Flushes it, then tells who waits for it.
    pub fn give(&self, committed: Committed) {
        self.flushed.state().next = Some(committed);
        self.flushed.changed.notify_all();
    }
}

impl Drop for Flusher {
    /// Waits for the thread, and so for what was given to it.
    fn drop(&mut self) {
        self.flushed.state().ended = true;
        self.flushed.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn next(flushed: &Flushed) -> Option<Committed> {
    let waits = |state: &mut State| state.next.is_none() && !state.ended;
    flushed.changed.wait_while(flushed.state(), waits).unwrap_or_else(PoisonError::into_inner).next.take()
}

fn tell(committed: Committed, result: io::Result<()>, on_fresh: &OnFresh, on_fatal: &Fatal) {
    let Committed { answers, fresh, .. } = committed;
    match result {
        Ok(()) => {
            if !fresh.is_empty() {
                on_fresh(fresh);
            }
            for (reply, came) in answers {
                answer(reply, Ok(came));
            }
        }
        Err(error) => {
            stop(on_fatal, &error);
            for (reply, _) in answers {
                answer(reply, Err(Error::InDoubt { message: error.to_string() }));
            }
        }
    }
}

/// Whether what was committed is on the disk is unknown, and what memory holds may be wrong: nothing more is written by this process.
pub(super) fn stop(on_fatal: &Fatal, error: &dyn std::error::Error) {
    let on_fatal = on_fatal.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(on_fatal) = on_fatal {
        tracing::error!(%error, "the ledger can no longer be written; stopping");
        on_fatal(&error.to_string());
    }
}
