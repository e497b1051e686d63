//! Revisions of events.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ChangeView;

/// A revision of an event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventRevisionView {
    /// 0 for the event as it was accepted.
    pub n: u32,
    pub at: String,
    /// Absent for the event as it was accepted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Differences from the revision before, masked.
    pub changes: Vec<ChangeView>,
    /// Whether jobs run with it.
    pub current: bool,
}

/// Result of an edit.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EditView {
    pub event_id: String,
    /// The new revision; of a dry run, the one that it would be.
    pub revision: u32,
    /// Differences from the revision before, masked.
    pub changes: Vec<ChangeView>,
    /// Jobs that run again with it.
    pub jobs: Vec<String>,
    /// Nothing was changed.
    pub dry_run: bool,
}
