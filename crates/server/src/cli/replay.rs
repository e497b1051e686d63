//! `sluice replay`: requeue jobs with the same keys.

use serde_json::json;
use sluice_domain::job::JobState;
use sluice_domain::replay::Reapply;
use sluice_domain::unit::format_duration;

use super::print::{grouped, heading, hint, plural};
use super::selection::{Act, Verb};
use super::table::pairs;
use super::{CliError, exit};
use crate::operate::views::{ReplayPreview, ReplayResult};

/// Requeue jobs; applied effects are not sent again
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A filter selects dead jobs unless it names other states. The command shows what the replay would do and asks for confirmation, unless --yes.\n\
With --rate the replay runs in the background: `sluice replays` shows, pauses, resumes and cancels it.\n\n\
Examples:\n  sluice replay job_17 --reason \"the field exists now\"\n  sluice replay evt_1a2b… --latest-config --reason \"mapping fixed\"\n  sluice replay --filter code=timeout --filter since=2h --rate 10/s --reason \"the CRM is back\"\n  sluice replay --filter worker=lead-to-crm --dry-run\n  sluice replay --filter state=succeeded --filter since=1d --latest-config --reapply --reason \"wrong mapping\""
)]
pub struct Replay {
    #[command(flatten)]
    act: Act,
    /// Run the jobs with the active configuration, not the one they were accepted under
    #[arg(long, help_heading = None::<&str>)]
    latest_config: bool,
    /// Jobs per time, such as 10/s or 100/min; the replay then runs in the background
    #[arg(long, value_name = "RATE", help_heading = None::<&str>)]
    rate: Option<String>,
    /// Jobs per batch of a replay with a rate, 1 to 500; 100 by default
    #[arg(long, value_name = "N", requires = "rate", help_heading = None::<&str>)]
    batch: Option<u32>,
    /// Apply effects again that are applied, by class; natural and transactional unless others are named, separated by commas
    #[arg(long, value_name = "CLASSES", num_args = 0..=1, require_equals = true, default_missing_value = "", help_heading = None::<&str>)]
    reapply: Option<String>,
}

const REPLAY: Verb = Verb { path: "/replays", infinitive: "replay", participle: "replayed", states: &[JobState::Dead] };

impl Replay {
    pub fn run(self) -> Result<(), CliError> {
        self.act.reach.run(async |client| {
            if self.latest_config && client.is_offline() {
                let message = "no node is running, so there is no active configuration; start one with `sluice up`, then replay with --latest-config";
                return Err(CliError::new(exit::UNAVAILABLE, message));
            }
            let more = json!({
                "latest_config": self.latest_config,
                "rate": self.rate,
                "batch": self.batch,
                "reapply": self.reapply.as_deref().map(classes).unwrap_or_default(),
            });
            self.act.perform(client, REPLAY, more).await
        })
    }
}

/// The classes of `--reapply`.
fn classes(words: &str) -> Vec<String> {
    match words.trim() {
        "" => Reapply::OVERWRITING.iter().map(|class| class.as_str().to_owned()).collect(),
        words => words.split(',').map(|word| word.trim().to_owned()).collect(),
    }
}

/// What a replay would do.
pub(super) fn render_preview(preview: &ReplayPreview) -> String {
    let count = |count: u64, what: &str| if count == 0 { String::new() } else { format!("{} {what}", grouped(count)) };
    let seconds = preview.seconds.map(|seconds| format_duration(std::time::Duration::from_secs(seconds)));
    let calls: Vec<String> =
        preview.destinations.iter().map(|to| format!("{} to {}", grouped(to.calls), to.destination)).collect();
    let mut text = heading("What it would do");
    text.push_str(&pairs([
        ("no-ops", count(preview.noops, "find everything done")),
        ("updates", count(preview.updates, "update a record that the job wrote before")),
        ("writes", count(preview.writes - preview.updates.min(preview.writes), "create or update a record")),
        ("sends", count(preview.sends, "send a message or a request")),
        ("fail again", count(preview.fails, "fail as before: nothing has changed")),
        ("at risk", count(preview.at_risk, "were rejected by the destination before")),
        ("calls", if calls.is_empty() { "none".to_owned() } else { calls.join(", ") }),
        ("takes", seconds.map_or("no rate limits it".to_owned(), |span| format!("{span} or more"))),
    ]));
    for failure in &preview.failures {
        text.push_str(&format!("{} {}: {}\n", plural(failure.jobs, "job"), failure.code, failure.message));
    }
    text
}

/// How a replay in the background is followed.
pub(super) fn render_started(result: &ReplayResult, is_offline: bool) -> String {
    let Some(replay) = result.replay.as_ref().filter(|replay| replay.state == "running") else { return String::new() };
    let mut text = format!("{} is running.\n", replay.id);
    if is_offline {
        text.push_str(&hint("No node is running: it starts with the next node (`sluice up`)."));
    }
    text + &hint(&format!(
        "Progress: sluice replays show {id}   Stop: sluice replays cancel {id} --reason \"…\"",
        id = replay.id
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reapply_without_classes_overwrites_and_sends_nothing_twice() {
        assert_eq!(classes(""), ["natural", "transactional"]);
        assert_eq!(classes("keyed, blind"), ["keyed", "blind"]);
    }
}
