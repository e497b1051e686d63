//! `sluice simulate`: the engine against simulated faults, from a seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;

use sluice_domain::unit::{grouped, plural};
use sluice_server::cli::print::{self, heading};
use sluice_server::cli::{CliError, exit};
use sluice_simulation::{Campaign, Options, Profile, Totals, run, run_beside, scratch, trace};

/// Run the engine against simulated senders, destinations, operators, disks and crashes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Time and chance come from the seed alone: the same seed gives the same hash. A broken invariant ends the run\n\
with exit code 1, the one command that shows it again, and the steps that led to it. From 200,000 events on,\n\
a fault or a transition that was never reached is a failure too.\n\n\
Examples:\n  sluice simulate --seeds 1000 --events 2000\n  sluice simulate --seed 42 --trace\n  sluice simulate --profile crashes --json"
)]
pub struct SimulateArgs {
    /// The first seed
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// How many seeds, one after the other
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    seeds: u64,
    /// How many different events in each
    #[arg(long, default_value_t = 2_000, value_name = "M")]
    events: u32,
    /// What goes wrong most
    #[arg(long, default_value = "mixed", value_parser = profiles())]
    profile: Profile,
    /// Where the ledger lies; with `sqlite` a real one on disk runs beside the one in memory, and must say and hold the same
    #[arg(long, default_value = "memory", value_enum)]
    store: StoreKind,
    /// How many seeds at once; one for each core when left out
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print every step of one seed
    #[arg(long, conflicts_with = "json")]
    trace: bool,
    /// Print the totals as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum StoreKind {
    /// In memory
    Memory,
    /// In memory and on disk
    Sqlite,
}

fn profiles() -> impl TypedValueParser<Value = Profile> {
    PossibleValuesParser::new(Profile::ALL.map(Profile::as_str))
        .map(|word| Profile::ALL.into_iter().find(|profile| profile.as_str() == word).unwrap_or_default())
}

impl SimulateArgs {
    pub fn run(self) -> Result<(), CliError> {
        let SimulateArgs { seed, seeds, events, profile, .. } = self;
        if self.trace {
            let steps = trace(Options { seed, events, profile });
            return steps.iter().try_for_each(|step| print::print(step));
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = self.threads.unwrap_or(cores).max(1);
        let started = Instant::now();
        let shown = AtomicU64::new(0);
        let every = (u64::from(events) * seeds / 10).max(1_000_000);
        let campaign = Campaign { seed, seeds, events, profile, threads };
        let progress = |done: u64| {
            if !self.json && done / every > shown.fetch_max(done / every, Ordering::Relaxed) {
                anstream::eprintln!("  {}", plural(done, "event"));
            }
        };
        let totals = match self.store {
            StoreKind::Memory => campaign.run_each(run, progress),
            StoreKind::Sqlite => campaign.run_each(|options| run_beside(options, scratch()), progress),
        };
        // CPU time of this process, since other processes may share the cores.
        let core_seconds = cpu_seconds().unwrap_or(started.elapsed().as_secs_f64() * threads as f64);
        let per_minute = totals.events as f64 * 60.0 / core_seconds.max(0.001);
        if self.json {
            print::json(&totals)?;
        } else {
            print_totals(&totals, per_minute)?;
        }
        if totals.is_good() { Ok(()) } else { Err(CliError::new(exit::NO, "")) }
    }
}

/// CPU time of this process; `None` without `/proc`.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The process name may contain spaces, so fields are counted after it: utime and stime (14 and 15), in 1/100 s.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |n: usize| fields.get(n)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

fn print_totals(totals: &Totals, per_minute: f64) -> Result<(), CliError> {
    print::print(&heading("Reached"))?;
    print::print(totals.coverage.to_string().trim_end())?;
    print::print(&format!(
        "\n{} with {} ({}), {}, {} crashes, {}, {} in {:.0} simulated days",
        plural(totals.seeds, "seed"),
        plural(totals.events, "event"),
        plural(totals.requests, "request"),
        plural(totals.calls, "call"),
        grouped(totals.crashes),
        plural(totals.faults, "fault"),
        plural(totals.transitions, "transition"),
        totals.simulated_days,
    ))?;
    if totals.doubled_by_lies > 0 {
        print::print(&format!(
            "{} happened twice, because a destination denied what it had done: where the proof ends",
            plural(totals.doubled_by_lies, "effect")
        ))?;
    }
    let per_minute = grouped(per_minute as u64);
    print::print(&format!("{per_minute} events a minute for each core; hash {:016x}", totals.hash))?;
    if let Some(violation) = &totals.violation {
        print::print(&format!("\n{}", heading("Broken")))?;
        print::print(&format!(
            "{}\n{} ({}, at {} ms)\n",
            violation.invariant, violation.detail, violation.about, violation.at_ms
        ))?;
        violation.trace.iter().try_for_each(|step| print::print(&format!("  {step}")))?;
        return print::print(&format!("\nAgain: {}", violation.reproduce));
    }
    match totals.missing.as_slice() {
        [] => print::print("Nothing broke."),
        missing => print::print(&format!("Never reached: {}", missing.join("; "))),
    }
}
