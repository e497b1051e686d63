//! Imports: each batch of rows is accepted together with the place behind it.

use rusqlite::{OptionalExtension, Row, params};
use sluice_domain::import::{ImportCounts, ImportId, ImportState};
use sluice_domain::time::Time;

use super::batch::Batch;
use super::read_pool::Reader;
use super::row::wrong;
use crate::filter::Page;
use crate::import::{CancelImport, ImportStep, NewImport, import_counts, import_end};
use crate::op::Acceptance;
use crate::record::ImportRecord;

impl Reader<'_> {
    pub(crate) fn imports(&self, page: &Page) -> rusqlite::Result<Vec<ImportRecord>> {
        self.prepare_cached(include_str!("sql/imports.sql"))?
            .query_map(params![page.after, page.limit], import_row)?
            .collect()
    }

    pub(crate) fn import_record(&self, id: &ImportId) -> rusqlite::Result<Option<ImportRecord>> {
        self.prepare_cached(include_str!("sql/import.sql"))?.query_row([id.0], import_row).optional()
    }
}

impl Batch<'_, '_> {
    pub(super) fn begin_import(&mut self, new: &NewImport) -> rusqlite::Result<ImportRecord> {
        let known = self.reader().import_record(&new.id)?;
        if let Some(record) = known {
            let state = record.state.restarted();
            if state != record.state {
                self.set_import_state(new.id, state, new.at)?;
                self.log(new.at, &new.actor, "resume import", &new.id.to_string(), &new.reason)?;
            }
            return Ok(ImportRecord { state, ..record });
        }
        let rows = i64::try_from(new.rows).unwrap_or(i64::MAX);
        self.cached(include_str!("sql/insert_import.sql"))?
            .execute(params![new.id.0, new.flow, new.file, rows, new.actor, new.reason, new.at.0])?;
        self.log(new.at, &new.actor, "import", &new.id.to_string(), &new.audited())?;
        self.reader().import_record(&new.id)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    /// The import that this step continues; `None` if it does not run, or has moved on.
    pub(super) fn current_import(&self, step: &ImportStep) -> rusqlite::Result<Option<ImportRecord>> {
        let found = self.reader().import_record(&step.id)?;
        Ok(found.filter(|record| step.continues(record)))
    }

    pub(super) fn advance_import(
        &mut self,
        record: &ImportRecord,
        step: &ImportStep,
        accepted: &[Acceptance],
    ) -> rusqlite::Result<()> {
        let counts = import_counts(step, accepted);
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let state = if step.is_last { ImportState::Done } else { ImportState::Running };
        self.cached(include_str!("sql/advance_import.sql"))?.execute(params![
            step.id.0,
            count(step.until),
            count(counts.accepted),
            count(counts.duplicates),
            count(counts.quarantined),
            count(counts.refused),
            state.as_str(),
            step.at.0
        ])?;
        if step.is_last {
            self.log(step.at, &record.actor, "import ended", &step.id.to_string(), &import_end(record, counts))?;
        }
        Ok(())
    }

    pub(super) fn end_import(&mut self, cancel: &CancelImport) -> rusqlite::Result<Option<ImportRecord>> {
        let Some(record) = self.reader().import_record(&cancel.id)? else { return Ok(None) };
        if record.state != ImportState::Running {
            return Ok(Some(record));
        }
        self.set_import_state(cancel.id, ImportState::Cancelled, cancel.at)?;
        self.log(cancel.at, &cancel.actor, "cancel import", &cancel.id.to_string(), &cancel.reason)?;
        Ok(Some(ImportRecord { state: ImportState::Cancelled, updated_at: cancel.at, ..record }))
    }

    fn set_import_state(&self, id: ImportId, state: ImportState, at: Time) -> rusqlite::Result<()> {
        let update = include_str!("sql/set_import_state.sql");
        self.cached(update)?.execute(params![id.0, state.as_str(), at.0])?;
        Ok(())
    }
}

fn import_row(row: &Row<'_>) -> rusqlite::Result<ImportRecord> {
    let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    Ok(ImportRecord {
        n: row.get(0)?,
        id: ImportId(row.get(1)?),
        flow: row.get(2)?,
        file: row.get(3)?,
        rows: count(4)?,
        position: count(5)?,
        counts: ImportCounts { accepted: count(6)?, duplicates: count(7)?, quarantined: count(8)?, refused: count(9)? },
        state: ImportState::parse(row.get_ref(10)?.as_str()?).ok_or_else(|| wrong(10, "unknown state of an import"))?,
        actor: row.get(11)?,
        reason: row.get(12)?,
        created_at: Time(row.get(13)?),
        updated_at: Time(row.get(14)?),
    })
}
