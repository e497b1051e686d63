//! Sends the rows of a file to the node, batch by batch, in the order of the import.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_domain::import::{BATCH_ROWS_MAX, ImportCounts, ImportId, ImportRow};
use sluice_domain::unit::Rate;

use super::rejects::{Reject, Rejects};
use super::source::{ImportFile, RowPlace};
use super::time_left;
use crate::cli::node_access::AdminClient;
use crate::cli::print::{self, grouped};
use crate::cli::{CliError, exit};
use crate::operate::views::{ImportStepView, ImportView, RowView};

/// Bytes of the rows of one request.
const BATCH_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// A batch at a rate takes this long.
const BATCH_SPAN: Duration = Duration::from_millis(250);
/// How often a batch is sent again while the node does not respond, with a pause before each.
const RETRIES_MAX: u32 = 10;
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// A wait for jobs that go first is doubled at most so often.
const WAIT_DOUBLINGS_MAX: u32 = 4;
/// Samples of each outcome that are shown.
const SAMPLES_MAX: usize = 5;

/// How fast rows are sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    rate: Option<Rate>,
}

impl Pace {
    pub(super) fn new(rate: Option<Rate>) -> Pace {
        Pace { rate }
    }

    /// Rows of a batch.
    fn rows(self) -> usize {
        let by_rate = self.rate.map(|rate| (BATCH_SPAN.as_secs_f64() / rate.interval().as_secs_f64()).ceil() as usize);
        by_rate.map_or(BATCH_ROWS_MAX, |rows| rows.clamp(1, BATCH_ROWS_MAX))
    }

    /// How long these rows take at the least.
    fn span(self, rows: usize) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| rate.interval() * u32::try_from(rows).unwrap_or(u32::MAX))
    }
}

/// What the rows of a file would become.
#[derive(Debug, Default)]
pub(super) struct Forecast {
    pub counts: ImportCounts,
    pub samples: Vec<RowView>,
    /// Rows that happened before the one that comes before them in the order of the import.
    pub out_of_order: u64,
}

impl Forecast {
    /// Checks the rows behind a position.
    pub(super) async fn of(
        client: &AdminClient,
        file: &mut ImportFile,
        flow: &str,
        position: u64,
    ) -> Result<Forecast, CliError> {
        let mut forecast = Forecast::default();
        if position == 0 {
            file.rejects.iter().for_each(|reject| forecast.add(unreadable(reject)));
        }
        let (mut keys, mut newest) = (HashSet::new(), String::new());
        let mut index = index_of(file, position);
        // Rows that cannot be read count as done: the summary counts them too.
        let unread = file.rejects.len() as u64;
        let progress = Progress::new(file.rows.len() as u64 + unread, index as u64 + unread);
        while index < file.rows.len() {
            let batch = batch(file, index, BATCH_ROWS_MAX)?;
            index += batch.len();
            for mut row in check(client, flow, batch).await? {
                let is_repeated = row.key_digest.as_ref().is_some_and(|key| !keys.insert(key.clone()));
                if is_repeated && row.outcome != "refused" {
                    row = RowView { outcome: "duplicate".to_owned(), code: None, detail: None, ..row };
                }
                let at = row.occurred_at.clone().unwrap_or_default();
                forecast.out_of_order += u64::from(!at.is_empty() && at < newest);
                newest = newest.max(at);
                forecast.add(row);
            }
            progress.show("checked", index as u64 + unread, "");
        }
        progress.end();
        Ok(forecast)
    }

    fn add(&mut self, row: RowView) {
        let count = match row.outcome.as_str() {
            "accepted" => &mut self.counts.accepted,
            "duplicate" => &mut self.counts.duplicates,
            "quarantined" => &mut self.counts.quarantined,
            _ => &mut self.counts.refused,
        };
        *count += 1;
        let alike = self.samples.iter().filter(|sample| sample.outcome == row.outcome).count();
        if row.outcome != "accepted" && alike < SAMPLES_MAX {
            self.samples.push(row);
        }
    }

    pub(super) fn summary(&self) -> Value {
        let ImportCounts { accepted, duplicates, quarantined, refused } = self.counts;
        json!({
            "rows": self.counts.total(), "accepted": accepted, "duplicates": duplicates, "quarantined": quarantined,
            "refused": refused, "out_of_order": self.out_of_order, "samples": self.samples,
        })
    }
}

fn unreadable(reject: &Reject) -> RowView {
    RowView {
        line: reject.line,
        outcome: "refused".to_owned(),
        code: Some(reject.code.clone()),
        detail: Some(match &reject.column {
            Some(column) => format!("column {column}: {}", reject.reason),
            None => reject.reason.clone(),
        }),
        ..RowView::default()
    }
}

/// A running import.
#[derive(Debug)]
pub(super) struct Session {
    pub import: ImportView,
    pub pace: Pace,
    progress: Option<Progress>,
}

impl Session {
    /// Starts the import, or continues it.
    pub(super) async fn start(client: &AdminClient, order: &Value) -> Result<Session, CliError> {
        let import = print::deserialize(&client.post("/imports", order).await?)?;
        Ok(Session { import, pace: Pace::default(), progress: None })
    }

    /// The import of this file and flow, if it was started before.
    pub(super) async fn known(client: &AdminClient, order: &Value) -> Result<Option<ImportView>, CliError> {
        let text = |name: &str| order[name].as_str().unwrap_or_default();
        let id = ImportId::new(text("flow"), text("content"), order["time_field"].as_str());
        match client.find(&format!("/imports/{id}")).await? {
            Some(found) => print::deserialize(&found).map(Some),
            None => Ok(None),
        }
    }

    /// Finds the refused rows again that an earlier run did not write down.
    pub(super) async fn complete_rejects(
        &self,
        client: &AdminClient,
        file: &mut ImportFile,
        rejects: &mut Rejects,
    ) -> Result<(), CliError> {
        if rejects.len() >= self.import.refused {
            return Ok(());
        }
        let end = index_of(file, self.import.position);
        self.recheck(client, file, (0, end), rejects).await
    }

    /// Checks the rows of a range again, for those that are refused.
    async fn recheck(
        &self,
        client: &AdminClient,
        file: &mut ImportFile,
        (mut index, end): (usize, usize),
        rejects: &mut Rejects,
    ) -> Result<(), CliError> {
        while index < end {
            let batch = batch(file, index, BATCH_ROWS_MAX.min(end - index))?;
            let places: Vec<RowPlace> = file.rows[index..index + batch.len()].to_vec();
            index += batch.len();
            let rows = check(client, &self.import.flow, batch).await?;
            note_refused(file, &places, rows, rejects)?;
        }
        Ok(())
    }

    /// Sends what is left.
    pub(super) async fn run(
        &mut self,
        client: &AdminClient,
        file: &mut ImportFile,
        rejects: &mut Rejects,
    ) -> Result<ImportView, CliError> {
        let unreadable = file.rejects.len() as u64;
        let (mut retries, mut waits) = (0, 0);
        while self.import.state == "running" {
            let started = Instant::now();
            let after = self.import.position;
            let index = index_of(file, after);
            self.show(file, index, waits);
            let rows = batch(file, index, self.pace.rows())?;
            let places: Vec<RowPlace> = file.rows[index..index + rows.len()].to_vec();
            let order = json!({
                "after": after, "rows": rows, "unreadable": if after == 0 { unreadable } else { 0 },
                "last": index + places.len() == file.rows.len(),
            });
            let answer = client.post(&format!("/imports/{}/rows", self.import.id), &order).await;
            let step: ImportStepView = match answer {
                Ok(answer) => print::deserialize(&answer)?,
                // The node may be busy or restarting. The rows are taken once, however often they are sent.
                Err(error) if error.code == exit::UNAVAILABLE && retries < RETRIES_MAX => {
                    retries += 1;
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
                Err(error) => {
                    let message = format!("{}\nRun the same command again to continue.", error.message);
                    return Err(CliError::new(error.code, message));
                }
            };
            retries = 0;
            let moved_on = !step.taken && step.import.position > after;
            self.import = step.import;
            note_refused(file, &places, step.rows, rejects)?;
            if moved_on {
                // Taken before, by a request whose response was lost.
                let end = index_of(file, self.import.position);
                self.recheck(client, file, (index, end), rejects).await?;
            }
            waits = if step.wait_ms.is_some() { waits + 1 } else { 0 };
            let pause = match step.wait_ms {
                Some(wait) => Duration::from_millis(wait) * (1 << (waits - 1).min(WAIT_DOUBLINGS_MAX)),
                None => self.pace.span(places.len()).saturating_sub(started.elapsed()),
            };
            tokio::time::sleep(pause).await;
        }
        match self.import.state.as_str() {
            "done" => Ok(self.import.clone()),
            state => {
                let message = format!("the import is {state}; run the same command again to continue");
                Err(CliError::new(exit::NO, message))
            }
        }
    }

    fn show(&mut self, file: &ImportFile, index: usize, waits: u32) {
        let unread = file.rejects.len() as u64;
        let (total, done) = (file.rows.len() as u64 + unread, index as u64 + unread);
        let progress = self.progress.get_or_insert_with(|| Progress::new(total, done));
        let refused = match self.import.refused {
            0 => String::new(),
            refused => format!(", {} refused", grouped(refused)),
        };
        let waiting = if waits > 1 { ", waiting: jobs go first" } else { "" };
        progress.show("rows", done, &format!("{refused}{waiting}"));
    }

    pub(super) fn end_progress(&self) {
        self.progress.iter().for_each(Progress::end);
    }
}

/// The row behind a position. The rows that cannot be read are counted with the first batch.
fn index_of(file: &ImportFile, position: u64) -> usize {
    let index = position.saturating_sub(file.rejects.len() as u64);
    usize::try_from(index).unwrap_or(usize::MAX).min(file.rows.len())
}

/// Rows from this one on, as many as one request takes.
fn batch(file: &mut ImportFile, index: usize, rows_max: usize) -> Result<Vec<Value>, CliError> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while rows.len() < rows_max
        && let Some(place) = file.rows.get(index + rows.len()).copied()
    {
        bytes += u64::from(place.bytes());
        if bytes > BATCH_BYTES_MAX && !rows.is_empty() {
            break;
        }
        let row = file.read(place)?;
        rows.push(request_row(place, row));
    }
    Ok(rows)
}

fn request_row(place: RowPlace, row: ImportRow) -> Value {
    let headers: serde_json::Map<String, Value> =
        row.headers.into_iter().map(|(name, value)| (name, Value::String(value))).collect();
    json!({
        "line": place.line(), "payload": row.payload, "headers": headers, "key": row.key,
        "occurred_at": row.times.occurred_at, "received_at": row.times.received_at, "occurrence": place.occurrence,
    })
}

async fn check(client: &AdminClient, flow: &str, rows: Vec<Value>) -> Result<Vec<RowView>, CliError> {
    print::deserialize(&client.post("/imports/check", &json!({ "flow": flow, "rows": rows })).await?)
}

fn note_refused(
    file: &mut ImportFile,
    places: &[RowPlace],
    rows: Vec<RowView>,
    rejects: &mut Rejects,
) -> Result<(), CliError> {
    for row in rows.into_iter().filter(|row| row.outcome == "refused") {
        let Some(place) = places.iter().find(|place| place.line() == row.line).copied() else { continue };
        let text = file.text(place)?;
        let why = (row.code.as_deref().unwrap_or_default(), row.detail.unwrap_or_default());
        rejects.add(Reject::new(row.line, None, why, &text));
    }
    Ok(())
}

/// Progress on a terminal.
#[derive(Debug)]
struct Progress {
    total: u64,
    first: u64,
    started: Instant,
    shown: std::cell::Cell<Option<Instant>>,
    is_terminal: bool,
}

impl Progress {
    fn new(total: u64, first: u64) -> Progress {
        let (started, shown) = (Instant::now(), std::cell::Cell::new(None));
        Progress { total, first, started, shown, is_terminal: std::io::stderr().is_terminal() }
    }

    fn show(&self, what: &str, done: u64, more: &str) {
        const PACE: Duration = Duration::from_millis(500);
        if !self.is_terminal || self.shown.get().is_some_and(|shown| shown.elapsed() < PACE) {
            return;
        }
        self.shown.set(Some(Instant::now()));
        let per_second = (done - self.first) as f64 / self.started.elapsed().as_secs_f64().max(0.001);
        let percent = done * 100 / self.total.max(1);
        let left = time_left(self.total - done, per_second);
        let (done, total) = (grouped(done), grouped(self.total));
        anstream::eprint!("\r\x1b[K{done} of {total} {what} ({percent} %), {per_second:.0}/s, {left} left{more}");
    }

    fn end(&self) {
        if self.shown.get().is_some() {
            anstream::eprint!("\r\x1b[K");
        }
    }
}
