//! Bench: how fast this node is on this machine, held against what the machine itself can do in the same run.
//!
//! In: what to measure, and for how long.
//! Out: a report.
//! Touches: a temporary directory; a node in it, and listeners on loopback.
//! Never: compares with a number from another machine or another day.
//! If the process dies here: nothing of value is lost.

mod bare;
mod intake;
mod phases;
mod report;
mod subject;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use sluice_ledger::bench as disk;
use sluice_simulator::load::{LoadSettings, Loaded, Pace, load};

use crate::stage::{Error, Leads, LeadsTo, StatusLine};
use bare::Bare;
pub use bare::{COMMAND as BARE_COMMAND, serve_bare};
pub use intake::{Intake, SchemeCost, intake};
use report::Ceilings;
pub use report::{Accept, EndToEnd, Floor, Keys, Report};
use workload::Workload;

/// Rows in one transaction of the bare ledger.
const BARE_BATCH: usize = 256;
/// The share of the time that is spent warming up before each measurement.
const WARM_UP: f64 = 0.1;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// How fast events are accepted
    Accept,
    /// What proof, key and seal cost a request of 1 KB; no node runs for it
    Intake,
    /// How fast events come out at the other end
    E2e,
    /// Whether a million keys make it slower, and how long a start takes with a million jobs
    Keys,
    /// All of it but intake
    All,
}

/// Where the node under test runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// As a process of its own, by this program: its memory is its own.
    Process(PathBuf),
    /// In this process, on a runtime of its own: easier to profile.
    Here,
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What.
    pub what: What,
    /// For how long each.
    pub time: Duration,
    /// Connections at once.
    pub connections: usize,
    /// Bytes of each body, at least.
    pub body_bytes: usize,
    /// Keys that are there before, for [`What::Keys`].
    pub keys: u64,
    /// Where the node runs.
    pub home: Home,
}

/// One run under way.
struct Bench {
    settings: Settings,
    directory: tempfile::TempDir,
    workload: Workload,
    status: StatusLine,
}

/// Measures the machine, then the node.
pub async fn run(settings: Settings, status: StatusLine) -> Result<Report, Error> {
    let directory = tempfile::tempdir().map_err(Error::io("a temporary directory"))?;
    let sample = Leads::write(&directory.path().join("sample"), LeadsTo::Sink("http://127.0.0.1:9"))?;
    let workload = Workload::new(sample.sender()?, settings.body_bytes)?;
    let what = settings.what;
    let bench = Bench { settings, directory, workload, status };
    let ceilings = bench.ceilings(&sample).await?;
    let wants = |phase| what == phase || what == What::All;
    let accept = if wants(What::Accept) { Some(bench.accept().await?) } else { None };
    let end_to_end = if wants(What::E2e) { Some(bench.end_to_end().await?) } else { None };
    let keys = if wants(What::Keys) { Some(bench.keys().await?) } else { None };
    bench.status.clear();
    Ok(Report::new(&bench.settings, ceilings, accept, end_to_end, keys))
}

impl Bench {
    async fn ceilings(&self, sample: &Leads) -> Result<Ceilings, Error> {
        self.status.show("the machine: bare HTTP …");
        let bare = Bare::start(&self.settings.home, sample).await?;
        let http = self.measured(bare.address).await?;
        drop(bare);
        self.status.show("the machine: bare SQLite, bare disk …");
        let directory = self.directory.path().join("bare");
        std::fs::create_dir_all(&directory).map_err(Error::io("a temporary directory"))?;
        let (event, time) = (self.workload.sample()?, self.settings.time);
        let measured = tokio::task::spawn_blocking(move || {
            let flushes = disk::flush(&directory, time / 5)?;
            disk::group_commit(&directory, &event, BARE_BATCH, time).map(|rows| (flushes, rows))
        });
        let (flushes, rows) = measured.await.map_err(|error| Error::Wrong(error.to_string()))??;
        Ok(Ceilings::new(&http, rows, flushes))
    }

    /// A short warm-up, then the measurement. Anything but a 202 fails the bench.
    async fn measured(&self, target: std::net::SocketAddr) -> Result<Loaded, Error> {
        self.load(target, self.settings.time.mul_f64(WARM_UP)).await?;
        self.load(target, self.settings.time).await
    }

    async fn load(&self, target: std::net::SocketAddr, time_max: Duration) -> Result<Loaded, Error> {
        let settings = LoadSettings {
            target,
            connections: self.settings.connections,
            requests_max: u64::MAX,
            time_max,
            pace: Pace::Closed,
        };
        let loaded = load(settings, self.workload.requests()).await.map_err(Error::io("the load"))?;
        if loaded.with_status(202) != loaded.answered() || loaded.unanswered > 0 {
            let (statuses, unanswered) = (&loaded.statuses, loaded.unanswered);
            return Err(Error::Wrong(format!(
                "not every request was accepted: {statuses:?}, unanswered: {unanswered}"
            )));
        }
        Ok(loaded)
    }
}
