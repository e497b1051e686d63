//! Counters of the history: changed in memory while a batch runs, written once for each series in the transaction that they count.

use rusqlite::{Connection, params};
use sluice_domain::history::Measure;

/// Changes of the counters in one batch. A batch has few series, so they are searched from the first.
#[derive(Debug, Default)]
pub(super) struct CounterChanges(Vec<CounterChange>);

#[derive(Debug)]
struct CounterChange {
    measure: Measure,
    first: String,
    second: &'static str,
    count: i64,
}

impl CounterChanges {
    pub(super) fn add(&mut self, measure: Measure, first: &str, second: &'static str) {
        let is =
            |known: &&mut CounterChange| known.measure == measure && known.first == first && known.second == second;
        match self.0.iter_mut().find(is) {
            Some(known) => known.count += 1,
            None => self.0.push(CounterChange { measure, first: first.to_owned(), second, count: 1 }),
        }
    }

    pub(super) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut add = connection.prepare_cached(include_str!("sql/add_counter.sql"))?;
        for change in self.0.drain(..) {
            add.execute(params![change.measure.code(), change.first, change.second, change.count])?;
        }
        Ok(())
    }
}
