//! `sluice status`.

use super::CliError;
use super::node_access::{AdminClient, NodeArgs};
use super::print::{self, Format, ago, grouped, heading, hint, plural, style_of, styled};
use super::table::{Cell, Column, Table, pairs};
use crate::operate::views::{Status, WaitView};

/// Show the status of the node
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sluice status\n  sluice status --url https://sluice.internal:8081 --json")]
pub struct StatusCommand {
    /// Show the north stars instead: first signal, idempotent effects, replay success, latency, duplicates
    #[arg(long)]
    north_stars: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl StatusCommand {
    pub fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            if self.north_stars {
                let answer = client.get("/north-stars", &[]).await?;
                return render_north_stars(&answer, self.format);
            }
            let answer = client.get("/status", &[]).await?;
            if self.format.json {
                print::json(&answer)
            } else {
                print::print(&render(&print::deserialize(&answer)?, client))
            }
        })
    }
}

fn render_north_stars(answer: &serde_json::Value, format: Format) -> Result<(), CliError> {
    let Some(stars) = format.read::<std::collections::BTreeMap<String, f64>>(answer)? else { return Ok(()) };
    if stars.is_empty() {
        return print::print("Nothing is known yet: the first minute of the history is not over.");
    }
    let mut table = Table::new([Column::Wrap("NORTH STAR"), Column::Number("VALUE")]);
    for (name, value) in &stars {
        table.row([Cell::from(name.as_str()), format!("{value:.3}").into()]);
    }
    print::print(&table.render())
}

/// Jobs that do not run, by the reason.
fn render_waiting(status: &Status) -> String {
    if status.waiting.is_empty() {
        return String::new();
    }
    let mut table = Table::new([Column::Number("JOBS"), Column::Wrap("WAIT FOR")]);
    for waiting in &status.waiting {
        table.row([Cell::from(waiting.jobs), wait_text(&waiting.wait).into()]);
    }
    format!("{}{}\n", heading("Waiting"), table.render())
}

/// The reason of a wait with the time at which it can end.
pub(super) fn wait_text(wait: &WaitView) -> String {
    match &wait.until {
        Some(until) => format!("{}; {}", wait.message, ago(until)),
        None => wait.message.clone(),
    }
}

fn render(status: &Status, client: &AdminClient) -> String {
    let counted = |(state, count): (&String, &u64)| format!("{} {}", grouped(*count), styled(state, style_of(state)));
    let jobs: Vec<String> = status.jobs.iter().filter(|(_, count)| **count > 0).map(counted).collect();
    let node = match client.is_offline() {
        true => "not running; showing the ledger".to_owned(),
        false => format!("up, version {}, configuration {}", status.version, status.revision),
    };
    let mut text = pairs([
        ("node", node),
        ("intake", if status.intake.is_empty() { String::new() } else { format!("http://{}", status.intake) }),
        ("events", grouped(status.events)),
        ("jobs", if jobs.is_empty() { "none".to_owned() } else { jobs.join(", ") }),
        (
            "running",
            if client.is_offline() {
                String::new()
            } else {
                format!("{}, {} in memory", grouped(status.in_flight), grouped(status.jobs_in_memory))
            },
        ),
    ]);
    if !status.responses.is_empty() {
        let counts =
            status.responses.iter().map(|count| format!("{} {} {}", count.flow, grouped(count.count), count.state));
        text.push_str(&format!("responses: {}; see sluice responses\n", counts.collect::<Vec<_>>().join(", ")));
    }
    text.push_str(&render_waiting(status));
    for warning in &status.warnings {
        let word = styled(&format!("warning {}", warning.code), style_of("dead"));
        text.push_str(&format!("{word}: {}\n  {}\n", warning.message, warning.action));
    }
    for pause in &status.paused {
        text.push_str(&format!(
            "{} {} {}, by {}: {}\n",
            styled("paused", style_of("paused")),
            pause.target,
            ago(&pause.at),
            pause.actor,
            pause.reason
        ));
    }
    for mode in &status.safe_modes {
        text.push_str(&format!(
            "{} {}, ends {}, by {}: {}\n",
            styled("safe mode", style_of("paused")),
            mode.worker.as_deref().unwrap_or("all workers"),
            ago(&mode.until),
            mode.actor,
            mode.reason
        ));
    }
    let hints = hints(status, client);
    if !hints.is_empty() {
        text.push('\n');
        text.extend(hints.iter().map(|line| hint(line)));
    }
    text
}

/// Suggested commands.
fn hints(status: &Status, client: &AdminClient) -> Vec<String> {
    let count = |state: &str| status.jobs.get(state).copied().unwrap_or(0);
    let mut hints = Vec::new();
    if client.is_offline() {
        hints.push("Start the node: sluice up".to_owned());
    }
    if status.events == 0 {
        hints.push("No events yet; send one: sluice send FLOW FILE".to_owned());
    }
    if count("dead") > 0 {
        hints.push(format!("{}: sluice dlq top, then sluice dlq", plural(count("dead"), "dead letter")));
    }
    if count("unknown") > 0 {
        hints.push(format!("{} to resolve: sluice dlq --state unknown", plural(count("unknown"), "outcome")));
    }
    if let Some(pause) = status.paused.first() {
        hints.push(format!("Resume: sluice resume {}", pause.target));
    }
    if status.approvals_pending > 0 {
        hints.push(format!("{}: sluice approvals", plural(status.approvals_pending, "pending approval")));
    }
    hints
}
