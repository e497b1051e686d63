//! A thread that moves pages from the write-ahead log into the file, beside the writer.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::{Role, open};
use crate::Error;

/// Controls the checkpoint thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Locked while a checkpoint runs.
    allowed: Arc<Mutex<bool>>,
    /// Pages that the last checkpoint has moved, from the beginning of the log.
    moved: Arc<AtomicU64>,
    /// Whether a checkpoint was requested and has not ended.
    busy: Arc<AtomicBool>,
    paused: bool,
}

fn locked(allowed: &Mutex<bool>) -> MutexGuard<'_, bool> {
    allowed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checkpointer {
    pub(super) fn spawn(directory: &Path) -> Result<Checkpointer, Error> {
        let (wake, woken) = std::sync::mpsc::sync_channel(1);
        let connection = open(directory, Role::Write)?;
        let allowed = Arc::new(Mutex::new(true));
        let (moved, busy) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (asked, came_to, ended) = (allowed.clone(), moved.clone(), busy.clone());
        let work = move || {
            while woken.recv().is_ok() {
                let allowed = locked(&asked);
                if *allowed {
                    match connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(2)) {
                        Ok(pages) => came_to.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed),
                        Err(error) => tracing::debug!(%error, "background checkpoint failed"),
                    }
                }
                ended.store(false, Ordering::Release);
            }
        };
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(work);
        let thread = thread.map_err(|source| Error::Thread { source })?;
        Ok(Checkpointer { wake: Some(wake), thread: Some(thread), allowed, moved, busy, paused: false })
    }

    /// Pauses checkpoints; blocks until a running one ends.
    pub(super) fn pause(&mut self) {
        *locked(&self.allowed) = false;
        self.paused = true;
    }

    /// Does not block.
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Allows checkpoints again.
    pub(super) fn resume(&mut self) {
        *locked(&self.allowed) = true;
        self.paused = false;
    }

    /// Pages of the log that are in the file, and whether a checkpoint is running.
    pub(super) fn moved(&self) -> (u64, bool) {
        let busy = self.busy.load(Ordering::Acquire);
        (self.moved.load(Ordering::Relaxed), busy)
    }

    /// The log was reset.
    pub(super) fn log_reset(&self) {
        self.moved.store(0, Ordering::Relaxed);
    }

    /// Requests a checkpoint unless one is running.
    pub(super) fn wake(&self) {
        if let Some(wake) = &self.wake
            && !self.busy.swap(true, Ordering::AcqRel)
        {
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Checkpointer {
    /// Waits for the thread: once the writer has ended, this process does not touch the file any more.
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
