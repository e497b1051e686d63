//! `sluice check`: every problem in the configuration, with file, line, column and a hint.

use std::path::PathBuf;

use sluice_domain::config::Config;

use super::print::{self, hint, plural};
use super::{CliError, exit};
use crate::config::{self, Colours, EnvironmentThenFiles, Severity};
use crate::enrich;

/// Check the configuration and report every problem
#[derive(Debug, clap::Args)]
pub struct Check {
    /// Configuration directory or file
    #[arg(default_value = ".", env = "SLUICE_CONFIG")]
    config: PathBuf,
    /// Print the problems as JSON
    #[arg(long)]
    json: bool,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
}

impl Check {
    pub fn run(self) -> Result<(), CliError> {
        let files = config::read(&self.config).map_err(|error| CliError::new(exit::NO, error.to_string()))?;
        let directory = if self.config.is_dir() {
            self.config.clone()
        } else {
            self.config.parent().map(PathBuf::from).unwrap_or_default()
        };
        let mut compiled = config::compile(&files, &EnvironmentThenFiles::new(directory));
        compiled.require_runtimes(sluice_connectors::find_runtime);
        compiled.warn_of_databases(enrich::probe);
        let problems = &compiled.problems;
        if self.json {
            let list: Vec<_> = problems.iter().map(config::ConfigProblem::to_json).collect();
            print::json(&list)?;
        } else {
            let said = match problems.is_empty() {
                true => "No problems found".to_owned(),
                false => config::render_all(problems, &files, Colours::Ansi).trim_end().to_owned(),
            };
            let mut text = match &compiled.config {
                Some(config) => format!("{said} ({})\n", render(config)),
                None => format!("{said}\n"),
            };
            for line in compiled.config.iter().flat_map(identity_lookups) {
                text.push_str(&hint(&line));
            }
            if !files.skipped().is_empty() {
                text.push_str(&hint(&format!("Not part of the configuration: {}", few(files.skipped()))));
            }
            print::print(&text)?;
        }
        let fails = |severity: Severity| severity == Severity::Error || self.strict;
        if problems.iter().any(|problem| fails(problem.severity)) { Err(CliError::new(exit::NO, "")) } else { Ok(()) }
    }
}

/// Which lookups supply the identity of events without one.
fn identity_lookups(config: &Config) -> Vec<String> {
    let lines = config.workers.iter().flat_map(|(worker, found)| {
        found.identity_lookups().iter().filter(|step| !step.identity.is_empty()).map(move |step| {
            let fields: Vec<&str> = step.identity.iter().map(|(field, _)| field.as_str()).collect();
            format!(
                "Quarantined events of worker {worker} are released by {} of the lookup {}",
                fields.join(", "),
                step.id
            )
        })
    });
    lines.collect()
}

/// The first names of a list.
fn few(names: &[String]) -> String {
    const SHOWN_MAX: usize = 5;
    let shown = names.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Number of resources by kind.
fn render(config: &Config) -> String {
    let parts = [
        (config.flows.len(), "flow"),
        (config.queues.len(), "queue"),
        (config.workers.len(), "worker"),
        (config.destinations.len(), "destination"),
    ];
    let parts: Vec<String> = parts.iter().map(|(count, word)| plural(*count as u64, word)).collect();
    format!("{}; revision {}", parts.join(", "), config.revision.0)
}
