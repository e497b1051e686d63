//! Checks of `verify` that need the keys of the ledger: every row is as it was written.

use rusqlite::{Connection, Row};
use sluice_domain::event::EventId;

use super::super::key_store::{KeyStore, Unsealed};
use super::super::mac::{AttemptColumns, EffectColumns, JobColumns, Mac, body_pruned_mac};
use super::super::row::place;

/// Compares rows with their MACs. Rows of jobs and events before these numbers may have none.
#[derive(Debug)]
pub(super) struct MacChecks<'a> {
    pub connection: &'a Connection,
    pub key_store: &'a KeyStore,
    pub first_job: i64,
    pub first_seq: i64,
}

/// Applies a check. A column of a wrong type, length or range is a violation too; the first column is the number of the owner.
pub(super) fn readable(
    row: &Row<'_>,
    owner: fn(i64) -> String,
    check: impl Fn(&Row<'_>) -> rusqlite::Result<Option<String>>,
) -> rusqlite::Result<Option<String>> {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    match check(row) {
        Err(
            FromSqlConversionFailure(column, ..) | IntegralValueOutOfRange(column, _) | InvalidColumnType(column, ..),
        ) => {
            let (column, owner) = (row.as_ref().column_name(column)?.to_owned(), owner(row.get(0)?));
            Ok(Some(format!("a row of {owner} was altered: its column `{column}` cannot be read")))
        }
        checked => checked,
    }
}

pub(super) fn job_name(id: i64) -> String {
    format!("job_{id}")
}

pub(super) fn event_name(seq: i64) -> String {
    format!("event {seq}")
}

impl MacChecks<'_> {
    /// The first row in a range for which `check` finds a violation.
    fn first(
        &self,
        sql: &str,
        range: [i64; 2],
        owner: fn(i64) -> String,
        check: impl Fn(&Row<'_>) -> rusqlite::Result<Option<String>>,
    ) -> rusqlite::Result<Option<String>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(range)?;
        while let Some(row) = rows.next()? {
            if let Some(found) = readable(row, owner, &check)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn is_altered(&self, job: i64, stored: Option<Vec<u8>>, computed: Mac) -> bool {
        stored.map_or(job >= self.first_job, |stored| stored != computed)
    }

    pub(super) fn jobs(&self, range: [i64; 2]) -> rusqlite::Result<Option<String>> {
        self.first(include_str!("../sql/verify/job_macs.sql"), range, job_name, |row| {
            let (id, worker, queue): (i64, String, String) = (row.get(0)?, row.get(2)?, row.get(3)?);
            let result: Option<Vec<u8>> = row.get(9)?;
            let counts: (Option<u32>, Option<u32>) = (row.get(7)?, row.get(8)?);
            let (Some(effect_rows), Some(attempt_rows)) = counts else {
                return Ok((id >= self.first_job).then(|| format!("job_{id} has no counts")));
            };
            let columns = JobColumns {
                id,
                event: row.get(1)?,
                worker: &worker,
                queue: &queue,
                entity: row.get(4)?,
                created_at: row.get(5)?,
                contact: row.get(6)?,
                effect_rows,
                attempt_rows,
                result: result.as_deref(),
            };
            let mac: Option<Vec<u8>> = row.get(10)?;
            // A job that no run has written has no MAC.
            let is_new = row.get::<_, bool>(11)? && effect_rows == 0 && attempt_rows == 0 && result.is_none();
            let altered = match mac {
                None if is_new => false,
                mac => self.is_altered(id, mac, columns.mac(self.key_store)),
            };
            Ok(altered.then(|| format!("job_{id} was altered: its identity, its result or its counts")))
        })
    }

    pub(super) fn effects(&self, range: [i64; 2]) -> rusqlite::Result<Option<String>> {
        self.first(include_str!("../sql/verify/effect_macs.sql"), range, job_name, |row| {
            let effect = EffectColumns::read(row)?;
            let altered = self.is_altered(effect.job, row.get(16)?, effect.mac(self.key_store));
            Ok(altered.then(|| format!("the effect `{}` of job_{} was altered", effect.step_id, effect.job)))
        })
    }

    pub(super) fn attempts(&self, range: [i64; 2]) -> rusqlite::Result<Option<String>> {
        self.first(include_str!("../sql/verify/attempt_macs.sql"), range, job_name, |row| {
            let (job, n): (i64, u32) = (row.get(0)?, row.get(1)?);
            let (step_id, kind, outcome): (String, String, String) = (row.get(3)?, row.get(4)?, row.get(7)?);
            let (failure, message): (Option<String>, Option<Vec<u8>>) = (row.get(8)?, row.get(9)?);
            let columns = AttemptColumns {
                job,
                n,
                seq: row.get(2)?,
                step_id: &step_id,
                kind: &kind,
                started_at: row.get(5)?,
                ended_at: row.get(6)?,
                outcome: &outcome,
                failure: failure.as_deref(),
                message: message.as_deref(),
                term: row.get(10)?,
            };
            let altered = self.is_altered(job, row.get(11)?, columns.mac(self.key_store));
            Ok(altered.then(|| format!("attempt {n} of job_{job} was altered")))
        })
    }

    /// A body is there unless the event says that it was pruned, and opens unless the key of its contact is destroyed.
    pub(super) fn bodies(&self, range: [i64; 2]) -> rusqlite::Result<Option<String>> {
        self.first(include_str!("../sql/verify/bodies.sql"), range, event_name, |row| {
            let (seq, event) = (row.get(0)?, EventId(row.get(1)?));
            let (pruned, sealed): (Option<Vec<u8>>, Option<Vec<u8>>) = (row.get(2)?, row.get(3)?);
            let Some(sealed) = sealed else {
                let is_pruned = match pruned {
                    Some(pruned) => pruned == body_pruned_mac(self.key_store, event),
                    None => seq < self.first_seq,
                };
                return Ok((!is_pruned).then(|| format!("event {seq} has lost its body")));
            };
            let opened = self.key_store.try_unseal(self.connection, place::body(seq, event), &sealed)?;
            Ok((opened == Unsealed::Altered).then(|| format!("the body of event {seq} was altered")))
        })
    }
}
