//! One source: its duplicates, the key lifetime that they need, its limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::operate::views::SourceView;

/// Source with its duplicates.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SourceDetail {
    #[serde(flatten)]
    pub source: SourceView,
    /// Duplicates, and the key lifetime that covers them.
    pub keys: KeyAdvice,
    /// Rate limits.
    pub limits: Vec<LimitView>,
    /// Fields of its events whose conversion lost something, and steps whose lookup failed.
    pub mapping_warnings: Vec<MappingWarningView>,
}

/// Field whose conversion lost something, or step whose lookup failed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MappingWarningView {
    /// Path into the event, or `steps.NAME`.
    pub field: String,
    /// For example `not-a-number`.
    pub code: String,
    /// Events, since the ledger was created.
    pub count: u64,
    /// Time of the last one.
    pub last_at: String,
}

/// Duplicates of a source, and the key lifetime that covers them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyAdvice {
    /// Duplicates since the ledger was created.
    pub duplicates: u64,
    /// Percentage of duplicates among the accepted requests of the last 7 days; absent without requests.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub percent_of_requests: Option<f64>,
    /// Duplicates after the key had expired: each became a new event.
    pub after_expiry: u64,
    /// Histogram of the delay after the first request.
    pub lateness: Vec<LatenessView>,
    /// Median delay.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p999: Option<String>,
    /// Key lifetime that covers 99.9 %.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lifetime_wanted: Option<String>,
    /// Key lifetimes of the flows.
    pub lifetimes: Vec<LifetimeView>,
}

/// Bucket of the delay histogram.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LatenessView {
    /// Upper bound of the delay; the previous bucket is the lower bound.
    pub within: String,
    pub duplicates: u64,
}

/// Key lifetime of a flow, and whether it is sufficient.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LifetimeView {
    pub flow: String,
    pub lifetime: String,
    /// Percentage of duplicates covered; absent without duplicates.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub percent_covered: Option<f64>,
    /// Retry period of the sender.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_horizon: Option<String>,
    /// Covers 99.9 % of the duplicates and the retry period of the sender.
    pub enough: bool,
    /// Explanation.
    pub advice: String,
}

/// Rate limit of a source or of one of its secrets.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitView {
    pub flow: String,
    /// Name of the secret; absent for the limit of the source.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub secret: Option<String>,
    /// For example `100/m`.
    pub rate: String,
    pub burst: u32,
}
