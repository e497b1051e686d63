//! `sluice revisions`: activated configurations.

use super::CliError;
use super::lists::{ListArgs, ListRequest};
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, heading, indented, moment};
use super::table::{Cell, Column, Table};
use crate::operate::views::{RevisionDetail, RevisionView};

/// List activated configurations with time, actor and reason
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice revisions\n  sluice revisions show 3f9a01c2"
)]
pub struct Revisions {
    #[command(subcommand)]
    act: Option<Act>,
    #[command(flatten)]
    args: ListArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Show one configuration with its files
    Show(Show),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sluice revisions show 3f9a01c2\n  sluice revisions show previous --json")]
struct Show {
    /// Revision or a unique prefix; `previous` is the one before the active revision
    revision: String,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Revisions {
    pub fn run(self) -> Result<(), CliError> {
        if let Some(Act::Show(show)) = self.act {
            return show.run();
        }
        let request = ListRequest {
            path: "/revisions",
            filters: vec![],
            empty: "No configuration yet: no node has been started with this ledger.",
            details: "sluice revisions show REVISION",
        };
        self.args.run(request, |revisions: &[RevisionView]| (table(revisions), String::new()))
    }
}

fn table(revisions: &[RevisionView]) -> Table {
    let mut table = Table::new([
        Column::Number("#"),
        Column::Whole("REVISION"),
        Column::Whole("SINCE"),
        Column::Wrap("WHO"),
        Column::Wrap("WHY"),
        Column::Whole(""),
    ]);
    for revision in revisions {
        table.row([
            Cell::from(revision.n.to_string()),
            revision.revision.as_str().into(),
            ago(&revision.at).into(),
            revision.actor.as_str().into(),
            revision.reason.as_str().into(),
            if revision.current { "active" } else { "" }.into(),
        ]);
    }
    table
}

impl Show {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get(&format!("/revisions/{}", self.revision), &[]).await?;
            let Some(detail) = self.format.read::<RevisionDetail>(&answer)? else { return Ok(()) };
            let state = if detail.current { "active" } else { "not active" };
            let mut text = format!("Revision {}, {state}\n", detail.revision);
            for time in &detail.in_force {
                let why = if time.reason.is_empty() { String::new() } else { format!(": {}", time.reason) };
                text.push_str(&format!("since {}, by {}{why}\n", moment(&time.at), time.actor));
            }
            for (path, content) in &detail.files {
                text.push_str(&heading(path));
                text.push_str(&indented(content, 2));
            }
            print::print(&text)
        })
    }
}
