//! The measurements of the node.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sluice_domain::time::Time;
use sluice_ledger::{Ledger, LedgerOptions};
use sluice_simulator::load::Counter;

use super::node_under_test::Subject;
use super::report::{Accept, EndToEnd, Http, Keys, Latency};
use super::{Bench, Error};
use crate::{Leads, LeadsTo, Memory};

/// Nobody listens there; nothing is sent there either, since the destination is paused.
const NOWHERE: &str = "http://127.0.0.1:9";
/// How long the last effects may take after the last event was accepted.
const DRAIN_MAX: Duration = Duration::from_secs(120);
/// Between two looks at whether they are all there.
const DRAIN_LOOK: Duration = Duration::from_millis(1);

impl Bench {
    fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn log(&self) -> PathBuf {
        self.place("node.log")
    }

    /// Opens a ledger while no node runs, and acts on it.
    async fn prepared(&self, leads: &Leads, fill: u64) -> Result<(), Error> {
        let clock = || Time::from(jiff::Timestamp::now());
        let root_key = sluice_server::root_key::find(&leads.data).map_err(|error| Error::Wrong(error.to_string()))?;
        let ledger =
            Ledger::open(&leads.data, LedgerOptions::quiet(std::sync::Arc::new(clock)).with_root_key(root_key))?;
        ledger
            .pause(LeadsTo::Sink(NOWHERE).target().into(), "bench".into(), "only the door is measured".into(), clock())
            .await?;
        self.workload.fill(&ledger, fill).await?;
        ledger.close().await;
        Ok(())
    }

    /// A node that accepts and does nothing more: its destination is paused.
    async fn door(&self, name: &str) -> Result<Subject, Error> {
        let leads = Leads::write(&self.place(name), LeadsTo::Sink(NOWHERE))?;
        self.prepared(&leads, 0).await?;
        Subject::start(&self.settings.home, &leads, &self.log()).await
    }

    pub async fn accept(&self) -> Result<Accept, Error> {
        self.status.show("bare HTTP and accept, in turns …");
        let subject = self.door("accept").await?;
        let before = subject.commits().await?;
        let turns = self.turns(self.bare.address, subject.intake(), async |_| Ok(())).await?;
        let after = subject.commits().await?;
        let memory = subject.memory();
        subject.end().await?;
        Ok(Accept {
            http: Http::of(&turns.limit),
            per_second: turns.node.per_second(),
            latency: Latency::of(&turns.node),
            batch: (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64,
            memory,
        })
    }

    pub async fn end_to_end(&self) -> Result<EndToEnd, Error> {
        self.status.show("bare HTTP and end to end, in turns …");
        let sink = Counter::start().map_err(Error::io("the sink"))?;
        let leads = Leads::write(&self.place("end-to-end"), LeadsTo::Sink(&sink.url()))?;
        let subject = Subject::start(&self.settings.home, &leads, &self.log()).await?;
        let turns = self
            .turns(self.bare.address, subject.intake(), async |accepted| self.drained(&sink, accepted).await)
            .await?;
        let memory = subject.memory();
        subject.end().await?;
        let accepted = turns.node.answered();
        Ok(EndToEnd {
            http: Http::of(&turns.limit),
            per_second: accepted as f64 / (turns.node.elapsed + turns.after).as_secs_f64(),
            accepted,
            accept_per_second: turns.node.per_second(),
            latency: Latency::of(&turns.node),
            drain_seconds: turns.after.as_secs_f64(),
            memory,
        })
    }

    /// Waits for the last effect. One more or one fewer than there were events fails the bench.
    async fn drained(&self, sink: &Counter, wanted: u64) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            let applied = sink.requests();
            if applied == wanted {
                return Ok(());
            }
            if applied > wanted || started.elapsed() > DRAIN_MAX {
                return Err(Error::Wrong(format!("{wanted} events were accepted, and the sink has {applied} effects")));
            }
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    pub async fn keys(&self) -> Result<Keys, Error> {
        let count = self.settings.keys;
        self.status.show(&format!("keys: writing {count} …"));
        let leads = Leads::write(&self.place("keys-many"), LeadsTo::Sink(NOWHERE))?;
        self.prepared(&leads, count).await?;
        self.status.show(&format!("keys: a start with {count} jobs that wait …"));
        let started = Instant::now();
        let many = Subject::start(&self.settings.home, &leads, &self.log()).await?;
        self.load(many.intake(), Duration::from_millis(1)).await?;
        let recovery = started.elapsed();
        self.status.show(&format!("keys: a ledger with {count} of them and an empty one, in turns …"));
        let empty = self.door("keys-none").await?;
        let turns = self.turns(empty.intake(), many.intake(), async |_| Ok(())).await?;
        let (memory, memory_of_empty) = (many.memory(), empty.memory());
        many.end().await?;
        empty.end().await?;
        Ok(Keys {
            keys: count,
            empty_per_second: turns.limit.per_second(),
            per_second: turns.node.per_second(),
            recovery_seconds: recovery.as_secs_f64(),
            memory: Memory { resident_kib: memory.resident_kib, ..memory.then(memory_of_empty) },
        })
    }
}
