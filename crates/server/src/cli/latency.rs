//! `sluice latency`.

use std::time::Duration;

use super::CliError;
use super::node_access::NodeArgs;
use super::print::{self, Format};
use super::table::{Cell, Column, Table};
use super::up::duration;
use crate::operate::views::LatencyView;
use sluice_domain::unit::format_duration;

/// Show latencies of the last minutes, hours or days
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The history has minutes of the last day, hours of the last 92 days and days of the last two years; the minute that is \
open is not shown yet.\n\nExamples:\n  sluice latency --window 15m --percentile 95\n  sluice latency --measure queue_seconds --window 7d"
)]
pub struct Latency {
    /// Time window before now
    #[arg(long, default_value = "15m", value_parser = duration)]
    window: Duration,
    /// Percentile between 0 and 100
    #[arg(long, default_value = "95")]
    percentile: f64,
    /// effect_seconds (from the request to the applied effect), call_seconds or queue_seconds
    #[arg(long, default_value = "effect_seconds")]
    measure: String,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Latency {
    pub fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let query = [
                ("window", Some(format_duration(self.window))),
                ("percentile", Some(self.percentile.to_string())),
                ("measure", Some(self.measure.clone())),
            ];
            let answer = client.get("/latency", &query).await?;
            let Some(latencies) = self.format.read::<Vec<LatencyView>>(&answer)? else { return Ok(()) };
            if latencies.is_empty() {
                let window = format_duration(self.window);
                return print::print(&format!("No {} in the last {window}.", self.measure));
            }
            print::print(&self.render(&latencies))
        })
    }

    fn render(&self, latencies: &[LatencyView]) -> String {
        let name = if self.measure == "queue_seconds" { "WORKER" } else { "DESTINATION" };
        let mut table = Table::new([
            Column::Wrap(name),
            Column::Number("COUNT"),
            Column::Number("MEAN"),
            Column::Number("PERCENTILE"),
        ]);
        for latency in latencies {
            table.row([
                Cell::from(latency.name.as_str()),
                latency.count.into(),
                seconds(latency.mean).into(),
                seconds(latency.percentile).into(),
            ]);
        }
        table.render()
    }
}

/// With three digits, as `12.3ms` or `4.56s`.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.1}ms", seconds * 1000.0) } else { format!("{seconds:.2}s") }
}
