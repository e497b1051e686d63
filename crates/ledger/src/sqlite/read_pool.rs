//! Read-only connections. A read that takes too long is interrupted.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::key_store::{Changes, KeyStore};
use super::search::SEARCH_MAX;
use super::{Role, open};
use crate::Error;

/// A read that takes longer is interrupted: an open snapshot keeps the write-ahead log from being reset.
const READ_MAX: Duration = Duration::from_secs(2);

/// A connection in a snapshot, and the keys that open sealed values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub connection: &'a Connection,
    pub key_store: &'a KeyStore,
    /// Key changes of the transaction, if it is the writer's.
    pub changes: Option<&'a Changes>,
    /// Time that a page of a list may search.
    pub search_max: Duration,
}

impl Deref for Reader<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

/// A few read-only connections; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ReadPool {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    idle: Mutex<Vec<Connection>>,
    directory: std::path::PathBuf,
    key_store: Arc<KeyStore>,
    search_max: Duration,
}

impl ReadPool {
    pub(crate) fn open(
        directory: &Path,
        key_store: Arc<KeyStore>,
        search_max: Option<Duration>,
    ) -> Result<ReadPool, Error> {
        let idle = Mutex::new(vec![open(directory, Role::Read)?]);
        let search_max = search_max.unwrap_or(SEARCH_MAX);
        Ok(ReadPool { pool: Arc::new(Pool { idle, directory: directory.to_owned(), key_store, search_max }) })
    }

    /// Reads one snapshot on a connection of its own, off the async threads.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let pool = self.clone();
        tokio::task::spawn_blocking(move || pool.read_now(read)).await.map_err(|_| Error::Failed)?
    }

    fn read_now<T>(&self, read: impl FnOnce(&Reader<'_>) -> rusqlite::Result<T>) -> Result<T, Error> {
        let idle = self.pool.idle.lock().map_err(|_| Error::Failed)?.pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => open(&self.pool.directory, Role::Read)?,
        };
        let deadline = Instant::now() + READ_MAX;
        connection.progress_handler(4096, Some(move || Instant::now() > deadline))?;
        // One snapshot for all statements of a read.
        let answer = connection.unchecked_transaction().and_then(|snapshot| {
            let Pool { key_store, search_max, .. } = &*self.pool;
            read(&Reader { connection: &snapshot, key_store, changes: None, search_max: *search_max })
        });
        connection.progress_handler(0, None::<fn() -> bool>)?;
        let mut idle = self.pool.idle.lock().map_err(|_| Error::Failed)?;
        if idle.len() < 4 {
            idle.push(connection);
        }
        match answer {
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) => {
                Err(Error::TooSlow)
            }
            other => Ok(other?),
        }
    }
}
