//! Imports: what is written of them, as data.

use sluice_domain::import::{ImportCounts, ImportId, ImportState};
use sluice_domain::time::Time;

use crate::op::Acceptance;
use crate::record::ImportRecord;

/// An import that starts, or that is started again.
#[derive(Clone, Debug)]
pub struct NewImport {
    pub id: ImportId,
    pub flow: String,
    /// Name of the file.
    pub file: String,
    pub rows: u64,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

impl NewImport {
    pub(crate) fn audited(&self) -> String {
        format!("{}; {} rows of {} through {}", self.reason, self.rows, self.file, self.flow)
    }
}

/// The next batch of a running import.
#[derive(Clone, Debug)]
pub struct ImportStep {
    pub id: ImportId,
    /// The place before the batch; if the import has moved on since, nothing is written.
    pub after: u64,
    /// The place behind it.
    pub until: u64,
    /// Rows that make no event.
    pub refused: u64,
    /// No row is left behind these.
    pub is_last: bool,
    pub at: Time,
}

impl ImportStep {
    pub(crate) fn continues(&self, record: &ImportRecord) -> bool {
        record.state == ImportState::Running && record.position == self.after
    }
}

#[derive(Clone, Debug)]
pub struct CancelImport {
    pub id: ImportId,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// What became of the rows of a batch.
pub(crate) fn import_counts(step: &ImportStep, accepted: &[Acceptance]) -> ImportCounts {
    let mut counts = ImportCounts { refused: step.refused, ..ImportCounts::default() };
    for acceptance in accepted {
        match acceptance {
            Acceptance::Accepted(accepted) if accepted.quarantined => counts.quarantined += 1,
            Acceptance::Accepted(_) => counts.accepted += 1,
            Acceptance::Duplicate(_) => counts.duplicates += 1,
            Acceptance::ProofUsed => counts.refused += 1,
        }
    }
    counts
}

/// Describes the end of an import in the audit trail.
pub(crate) fn import_end(record: &ImportRecord, last: ImportCounts) -> String {
    let mut all = record.counts;
    all += last;
    let ImportCounts { accepted, duplicates, quarantined, refused } = all;
    format!("{accepted} accepted, {duplicates} duplicates, {quarantined} quarantined, {refused} refused")
}
