//! Receives request bodies. Bytes are counted as they arrive, over all connections and for each address.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::{Instant, timeout_at};

use super::peer::Peer;

/// How often the rate of a body that does not arrive is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A body may start this late before its rate counts.
const GRACE: Duration = Duration::from_secs(1);

/// Limits of bodies.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    pub(super) timeout: Duration,
    /// Bytes in flight over all connections.
    pub(super) bytes_max: usize,
    pub(super) bytes_per_address_max: usize,
    /// Bytes per second that a body must arrive with while memory is short.
    pub(super) rate_min: usize,
}

/// Bytes of bodies that are being received or wait for their commit.
#[derive(Debug, Default)]
pub(super) struct BodyMemory {
    used: AtomicUsize,
}

impl BodyMemory {
    pub(super) fn is_full(&self, limits: &BodyLimits) -> bool {
        self.used.load(Ordering::Relaxed) >= limits.bytes_max
    }

    fn is_short(&self, limits: &BodyLimits) -> bool {
        self.used.load(Ordering::Relaxed) > limits.bytes_max / 2
    }
}

/// Why a body was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveError {
    TooLarge,
    Incomplete,
    Timeout,
    /// Slower than the minimum rate while memory is short.
    TooSlow,
    MemoryFull,
    AddressLimit,
}

/// A body with its share of the memory.
#[derive(Debug)]
pub(super) struct ReceivedBody<'a> {
    pub(super) bytes: Bytes,
    _share: Share<'a>,
}

#[derive(Debug)]
struct Share<'a> {
    memory: &'a BodyMemory,
    peer: &'a Peer,
    bytes: usize,
}

impl Share<'_> {
    /// Counts the buffer as `bytes` long. A single body may be larger than a limit for all of them.
    fn grow_to(&mut self, bytes: usize, limits: &BodyLimits) -> Result<(), ReceiveError> {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else { return Ok(()) };
        self.bytes = bytes;
        let total = self.memory.used.fetch_add(more, Ordering::Relaxed) + more;
        let of_peer = self.peer.body_bytes.fetch_add(more, Ordering::Relaxed) + more;
        if of_peer > limits.bytes_per_address_max && of_peer > bytes {
            return Err(ReceiveError::AddressLimit);
        }
        if total > limits.bytes_max && total > bytes {
            return Err(ReceiveError::MemoryFull);
        }
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.peer.body_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Receives bodies of one caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiver<'a> {
    pub(super) memory: &'a BodyMemory,
    pub(super) limits: &'a BodyLimits,
    pub(super) peer: &'a Peer,
}

impl<'a> Receiver<'a> {
    /// Receives a body of at most `bytes_max` bytes.
    pub(super) async fn receive<B>(self, body: B, bytes_max: usize) -> Result<ReceivedBody<'a>, ReceiveError>
    where
        B: Body<Data = Bytes>,
    {
        let Receiver { memory, limits, peer } = self;
        let mut body = pin!(body);
        let mut share = Share { memory, peer, bytes: 0 };
        let mut buffer = BytesMut::new();
        let started = Instant::now();
        let deadline = started + limits.timeout;
        while !body.is_end_stream() {
            let now = Instant::now();
            if memory.is_short(limits) && is_too_slow(buffer.len(), now - started, limits) {
                return Err(ReceiveError::TooSlow);
            }
            let data = match timeout_at(deadline.min(now + CHECK_INTERVAL), body.frame()).await {
                Err(_) if Instant::now() >= deadline => return Err(ReceiveError::Timeout),
                Err(_) => continue,
                Ok(None) => break,
                Ok(Some(Err(_))) => return Err(ReceiveError::Incomplete),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => data,
                    Err(_) => continue,
                },
            };
            let received = buffer.len() + data.len();
            if received > bytes_max {
                return Err(ReceiveError::TooLarge);
            }
            share.grow_to(received, limits)?;
            if buffer.is_empty() && body.is_end_stream() {
                return Ok(ReceivedBody { bytes: data, _share: share });
            }
            buffer.extend_from_slice(&data);
            share.grow_to(buffer.capacity(), limits)?;
        }
        Ok(ReceivedBody { bytes: buffer.freeze(), _share: share })
    }
}

fn is_too_slow(received: usize, elapsed: Duration, limits: &BodyLimits) -> bool {
    let allowed = GRACE.as_secs_f64() + received as f64 / limits.rate_min.max(1) as f64;
    elapsed.as_secs_f64() > allowed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body_util::Full;
    use hyper::body::Frame;

    const LIMITS: BodyLimits =
        BodyLimits { timeout: Duration::from_secs(15), bytes_max: 1_000, bytes_per_address_max: 400, rate_min: 100 };

    fn receiver<'a>(memory: &'a BodyMemory, peer: &'a Peer) -> Receiver<'a> {
        Receiver { memory, limits: &LIMITS, peer }
    }

    fn full(bytes: usize) -> Full<Bytes> {
        Full::new(Bytes::from(vec![b'x'; bytes]))
    }

    #[tokio::test]
    async fn bytes_are_counted_while_the_body_lives() {
        let (memory, peer, other) = (BodyMemory::default(), Peer::default(), Peer::default());
        let used = || (memory.used.load(Ordering::Relaxed), peer.body_bytes.load(Ordering::Relaxed));
        let first = receiver(&memory, &peer).receive(full(300), 500).await.unwrap();
        assert_eq!((first.bytes.len(), used()), (300, (300, 300)));
        let second = receiver(&memory, &peer).receive(full(200), 500).await;
        assert_eq!(second.err(), Some(ReceiveError::AddressLimit));
        assert_eq!(used(), (300, 300), "a refused body is not counted");
        let third = receiver(&memory, &other).receive(full(300), 500).await.unwrap();
        assert_eq!(receiver(&memory, &other).receive(full(501), 500).await.err(), Some(ReceiveError::TooLarge));
        drop((first, third));
        assert_eq!(used(), (0, 0));
        let large = receiver(&memory, &peer).receive(full(2_000), 2_000).await.unwrap();
        assert_eq!(large.bytes.len(), 2_000, "a single body may be larger than the limit for all");
        assert!(memory.is_full(&LIMITS));
    }

    /// A body that sends one byte and never ends.
    struct Stalled(Option<Bytes>);

    impl Body for Stalled {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.0.take().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
        }
    }

    #[tokio::test]
    async fn slow_body_ends_sooner_when_memory_is_short() {
        let (memory, peer) = (BodyMemory::default(), Peer::default());
        let stalled = || Stalled(Some(Bytes::from_static(b"{")));
        let limits = BodyLimits { timeout: Duration::from_millis(20), ..LIMITS };
        let receiver = Receiver { memory: &memory, limits: &limits, peer: &peer };
        assert_eq!(receiver.receive(stalled(), 500).await.err(), Some(ReceiveError::Timeout));
        memory.used.fetch_add(600, Ordering::Relaxed);
        let limits = BodyLimits { timeout: Duration::from_secs(3_600), ..LIMITS };
        let receiver = Receiver { limits: &limits, ..receiver };
        assert_eq!(receiver.receive(stalled(), 500).await.err(), Some(ReceiveError::TooSlow));
        assert_eq!(peer.body_bytes.load(Ordering::Relaxed), 0);
    }
}
