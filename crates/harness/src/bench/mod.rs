//! Benchmarks: throughput and latency of a node, relative to a baseline measured on the same machine in the same run.
//!
//! In: what to measure, and for how long.
//! Out: a report.
//! Touches: a temporary directory; a node in it, and listeners on loopback.
//! Never: compares with a number from another machine or another day.
//! If the process dies here: only temporary files are left.

mod baseline;
mod console;
mod contacts;
mod destinations;
mod drain;
mod failures;
mod history;
mod intake;
mod limit;
mod node_under_test;
mod observe;
mod phases;
mod report;
mod signal;
mod workload;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sluice_ledger::bench as disk;
use sluice_simulator::load::{LoadResult, LoadSettings, Pace, load};

use crate::{Error, Leads, LeadsTo, StatusLine};
use baseline::Baseline;
pub(crate) use baseline::{COMMAND as BASELINE_COMMAND, serve_baseline};
pub(crate) use console::ConsoleReport;
pub(crate) use destinations::destinations;
pub(crate) use intake::intake;
pub(crate) use limit::limit;
pub(crate) use report::Report;
use report::{Disk, Figures};
pub(crate) use signal::signal;
use workload::Workload;

/// Rows per transaction of the SQLite baseline.
const BASELINE_BATCH: usize = 256;
/// Share of the time for the warm-up before each measurement.
const WARM_UP: f64 = 0.1;
/// Rounds in which baseline and node alternate, so that other load on the machine slows both.
const ROUNDS: u32 = 8;
/// Time to send a given number of events.
const SEND_MAX: Duration = Duration::from_secs(3_600);

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchKind {
    /// How fast events are accepted
    Accept,
    /// What proof, key and seal cost a request of 1 KB; no node runs for it
    Intake,
    /// How fast events come out at the other end
    E2e,
    /// Whether a million keys make it slower, and how long a start takes with a million jobs
    Keys,
    /// How fast a backlog is worked off, against new events
    Drain,
    /// How much of its concurrency a destination keeps that fails 0, 10 and 30 % of its calls at random
    Failures,
    /// How fast events are accepted and come out at the other end with contacts, against the same without
    Contacts,
    /// How fast a new configuration is applied to stored requests (`plan --history`)
    History,
    /// What traces, log lines and scrapes cost
    Observe,
    /// How long it takes from the first failed call to the message in Slack
    Signal,
    /// How many calls 50,000 leads take into the simulated HubSpot and Salesforce, batched and single (`--leads`)
    Destinations,
    /// How near a node holds to the rate of a destination that answers 429 above it; takes four minutes
    Limit,
    /// How long each page of the console takes with many events, and what open consoles cost the intake
    Console,
    /// All of it but intake, history, signal, destinations, limit and console
    All,
}

/// Where the node under test runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeHost {
    /// As a child process of this program: its memory is measured on its own.
    Process(PathBuf),
    /// In this process, on its own runtime: easier to profile.
    InProcess,
}

#[derive(Clone, Debug)]
pub(crate) struct BenchSettings {
    pub kind: BenchKind,
    /// Duration of each measurement.
    pub time: Duration,
    pub connections: usize,
    /// Minimum size of a body.
    pub body_bytes: usize,
    /// Keys in the ledger before the measurement, for [`BenchKind::Keys`].
    pub keys: u64,
    /// Jobs in the backlog, for [`BenchKind::Drain`]; events in the ledger, for [`BenchKind::Console`].
    pub jobs: u64,
    /// Directory of the ledger of [`BenchKind::Console`], which is kept; otherwise a temporary one.
    pub ledger: Option<PathBuf>,
    pub host: NodeHost,
}

/// A running benchmark.
struct Bench {
    settings: BenchSettings,
    directory: tempfile::TempDir,
    workload: Workload,
    status: StatusLine,
    baseline: Baseline,
}

/// Measures the pages of the console.
pub(crate) async fn console(settings: BenchSettings, status: StatusLine) -> Result<ConsoleReport, Error> {
    let bench = Bench::new(settings, status).await?;
    let report = bench.console().await;
    bench.status.clear();
    report
}

/// Measures the disk, then the node and the baseline.
pub(crate) async fn run(settings: BenchSettings, status: StatusLine) -> Result<Report, Error> {
    let kind = settings.kind;
    let bench = Bench::new(settings, status).await?;
    let disk = bench.disk().await?;
    let wants = |phase| kind == phase || kind == BenchKind::All;
    let figures = Figures {
        accept: if wants(BenchKind::Accept) { Some(bench.accept().await?) } else { None },
        end_to_end: if wants(BenchKind::E2e) { Some(bench.end_to_end().await?) } else { None },
        keys: if wants(BenchKind::Keys) { Some(bench.keys().await?) } else { None },
        drain: if wants(BenchKind::Drain) { Some(bench.drain().await?) } else { None },
        history: if kind == BenchKind::History { Some(bench.history().await?) } else { None },
        failures: if wants(BenchKind::Failures) { bench.failures().await? } else { Vec::new() },
        contacts: if wants(BenchKind::Contacts) { Some(bench.contacts().await?) } else { None },
        observe: if wants(BenchKind::Observe) { Some(bench.observe().await?) } else { None },
    };
    bench.status.clear();
    Ok(Report::new(&bench.settings, disk, figures))
}

/// Results of alternating rounds.
struct Rounds {
    baseline: LoadResult,
    node: LoadResult,
    /// Total time between the last response of a round and the end of its work.
    drain: Duration,
}

impl Bench {
    async fn new(settings: BenchSettings, status: StatusLine) -> Result<Bench, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("a temporary directory"))?;
        let sample = Leads::write(&directory.path().join("sample"), LeadsTo::Sink("http://127.0.0.1:9"))?;
        let workload = Workload::new(sample.sender()?, settings.body_bytes)?;
        let baseline = Baseline::start(&settings.host, &sample).await?;
        Ok(Bench { settings, directory, workload, status, baseline })
    }

    async fn disk(&self) -> Result<Disk, Error> {
        self.status.show("the machine: bare SQLite, bare disk …");
        let directory = self.directory.path().join("bare");
        std::fs::create_dir_all(&directory).map_err(Error::io("a temporary directory"))?;
        let (event, time) = (self.workload.sample()?, self.settings.time);
        let measured = tokio::task::spawn_blocking(move || {
            let flushes = disk::flush(&directory, time / 5)?;
            disk::group_commit(&directory, &event, BASELINE_BATCH, time).map(|rows| (flushes, rows))
        });
        let (flushes, rows) = measured.await.map_err(|error| Error::Failed(error.to_string()))??;
        Ok(Disk { rows_per_second: rows.per_second(), flushes_per_second: flushes.per_second() })
    }

    /// Warms both up, then alternates between them. A round of the node ends when `drain` completes, which receives the number
    /// of events accepted so far.
    async fn alternate(
        &self,
        baseline: SocketAddr,
        node: SocketAddr,
        drain: impl AsyncFn(u64) -> Result<(), Error>,
    ) -> Result<Rounds, Error> {
        self.load(baseline, self.settings.time.mul_f64(WARM_UP)).await?;
        let mut accepted = self.load(node, self.settings.time.mul_f64(WARM_UP)).await?.answered();
        drain(accepted).await?;
        let mut rounds = Rounds { baseline: LoadResult::default(), node: LoadResult::default(), drain: Duration::ZERO };
        for _ in 0..ROUNDS {
            rounds.baseline = rounds.baseline.then(&self.load(baseline, self.settings.time / ROUNDS).await?);
            let round = self.load(node, self.settings.time / ROUNDS).await?;
            let answered = Instant::now();
            accepted += round.answered();
            drain(accepted).await?;
            rounds.drain += answered.elapsed();
            rounds.node = rounds.node.then(&round);
        }
        Ok(rounds)
    }

    /// Sends load for this time.
    async fn load(&self, target: SocketAddr, time_max: Duration) -> Result<LoadResult, Error> {
        self.send(target, u64::MAX, time_max).await
    }

    /// Sends this many events.
    async fn send_events(&self, target: SocketAddr, events: u64) -> Result<LoadResult, Error> {
        let sent = self.send(target, events, SEND_MAX).await?;
        match sent.answered() == events {
            true => Ok(sent),
            false => Err(Error::Failed(format!("{events} events could not be sent within {SEND_MAX:?}"))),
        }
    }

    /// Sends load until a limit is reached; any response but 202 fails the benchmark.
    async fn send(&self, target: SocketAddr, requests_max: u64, time_max: Duration) -> Result<LoadResult, Error> {
        self.send_of(&self.workload, target, requests_max, time_max).await
    }

    /// The same with requests of another workload.
    async fn send_of(
        &self,
        workload: &Workload,
        target: SocketAddr,
        requests_max: u64,
        time_max: Duration,
    ) -> Result<LoadResult, Error> {
        let connections = self.settings.connections;
        let settings = LoadSettings { target, connections, requests_max, time_max, pace: Pace::Closed };
        let loaded = load(settings, workload.requests()).await.map_err(Error::io("the load"))?;
        if loaded.with_status(202) != loaded.answered() || loaded.unanswered > 0 {
            let (statuses, unanswered) = (&loaded.statuses, loaded.unanswered);
            return Err(Error::Failed(format!(
                "not every request was accepted: {statuses:?}, unanswered: {unanswered}"
            )));
        }
        Ok(loaded)
    }
}
