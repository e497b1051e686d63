//! Replays: what they do, what they would do, how far they are.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_domain::replay::least_duration;
use sluice_domain::unit::{self, Rate, format_duration};
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
    /// Jobs whose steps were gone through.
    pub examined: u64,
    /// Jobs that would find everything done.
    pub noops: u64,
    /// Calls that create or update records; a repetition overwrites (classes natural and transactional).
    pub writes: u64,
    /// Those of them that surely update: an effect of the job has written the record before.
    pub updates: u64,
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
    /// Rate of the replay.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<String>,
    /// The last of these jobs, if more may follow: `after` of the next request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// As it is written in a configuration.
pub(crate) fn rate_text(rate: Rate) -> String {
    format!("{}/{}", rate.count, format_duration(rate.per))
}

impl ReplayResult {
    /// Adds the next part of a dry run.
    pub fn add(&mut self, more: ReplayResult) {
        self.jobs.matched += more.jobs.matched;
        self.jobs.changed += more.jobs.changed;
        self.jobs.skipped.extend(more.jobs.skipped);
        if let (Some(preview), Some(more)) = (&mut self.preview, more.preview) {
            preview.add(more);
            preview.estimate(self.jobs.changed);
        }
    }
}

impl ReplayPreview {
    fn add(&mut self, more: ReplayPreview) {
        self.examined += more.examined;
        self.noops += more.noops;
        self.writes += more.writes;
        self.updates += more.updates;
        self.sends += more.sends;
        self.fails += more.fails;
        self.at_risk += more.at_risk;
        self.calls += more.calls;
        self.next = more.next;
        for other in more.destinations {
            match self.destinations.iter_mut().find(|to| to.destination == other.destination) {
                Some(to) => to.calls += other.calls,
                None => self.destinations.push(other),
            }
        }
        for other in more.failures {
            match self.failures.iter_mut().find(|failure| failure.code == other.code) {
                Some(failure) => failure.jobs += other.jobs,
                None => self.failures.push(other),
            }
        }
        self.failures.sort_by_key(|failure| std::cmp::Reverse(failure.jobs));
    }

    /// Sets the least duration of a replay of so many jobs.
    pub(crate) fn estimate(&mut self, jobs: u64) {
        let rate = |text: &Option<String>| text.as_deref().and_then(|text| unit::rate(text).ok());
        let calls = self.destinations.iter().map(|to| (to.calls, rate(&to.rate)));
        let least = least_duration(jobs, rate(&self.rate), calls);
        self.seconds = least.map(|least| least.as_secs_f64().ceil() as u64);
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationCalls {
    pub destination: String,
    pub calls: u64,
    /// Maximum rate of calls.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<String>,
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
            rate: record.rate.map(rate_text),
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
