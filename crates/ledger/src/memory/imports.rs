//! Imports: each batch of rows is accepted together with the place behind it.

use sluice_domain::import::{ImportCounts, ImportId, ImportState};
use sluice_domain::time::Time;

use super::Store;
use crate::filter::Page;
use crate::import::{CancelImport, ImportStep, NewImport, import_counts, import_end};
use crate::op::{Acceptance, RequestEvents};
use crate::record::ImportRecord;

impl Store {
    pub(crate) fn start_import(&mut self, new: &NewImport) -> ImportRecord {
        let known = self.imports.iter_mut().find(|record| record.id == new.id);
        if let Some(record) = known {
            let state = record.state.restarted();
            let is_resumed = state != record.state;
            record.state = state;
            let record = record.clone();
            if is_resumed {
                self.log(new.at, &new.actor, "resume import", &new.id.to_string(), &new.reason);
            }
            return record;
        }
        let record = ImportRecord {
            n: self.imports.len() as i64 + 1,
            id: new.id,
            flow: new.flow.clone(),
            file: new.file.clone(),
            rows: new.rows,
            position: 0,
            counts: ImportCounts::default(),
            state: ImportState::Running,
            actor: new.actor.clone(),
            reason: new.reason.clone(),
            created_at: new.at,
            updated_at: new.at,
        };
        self.imports.push(record.clone());
        self.log(new.at, &new.actor, "import", &new.id.to_string(), &new.audited());
        record
    }

    /// Accepts the events of a request. Those of an import that does not run, or has moved on, are left alone.
    pub(crate) fn accept_request(&mut self, now: Time, request: &RequestEvents) -> Vec<Acceptance> {
        let Some(step) = &request.import else { return self.accept_all(now, request.events.clone()) };
        let Some(record) = self.import_record(step.id).filter(|record| step.continues(record)) else { return vec![] };
        let accepted = self.accept_all(now, request.events.clone());
        self.advance_import(&record, step, &accepted);
        accepted
    }

    fn advance_import(&mut self, record: &ImportRecord, step: &ImportStep, accepted: &[Acceptance]) {
        let counts = import_counts(step, accepted);
        if let Some(stored) = self.imports.iter_mut().find(|stored| stored.id == step.id) {
            stored.position = step.until;
            stored.counts += counts;
            stored.state = if step.is_last { ImportState::Done } else { ImportState::Running };
            stored.updated_at = step.at;
        }
        if step.is_last {
            self.log(step.at, &record.actor, "import ended", &step.id.to_string(), &import_end(record, counts));
        }
    }

    pub(crate) fn cancel_import(&mut self, cancel: &CancelImport) -> Option<ImportRecord> {
        let stored = self.imports.iter_mut().find(|stored| stored.id == cancel.id)?;
        if stored.state != ImportState::Running {
            return Some(stored.clone());
        }
        (stored.state, stored.updated_at) = (ImportState::Cancelled, cancel.at);
        let record = stored.clone();
        self.log(cancel.at, &cancel.actor, "cancel import", &cancel.id.to_string(), &cancel.reason);
        Some(record)
    }

    pub(crate) fn import_record(&self, id: ImportId) -> Option<ImportRecord> {
        self.imports.iter().find(|record| record.id == id).cloned()
    }

    pub(crate) fn imports(&self, page: Page) -> Vec<ImportRecord> {
        let newest_first = self.imports.iter().rev().filter(|record| page.after.is_none_or(|after| record.n < after));
        newest_first.take(page.limit as usize).cloned().collect()
    }
}
