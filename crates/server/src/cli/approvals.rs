//! `sluice approvals`: list and decide approvals.

use serde_json::json;
use sluice_domain::approval::Choice;
use sluice_domain::time::Time;

use super::lists::{ListArgs, ListRequest};
use super::node_access::{AdminClient, NodeArgs};
use super::print::{self, Format, ago, hint, moment, plural};
use super::selection::{Actor, confirm_many, ledger_time};
use super::table::{Cell, Column, Table, pairs, state};
use super::{CliError, exit};
use crate::operate::views::{ApprovalView, BulkResult};

/// List and decide approvals
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "The first decision counts. The same decision again is accepted; a different one is rejected.\n\n\
Examples:\n  sluice approvals\n  sluice approvals show apr_…\n  sluice approvals approve apr_… --reason \"looks right\"\n  sluice approvals reject --filter worker=holiday-promo --reason \"wrong price\"\n  sluice approvals approve --all --reason \"checked ten of them\" --yes"
)]
pub struct Approvals {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListApprovals,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List approvals, newest first; pending ones by default
    List(ListApprovals),
    /// Show one approval
    Show(Show),
    /// Approve: the jobs continue
    Approve(Answer),
    /// Reject: the jobs end as no-ops
    Reject(Answer),
}

#[derive(Debug, clap::Args)]
struct ListApprovals {
    /// pending, approved, rejected or all
    #[arg(long, default_value = "pending", value_parser = ["pending", "approved", "rejected", "all"])]
    state: String,
    /// Only of this worker
    #[arg(long)]
    worker: Option<String>,
    #[command(flatten)]
    args: ListArgs,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Approval id: apr_…
    id: String,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(false))]
struct Answer {
    /// Approval ids: apr_…
    #[arg(value_name = "ID", group = "which")]
    ids: Vec<String>,
    /// Every pending approval of a worker
    #[arg(long, value_name = "worker=NAME", group = "which", value_parser = worker)]
    filter: Option<String>,
    /// Every pending approval
    #[arg(long, group = "which")]
    all: bool,
    /// Reason, recorded in the audit trail
    #[arg(long)]
    reason: String,
    /// Show the number without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

fn worker(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some(("worker", name)) if !name.trim().is_empty() => Ok(name.trim().to_owned()),
        _ => Err("write worker=NAME".to_owned()),
    }
}

impl Approvals {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            None => self.list.run(),
            Some(Command::List(list)) => list.run(),
            Some(Command::Show(show)) => show.run(),
            Some(Command::Approve(answer)) => answer.run(Choice::Approve),
            Some(Command::Reject(answer)) => answer.run(Choice::Reject),
        }
    }
}

impl ListApprovals {
    fn run(self) -> Result<(), CliError> {
        let wanted = Some(self.state.clone()).filter(|state| state != "all");
        let request = ListRequest {
            path: "/approvals",
            filters: vec![("state", wanted), ("worker", self.worker)],
            empty: if self.state == "pending" { "No pending approvals." } else { "No approval matches." },
            details: "sluice approvals show APPROVAL",
        };
        self.args.run(request, |items: &[ApprovalView]| {
            let mut table = Table::new([
                Column::Whole("APPROVAL"),
                Column::Whole("STATE"),
                Column::Wrap("TITLE"),
                Column::Wrap("WORKER"),
                Column::Whole("ASKED"),
                Column::Whole("EXPIRES"),
                Column::Wrap("BY"),
            ]);
            for item in items {
                table.row([
                    Cell::from(item.id.as_str()),
                    state(&item.state),
                    item.title.as_str().into(),
                    item.worker.as_str().into(),
                    ago(&item.asked_at).into(),
                    if item.decided_at.is_some() { "".into() } else { ago(&item.expires_at).into() },
                    item.decided_by.as_deref().unwrap_or_default().into(),
                ]);
            }
            let waits = items.iter().any(|item| item.decided_at.is_none());
            let decide = hint("Decide: sluice approvals approve|reject APPROVAL --reason \"…\"");
            (table, if waits { decide } else { String::new() })
        })
    }
}

impl Show {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get(&format!("/approvals/{}", self.id), &[]).await?;
            let Some(view) = self.format.read::<ApprovalView>(&answer)? else { return Ok(()) };
            print::print(&render(&view))
        })
    }
}

fn render(view: &ApprovalView) -> String {
    let expires = match view.decided_at {
        None => format!("{}; then it is {}", moment(&view.expires_at), past(&view.default)),
        Some(_) => String::new(),
    };
    let decided = view
        .decided_at
        .as_deref()
        .map(|at| format!("{} by {}", moment(at), view.decided_by.as_deref().unwrap_or("unknown")));
    pairs([
        ("approval", view.id.clone()),
        ("state", view.state.clone()),
        ("title", view.title.clone()),
        ("summary", view.summary.clone()),
        ("job", format!("{} ({}, step {})", view.job, view.worker, view.step)),
        ("asked", moment(&view.asked_at)),
        ("expires", expires),
        ("decided", decided.unwrap_or_default()),
        ("reason", view.reason.clone().unwrap_or_default()),
    ])
}

fn past(choice: &str) -> &str {
    match choice {
        "approve" => "approved",
        _ => "rejected",
    }
}

impl Answer {
    fn run(self, choice: Choice) -> Result<(), CliError> {
        self.reach.run(async |client| {
            if let ([id], false) = (self.ids.as_slice(), self.dry_run) {
                let order = json!({ "decision": choice, "reason": self.reason, "actor": self.actor.name() });
                let answer = client.post(&format!("/approvals/{id}"), &order).await?;
                let Some(view) = self.format.read::<ApprovalView>(&answer)? else { return Ok(()) };
                let consequence = if view.state == "approved" { "continues" } else { "ends as a no-op" };
                return print::print(&format!("{} is {}; {} {consequence}.", view.id, view.state, view.job));
            }
            let mut asked_before = None;
            if self.ids.is_empty() && !self.yes && !self.dry_run {
                // What was counted is what is decided: later questions are not among them.
                asked_before = Some(ledger_time(client).await?);
                let order = self.order(choice, asked_before, true);
                let counted: BulkResult = print::deserialize(&client.post("/approvals", &order).await?)?;
                if counted.changed > 0 {
                    let questions = plural(counted.changed, "approval");
                    confirm_many(choice.as_str(), choice.state().as_str(), &questions)?;
                }
            }
            self.answer_many(client, choice, asked_before).await
        })
    }

    fn order(&self, choice: Choice, asked_before: Option<Time>, dry_run: bool) -> serde_json::Value {
        json!({
            "decision": choice, "reason": self.reason, "actor": self.actor.name(), "ids": self.ids,
            "worker": self.filter, "all": self.all, "asked_before": asked_before.map(|at| at.to_string()),
            "dry_run": dry_run,
        })
    }

    async fn answer_many(
        &self,
        client: &AdminClient,
        choice: Choice,
        asked_before: Option<Time>,
    ) -> Result<(), CliError> {
        let answer = client.post("/approvals", &self.order(choice, asked_before, self.dry_run)).await?;
        let acted: BulkResult = print::deserialize(&answer)?;
        if self.format.json {
            print::json(&answer)?;
        } else {
            let questions = plural(acted.changed, "approval");
            let mut text = match (acted.dry_run, acted.matched) {
                (_, 0) => "No approval matches; nothing was changed.\n".to_owned(),
                (true, _) => format!("{questions} would be {}.\n", choice.state().as_str()),
                (false, _) => format!("{questions} {}.\n", choice.state().as_str()),
            };
            for skipped in &acted.skipped {
                text.push_str(&format!("{}: {}\n", skipped.job, skipped.reason));
            }
            print::print(&text)?;
        }
        if acted.changed == 0 { Err(CliError::new(exit::NO, "")) } else { Ok(()) }
    }
}
