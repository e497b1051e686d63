//! Drain: how fast a backlog is worked off, against new events of the same run.

use std::time::{Duration, Instant};

use serde_json::json;
use sluice_simulator::load::{Counter, CounterSettings};

use super::node_under_test::NodeUnderTest;
use super::report::Drain;
use super::{Bench, Error};
use crate::{Leads, LeadsTo};

/// New events that are sent before the measurement waits for their effects: fewer than the scheduler has in memory, so that
/// none of them is loaded from the ledger.
const NEW_EVENTS_MAX: u64 = 8_000;

/// A node and its destination.
struct Stage {
    node: NodeUnderTest,
    sink: Counter,
    /// Events sent so far.
    sent: u64,
}

impl Bench {
    /// Half of the new events come before the backlog and half of them after it, so that other load on the machine and the size
    /// of the ledger slow both alike.
    pub(super) async fn drain(&self) -> Result<Drain, Error> {
        let jobs = self.settings.jobs;
        let sink = Counter::start(CounterSettings::default()).map_err(Error::io("the sink"))?;
        let leads = Leads::write(&self.path("drain"), LeadsTo::Sink(&sink.url()))?;
        let node = NodeUnderTest::start(&self.settings.host, &leads, &self.log()).await?;
        let mut stage = Stage { node, sink, sent: 0 };
        self.status.show("drain: warming up …");
        self.send_new(&mut stage, NEW_EVENTS_MAX.min(jobs)).await?;
        self.status.show("drain: new events …");
        let before = self.send_new(&mut stage, jobs / 2).await?;
        let drained_in = self.drain_backlog(&mut stage, jobs).await?;
        self.status.show("drain: new events again …");
        let after = self.send_new(&mut stage, jobs - jobs / 2).await?;
        let memory = stage.node.memory();
        stage.node.stop().await?;
        Ok(Drain {
            jobs,
            per_second: jobs as f64 / drained_in.as_secs_f64(),
            new_per_second: jobs as f64 / (before + after).as_secs_f64(),
            memory,
        })
    }

    /// Sends events and waits for their effects, some thousands at a time. Returns how long that took.
    async fn send_new(&self, stage: &mut Stage, events: u64) -> Result<Duration, Error> {
        let started = Instant::now();
        let last = stage.sent + events;
        while stage.sent < last {
            let round = NEW_EVENTS_MAX.min(last - stage.sent);
            self.send_events(stage.node.intake(), round).await?;
            stage.sent += round;
            self.drained(&stage.sink, stage.sent).await?;
        }
        Ok(started.elapsed())
    }

    /// Sends events while the destination is paused. Returns how long their effects take once it is resumed.
    async fn drain_backlog(&self, stage: &mut Stage, jobs: u64) -> Result<Duration, Error> {
        let api = stage.node.api();
        let target = LeadsTo::Sink("").target();
        self.status.show(&format!("drain: {jobs} events for a paused destination …"));
        api.post("/api/v1/pause", &json!({ "target": target, "reason": "a backlog is wanted", "actor": "bench" }))
            .await?;
        self.send_events(stage.node.intake(), jobs).await?;
        stage.sent += jobs;
        self.status.show(&format!("drain: {jobs} waiting jobs …"));
        let started = Instant::now();
        api.post("/api/v1/resume", &json!({ "target": target, "actor": "bench" })).await?;
        self.drained(&stage.sink, stage.sent).await?;
        Ok(started.elapsed())
    }
}
