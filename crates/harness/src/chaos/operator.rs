//! Automated operator: resumes paused destinations and replays dead letters whose cause needs an operator. It repairs
//! nothing else.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use crate::{Api, Error};
use sluice_server::operate::views::{PauseView, ReasonView, Status};

/// Failure codes that the faults of the CRM explain and that no retry policy prevents: a redirect, which is never followed,
/// and a rejected token whose replacement is rejected too.
const EXPLAINED: [&str; 2] = ["http-302", "INVALID_SESSION_ID"];

#[derive(Debug, Deserialize)]
struct BulkResult {
    changed: u64,
}

/// Automated operator, with counts of what it saw and did.
#[derive(Debug)]
pub(super) struct AutoOperator {
    addresses: watch::Receiver<Option<Api>>,
    /// Jobs by state, at the last poll.
    pub jobs: BTreeMap<String, u64>,
    /// Events at the last poll.
    pub events: u64,
    /// Dead jobs, by failure code.
    pub died: BTreeMap<String, u64>,
    pub replayed: u64,
    /// Pauses that it ended.
    pub resumed: u64,
}

impl AutoOperator {
    pub(super) fn new(addresses: watch::Receiver<Option<Api>>) -> AutoOperator {
        AutoOperator { addresses, jobs: BTreeMap::new(), events: 0, died: BTreeMap::new(), replayed: 0, resumed: 0 }
    }

    /// API of the running node.
    pub(super) fn api(&self) -> Option<Api> {
        self.addresses.borrow().clone()
    }

    /// Dead jobs with a failure code that no injected fault explains.
    pub(super) fn unexplained(&self) -> impl Iterator<Item = (&str, u64)> {
        let unexplained = |(code, _): &(&String, &u64)| !EXPLAINED.contains(&code.as_str());
        self.died.iter().filter(unexplained).map(|(code, count)| (code.as_str(), *count))
    }

    /// Polls the node and acts. Returns true once every job is done; `sent` says that all deliveries were accepted.
    pub(super) async fn poll(&mut self, sent: bool) -> bool {
        let Some(api) = self.api() else { return false };
        // The node may be killed at any moment: errors are expected.
        self.act(&api, sent).await.unwrap_or(false)
    }

    async fn act(&mut self, api: &Api, sent: bool) -> Result<bool, Error> {
        for pause in api.get::<Vec<PauseView>>("/api/v1/pauses").await? {
            api.post("/api/v1/resume", &json!({ "target": pause.target, "actor": "chaos" })).await?;
            self.resumed += 1;
        }
        let status: Status = api.get("/api/v1/status").await?;
        (self.jobs, self.events) = (status.jobs, status.events);
        let count = |state: &str| self.jobs.get(state).copied().unwrap_or(0);
        let live = count("queued") + count("running") + count("retrying") + count("waiting");
        if !sent || live > 0 {
            return Ok(false);
        }
        if count("dead") == 0 {
            return Ok(true);
        }
        // Only when no job is live, so that each dead job is counted once.
        let reasons: Vec<ReasonView> = api.get("/api/v1/dead-letters/top?since=1d&limit=500").await?;
        let request = json!({
            "filter": { "states": ["dead"] },
            "reason": "fault injected by the chaos run",
            "actor": "chaos",
        });
        let result: BulkResult = serde_json::from_value(api.post("/api/v1/replays", &request).await?)
            .map_err(|error| Error::Failed(format!("unexpected response to the replay: {error}")))?;
        self.replayed += result.changed;
        for reason in reasons {
            *self.died.entry(reason.code).or_default() += reason.count;
        }
        Ok(false)
    }
}
