//! The other end of the bench: takes whole requests, counts them, says yes.
//!
//! Like the senders it does as little as possible for each of them. The [`Sink`](crate::Sink) is for everything that is
//! not about speed: it remembers, fails on order and can be asked.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::connection::{body_bytes, end_of_head};
use crate::serve::ANY_PORT;

const YES: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"ok\":true}";
/// Requests and their heads are shorter than this on the average.
const BUFFER_BYTES: usize = 4 * 1024;

/// A server that counts. It stops when dropped.
#[derive(Debug)]
pub struct Counter {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    runtime: Option<Runtime>,
}

impl Counter {
    /// Starts it on a thread of its own.
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

    /// `http://127.0.0.1:port`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests that have come whole and were answered with a yes, or are about to be.
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

/// Answers the requests of one connection until it closes or says what is no request.
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
        if stream.write_all(YES).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Connection;

    #[tokio::test]
    async fn whole_requests_are_counted_and_answered() {
        let counter = Counter::start().unwrap();
        let mut connection = Connection::open(counter.address).await.unwrap();
        for number in 1..=3 {
            let answer = connection.send(b"PUT /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
            assert_eq!((answer.status, answer.body), (200, br#"{"ok":true}"#.as_slice()));
            assert_eq!(counter.requests(), number);
        }
        let without_a_body = connection.send(b"GET /x HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!((without_a_body.status, counter.requests()), (200, 4));
        assert!(connection.send(b"PUT /x HTTP/1.1\r\nContent-Length: many\r\n\r\n").await.is_err());
        assert_eq!(counter.requests(), 4, "what is no request is not counted");
    }
}
