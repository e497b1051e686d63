//! Destination for benchmarks: counts complete requests and responds 200.
//!
//! Does as little work as possible per request. [`Sink`](crate::Sink) is the server for everything else: it stores
//! requests, injects faults and can be queried.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::connection::{body_bytes, end_of_head};
use crate::serve::ANY_PORT;

const OK_RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"ok\":true}";
/// Average requests are smaller.
const BUFFER_BYTES: usize = 4 * 1024;

/// Counting server. Stops when dropped.
#[derive(Debug)]
pub struct Counter {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    runtime: Option<Runtime>,
}

impl Counter {
    /// Starts the server on its own thread.
    pub fn start() -> io::Result<Counter> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sim-counter")
            .enable_io()
            .build()?;
        let listener = std::net::TcpListener::bind(ANY_PORT)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let requests = Arc::new(AtomicU64::new(0));
        let counted = requests.clone();
        runtime.spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(count(stream, counted.clone()));
            }
        });
        Ok(Counter { address, requests, runtime: Some(runtime) })
    }

    /// `http://127.0.0.1:port`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Complete requests that were answered with 200 or are about to be.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Acquire)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Responds on one connection until it closes or sends an invalid request.
async fn count(mut stream: TcpStream, requests: Arc<AtomicU64>) {
    let _ = stream.set_nodelay(true);
    let mut incoming = Vec::with_capacity(BUFFER_BYTES);
    loop {
        let head = loop {
            if let Some(end) = end_of_head(&incoming) {
                break end;
            }
            if !matches!(stream.read_buf(&mut incoming).await, Ok(1..)) {
                return;
            }
        };
        let Some(body) = body_bytes(&incoming[..head]) else { return };
        while incoming.len() < head + body {
            if !matches!(stream.read_buf(&mut incoming).await, Ok(1..)) {
                return;
            }
        }
        incoming.drain(..head + body);
        requests.fetch_add(1, Ordering::Release);
        if stream.write_all(OK_RESPONSE).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Connection;

    #[tokio::test]
    async fn complete_requests_are_counted_and_answered() {
        let counter = Counter::start().unwrap();
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
}
