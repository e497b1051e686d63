//! `sluice chaos`: proves on this machine that nothing is lost and nothing is doubled.

use std::time::Duration;

use super::{Failed, exit};
use crate::chaos::{self, Settings};
use crate::stage::StatusLine;

/// Kill a node again and again under load and faults, then check that the books balance
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Runs this very program as a child, with a simulated CRM, senders that repeat themselves and a proxy that cuts \
connections on both sides of it, all on loopback and in a temporary directory. Ends with code 0 only if every lead has exactly one \
record, and the ledger is whole and balances."
)]
pub(super) struct Chaos {
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
    /// Repeats a run; chosen at random when left out
    #[arg(long)]
    seed: Option<u64>,
    /// The run takes no longer than this
    #[arg(long, default_value = "10m", value_parser = super::up::duration)]
    time_limit: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Chaos {
    pub fn run(self) -> Result<(), Failed> {
        let failed = |error: &dyn std::fmt::Display| Failed::new(exit::UNAVAILABLE, format!("the run failed: {error}"));
        let settings = Settings {
            program: std::env::current_exe().map_err(|error| failed(&error))?,
            leads: self.leads,
            kills: self.kills,
            stops: self.stops.unwrap_or(self.kills / 2),
            disk_failures: self.disk_failures.unwrap_or(self.kills / 10),
            outages: self.outages.unwrap_or(self.kills / 5),
            cut_percent: f64::from(self.cut),
            clock_jumps: self.clock_jumps,
            fail_percent: f64::from(self.fail),
            seed: self.seed.unwrap_or_else(|| jiff::Timestamp::now().as_microsecond() as u64 % 1_000_000),
            time_max: self.time_limit,
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| failed(&error))?;
        let books = runtime.block_on(chaos::run(settings, StatusLine::new())).map_err(|error| failed(&error))?;
        if self.json {
            let text = serde_json::to_string_pretty(&books).map_err(|error| failed(&error))?;
            anstream::println!("{text}");
        } else {
            anstream::print!("{books}");
        }
        if books.balanced() { Ok(()) } else { Err(Failed::new(exit::NO, "the books do not balance")) }
    }
}
