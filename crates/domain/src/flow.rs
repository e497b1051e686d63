//! How a source's requests become events.

use std::time::Duration;

use crate::event::EventMapping;
use crate::key::KeyStrategy;
use crate::template::Expression;
use crate::unit::Rate;
use crate::verify::Verifier;

/// How a source's requests become events.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// Who sends.
    pub source: String,
    /// The path on the intake listener, starting with `/`.
    pub path: String,
    /// The method, in capitals.
    pub method: String,
    /// How a request proves where it comes from; `None` answers callers on loopback only.
    pub verify: Option<Verifier>,
    /// How a repeat is recognised.
    pub idempotency: Idempotency,
    /// How often this source may send.
    pub rate_limit: Option<RateLimit>,
    /// The largest body that is read.
    pub body_bytes_max: u64,
    /// How the payload becomes a normalized event.
    pub event: EventMapping,
    /// Which queues the event goes to.
    pub enqueue: Vec<Enqueue>,
}

impl Flow {
    /// The largest body, unless the flow says otherwise.
    pub const BODY_BYTES_MAX: u64 = 256 * 1024;
}

/// How a repeat is recognised.
#[derive(Clone, Debug)]
pub struct Idempotency {
    /// The first strategy that applies gives the key.
    pub strategies: Vec<KeyStrategy>,
    /// How long a key is remembered.
    pub ttl: Duration,
}

impl Idempotency {
    /// How long a key is remembered, unless the flow says otherwise. Longer than any sender is known
    /// to repeat an event by itself, and than most people wait before pressing "resend".
    pub const TTL: Duration = Duration::from_secs(30 * 86_400);
}

/// How often a source may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Evenly spread.
    pub rate: Rate,
    /// How many at once when it has been quiet.
    pub burst: u32,
}

/// One `queue:` line of a flow.
#[derive(Clone, Debug)]
pub struct Enqueue {
    /// The step's name.
    pub step: String,
    /// The queue.
    pub queue: String,
    /// Only if this is true.
    pub condition: Option<Expression>,
    /// What the worker sees as `body`; the request's own body when left out.
    pub body_from: Option<Expression>,
}
