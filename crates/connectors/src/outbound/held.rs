//! A request body that knows whether it was handed to the connection.
//!
//! HTTP/1 in `hyper` encodes the head, takes the body's only frame and then flushes both. So as long
//! as the frame was not taken, no byte of the request has left; and once it is withdrawn here, none
//! ever will: the connection finds an error where the frame was and is dropped unflushed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

const HELD: u8 = 0;
const TAKEN: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Tells from outside what became of a [`HeldBody`].
#[derive(Clone, Debug)]
pub(super) struct Hold(Option<Arc<AtomicU8>>);

impl Hold {
    /// Splits bytes into the body to send and the hold on it. Without a body there is no frame to
    /// watch; such a request counts as having left from the start.
    pub(super) fn on(bytes: Bytes) -> (Option<HeldBody>, Hold) {
        if bytes.is_empty() {
            return (None, Hold(None));
        }
        let state = Arc::new(AtomicU8::new(HELD));
        (Some(HeldBody { bytes: Some(bytes), state: state.clone() }), Hold(Some(state)))
    }

    /// Takes the request back. `true`: no byte has left, nor will. `false`: it may have.
    pub(super) fn withdraw(&self) -> bool {
        self.0.as_ref().is_some_and(|state| {
            state.compare_exchange(HELD, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok_and(|was| was == HELD)
        })
    }
}

/// The body to send.
#[derive(Debug)]
pub(super) struct HeldBody {
    bytes: Option<Bytes>,
    state: Arc<AtomicU8>,
}

/// The caller gave up before the body was needed.
#[derive(Debug, thiserror::Error)]
#[error("the request was withdrawn before it was sent")]
pub(super) struct Withdrawn;

impl Body for HeldBody {
    type Data = Bytes;
    type Error = Withdrawn;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Withdrawn>>> {
        let Some(bytes) = self.bytes.take() else { return Poll::Ready(None) };
        let taken = self.state.compare_exchange(HELD, TAKEN, Ordering::AcqRel, Ordering::Acquire);
        Poll::Ready(Some(match taken {
            Ok(_) => Ok(Frame::data(bytes)),
            Err(_) => Err(Withdrawn),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(body: &mut HeldBody) -> Poll<Option<Result<Frame<Bytes>, Withdrawn>>> {
        Pin::new(body).poll_frame(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[test]
    fn a_withdrawn_body_is_never_handed_out_and_a_taken_one_cannot_be_withdrawn() {
        let (body, hold) = Hold::on(Bytes::from_static(b"{}"));
        let mut body = body.unwrap();
        assert_eq!(body.size_hint().exact(), Some(2));
        assert!(hold.withdraw());
        assert!(matches!(poll(&mut body), Poll::Ready(Some(Err(Withdrawn)))));

        let (body, hold) = Hold::on(Bytes::from_static(b"{}"));
        let mut body = body.unwrap();
        assert!(matches!(poll(&mut body), Poll::Ready(Some(Ok(_)))));
        assert!(!hold.withdraw());
        assert!(body.is_end_stream());
    }

    #[test]
    fn a_request_without_a_body_counts_as_sent() {
        let (body, hold) = Hold::on(Bytes::new());
        assert!(body.is_none() && !hold.withdraw());
    }
}
