//! `sluice check`: every problem in the configuration, with file, line, column and a hint.

use std::path::PathBuf;

use super::{Failed, exit};
use crate::config::{self, Colours, EnvironmentThenFiles, Severity};

/// Find every mistake in the configuration
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// The configuration: a directory or a file
    #[arg(default_value = ".", env = "SLUICE_CONFIG")]
    config: PathBuf,
    /// Print the problems as JSON
    #[arg(long)]
    json: bool,
    /// Fail on warnings too
    #[arg(long)]
    strict: bool,
}

impl Check {
    pub fn run(self) -> Result<(), Failed> {
        let files = config::read(&self.config).map_err(|error| Failed::new(exit::NO, error.to_string()))?;
        let directory = if self.config.is_dir() {
            self.config.clone()
        } else {
            self.config.parent().map(PathBuf::from).unwrap_or_default()
        };
        let mut compiled = config::compile(&files, &EnvironmentThenFiles::new(directory));
        compiled.require_runtimes(sluice_connectors::find_runtime);
        let problems = &compiled.problems;
        if self.json {
            let list: Vec<_> = problems.iter().map(config::Problem::to_json).collect();
            anstream::println!("{}", serde_json::to_string_pretty(&list).unwrap_or_default());
        } else {
            if !problems.is_empty() {
                anstream::println!("{}\n", config::render_all(problems, &files, Colours::Ansi));
            }
            match &compiled.config {
                Some(config) => anstream::println!(
                    "{} ({} flows, {} queues, {} workers, {} destinations; revision {})",
                    if problems.is_empty() { "No problems found".to_owned() } else { config::summary(problems) },
                    config.flows.len(),
                    config.queues.len(),
                    config.workers.len(),
                    config.destinations.len(),
                    config.revision.0
                ),
                None => anstream::println!("{}", config::summary(problems)),
            }
        }
        let fails = |severity: Severity| severity == Severity::Error || self.strict;
        if problems.iter().any(|problem| fails(problem.severity)) { Err(Failed::new(exit::NO, "")) } else { Ok(()) }
    }
}
