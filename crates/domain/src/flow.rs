//! How a source's requests become events.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::EventMapping;
use crate::key::KeyStrategy;
use crate::path::Path;
use crate::schema::Schema;
use crate::template::Expression;
use crate::unit::Rate;
use crate::verify::{Success, Verifier};

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
    /// How often the holder of each secret of this name may send.
    pub secret_limits: BTreeMap<String, RateLimit>,
    /// The largest body that is read, and the largest after it is decompressed.
    pub body_bytes_max: u64,
    /// What the body is, and what of it is never stored.
    pub body: BodySettings,
    /// How the payload becomes a normalized event.
    pub event: EventMapping,
    /// What a payload must be, and what happens to one that is not.
    pub admission: PayloadRules,
    /// Which queues the event goes to.
    pub enqueue: Vec<Enqueue>,
    /// What the sender takes for a success.
    pub success: Success,
}

impl Flow {
    /// The largest body, unless the flow says otherwise.
    pub const BODY_BYTES_MAX: u64 = 256 * 1024;
}

/// What a body is, and what of it is never stored.
#[derive(Clone, Debug, Default)]
pub struct BodySettings {
    /// How it is written.
    pub format: BodyFormat,
    /// Where its events are, if it holds several: the names of lists within lists. Empty: the body is the list.
    pub events: Option<Vec<String>>,
    /// What is done with an object that has a name twice.
    pub duplicate_keys: DuplicateKeys,
    /// Paths into a single event that are taken out before anything is stored.
    pub dropped: Vec<Path>,
    /// Headers, in lower case, that are not stored.
    pub dropped_headers: Vec<String>,
}

/// How a body is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyFormat {
    /// JSON.
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
    /// Either, as the content type says.
    #[default]
    JsonOrForm,
}

/// What is done with an object that has a name twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DuplicateKeys {
    /// Refused: two readers could each take another one of them.
    #[default]
    Refuse,
    /// The last one counts.
    Last,
}

/// What a payload must be, and what happens to one that is not.
#[derive(Clone, Debug, Default)]
pub struct PayloadRules {
    /// The shape that the payload must have.
    pub schema: Option<Schema>,
    /// What is done with a payload that does not match, or that cannot be mapped.
    pub on_mismatch: OnMismatch,
    /// Whether an event without any identity waits for a person. `None` until it is known who works on it.
    pub require_identity: Option<bool>,
    /// The members of the payload that the schema or the mapping knows; `None` if everything is taken as it comes.
    pub known_fields: Option<std::sync::Arc<crate::hash::Set<String>>>,
}

impl PayloadRules {
    /// The members of this payload that nothing knows.
    pub fn unknown_fields<'p>(&self, payload: &'p serde_json::Value) -> Vec<&'p str> {
        match (&self.known_fields, payload) {
            (Some(known), serde_json::Value::Object(members)) => {
                members.keys().filter(|name| !known.contains(*name)).map(String::as_str).collect()
            }
            _ => vec![],
        }
    }

    /// Whether an event without any identity waits for a person.
    pub fn requires_identity(&self) -> bool {
        self.require_identity.unwrap_or(false)
    }
}

/// What is done with a payload that does not match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMismatch {
    /// Refused if it came alone; kept for a person if it came with others, so that they need not come again.
    #[default]
    RejectUnlessBatch,
    /// Refused, together with whatever came with it.
    Reject,
    /// Kept, and its jobs wait for a person.
    Quarantine,
}

/// How a repeat is recognised.
#[derive(Clone, Debug)]
pub struct Idempotency {
    /// The first strategy that applies gives the key.
    pub strategies: Vec<KeyStrategy>,
    /// How long a key is remembered.
    pub ttl: Duration,
    /// Fields that may differ between two deliveries of one event.
    pub volatile: Vec<Path>,
    /// For how long the same content is taken for a repeat although its key is another.
    pub content_window: ContentDedup,
    /// What is done with a repeat whose content is another.
    pub on_clash: OnClash,
}

impl Idempotency {
    /// How long a key is remembered, unless the flow says otherwise. Longer than any sender is known
    /// to repeat an event by itself, and than most people wait before pressing "resend".
    pub const TTL: Duration = Duration::from_secs(30 * 86_400);
    /// Default length of the content window.
    pub const CONTENT_WINDOW: Duration = Duration::from_secs(15 * 60);
}

/// For how long the same content is taken for a repeat although its key is another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentDedup {
    /// For [`Idempotency::CONTENT_WINDOW`], where the key is the content or a fallback. Where it is the first strategy's, the
    /// sender has said what is one and what is two.
    #[default]
    WithoutOwnId,
    /// Always, for so long.
    Always(Duration),
    /// Never.
    Off,
}

/// What is done with a repeat whose content is another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnClash {
    /// Kept and shown, and nothing is done with it.
    #[default]
    Drop,
    /// Becomes an event of its own.
    Update,
    /// Becomes an event of its own whose jobs wait for a person.
    Quarantine,
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
