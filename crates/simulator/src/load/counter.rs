//! Destination for benchmarks: counts complete requests and responds 200. On request it responds late, and fails at random.
//!
//! Does as little work as possible per request. [`Sink`](crate::Sink) is the server for everything else: it stores
//! requests, injects faults and can be queried.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::connection::{body_bytes, end_of_head};
use crate::rng::SeededRng;
use crate::serve::ANY_PORT;

const ERROR_RESPONSE: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
const OK_RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"ok\":true}";
/// Average requests are smaller.
const BUFFER_BYTES: usize = 4 * 1024;

/// How a [`Counter`] responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSettings {
    /// From the complete request to its response.
    pub delay: Duration,
    /// Share of the requests that fail at random: every second one with status 500, the others with a cut connection.
    pub failure_percent: u8,
}

/// Counting server. Stops when dropped.
#[derive(Debug)]
pub struct Counter {
    address: SocketAddr,
    counts: Arc<Counts>,
    runtime: Option<Runtime>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Complete requests.
    received: AtomicU64,
    ok: AtomicU64,
    failed: AtomicU64,
}

impl Counter {
    /// Starts the server on its own thread.
    pub fn start(settings: CounterSettings) -> io::Result<Counter> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sim-counter")
            .enable_all()
            .build()?;
        let listener = std::net::TcpListener::bind(ANY_PORT)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let counts = Arc::<Counts>::default();
        let counted = counts.clone();
        runtime.spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(count(stream, settings, counted.clone()));
            }
        });
        Ok(Counter { address, counts, runtime: Some(runtime) })
    }

    /// `http://127.0.0.1:port`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Complete requests that were answered with 200 or are about to be.
    pub fn requests(&self) -> u64 {
        self.counts.ok.load(Ordering::Acquire)
    }

    /// Complete requests that failed at random.
    pub fn failures(&self) -> u64 {
        self.counts.failed.load(Ordering::Acquire)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Ok,
    Error,
    Cut,
}

impl Counts {
    /// Counts a complete request and decides what it gets.
    fn receive(&self, failure_percent: u8) -> Fate {
        let number = self.received.fetch_add(1, Ordering::Relaxed);
        if failure_percent == 0 || SeededRng::stream(0, number).below(100) >= u64::from(failure_percent) {
            self.ok.fetch_add(1, Ordering::Release);
            return Fate::Ok;
        }
        match self.failed.fetch_add(1, Ordering::AcqRel) % 2 {
            0 => Fate::Error,
            _ => Fate::Cut,
        }
    }
}

/// Responds on one connection until it closes, sends an invalid request or is cut.
async fn count(mut stream: TcpStream, settings: CounterSettings, counts: Arc<Counts>) {
    let _ = stream.set_nodelay(true);
    let mut incoming = Vec::with_capacity(BUFFER_BYTES);
    while receive(&mut stream, &mut incoming).await.is_some() {
        let fate = counts.receive(settings.failure_percent);
        if !settings.delay.is_zero() {
            tokio::time::sleep(settings.delay).await;
        }
        let response = match fate {
            Fate::Ok => OK_RESPONSE,
            Fate::Error => ERROR_RESPONSE,
            Fate::Cut => return,
        };
        if stream.write_all(response).await.is_err() {
            return;
        }
    }
}

/// Reads one request and removes it from the buffer. `None` if the connection closes or the request is invalid.
async fn receive(stream: &mut TcpStream, incoming: &mut Vec<u8>) -> Option<()> {
    let head = loop {
        if let Some(end) = end_of_head(incoming) {
            break end;
        }
        read_more(stream, incoming).await?;
    };
    let body = body_bytes(&incoming[..head])?;
    while incoming.len() < head + body {
        read_more(stream, incoming).await?;
    }
    incoming.drain(..head + body);
    Some(())
}

async fn read_more(stream: &mut TcpStream, incoming: &mut Vec<u8>) -> Option<usize> {
    stream.read_buf(incoming).await.ok().filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Connection;

    #[tokio::test]
    async fn complete_requests_are_counted_and_answered() {
        let counter = Counter::start(CounterSettings::default()).unwrap();
        let mut connection = Connection::open(counter.address).await.unwrap();
        for number in 1..=3 {
            let response = connection.send(b"PUT /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
            assert_eq!((response.status, response.body), (200, br#"{"ok":true}"#.as_slice()));
            assert_eq!(counter.requests(), number);
        }
        let without_a_body = connection.send(b"GET /x HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!((without_a_body.status, counter.requests()), (200, 4));
        assert!(connection.send(b"PUT /x HTTP/1.1\r\nContent-Length: many\r\n\r\n").await.is_err());
        assert_eq!(counter.requests(), 4, "an invalid request is not counted");
    }

    #[tokio::test]
    async fn the_configured_share_of_requests_fails_with_errors_and_cut_connections() {
        let settings = CounterSettings { failure_percent: 30, ..CounterSettings::default() };
        let counter = Counter::start(settings).unwrap();
        let mut connection = Connection::open(counter.address).await.unwrap();
        let (mut ok, mut errors, mut cut) = (0, 0, 0);
        for _ in 0..1_000 {
            match connection.send(b"GET /x HTTP/1.1\r\n\r\n").await.map(|response| response.status) {
                Ok(200) => ok += 1,
                Ok(_) => errors += 1,
                Err(_) => {
                    cut += 1;
                    connection = Connection::open(counter.address).await.unwrap();
                }
            }
        }
        assert_eq!((counter.requests(), counter.failures()), (ok, errors + cut));
        assert!(errors == cut || errors == cut + 1, "{errors} {cut}");
        assert!((250..=350).contains(&(errors + cut)), "{errors} {cut}");
    }
}
