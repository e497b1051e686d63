//! An answer before it meets its fault, and the bodies that faults are made of.

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

/// A whole answer.
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
        let body = serde_json::to_vec(value).expect("our own values have string keys and cannot fail to serialize");
        FakeReply::of(status, "application/json;charset=UTF-8", body)
    }

    pub(crate) fn of(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> FakeReply {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        FakeReply { status, headers, body: body.into() }
    }

    pub(crate) fn with(mut self, name: HeaderName, value: &str) -> FakeReply {
        // A value that is no header (a line break in a path) is left out rather than answered.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    pub(crate) fn whole(self) -> Response<Payload> {
        let body = self.body.clone();
        self.carrying(Payload::Whole(body))
    }

    /// Announces all of the body and sends half of it.
    pub(crate) fn cut(mut self) -> Response<Payload> {
        if self.body.is_empty() {
            self.status = StatusCode::OK;
            self.body = Bytes::from_static(b"{\"success\":true}");
        }
        let length = HeaderValue::from(self.body.len());
        let half = self.body.slice(..self.body.len() / 2);
        let mut response = self.carrying(Payload::Cut(Cut::Sending(half)));
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response
    }

    pub(crate) fn huge(mut self, bytes: u64) -> Response<Payload> {
        self.status = StatusCode::OK;
        self.carrying(Payload::Huge { left: bytes })
    }

    pub(crate) fn trickle(self, chunk_bytes: usize, gap: Duration) -> Response<Payload> {
        let body = self.body.clone();
        self.carrying(Payload::Trickle { body, chunk_bytes, gap, pause: Box::pin(tokio::time::sleep(gap)) })
    }

    fn carrying(self, payload: Payload) -> Response<Payload> {
        let mut response = Response::new(payload);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// What is sent after the headers.
#[derive(Debug)]
pub(crate) enum Payload {
    Whole(Bytes),
    Cut(Cut),
    Huge { left: u64 },
    Trickle { body: Bytes, chunk_bytes: usize, gap: Duration, pause: Pin<Box<Sleep>> },
}

#[derive(Debug)]
pub(crate) enum Cut {
    Sending(Bytes),
    /// Gives the connection one turn to flush what was sent; an error at once would swallow it.
    Flushing,
    Closing,
}

/// Ends the connection without (the rest of) an answer.
#[derive(Debug, thiserror::Error)]
#[error("the simulator hung up on order")]
pub(crate) struct Hangup;

impl Body for Payload {
    type Data = Bytes;
    type Error = Hangup;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Hangup>>> {
        let frame = |bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        match self.get_mut() {
            Payload::Whole(body) if body.is_empty() => Poll::Ready(None),
            Payload::Whole(body) => frame(std::mem::take(body)),
            Payload::Cut(cut) => match cut {
                Cut::Sending(half) => {
                    let half = std::mem::take(half);
                    *cut = Cut::Flushing;
                    frame(half)
                }
                Cut::Flushing => {
                    *cut = Cut::Closing;
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                Cut::Closing => Poll::Ready(Some(Err(Hangup))),
            },
            Payload::Huge { left: 0 } => Poll::Ready(None),
            Payload::Huge { left } => {
                let size = (*left).min(HUGE_CHUNK.len() as u64);
                *left -= size;
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
            Payload::Whole(body) | Payload::Trickle { body, .. } => body.is_empty(),
            Payload::Huge { left } => *left == 0,
            Payload::Cut(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::Whole(body) | Payload::Trickle { body, .. } => SizeHint::with_exact(body.len() as u64),
            Payload::Huge { .. } | Payload::Cut(_) => SizeHint::default(),
        }
    }
}
