//! Replays: what they do, what they would do, how far they are.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_domain::unit::format_duration;
use sluice_ledger::{ReplayRecord, ReplaySelection};
use utoipa::ToSchema;

use super::BulkResult;

/// A replay and how far it has come.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReplayView {
    /// `replay_…`
    pub id: String,
    /// `running`, `paused`, `cancelled` or `done`.
    pub state: String,
    pub actor: String,
    pub reason: String,
    pub created_at: String,
    pub updated_at: String,
    /// The filter of its jobs; absent if they were named.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub filter: Option<Value>,
    /// Number of jobs that were named.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jobs: Option<u64>,
    /// Revision that the jobs run under; absent for the one that each was accepted under.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub revision: Option<String>,
    /// Classes of effects that are applied again.
    pub reapply: Vec<String>,
    /// Jobs per time, such as `10/1s`; absent for no limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<String>,
    /// Jobs per batch.
    pub batch: u32,
    /// Jobs that were requeued.
    pub replayed: u64,
    /// Jobs that were selected and could not be replayed.
    pub skipped: u64,
    /// Earliest time of the next batch of a running replay.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_at: Option<String>,
    /// Jobs that are left, at most 10,000; only where one replay is shown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remaining: Option<u64>,
}

/// Result of a replay, or of its dry run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReplayResult {
    #[serde(flatten)]
    pub jobs: BulkResult,
    /// The durable replay; absent for a dry run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replay: Option<ReplayView>,
    /// What it would do; only for a dry run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub preview: Option<ReplayPreview>,
}

/// What a replay would do. Policies, approvals and the answers of destinations are not known before.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReplayPreview {
    /// Jobs whose steps were gone through: the oldest ones.
    pub examined: u64,
    /// Jobs that would find everything done.
    pub noops: u64,
    /// Calls that create or update records; a repetition overwrites (classes natural and transactional).
    pub writes: u64,
    /// Calls that send something: messages, requests (classes keyed, verifiable and blind).
    pub sends: u64,
    /// Jobs that would fail again: their content or configuration has not changed.
    pub fails: u64,
    /// Jobs whose content the destination rejected before, under the same configuration: they fail again unless the destination
    /// has changed.
    pub at_risk: u64,
    /// Calls in all.
    pub calls: u64,
    /// Calls by destination.
    pub destinations: Vec<DestinationCalls>,
    /// Failures of the jobs that would fail again, most frequent first.
    pub failures: Vec<ForecastFailure>,
    /// Least duration by the rate of the replay and of the destinations; absent if none has a rate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seconds: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationCalls {
    pub destination: String,
    pub calls: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ForecastFailure {
    pub code: String,
    /// Example message, masked.
    pub message: String,
    pub jobs: u64,
}

impl From<ReplayRecord> for ReplayView {
    fn from(record: ReplayRecord) -> ReplayView {
        let is_running = record.state == sluice_domain::replay::ReplayState::Running;
        let (filter, jobs) = match &record.selection {
            ReplaySelection::Filter(filter) => (serde_json::to_value(filter).ok().map(without_nulls), None),
            ReplaySelection::Jobs(ids) => (None, Some(ids.len() as u64)),
        };
        ReplayView {
            id: record.id.to_string(),
            state: record.state.as_str().to_owned(),
            actor: record.actor,
            reason: record.reason,
            created_at: record.created_at.to_string(),
            updated_at: record.updated_at.to_string(),
            filter,
            jobs,
            revision: record.revision.map(|revision| revision.to_string()),
            reapply: record.reapply.0.iter().map(|class| class.as_str().to_owned()).collect(),
            rate: record.rate.map(|rate| format!("{}/{}", rate.count, format_duration(rate.per))),
            batch: record.batch,
            replayed: record.replayed,
            skipped: record.skipped,
            next_at: is_running.then(|| record.next_at.to_string()),
            remaining: None,
        }
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => members.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}
