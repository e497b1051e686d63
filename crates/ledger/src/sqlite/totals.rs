//! Numbers of jobs of each kind: changed in memory while a batch runs, written once for each kind before its commit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rusqlite::{Connection, params};
use sluice_domain::job::JobState;

/// Names that are interned before the set is cleared. They come from configurations, so there are few.
const NAMES_MAX: usize = 4096;

/// What jobs are counted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TotalKey {
    pub state: JobState,
    pub worker: Arc<str>,
    pub destination: Arc<str>,
    /// Empty for none.
    pub dead_letter_queue: Arc<str>,
    pub queue: Arc<str>,
    pub revision: Arc<str>,
}

/// Changes of the totals in one batch.
#[derive(Debug, Default)]
pub(super) struct TotalChanges(HashMap<TotalKey, i64>);

impl TotalChanges {
    pub fn add(&mut self, key: TotalKey) {
        *self.0.entry(key).or_default() += 1;
    }

    pub fn remove(&mut self, key: TotalKey) {
        *self.0.entry(key).or_default() -= 1;
    }

    pub fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut add = connection.prepare_cached(include_str!("sql/add_job_total.sql"))?;
        for (key, change) in self.0.drain().filter(|(_, change)| *change != 0) {
            add.execute(params![
                key.state.code(),
                key.worker.as_ref(),
                key.destination.as_ref(),
                key.dead_letter_queue.as_ref(),
                key.queue.as_ref(),
                key.revision.as_ref(),
                change
            ])?;
        }
        Ok(())
    }
}

/// Interned names, so that a row that is read costs no allocation for each of them.
#[derive(Debug, Default)]
pub(super) struct Names(HashSet<Arc<str>>);

impl Names {
    pub fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        if self.0.len() >= NAMES_MAX {
            self.0.clear();
        }
        let name: Arc<str> = Arc::from(name);
        self.0.insert(name.clone());
        name
    }
}
