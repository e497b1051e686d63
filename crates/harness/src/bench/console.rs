//! Console: how long the node takes for each page with many events in the ledger, and what open consoles cost the intake.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};
use sluice_domain::history::measure::Measure;
use sluice_domain::history::recorder::Point;
use sluice_domain::history::{Histogram, Labels, Step, Value as Measured};
use sluice_domain::time::Time;
use sluice_ledger::{Ledger, LedgerOptions, RecordHistory};
use sluice_server::console::PAGES;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::node_under_test::NodeUnderTest;
use super::phases::UNUSED_URL;
use super::{Bench, WARM_UP};
use crate::{Api, Error, Leads, LeadsTo};

/// Consoles that are open at once.
const CONSOLES: usize = 50;
/// Times that each page is loaded.
const LOADS: usize = 20;
/// What a page may take, in milliseconds.
const PAGE_MAX_MS: f64 = 100.0;
/// Share of the accept throughput that stays with open consoles.
const WATCHED_FLOOR: f64 = 0.95;
/// Rounds in which the intake is measured without and with consoles.
const ROUNDS: u32 = 3;
/// With so many consoles each is told of changes every seven seconds, so a round is long enough for several pages.
const ROUND_MIN: Duration = Duration::from_secs(15);
/// Minutes and hours of history before the measurement.
const PAST_MINUTES: u64 = 24 * 60;
const PAST_HOURS: u64 = 90 * 24;
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Header of a page that reads itself again.
const LIVE: &str = "sluice-live: 1\r\n";

/// Pages beside those of the navigation: other times of the charts, and lists with filters that match much, little and nothing.
const FURTHER_PAGES: [&str; 16] = [
    "/?window=24h",
    "/?window=7d",
    "/?window=90d",
    "/events?source=NAME_OF_NONE",
    "/events?type=TYPE_OF_NONE",
    "/events?state=dead",
    "/events?state=done",
    "/jobs?state=queued",
    "/jobs?state=dead",
    "/jobs?state=noop",
    "/jobs?code=NONE",
    "/jobs?source=NAME_OF_NONE",
    "/jobs?queue=QUEUE_OF_NONE",
    "/jobs?destination=NAME_OF_NONE",
    "/dead-letters?code=NONE",
    "EVENT",
];

/// Time of one page, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PageTime {
    pub page: String,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub bytes: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConsoleReport {
    pub events: u64,
    pub pages: Vec<PageTime>,
    pub page_max_ms: f64,
    pub consoles: usize,
    /// Pages that the open consoles loaded while requests were accepted.
    pub pages_loaded: u64,
    pub accept_alone_per_second: f64,
    pub accept_watched_per_second: f64,
}

impl ConsoleReport {
    fn share(&self) -> f64 {
        self.accept_watched_per_second / self.accept_alone_per_second
    }

    pub(crate) fn all_reached(&self) -> bool {
        self.pages.iter().all(|page| page.p95_ms <= self.page_max_ms) && self.share() >= WATCHED_FLOOR
    }
}

impl fmt::Display for ConsoleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "console with {} events in the ledger, milliseconds per page (at most {})",
            self.events, self.page_max_ms
        )?;
        for page in &self.pages {
            let verdict = if page.p95_ms <= self.page_max_ms { "" } else { "  too slow" };
            let kib = page.bytes.div_ceil(1024);
            writeln!(
                f,
                "  {:<32} p50 {:>7.1}  p95 {:>7.1}  {kib:>5} KiB{verdict}",
                page.page, page.p50_ms, page.p95_ms
            )?;
        }
        let verdict = if self.share() >= WATCHED_FLOOR { "ok" } else { "too slow" };
        writeln!(
            f,
            "accept with {} open consoles: {:.0}/s of {:.0}/s without, {:.3} (at least {WATCHED_FLOOR}): {verdict}",
            self.consoles,
            self.accept_watched_per_second,
            self.accept_alone_per_second,
            self.share()
        )?;
        writeln!(f, "  meanwhile they loaded {} pages", self.pages_loaded)
    }
}

/// A signed-in visitor.
#[derive(Clone, Debug)]
struct Visitor {
    address: SocketAddr,
    cookie: String,
}

impl Visitor {
    /// Signs in with a link, as `sluice console` does.
    async fn sign_in(api: &Api, address: SocketAddr) -> Result<Visitor, Error> {
        let link = api.post("/api/v1/sign-in-links", &json!({ "actor": "bench" })).await?;
        let path = link["path"].as_str().unwrap_or_default();
        let form = path.replacen("/sign-in?", "", 1);
        let request = format!(
            "POST /sign-in HTTP/1.1\r\nhost: {address}\r\norigin: http://{address}\r\ncontent-type: application/x-www-form-urlencoded\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{form}",
            form.len()
        );
        let response = exchange(address, &request).await?;
        let text = String::from_utf8_lossy(&response);
        let line = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("set-cookie").then(|| value.trim().to_owned())
        });
        let cookie = line.and_then(|line| Some(line.split(';').next()?.to_owned()));
        match cookie {
            Some(cookie) => Ok(Visitor { address, cookie }),
            None => Err(Error::Failed(format!("signing in failed: {}", text.lines().next().unwrap_or_default()))),
        }
    }

    /// `headers`: further ones, each with its end of line.
    fn request(&self, path: &str, headers: &str) -> String {
        let Visitor { address, cookie } = self;
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\ncookie: {cookie}\r\n{headers}connection: close\r\n\r\n")
    }

    /// Loads a page. Returns its time and its size.
    async fn load(&self, path: &str, headers: &str) -> Result<(Duration, usize), Error> {
        let started = Instant::now();
        let response = exchange(self.address, &self.request(path, headers)).await?;
        let elapsed = started.elapsed();
        match response.starts_with(b"HTTP/1.1 200 ") {
            true => Ok((elapsed, response.len())),
            false => {
                let head = String::from_utf8_lossy(&response);
                Err(Error::Failed(format!("{path}: {}", head.lines().next().unwrap_or("no response"))))
            }
        }
    }

    /// Loads a page whenever the node says that something has changed, as an open console does.
    async fn watch(self, path: &'static str, loaded: Arc<AtomicU64>) -> Result<(), Error> {
        let mut stream = TcpStream::connect(self.address).await.map_err(Error::io("the stream"))?;
        stream.write_all(self.request("/api/v1/stream", "").as_bytes()).await.map_err(Error::io("the stream"))?;
        let mut buffer = [0; 4_096];
        loop {
            let count = stream.read(&mut buffer).await.map_err(Error::io("the stream"))?;
            if count == 0 {
                return Err(Error::Failed("the node closed the stream".into()));
            }
            if buffer[..count].windows(11).any(|part| part == b"event: jobs") {
                self.load(path, LIVE).await?;
                loaded.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

async fn exchange(address: SocketAddr, request: &str) -> Result<Vec<u8>, Error> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::with_capacity(64 * 1024);
        stream.read_to_end(&mut response).await?;
        Ok(response)
    };
    let result = tokio::time::timeout(PAGE_TIMEOUT, exchange).await;
    result.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(Error::io("a page"))
}

fn percentile(times: &mut [Duration], share: f64) -> f64 {
    times.sort();
    let place = ((times.len() as f64 * share).ceil() as usize).clamp(1, times.len()) - 1;
    times[place].as_secs_f64() * 1_000.0
}

/// Writes a history, so that charts have something to draw.
async fn write_past(leads: &Leads) -> Result<(), Error> {
    let clock = || Time::from(jiff::Timestamp::now());
    let root_key = sluice_server::root_key::find(&leads.data).map_err(|error| Error::Failed(error.to_string()))?;
    let ledger = Ledger::open(&leads.data, LedgerOptions::quiet(Arc::new(clock)).with_root_key(root_key))?;
    let now = Step::Minute.start(clock());
    let hours = (0..PAST_HOURS).rev().map(|hour| PAST_MINUTES + hour * 60);
    for minutes in hours.chain((2..PAST_MINUTES).rev()) {
        let mut histogram = Histogram::default();
        (1..=20).for_each(|n| histogram.observe(Duration::from_millis(n * (1 + minutes % 7))));
        let point =
            |measure, labels: (&str, &str), value| Point { measure, labels: Labels::new(labels.0, labels.1), value };
        let mut points = vec![];
        for (measure, labels) in [
            (Measure::Accepted, ("website", "")),
            (Measure::Duplicates, ("website", "")),
            (Measure::Refused, ("website", "signature-invalid")),
            (Measure::Effects, ("sink", "keyed")),
            (Measure::Jobs, ("worker", "succeeded")),
            (Measure::Jobs, ("worker", "dead")),
            (Measure::Attempts, ("sink", "done")),
            (Measure::Attempts, ("sink", "retry")),
        ] {
            points.push(point(measure, labels, Measured::Count(1 + minutes % 50)));
        }
        for measure in [Measure::EffectSeconds, Measure::CallSeconds] {
            points.push(point(measure, ("sink", ""), Measured::Histogram(histogram.clone())));
        }
        let minute = now - Duration::from_secs(minutes * 60);
        ledger.record_history(RecordHistory { term: ledger.term(), minute, points, expire_at: None }).await?;
    }
    ledger.close().await;
    Ok(())
}

impl Bench {
    /// Fills a ledger, loads every page, then measures the intake with and without open consoles in turns.
    pub(super) async fn console(&self) -> Result<ConsoleReport, Error> {
        let place = self.settings.ledger.clone().unwrap_or_else(|| self.path("console"));
        let leads = Leads::write(&place, LeadsTo::Sink(UNUSED_URL))?;
        let is_new = !Ledger::exists_in(&leads.data);
        // First, so that a ledger whose filling was interrupted has one.
        if is_new {
            self.status.show("console: writing the history of 90 days …");
            write_past(&leads).await?;
        }
        self.status.show(&format!("console: writing {} events …", self.settings.jobs));
        self.prepare_ledger(&leads, self.settings.jobs).await?;
        let node = NodeUnderTest::start(&self.settings.host, &leads, &self.log()).await?;
        let (api, address) = (node.api(), node.admin());
        let visitor = Visitor::sign_in(&api, address).await?;
        let status: Value = api.get("/api/v1/status").await?;
        let events = status["events"].as_u64().unwrap_or_default();
        let newest: Value = api.get("/api/v1/events?limit=1").await?;
        let event = format!("/events/{}", newest["items"][0]["id"].as_str().unwrap_or_default());
        let mut pages = Vec::new();
        for page in PAGES.iter().map(|(path, ..)| *path).chain(FURTHER_PAGES) {
            self.status.show(&format!("console: {page} with {events} events …"));
            let path = if page == "EVENT" { event.as_str() } else { page };
            pages.push(self.page_time(&visitor, page, path).await?);
        }
        let (alone, watched, pages_loaded) = self.watched(&node, &visitor).await?;
        node.stop().await?;
        Ok(ConsoleReport {
            events,
            pages,
            page_max_ms: PAGE_MAX_MS,
            consoles: CONSOLES,
            pages_loaded,
            accept_alone_per_second: alone,
            accept_watched_per_second: watched,
        })
    }

    async fn page_time(&self, visitor: &Visitor, page: &str, path: &str) -> Result<PageTime, Error> {
        visitor.load(path, "").await?;
        let (mut times, mut bytes) = (Vec::with_capacity(LOADS), 0);
        for _ in 0..LOADS {
            let (time, size) = visitor.load(path, "").await?;
            times.push(time);
            bytes = size;
        }
        let page = if page == "EVENT" { "/events/ID" } else { page }.to_owned();
        Ok(PageTime { page, p50_ms: percentile(&mut times, 0.5), p95_ms: percentile(&mut times, 0.95), bytes })
    }

    /// Accepted requests per second without and with open consoles, and the pages that these loaded.
    async fn watched(&self, node: &NodeUnderTest, visitor: &Visitor) -> Result<(f64, f64, u64), Error> {
        const WATCHED_PAGES: [&str; 5] = ["/", "/events", "/jobs", "/dead-letters", "/destinations"];
        self.status.show(&format!("console: accept with and without {CONSOLES} consoles, in turns …"));
        self.load(node.intake(), self.settings.time.mul_f64(WARM_UP)).await?;
        let loaded = Arc::new(AtomicU64::new(0));
        let (mut alone, mut watched) = (Vec::new(), Vec::new());
        let round = (self.settings.time / ROUNDS).max(ROUND_MIN);
        for _ in 0..ROUNDS {
            alone.push(self.load(node.intake(), round).await?.per_second());
            let mut consoles = JoinSet::new();
            for n in 0..CONSOLES {
                consoles.spawn(visitor.clone().watch(WATCHED_PAGES[n % WATCHED_PAGES.len()], loaded.clone()));
            }
            watched.push(self.load(node.intake(), round).await?.per_second());
            if let Some(ended) = consoles.try_join_next() {
                return Err(match ended {
                    Ok(Err(error)) => error,
                    other => Error::Failed(format!("a console ended: {other:?}")),
                });
            }
            consoles.shutdown().await;
        }
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
        Ok((mean(&alone), mean(&watched), loaded.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let mut times: Vec<Duration> = (1..=20).rev().map(Duration::from_millis).collect();
        assert_eq!((percentile(&mut times, 0.5), percentile(&mut times, 0.95)), (10.0, 19.0));
        assert_eq!(percentile(&mut [Duration::from_millis(7)], 0.95), 7.0);
    }

    #[test]
    fn slow_page_and_costly_consoles_are_reported() {
        let page = |p95_ms| PageTime { page: "/".into(), p50_ms: 1.0, p95_ms, bytes: 2_048 };
        let report = |p95_ms, watched| ConsoleReport {
            events: 10,
            pages: vec![page(p95_ms)],
            page_max_ms: PAGE_MAX_MS,
            consoles: CONSOLES,
            pages_loaded: 5,
            accept_alone_per_second: 100.0,
            accept_watched_per_second: watched,
        };
        assert!(report(99.0, 96.0).all_reached());
        assert!(!report(101.0, 96.0).all_reached() && !report(99.0, 90.0).all_reached());
        assert!(report(101.0, 90.0).to_string().matches("too slow").count() == 2);
    }
}
