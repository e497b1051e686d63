//! `sluice export`: events, dead letters and contacts as NDJSON or CSV.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_domain::unit::format_size;

use super::node_access::{AdminClient, NodeArgs};
use super::print::{self, plural};
use super::selection::Actor;
use super::{CliError, Stop, exit};

/// Export events, dead letters or contacts as NDJSON or CSV
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Personal data is masked unless --reveal --reason is set, which needs the permission and leaves audit entries.\n\n\
Examples:\n  sluice export events --source website --since 7d --output events.ndjson\n  sluice export events --reveal --reason \"move to another node\" --output events.ndjson\n  sluice export dead-letters --code timeout --format csv --output dead.csv\n  sluice export contacts --format csv | head"
)]
pub struct ExportCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Export accepted events with their payloads, newest first
    Events(ExportEvents),
    /// Export dead and unknown jobs with their events, newest first
    DeadLetters(ExportDeadLetters),
    /// Export contacts with the values that count, newest first
    Contacts(ExportContacts),
}

#[derive(Debug, clap::Args)]
struct ExportEvents {
    /// Only of this flow
    #[arg(long)]
    flow: Option<String>,
    /// Only from this source
    #[arg(long)]
    source: Option<String>,
    /// Only of this type
    #[arg(long)]
    r#type: Option<String>,
    /// Only with this idempotency key
    #[arg(long)]
    key: Option<String>,
    /// Only about this person: email address, phone number or external id
    #[arg(long)]
    contact: Option<String>,
    /// Only received within this duration (1h) or since this time
    #[arg(long)]
    since: Option<String>,
    /// Only received before this duration ago (1h) or before this time
    #[arg(long)]
    until: Option<String>,
    /// Only with this status: working, done, dead, unknown, dropped or unrouted
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct ExportDeadLetters {
    /// Only of this worker
    #[arg(long)]
    worker: Option<String>,
    /// Only in this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only in this dead-letter queue
    #[arg(long, value_name = "QUEUE")]
    dead_letter_queue: Option<String>,
    /// Only of jobs whose last call went to this destination
    #[arg(long)]
    destination: Option<String>,
    /// Only from this source
    #[arg(long)]
    source: Option<String>,
    /// Only with this failure class, such as permanent or auth
    #[arg(long)]
    class: Option<String>,
    /// Only with this failure code
    #[arg(long)]
    code: Option<String>,
    /// Only changed within this duration (1h) or since this time
    #[arg(long)]
    since: Option<String>,
    /// Only changed before this duration ago (1h) or before this time
    #[arg(long)]
    until: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct ExportContacts {
    /// Only contacts with conflicts
    #[arg(long)]
    conflicts: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ExportFormat {
    /// One JSON object per line
    Ndjson,
    /// Comma-separated values with a header
    Csv,
}

impl ExportFormat {
    fn media_type(self) -> &'static str {
        match self {
            ExportFormat::Ndjson => "application/x-ndjson",
            ExportFormat::Csv => "text/csv",
        }
    }
}

#[derive(Debug, clap::Args)]
struct Output {
    /// Format; that of the file name by default, else ndjson
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// File, replaced once it is complete; standard output by default
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Export personal data; leaves audit entries
    #[arg(long, requires = "reason")]
    reveal: bool,
    /// Reason for exporting personal data, recorded in the audit trail
    #[arg(long, requires = "reveal", value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    actor: Actor,
    /// Print a summary as JSON
    #[arg(long, requires = "output")]
    json: bool,
    #[command(flatten)]
    reach: NodeArgs,
}

type Filters = Vec<(&'static str, Option<String>)>;

impl ExportCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            Command::Events(export) => {
                let filters = vec![
                    ("flow", export.flow),
                    ("source", export.source),
                    ("type", export.r#type),
                    ("key", export.key),
                    ("contact", export.contact),
                    ("since", export.since),
                    ("until", export.until),
                    ("state", export.state),
                ];
                export.output.run("events", filters, None)
            }
            Command::DeadLetters(export) => {
                let filters = vec![
                    ("worker", export.worker),
                    ("queue", export.queue),
                    ("dead_letter_queue", export.dead_letter_queue),
                    ("destination", export.destination),
                    ("source", export.source),
                    ("class", export.class),
                    ("code", export.code),
                    ("since", export.since),
                    ("until", export.until),
                ];
                export.output.run("dead-letters", filters, None)
            }
            Command::Contacts(export) => export.output.run("contacts", vec![], Some(export.conflicts)),
        }
    }
}

impl Output {
    fn run(&self, what: &str, filters: Filters, conflicts: Option<bool>) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let format = self.format();
            let mut sink = match &self.output {
                Some(path) => Sink::file(path, format)?,
                None => Sink::stdout(format),
            };
            let path = format!("/exports/{what}");
            let mut stop = Stop::listen()?;
            let exported = tokio::select! {
                exported = self.download(client, &path, (filters, conflicts), &mut sink) => exported,
                () = stop.asked() => Err(CliError::new(exit::NO, "stopped; no file was written")),
            };
            sink.end_progress();
            exported?;
            self.report(what, sink)
        })
    }

    fn format(&self) -> ExportFormat {
        let by_name = || match self.output.as_ref()?.extension()?.to_str()? {
            "csv" => Some(ExportFormat::Csv),
            _ => None,
        };
        self.format.or_else(by_name).unwrap_or(ExportFormat::Ndjson)
    }

    async fn download(
        &self,
        client: &AdminClient,
        path: &str,
        (filters, conflicts): (Filters, Option<bool>),
        sink: &mut Sink,
    ) -> Result<(), CliError> {
        let accept = sink.format.media_type();
        let part = |bytes: &[u8]| sink.write(bytes);
        let downloaded = match self.reveal {
            true => {
                let mut filter = serde_json::Map::new();
                filter.extend(filters.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
                filter.extend(conflicts.map(|conflicts| ("conflicts".to_owned(), Value::Bool(conflicts))));
                let order = json!({ "filter": filter, "reason": self.reason, "actor": self.actor.name() });
                client.download(path, &[], (Some(&order), accept), part).await
            }
            false => {
                let mut query = filters;
                query.push(("conflicts", conflicts.map(|conflicts| conflicts.to_string())));
                client.download(path, &query, (None, accept), part).await
            }
        };
        downloaded?;
        sink.failure.take().map_or(Ok(()), Err)
    }

    fn report(&self, what: &str, sink: Sink) -> Result<(), CliError> {
        let (rows, bytes) = (sink.rows.count(sink.format), sink.bytes);
        sink.finish()?;
        let Some(path) = &self.output else { return Ok(()) };
        if self.json {
            let summary = json!({
                "exported": what, "rows": rows, "bytes": bytes, "file": path.display().to_string(),
                "revealed": self.reveal,
            });
            return print::json(&summary);
        }
        let masked = if self.reveal { "" } else { ", masked" };
        let size = format_size(bytes);
        print::print(&format!("{} exported to {} ({size}{masked}).", plural(rows, "row"), path.display()))
    }
}

/// Counts records: line breaks outside of quotes.
#[derive(Debug, Default)]
struct RowCounter {
    quoted: bool,
    lines: u64,
}

impl RowCounter {
    fn add(&mut self, bytes: &[u8], format: ExportFormat) {
        for byte in bytes {
            match byte {
                b'"' if format == ExportFormat::Csv => self.quoted = !self.quoted,
                b'\n' if !self.quoted => self.lines += 1,
                _ => {}
            }
        }
    }

    fn count(&self, format: ExportFormat) -> u64 {
        match format {
            ExportFormat::Ndjson => self.lines,
            ExportFormat::Csv => self.lines.saturating_sub(1),
        }
    }
}

/// Where the rows go.
struct Sink {
    format: ExportFormat,
    /// `None` for standard output.
    file: Option<(tempfile::NamedTempFile, PathBuf)>,
    rows: RowCounter,
    bytes: u64,
    failure: Option<CliError>,
    shown: Option<Instant>,
}

impl Sink {
    fn stdout(format: ExportFormat) -> Sink {
        Sink { format, file: None, rows: RowCounter::default(), bytes: 0, failure: None, shown: None }
    }

    /// Rows are written beside the file, which is replaced at the end.
    fn file(path: &Path, format: ExportFormat) -> Result<Sink, CliError> {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let file = tempfile::Builder::new()
            .prefix(".sluice-export-")
            .tempfile_in(directory.unwrap_or(Path::new(".")))
            .map_err(|error| unwritable(path, &error))?;
        Ok(Sink { file: Some((file, path.to_owned())), ..Sink::stdout(format) })
    }

    fn write(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        let written = match &mut self.file {
            Some((file, path)) => file.write_all(bytes).map_err(|error| unwritable(path, &error)),
            None => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
                    // The reader has seen enough.
                    io::ErrorKind::BrokenPipe => CliError::new(exit::OK, ""),
                    _ => CliError::new(exit::UNAVAILABLE, format!("standard output cannot be written: {error}")),
                })
            }
        };
        if let Err(error) = written {
            self.failure = Some(error);
            return ControlFlow::Break(());
        }
        self.rows.add(bytes, self.format);
        self.bytes += bytes.len() as u64;
        self.show_progress();
        ControlFlow::Continue(())
    }

    fn show_progress(&mut self) {
        const PACE: Duration = Duration::from_millis(500);
        if !io::stderr().is_terminal() || self.shown.is_some_and(|shown| shown.elapsed() < PACE) {
            return;
        }
        self.shown = Some(Instant::now());
        let (rows, size) = (plural(self.rows.count(self.format), "row"), format_size(self.bytes));
        anstream::eprint!("\r{rows}, {size} …");
    }

    fn end_progress(&self) {
        if self.shown.is_some() {
            anstream::eprint!("\r\x1b[K");
        }
    }

    fn finish(self) -> Result<(), CliError> {
        let Some((file, path)) = self.file else { return Ok(()) };
        file.as_file().sync_all().map_err(|error| unwritable(&path, &error))?;
        file.persist(&path).map_err(|error| unwritable(&path, &error.error))?;
        Ok(())
    }
}

fn unwritable(path: &Path, error: &io::Error) -> CliError {
    CliError::new(exit::UNAVAILABLE, format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_and_not_lines() {
        let counted = |format, parts: &[&str]| {
            let mut rows = RowCounter::default();
            parts.iter().for_each(|part| rows.add(part.as_bytes(), format));
            rows.count(format)
        };
        assert_eq!(counted(ExportFormat::Ndjson, &["{\"a\":\"", "\\\"\"}\n{}\n"]), 2);
        assert_eq!(counted(ExportFormat::Csv, &["a,b\r\n1,\"x\ny\"", "\"z\"\r\n2,3\r\n"]), 2);
        assert_eq!(counted(ExportFormat::Csv, &[]), 0);
    }
}
