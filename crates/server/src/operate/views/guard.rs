//! Suppressed contacts and safe mode.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A contact that must not be written to.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SuppressionView {
    /// Masked: who it is exactly is kept as a digest only.
    pub contact: String,
    /// By which channel; empty means any.
    pub channel: String,
    /// Since when.
    pub at: String,
    /// Who said so.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SuppressedView {
    /// So many are on the list now that were not before.
    pub added: u64,
    /// So many were taken off it.
    pub removed: u64,
}

/// Safe mode of a worker, or of all.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SafeModeView {
    /// The worker; null is all of them.
    pub worker: Option<String>,
    /// Since when.
    pub since: String,
    /// Until when.
    pub until: String,
    /// Who turned it on; `sluice` by rule.
    pub actor: String,
    /// Why.
    pub reason: String,
}
