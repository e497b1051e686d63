//! `sluice replays`: list, show, pause, resume and cancel replays.

use serde_json::json;

use super::CliError;
use super::events::escaped;
use super::lists::{ListArgs, ListRequest};
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, grouped, hint, moment};
use super::selection::Actor;
use super::table::{Cell, Column, Table, pairs, state};
use crate::operate::views::ReplayView;

/// List, show, pause, resume and cancel replays
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice replays\n  sluice replays show replay_7\n  sluice replays pause replay_7 --reason \"the CRM is slow\"\n  sluice replays cancel replay_7 --reason \"wrong filter\""
)]
pub struct ReplaysCommand {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListReplays,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List replays, newest first
    List(ListReplays),
    /// Show one replay with its progress
    Show(Show),
    /// Pause a running replay
    Pause(Control),
    /// Resume a paused replay
    Resume(Control),
    /// Cancel a replay: jobs that were requeued run on, the others stay as they are
    Cancel(Control),
}

#[derive(Debug, clap::Args)]
struct ListReplays {
    #[command(flatten)]
    args: ListArgs,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Replay id: replay_7
    id: String,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct Control {
    /// Replay id: replay_7
    id: String,
    /// Reason, recorded in the audit trail
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl ReplaysCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            None => self.list.run(),
            Some(Command::List(list)) => list.run(),
            Some(Command::Show(show)) => show.run(),
            Some(Command::Pause(control)) => control.run("pause"),
            Some(Command::Resume(control)) => control.run("resume"),
            Some(Command::Cancel(control)) => control.run("cancel"),
        }
    }
}

impl ListReplays {
    fn run(self) -> Result<(), CliError> {
        let request = ListRequest {
            path: "/replays",
            filters: vec![],
            empty: "No replays yet. `sluice replay JOB --reason \"…\"` starts one.",
            details: "sluice replays show REPLAY",
        };
        self.args.run(request, |items: &[ReplayView]| {
            let mut table = Table::new([
                Column::Whole("REPLAY"),
                Column::Whole("STATE"),
                Column::Number("REPLAYED"),
                Column::Number("SKIPPED"),
                Column::Whole("STARTED"),
                Column::Wrap("BY"),
                Column::Wrap("REASON"),
            ]);
            for replay in items {
                table.row([
                    Cell::from(replay.id.as_str()),
                    state(&replay.state),
                    replay.replayed.into(),
                    replay.skipped.into(),
                    ago(&replay.created_at).into(),
                    replay.actor.as_str().into(),
                    replay.reason.as_str().into(),
                ]);
            }
            (table, String::new())
        })
    }
}

impl Show {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get(&format!("/replays/{}", escaped(&self.id)), &[]).await?;
            let Some(replay) = self.format.read::<ReplayView>(&answer)? else { return Ok(()) };
            let mut text = render(&replay);
            if client.is_offline() && replay.state == "running" {
                text.push_str(&hint("No node is running: it continues with the next node (`sluice up`)."));
            }
            print::print(&text)
        })
    }
}

impl Control {
    fn run(self, verb: &str) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let order = json!({ "reason": self.reason, "actor": self.actor.name() });
            let answer = client.post(&format!("/replays/{}/{verb}", escaped(&self.id)), &order).await?;
            let Some(replay) = self.format.read::<ReplayView>(&answer)? else { return Ok(()) };
            print::print(&render(&replay))
        })
    }
}

fn render(replay: &ReplayView) -> String {
    let selected = match (&replay.filter, replay.jobs) {
        (Some(filter), _) => filter.to_string(),
        (None, Some(jobs)) => format!("{} named", grouped(jobs)),
        (None, None) => String::new(),
    };
    let left = replay.remaining.map(|remaining| format!("{} left", grouped(remaining)));
    let mut progress = format!("{} replayed, {} skipped", grouped(replay.replayed), grouped(replay.skipped));
    if let Some(left) = left {
        progress.push_str(&format!(", {left}"));
    }
    let pace = replay.rate.as_ref().map(|rate| format!("{rate} in batches of {}", replay.batch));
    let mut text = pairs([
        ("replay", replay.id.clone()),
        ("state", replay.state.clone()),
        ("progress", progress),
        ("jobs", selected),
        ("rate", pace.unwrap_or_else(|| "no limit".to_owned())),
        ("next batch", replay.next_at.as_deref().map(moment).unwrap_or_default()),
        ("configuration", replay.revision.clone().unwrap_or_else(|| "of each job".to_owned())),
        ("applies again", replay.reapply.join(", ")),
        ("started", moment(&replay.created_at)),
        ("by", replay.actor.clone()),
        ("reason", replay.reason.clone()),
    ]);
    let id = &replay.id;
    match replay.state.as_str() {
        "running" => text.push_str(&hint(&format!("\nPause: sluice replays pause {id} --reason \"…\""))),
        "paused" => text.push_str(&hint(&format!("\nResume: sluice replays resume {id} --reason \"…\""))),
        _ => {}
    }
    text
}
