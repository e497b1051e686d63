//! `sluice apply` and `sluice rollback`: activate a planned configuration.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::node_access::{AdminClient, NodeArgs};
use super::plan::{files, render};
use super::print::{self, Format, hint};
use super::selection::Actor;
use super::{CliError, exit};
use crate::change::Plan;
use crate::operate::views::AppliedView;

/// Activate a planned configuration on the running node
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The node applies the files only if the plan is still current: the same active revision, the same files. It writes them to its configuration directory atomically, so that a restart uses them. Secrets are never sent: the node looks them up itself.\n\n\
Examples:\n  sluice plan new-config\n  sluice apply new-config --plan 3f9a01c2-77ab12de-90aa31bc44d0 --reason \"the partner allows more\""
)]
pub struct Apply {
    /// New configuration directory or file; --config by default
    #[arg(value_name = "DIR")]
    new: Option<PathBuf>,
    /// Plan id printed by `sluice plan`
    #[arg(long, value_name = "HASH")]
    plan: String,
    #[command(flatten)]
    terms: Terms,
}

/// Go back to an earlier configuration
#[derive(Debug, clap::Args)]
#[command(after_help = "Shows the plan and asks for confirmation. Jobs keep the steps they were accepted with.\n\n\
Examples:\n  sluice rollback --reason \"the new mapping loses phone numbers\"\n  sluice rollback 3f9a01c2 --reason \"as on Friday\" --yes")]
pub struct Rollback {
    /// Revision or a unique prefix; the one before the active revision by default
    revision: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    terms: Terms,
}

#[derive(Debug, clap::Args)]
struct Terms {
    /// Reason, recorded in the audit trail
    #[arg(long)]
    reason: String,
    /// Apply even if jobs need removed resources
    #[arg(long)]
    allow_stranded: bool,
    /// Overwrite edits in the node's directory that were never active
    #[arg(long)]
    discard_edits: bool,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Terms {
    async fn order(&self, client: &AdminClient, wanted: Value, plan: &str) -> Result<(), CliError> {
        let mut order = json!({
            "plan": plan,
            "reason": self.reason,
            "actor": self.actor.name(),
            "allow_stranded": self.allow_stranded,
            "discard_edits": self.discard_edits,
        });
        if let (Value::Object(order), Value::Object(wanted)) = (&mut order, wanted) {
            order.extend(wanted);
        }
        let answer = client.post("/apply", &order).await?;
        let Some(applied) = self.format.read::<AppliedView>(&answer)? else { return Ok(()) };
        let mut text = match applied.changed {
            true => format!(
                "Configuration {} is active; before it was {}. Existing jobs keep their steps.\n",
                applied.revision, applied.plan.running
            ),
            false => format!("No changes; configuration {} stays active.\n", applied.revision),
        };
        if client.is_offline() {
            text.push_str(&hint("No node is running: it becomes active at the next start (`sluice up`)."));
        } else if applied.changed {
            text.push_str(&hint("Roll back: sluice rollback --reason \"…\""));
        }
        print::print(&text)
    }
}

impl Apply {
    pub fn run(self) -> Result<(), CliError> {
        let new = self.new.clone().unwrap_or_else(|| self.terms.reach.config().to_owned());
        let files = files(&new)?;
        self.terms.reach.run(async |client| self.terms.order(client, json!({ "files": files }), &self.plan).await)
    }
}

impl Rollback {
    pub fn run(self) -> Result<(), CliError> {
        self.terms.reach.run(async |client| {
            let wanted = json!({ "revision": self.revision.as_deref().unwrap_or("previous") });
            let plan: Plan = print::deserialize(&client.post("/plan", &wanted).await?)?;
            if !self.terms.format.json {
                print::print(&render(&plan))?;
            }
            let refused = !plan.stranded.is_empty() && !self.terms.allow_stranded;
            if refused && !self.terms.format.json {
                return Err(CliError::new(exit::NO, ""));
            }
            if !plan.is_empty() && !refused && !self.yes {
                confirm(&plan)?;
            }
            self.terms.order(client, wanted, &plan.plan).await
        })
    }
}

fn confirm(plan: &Plan) -> Result<(), CliError> {
    if !std::io::stdin().is_terminal() {
        let message = "no terminal for the confirmation; use --yes";
        return Err(CliError::new(exit::USAGE, message));
    }
    anstream::eprint!("Activate revision {}? [y/N] ", plan.new);
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(CliError::new(exit::NO, "nothing was changed"))
}
