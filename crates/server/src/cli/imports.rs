//! `sluice imports`: list, show and cancel imports.

use serde_json::json;

use super::CliError;
use super::events::escaped;
use super::import::render;
use super::lists::{ListArgs, ListRequest};
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, grouped};
use super::selection::Actor;
use super::table::{Cell, Column, Table, state};
use crate::operate::views::ImportView;

/// List, show and cancel imports
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice imports\n  sluice imports cancel imp_… --reason \"wrong file\""
)]
pub struct ImportsCommand {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListImports,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List imports, newest first
    List(ListImports),
    /// Show one import with its progress
    Show(Show),
    /// Cancel a running import: events that it made stay; importing the file again continues it
    Cancel(Cancel),
}

#[derive(Debug, clap::Args)]
struct ListImports {
    #[command(flatten)]
    args: ListArgs,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Import id: imp_…
    id: String,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct Cancel {
    /// Import id: imp_…
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

impl ImportsCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            None => self.list.run(),
            Some(Command::List(list)) => list.run(),
            Some(Command::Show(show)) => show.run(),
            Some(Command::Cancel(cancel)) => cancel.run(),
        }
    }
}

impl ListImports {
    fn run(self) -> Result<(), CliError> {
        let request = ListRequest {
            path: "/imports",
            filters: vec![],
            empty: "No imports yet. `sluice import FILE --flow NAME --reason \"…\"` starts one.",
            details: "sluice imports show IMPORT",
        };
        self.args.run(request, |items: &[ImportView]| {
            let mut table = Table::new([
                Column::Whole("IMPORT"),
                Column::Whole("STATE"),
                Column::Wrap("FLOW"),
                Column::Wrap("FILE"),
                Column::Number("ROWS"),
                Column::Number("ACCEPTED"),
                Column::Number("REFUSED"),
                Column::Whole("STARTED"),
            ]);
            for import in items {
                table.row([
                    Cell::from(import.id.as_str()),
                    state(&import.state),
                    import.flow.as_str().into(),
                    import.file.as_str().into(),
                    format!("{} of {}", grouped(import.position), grouped(import.rows)).as_str().into(),
                    import.accepted.into(),
                    import.refused.into(),
                    ago(&import.created_at).into(),
                ]);
            }
            (table, String::new())
        })
    }
}

impl Show {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get(&format!("/imports/{}", escaped(&self.id)), &[]).await?;
            let Some(import) = self.format.read::<ImportView>(&answer)? else { return Ok(()) };
            print::print(&render(&import))
        })
    }
}

impl Cancel {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let order = json!({ "reason": self.reason, "actor": self.actor.name() });
            let answer = client.post(&format!("/imports/{}/cancel", escaped(&self.id)), &order).await?;
            let Some(import) = self.format.read::<ImportView>(&answer)? else { return Ok(()) };
            print::print(&render(&import))
        })
    }
}
