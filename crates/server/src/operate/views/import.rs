//! Imports: how far they are, and what became of rows.

use serde::{Deserialize, Serialize};
use sluice_ledger::ImportRecord;
use utoipa::ToSchema;

/// An import and how far it has come.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImportView {
    /// `imp_…`
    pub id: String,
    /// `running`, `cancelled` or `done`.
    pub state: String,
    pub flow: String,
    /// Name of the file.
    pub file: String,
    /// Rows of the file.
    pub rows: u64,
    /// Rows that were looked at, in the order of the import.
    pub position: u64,
    /// New events, those in quarantine not included.
    pub accepted: u64,
    pub duplicates: u64,
    pub quarantined: u64,
    /// Rows that made no event.
    pub refused: u64,
    pub actor: String,
    pub reason: String,
    pub created_at: String,
    pub updated_at: String,
}

impl From<ImportRecord> for ImportView {
    fn from(record: ImportRecord) -> ImportView {
        ImportView {
            id: record.id.to_string(),
            state: record.state.as_str().to_owned(),
            flow: record.flow,
            file: record.file,
            rows: record.rows,
            position: record.position,
            accepted: record.counts.accepted,
            duplicates: record.counts.duplicates,
            quarantined: record.counts.quarantined,
            refused: record.counts.refused,
            actor: record.actor,
            reason: record.reason,
            created_at: record.created_at.to_string(),
            updated_at: record.updated_at.to_string(),
        }
    }
}

/// What became of a row, or would.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RowView {
    pub line: u64,
    /// `accepted`, `duplicate`, `quarantined` or `refused`.
    pub outcome: String,
    /// Why it is quarantined or refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
    /// Masked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
    /// The event that it became, or that it is a duplicate of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event: Option<String>,
    /// Digest of its idempotency key; only in a check. Rows with the same one are duplicates of each other.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key_digest: Option<String>,
    /// When it happened; only in a check.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub occurred_at: Option<String>,
}

/// Result of a batch of rows.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImportStepView {
    pub import: ImportView,
    /// What became of the rows; empty if they were not taken.
    pub rows: Vec<RowView>,
    /// False if the import does not run, if other rows come next, or if it waits.
    pub taken: bool,
    /// Jobs wait or run that go first: send the rows again after this time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wait_ms: Option<u64>,
}
