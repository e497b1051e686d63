//! `sluice suppress` and `sluice safe-mode`.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::lists::{ListArgs, ListRequest};
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, hint, plural};
use super::selection::Actor;
use super::table::{Cell, Column, Table};
use super::{CliError, exit};
use crate::operate::views::{SafeModeView, SuppressedView, SuppressionView};

/// Manage the list of suppressed contacts
#[derive(Debug, clap::Args)]
#[command(after_help = "Contacts are stored as digests: the list shows them masked, and they cannot be recovered.\n\n\
Examples:\n  sluice suppress add ada@example.com --reason \"asked on the phone\"\n  sluice suppress add --file unsubscribed.txt --channel email --reason \"import\"\n  sluice suppress remove ada@example.com --reason \"is back\"\n  sluice suppress list")]
pub struct SuppressCommand {
    #[command(subcommand)]
    command: SuppressAct,
}

#[derive(Debug, clap::Subcommand)]
enum SuppressAct {
    /// Add contacts to the list
    Add(Change),
    /// Remove contacts from the list
    Remove(Change),
    /// Show the list, masked, newest first
    List(ListSuppressed),
}

#[derive(Debug, clap::Args)]
struct Change {
    /// Contacts: email addresses, phone numbers, ids
    #[arg(required_unless_present = "file")]
    contacts: Vec<String>,
    /// File with one contact per line; - reads standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only this channel; any by default
    #[arg(long, default_value = "", hide_default_value = true)]
    channel: String,
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

#[derive(Debug, clap::Args)]
struct ListSuppressed {
    #[command(flatten)]
    args: ListArgs,
}

impl SuppressCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            SuppressAct::Add(change) => change.run("add"),
            SuppressAct::Remove(change) => change.run("remove"),
            SuppressAct::List(list) => list.run(),
        }
    }
}

impl Change {
    fn run(self, verb: &'static str) -> Result<(), CliError> {
        let mut contacts = self.contacts.clone();
        if let Some(file) = &self.file {
            let text = read(file)?;
            let line = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
            contacts.extend(text.lines().map(line).filter(|line| !line.is_empty()));
        }
        self.reach.run(async |client| {
            let order = json!({
                verb: contacts, "channel": self.channel, "reason": self.reason, "actor": self.actor.name(),
            });
            let answer = client.post("/suppressions", &order).await?;
            let Some(done) = self.format.read::<SuppressedView>(&answer)? else { return Ok(()) };
            print::print(&match verb {
                "add" => format!("{} added to the list.", plural(done.added, "contact")),
                _ => format!("{} removed from the list.", plural(done.removed, "contact")),
            })
        })
    }
}

fn read(file: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let done = if file == Path::new("-") {
        std::io::stdin().lock().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(file).map(|found| text = found)
    };
    done.map_err(|error| CliError::new(exit::USAGE, format!("{} cannot be read: {error}", file.display())))?;
    Ok(text)
}

impl ListSuppressed {
    fn run(self) -> Result<(), CliError> {
        let request =
            ListRequest { path: "/suppressions", filters: vec![], empty: "No suppressed contacts.", details: "" };
        self.args.run(request, |items: &[SuppressionView]| {
            let mut table = Table::new([
                Column::Wrap("CONTACT"),
                Column::Whole("CHANNEL"),
                Column::Whole("SINCE"),
                Column::Wrap("BY"),
                Column::Wrap("WHY"),
            ]);
            for item in items {
                table.row([
                    Cell::from(item.contact.as_str()),
                    if item.channel.is_empty() { "any".into() } else { item.channel.as_str().into() },
                    ago(&item.at).into(),
                    item.actor.as_str().into(),
                    item.reason.as_str().into(),
                ]);
            }
            (table, String::new())
        })
    }
}

/// Turn safe mode on or off: safer messages, stricter policies or held jobs
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "The `safe_mode:` section of a worker sets the behaviour; expressions see `safe_mode`. Safe mode ends automatically and survives restarts.\n\n\
Examples:\n  sluice safe-mode on --worker cart-recovery --for 2h --reason \"partner is throttling us\"\n  sluice safe-mode on --for 30m --reason \"incident 42\"\n  sluice safe-mode off --reason \"over\"\n  sluice safe-mode"
)]
pub struct SafeModeCommand {
    #[command(subcommand)]
    command: Option<SafeModeAct>,
    #[command(flatten)]
    show: ShowSafeMode,
}

#[derive(Debug, clap::Subcommand)]
enum SafeModeAct {
    /// Turn safe mode on
    On(TurnOn),
    /// Turn safe mode off
    Off(TurnOff),
}

#[derive(Debug, clap::Args)]
struct ShowSafeMode {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct TurnOn {
    /// Only this worker
    #[arg(long)]
    worker: Option<String>,
    /// Duration, such as 1h; the worker's `safe_mode.for` by default
    #[arg(long, value_name = "DURATION")]
    r#for: Option<String>,
    /// Reason, recorded in the audit trail
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    show: ShowSafeMode,
}

#[derive(Debug, clap::Args)]
struct TurnOff {
    /// Only this worker
    #[arg(long)]
    worker: Option<String>,
    /// Reason, recorded in the audit trail
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    show: ShowSafeMode,
}

impl SafeModeCommand {
    pub fn run(self) -> Result<(), CliError> {
        let (order, show) = match self.command {
            None => (None, self.show),
            Some(SafeModeAct::On(on)) => {
                let order = json!({
                    "on": true, "worker": on.worker, "for": on.r#for, "reason": on.reason, "actor": on.actor.name(),
                });
                (Some(order), on.show)
            }
            Some(SafeModeAct::Off(off)) => {
                let order =
                    json!({ "on": false, "worker": off.worker, "reason": off.reason, "actor": off.actor.name() });
                (Some(order), off.show)
            }
        };
        show.reach.run(async |client| {
            let answer = match &order {
                Some(order) => client.post("/safe-mode", order).await?,
                None => client.get("/safe-mode", &[]).await?,
            };
            let Some(modes) = show.format.read::<Vec<SafeModeView>>(&answer)? else { return Ok(()) };
            if modes.is_empty() {
                return print::print("Safe mode is off.");
            }
            print::print(&(render(&modes) + &hint("\nTurn it off: sluice safe-mode off --reason \"…\"")))
        })
    }
}

/// Table of workers in safe mode.
pub(super) fn render(modes: &[SafeModeView]) -> String {
    let mut table = Table::new([
        Column::Wrap("SAFE MODE"),
        Column::Whole("SINCE"),
        Column::Whole("ENDS"),
        Column::Wrap("BY"),
        Column::Wrap("WHY"),
    ]);
    for mode in modes {
        table.row([
            Cell::from(mode.worker.as_deref().unwrap_or("all workers")),
            ago(&mode.since).into(),
            ago(&mode.until).into(),
            mode.actor.as_str().into(),
            mode.reason.as_str().into(),
        ]);
    }
    table.render()
}
