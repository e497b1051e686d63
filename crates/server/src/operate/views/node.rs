//! Views of the node: status, pauses, destinations, sources, audit trail.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{ResponseCountView, SafeModeView, WaitingView, WarningView};

/// Status of the node.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Status {
    pub version: String,
    pub revision: String,
    /// Intake URL; empty without a running node.
    pub intake: String,
    /// Accepted events.
    pub events: u64,
    #[schema(value_type = Object)]
    pub jobs: std::collections::BTreeMap<String, u64>,
    pub jobs_in_memory: u64,
    pub in_flight: u64,
    /// What an operator should know or change.
    #[serde(default)]
    pub warnings: Vec<WarningView>,
    /// Live jobs that do not run, counted by the reason, most jobs first.
    #[serde(default)]
    pub waiting: Vec<WaitingView>,
    pub paused: Vec<PauseView>,
    pub safe_modes: Vec<SafeModeView>,
    /// Pending approvals, at most 1,000.
    pub approvals_pending: u64,
    /// Response clocks that run, by flow and state.
    #[serde(default)]
    pub responses: Vec<ResponseCountView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PauseView {
    /// `destination:crm`, `worker:contact-upsert`, `source:website`.
    pub target: String,
    pub at: String,
    pub actor: String,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationView {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// State of the gate: breaker, concurrency, `learned_rate` by its 429, pause, and `budget` with its use and forecast.
    #[schema(value_type = Option<Object>)]
    pub gate: Option<Value>,
}

/// One destination.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationDetail {
    #[serde(flatten)]
    pub destination: DestinationView,
    /// Use of the daily limit of calls, as the destination reported it last since the node started.
    pub calls_today: Option<CallsTodayView>,
    /// Latencies of its calls; absent if there were none.
    pub latency: Option<DestinationLatencyView>,
    /// Configured maximum of its call rate, such as `10/1s`; absent without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<String>,
    /// What error responses mean, in order of precedence; empty if its connector has no table.
    pub failure_rules: Vec<FailureRuleView>,
}

/// Latencies of the last hour, without the open minute. Our wait and the time of the destination are apart.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationLatencyView {
    /// Such as `1h`.
    pub window: String,
    /// From the due time of a job to its call: the gate, slots and the node itself.
    pub wait: Option<PercentilesView>,
    /// From the call to its answer.
    pub call: Option<PercentilesView>,
}

/// Percentiles in seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct PercentilesView {
    pub count: u64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct CallsTodayView {
    /// By all applications of the account.
    pub used: u64,
    pub limit: u64,
}

/// Failure rule; an empty condition matches everything.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureRuleView {
    /// Whether it is a rule of the configuration; else it ships with the connector.
    pub own: bool,
    /// Where it is written: `configuration`, `connector`, or `http` for the table that applies where a declared connector has no rule.
    #[serde(default)]
    pub from: String,
    /// `effect`, or `token` for requests of an access token.
    pub call: String,
    /// `429`, `500-599`, or several of them.
    pub status: String,
    /// A trailing `*` matches a prefix.
    pub code: String,
    pub contains: String,
    /// `wait 30s`, `reject permanent`.
    pub action: String,
    pub advice: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SourceView {
    pub name: String,
    pub flows: Vec<FlowView>,
    pub paused: bool,
    /// Accepted events in the last 7 days.
    pub accepted: u64,
    /// In the last 7 days.
    pub duplicates: u64,
    /// Those of them that were recognized by their content, under another key.
    #[serde(default)]
    pub by_content: u64,
    /// Key clashes in the last 7 days.
    pub clashes: u64,
    /// Rejected requests in the last day, by code.
    #[schema(value_type = Object)]
    pub refused: std::collections::BTreeMap<String, u64>,
    /// Rejected requests in the last minutes, hour and day, by code.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub refused_lately: std::collections::BTreeMap<String, RefusedView>,
    #[serde(default)]
    pub refusals: Vec<RefusalView>,
}

/// Recent rejections of one code.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RefusedView {
    /// Current and previous minute.
    pub minute: u64,
    pub hour: u64,
    pub day: u64,
    /// Whether this is a spike.
    #[serde(default)]
    pub jump: bool,
}

/// Rejected request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusalView {
    pub at: String,
    pub address: String,
    pub code: String,
    /// Masked.
    pub detail: String,
}

/// Summary of a flow.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowView {
    pub name: String,
    /// Method and path.
    pub route: String,
    /// Verification scheme; `none` without verification.
    pub verify: String,
    /// Accepts every caller.
    #[serde(default)]
    pub open: bool,
}

/// Audit entry.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    pub id: i64,
    pub at: String,
    pub actor: String,
    pub action: String,
    pub object: String,
    pub detail: String,
}
