//! The person on duty: lets a destination go on that was paused, and replays what died of a fault that a person has to
//! look at. Nothing else is ever mended by hand here.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use super::Address;
use crate::{Api, Error};
use sluice_server::operate::views::{PauseView, ReasonView, Status};

/// Deaths that the CRM's faults explain and that no retry policy prevents: it sent a redirect, which is never followed; or
/// it refused a token and the fresh one as well.
const EXPLAINED: [&str; 2] = ["http-302", "INVALID_SESSION_ID"];

#[derive(Debug, Deserialize)]
struct Acted {
    changed: u64,
}

/// What the person on duty saw and did.
#[derive(Debug)]
pub(super) struct AutoOperator {
    addresses: watch::Receiver<Option<Address>>,
    /// Jobs by state, at the last look.
    pub jobs: BTreeMap<String, u64>,
    /// Events at the last look.
    pub events: u64,
    /// Jobs that died, by the code of their failure.
    pub died: BTreeMap<String, u64>,
    /// Jobs that were replayed.
    pub replayed: u64,
    /// Pauses that were lifted.
    pub resumed: u64,
}

impl AutoOperator {
    pub fn new(addresses: watch::Receiver<Option<Address>>) -> AutoOperator {
        AutoOperator { addresses, jobs: BTreeMap::new(), events: 0, died: BTreeMap::new(), replayed: 0, resumed: 0 }
    }

    pub fn address(&self) -> Option<Address> {
        *self.addresses.borrow()
    }

    /// Deaths that nothing explains.
    pub fn unexplained(&self) -> impl Iterator<Item = (&str, u64)> {
        let unexplained = |(code, _): &(&String, &u64)| !EXPLAINED.contains(&code.as_str());
        self.died.iter().filter(unexplained).map(|(code, count)| (code.as_str(), *count))
    }

    /// Looks and acts. Answers whether everything has come to an end; that can only be so once all is `sent`.
    pub async fn look(&mut self, sent: bool) -> bool {
        let Some(address) = self.address() else { return false };
        // The node may be killed at any moment, so an error here says nothing.
        self.act(Api(address), sent).await.unwrap_or(false)
    }

    async fn act(&mut self, api: Api, sent: bool) -> Result<bool, Error> {
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
        // Only now that nothing moves any more, so that each death is counted once.
        let reasons: Vec<ReasonView> = api.get("/api/v1/dead-letters/top?since=1d&limit=500").await?;
        let order = json!({
            "filter": { "states": ["dead"] },
            "reason": "the CRM was at fault, and is asked again",
            "actor": "chaos",
        });
        let acted: Acted = serde_json::from_value(api.post("/api/v1/replays", &order).await?)
            .map_err(|error| Error::Wrong(format!("the replay was answered something else: {error}")))?;
        self.replayed += acted.changed;
        for reason in reasons {
            *self.died.entry(reason.code).or_default() += reason.count;
        }
        Ok(false)
    }
}
