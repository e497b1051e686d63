//! History: how fast a new configuration is applied to stored requests, beside the active one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_simulator::load::{Counter, CounterSettings};

use super::node_under_test::NodeUnderTest;
use super::report::HistoryTrial;
use super::{Bench, Error};
use crate::{Leads, LeadsTo};

/// Events of one trial.
const EVENTS_MAX: u64 = 200_000;
const POLL: Duration = Duration::from_millis(100);

impl Bench {
    /// The new mapping changes a field of every event, so that every request to the destination is compared.
    pub(super) async fn history(&self) -> Result<HistoryTrial, Error> {
        let events = self.settings.jobs.min(EVENTS_MAX);
        let sink = Counter::start(CounterSettings::default()).map_err(Error::io("the sink"))?;
        let leads = Leads::write(&self.path("history"), LeadsTo::Sink(&sink.url()))?;
        let node = NodeUnderTest::start(&self.settings.host, &leads, &self.log()).await?;
        let api = node.api();
        let target = LeadsTo::Sink("").target();
        self.status.show(&format!("history: {events} events …"));
        api.post("/api/v1/pause", &json!({ "target": target, "reason": "only the history counts", "actor": "bench" }))
            .await?;
        self.send_events(node.intake(), events).await?;
        let order = json!({ "files": changed_files(&leads)?, "window": "1d" });
        let mut trial = api.post("/api/v1/trials", &order).await?;
        self.status.show(&format!("history: a trial of {events} requests …"));
        while trial["state"] == "running" {
            tokio::time::sleep(POLL).await;
            trial = api.get::<Value>(&format!("/api/v1/trials/{}", trial["id"])).await?;
        }
        let memory = node.memory();
        node.stop().await?;
        let compared = trial["report"]["different"].as_u64().unwrap_or_default();
        if compared != events {
            return Err(Error::Failed(format!("{compared} of {events} requests differ; all of them should: {trial}")));
        }
        let per_second = events as f64 / trial["seconds"].as_f64().unwrap_or(f64::INFINITY);
        Ok(HistoryTrial { events, per_second, memory })
    }
}

/// The configuration with another mapping of one field.
fn changed_files(leads: &Leads) -> Result<BTreeMap<String, String>, Error> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(&leads.config).map_err(Error::io("the configuration"))? {
        let path = entry.map_err(Error::io("the configuration"))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.ends_with(".yml") {
            let text = std::fs::read_to_string(&path).map_err(Error::io("the configuration"))?;
            files.insert(name, text.replace("company: body.company", "company: \"{{ body.company }}, Inc.\""));
        }
    }
    Ok(files)
}
