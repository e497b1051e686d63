//! One source: its duplicates, the key lifetime that they need, its limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::operate::views::SourceView;

/// A source with what is known about its repeats.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SourceDetail {
    /// The source.
    #[serde(flatten)]
    pub source: SourceView,
    /// How it repeats itself, and what follows from it.
    pub keys: KeyAdvice,
    /// How often it may send.
    pub limits: Vec<LimitView>,
}

/// How a source repeats itself, and what follows from it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyAdvice {
    /// Repeats since the ledger was made.
    pub repeats: u64,
    /// Of a hundred requests that were taken in the last 7 days, so many were repeats; absent when there were none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub percent_of_requests: Option<f64>,
    /// Those that came when their key had expired: each became a new event.
    pub after_expiry: u64,
    /// How many came how late.
    pub lateness: Vec<LatenessView>,
    /// Half of them came within this.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50: Option<String>,
    /// 99 % of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<String>,
    /// 99.9 % of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p999: Option<String>,
    /// The lifetime that covers 99.9 % of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lifetime_wanted: Option<String>,
    /// Each flow's lifetime against that.
    pub lifetimes: Vec<LifetimeView>,
}

/// How many repeats came so late.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LatenessView {
    /// At most so long after the first, and later than the line before says.
    pub within: String,
    /// How many.
    pub repeats: u64,
}

/// How long a flow's keys live, and whether that is enough.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LifetimeView {
    /// The flow.
    pub flow: String,
    /// How long its keys live.
    pub lifetime: String,
    /// The part of the repeats that this covers, in percent; absent when there were none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub percent_covered: Option<f64>,
    /// How long the sender is known to repeat an event by itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_horizon: Option<String>,
    /// Whether it covers 99.9 % of the repeats and what the sender is known to do.
    pub enough: bool,
    /// The same in words.
    pub advice: String,
}

/// How often a source, or the holder of one of its secrets, may send.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitView {
    /// The flow.
    pub flow: String,
    /// Whose limit it is: the source's, or that of the secret with this name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub secret: Option<String>,
    /// `100/m`
    pub rate: String,
    /// How many at once when it has been quiet.
    pub burst: u32,
}
