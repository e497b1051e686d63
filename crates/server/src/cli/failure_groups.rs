//! `sluice dlq groups`, `ack`, `resolve` and `reopen`.

use serde_json::{Value, json};

use super::CliError;
use super::lists::{ListArgs, ListRequest};
use super::node_access::NodeArgs;
use super::print::{self, Format, ago};
use super::selection::Actor;
use super::table::{Cell, Column, Table, state};
use crate::operate::views::FailureGroupView;

#[derive(Debug, clap::Args)]
pub(super) struct Groups {
    /// Only in this state: open, acknowledged or resolved
    #[arg(long, value_parser = ["open", "acknowledged", "resolved"])]
    state: Option<String>,
    /// Only of this worker
    #[arg(long)]
    worker: Option<String>,
    /// Only with this failure code
    #[arg(long)]
    code: Option<String>,
    /// Also groups without dead letters, up to 90 days after their last one
    #[arg(long)]
    empty: bool,
    #[command(flatten)]
    args: ListArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Mark {
    /// Failure group, such as group_7
    #[arg(value_name = "GROUP")]
    group: String,
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

impl Groups {
    pub(super) fn run(self) -> Result<(), CliError> {
        let request = ListRequest {
            path: "/dead-letters/groups",
            filters: vec![
                ("state", self.state),
                ("worker", self.worker),
                ("code", self.code),
                ("empty", self.empty.then(|| "true".to_owned())),
            ],
            empty: "No dead letters match. `sluice dlq groups --empty` shows groups of earlier ones.",
            details: "sluice dlq --code CODE --worker WORKER",
        };
        self.args.run(request, |groups: &[FailureGroupView]| (table(groups), String::new()))
    }
}

impl Mark {
    /// `act` is the last part of the route.
    pub(super) fn run(self, act: &str) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let order = json!({ "reason": self.reason, "actor": self.actor.name() });
            let path = format!("/dead-letters/groups/{}/{act}", self.group);
            let answer: Value = client.post(&path, &order).await?;
            let Some(group) = self.format.read::<FailureGroupView>(&answer)? else { return Ok(()) };
            print::print(&table(&[group]).render())
        })
    }
}

fn table(groups: &[FailureGroupView]) -> Table {
    let mut table = Table::new([
        Column::Whole("GROUP"),
        Column::Whole("STATE"),
        Column::Number("NOW"),
        Column::Number("EVER"),
        Column::Wrap("WORKER"),
        Column::Wrap("CODE"),
        Column::Whole("FIRST"),
        Column::Whole("LAST"),
        Column::Wrap("SUCH AS"),
    ]);
    for group in groups {
        let said = match (&group.actor, &group.reason) {
            (Some(actor), Some(reason)) => format!("{actor}: {reason}"),
            _ => group.message.clone(),
        };
        table.row([
            Cell::from(group.id.as_str()),
            state(&group.state),
            group.count.into(),
            group.total.into(),
            group.worker.as_str().into(),
            group.code.as_str().into(),
            ago(&group.first_at).into(),
            ago(&group.last_at).into(),
            said.into(),
        ]);
    }
    table
}
