//! One HTTP/1.1 connection, driven by whoever waits for its answer.
//!
//! Nobody else touches it meanwhile: when its owner gives up, nothing more is sent, and what has left until then is known.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use super::counting_stream::{CountingStream, Stream, Written};

type Driver = http1::Connection<TokioIo<CountingStream>, Full<Bytes>>;

/// A connection on which one request follows the other.
#[derive(Debug)]
pub(super) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// What moves the bytes; `None` once the connection is over.
    driver: Option<Pin<Box<Driver>>>,
    written: Written,
    /// What had been written when the last request began.
    before: u64,
}

impl Connection {
    /// Speaks HTTP on a stream from here on.
    pub async fn over(stream: Stream, headers_max: usize) -> hyper::Result<Connection> {
        let (wire, written) = CountingStream::new(stream);
        let (requests, driver) = http1::Builder::new().max_headers(headers_max).handshake(TokioIo::new(wire)).await?;
        Ok(Connection { requests, driver: Some(Box::pin(driver)), written, before: 0 })
    }

    /// Whether it can take another request, as far as is known without waiting.
    pub fn is_usable(&mut self) -> bool {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.requests.is_ready()
    }

    /// Whether nothing of the last request has left.
    pub fn is_untouched(&self) -> bool {
        self.written.bytes() == self.before
    }

    /// Sends a request. Answers when the head of its answer is there.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.before = self.written.bytes();
        let Connection { requests, driver, .. } = self;
        poll_fn(|cx| {
            drive(driver, cx);
            requests.poll_ready(cx)
        })
        .await?;
        let mut answer = pin!(requests.send_request(request));
        poll_fn(|cx| {
            drive(driver, cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// The body of an answer, and whether that is all of it. No more than so many bytes are kept.
    pub async fn read(&mut self, mut body: Incoming, bytes_max: usize) -> hyper::Result<(Bytes, bool)> {
        // Most answers come in one piece, which is kept without copying it.
        let Some(mut whole) = self.next(&mut body).await.transpose()? else { return Ok((Bytes::new(), true)) };
        if whole.len() <= bytes_max
            && let Some(second) = self.next(&mut body).await.transpose()?
        {
            let mut more = BytesMut::from(whole);
            more.extend_from_slice(&second);
            while more.len() <= bytes_max
                && let Some(next) = self.next(&mut body).await.transpose()?
            {
                more.extend_from_slice(&next);
            }
            whole = more.freeze();
        }
        let complete = whole.len() <= bytes_max;
        whole.truncate(bytes_max);
        Ok((whole, complete))
    }

    async fn next(&mut self, body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
        loop {
            let frame = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => {
                    drive(&mut self.driver, cx);
                    Pin::new(&mut *body).poll_frame(cx)
                }
                ready => ready,
            });
            match frame.await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Moves what can be moved. Whoever waits for something learns of an end from what it waits for.
fn drive(driver: &mut Option<Pin<Box<Driver>>>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
        *driver = None;
    }
}
