//! `sluice responses`: deadlines that run.

use super::CliError;
use super::lists::{Paging, footer};
use super::node_access::NodeArgs;
use super::print::{self, Format, ago};
use super::table::{Cell, Column, Table, state};
use crate::operate::views::{List, ResponseView};

/// List events that wait for their response, with their deadlines
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sluice responses\n  sluice responses --limit 100 --json")]
pub struct Responses {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Responses {
    pub fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get("/responses", &self.paging.query()).await?;
            let Some(list) = self.format.read::<List<ResponseView>>(&answer)? else { return Ok(()) };
            if list.items.is_empty() {
                return print::print("No event waits for a response.");
            }
            let mut table = Table::new([
                Column::Whole("STATE"),
                Column::Whole("DEADLINE"),
                Column::Wrap("FLOW"),
                Column::Wrap("UNTIL"),
                Column::Whole("JOB"),
                Column::Wrap("EVENT"),
            ]);
            for clock in &list.items {
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
            print::print(&(table.render() + &footer(list.next.as_deref(), "sluice jobs show JOB")))
        })
    }
}
