//! `sluice clock`: the time that the ledger stores and expires by.

use serde_json::{Value, json};

use super::CliError;
use super::node_access::NodeArgs;
use super::print::{self, Format, grouped};
use super::selection::Actor;
use super::table::pairs;
use crate::operate::views::ClockView;

/// Show the ledger's clock, or confirm the clock of the machine
#[derive(Debug, clap::Args)]
pub struct ClockCommand {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Show the ledger's time beside the clock of the machine
    Show(Show),
    /// Confirm that the clock of the machine is right
    Accept(Accept),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  sluice clock show")]
struct Show {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The ledger's time moves to the clock of the machine, and what has expired by it is pruned. Check the clock first: \
what is pruned does not come back.\n\nExample:\n  sluice clock accept --reason \"the machine was off from May to June\""
)]
struct Accept {
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

impl ClockCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self.act {
            Act::Show(show) => show.reach.run(async |client| {
                let answer = client.get("/clock", &[]).await?;
                render(&answer, show.format.json)
            }),
            Act::Accept(accept) => accept.reach.run(async |client| {
                let order = json!({ "reason": accept.reason, "actor": accept.actor.name() });
                let answer = client.post("/clock/accept", &order).await?;
                render(&answer, accept.format.json)
            }),
        }
    }
}

fn render(answer: &Value, as_json: bool) -> Result<(), CliError> {
    if as_json {
        return print::json(answer);
    }
    let clock: ClockView = print::deserialize(answer)?;
    let state = match clock.state.as_str() {
        "in-step" => "in step: expired data is pruned",
        _ => "in doubt: nothing is pruned",
    };
    let counted = |(kind, count): (&String, &u64)| format!("{} {}", grouped(*count), kind.replace('_', " "));
    let pruned: Vec<String> = clock.pruned.iter().map(counted).collect();
    let mut text = pairs([
        ("ledger", clock.ledger.clone()),
        ("machine", clock.wall.clone()),
        ("state", state.to_owned()),
        ("pruned", if pruned.is_empty() { "nothing so far".to_owned() } else { pruned.join(", ") }),
    ]);
    if let Some(warning) = &clock.warning {
        text.push_str(&format!("\n{warning}\n"));
    }
    print::print(&text)
}
