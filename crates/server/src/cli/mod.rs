//! The command line.
//!
//! In: arguments and the environment.
//! Out: text or JSON, and an exit code that a script can use.
//! Touches: config; the API of a running node; the ledger when none runs.
//! Never: is imported by another room.
//! If the process dies here: for a running node see `run`; every other command has done its one act or not.

mod apply;
mod approvals;
mod check;
mod clash;
mod control;
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
pub mod print;
mod reference;
mod replay;
mod revisions;
mod selection;
mod send;
mod source;
mod status;
mod stop;
mod table;
mod templates;
mod up;
mod verify;

use std::path::PathBuf;

use clap::Subcommand;

pub use crate::observe::log;
pub use node_access::runtime;
pub use stop::Stop;
pub use table::pairs;
pub use up::{Up, duration};

// Commands that run a node or operate one. No doc comment: clap would show it as the description of the program.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
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
}

impl NodeCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self {
            NodeCommand::Up(command) => command.run(),
            NodeCommand::Check(command) => command.run(),
            NodeCommand::Try(command) => command.run(),
            NodeCommand::Send(command) => command.run(),
            NodeCommand::Templates(command) => command.run(),
            NodeCommand::Status(command) => command.run(),
            NodeCommand::Events(command) => command.run(),
            NodeCommand::Jobs(command) => command.run(),
            NodeCommand::Dlq(command) => command.run(),
            NodeCommand::Replay(command) => command.run(),
            NodeCommand::Sources(command) => command.run(),
            NodeCommand::Destinations(command) => command.run(),
            NodeCommand::Pause(command) => command.run(),
            NodeCommand::Resume(command) => command.run(),
            NodeCommand::Approvals(command) => command.run(),
            NodeCommand::Suppress(command) => command.run(),
            NodeCommand::SafeMode(command) => command.run(),
            NodeCommand::Reload(command) => command.run(),
            NodeCommand::Plan(command) => command.run(),
            NodeCommand::Apply(command) => command.run(),
            NodeCommand::Rollback(command) => command.run(),
            NodeCommand::Revisions(command) => command.run(),
            NodeCommand::Audit(command) => command.run(),
            NodeCommand::Keys(command) => command.run(),
        }
    }
}

// Commands that describe the program itself. No doc comment: clap would show it as the description of the program.
#[derive(Debug, Subcommand)]
pub enum ReferenceCommand {
    /// Print a reference page, or compare one with this build
    Reference(reference::Reference),
    /// Print a script that completes commands and flags in a shell
    Completions(reference::Completions),
}

impl ReferenceCommand {
    /// `program` is the whole command line, as it is parsed.
    pub fn run(self, program: clap::Command) -> Result<(), CliError> {
        match self {
            ReferenceCommand::Reference(command) => command.run(program),
            ReferenceCommand::Completions(command) => command.run(program),
        }
    }
}

// Commands that check the ledger of a node. No doc comment: clap would show it as the description of the program.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// Check that the ledger is whole: every row against what must hold of it
    Verify(verify::Verify),
    /// See what became of everything that was accepted, by day and source
    Balance(verify::Balance),
}

impl LedgerCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self {
            LedgerCommand::Verify(command) => command.run(),
            LedgerCommand::Balance(command) => command.run(),
        }
    }
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

/// The data directory beside a configuration.
fn data_directory(config: &std::path::Path, data: Option<PathBuf>) -> PathBuf {
    data.unwrap_or_else(|| {
        let directory = if config.is_dir() { config } else { config.parent().unwrap_or(std::path::Path::new(".")) };
        directory.join(".sluice")
    })
}
