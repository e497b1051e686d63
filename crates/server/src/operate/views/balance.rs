//! The balance.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What became of accepted events.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BalanceView {
    /// The first day.
    pub since: String,
    pub rows: Vec<BalanceRow>,
    /// Cursor for `after`: there are more events to count. The rows of all parts are to be added up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// What became of the events of one source and day.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BalanceRow {
    /// `2026-11-15`, UTC.
    pub day: String,
    pub source: String,
    /// New events, without duplicates. In the first part only.
    pub accepted: u64,
    /// In the first part only.
    pub duplicates: u64,
    /// Events that retention has deleted since. In the first part only.
    pub pruned: u64,
    /// Events whose jobs are all done.
    pub done: u64,
    /// Events for which nothing had to be done.
    pub noop: u64,
    /// Events with a dead letter.
    pub dead: u64,
    /// Events with a live job.
    pub waiting: u64,
    /// Events with an effect of unknown outcome.
    pub unknown: u64,
    /// Events with a dropped job.
    pub dropped: u64,
    /// Accepted events that are neither there nor pruned. Absent unless the answer is whole.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remainder: Option<i64>,
}
