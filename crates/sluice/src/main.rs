//! The binary `sluice`: the commands of the server and of the harness, in one command line.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use sluice_domain::printable::styled_lines;
use sluice_harness::cli::{SimulationCommand, SimulatorCommand, TrialCommand};
use sluice_server::cli::{LedgerCommand, NodeCommand, ReferenceCommand, exit, log, set_wide};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Takes every webhook in durably, answers at once, and makes each effect happen exactly once.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, propagate_version = true, max_term_width = 100, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// What is logged, such as `info`, `warn` or `sluice_server=debug`
    #[arg(long, env = "SLUICE_LOG", global = true)]
    log: Option<String>,
    /// How log lines look
    #[arg(long, env = "SLUICE_LOG_FORMAT", value_enum, default_value_t = log::Format::Text, global = true)]
    log_format: log::Format,
    /// Do not wrap tables or shorten ids on a terminal
    #[arg(long, global = true)]
    wide: bool,
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

/// The order of the groups is the order of the commands in help, reference page and completions.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Node(Box<NodeCommand>),
    #[command(flatten)]
    Simulator(Box<SimulatorCommand>),
    #[command(flatten)]
    Reference(ReferenceCommand),
    #[command(flatten)]
    Trial(Box<TrialCommand>),
    #[command(flatten)]
    Ledger(LedgerCommand),
    #[command(flatten)]
    Simulation(SimulationCommand),
}

impl Command {
    fn is_demo(&self) -> bool {
        matches!(self, Command::Simulation(SimulationCommand::Demo(_)))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The progress line of the demo is not cut by the warnings of its node, whose CRM fails on purpose.
    let level = if arguments.command.is_demo() { "error" } else { "info" };
    log::start(arguments.log_format, arguments.log.as_deref().unwrap_or(level));
    if arguments.wide {
        set_wide();
    }
    let result = match arguments.command {
        Command::Node(command) => command.run(),
        Command::Simulator(command) => command.run(),
        Command::Reference(command) => command.run(Arguments::command()),
        Command::Trial(command) => command.run(),
        Command::Ledger(command) => command.run(),
        Command::Simulation(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::from(exit::OK),
        Err(error) => {
            if !error.message.is_empty() {
                anstream::eprintln!("{}", styled_lines(&error.message));
            }
            ExitCode::from(error.code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_is_described_in_one_line() {
        fn look(command: &clap::Command) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty() && about.len() <= 90, "{}: {about}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
            visible(command).for_each(look);
        }
        visible(&Arguments::command()).for_each(look);
    }

    fn visible(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
        command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
    }
}
