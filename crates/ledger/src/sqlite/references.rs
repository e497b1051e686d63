//! Events by what refers to them: their trace, and the records that their effects wrote.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;
use sluice_domain::job::{JobId, written_record};

use super::batch::Batch;
use super::key_index::{EventRef, prefix};
use crate::record::EventSeq;

impl Batch<'_, '_> {
    /// Remembers the record that an effect wrote, if its result has an id.
    pub(super) fn refer_to_record(&mut self, job: JobId, result: &Value) -> rusqlite::Result<()> {
        let Some(record) = written_record(result) else { return Ok(()) };
        let digest = self.key_store.digest("record", record.as_bytes());
        let id = self.counters.next_record_ref;
        self.cached(include_str!("sql/insert_record_ref.sql"))?.execute(params![id, job.0, digest])?;
        self.counters.next_record_ref += 1;
        self.indexes.records.insert(prefix(&digest), id);
        Ok(())
    }

    pub(super) fn events_of_record(&self, record: &str) -> rusqlite::Result<Vec<EventSeq>> {
        let digest = self.key_store.digest("record", record.as_bytes());
        let mut found: Vec<EventSeq> = Vec::new();
        for id in self.indexes.records.candidates(self.connection, prefix(&digest))? {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, [u8; 16]>(0)?, row.get(1)?));
            let row = self.cached(include_str!("sql/record_ref.sql"))?.query_row([id], row).optional()?;
            found.extend(row.filter(|(stored, _)| *stored == digest).map(|(_, seq): (_, EventSeq)| seq));
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup();
        Ok(found)
    }

    pub(super) fn events_of_trace(&self, trace: &str) -> rusqlite::Result<Vec<EventSeq>> {
        let Some(reference) = EventRef::trace(trace) else { return Ok(vec![]) };
        let mut found = Vec::new();
        for seq in self.events_of(reference)?.into_iter().rev() {
            let stored: Option<String> =
                self.cached(include_str!("sql/event_trace.sql"))?.query_row([seq], |row| row.get(0)).optional()?;
            found.extend(stored.filter(|stored| stored.split('-').next() == Some(trace)).map(|_| seq));
        }
        Ok(found)
    }
}
