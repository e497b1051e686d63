//! The command line.
//!
//! In: arguments and the environment.
//! Out: text or JSON, and an exit code that a script can use.
//! Touches: config; the API of a running node; the ledger when none runs.
//! Never: is imported by another component.
//! If the process dies here: for a running node see `run`; every other command is done or has not happened.

mod access;
mod alerts;
mod apply;
mod approvals;
mod check;
mod clash;
mod clock;
mod connectors;
mod contacts;
mod control;
mod destination;
mod dlq;
mod dry_run;
mod endpoints;
mod event_edit;
mod events;
mod export;
mod failure_groups;
mod flow;
mod guards;
mod import;
mod imports;
mod jobs;
mod keys;
mod latency;
mod lists;
mod node_access;
mod plan;
pub mod print;
mod queues;
mod reference;
mod replay;
mod replays;
mod responses;
mod revisions;
mod selection;
mod send;
mod shadow;
mod shape;
mod source;
mod status;
mod stop;
mod table;
mod templates;
mod top;
mod trial;
mod up;
mod user;
mod verify;

use std::path::PathBuf;

use clap::Subcommand;

pub use crate::observe::log;
pub use node_access::{NodeFileGuard, runtime};
pub use stop::Stop;
pub use table::{pairs, set_wide};
pub use up::{Up, duration};

// Commands that run a node or operate one. No doc comment: clap would show it as the description of the program.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Run a node: intake, workers and the admin API
    Up(up::Up),
    /// Check the configuration and report every problem
    Check(check::Check),
    /// Dry run of one payload: key, event, jobs, requests; nothing is sent
    Try(dry_run::Try),
    /// Sign a payload like the flow's sender and post it to the node
    Send(send::Send),
    /// List and preview message templates
    Templates(templates::Templates),
    /// List, show and test declared connectors
    Connectors(connectors::ConnectorsCommand),
    /// Show the status of the node
    Status(status::StatusCommand),
    /// List, show and edit accepted events
    Events(events::Events),
    /// List, show and resolve jobs
    Jobs(jobs::Jobs),
    /// List, inspect and drop dead letters
    Dlq(dlq::Dlq),
    /// Requeue jobs; applied effects are not sent again
    Replay(replay::Replay),
    /// List, show, pause, resume and cancel replays
    Replays(replays::ReplaysCommand),
    /// Show sources: accepted, duplicate and rejected requests
    Sources(endpoints::Sources),
    /// Show destinations and their gates
    Destinations(endpoints::Destinations),
    /// List flows with their routes, queues and workers
    Flows(queues::Flows),
    /// List queues with their jobs, dead letters and workers
    Queues(queues::Queues),
    /// List, acknowledge, snooze and test alerts
    Alerts(alerts::Alerts),
    /// List events that wait for their response, with their deadlines
    Responses(responses::Responses),
    /// Show latencies of the last minutes, hours or days
    Latency(latency::Latency),
    /// Show rates, depths, ages, latencies and gates live
    Top(top::Top),
    /// Pause a source, a queue, a worker, a destination or replays; survives restarts
    Pause(control::Pause),
    /// Resume a paused target
    Resume(control::Resume),
    /// List and decide approvals
    Approvals(approvals::Approvals),
    /// List, show, merge and split contacts
    Contacts(contacts::ContactsCommand),
    /// Show everything that happened to an event or a person
    Trace(contacts::TraceCommand),
    /// Export events, dead letters or contacts as NDJSON or CSV
    Export(export::ExportCommand),
    /// Import a file of events through a flow; a stopped import continues
    Import(import::ImportCommand),
    /// List, show and cancel imports
    Imports(imports::ImportsCommand),
    /// Manage the list of suppressed contacts
    Suppress(guards::SuppressCommand),
    /// Turn safe mode on or off: safer messages, stricter policies or held jobs
    SafeMode(guards::SafeModeCommand),
    /// Reload the configuration of the node
    Reload(control::Reload),
    /// Show the changes of a new configuration and the affected jobs
    Plan(plan::PlanCommand),
    /// Show or stop the configuration that runs beside the active one
    Shadow(shadow::ShadowCommand),
    /// Activate a planned configuration on the running node
    Apply(apply::Apply),
    /// Go back to an earlier configuration
    Rollback(apply::Rollback),
    /// List activated configurations with time, actor and reason
    Revisions(revisions::Revisions),
    /// Show the audit trail: actor, action, time and reason
    Audit(control::Audit),
    /// Show and rotate the encryption keys of the ledger
    Keys(keys::Keys),
    /// Show the ledger's clock, or confirm the clock of the machine
    Clock(clock::ClockCommand),
    /// List, add and remove users of the console and the admin API
    Users(access::Users),
    /// List, add and revoke API tokens
    Tokens(access::Tokens),
    /// Make a sign-in link for the console
    Console(access::Console),
}

impl NodeCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self {
            NodeCommand::Up(command) => command.run(),
            NodeCommand::Check(command) => command.run(),
            NodeCommand::Try(command) => command.run(),
            NodeCommand::Send(command) => command.run(),
            NodeCommand::Templates(command) => command.run(),
            NodeCommand::Connectors(command) => command.run(),
            NodeCommand::Status(command) => command.run(),
            NodeCommand::Events(command) => command.run(),
            NodeCommand::Jobs(command) => command.run(),
            NodeCommand::Dlq(command) => command.run(),
            NodeCommand::Replay(command) => command.run(),
            NodeCommand::Replays(command) => command.run(),
            NodeCommand::Sources(command) => command.run(),
            NodeCommand::Destinations(command) => command.run(),
            NodeCommand::Flows(command) => command.run(),
            NodeCommand::Queues(command) => command.run(),
            NodeCommand::Alerts(command) => command.run(),
            NodeCommand::Responses(command) => command.run(),
            NodeCommand::Latency(command) => command.run(),
            NodeCommand::Top(command) => command.run(),
            NodeCommand::Pause(command) => command.run(),
            NodeCommand::Resume(command) => command.run(),
            NodeCommand::Approvals(command) => command.run(),
            NodeCommand::Contacts(command) => command.run(),
            NodeCommand::Trace(command) => command.run(),
            NodeCommand::Export(command) => command.run(),
            NodeCommand::Import(command) => command.run(),
            NodeCommand::Imports(command) => command.run(),
            NodeCommand::Suppress(command) => command.run(),
            NodeCommand::SafeMode(command) => command.run(),
            NodeCommand::Reload(command) => command.run(),
            NodeCommand::Plan(command) => command.run(),
            NodeCommand::Shadow(command) => command.run(),
            NodeCommand::Apply(command) => command.run(),
            NodeCommand::Rollback(command) => command.run(),
            NodeCommand::Revisions(command) => command.run(),
            NodeCommand::Audit(command) => command.run(),
            NodeCommand::Keys(command) => command.run(),
            NodeCommand::Clock(command) => command.run(),
            NodeCommand::Users(command) => command.run(),
            NodeCommand::Tokens(command) => command.run(),
            NodeCommand::Console(command) => command.run(),
        }
    }
}

// Commands that describe the program itself. No doc comment: clap would show it as the description of the program.
#[derive(Debug, Subcommand)]
pub enum ReferenceCommand {
    /// Print a reference page, or compare one with this build
    Reference(reference::Reference),
    /// Print a shell completion script
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
    /// Check the invariants of every row of the ledger
    Verify(verify::Verify),
    /// Account for every accepted event, by day and source
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

/// Stable exit codes.
pub mod exit {
    /// The command did what was asked.
    pub const OK: u8 = 0;
    /// Negative result: errors found, no match, a failed check.
    pub const NO: u8 = 1;
    /// Invalid arguments (also used by clap).
    pub const USAGE: u8 = 2;
    /// The node or the ledger cannot be reached or has failed.
    pub const UNAVAILABLE: u8 = 3;
    /// A plan has changes that can be applied.
    pub(crate) const CHANGES: u8 = 4;
}

/// Failure of a command: message and exit code.
#[derive(Debug)]
pub struct CliError {
    pub message: String,
    pub code: u8,
}

impl CliError {
    pub fn new(code: u8, message: impl Into<String>) -> CliError {
        CliError { message: message.into(), code }
    }
}

/// Default data directory of a configuration.
fn data_directory(config: &std::path::Path, data: Option<PathBuf>) -> PathBuf {
    data.unwrap_or_else(|| {
        let directory = if config.is_dir() { config } else { config.parent().unwrap_or(std::path::Path::new(".")) };
        directory.join(".sluice")
    })
}
