//! The command line.
//!
//! In: arguments and the environment.
//! Out: text or JSON, and an exit code that a script can use.
//! Touches: config; the API of a running node; the ledger when none runs.
//! Never: is imported by another room.
//! If the process dies here: for a running node see `run`; every other command has done its one act or not.

mod apply;
mod approvals;
mod bench;
mod chaos;
mod check;
mod clash;
mod control;
mod demo;
mod dlq;
mod dry_run;
mod endpoints;
mod events;
mod flow;
mod guards;
mod jobs;
mod keys;
mod lists;
mod node_access;
mod plan;
mod print;
mod reference;
mod replay;
mod revisions;
mod selection;
mod send;
mod sim;
//TMP mod simulate;
mod source;
mod status;
mod stop;
mod table;
mod templates;
mod up;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::observe::log;

/// Takes every webhook in durably, answers at once, and makes each effect happen exactly once.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, propagate_version = true, max_term_width = 100, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// What is logged, such as `info`, `warn` or `sluice_server=debug`
    #[arg(long, env = "SLUICE_LOG", default_value = "info", global = true, hide_default_value = true)]
    log: String,
    /// How log lines look
    #[arg(long, env = "SLUICE_LOG_FORMAT", value_enum, default_value_t = log::Format::Text, global = true)]
    log_format: log::Format,
}

const AFTER_HELP: &str = "\
Begin with:
  sluice check                        every mistake in the configuration, with line and column
  sluice try website-leads lead.json  what one payload would become; nothing is sent
  sluice up                           run a node with the configuration of this directory
  sluice send website-leads lead.json post a payload to it, signed as its sender would
  sluice status                       how it is doing

Commands find the node of this directory by themselves, and read the ledger when none runs. For a
node elsewhere set --url or SLUICE_URL, and SLUICE_ADMIN_TOKEN.

Exit codes:
  0  done
  1  the answer is no: mistakes found, refused, not found, nothing matched, a check failed
  2  the arguments make no sense
  3  the node or the ledger cannot be reached, or has failed
  4  `plan` only: there are changes, and they can be applied";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node: intake, workers and the admin API
    Up(up::Up),
    /// Find every mistake in the configuration
    Check(check::Check),
    /// See what one payload would become: key, event, jobs, requests; nothing is sent
    Try(dry_run::Try),
    /// Sign a payload as the flow's sender would, and post it to the node
    Send(send::Send),
    /// See the messages of a configuration, and how they look filled in
    Templates(templates::Templates),
    /// See the node at a glance
    Status(status::StatusCommand),
    /// See accepted events
    Events(events::Events),
    /// See jobs, and say what became of those whose outcome is unknown
    Jobs(jobs::Jobs),
    /// See dead letters, why they died, and give them up
    Dlq(dlq::Dlq),
    /// Try jobs again; effects that are done stay done
    Replay(replay::Replay),
    /// See who sends, what was accepted, repeated and refused
    Sources(endpoints::Sources),
    /// See destinations and the gates in front of them
    Destinations(endpoints::Destinations),
    /// Hold a source, a worker or a destination; survives restarts
    Pause(control::Pause),
    /// Let something go on that was paused
    Resume(control::Resume),
    /// See questions that wait for a person, and answer them
    Approvals(approvals::Approvals),
    /// Say whom policies with `suppression` must not write to
    Suppress(guards::SuppressCommand),
    /// Send safer messages, under tighter policies or not at all, for a while
    SafeMode(guards::SafeModeCommand),
    /// Make the node read its configuration again
    Reload(control::Reload),
    /// See what a new configuration would change, and whom that concerns
    Plan(plan::PlanCommand),
    /// Put a planned configuration in force on the running node
    Apply(apply::Apply),
    /// Go back to an earlier configuration
    Rollback(apply::Rollback),
    /// See every configuration that was in force: when, by whom and why
    Revisions(revisions::Revisions),
    /// See who did what, when and why
    Audit(control::Audit),
    /// See and replace the keys that seal the ledger
    Keys(keys::Keys),
    /// Run a simulated Salesforce that fails on order and counts what really happened
    Sim(sim::Sim),
    /// Print a reference page, or compare one with this build
    Reference(reference::Reference),
    /// Print a script that completes commands and flags in a shell
    Completions(reference::Completions),
    /// Measure a node on this machine against the machine's own limits
    Bench(bench::Bench),
    /// The bare server of a bench
    #[command(name = crate::bench::BARE_COMMAND, hide = true)]
    BenchBare(bench::BenchBare),
    /// Kill a node again and again under load and faults, then check that the books balance
    Chaos(chaos::Chaos),
    /// A part of a chaos run
    #[command(name = crate::chaos::processes::COMMAND, hide = true)]
    ChaosPart(chaos::ChaosPart),
    /// Check that the ledger is whole: every row against what must hold of it
    Verify(verify::Verify),
    /// See what became of everything that was accepted, by day and source
    Balance(verify::Balance),
//TMP     /// Run the engine against simulated senders, destinations, operators, disks and crashes
//TMP     Simulate(simulate::Simulate),
    /// Watch a node at work: senders that repeat themselves, and a CRM that keeps failing
    Demo(demo::Demo),
}

/// The exit codes that scripts can rely on.
pub mod exit {
    /// Done.
    pub const OK: u8 = 0;
    /// The command was understood and the answer is no: mistakes found, nothing matched, a check failed.
    pub const NO: u8 = 1;
    /// The arguments make no sense (clap's own code).
    pub const USAGE: u8 = 2;
    /// The node or the ledger cannot be reached or has failed.
    pub const UNAVAILABLE: u8 = 3;
    /// A plan has changes, and nothing is in their way.
    pub const CHANGES: u8 = 4;
}

/// Why a command ends without success: what to say, and the exit code.
#[derive(Debug)]
pub struct CliError {
    /// For a person.
    pub message: String,
    /// For a script.
    pub code: u8,
}

impl CliError {
    /// With this exit code.
    pub fn new(code: u8, message: impl Into<String>) -> CliError {
        CliError { message: message.into(), code }
    }
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log::start(arguments.log_format, &arguments.log);
    let done = match arguments.command {
        Command::Up(up) => up.run(),
        Command::Check(check) => check.run(),
        Command::Try(command) => command.run(),
        Command::Send(command) => command.run(),
        Command::Templates(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Events(command) => command.run(),
        Command::Jobs(command) => command.run(),
        Command::Dlq(command) => command.run(),
        Command::Replay(command) => command.run(),
        Command::Sources(command) => command.run(),
        Command::Destinations(command) => command.run(),
        Command::Pause(command) => command.run(),
        Command::Resume(command) => command.run(),
        Command::Approvals(command) => command.run(),
        Command::Suppress(command) => command.run(),
        Command::SafeMode(command) => command.run(),
        Command::Reload(command) => command.run(),
        Command::Plan(command) => command.run(),
        Command::Apply(command) => command.run(),
        Command::Rollback(command) => command.run(),
        Command::Revisions(command) => command.run(),
        Command::Audit(command) => command.run(),
        Command::Keys(command) => command.run(),
        Command::Sim(command) => command.run(),
        Command::Reference(command) => command.run(),
        Command::Completions(command) => command.run(),
        Command::Bench(bench) => bench.run(),
        Command::BenchBare(bare) => bare.run(),
        Command::Chaos(chaos) => chaos.run(),
        Command::ChaosPart(part) => part.run(),
        Command::Verify(verify) => verify.run(),
        Command::Balance(balance) => balance.run(),
//TMP         Command::Simulate(simulate) => simulate.run(),
        Command::Demo(demo) => demo.run(),
    };
    match done {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failed) => {
            if !failed.message.is_empty() {
                anstream::eprintln!("{}", failed.message);
            }
            ExitCode::from(failed.code)
        }
    }
}

/// The data directory beside a configuration.
fn data_directory(config: &std::path::Path, data: Option<PathBuf>) -> PathBuf {
    data.unwrap_or_else(|| {
        let directory = if config.is_dir() { config } else { config.parent().unwrap_or(std::path::Path::new(".")) };
        directory.join(".sluice")
    })
}
