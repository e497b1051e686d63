//! Time to first signal: from the first failed call of a destination to the message in the simulated Slack.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use sluice_simulator::load::{LoadSettings, Pace, load};
use sluice_simulator::{Fault, FaultPlan, Sink, SinkSettings, Slack, SlackSettings};

use super::node_under_test::NodeUnderTest;
use super::workload::Workload;
use super::{NodeHost, StatusLine};
use crate::{Error, Leads, LeadsTo};

/// Leads per second: a quiet website. More traffic opens the breaker sooner.
const LEADS_PER_SECOND: u32 = 5;
/// Traffic before the destination begins to fail.
const WARM_UP: Duration = Duration::from_secs(2);
/// A node that has said nothing by then says nothing.
const SIGNAL_MAX: Duration = Duration::from_secs(120);
/// What the time should be at most, in seconds.
const GOAL_SECONDS: f64 = 10.0;
/// Between two looks at the simulators.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const BODY_BYTES: usize = 700;

/// Time to first signal, in seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Signal {
    pub leads_per_second: u32,
    /// From the first failed call to the message, once for each round.
    pub seconds: Vec<f64>,
    pub goal_seconds: f64,
}

impl Signal {
    /// The slowest round.
    fn worst(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }

    pub(crate) fn all_reached(&self) -> bool {
        self.worst() <= self.goal_seconds
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds: Vec<String> = self.seconds.iter().map(|seconds| format!("{seconds:.2}")).collect();
        writeln!(f, "time to first signal: from the first failed call to the message in Slack")?;
        writeln!(f, "  rounds        {} s, at {} leads per second", rounds.join(", "), self.leads_per_second)?;
        let verdict = if self.all_reached() { "ok" } else { "too slow" };
        writeln!(f, "  slowest       {:.2} s of {:.0} s: {verdict}", self.worst(), self.goal_seconds)
    }
}

/// Measures this many rounds, each with a new node.
pub(crate) async fn signal(host: NodeHost, rounds: u32, status: StatusLine) -> Result<Signal, Error> {
    let directory = tempfile::tempdir().map_err(Error::io("a temporary directory"))?;
    let mut seconds = Vec::new();
    for round in 1..=rounds {
        status.show(&format!("round {round} of {rounds} …"));
        let took = measure(&host, &directory.path().join(round.to_string())).await?;
        seconds.push(took.as_secs_f64());
    }
    status.clear();
    Ok(Signal { leads_per_second: LEADS_PER_SECOND, seconds, goal_seconds: GOAL_SECONDS })
}

async fn measure(host: &NodeHost, directory: &Path) -> Result<Duration, Error> {
    let sink = Sink::start(SinkSettings::default()).map_err(Error::io("the sink"))?;
    let slack = Slack::start(SlackSettings::default()).map_err(Error::io("the simulated Slack"))?;
    let leads = Leads::write(directory, LeadsTo::Sink(&sink.url()))?;
    write_alerts(&leads, &slack)?;
    let workload = Workload::new(leads.sender()?, BODY_BYTES)?;
    let node = NodeUnderTest::start(host, &leads, &directory.join("node.log")).await?;
    let settings = LoadSettings {
        target: node.intake(),
        connections: 1,
        requests_max: u64::MAX,
        time_max: WARM_UP + SIGNAL_MAX,
        pace: Pace::PerSecond(LEADS_PER_SECOND),
    };
    let traffic = tokio::spawn(load(settings, workload.requests()));
    tokio::time::sleep(WARM_UP).await;
    sink.set_faults(FaultPlan::always(Fault::Reply { code: 503 })).map_err(|error| Error::Failed(error.to_string()))?;
    let failed = until(|| sink.truth().refused > 0).await?;
    let told = until(|| !slack.messages().is_empty()).await?;
    traffic.abort();
    node.stop().await?;
    Ok(told.duration_since(failed))
}

/// A channel for alerts through the simulated Slack.
fn write_alerts(leads: &Leads, slack: &Slack) -> Result<(), Error> {
    let alerts = format!(
        "destinations:\n  chat: {{ type: slack, token: \"${{secrets.HARNESS_SLACK}}\", base_url: \"{}\" }}\nalerts:\n  notify: [{{ name: team, destination: chat, channel: C0SIMULATOR }}]\n",
        slack.api_url()
    );
    for (name, text) in [("alerts.yml", alerts.as_str()), ("secrets/HARNESS_SLACK", "xoxb-simulator")] {
        let path = leads.config.join(name);
        std::fs::write(&path, text).map_err(Error::io(path.display().to_string()))?;
    }
    Ok(())
}

/// The moment at which something is seen.
async fn until(mut is_seen: impl FnMut() -> bool) -> Result<Instant, Error> {
    let started = Instant::now();
    while !is_seen() {
        if started.elapsed() > SIGNAL_MAX {
            return Err(Error::Failed(format!("no signal within {} s", SIGNAL_MAX.as_secs())));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(Instant::now())
}
