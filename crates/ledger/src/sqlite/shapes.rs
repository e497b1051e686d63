//! Learned shapes of payloads.

use rusqlite::{OptionalExtension, params};
use sluice_domain::drift::Shape;

use super::batch::Batch;
use super::read_pool::Reader;
use super::row::place;
use crate::op::{AcceptDrift, KeepShapes};
use crate::record::{EventSeq, ShapeRecord};

impl Batch<'_, '_> {
    pub(super) fn write_shapes(&mut self, keep: &KeepShapes) -> rusqlite::Result<bool> {
        let reader = self.reader();
        if reader.payloads_seen()? != keep.after {
            return Ok(false);
        }
        for record in &keep.shapes {
            let known = self.shape_version(record)?.map_or(0, |(_, version)| version);
            if known != record.version {
                return Ok(false);
            }
        }
        for record in &keep.shapes {
            self.write_shape(record)?;
        }
        self.cached(include_str!("sql/keep_payloads_seen.sql"))?.execute([keep.seen])?;
        Ok(true)
    }

    pub(super) fn accept_notices(&mut self, accept: &AcceptDrift) -> rusqlite::Result<u64> {
        let records = self.reader().shapes(&Some(accept.source.clone()))?;
        let mut accepted = 0;
        for mut record in records.into_iter().filter(|record| accept.is_about(&record.event_type)) {
            let count = record.shape.accept(accept.path.as_deref());
            if count > 0 {
                self.write_shape(&record)?;
                accepted += count;
            }
        }
        if accepted > 0 {
            self.log(accept.at, &accept.actor, "accept", &accept.object(), &accept.reason)?;
        }
        Ok(accepted)
    }

    fn shape_version(&self, record: &ShapeRecord) -> rusqlite::Result<Option<(i64, u64)>> {
        self.cached(include_str!("sql/shape_version.sql"))?
            .query_row([&record.source, &record.event_type], |row| {
                Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs()))
            })
            .optional()
    }

    /// Writes the next version of a shape.
    fn write_shape(&self, record: &ShapeRecord) -> rusqlite::Result<()> {
        let id: i64 = match self.shape_version(record)? {
            Some((id, _)) => id,
            None => self
                .cached(include_str!("sql/insert_shape.sql"))?
                .query_row([&record.source, &record.event_type], |row| row.get(0))?,
        };
        let text = serde_json::to_vec(&record.shape).expect("a shape has a JSON form");
        let sealed = self.sealer(None)?.seal(place::payload_shape(id), &[&text]);
        let notices = i64::try_from(record.shape.notices.len()).unwrap_or(i64::MAX);
        let version = i64::try_from(record.version + 1).unwrap_or(i64::MAX);
        self.cached(include_str!("sql/write_shape.sql"))?.execute(params![id, version, notices, sealed])?;
        Ok(())
    }
}

impl Reader<'_> {
    pub(crate) fn shapes(&self, source: &Option<String>) -> rusqlite::Result<Vec<ShapeRecord>> {
        let mut statement = self.prepare_cached(include_str!("sql/shapes.sql"))?;
        let mut rows = statement.query([source])?;
        let mut records = Vec::new();
        while let Some(row) = rows.next()? {
            let (id, sealed): (i64, Vec<u8>) = (row.get(0)?, row.get(4)?);
            let shape: Shape = self.opened_as(place::payload_shape(id), &sealed)?;
            let version = row.get::<_, i64>(3)?.unsigned_abs();
            records.push(ShapeRecord { source: row.get(1)?, event_type: row.get(2)?, version, shape });
        }
        Ok(records)
    }

    pub(crate) fn payloads_seen(&self) -> rusqlite::Result<Option<EventSeq>> {
        self.prepare_cached(include_str!("sql/payloads_seen.sql"))?.query_row([], |row| row.get(0)).optional()
    }

    pub(crate) fn drifting_sources(&self) -> rusqlite::Result<Vec<(String, u64)>> {
        let mut statement = self.prepare_cached(include_str!("sql/drifting_sources.sql"))?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?;
        rows.collect()
    }
}
