//! A thread that moves pages from the WAL into the file, beside the writer and without holding it up.

use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Role, open};
use crate::Error;

/// The writer's end of it. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: SyncSender<()>,
    /// Held while a checkpoint runs.
    allowed: Arc<Mutex<bool>>,
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
        std::thread::Builder::new()
            .name("checkpoint".into())
            .spawn(work)
            .map_err(|source| Error::Thread { source })?;
        Ok(Checkpointer { wake, allowed })
    }

    /// Asks for a checkpoint, unless one is asked for already.
    pub fn wake(&self) {
        let _ = self.wake.try_send(());
    }
}
