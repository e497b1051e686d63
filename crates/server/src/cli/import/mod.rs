//! `sluice import`: feeds a file through a flow.

mod rejects;
mod session;
mod source;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use sluice_domain::unit::{self, Rate, format_duration};

use self::rejects::Rejects;
use self::session::{Forecast, Pace, Session};
use self::source::{FileFormat, ImportFile, RowRules};
use super::node_access::{AdminClient, NodeArgs};
use super::print::{self, grouped, hint, plural};
use super::selection::Actor;
use super::table::{Cell, Column, Table, pairs};
use super::{CliError, Stop, exit, flow};
use crate::operate::views::ImportView;

/// Import a file of events through a flow; a stopped import continues
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Rows go the way of requests: the same mapping, keys and duplicates; nothing is verified. The same file and flow are the same import: a stopped one continues, a finished one does nothing. Rows that cannot be imported are in FILE.rejects.ndjson. Exit code 1: some are.\n\n\
Examples:\n  sluice import leads.csv --flow website-leads --dry-run\n  sluice import events.ndjson --flow website-leads --reason \"history of 2025\" --rate 50/s\n  sluice imports"
)]
pub struct ImportCommand {
    /// NDJSON with a payload or an exported event per line, or CSV with a header
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Flow that the rows go through
    #[arg(long, value_name = "NAME")]
    flow: String,
    /// Format; that of the file name by default
    #[arg(long, value_enum)]
    format: Option<ImportFormat>,
    /// Character between the cells of a CSV file
    #[arg(long, default_value = ",", value_name = "CHARACTER")]
    delimiter: String,
    /// Field with the time that orders the rows; occurred_at by default
    #[arg(long, value_name = "FIELD")]
    time: Option<String>,
    /// Header of every payload, for flows that read some; may be repeated. Exported events have their own
    #[arg(long, value_name = "NAME: VALUE", value_parser = flow::header)]
    header: Vec<(String, String)>,
    /// Rows per time, such as 50/s; no limit by default
    #[arg(long, value_name = "N/s", value_parser = rate)]
    rate: Option<Rate>,
    /// Reason, recorded in the audit trail
    #[arg(long, required_unless_present = "dry_run")]
    reason: Option<String>,
    /// Show what the rows would become without importing them
    #[arg(long)]
    dry_run: bool,
    /// Do not check the rows first and do not ask for confirmation
    #[arg(long, short, conflicts_with = "dry_run")]
    yes: bool,
    #[command(flatten)]
    actor: Actor,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ImportFormat {
    /// One JSON object per line
    Ndjson,
    /// Comma-separated values with a header
    Csv,
}

fn rate(text: &str) -> Result<Rate, String> {
    unit::rate(text).map_err(|problem| problem.to_string())
}

impl ImportCommand {
    pub fn run(self) -> Result<(), CliError> {
        let rules = RowRules {
            format: self.format()?,
            flow: self.flow.clone(),
            time_field: self.time.clone(),
            headers: self.header.clone(),
        };
        let mut file = ImportFile::open(&self.file, rules)?;
        self.reach.run(async |client| {
            if self.dry_run {
                let forecast = self.forecast(client, &mut file, 0).await?;
                return self.report_forecast(&forecast);
            }
            self.import(client, &mut file).await
        })
    }

    fn format(&self) -> Result<FileFormat, CliError> {
        let usage = |message: String| CliError::new(exit::USAGE, message);
        let delimiter = match self.delimiter.as_str() {
            "\\t" | "tab" => b'\t',
            text => match text.as_bytes() {
                [byte] if byte.is_ascii() && !byte.is_ascii_alphanumeric() && *byte != b'"' => *byte,
                _ => return Err(usage(format!("--delimiter is one character, such as `;` or tab, not `{text}`"))),
            },
        };
        let by_name = match self.file.extension().and_then(|extension| extension.to_str()) {
            Some("csv" | "tsv") => Some(ImportFormat::Csv),
            Some("ndjson" | "jsonl" | "json") => Some(ImportFormat::Ndjson),
            _ => None,
        };
        match self.format.or(by_name) {
            Some(ImportFormat::Csv) => Ok(FileFormat::Csv { delimiter }),
            Some(ImportFormat::Ndjson) => Ok(FileFormat::Ndjson),
            None => Err(usage(format!("the format of {} is not known; use --format", self.file.display()))),
        }
    }

    async fn import(&self, client: &AdminClient, file: &mut ImportFile) -> Result<(), CliError> {
        let reason = self.reason.clone().unwrap_or_default();
        let name = self.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !self.yes {
            let known = Session::known(client, &self.order(file, &name, &reason)).await?;
            let done = known.as_ref().map_or(0, |import| import.position);
            if known.as_ref().is_none_or(|import| import.state != "done") {
                let forecast = self.forecast(client, file, done).await?;
                anstream::eprint!("{}", render_forecast(&forecast));
                self.confirm(&forecast)?;
            }
        }
        let started = Session::start(client, &self.order(file, &name, &reason)).await?;
        if started.import.state == "done" {
            return self.report(client, &started.import, None, Some("It was imported before; nothing was done."));
        }
        let position = started.import.position;
        let mut rejects = Rejects::open(&self.file, position > 0)?;
        file.rejects.iter().for_each(|reject| rejects.add(reject.clone()));
        let mut session = started;
        session.pace = Pace::new(self.rate);
        session.complete_rejects(client, file, &mut rejects).await?;
        let mut stop = Stop::listen()?;
        let ended = tokio::select! {
            ended = session.run(client, file, &mut rejects) => ended,
            () = stop.asked() => {
                let message = "stopped; run the same command again to continue";
                Err(CliError::new(exit::NO, message))
            }
        };
        session.end_progress();
        rejects.write()?;
        let import = ended?;
        self.report(client, &import, Some(&rejects), None)
    }

    fn order(&self, file: &ImportFile, name: &str, reason: &str) -> serde_json::Value {
        let rows = file.rows.len() + file.rejects.len();
        json!({
            "flow": self.flow, "content": file.digest, "time_field": self.time, "file": name, "rows": rows,
            "reason": reason, "actor": self.actor.name(),
        })
    }

    async fn forecast(&self, client: &AdminClient, file: &mut ImportFile, position: u64) -> Result<Forecast, CliError> {
        Forecast::of(client, file, &self.flow, position).await
    }

    fn confirm(&self, forecast: &Forecast) -> Result<(), CliError> {
        let rows = plural(forecast.counts.accepted + forecast.counts.quarantined, "row");
        if !std::io::stdin().is_terminal() {
            let message = format!("{rows} would be imported; no terminal for the confirmation, use --yes");
            return Err(CliError::new(exit::USAGE, message));
        }
        anstream::eprint!("Import {rows} through {}? [y/N] ", self.flow);
        let _ = std::io::stderr().flush();
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        match read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            true => Ok(()),
            false => Err(CliError::new(exit::NO, "nothing was imported")),
        }
    }

    fn report_forecast(&self, forecast: &Forecast) -> Result<(), CliError> {
        match self.json {
            true => print::json(&forecast.summary())?,
            false => print::print(&render_forecast(forecast))?,
        }
        if forecast.counts.refused > 0 { Err(CliError::new(exit::NO, "")) } else { Ok(()) }
    }

    fn report(
        &self,
        client: &AdminClient,
        import: &ImportView,
        rejects: Option<&Rejects>,
        note: Option<&str>,
    ) -> Result<(), CliError> {
        let refused = rejects.filter(|rejects| rejects.len() > 0);
        if self.json {
            let rejects = refused.map(|rejects| rejects.path().display().to_string());
            print::json(&json!({ "import": import, "rejects": rejects }))?;
        } else {
            let mut text = render(import);
            if let Some(rejects) = refused {
                text.push_str(&format!(
                    "\n{} not imported: {}\n",
                    plural(rejects.len(), "row"),
                    rejects.path().display()
                ));
            }
            text.push_str(&note.map(hint).unwrap_or_default());
            if client.is_offline() && note.is_none() {
                text.push_str(&hint("No node is running: the jobs run when one starts (`sluice up`)."));
            }
            print::print(&text)?;
        }
        if refused.is_some() { Err(CliError::new(exit::NO, "")) } else { Ok(()) }
    }
}

/// An import as a list of its properties.
pub(super) fn render(import: &ImportView) -> String {
    pairs([
        ("import", import.id.clone()),
        ("state", import.state.clone()),
        ("file", import.file.clone()),
        ("flow", import.flow.clone()),
        ("rows", format!("{} of {}", grouped(import.position), grouped(import.rows))),
        ("accepted", grouped(import.accepted)),
        ("duplicates", grouped(import.duplicates)),
        ("quarantined", grouped(import.quarantined)),
        ("refused", grouped(import.refused)),
        ("started", print::moment(&import.created_at)),
        ("last row", print::moment(&import.updated_at)),
        ("by", import.actor.clone()),
        ("reason", import.reason.clone()),
    ])
}

fn render_forecast(forecast: &Forecast) -> String {
    let counts = forecast.counts;
    let mut text = format!(
        "Of {}: {} would be accepted, {}, {} quarantined, {} refused.\n",
        plural(counts.total(), "row"),
        grouped(counts.accepted),
        plural(counts.duplicates, "duplicate"),
        grouped(counts.quarantined),
        grouped(counts.refused),
    );
    if !forecast.samples.is_empty() {
        let mut table = Table::new([
            Column::Number("LINE"),
            Column::Whole("OUTCOME"),
            Column::Wrap("CODE"),
            Column::Wrap("REASON"),
        ]);
        for sample in &forecast.samples {
            table.row([
                Cell::from(sample.line),
                sample.outcome.as_str().into(),
                sample.code.as_deref().unwrap_or_default().into(),
                sample.detail.as_deref().unwrap_or_default().into(),
            ]);
        }
        text.push_str(&table.render());
    }
    if forecast.out_of_order > 0 {
        let rows = plural(forecast.out_of_order, "row");
        text.push_str(&format!(
            "{rows} happened before the row that is imported before them; --time FIELD orders the rows.\n"
        ));
    }
    text
}

/// Time that is left at this speed.
fn time_left(rows: u64, per_second: f64) -> String {
    if per_second <= 0.0 {
        return "?".to_owned();
    }
    format_duration(Duration::from_secs((rows as f64 / per_second).ceil() as u64))
}
