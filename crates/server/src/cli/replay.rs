//! `sluice replay`: requeue jobs with the same keys.

use serde_json::json;
use sluice_domain::job::JobState;

use super::selection::{Act, Verb};
use super::{CliError, exit};

/// Requeue jobs; applied effects are not sent again
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A filter selects dead jobs unless it names other states. The command shows the number of jobs and asks for confirmation, unless --yes.\n\n\
Examples:\n  sluice replay job_17 --reason \"the field exists now\"\n  sluice replay evt_1a2b… --latest-config --reason \"mapping fixed\"\n  sluice replay --filter code=timeout --filter since=2h --reason \"the CRM is back\"\n  sluice replay --filter worker=lead-to-crm --dry-run"
)]
pub struct Replay {
    #[command(flatten)]
    act: Act,
    /// Run the jobs with the active configuration, not the one they were accepted under
    #[arg(long, help_heading = None::<&str>)]
    latest_config: bool,
}

const REPLAY: Verb = Verb { path: "/replays", infinitive: "replay", participle: "replayed", states: &[JobState::Dead] };

impl Replay {
    pub fn run(self) -> Result<(), CliError> {
        self.act.reach.run(async |client| {
            if self.latest_config && client.is_offline() {
                let message = "no node is running, so there is no active configuration; start one with `sluice up`, then replay with --latest-config";
                return Err(CliError::new(exit::UNAVAILABLE, message));
            }
            self.act.perform(client, REPLAY, json!({ "latest_config": self.latest_config })).await
        })
    }
}
