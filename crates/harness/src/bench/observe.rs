//! Observe: a node with traces, log lines, and a scrape each second, against one without. The history is part of both: it cannot be
//! turned off.

use std::time::{Duration, Instant};

use sluice_simulator::Collector;
use sluice_simulator::load::{Counter, CounterSettings, LoadResult};
use tokio::task::JoinHandle;

use super::node_under_test::NodeUnderTest;
use super::report::Observe;
use super::{Bench, Error, ROUNDS, WARM_UP};
use crate::{Leads, LeadsTo};

/// As a Prometheus would scrape it, only more often.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

/// A node and what observes it.
struct Observed {
    node: NodeUnderTest,
    sink: Counter,
    /// `None` for the node that is not observed.
    scraping: Option<JoinHandle<()>>,
    accepted: u64,
}

/// Total of the rounds of one node.
#[derive(Default)]
struct Total {
    loaded: LoadResult,
    drain: Duration,
}

impl Total {
    fn per_second(&self) -> f64 {
        self.loaded.answered() as f64 / (self.loaded.elapsed + self.drain).as_secs_f64()
    }
}

impl Bench {
    pub(super) async fn observe(&self) -> Result<Observe, Error> {
        let collector = Collector::start().await.map_err(Error::io("the receiver of traces"))?;
        self.status.show("accept with and without observation, in turns …");
        let (off, on) =
            (self.accept_only("observe-off", None).await?, self.accept_only("observe-on", Some(&collector)).await?);
        let rounds = self.alternate(off.intake(), on.intake(), async |_| Ok(())).await?;
        let accept = (rounds.baseline.per_second(), rounds.node.per_second());
        off.stop().await?;
        on.stop().await?;
        self.status.show("end to end with and without observation, in turns …");
        let mut off = self.observed("observe-off-e2e", None).await?;
        let mut on = self.observed("observe-on-e2e", Some(&collector)).await?;
        let (mut total_off, mut total_on) = (Total::default(), Total::default());
        for node in [&mut off, &mut on] {
            self.round(node, self.settings.time.mul_f64(WARM_UP), &mut Total::default()).await?;
        }
        for _ in 0..ROUNDS {
            self.round(&mut off, self.settings.time / ROUNDS, &mut total_off).await?;
            self.round(&mut on, self.settings.time / ROUNDS, &mut total_on).await?;
        }
        let memory = on.node.memory();
        for observed in [off, on] {
            observed.scraping.inspect(JoinHandle::abort);
            observed.node.stop().await?;
        }
        Ok(Observe {
            accept_off_per_second: accept.0,
            accept_on_per_second: accept.1,
            end_to_end_off_per_second: total_off.per_second(),
            end_to_end_on_per_second: total_on.per_second(),
            spans: collector.count(),
            memory,
        })
    }

    /// A node that only accepts.
    async fn accept_only(&self, name: &str, collector: Option<&Collector>) -> Result<NodeUnderTest, Error> {
        let leads = Leads::write(&self.path(name), LeadsTo::Sink(super::phases::UNUSED_URL))?;
        self.prepare_ledger(&leads, 0).await?;
        self.start(&leads, collector).await
    }

    async fn observed(&self, name: &str, collector: Option<&Collector>) -> Result<Observed, Error> {
        let sink = Counter::start(CounterSettings::default()).map_err(Error::io("the sink"))?;
        let leads = Leads::write(&self.path(name), LeadsTo::Sink(&sink.url()))?;
        let node = self.start(&leads, collector).await?;
        let api = node.api();
        let scraping = collector.map(|_| {
            tokio::spawn(async move {
                loop {
                    let _ = api.metric("sluice_ledger_commits").await;
                    tokio::time::sleep(SCRAPE_INTERVAL).await;
                }
            })
        });
        Ok(Observed { node, sink, scraping, accepted: 0 })
    }

    async fn start(&self, leads: &Leads, collector: Option<&Collector>) -> Result<NodeUnderTest, Error> {
        let Some(collector) = collector else {
            return NodeUnderTest::start(&self.settings.host, leads, &self.log()).await;
        };
        let section = format!("traces: {{ endpoint: '{}', protocol: grpc }}\n", collector.url());
        let path = leads.config.join("traces.yml");
        std::fs::write(&path, section).map_err(Error::io(path.display().to_string()))?;
        NodeUnderTest::start_logging(&self.settings.host, leads, &self.log()).await
    }

    async fn round(&self, observed: &mut Observed, time: Duration, total: &mut Total) -> Result<(), Error> {
        let round = self.load(observed.node.intake(), time).await?;
        let answered = Instant::now();
        observed.accepted += round.answered();
        self.drained(&observed.sink, observed.accepted).await?;
        total.drain += answered.elapsed();
        total.loaded = std::mem::take(&mut total.loaded).then(&round);
        Ok(())
    }
}
