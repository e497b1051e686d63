//! Bench: how fast this node is on this machine, held against what the machine itself can do in the same run.
//!
//! In: what to measure, and for how long.
//! Out: a report.
//! Touches: a temporary directory; a node in it, and listeners on loopback.
//! Never: compares with a number from another machine or another day.
//! If the process dies here: nothing of value is lost.

mod baseline;
mod intake;
mod node_under_test;
mod phases;
mod report;
mod workload;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sluice_ledger::bench as disk;
use sluice_simulator::load::{LoadResult, LoadSettings, Pace, load};

use crate::{Error, Leads, LeadsTo, StatusLine};
use baseline::Baseline;
pub use baseline::{COMMAND as BARE_COMMAND, serve_bare};
pub use intake::{Intake, SchemeCost, intake};
use report::Disk;
pub use report::{Accept, EndToEnd, Floor, Keys, Report};
use workload::Workload;

/// Rows in one transaction of the bare ledger.
const BARE_BATCH: usize = 256;
/// The share of the time that is spent warming up before each measurement.
const WARM_UP: f64 = 0.1;
/// Turns that a node and what it is held against take: whatever else this machine does meanwhile then slows both.
const TURNS: u32 = 8;

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
pub enum NodeHost {
    /// As a process of its own, by this program: its memory is its own.
    Process(PathBuf),
    /// In this process, on a runtime of its own: easier to profile.
    Here,
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct BenchSettings {
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
    pub home: NodeHost,
}

/// One run under way.
struct Bench {
    settings: BenchSettings,
    directory: tempfile::TempDir,
    workload: Workload,
    status: StatusLine,
    bare: Baseline,
}

/// Measures the machine, then the node.
pub async fn run(settings: BenchSettings, status: StatusLine) -> Result<Report, Error> {
    let directory = tempfile::tempdir().map_err(Error::io("a temporary directory"))?;
    let sample = Leads::write(&directory.path().join("sample"), LeadsTo::Sink("http://127.0.0.1:9"))?;
    let workload = Workload::new(sample.sender()?, settings.body_bytes)?;
    let what = settings.what;
    let bare = Baseline::start(&settings.home, &sample).await?;
    let bench = Bench { settings, directory, workload, status, bare };
    let disk = bench.disk().await?;
    let wants = |phase| what == phase || what == What::All;
    let accept = if wants(What::Accept) { Some(bench.accept().await?) } else { None };
    let end_to_end = if wants(What::E2e) { Some(bench.end_to_end().await?) } else { None };
    let keys = if wants(What::Keys) { Some(bench.keys().await?) } else { None };
    bench.status.clear();
    Ok(Report::new(&bench.settings, disk, accept, end_to_end, keys))
}

/// What a node did, and what it is held against, in their turns.
struct Turns {
    limit: LoadResult,
    node: LoadResult,
    /// What was still to be done after the last answers of each turn of the node.
    after: Duration,
}

impl Bench {
    async fn disk(&self) -> Result<Disk, Error> {
        self.status.show("the machine: bare SQLite, bare disk …");
        let directory = self.directory.path().join("bare");
        std::fs::create_dir_all(&directory).map_err(Error::io("a temporary directory"))?;
        let (event, time) = (self.workload.sample()?, self.settings.time);
        let measured = tokio::task::spawn_blocking(move || {
            let flushes = disk::flush(&directory, time / 5)?;
            disk::group_commit(&directory, &event, BARE_BATCH, time).map(|rows| (flushes, rows))
        });
        let (flushes, rows) = measured.await.map_err(|error| Error::Wrong(error.to_string()))??;
        Ok(Disk { rows_per_second: rows.per_second(), flushes_per_second: flushes.per_second() })
    }

    /// A short warm-up of both, then the two in turns. A turn of the node is over when `after` is, which hears how many events
    /// the node has accepted so far.
    async fn turns(
        &self,
        limit: SocketAddr,
        node: SocketAddr,
        after: impl AsyncFn(u64) -> Result<(), Error>,
    ) -> Result<Turns, Error> {
        self.load(limit, self.settings.time.mul_f64(WARM_UP)).await?;
        let mut accepted = self.load(node, self.settings.time.mul_f64(WARM_UP)).await?.answered();
        after(accepted).await?;
        let mut turns = Turns { limit: LoadResult::default(), node: LoadResult::default(), after: Duration::ZERO };
        for _ in 0..TURNS {
            turns.limit = turns.limit.then(&self.load(limit, self.settings.time / TURNS).await?);
            let turn = self.load(node, self.settings.time / TURNS).await?;
            let answered = Instant::now();
            accepted += turn.answered();
            after(accepted).await?;
            turns.after += answered.elapsed();
            turns.node = turns.node.then(&turn);
        }
        Ok(turns)
    }

    /// Anything but a 202 fails the bench.
    async fn load(&self, target: SocketAddr, time_max: Duration) -> Result<LoadResult, Error> {
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
