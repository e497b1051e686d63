//! The ledger's clock.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The clock of the ledger beside the clock of the machine.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClockView {
    /// The ledger's time: everything is stored and expires by it.
    pub ledger: String,
    /// Clock of the machine.
    pub wall: String,
    /// `in-step`, `wall-ahead` or `wall-behind`. In the latter two nothing is pruned.
    pub state: String,
    /// Difference that is not followed, in milliseconds; 0 if in step.
    pub difference_ms: u64,
    /// What is wrong and what to do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub warning: Option<String>,
    /// Rows that retention has deleted since the ledger was created, by kind.
    #[schema(value_type = Object)]
    pub pruned: std::collections::BTreeMap<String, u64>,
}
