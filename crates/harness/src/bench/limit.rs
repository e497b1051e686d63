//! A destination that answers 429 above a rate: how near to the limit the node holds, how many calls are refused, and how soon it
//! follows when the limit doubles.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use sluice_simulator::load::{LoadSettings, Pace, load};
use sluice_simulator::{Sink, SinkSettings};

use super::node_under_test::NodeUnderTest;
use super::workload::Workload;
use super::{NodeHost, SEND_MAX, StatusLine};
use crate::{Error, Leads, LeadsTo};

/// Calls in any second that the destination accepts.
const LIMIT: u32 = 50;
/// Time to settle, at the beginning.
const SETTLE: Duration = Duration::from_secs(60);
/// Time to follow a limit that has doubled.
const FOLLOW_MAX: Duration = Duration::from_secs(60);
/// Each measurement.
const MEASURED: Duration = Duration::from_secs(60);
/// More leads than the destination accepts meanwhile.
const LEADS: u64 = 20_000;
const BODY_BYTES: usize = 700;
const CONNECTIONS: usize = 32;
const SHARE_MIN: f64 = 0.9;
const SHARE_MAX: f64 = 1.1;
const REFUSED_MAX: f64 = 0.02;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RateLimit {
    pub phases: Vec<LimitPhase>,
}

/// What happened once the node had settled.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LimitPhase {
    pub limit_per_second: u32,
    pub accepted_per_second: f64,
    /// Share of all calls.
    pub refused: f64,
}

impl LimitPhase {
    fn reached(&self) -> bool {
        let share = self.accepted_per_second / f64::from(self.limit_per_second);
        (SHARE_MIN..=SHARE_MAX).contains(&share) && self.refused < REFUSED_MAX
    }
}

impl RateLimit {
    pub(crate) fn all_reached(&self) -> bool {
        self.phases.iter().all(LimitPhase::reached)
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a destination that answers 429 above its limit")?;
        for phase in &self.phases {
            let LimitPhase { limit_per_second, accepted_per_second, refused } = phase;
            let verdict = if phase.reached() { "ok" } else { "not within 10 % with less than 2 % refused" };
            writeln!(
                f,
                "  limit {limit_per_second:>4}/s  {accepted_per_second:>7.1}/s accepted, {:.2} % refused: {verdict}",
                refused * 100.0
            )?;
        }
        Ok(())
    }
}

/// Measures the limit, then twice the limit.
pub(crate) async fn limit(host: NodeHost, status: StatusLine) -> Result<RateLimit, Error> {
    let directory = tempfile::tempdir().map_err(Error::io("a temporary directory"))?;
    let sink = Sink::start(SinkSettings { calls_per_second_max: Some(LIMIT), ..SinkSettings::default() });
    let sink = sink.map_err(Error::io("the sink"))?;
    let leads = Leads::write(directory.path(), LeadsTo::Sink(&sink.url()))?;
    let workload = Workload::new(leads.sender()?, BODY_BYTES)?;
    let node = start(&host, &leads, directory.path(), &workload).await?;
    let mut phases = Vec::new();
    for (limit, wait) in [(LIMIT, SETTLE), (2 * LIMIT, FOLLOW_MAX)] {
        sink.limit_rate(Some(limit));
        status.show(&format!("{limit} calls a second: settling …"));
        tokio::time::sleep(wait).await;
        status.show(&format!("{limit} calls a second: measuring …"));
        phases.push(measure(&sink, limit).await);
    }
    status.clear();
    node.stop().await?;
    Ok(RateLimit { phases })
}

/// A node with a backlog.
async fn start(host: &NodeHost, leads: &Leads, directory: &Path, workload: &Workload) -> Result<NodeUnderTest, Error> {
    let node = NodeUnderTest::start(host, leads, &directory.join("node.log")).await?;
    let settings = LoadSettings {
        target: node.intake(),
        connections: CONNECTIONS,
        requests_max: LEADS,
        time_max: SEND_MAX,
        pace: Pace::Closed,
    };
    let sent = load(settings, workload.requests()).await.map_err(Error::io("the load"))?;
    if sent.with_status(202) != LEADS {
        return Err(Error::Failed(format!("not every lead was accepted: {:?}", sent.statuses)));
    }
    Ok(node)
}

async fn measure(sink: &Sink, limit_per_second: u32) -> LimitPhase {
    let (before, started) = (sink.rate_counts(), Instant::now());
    tokio::time::sleep(MEASURED).await;
    let after = sink.rate_counts();
    let (accepted, refused) = (after.accepted - before.accepted, after.refused - before.refused);
    LimitPhase {
        limit_per_second,
        accepted_per_second: accepted as f64 / started.elapsed().as_secs_f64(),
        refused: refused as f64 / (accepted + refused).max(1) as f64,
    }
}
