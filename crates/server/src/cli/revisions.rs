//! `sluice revisions`: what was in force, since when, by whom and why.

use super::CliError;
use super::lists::Paging;
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, heading, hint, indented, moment};
use super::table::{Cell, Column, Table};
use crate::operate::views::List;
use crate::operate::views::{RevisionDetail, RevisionView};

/// See every configuration that was in force: when, by whom and why
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice revisions\n  sluice revisions show 3f9a01c2"
)]
pub struct Revisions {
    #[command(subcommand)]
    act: Option<Act>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// See one configuration with its files
    Show(Show),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sluice revisions show 3f9a01c2\n  sluice revisions show previous --json")]
struct Show {
    /// Which revision, or enough of its beginning; `previous` is the one before the one in force
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
        self.reach.run(async |desk| {
            let answer = desk.get("/revisions", &self.paging.query()).await?;
            let Some(list) = self.format.read::<List<RevisionView>>(&answer)? else { return Ok(()) };
            if list.items.is_empty() {
                return print::print("No configuration was in force yet: no node has been started with this ledger.");
            }
            let mut text = told(&list.items);
            if let Some(next) = &list.next {
                text.push_str(&hint(&format!("There are more: --after {next}")));
            }
            text.push_str(&hint("\nMore about one: sluice revisions show REVISION"));
            print::print(&text)
        })
    }
}

fn told(revisions: &[RevisionView]) -> String {
    let mut table = Table::new([
        Column::Number("#"),
        Column::Whole("REVISION"),
        Column::Whole("SINCE"),
        Column::Cut("WHO"),
        Column::Cut("WHY"),
        Column::Whole(""),
    ]);
    for revision in revisions {
        table.row([
            Cell::from(revision.n.to_string()),
            revision.revision.as_str().into(),
            ago(&revision.at).into(),
            revision.actor.as_str().into(),
            revision.reason.as_str().into(),
            if revision.current { "in force" } else { "" }.into(),
        ]);
    }
    table.render()
}

impl Show {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |desk| {
            let answer = desk.get(&format!("/revisions/{}", self.revision), &[]).await?;
            let Some(detail) = self.format.read::<RevisionDetail>(&answer)? else { return Ok(()) };
            let state = if detail.current { "in force" } else { "not in force" };
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
