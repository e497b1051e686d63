//! Suppressed contacts and safe mode.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Suppressed contact.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SuppressionView {
    /// Masked; the full contact is stored as a digest only.
    pub contact: String,
    /// Channel; empty means any.
    pub channel: String,
    pub at: String,
    pub actor: String,
    pub reason: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SuppressedView {
    /// Number of contacts added.
    pub added: u64,
    /// Number of contacts removed.
    pub removed: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SafeModeView {
    /// Worker; null means all.
    pub worker: Option<String>,
    pub since: String,
    pub until: String,
    /// Actor; `sluice` for a rule.
    pub actor: String,
    pub reason: String,
}
