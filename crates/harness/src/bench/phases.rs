//! Measurements of the node.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sluice_domain::time::Time;
use sluice_ledger::{Ledger, LedgerOptions, Pause};
use sluice_simulator::load::{Counter, CounterSettings};

use super::node_under_test::NodeUnderTest;
use super::report::{Accept, EndToEnd, Http, Keys, Latency};
use super::{Bench, Error};
use crate::{Leads, LeadsTo, Memory};

/// Address of the paused destination; nothing is sent to it.
pub(super) const UNUSED_URL: &str = "http://127.0.0.1:9";
/// Time between two effects while some are missing.
const EFFECT_MAX: Duration = Duration::from_secs(60);
/// Interval between two checks for them.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(1);

impl Bench {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path("node.log")
    }

    /// Pauses the destination and writes events until there are `fill`, while no node has the ledger open.
    pub(super) async fn prepare_ledger(&self, leads: &Leads, fill: u64) -> Result<(), Error> {
        let clock = || Time::from(jiff::Timestamp::now());
        let root_key = sluice_server::root_key::find(&leads.data).map_err(|error| Error::Failed(error.to_string()))?;
        let ledger =
            Ledger::open(&leads.data, LedgerOptions::quiet(std::sync::Arc::new(clock)).with_root_key(root_key))?;
        let pause = Pause {
            target: LeadsTo::Sink(UNUSED_URL).target().into(),
            actor: "bench".into(),
            reason: "only intake is measured".into(),
            at: clock(),
        };
        ledger.pause(pause).await?;
        let present = ledger.event_count().await?;
        self.workload.fill(&ledger, present..fill).await?;
        ledger.close().await;
        Ok(())
    }

    /// Starts a node that only accepts: its destination is paused.
    async fn intake_only(&self, name: &str) -> Result<NodeUnderTest, Error> {
        let leads = Leads::write(&self.path(name), LeadsTo::Sink(UNUSED_URL))?;
        self.prepare_ledger(&leads, 0).await?;
        NodeUnderTest::start(&self.settings.host, &leads, &self.log()).await
    }

    pub(super) async fn accept(&self) -> Result<Accept, Error> {
        self.status.show("bare HTTP and accept, in turns …");
        let node = self.intake_only("accept").await?;
        let before = node.commits().await?;
        let rounds = self.alternate(self.baseline.address, node.intake(), async |_| Ok(())).await?;
        let after = node.commits().await?;
        let memory = node.memory();
        node.stop().await?;
        Ok(Accept {
            http: Http::of(&rounds.baseline),
            per_second: rounds.node.per_second(),
            latency: Latency::of(&rounds.node),
            batch: (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64,
            memory,
        })
    }

    pub(super) async fn end_to_end(&self) -> Result<EndToEnd, Error> {
        self.status.show("bare HTTP and end to end, in turns …");
        let sink = Counter::start(CounterSettings::default()).map_err(Error::io("the sink"))?;
        let leads = Leads::write(&self.path("end-to-end"), LeadsTo::Sink(&sink.url()))?;
        let node = NodeUnderTest::start(&self.settings.host, &leads, &self.log()).await?;
        let rounds = self
            .alternate(self.baseline.address, node.intake(), async |accepted| self.drained(&sink, accepted).await)
            .await?;
        let memory = node.memory();
        node.stop().await?;
        let accepted = rounds.node.answered();
        Ok(EndToEnd {
            http: Http::of(&rounds.baseline),
            per_second: accepted as f64 / (rounds.node.elapsed + rounds.drain).as_secs_f64(),
            accepted,
            accept_per_second: rounds.node.per_second(),
            latency: Latency::of(&rounds.node),
            drain_seconds: rounds.drain.as_secs_f64(),
            memory,
        })
    }

    /// Waits for the last effect. Fails unless there is exactly one effect per event.
    pub(super) async fn drained(&self, sink: &Counter, wanted: u64) -> Result<(), Error> {
        let (mut applied, mut progress_at) = (sink.requests(), Instant::now());
        while applied != wanted {
            if applied > wanted || progress_at.elapsed() > EFFECT_MAX {
                return Err(Error::Failed(format!(
                    "{wanted} events were accepted, and the sink has {applied} effects; a call that times out is sent again, \
                     so repeat the benchmark on a machine with less other load"
                )));
            }
            tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
            let now_applied = sink.requests();
            if now_applied != applied {
                (applied, progress_at) = (now_applied, Instant::now());
            }
        }
        Ok(())
    }

    pub(super) async fn keys(&self) -> Result<Keys, Error> {
        let count = self.settings.keys;
        self.status.show(&format!("keys: writing {count} …"));
        let leads = Leads::write(&self.path("keys-many"), LeadsTo::Sink(UNUSED_URL))?;
        self.prepare_ledger(&leads, count).await?;
        self.status.show(&format!("keys: a start with {count} jobs that wait …"));
        let started = Instant::now();
        let many = NodeUnderTest::start(&self.settings.host, &leads, &self.log()).await?;
        self.load(many.intake(), Duration::from_millis(1)).await?;
        let recovery = started.elapsed();
        self.status.show(&format!("keys: a ledger with {count} of them and an empty one, in turns …"));
        let empty = self.intake_only("keys-none").await?;
        let rounds = self.alternate(empty.intake(), many.intake(), async |_| Ok(())).await?;
        let (memory, memory_of_empty) = (many.memory(), empty.memory());
        many.stop().await?;
        empty.stop().await?;
        Ok(Keys {
            keys: count,
            empty_per_second: rounds.baseline.per_second(),
            per_second: rounds.node.per_second(),
            recovery_seconds: recovery.as_secs_f64(),
            memory: Memory { resident_kib: memory.resident_kib, ..memory.then(memory_of_empty) },
        })
    }
}
