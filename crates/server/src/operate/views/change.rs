//! Changes of the configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_ledger::RevisionRecord;
use utoipa::ToSchema;

use crate::change::Plan;

/// Result of an apply.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AppliedView {
    pub revision: String,
    pub changed: bool,
    pub plan: Plan,
}

/// Edits in the configuration directory of the node that are not active.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PendingPlanView {
    /// Whether the files differ from the active revision.
    pub pending: bool,
    /// What activating them changes; absent if nothing is pending or they have errors.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub plan: Option<Plan>,
    /// Errors of the files.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
}

/// Activation of a revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RevisionView {
    /// Sequence number.
    pub n: i64,
    pub revision: String,
    /// Time of activation.
    pub at: String,
    pub actor: String,
    pub reason: String,
    /// Whether it is active.
    pub current: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevisionDetail {
    pub revision: String,
    /// Whether it is active.
    pub current: bool,
    /// Activations, newest first.
    pub in_force: Vec<RevisionView>,
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
