//! `sluice replay`: jobs come back to life, with their own keys.

use serde_json::json;
use sluice_domain::job::JobState;

use super::selection::{Act, Verb};
use super::{CliError, exit};

/// Try jobs again; effects that are done stay done
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A filter means dead jobs unless it names other states. It says how many jobs that are and asks, unless --yes.\n\n\
Examples:\n  sluice replay job_17 --reason \"the field exists now\"\n  sluice replay evt_1a2b… --latest-config --reason \"mapping mended\"\n  sluice replay --filter code=timeout --filter since=2h --reason \"the CRM is back\"\n  sluice replay --filter worker=lead-to-crm --dry-run"
)]
pub struct Replay {
    #[command(flatten)]
    act: Act,
    /// Run them with the configuration in force, not the one they were accepted under
    #[arg(long, help_heading = None::<&str>)]
    latest_config: bool,
}

const REPLAY: Verb = Verb { path: "/replays", infinitive: "replay", participle: "replayed", states: &[JobState::Dead] };

impl Replay {
    pub fn run(self) -> Result<(), CliError> {
        self.act.reach.run(async |desk| {
            if self.latest_config && desk.is_offline() {
                let message = "no node runs, so no configuration is in force; start one with `sluice up`, then replay with --latest-config";
                return Err(CliError::new(exit::UNAVAILABLE, message));
            }
            self.act.perform(desk, REPLAY, json!({ "latest_config": self.latest_config })).await
        })
    }
}
