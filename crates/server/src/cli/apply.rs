//! `sluice apply` and `sluice rollback`: a configuration is put in force as it was planned.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::node_access::{AdminClient, NodeArgs};
use super::plan::{files, told};
use super::print::{self, Format, hint};
use super::selection::Actor;
use super::{CliError, exit};
use crate::change::Plan;
use crate::operate::views::AppliedView;

/// Put a planned configuration in force on the running node
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The node takes the files only if the plan is still what would happen: the same revision in force, the same files. It writes them into its own \
configuration directory, all or none, so that a restart finds them. Secrets are never sent: the node looks them up itself.\n\n\
Examples:\n  sluice plan new-config\n  sluice apply new-config --plan 3f9a01c2-77ab12de-90aa31bc44d0 --reason \"the partner allows more\""
)]
pub struct Apply {
    /// The new configuration: a directory or a file; --config when left out
    #[arg(value_name = "DIR")]
    new: Option<PathBuf>,
    /// The hash that `sluice plan` printed
    #[arg(long, value_name = "HASH")]
    plan: String,
    #[command(flatten)]
    terms: Terms,
}

/// Go back to an earlier configuration
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Shows the plan and asks first. Jobs keep the steps that they were accepted with, here too.\n\n\
Examples:\n  sluice rollback --reason \"the new mapping loses phone numbers\"\n  sluice rollback 3f9a01c2 --reason \"as on Friday\" --yes"
)]
pub struct Rollback {
    /// Which revision, or enough of its beginning; the one before the one in force when left out
    revision: Option<String>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    terms: Terms,
}

/// Why, who and under which conditions.
#[derive(Debug, clap::Args)]
struct Terms {
    /// Why; stands in the audit trail
    #[arg(long)]
    reason: String,
    /// Go on although jobs still need what would be gone
    #[arg(long)]
    allow_stranded: bool,
    /// Write over edits in the node's directory that were never in force
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
    async fn order(&self, desk: &AdminClient, wanted: Value, plan: &str) -> Result<(), CliError> {
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
        let answer = desk.post("/apply", &order).await?;
        let Some(applied) = self.format.read::<AppliedView>(&answer)? else { return Ok(()) };
        let mut text = match applied.changed {
            true => format!(
                "Configuration {} is in force; it was {}. Jobs that were accepted before keep their steps.\n",
                applied.revision, applied.plan.running
            ),
            false => format!("Nothing has changed; configuration {} stays in force.\n", applied.revision),
        };
        if desk.is_offline() {
            text.push_str(&hint("No node runs: it holds from the next start on (`sluice up`)."));
        } else if applied.changed {
            text.push_str(&hint("Back to what was: sluice rollback --reason \"…\""));
        }
        print::print(&text)
    }
}

impl Apply {
    pub fn run(self) -> Result<(), CliError> {
        let new = self.new.clone().unwrap_or_else(|| self.terms.reach.config().to_owned());
        let files = files(&new)?;
        self.terms.reach.run(async |desk| self.terms.order(desk, json!({ "files": files }), &self.plan).await)
    }
}

impl Rollback {
    pub fn run(self) -> Result<(), CliError> {
        self.terms.reach.run(async |desk| {
            let wanted = json!({ "revision": self.revision.as_deref().unwrap_or("previous") });
            let plan: Plan = print::understood(&desk.post("/plan", &wanted).await?)?;
            if !self.terms.format.json {
                print::print(&told(&plan))?;
            }
            let refused = !plan.stranded.is_empty() && !self.terms.allow_stranded;
            if refused && !self.terms.format.json {
                return Err(CliError::new(exit::NO, ""));
            }
            if !plan.is_empty() && !refused && !self.yes {
                confirm(&plan)?;
            }
            self.terms.order(desk, wanted, &plan.plan).await
        })
    }
}

fn confirm(plan: &Plan) -> Result<(), CliError> {
    if !std::io::stdin().is_terminal() {
        let message = "without a terminal to ask at, say --yes if that is meant";
        return Err(CliError::new(exit::USAGE, message));
    }
    anstream::eprint!("Put revision {} in force? [y/N] ", plan.new);
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(CliError::new(exit::NO, "nothing was changed"))
}
