//! `sluice shadow`: a configuration that runs beside the active one.

use serde_json::json;

use super::CliError;
use super::node_access::NodeArgs;
use super::print::{self, Format, grouped, hint, moment};
use super::selection::Actor;
use super::table::pairs;
use super::trial;
use crate::operate::views::ShadowView;

/// Show or stop the configuration that runs beside the active one
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "It sees every accepted request after its commit and has no effects.\n\nExamples:\n  sluice plan new-config --shadow --reason \"new mapping\"\n  sluice shadow\n  sluice shadow stop --reason \"seen enough\""
)]
pub struct ShadowCommand {
    #[command(subcommand)]
    command: Option<ShadowAct>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Subcommand)]
enum ShadowAct {
    /// Stop it
    Stop(StopShadow),
}

#[derive(Debug, clap::Args)]
struct StopShadow {
    /// Reason, recorded in the audit trail
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl ShadowCommand {
    pub fn run(self) -> Result<(), CliError> {
        if let Some(ShadowAct::Stop(stop)) = self.command {
            return stop.run();
        }
        self.reach.run(async |client| {
            let answer = client.get("/shadow", &[]).await?;
            let Some(view) = self.format.read::<ShadowView>(&answer)? else { return Ok(()) };
            print::print(&render(&view))
        })
    }
}

impl StopShadow {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let order = json!({ "reason": self.reason, "actor": self.actor.name() });
            let answer = client.post("/shadow/stop", &order).await?;
            if self.format.json {
                return print::json(&answer);
            }
            print::print("Stopped.")
        })
    }
}

fn render(view: &ShadowView) -> String {
    let report = &view.report;
    let verdict = match view.verdict.as_str() {
        "waiting" => "no request was compared yet".to_owned(),
        "same" => format!("the same for all {} requests", grouped(report.events)),
        "different" => format!("{} of {} requests differ", grouped(report.different), grouped(report.events)),
        "promoted" => "it is the active revision by now".to_owned(),
        _ => format!("failed: {}", view.problem.as_deref().unwrap_or_default()),
    };
    let left_out = if view.left_out == 0 { String::new() } else { grouped(view.left_out) };
    let mut text = pairs([
        ("shadow", format!("revision {}", view.revision)),
        ("active", format!("revision {}", view.active)),
        ("since", format!("{}, by {}: {}", moment(&view.started_at), view.actor, view.reason)),
        ("verdict", verdict),
        ("left out", left_out),
    ]);
    text.push_str(&trial::differences(report));
    text.push_str(&hint("\nPromote it: sluice plan DIR, then sluice apply. Stop it: sluice shadow stop"));
    text
}
