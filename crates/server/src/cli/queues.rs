//! `sluice flows` and `sluice queues`.

use super::CliError;
use super::node_access::NodeArgs;
use super::print::{self, Format, ago};
use super::table::{Cell, Column, Table};
use crate::operate::views::{FlowDetail, QueueView};

/// List flows with their routes, queues and workers
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sluice flows\n  sluice flows --json")]
pub struct Flows {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

/// List queues with their jobs, dead letters and workers
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sluice queues\n  sluice pause queue:leads --reason maintenance")]
pub struct Queues {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Flows {
    pub fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get("/flows", &[]).await?;
            let Some(flows) = self.format.read::<Vec<FlowDetail>>(&answer)? else { return Ok(()) };
            if flows.is_empty() {
                return print::print("No flows.");
            }
            let mut table = Table::new([
                Column::Wrap("FLOW"),
                Column::Wrap("SOURCE"),
                Column::Wrap("ROUTE"),
                Column::Whole("VERIFY"),
                Column::Wrap("QUEUES"),
                Column::Wrap("WORKERS"),
                Column::Whole("KEYS"),
            ]);
            for flow in &flows {
                let name = if flow.paused { format!("{} (paused)", flow.name) } else { flow.name.clone() };
                table.row([
                    Cell::from(name),
                    flow.source.as_str().into(),
                    flow.route.as_str().into(),
                    flow.verify.as_str().into(),
                    flow.queues.join(", ").into(),
                    flow.workers.join(", ").into(),
                    flow.key_lifetime.as_str().into(),
                ]);
            }
            print::print(&table.render())
        })
    }
}

impl Queues {
    pub fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get("/queues", &[]).await?;
            let Some(queues) = self.format.read::<Vec<QueueView>>(&answer)? else { return Ok(()) };
            if queues.is_empty() {
                return print::print("No queues.");
            }
            let mut table = Table::new([
                Column::Wrap("QUEUE"),
                Column::Number("LIVE"),
                Column::Number("DEAD"),
                Column::Whole("OLDEST"),
                Column::Wrap("WORKERS"),
                Column::Whole("RETENTION"),
                Column::Wrap("DEAD LETTERS TO"),
            ]);
            for queue in &queues {
                let name = if queue.paused { format!("{} (paused)", queue.name) } else { queue.name.clone() };
                table.row([
                    Cell::from(name),
                    queue.live.into(),
                    queue.dead_letters.into(),
                    queue.oldest_at.as_deref().map(ago).unwrap_or_default().into(),
                    queue.workers.join(", ").into(),
                    queue.retention.as_str().into(),
                    queue.dead_letter_queue.clone().unwrap_or_default().into(),
                ]);
            }
            print::print(&table.render())
        })
    }
}
