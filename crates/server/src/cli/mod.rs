//! The command line.
//!
//! In: arguments and the environment.
//! Out: text or JSON, and an exit code that a script can use.
//! Touches: config; the API of a running node; the ledger when none runs.
//! Never: is imported by another room.
//! If the process dies here: for a running node see `run`; every other command has done its one act or not.

mod check;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::observe::log;

/// Takes every webhook in durably, answers at once, and makes each effect happen exactly once.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, propagate_version = true, max_term_width = 100)]
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

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node: intake, workers and the admin API
    Up(up::Up),
    /// Find every mistake in the configuration
    Check(check::Check),
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
}

/// Why a command ends without success: what to say, and the exit code.
#[derive(Debug)]
pub struct Failed {
    /// For a person.
    pub message: String,
    /// For a script.
    pub code: u8,
}

impl Failed {
    /// With this exit code.
    pub fn new(code: u8, message: impl Into<String>) -> Failed {
        Failed { message: message.into(), code }
    }
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log::start(arguments.log_format, &arguments.log);
    let done = match arguments.command {
        Command::Up(up) => up.run(),
        Command::Check(check) => check.run(),
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
