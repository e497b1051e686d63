//! Response of a simulated server before faults, and the faulty bodies.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use tokio::time::{Instant, Sleep};

const HUGE_CHUNK: Bytes = Bytes::from_static(&[b' '; 64 * 1024]);

#[derive(Debug, Clone)]
pub(crate) struct FakeReply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl FakeReply {
    pub(crate) fn empty(status: StatusCode) -> FakeReply {
        FakeReply { status, headers: HeaderMap::new(), body: Bytes::new() }
    }

    pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> FakeReply {
        let body = serde_json::to_vec(value).expect("values with string keys serialize");
        FakeReply::of(status, "application/json;charset=UTF-8", body)
    }

    pub(crate) fn of(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> FakeReply {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        FakeReply { status, headers, body: body.into() }
    }

    pub(crate) fn with(mut self, name: HeaderName, value: &str) -> FakeReply {
        // An invalid header value (a line break in a path) is omitted.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    pub(crate) fn complete(self) -> Response<Payload> {
        let body = self.body.clone();
        self.into_response(Payload::Complete(body))
    }

    /// Announces the full length and sends half of the body.
    pub(crate) fn truncated(mut self) -> Response<Payload> {
        if self.body.is_empty() {
            self.status = StatusCode::OK;
            self.body = Bytes::from_static(b"{\"success\":true}");
        }
        let length = HeaderValue::from(self.body.len());
        let half = self.body.slice(..self.body.len() / 2);
        let mut response = self.into_response(Payload::Truncated(Truncated::Sending(half)));
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response
    }

    pub(crate) fn huge(mut self, bytes: u64) -> Response<Payload> {
        self.status = StatusCode::OK;
        self.into_response(Payload::Huge { remaining: bytes })
    }

    pub(crate) fn trickle(self, chunk_bytes: usize, gap: Duration) -> Response<Payload> {
        let body = self.body.clone();
        self.into_response(Payload::Trickle { body, chunk_bytes, gap, pause: Box::pin(tokio::time::sleep(gap)) })
    }

    fn into_response(self, payload: Payload) -> Response<Payload> {
        let mut response = Response::new(payload);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

#[derive(Debug)]
pub(crate) enum Payload {
    Complete(Bytes),
    Truncated(Truncated),
    Huge { remaining: u64 },
    Trickle { body: Bytes, chunk_bytes: usize, gap: Duration, pause: Pin<Box<Sleep>> },
}

#[derive(Debug)]
pub(crate) enum Truncated {
    Sending(Bytes),
    /// Lets the connection flush the sent half; an immediate error would discard it.
    Flushing,
    Closing,
}

/// Closes the connection without (the rest of) a response.
#[derive(Debug, thiserror::Error)]
#[error("injected fault: connection closed")]
pub(crate) struct Hangup;

impl Body for Payload {
    type Data = Bytes;
    type Error = Hangup;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Hangup>>> {
        let frame = |bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        match self.get_mut() {
            Payload::Complete(body) if body.is_empty() => Poll::Ready(None),
            Payload::Complete(body) => frame(std::mem::take(body)),
            Payload::Truncated(state) => match state {
                Truncated::Sending(half) => {
                    let half = std::mem::take(half);
                    *state = Truncated::Flushing;
                    frame(half)
                }
                Truncated::Flushing => {
                    *state = Truncated::Closing;
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                Truncated::Closing => Poll::Ready(Some(Err(Hangup))),
            },
            Payload::Huge { remaining: 0 } => Poll::Ready(None),
            Payload::Huge { remaining } => {
                let size = (*remaining).min(HUGE_CHUNK.len() as u64);
                *remaining -= size;
                frame(HUGE_CHUNK.slice(..size as usize))
            }
            Payload::Trickle { body, .. } if body.is_empty() => Poll::Ready(None),
            Payload::Trickle { body, chunk_bytes, gap, pause } => {
                if Future::poll(pause.as_mut(), context).is_pending() {
                    return Poll::Pending;
                }
                pause.as_mut().reset(Instant::now() + *gap);
                let size = (*chunk_bytes).min(body.len());
                frame(body.split_to(size))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Payload::Complete(body) | Payload::Trickle { body, .. } => body.is_empty(),
            Payload::Huge { remaining } => *remaining == 0,
            Payload::Truncated(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::Complete(body) | Payload::Trickle { body, .. } => SizeHint::with_exact(body.len() as u64),
            Payload::Huge { .. } | Payload::Truncated(_) => SizeHint::default(),
        }
    }
}
