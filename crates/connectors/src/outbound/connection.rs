//! One HTTP/1.1 connection, polled by the task that awaits the response.
//!
//! No background task writes to it: when the caller drops the future, nothing more is sent, and the bytes
//! sent so far are known.

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

/// Keep-alive connection with one request in flight at a time.
#[derive(Debug)]
pub(super) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// `None` once the connection is closed.
    driver: Option<Pin<Box<Driver>>>,
    written: Written,
    /// Value of `written` at the start of the last request.
    written_before: u64,
}

impl Connection {
    /// Starts HTTP/1.1 on an open stream.
    pub(super) async fn over(stream: Stream, headers_max: usize) -> hyper::Result<Connection> {
        let (stream, written) = CountingStream::new(stream);
        let (requests, driver) = http1::Builder::new().max_headers(headers_max).handshake(TokioIo::new(stream)).await?;
        Ok(Connection { requests, driver: Some(Box::pin(driver)), written, written_before: 0 })
    }

    /// True if the connection can take another request, as far as is known without waiting.
    pub(super) fn is_usable(&mut self) -> bool {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.requests.is_ready()
    }

    /// True if no byte of the last request was written.
    pub(super) fn nothing_sent(&self) -> bool {
        self.written.bytes() == self.written_before
    }

    /// Sends a request; returns once the response head is received.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.written_before = self.written.bytes();
        let Connection { requests, driver, .. } = self;
        poll_fn(|cx| {
            drive(driver, cx);
            requests.poll_ready(cx)
        })
        .await?;
        let mut response = pin!(requests.send_request(request));
        poll_fn(|cx| {
            drive(driver, cx);
            response.as_mut().poll(cx)
        })
        .await
    }

    /// Reads at most `bytes_max` bytes of a body; returns them and whether the body is complete.
    pub(super) async fn read(&mut self, mut body: Incoming, bytes_max: usize) -> hyper::Result<(Bytes, bool)> {
        // Most bodies arrive in one frame, which is returned without a copy.
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

    /// The next part of a body; `None` at its end.
    pub(super) async fn next(&mut self, body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
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

/// Polls the connection. Its errors are not lost: the pending response or body reports them.
fn drive(driver: &mut Option<Pin<Box<Driver>>>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
        *driver = None;
    }
}
