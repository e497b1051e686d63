//! Requests that were answered as duplicates, by their event: one row for each event that has any, written once for a batch.

use rusqlite::{OptionalExtension, params};
use sluice_domain::duplicate_stats::{DuplicateRequest, EventDuplicates};
use sluice_domain::time::Time;

use super::batch::Batch;
use super::read_pool::Reader;
use super::row::wrong;
use crate::record::EventSeq;

impl Batch<'_, '_> {
    pub(super) fn add_duplicates(&self, seq: EventSeq, requests: Vec<DuplicateRequest>) -> rusqlite::Result<()> {
        let known = self.reader().event_duplicates(&seq)?;
        let Some(all) = EventDuplicates::add(known, requests) else { return Ok(()) };
        let count = i64::try_from(all.count).unwrap_or(i64::MAX);
        let put = include_str!("sql/put_event_duplicates.sql");
        self.cached(put)?.execute(params![seq, count, all.first_at.0, all.last_at.0, all.encode()])?;
        Ok(())
    }
}

impl Reader<'_> {
    pub(crate) fn event_duplicates(&self, event: &EventSeq) -> rusqlite::Result<Option<EventDuplicates>> {
        let row = |row: &rusqlite::Row<'_>| {
            let recent = EventDuplicates::decode(row.get_ref(3)?.as_blob()?);
            Ok(EventDuplicates {
                count: row.get::<_, i64>(0)?.unsigned_abs(),
                first_at: Time(row.get(1)?),
                last_at: Time(row.get(2)?),
                recent: recent.ok_or_else(|| wrong(3, "no list of duplicates"))?,
            })
        };
        self.prepare_cached(include_str!("sql/event_duplicates.sql"))?.query_row([event], row).optional()
    }
}
