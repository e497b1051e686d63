//! Senders that really send: HTTP/1.1 over kept connections, one request after the other on each.
//!
//! As little as possible is done for each request, so that what is measured is the other side. Only addresses of this
//! machine are ever called.

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

pub use connection::{Answer, Connection};
pub use counter::Counter;

/// The slowest answer that is told apart from slower ones.
const LATENCY_MICROS_MAX: u64 = 60_000_000;
/// How long the last answers may take once no more is sent.
const LAST_ANSWERS: Duration = Duration::from_secs(30);

/// How much to send, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadSettings {
    /// Where to; an address of this machine.
    pub target: SocketAddr,
    /// Connections at once.
    pub connections: usize,
    /// No more requests than this.
    pub requests_max: u64,
    /// No new request after this time.
    pub time_max: Duration,
    pub pace: Pace,
}

/// When a connection sends its next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As soon as the one before is answered.
    Closed,
    /// So many in a second over all connections, evenly spread. Latency counts from the moment at which a request was
    /// due, so that a slow answer is not hidden by the requests that it held up.
    PerSecond(u32),
}

/// Appends the request with this number, head and body, to an empty buffer.
pub type WriteRequest = dyn Fn(u64, &mut Vec<u8>) + Send + Sync;

/// What came of it.
#[derive(Debug, Clone)]
pub struct LoadResult {
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests without an answer.
    pub unanswered: u64,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// In microseconds, of every answer.
    pub latency: Histogram<u64>,
}

impl Default for LoadResult {
    fn default() -> LoadResult {
        let latency = Histogram::new_with_bounds(1, LATENCY_MICROS_MAX, 3).expect("these bounds are in order");
        LoadResult { statuses: BTreeMap::new(), unanswered: 0, elapsed: Duration::ZERO, latency }
    }
}

impl LoadResult {
    /// This and then the other, one after the other.
    pub fn then(mut self, other: &LoadResult) -> LoadResult {
        self.add(other);
        self.elapsed += other.elapsed;
        self
    }

    fn note(&mut self, status: u16, took: Duration) {
        *self.statuses.entry(status).or_default() += 1;
        self.latency.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    fn add(&mut self, other: &LoadResult) {
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.unanswered += other.unanswered;
        self.latency.add(&other.latency).expect("every histogram has the same bounds");
    }

    /// Answers of any status.
    pub fn answered(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Answers with this status.
    pub fn with_status(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    /// Answers a second.
    pub fn per_second(&self) -> f64 {
        self.answered() as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The latency, in milliseconds, that this share of the answers stayed below.
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
    /// The number of the next request and when it is due; `None` when enough has been sent.
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

/// Sends until the bounds are reached. A connection that breaks is opened again; one that cannot be opened is given up.
/// Fails when not even the first connections can be opened.
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
    let mut whole = LoadResult::default();
    let end = run.started + settings.time_max + LAST_ANSWERS;
    loop {
        match tokio::time::timeout_at(end, senders.join_next()).await {
            Ok(Some(part)) => whole.add(&part.map_err(io::Error::other)?),
            Ok(None) => break,
            Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the last answers did not come")),
        }
    }
    whole.elapsed = run.started.elapsed();
    Ok(whole)
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
        let keep = match connection.send(&request).await {
            Ok(answer) => {
                part.note(answer.status, due.elapsed());
                !answer.closes
            }
            Err(_) => {
                part.unanswered += 1;
                false
            }
        };
        if !keep {
            match Connection::open(run.settings.target).await {
                Ok(opened) => connection = opened,
                Err(_) => break,
            }
        }
    }
    part
}
