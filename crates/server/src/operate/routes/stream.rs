//! Server-sent events: says that something has changed. A page then reads its own part again.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Extension;
use axum::http::{HeaderValue, StatusCode, header, request};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::problem;
use crate::access::Access;
use crate::operate::listener::Stopping;
use crate::operate::operator::Operator;

/// Open streams; further ones are refused.
pub(super) const STREAMS_MAX: usize = 64;
/// Messages are at least this far apart, however much changes.
const PACE: Duration = Duration::from_secs(1);
/// Streams that are told of jobs each second. With more of them each is told less often, so that the pages which are then read do not
/// take the machine from the intake.
const TOLD_PER_SECOND: usize = 8;
/// A comment is sent after so many quiet steps of [`PACE`], so that a lost connection is noticed.
const QUIET_MAX: u32 = 15;
/// The session or token of the reader is looked at after so many steps of [`PACE`].
const CHECKED_EVERY: u32 = 5;

/// Permits of open streams.
#[derive(Clone, Debug)]
pub(super) struct Streams(Arc<Semaphore>);

impl Default for Streams {
    fn default() -> Streams {
        Streams(Arc::new(Semaphore::new(STREAMS_MAX)))
    }
}

impl Streams {
    fn open(&self) -> usize {
        STREAMS_MAX - self.0.available_permits()
    }
}

/// Steps of [`PACE`] between two messages about jobs.
fn steps_between(open: usize) -> u32 {
    u32::try_from(open.div_ceil(TOLD_PER_SECOND)).unwrap_or(u32::MAX).max(1)
}

/// Who reads a stream.
struct Reader {
    access: Access,
    /// Of the request, with its cookie or token.
    head: request::Parts,
    streams: Streams,
    _permit: OwnedSemaphorePermit,
}

/// Changes as server-sent events: `jobs` (events, jobs or effects) and `control` (pauses, safe mode, the active revision,
/// suppression). Ends when the node stops, and soon after the session or token of its reader has ended.
#[utoipa::path(get, path = "/api/v1/stream", responses((status = 200, content_type = "text/event-stream"), (status = 503)))]
pub(super) async fn stream(
    operator: Operator,
    Extension(streams): Extension<Streams>,
    Extension(stopping): Extension<Stopping>,
    Extension(access): Extension<Access>,
    head: request::Parts,
) -> Response {
    let Ok(permit) = streams.0.clone().try_acquire_owned() else {
        let detail = format!("{STREAMS_MAX} streams are open; read the lists instead, or close one");
        let mut refusal = problem(StatusCode::SERVICE_UNAVAILABLE, "too-many-streams", &detail);
        refusal.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
        return refusal;
    };
    let (messages, received) = mpsc::channel(1);
    tokio::spawn(report(operator, messages, stopping, Reader { access, head, streams, _permit: permit }));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::new(Messages(received))).into_response()
}

/// Writes a message whenever a counter has moved, until the reader goes, is not admitted any more, or the node stops.
async fn report(operator: Operator, messages: mpsc::Sender<Bytes>, stopping: Stopping, reader: Reader) {
    let Stopping(mut stop) = stopping;
    let mut changes = operator.ledger.changes();
    let operations = || operator.ledger.stats().operations.load(Ordering::Relaxed);
    let mut seen = operations();
    let (mut quiet, mut untold, mut unchecked) = (0, 0, 0);
    if messages.send(Bytes::from_static(b"retry: 2000\nevent: hello\ndata: {}\n\n")).await.is_err() {
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(PACE) => {}
            _ = stop.wait_for(|stop| *stop) => return,
            () = messages.closed() => return,
        }
        unchecked += 1;
        if unchecked >= CHECKED_EVERY {
            unchecked = 0;
            if !reader.access.still_admits(&reader.head).await {
                return;
            }
        }
        let now = operations();
        let mut text = String::new();
        untold += 1;
        if now != seen && untold >= steps_between(reader.streams.open()) {
            text.push_str("event: jobs\ndata: {}\n\n");
            (seen, untold) = (now, 0);
        }
        if changes.has_changed().unwrap_or(false) {
            changes.borrow_and_update();
            text.push_str("event: control\ndata: {}\n\n");
        }
        quiet = if text.is_empty() { quiet + 1 } else { 0 };
        if quiet >= QUIET_MAX {
            quiet = 0;
            text.push_str(":\n\n");
        }
        if !text.is_empty() && messages.send(Bytes::from(text)).await.is_err() {
            return;
        }
    }
}

/// Messages as the body of a response.
struct Messages(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Messages {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|message| message.map(|message| Ok(Frame::data(message))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_streams_share_the_messages_of_a_second() {
        assert_eq!([0, 1, 8, 9, 50, 64].map(steps_between), [1, 1, 1, 2, 7, 8]);
    }
}
