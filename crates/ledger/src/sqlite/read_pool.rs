//! The connections that questions are asked on, cut off when they take too long.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::key_store::{Changes, KeyStore};
use super::{Role, open};
use crate::Error;

/// A question that takes longer is cut off: an open snapshot keeps the WAL from being reset.
const QUESTION_MAX: Duration = Duration::from_secs(2);

/// A connection, and the keys that open what is read on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub connection: &'a Connection,
    pub vault: &'a KeyStore,
    /// What the transaction has done to the keys, where it is the writer's own.
    pub changes: Option<&'a Changes>,
}

impl Deref for Reader<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

/// A few read-only connections.
#[derive(Clone, Debug)]
pub(crate) struct ReadPool {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    idle: Mutex<Vec<Connection>>,
    directory: std::path::PathBuf,
    vault: Arc<KeyStore>,
}

impl ReadPool {
    pub fn open(directory: &Path, vault: Arc<KeyStore>) -> Result<ReadPool, Error> {
        let idle = Mutex::new(vec![open(directory, Role::Read)?]);
        Ok(ReadPool { pool: Arc::new(Pool { idle, directory: directory.to_owned(), vault }) })
    }

    /// Asks on a connection of its own, off the async threads.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Reader<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let reads = self.clone();
        tokio::task::spawn_blocking(move || reads.ask_now(question)).await.map_err(|_| Error::Failed)?
    }

    fn ask_now<T>(&self, question: impl FnOnce(&Reader<'_>) -> rusqlite::Result<T>) -> Result<T, Error> {
        let idle = self.pool.idle.lock().map_err(|_| Error::Failed)?.pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => open(&self.pool.directory, Role::Read)?,
        };
        let deadline = Instant::now() + QUESTION_MAX;
        connection.progress_handler(4096, Some(move || Instant::now() > deadline))?;
        // One snapshot for all statements of a question.
        let answer = connection
            .unchecked_transaction()
            .and_then(|snapshot| question(&Reader { connection: &snapshot, vault: &self.pool.vault, changes: None }));
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
