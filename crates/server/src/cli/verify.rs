//! `sluice verify` and `sluice balance`: invariants of the ledger, and accounting by day and source.

use std::path::PathBuf;
use std::time::Duration;

use sluice_domain::time::Time;
use sluice_ledger::{Balance as Line, Inspector};

use super::print::{self, grouped, plural};
use super::table::{Cell, Column, Table};
use super::up::duration;
use super::{CliError, data_directory, exit};
use crate::clock::Clock;
use crate::root_key;

#[derive(Debug, clap::Args)]
struct Where {
    /// Data directory; .sluice in --config by default
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Configuration of the data directory
    #[arg(long, env = "SLUICE_CONFIG", default_value = ".", value_name = "DIR")]
    config: PathBuf,
}

impl Where {
    fn directory(self) -> Result<PathBuf, CliError> {
        let directory = data_directory(&self.config, self.data);
        if !sluice_ledger::Ledger::exists_in(&directory) {
            let message = format!("no ledger in {}; set its directory with --data", directory.display());
            return Err(CliError::new(exit::UNAVAILABLE, message));
        }
        Ok(directory)
    }
}

fn unreadable(error: sluice_ledger::Error) -> CliError {
    CliError::new(exit::UNAVAILABLE, error.to_string())
}

/// Check the invariants of every row of the ledger
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Works while a node runs. Nothing is written. The root key is found as `sluice up` finds it: with it, \
every row is compared with its MAC and every body is opened, so that altered rows and swapped results are found. Exit code 1: \
a row is not as it must be; the first one of each kind is named."
)]
pub struct Verify {
    #[command(flatten)]
    place: Where,
    /// Check the structure alone, for a copy without its root key: altered rows are not found
    #[arg(long)]
    without_root_key: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Verify {
    fn inspector(place: Where, without_root_key: bool) -> Result<Inspector, CliError> {
        let directory = place.directory()?;
        let inspector = Inspector::open(&directory).map_err(unreadable)?;
        if without_root_key {
            return Ok(inspector);
        }
        let with_flag = |error: String| {
            let message = format!("{error}\nTo check the structure alone, use --without-root-key.");
            CliError::new(exit::UNAVAILABLE, message)
        };
        let root_key = root_key::find_existing(&directory).map_err(|error| with_flag(error.to_string()))?;
        inspector.with_root_key(root_key).map_err(|error| with_flag(error.to_string()))
    }

    pub fn run(self) -> Result<(), CliError> {
        let inspector = Verify::inspector(self.place, self.without_root_key)?;
        let mut tenths = 0;
        let found = inspector
            .verify(|done, total| {
                let now = done * 10 / total.max(1);
                if now > tenths && total > 1_000_000 && !self.json {
                    anstream::eprintln!("  {} %", now * 10);
                }
                tenths = now;
            })
            .map_err(unreadable)?;
        if self.json {
            print::json(&found)?;
        } else {
            for broken in &found.broken {
                print::print(&format!("{}. {}: {}", broken.number, broken.invariant, broken.row))?;
            }
            let looked = format!(
                "{} and {}, {}",
                plural(found.events, "event"),
                plural(found.jobs, "job"),
                plural(found.checks.into(), "check")
            );
            let verdict = match (found.broken.is_empty(), self.without_root_key) {
                (true, false) => "no violations",
                (true, true) => "no violations; without the root key, altered rows are not found",
                (false, _) => "invariants violated",
            };
            let pruned = |(kind, count): (&String, &u64)| format!("{} {}", grouped(*count), kind.replace('_', " "));
            let pruned: Vec<String> = found.pruned.iter().map(pruned).collect();
            print::print(&format!("{looked}: {verdict}"))?;
            if !pruned.is_empty() {
                print::print(&format!("pruned by retention so far: {}", pruned.join(", ")))?;
            }
        }
        if found.broken.is_empty() { Ok(()) } else { Err(CliError::new(exit::NO, "")) }
    }
}

/// Account for every accepted event, by day and source
#[derive(Debug, clap::Args)]
#[command(
    after_help = "accepted = done + noop + dead + waiting + unknown + dropped + pruned, without duplicates, as in `sluice sources`. The remainder was lost; \
then the exit code is 1. An event with several jobs counts once, by the worst of them. A node may run meanwhile."
)]
pub struct Balance {
    #[command(flatten)]
    place: Where,
    /// Period to cover
    #[arg(long, default_value = "7d", value_parser = duration, value_name = "DURATION")]
    since: Duration,
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
}

impl Balance {
    pub fn run(self) -> Result<(), CliError> {
        let since = Time(Clock::start().wall().0 - i64::try_from(self.since.as_millis()).unwrap_or(i64::MAX / 2));
        let lines = Inspector::open(&self.place.directory()?)
            .and_then(|inspector| inspector.balance(since))
            .map_err(unreadable)?;
        let left: i64 = lines.iter().map(|line| line.remainder.abs()).sum();
        if self.json {
            print::json(&serde_json::json!({ "lines": lines, "remainder": left }))?;
        } else {
            print::print(table(&lines).trim_end())?;
            let verdict = match left {
                0 => "All events are accounted for.".to_owned(),
                1 => "1 event is not accounted for: it was lost.".to_owned(),
                left => {
                    format!("{} are not accounted for: they were lost.", plural(left.unsigned_abs(), "event"))
                }
            };
            print::print(&format!("\n{verdict}"))?;
        }
        if left == 0 { Ok(()) } else { Err(CliError::new(exit::NO, "")) }
    }
}

fn table(lines: &[Line]) -> String {
    let mut table = Table::new([
        Column::Whole("day"),
        Column::Whole("source"),
        Column::Number("accepted"),
        Column::Number("duplicate"),
        Column::Number("done"),
        Column::Number("noop"),
        Column::Number("dead"),
        Column::Number("waiting"),
        Column::Number("unknown"),
        Column::Number("dropped"),
        Column::Number("pruned"),
        Column::Number("remainder"),
    ]);
    for line in lines {
        let outcomes = [line.done, line.noop, line.dead, line.waiting, line.unknown, line.dropped, line.pruned];
        let mut row = vec![Cell::from(line.day.clone()), Cell::from(line.source.clone())];
        row.extend([line.accepted, line.duplicate].into_iter().chain(outcomes).map(Cell::from));
        row.push(Cell::from(line.remainder.to_string()));
        table.row(row);
    }
    table.render()
}
