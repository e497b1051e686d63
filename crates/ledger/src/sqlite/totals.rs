//! Numbers of jobs of each kind: changed in memory while a batch runs, written once for each kind before its commit.

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::{Connection, params};
use sluice_domain::job::JobState;

/// Names that are interned before the set is cleared. They come from configurations, so there are few.
const NAMES_MAX: usize = 4096;

/// What jobs are counted by.
#[derive(Clone, Debug)]
pub(super) struct TotalKey {
    pub state: JobState,
    pub worker: Arc<str>,
    pub destination: Arc<str>,
    /// Empty for none.
    pub dead_letter_queue: Arc<str>,
    pub queue: Arc<str>,
    pub revision: Arc<str>,
    /// Why a waiting job waits; empty for others.
    pub wait: Arc<str>,
}

/// A [`TotalKey`] by reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct TotalRef<'a> {
    pub state: JobState,
    pub worker: &'a str,
    pub destination: &'a str,
    pub dead_letter_queue: &'a str,
    pub queue: &'a str,
    pub revision: &'a str,
    pub wait: &'a str,
}

impl TotalKey {
    pub(super) fn as_ref(&self) -> TotalRef<'_> {
        TotalRef {
            state: self.state,
            worker: &self.worker,
            destination: &self.destination,
            dead_letter_queue: &self.dead_letter_queue,
            queue: &self.queue,
            revision: &self.revision,
            wait: &self.wait,
        }
    }

    fn is(&self, key: TotalRef<'_>) -> bool {
        self.state == key.state
            && *self.worker == *key.worker
            && *self.destination == *key.destination
            && *self.dead_letter_queue == *key.dead_letter_queue
            && *self.queue == *key.queue
            && *self.revision == *key.revision
            && *self.wait == *key.wait
    }
}

/// Changes of the totals in one batch. A batch has few kinds of jobs, so they are searched from the first.
#[derive(Debug, Default)]
pub(super) struct TotalChanges(Vec<(TotalKey, i64)>);

impl TotalChanges {
    pub(super) fn add(&mut self, key: TotalRef<'_>) {
        self.change(key, 1);
    }

    pub(super) fn remove(&mut self, key: TotalRef<'_>) {
        self.change(key, -1);
    }

    fn change(&mut self, key: TotalRef<'_>, by: i64) {
        match self.0.iter_mut().find(|(known, _)| known.is(key)) {
            Some((_, change)) => *change += by,
            None => {
                let new = TotalKey {
                    state: key.state,
                    worker: Arc::from(key.worker),
                    destination: Arc::from(key.destination),
                    dead_letter_queue: Arc::from(key.dead_letter_queue),
                    queue: Arc::from(key.queue),
                    revision: Arc::from(key.revision),
                    wait: Arc::from(key.wait),
                };
                self.0.push((new, by));
            }
        }
    }

    pub(super) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut add = connection.prepare_cached(include_str!("sql/add_job_total.sql"))?;
        for (key, change) in self.0.drain(..).filter(|(_, change)| *change != 0) {
            add.execute(params![
                key.state.code(),
                key.worker.as_ref(),
                key.destination.as_ref(),
                key.dead_letter_queue.as_ref(),
                key.queue.as_ref(),
                key.revision.as_ref(),
                key.wait.as_ref(),
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
    pub(super) fn intern(&mut self, name: &str) -> Arc<str> {
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
