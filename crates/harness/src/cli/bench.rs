//! `sluice bench`: benchmarks of a node on this machine.

use std::time::Duration;

use sluice_server::cli::{CliError, Stop, exit, print};

use crate::StatusLine;
use crate::bench::{self, BenchKind, BenchSettings, NodeHost};

/// Rounds of the measurement of the first signal.
const SIGNAL_ROUNDS: u32 = 3;

/// Measure a node on this machine against the machine's own limits
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every figure is a share of what a bare server and a bare ledger reach in the same run with the same client, \
so that runs on different machines can be compared. The bare server and the node take turns, so that both have the same machine. Everything stays on loopback and in a temporary directory."
)]
pub struct BenchArgs {
    /// What to measure
    #[arg(id = "what", value_name = "WHAT", value_enum, default_value_t = BenchKind::All)]
    kind: BenchKind,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Connections at once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4000))]
    connections: u16,
    /// Bytes of each body
    #[arg(long, default_value_t = 700, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    body: u32,
    /// Keys in the ledger for the measurement of keys
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Jobs in the backlog for the measurement of the drain, events in the ledger for that of the console
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..=100_000_000))]
    jobs: u64,
    /// Directory for the ledger of the console's measurement: it is filled up to `--jobs` events and kept, so that it can be measured again
    #[arg(long, value_name = "DIR")]
    ledger: Option<std::path::PathBuf>,
    /// Leads into each CRM for the measurement of destinations
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    leads: u64,
    /// Run the node in this process; its memory then is not told apart from the client's
    #[arg(long)]
    in_process: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// End with code 1 if a figure is below what it should be
    #[arg(long)]
    check: bool,
}

/// The bare server that a node is held against
#[derive(Debug, clap::Args)]
pub struct BenchBaselineArgs {
    /// The configuration whose senders it believes
    config: std::path::PathBuf,
}

impl BenchBaselineArgs {
    pub fn run(self) -> Result<(), CliError> {
        bench::serve_baseline(&self.config).map_err(|error| CliError::new(exit::UNAVAILABLE, error.to_string()))
    }
}

impl BenchArgs {
    pub fn run(self) -> Result<(), CliError> {
        let failed =
            |error: &dyn std::fmt::Display| CliError::new(exit::UNAVAILABLE, format!("the bench failed: {error}"));
        if self.kind == BenchKind::Intake {
            let measured = bench::intake(Duration::from_secs(self.seconds)).map_err(|error| failed(&error))?;
            return self.print(&measured, measured.all_reached());
        }
        let host = if self.in_process {
            NodeHost::InProcess
        } else {
            NodeHost::Process(std::env::current_exe().map_err(|error| failed(&error))?)
        };
        if matches!(self.kind, BenchKind::Signal | BenchKind::Destinations | BenchKind::Limit) {
            return self.run_alone(host);
        }
        let settings = BenchSettings {
            kind: self.kind,
            time: Duration::from_secs(self.seconds),
            connections: usize::from(self.connections),
            body_bytes: self.body as usize,
            keys: self.keys,
            jobs: self.jobs,
            ledger: self.ledger.clone(),
            host,
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| failed(&error))?;
        if self.kind == BenchKind::Console {
            let measured = runtime.block_on(bench::console(settings, StatusLine::new()));
            runtime.shutdown_background();
            let measured = measured.map_err(|error| failed(&error))?;
            return self.print(&measured, measured.all_reached());
        }
        let mut running = Box::pin(bench::run(settings, StatusLine::new()));
        let report = runtime.block_on(async {
            let mut stop = Stop::listen()?;
            tokio::select! {
                report = &mut running => report.map_err(|error| failed(&error)),
                () = stop.asked() => Err(CliError::new(exit::UNAVAILABLE, "the bench was stopped")),
            }
        });
        // Removes its files. A running measurement of the disk cannot be cancelled and is not awaited.
        drop(running);
        runtime.shutdown_background();
        let report = report?;
        self.print(&report, report.all_reached())
    }

    /// The measurements that need no baseline.
    fn run_alone(&self, host: NodeHost) -> Result<(), CliError> {
        let failed =
            |error: &dyn std::fmt::Display| CliError::new(exit::UNAVAILABLE, format!("the bench failed: {error}"));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| failed(&error))?;
        let status = StatusLine::new();
        match self.kind {
            BenchKind::Destinations => {
                let measured = runtime.block_on(bench::destinations(host, self.leads, status));
                let measured = measured.map_err(|error| failed(&error))?;
                self.print(&measured, measured.all_reached())
            }
            BenchKind::Limit => {
                let measured = runtime.block_on(bench::limit(host, status)).map_err(|error| failed(&error))?;
                self.print(&measured, measured.all_reached())
            }
            _ => {
                let measured = runtime.block_on(bench::signal(host, SIGNAL_ROUNDS, status));
                let measured = measured.map_err(|error| failed(&error))?;
                self.print(&measured, measured.all_reached())
            }
        }
    }

    fn print(&self, report: &(impl serde::Serialize + std::fmt::Display), reached: bool) -> Result<(), CliError> {
        if self.json {
            print::json(report)?;
        } else {
            if cfg!(debug_assertions) {
                anstream::println!("This is a debug build: the figures say nothing. Build with --release.\n");
            }
            anstream::print!("{report}");
        }
        if self.check && !reached {
            return Err(CliError::new(exit::NO, "a figure is below what it should be"));
        }
        Ok(())
    }
}
