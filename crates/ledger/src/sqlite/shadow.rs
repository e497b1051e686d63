//! The configuration that runs beside the active one.

use rusqlite::{OptionalExtension, params};
use sluice_domain::time::Time;

use super::batch::Batch;
use super::read_pool::Reader;
use super::row::place;
use crate::op::{KeepShadow, SetShadow, StopShadow};
use crate::record::ShadowRecord;

impl Batch<'_, '_> {
    pub(super) fn write_shadow(&mut self, set: &SetShadow) -> rusqlite::Result<()> {
        self.cached(include_str!("sql/put_shadow.sql"))?
            .execute(params![set.hash, set.files, set.at.0, set.actor, set.reason])?;
        self.log(set.at, &set.actor, "shadow", &set.hash, &set.reason)
    }

    pub(super) fn delete_shadow(&mut self, stop: &StopShadow) -> rusqlite::Result<bool> {
        let hash: Option<String> =
            self.cached(include_str!("sql/delete_shadow.sql"))?.query_row([], |row| row.get(0)).optional()?;
        let Some(hash) = hash else { return Ok(false) };
        self.log(stop.at, &stop.actor, "stop shadow", &hash, &stop.reason)?;
        Ok(true)
    }

    pub(super) fn write_shadow_report(&mut self, keep: &KeepShadow) -> rusqlite::Result<bool> {
        let sealed = self.sealer(None)?.seal(place::shadow(), &[keep.report.as_bytes()]);
        let written = self.cached(include_str!("sql/keep_shadow.sql"))?.execute(params![
            keep.hash,
            keep.started_at.0,
            keep.after,
            keep.active,
            keep.seen,
            sealed
        ])?;
        Ok(written > 0)
    }
}

impl Reader<'_> {
    pub(crate) fn shadow(&self) -> rusqlite::Result<Option<ShadowRecord>> {
        let mut statement = self.prepare_cached(include_str!("sql/shadow.sql"))?;
        let record = |row: &rusqlite::Row<'_>| {
            let report = match row.get::<_, Option<Vec<u8>>>(7)? {
                Some(_) => self.opened_text(row, 7, place::shadow())?,
                None => String::new(),
            };
            Ok(ShadowRecord {
                hash: row.get(0)?,
                files: row.get(1)?,
                started_at: Time(row.get(2)?),
                actor: row.get(3)?,
                reason: row.get(4)?,
                active: row.get(5)?,
                seen: row.get(6)?,
                report,
            })
        };
        statement.query_row([], record).optional()
    }
}
