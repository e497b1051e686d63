//! `sluice responses`: deadlines that run.

use super::CliError;
use super::lists::{ListArgs, ListRequest};
use super::print::ago;
use super::table::{Cell, Column, Table, state};
use crate::operate::views::ResponseView;

/// List events that wait for their response, with their deadlines
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sluice responses\n  sluice responses --limit 100 --json")]
pub struct Responses {
    #[command(flatten)]
    args: ListArgs,
}

impl Responses {
    pub fn run(self) -> Result<(), CliError> {
        let request = ListRequest {
            path: "/responses",
            filters: vec![],
            empty: "No event waits for a response.",
            details: "sluice jobs show JOB",
        };
        self.args.run(request, |items: &[ResponseView]| {
            let mut table = Table::new([
                Column::Whole("STATE"),
                Column::Whole("DEADLINE"),
                Column::Wrap("FLOW"),
                Column::Wrap("UNTIL"),
                Column::Whole("JOB"),
                Column::Wrap("EVENT"),
            ]);
            for clock in items {
                let until = match &clock.step {
                    Some(step) => format!("{}.{step}", clock.worker),
                    None => clock.worker.clone(),
                };
                table.row([
                    state(&clock.state),
                    Cell::from(ago(&clock.deadline)),
                    clock.flow.as_str().into(),
                    until.into(),
                    clock.job.as_str().into(),
                    clock.event.as_str().into(),
                ]);
            }
            (table, String::new())
        })
    }
}
