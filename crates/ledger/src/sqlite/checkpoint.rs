//! A thread that moves pages from the WAL into the file, beside the writer and without holding it up.

use std::path::Path;
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
    resting: bool,
}

fn locked(allowed: &Mutex<bool>) -> MutexGuard<'_, bool> {
    allowed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checkpointer {
    pub fn spawn(directory: &Path) -> Result<Checkpointer, Error> {
        let (wake, woken) = std::sync::mpsc::sync_channel(1);
        let connection = open(directory, Role::Write)?;
        let allowed = Arc::new(Mutex::new(true));
        let asked = allowed.clone();
        let work = move || {
            while woken.recv().is_ok() {
                let allowed = locked(&asked);
                if *allowed && let Err(error) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
                    tracing::debug!(%error, "a checkpoint beside the writer failed");
                }
            }
        };
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(work);
        let thread = thread.map_err(|source| Error::Thread { source })?;
        Ok(Checkpointer { wake: Some(wake), thread: Some(thread), allowed, resting: false })
    }

    /// Lets no checkpoint run from here on. Waits for one that does.
    pub fn rest(&mut self) {
        *locked(&self.allowed) = false;
        self.resting = true;
    }

    /// Whether none may run. Does not wait.
    pub fn is_resting(&self) -> bool {
        self.resting
    }

    /// Lets them run again.
    pub fn go_on(&mut self) {
        *locked(&self.allowed) = true;
        self.resting = false;
    }

    /// Asks for a checkpoint, unless one is asked for already.
    pub fn wake(&self) {
        if let Some(wake) = &self.wake {
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
