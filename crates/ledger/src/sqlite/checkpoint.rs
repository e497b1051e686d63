//! A thread that moves pages from the WAL into the file, beside the writer and without holding it up.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::{Role, open};
use crate::Error;

/// The writer's end of it. The thread ends when this is dropped, and with it its connection.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Locked while a checkpoint runs.
    allowed: Arc<Mutex<bool>>,
    /// How many pages of the log the last one has moved, from its beginning on.
    moved: Arc<AtomicU64>,
    /// Whether one was asked for and has not ended.
    busy: Arc<AtomicBool>,
    paused: bool,
}

fn locked(allowed: &Mutex<bool>) -> MutexGuard<'_, bool> {
    allowed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checkpointer {
    pub fn spawn(directory: &Path) -> Result<Checkpointer, Error> {
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
                        Err(error) => tracing::debug!(%error, "a checkpoint beside the writer failed"),
                    }
                }
                ended.store(false, Ordering::Release);
            }
        };
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(work);
        let thread = thread.map_err(|source| Error::Thread { source })?;
        Ok(Checkpointer { wake: Some(wake), thread: Some(thread), allowed, moved, busy, paused: false })
    }

    /// Lets no checkpoint run from here on. Waits for one that does.
    pub fn pause(&mut self) {
        *locked(&self.allowed) = false;
        self.paused = true;
    }

    /// Whether none may run. Does not wait.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Lets them run again.
    pub fn resume(&mut self) {
        *locked(&self.allowed) = true;
        self.paused = false;
    }

    /// How many pages of the log are in the file already, and whether more are being moved.
    pub fn moved(&self) -> (u64, bool) {
        let busy = self.busy.load(Ordering::Acquire);
        (self.moved.load(Ordering::Relaxed), busy)
    }

    /// The log has begun anew.
    pub fn log_reset(&self) {
        self.moved.store(0, Ordering::Relaxed);
    }

    /// Asks for a checkpoint, unless one is under way.
    pub fn wake(&self) {
        if let Some(wake) = &self.wake
            && !self.busy.swap(true, Ordering::AcqRel)
        {
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Checkpointer {
    /// Waits for the thread: once the writer has ended, nothing of this process touches the file any more.
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
