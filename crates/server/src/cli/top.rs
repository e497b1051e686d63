//! `sluice top`: a live view of a node.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::node_access::{AdminClient, NodeArgs};
use super::print::{self, grouped, heading, hint, style_of, styled};
use super::stop::Stop;
use super::table::{Cell, Column, Table, pairs, state};
use super::up::duration;
use super::{CliError, exit};
use crate::operate::views::{AlertView, CounterView, DestinationView, LatencyView, Status, WorkerView};

/// Time window of the latencies.
const WINDOW: &str = "15m";

/// Show rates, depths, ages, latencies and gates live
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Rates are those between two looks. Latencies are percentiles of the last 15 minutes, without the minute that is open.\n\
Ctrl-C ends it.\n\nExamples:\n  sluice top\n  sluice top --once\n  sluice top --once --json --interval 10s"
)]
pub struct Top {
    /// Time between two looks
    #[arg(long, default_value = "2s", value_parser = duration)]
    interval: Duration,
    /// Print one look and end; always so if the output is not a terminal
    #[arg(long)]
    once: bool,
    /// Print one look as JSON and end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: NodeArgs,
}

/// What the node answered at one time.
#[derive(Debug)]
struct Look {
    at: Instant,
    status: Status,
    workers: Vec<WorkerView>,
    destinations: Vec<DestinationView>,
    totals: Vec<CounterView>,
    alerts: Vec<AlertView>,
    /// 95th percentiles by name.
    queue_seconds: BTreeMap<String, f64>,
    call_seconds: BTreeMap<String, f64>,
    effect_seconds: BTreeMap<String, f64>,
}

/// Everything that is shown. Rates are per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct TopView {
    interval_seconds: f64,
    events_per_second: f64,
    duplicates_per_second: f64,
    jobs: BTreeMap<String, u64>,
    alerts: Vec<String>,
    paused: Vec<String>,
    sources: Vec<SourceRow>,
    workers: Vec<WorkerRow>,
    destinations: Vec<DestinationRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct SourceRow {
    source: String,
    events_per_second: f64,
    duplicates_per_second: f64,
    events_total: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct WorkerRow {
    worker: String,
    paused: bool,
    live: u64,
    /// When the oldest live job was created.
    oldest_at: Option<String>,
    finished_per_second: f64,
    dead: u64,
    queue_p95_seconds: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct DestinationRow {
    destination: String,
    /// closed, half-open, open or paused; empty without a running node.
    gate: String,
    in_flight: u64,
    concurrency: u64,
    calls_per_second: f64,
    /// Share of these calls that failed or were throttled; absent without calls.
    failed_share: Option<f64>,
    call_p95_seconds: Option<f64>,
    effect_p95_seconds: Option<f64>,
}

impl Top {
    pub fn run(self) -> Result<(), CliError> {
        if self.interval.is_zero() {
            return Err(CliError::new(exit::USAGE, "--interval must be above zero"));
        }
        self.reach.run(async |client| {
            let is_live = !self.once && !self.json && std::io::stdout().is_terminal();
            if is_live { self.watch(client).await } else { self.print_once(client).await }
        })
    }

    async fn print_once(&self, client: &AdminClient) -> Result<(), CliError> {
        let before = Look::of(client).await?;
        tokio::time::sleep(self.interval).await;
        let view = TopView::between(&before, &Look::of(client).await?);
        match self.json {
            true => print::json(&view),
            false => print::print(&render(&view)),
        }
    }

    /// Looks again and again until a signal comes. A node that does not answer for a while is shown so.
    async fn watch(&self, client: &AdminClient) -> Result<(), CliError> {
        let mut stop = Stop::listen()?;
        let mut before = Look::of(client).await?;
        let screen = Screen::enter()?;
        screen.show(&hint("The first rates are known after the first interval."))?;
        loop {
            tokio::select! {
                () = stop.asked() => return Ok(()),
                () = tokio::time::sleep(self.interval) => {}
            }
            let frame = match Look::of(client).await {
                Ok(look) => {
                    let view = TopView::between(&before, &look);
                    before = look;
                    render(&view)
                }
                Err(error) => hint(&format!("The node does not answer: {}", error.message)),
            };
            screen.show(&frame)?;
        }
    }
}

impl Look {
    async fn of(client: &AdminClient) -> Result<Look, CliError> {
        let latency = async |measure: &str| -> Result<BTreeMap<String, f64>, CliError> {
            let query = [("measure", measure), ("window", WINDOW), ("percentile", "95")];
            let query = query.map(|(name, value)| (name, Some(value.to_owned())));
            let rows: Vec<LatencyView> = print::deserialize(&client.get("/latency", &query).await?)?;
            Ok(rows.into_iter().map(|row| (row.name, row.percentile)).collect())
        };
        Ok(Look {
            at: Instant::now(),
            status: print::deserialize(&client.get("/status", &[]).await?)?,
            workers: print::deserialize(&client.get("/workers", &[]).await?)?,
            destinations: print::deserialize(&client.get("/destinations", &[]).await?)?,
            totals: print::deserialize(&client.get("/totals", &[]).await?)?,
            alerts: print::deserialize(&client.get("/alerts", &[]).await?)?,
            queue_seconds: latency("queue_seconds").await?,
            call_seconds: latency("call_seconds").await?,
            effect_seconds: latency("effect_seconds").await?,
        })
    }

    /// Sum of a counter over the series whose labels match.
    fn total(&self, measures: &[&str], matches: impl Fn(&BTreeMap<String, String>) -> bool) -> u64 {
        let of = |counter: &&CounterView| measures.contains(&counter.measure.as_str()) && matches(&counter.labels);
        self.totals.iter().filter(of).map(|counter| counter.total).sum()
    }
}

impl TopView {
    fn between(before: &Look, after: &Look) -> TopView {
        let seconds = after.at.duration_since(before.at).as_secs_f64().max(0.001);
        let rate = |measures: &[&str], matches: &dyn Fn(&BTreeMap<String, String>) -> bool| {
            after.total(measures, matches).saturating_sub(before.total(measures, matches)) as f64 / seconds
        };
        let is = |name: &'static str, value: &str| {
            let value = value.to_owned();
            move |labels: &BTreeMap<String, String>| labels.get(name) == Some(&value)
        };
        let mut sources: Vec<&String> =
            after.totals.iter().filter_map(|counter| counter.labels.get("source")).collect();
        sources.sort();
        sources.dedup();
        let firing = after.alerts.iter().filter(|alert| alert.state == "firing");
        TopView {
            interval_seconds: seconds,
            events_per_second: rate(&["accepted"], &|_| true),
            duplicates_per_second: rate(&["duplicates"], &|_| true),
            jobs: after.status.jobs.clone(),
            alerts: firing.map(|alert| format!("{} {}", alert.alert, alert.subject).trim_end().to_owned()).collect(),
            paused: after.status.paused.iter().map(|pause| pause.target.clone()).collect(),
            sources: sources
                .into_iter()
                .map(|source| SourceRow {
                    source: source.clone(),
                    events_per_second: rate(&["accepted"], &is("source", source)),
                    duplicates_per_second: rate(&["duplicates"], &is("source", source)),
                    events_total: after.total(&["accepted"], is("source", source)),
                })
                .collect(),
            workers: after
                .workers
                .iter()
                .map(|worker| WorkerRow {
                    finished_per_second: rate(&["jobs", "replayed_jobs"], &is("worker", &worker.name)),
                    queue_p95_seconds: after.queue_seconds.get(&worker.name).copied(),
                    ..WorkerRow::of(worker)
                })
                .collect(),
            destinations: after
                .destinations
                .iter()
                .map(|destination| {
                    let name = &destination.name;
                    let calls = rate(&["attempts"], &is("destination", name));
                    let failed = rate(&["attempts"], &|labels| {
                        let outcome = labels.get("outcome").map(String::as_str);
                        labels.get("destination") == Some(name) && !matches!(outcome, Some("done" | "noop"))
                    });
                    DestinationRow {
                        calls_per_second: calls,
                        failed_share: (calls > 0.0).then_some(failed / calls),
                        call_p95_seconds: after.call_seconds.get(name).copied(),
                        effect_p95_seconds: after.effect_seconds.get(name).copied(),
                        ..DestinationRow::of(destination)
                    }
                })
                .collect(),
        }
    }
}

impl WorkerRow {
    fn of(worker: &WorkerView) -> WorkerRow {
        let count = |states: &[&str]| states.iter().filter_map(|state| worker.jobs.get(*state)).sum();
        WorkerRow {
            worker: worker.name.clone(),
            paused: worker.paused,
            live: count(&["queued", "running", "retrying", "waiting"]),
            oldest_at: worker.oldest_at.clone(),
            finished_per_second: 0.0,
            dead: count(&["dead", "unknown"]),
            queue_p95_seconds: None,
        }
    }
}

impl DestinationRow {
    fn of(destination: &DestinationView) -> DestinationRow {
        let gate = destination.gate.as_ref();
        let number = |name: &str| gate.and_then(|gate| gate[name].as_u64()).unwrap_or(0);
        let breaker = gate.and_then(|gate| gate["breaker"].as_str()).unwrap_or_default();
        let is_paused = gate.is_some_and(|gate| gate.get("paused").is_some_and(|paused| !paused.is_null()));
        DestinationRow {
            destination: destination.name.clone(),
            gate: if is_paused { "paused".to_owned() } else { breaker.to_owned() },
            in_flight: number("in_flight"),
            concurrency: number("concurrency"),
            calls_per_second: 0.0,
            failed_share: None,
            call_p95_seconds: None,
            effect_p95_seconds: None,
        }
    }
}

fn render(view: &TopView) -> String {
    let jobs = view.jobs.iter().filter(|(_, count)| **count > 0);
    let jobs: Vec<String> =
        jobs.map(|(state, count)| format!("{} {}", grouped(*count), styled(state, style_of(state)))).collect();
    let list = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    let mut text = pairs([
        (
            "events",
            format!(
                "{}/s, {}/s duplicates",
                per_second(view.events_per_second),
                per_second(view.duplicates_per_second)
            ),
        ),
        ("jobs", list(&jobs)),
        (
            "alerts",
            if view.alerts.is_empty() { "none".to_owned() } else { styled(&list(&view.alerts), style_of("dead")) },
        ),
        ("paused", if view.paused.is_empty() { String::new() } else { list(&view.paused) }),
    ]);
    text.push_str(&heading("Sources"));
    text.push_str(&sources(view));
    text.push_str(&heading("Workers"));
    text.push_str(&workers(view));
    text.push_str(&heading("Destinations"));
    text.push_str(&destinations(view));
    text
}

fn sources(view: &TopView) -> String {
    let mut table = Table::new([
        Column::Wrap("SOURCE"),
        Column::Number("EVENTS/S"),
        Column::Number("DUPLICATES/S"),
        Column::Number("EVENTS"),
    ]);
    for row in &view.sources {
        table.row([
            Cell::from(row.source.as_str()),
            per_second(row.events_per_second).into(),
            per_second(row.duplicates_per_second).into(),
            row.events_total.into(),
        ]);
    }
    table.render()
}

fn workers(view: &TopView) -> String {
    let mut table = Table::new([
        Column::Wrap("WORKER"),
        Column::Number("LIVE"),
        Column::Number("OLDEST"),
        Column::Number("ENDED/S"),
        Column::Number("DEAD"),
        Column::Number("WAIT P95"),
    ]);
    for row in &view.workers {
        let name = if row.paused { format!("{} (paused)", row.worker) } else { row.worker.clone() };
        table.row([
            Cell::from(name),
            row.live.into(),
            row.oldest_at.as_deref().map_or_else(String::new, print::ago).into(),
            per_second(row.finished_per_second).into(),
            row.dead.into(),
            seconds(row.queue_p95_seconds).into(),
        ]);
    }
    table.render()
}

fn destinations(view: &TopView) -> String {
    let mut table = Table::new([
        Column::Wrap("DESTINATION"),
        Column::Whole("GATE"),
        Column::Number("CALLING"),
        Column::Number("CALLS/S"),
        Column::Number("FAILED"),
        Column::Number("CALL P95"),
        Column::Number("EFFECT P95"),
    ]);
    for row in &view.destinations {
        table.row([
            Cell::from(row.destination.as_str()),
            state(&row.gate),
            format!("{}/{}", row.in_flight, row.concurrency).into(),
            per_second(row.calls_per_second).into(),
            row.failed_share.map_or_else(String::new, |share| format!("{:.0}%", share * 100.0)).into(),
            seconds(row.call_p95_seconds).into(),
            seconds(row.effect_p95_seconds).into(),
        ]);
    }
    table.render()
}

fn per_second(rate: f64) -> String {
    if rate >= 100.0 { grouped(rate.round() as u64) } else { format!("{rate:.1}") }
}

/// `12ms` or `4.6s`; empty if nothing is known.
fn seconds(seconds: Option<f64>) -> String {
    match seconds {
        None => String::new(),
        Some(seconds) if seconds < 1.0 => format!("{:.0}ms", seconds * 1_000.0),
        Some(seconds) => format!("{seconds:.1}s"),
    }
}

/// The alternate screen of the terminal. Dropping it restores the screen and the cursor, also after an error or a panic.
struct Screen;

impl Screen {
    const ENTER: &'static str = "\x1b[?1049h\x1b[?25l";
    const LEAVE: &'static str = "\x1b[?25h\x1b[?1049l";

    fn enter() -> Result<Screen, CliError> {
        let screen = Screen;
        screen.write(Screen::ENTER)?;
        Ok(screen)
    }

    /// Replaces the content. Lines beyond the height of the terminal are left out, so that it does not scroll.
    fn show(&self, frame: &str) -> Result<(), CliError> {
        let rows = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(24, |size| usize::from(size.ws_row.max(2)));
        let mut text = String::from("\x1b[H");
        let frame = sluice_domain::printable::styled_lines(frame);
        let is_coloured = anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never;
        let frame = if is_coloured { frame.into_owned() } else { anstream::adapter::strip_str(&frame).to_string() };
        for line in frame.lines().take(rows - 1) {
            text.push_str(line);
            text.push_str("\x1b[K\r\n");
        }
        text.push_str("\x1b[J");
        self.write(&text)
    }

    fn write(&self, text: &str) -> Result<(), CliError> {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| CliError::new(exit::UNAVAILABLE, format!("the terminal cannot be written: {error}")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.write(Screen::LEAVE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn look(at: Instant, accepted: u64, done: u64, retried: u64) -> Look {
        let counter =
            |measure: &str, labels: Value, total: u64| json!({ "measure": measure, "labels": labels, "total": total });
        let totals = json!([
            counter("accepted", json!({ "source": "website" }), accepted),
            counter("jobs", json!({ "worker": "to-crm", "state": "succeeded" }), done),
            counter("attempts", json!({ "destination": "crm", "outcome": "done" }), done),
            counter("attempts", json!({ "destination": "crm", "outcome": "retry" }), retried),
        ]);
        let status = json!({
            "version": "1", "revision": "r", "intake": "", "events": accepted, "jobs": { "queued": 7, "dead": 0 },
            "jobs_in_memory": 0, "in_flight": 0, "paused": [], "safe_modes": [], "approvals_pending": 0
        });
        let workers = json!([{
            "name": "to-crm", "queue": "leads", "concurrency": 4, "steps": [], "paused": false, "jobs": { "queued": 7, "dead": 2 }
        }]);
        let gate = json!({ "breaker": "half-open", "in_flight": 3, "concurrency": 8, "concurrency_max": 8 });
        let destinations = json!([{ "name": "crm", "type": "salesforce", "gate": gate }]);
        Look {
            at,
            status: print::deserialize(&status).unwrap(),
            workers: print::deserialize(&workers).unwrap(),
            destinations: print::deserialize(&destinations).unwrap(),
            totals: print::deserialize(&totals).unwrap(),
            alerts: vec![],
            queue_seconds: BTreeMap::new(),
            call_seconds: [("crm".to_owned(), 0.25)].into(),
            effect_seconds: [("crm".to_owned(), 2.04)].into(),
        }
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let start = Instant::now();
        let view = TopView::between(&look(start, 100, 50, 10), &look(start + Duration::from_secs(4), 140, 65, 15));
        assert_eq!((view.events_per_second, view.sources[0].events_total), (10.0, 140));
        let worker = &view.workers[0];
        assert_eq!((worker.live, worker.dead, worker.finished_per_second), (7, 2, 3.75));
        let crm = &view.destinations[0];
        assert_eq!((crm.gate.as_str(), crm.calls_per_second, crm.failed_share), ("half-open", 5.0, Some(0.25)));
        let text = render(&view);
        for shown in ["10.0/s", "7 queued", "half-open", "3/8", "25%", "250ms", "2.0s"] {
            assert!(anstream::adapter::strip_str(&text).to_string().contains(shown), "{shown} in\n{text}");
        }
    }

    #[test]
    fn node_without_calls_has_no_share_of_failures() {
        let start = Instant::now();
        let view = TopView::between(&look(start, 1, 1, 1), &look(start + Duration::from_secs(1), 1, 1, 1));
        assert_eq!((view.events_per_second, view.destinations[0].failed_share), (0.0, None));
    }
}
