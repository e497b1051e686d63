//! Failures: the share of its configured concurrency that a destination keeps while it fails some of its calls at random.

use std::time::{Duration, Instant};

use serde::Deserialize;
use sluice_simulator::load::{Counter, CounterSettings};

use super::node_under_test::NodeUnderTest;
use super::report::HeldConcurrency;
use super::{Bench, Error};
use crate::{Api, Leads, LeadsTo};

/// Shares of failed calls that are measured.
const FAILURE_PERCENT: [u8; 3] = [0, 10, 30];
/// Time that the destination takes for a call.
const CALL_TIME: Duration = Duration::from_millis(40);
/// Interval between two looks at the gate.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Deserialize)]
struct Destination {
    gate: Option<Gate>,
}

/// State of the gate of the destination, as the admin API reports it.
#[derive(Debug, Deserialize)]
struct Gate {
    in_flight: u32,
    concurrency: u32,
    concurrency_max: u32,
}

impl Bench {
    pub(super) async fn failures(&self) -> Result<Vec<HeldConcurrency>, Error> {
        let mut held = Vec::new();
        for percent in FAILURE_PERCENT {
            held.push(self.held_with(percent).await?);
        }
        Ok(held)
    }

    async fn held_with(&self, failure_percent: u8) -> Result<HeldConcurrency, Error> {
        self.status.show(&format!("a destination that fails {failure_percent} % of its calls …"));
        let settings = CounterSettings { delay: CALL_TIME, failure_percent };
        let sink = Counter::start(settings).map_err(Error::io("the sink"))?;
        let name = format!("failures-{failure_percent}");
        let leads = Leads::write(&self.path(&name), LeadsTo::Sink(&sink.url()))?;
        let node = NodeUnderTest::start(&self.settings.host, &leads, &self.log()).await?;
        let api = node.api();
        let concurrency_max = gate(&api).await?.concurrency_max;
        // More events than calls that can end while the gate adapts and while it is measured.
        let calls = (self.settings.time * 2).as_secs_f64() / CALL_TIME.as_secs_f64() * f64::from(concurrency_max);
        self.send_events(node.intake(), calls as u64 * 5 / 4).await?;
        self.adapted(&api).await?;
        let (ok, failed, started) = (sink.requests(), sink.failures(), Instant::now());
        let (mut samples, mut held) = (0u32, 0.0);
        while started.elapsed() < self.settings.time {
            held += f64::from(gate(&api).await?.in_flight) / f64::from(concurrency_max);
            samples += 1;
            tokio::time::sleep(SAMPLE_INTERVAL).await;
        }
        let (ok, failed) = (sink.requests() - ok, sink.failures() - failed);
        let calls_per_second = (ok + failed) as f64 / started.elapsed().as_secs_f64();
        node.stop().await?;
        Ok(HeldConcurrency {
            failure_percent,
            failed_share: failed as f64 / (ok + failed).max(1) as f64,
            concurrency_max,
            held: held / f64::from(samples.max(1)),
            calls_per_second,
        })
    }

    /// Waits until the gate allows the configured concurrency, and no longer than a measurement takes.
    async fn adapted(&self, api: &Api) -> Result<(), Error> {
        let started = Instant::now();
        while started.elapsed() < self.settings.time {
            let gate = gate(api).await?;
            if gate.concurrency >= gate.concurrency_max {
                break;
            }
            tokio::time::sleep(SAMPLE_INTERVAL).await;
        }
        Ok(())
    }
}

async fn gate(api: &Api) -> Result<Gate, Error> {
    let destinations: Vec<Destination> = api.get("/api/v1/destinations").await?;
    let gate = destinations.into_iter().find_map(|destination| destination.gate);
    gate.ok_or_else(|| Error::Failed("the node has no gate".to_owned()))
}
