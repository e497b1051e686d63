//! Changes of the configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_ledger::RevisionRecord;
use utoipa::ToSchema;

use crate::change::Plan;

/// What came of a change.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AppliedView {
    /// The revision in force.
    pub revision: String,
    /// Whether it is another than before.
    pub changed: bool,
    /// What changed.
    pub plan: Plan,
}

/// A revision that was in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RevisionView {
    /// Its place among all changes.
    pub n: i64,
    /// Its name.
    pub revision: String,
    /// Since when it was in force.
    pub at: String,
    /// Who brought it.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Whether it is in force now.
    pub current: bool,
}

/// A revision with its files.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevisionDetail {
    /// Its name.
    pub revision: String,
    /// Whether it is in force now.
    pub current: bool,
    /// Each time that it came into force, newest first.
    pub in_force: Vec<RevisionView>,
    /// Its files.
    pub files: BTreeMap<String, String>,
}

impl RevisionView {
    pub(in crate::operate) fn new(record: RevisionRecord, current: Option<i64>) -> RevisionView {
        RevisionView {
            current: Some(record.n) == current,
            n: record.n,
            revision: record.hash,
            at: record.at.to_string(),
            actor: record.actor,
            reason: record.reason,
        }
    }
}
