//! `sluice chaos`: a chaos run on this machine.

use std::path::PathBuf;
use std::time::Duration;

use sluice_server::cli::{CliError, Stop, Up, exit, runtime};

use crate::StatusLine;
use crate::chaos::processes::{self, Role};
use crate::chaos::{self, ChaosSettings, FaultCounts};
use crate::shifted_clock::shifted_clock;

/// Kill a node again and again under load and faults, then check that the books balance
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Runs this very program as a node, with a simulated CRM, senders that repeat themselves and proxies that cut \
connections, each in a process of its own, on loopback and in a temporary directory. As root, or where the system lets everybody \
mount in a namespace, the node gets a small disk of its own, which is filled up; elsewhere a limit on the size of files has to do. A \
disk that stands still needs root and a loop device. The report says which it was, and what was not done.\n\n\
Ends with code 0 only if every lead has exactly one record, every attempt is accounted for, and the ledger is whole and balances.\n\n\
Examples:\n  sluice chaos\n  sluice chaos --kills 500 --leads 5000 --time-limit 1h"
)]
pub struct ChaosArgs {
    /// Different leads; each is sent one to five times
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    leads: u32,
    /// Times that the node is killed with SIGKILL
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    kills: u32,
    /// Times that it is stopped for a moment with SIGSTOP; half of the kills when left out
    #[arg(long)]
    stops: Option<u32>,
    /// Times that its disk fails, so that it ends by itself; a tenth of the kills when left out
    #[arg(long)]
    disk_failures: Option<u32>,
    /// Times that its disk is full for a moment; a tenth of the kills when left out
    #[arg(long)]
    disk_full: Option<u32>,
    /// Times that its disk stands still for a moment; a tenth of the kills when left out
    #[arg(long)]
    slow_disk: Option<u32>,
    /// Times that its clock is set while it runs; a fifth of the kills when left out
    #[arg(long)]
    clock_sets: Option<u32>,
    /// Times that one of the processes that send is killed; a fifth of the kills when left out
    #[arg(long)]
    sender_kills: Option<u32>,
    /// Times that nobody reaches the CRM for a moment; a fifth of the kills when left out
    #[arg(long)]
    outages: Option<u32>,
    /// The share of connections that are cut midway, in percent
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(0..=50))]
    cut: u8,
    /// Whether the node wakes up at another time after each kill: up to hours later, or seconds earlier
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    clock_jumps: bool,
    /// The share of calls that the CRM lets fail, in percent
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u8).range(0..=90))]
    fail: u8,
    /// Plans the same leads, faults and troubles again; chosen at random when left out
    #[arg(long)]
    seed: Option<u64>,
    /// The run takes no longer than this
    #[arg(long, default_value = "10m", value_parser = sluice_server::cli::duration)]
    time_limit: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ChaosArgs {
    pub fn run(self) -> Result<(), CliError> {
        let failed =
            |error: &dyn std::fmt::Display| CliError::new(exit::UNAVAILABLE, format!("the run failed: {error}"));
        let settings = ChaosSettings {
            program: std::env::current_exe().map_err(|error| failed(&error))?,
            leads: self.leads,
            faults: FaultCounts {
                kills: self.kills,
                stops: self.stops.unwrap_or(self.kills / 2),
                disk_failures: self.disk_failures.unwrap_or(self.kills / 10),
                disk_full: self.disk_full.unwrap_or(self.kills / 10),
                slow_disk: self.slow_disk.unwrap_or(self.kills / 10),
                clock_sets: self.clock_sets.unwrap_or(self.kills / 5),
                outages: self.outages.unwrap_or(self.kills / 5),
                sender_kills: self.sender_kills.unwrap_or(self.kills / 5),
            },
            cut_percent: f64::from(self.cut),
            clock_jumps: self.clock_jumps,
            fail_percent: f64::from(self.fail),
            seed: self.seed.unwrap_or_else(|| jiff::Timestamp::now().as_microsecond() as u64 % 1_000_000),
            time_max: self.time_limit,
        };
        let report = runtime()?.block_on(async {
            let mut stop = Stop::listen()?;
            chaos::run(settings, StatusLine::new(), stop.asked()).await.map_err(|error| failed(&error))
        })?;
        if self.json {
            let text = serde_json::to_string_pretty(&report).map_err(|error| failed(&error))?;
            anstream::println!("{text}");
        } else {
            anstream::print!("{report}");
        }
        if report.balanced() { Ok(()) } else { Err(CliError::new(exit::NO, "the books do not balance")) }
    }
}

/// A part of a chaos run
#[derive(Debug, clap::Args)]
#[command(after_help = "Started by `sluice chaos`, which talks to it in lines of JSON; of no use by itself.")]
pub struct ChaosPartArgs {
    /// Which one
    #[arg(value_enum)]
    role: Role,
}

impl ChaosPartArgs {
    pub fn run(self) -> Result<(), CliError> {
        let result = runtime()?.block_on(processes::run(self.role));
        result.map_err(|error| CliError::new(exit::UNAVAILABLE, error.to_string()))
    }
}

/// A node of a chaos run
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Started by `sluice chaos`: a node whose wall clock is set through a file; of no use by itself."
)]
pub struct ChaosNodeArgs {
    /// The file that holds the offset of the wall clock, in milliseconds
    #[arg(long)]
    clock_offset_file: PathBuf,
    #[command(flatten)]
    up: Up,
}

impl ChaosNodeArgs {
    pub fn run(self) -> Result<(), CliError> {
        self.up.run_with_clock(shifted_clock(self.clock_offset_file))
    }
}
