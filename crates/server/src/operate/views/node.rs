//! The node at a glance: sources, destinations, pauses, the audit trail.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::SafeModeView;

/// The node at a glance.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The version of this build.
    pub version: String,
    /// The configuration in force.
    pub revision: String,
    /// Where senders come in; empty while no node runs.
    pub intake: String,
    /// Accepted events.
    pub events: u64,
    /// Jobs by state.
    #[schema(value_type = Object)]
    pub jobs: std::collections::BTreeMap<String, u64>,
    /// Jobs in memory.
    pub jobs_in_memory: u64,
    /// Jobs running.
    pub in_flight: u64,
    /// What is paused.
    pub paused: Vec<PauseView>,
    /// Who is in safe mode.
    pub safe_modes: Vec<SafeModeView>,
    /// Questions that wait for a person; a thousand means a thousand or more.
    pub approvals_pending: u64,
}

/// Something that is paused.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PauseView {
    /// `destination:crm`, `worker:contact-upsert`, `source:website`.
    pub target: String,
    /// Since when.
    pub at: String,
    /// By whom.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// A destination.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationView {
    /// Its name.
    pub name: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its gate: breaker, concurrency, pause.
    #[schema(value_type = Option<Object>)]
    pub gate: Option<Value>,
}

/// A source.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SourceView {
    /// Its name.
    pub name: String,
    /// Its flows: method, path, and how it proves itself.
    pub flows: Vec<FlowView>,
    /// Whether it is paused.
    pub paused: bool,
    /// Requests answered 202 for the first time, in the last 7 days.
    pub accepted: u64,
    /// Repeats, in the last 7 days.
    pub duplicates: u64,
    /// Repeats with another content, in the last 7 days.
    pub clashes: u64,
    /// Requests that were refused in the last day, by code.
    #[schema(value_type = Object)]
    pub refused: std::collections::BTreeMap<String, u64>,
    /// The same in the last minute, hour and day, so that a jump shows.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub refused_lately: std::collections::BTreeMap<String, RefusedView>,
    /// The newest of them.
    #[serde(default)]
    pub refusals: Vec<RefusalView>,
}

/// How many requests were refused lately for one reason.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RefusedView {
    /// In this minute and the one before.
    pub minute: u64,
    /// In the last hour.
    pub hour: u64,
    /// In the last day.
    pub day: u64,
    /// Whether that is far more than before.
    #[serde(default)]
    pub jump: bool,
}

/// A request that was refused.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusalView {
    /// When.
    pub at: String,
    /// From where.
    pub address: String,
    /// The problem's code.
    pub code: String,
    /// The problem's detail, masked.
    pub detail: String,
}

/// A flow in a line.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowView {
    /// Its name.
    pub name: String,
    /// Its method and path.
    pub route: String,
    /// How senders prove themselves; `nobody is verified` if they do not.
    pub verify: String,
    /// Whether it believes everybody who finds its address. Shown in red.
    #[serde(default)]
    pub open: bool,
}

/// A line of the audit trail.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    /// Its place.
    pub id: i64,
    /// When.
    pub at: String,
    /// Who.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// To what.
    pub object: String,
    /// Why, or how.
    pub detail: String,
}
