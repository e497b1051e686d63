//! Load generator: HTTP/1.1 over persistent connections, one request at a time on each.
//!
//! Does as little work as possible per request, so that the server is what is measured. Connects to loopback only.

mod connection;
mod counter;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use connection::{Connection, LoadResponse};
pub use counter::{Counter, CounterSettings};

/// Largest latency that the histogram distinguishes.
const LATENCY_MICROS_MAX: u64 = 60_000_000;
/// Time limit for the last responses after the last request.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadSettings {
    /// A loopback address.
    pub target: SocketAddr,
    /// Number of parallel connections.
    pub connections: usize,
    pub requests_max: u64,
    /// No new request is sent after this time.
    pub time_max: Duration,
    pub pace: Pace,
}

/// When a connection sends its next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As soon as the previous response is received.
    Closed,
    /// Evenly spread requests per second over all connections. Latency counts from the time a request was due, so
    /// that a slow response does not hide the delay of later requests (coordinated omission).
    PerSecond(u32),
}

/// Appends head and body of the request with this number to an empty buffer.
pub type WriteRequest = dyn Fn(u64, &mut Vec<u8>) + Send + Sync;

#[derive(Debug, Clone)]
pub struct LoadResult {
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests without a response.
    pub unanswered: u64,
    /// From the first request to the last response.
    pub elapsed: Duration,
    /// Latency of every response in microseconds.
    pub latency: Histogram<u64>,
}

impl Default for LoadResult {
    fn default() -> LoadResult {
        let latency = Histogram::new_with_bounds(1, LATENCY_MICROS_MAX, 3).expect("the bounds are valid");
        LoadResult { statuses: BTreeMap::new(), unanswered: 0, elapsed: Duration::ZERO, latency }
    }
}

impl LoadResult {
    /// Combines two consecutive runs.
    pub fn then(mut self, other: &LoadResult) -> LoadResult {
        self.add(other);
        self.elapsed += other.elapsed;
        self
    }

    fn record(&mut self, status: u16, took: Duration) {
        *self.statuses.entry(status).or_default() += 1;
        self.latency.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    fn add(&mut self, other: &LoadResult) {
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.unanswered += other.unanswered;
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
    }

    /// Responses of any status.
    pub fn answered(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Responses with this status.
    pub fn with_status(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    /// Responses per second.
    pub fn per_second(&self) -> f64 {
        self.answered() as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Latency in milliseconds at this quantile.
    pub fn latency_ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }
}

#[derive(Debug)]
struct Run {
    settings: LoadSettings,
    next: AtomicU64,
    started: Instant,
}

impl Run {
    /// Number and due time of the next request; `None` once a limit is reached.
    fn take(&self) -> Option<(u64, Instant)> {
        let now = Instant::now();
        if now.duration_since(self.started) >= self.settings.time_max {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.settings.requests_max {
            return None;
        }
        match self.settings.pace {
            Pace::Closed => Some((number, now)),
            Pace::PerSecond(rate) => {
                let offset = Duration::from_secs_f64(number as f64 / f64::from(rate.max(1)));
                (offset < self.settings.time_max).then(|| (number, self.started + offset))
            }
        }
    }
}

/// Sends until a limit is reached. A failed connection is opened again; one that cannot be opened is abandoned. Fails if
/// the initial connections cannot be opened.
pub async fn load(settings: LoadSettings, write: Arc<WriteRequest>) -> io::Result<LoadResult> {
    let mut connections = Vec::with_capacity(settings.connections);
    for _ in 0..settings.connections.max(1) {
        connections.push(Connection::open(settings.target).await?);
    }
    let run = Arc::new(Run { settings, next: AtomicU64::new(0), started: Instant::now() });
    let mut senders = JoinSet::new();
    for connection in connections {
        senders.spawn(send(run.clone(), connection, write.clone()));
    }
    let mut total = LoadResult::default();
    let end = run.started + settings.time_max + DRAIN_TIMEOUT;
    loop {
        match tokio::time::timeout_at(end, senders.join_next()).await {
            Ok(Some(part)) => total.add(&part.map_err(io::Error::other)?),
            Ok(None) => break,
            Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the last responses did not arrive")),
        }
    }
    total.elapsed = run.started.elapsed();
    Ok(total)
}

async fn send(run: Arc<Run>, mut connection: Connection, write: Arc<WriteRequest>) -> LoadResult {
    let mut part = LoadResult::default();
    let mut request = Vec::with_capacity(2 * 1024);
    while let Some((number, due)) = run.take() {
        request.clear();
        write(number, &mut request);
        if run.settings.pace != Pace::Closed {
            tokio::time::sleep_until(due).await;
        }
        let reusable = match connection.send(&request).await {
            Ok(response) => {
                part.record(response.status, due.elapsed());
                !response.closes
            }
            Err(_) => {
                part.unanswered += 1;
                false
            }
        };
        if !reusable {
            match Connection::open(run.settings.target).await {
                Ok(opened) => connection = opened,
                Err(_) => break,
            }
        }
    }
    part
}
