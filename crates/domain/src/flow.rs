//! Flow: how requests of a source become events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::event::EventMapping;
use crate::job::JobState;
use crate::key::KeyStrategy;
use crate::path::Path;
use crate::record::JobRecord;
use crate::respond::ResponseRule;
use crate::schema::Schema;
use crate::template::Expression;
use crate::unit::Rate;
use crate::verify::{Success, Verifier};

#[derive(Clone, Debug)]
pub struct Flow {
    pub name: String,
    pub source: String,
    /// Path on the intake listener, starting with `/`.
    pub path: String,
    /// Upper case.
    pub method: String,
    /// `None` accepts loopback callers only.
    pub verify: Option<Verifier>,
    /// Detection of duplicates.
    pub idempotency: Idempotency,
    pub rate_limit: Option<RateLimit>,
    /// Rate limits by name of the secret that a request is signed with.
    pub secret_limits: BTreeMap<String, RateLimit>,
    /// Maximum size of a body, also after decompression.
    pub body_bytes_max: u64,
    pub body: BodySettings,
    pub event: EventMapping,
    pub admission: PayloadRules,
    /// Queues that receive the event.
    pub enqueue: Vec<Enqueue>,
    /// Headers, in lower case, that the verification, the key, the mapping or a condition reads. A request that repeats one
    /// of them is rejected: two readers could use different values.
    pub headers_read: BTreeSet<String>,
    /// What a duplicate is told of the first event's jobs.
    pub result: DuplicateResult,
    /// Response that the sender treats as success.
    pub success: Success,
    /// Deadline for the effect that answers an event.
    pub respond: Option<ResponseRule>,
}

impl Flow {
    /// Default maximum size of a body.
    pub const BODY_BYTES_MAX: u64 = 256 * 1024;

    /// What a duplicate is told of these jobs: text and numbers only. `None` while a job is unfinished or failed, and if the flow
    /// names nothing.
    pub fn result_of(&self, jobs: &[JobRecord]) -> Option<Map<String, Value>> {
        let ended = |state: JobState| matches!(state, JobState::Succeeded | JobState::Noop);
        if !jobs.iter().all(|job| ended(job.state)) {
            return None;
        }
        let named: Map<String, Value> = match &self.result {
            DuplicateResult::Nothing => return None,
            DuplicateResult::RecordIds => jobs
                .iter()
                .filter_map(|job| Some((job.worker.to_string(), record_ids(job.result.as_deref()?)?)))
                .collect(),
            DuplicateResult::Named(fields) => fields
                .iter()
                .filter_map(|field| {
                    let job = jobs.iter().find(|job| *job.worker == *field.worker)?;
                    let value = field.path.find(job.result.as_deref()?)?;
                    Some((field.name.clone(), plain(value)?))
                })
                .collect(),
        };
        (!named.is_empty()).then_some(named)
    }
}

/// A value that can be a record id: text or a number.
fn plain(value: &Value) -> Option<Value> {
    (value.is_string() || value.is_number()).then(|| value.clone())
}

/// The `id` of an output; of several outputs, that of each step which has one.
fn record_ids(output: &Value) -> Option<Value> {
    let own = |output: &Value| Some(serde_json::json!({ "id": plain(output.get("id")?)? }));
    own(output).or_else(|| {
        let steps: Map<String, Value> =
            output.as_object()?.iter().filter_map(|(step, output)| Some((step.clone(), own(output)?))).collect();
        (!steps.is_empty()).then_some(Value::Object(steps))
    })
}

/// What a duplicate is told of the first event's jobs, once all of them have succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DuplicateResult {
    #[default]
    Nothing,
    /// The `id` in the output of each worker.
    RecordIds,
    Named(Vec<ResultField>),
}

/// One field of the result that a duplicate gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultField {
    pub name: String,
    pub worker: String,
    /// Into the output of the worker's job.
    pub path: Path,
}

/// Format of the body, and parts of it that are never stored.
#[derive(Clone, Debug, Default)]
pub struct BodySettings {
    pub format: BodyFormat,
    /// Path of the events, if the body holds several: names of nested lists. Empty if the body is the list.
    pub events: Option<Vec<String>>,
    pub duplicate_keys: DuplicateKeys,
    /// Paths into a single event that are removed before anything is stored.
    pub dropped: Vec<Path>,
    /// Headers, in lower case, that are not stored.
    pub dropped_headers: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyFormat {
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
    /// Either, by content type.
    #[default]
    JsonOrForm,
}

/// What to do with an object that has a key twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DuplicateKeys {
    /// Reject: two parsers could use different values.
    #[default]
    Refuse,
    /// Use the last value.
    Last,
}

/// Requirements on a payload, and what to do if it does not meet them.
#[derive(Clone, Debug, Default)]
pub struct PayloadRules {
    pub schema: Option<Schema>,
    /// For payloads that do not match the schema or cannot be mapped.
    pub on_mismatch: OnMismatch,
    /// True if an event without an identity is quarantined. `None` until the consumers of the flow are known.
    pub require_identity: Option<bool>,
    /// Members of the payload that the schema or the mapping uses; `None` if all members are used.
    pub known_fields: Option<std::sync::Arc<crate::hash::Set<String>>>,
}

impl PayloadRules {
    /// Members of this payload that neither the schema nor the mapping uses.
    pub fn unknown_fields<'p>(&self, payload: &'p serde_json::Value) -> Vec<&'p str> {
        match (&self.known_fields, payload) {
            (Some(known), serde_json::Value::Object(members)) => {
                members.keys().filter(|name| !known.contains(*name)).map(String::as_str).collect()
            }
            _ => vec![],
        }
    }

    /// True if an event without an identity is quarantined.
    pub fn requires_identity(&self) -> bool {
        self.require_identity.unwrap_or(false)
    }
}

/// What to do with a payload that does not match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMismatch {
    /// Reject if it is the only event of the request; quarantine if it is one of several, so that the others are accepted.
    #[default]
    RejectUnlessBatch,
    /// Reject the whole request.
    Reject,
    /// Accept; its jobs wait for an operator.
    Quarantine,
}

/// Detection of duplicates.
#[derive(Clone, Debug)]
pub struct Idempotency {
    /// The first strategy that applies gives the key.
    pub strategies: Vec<KeyStrategy>,
    /// Lifetime of a key.
    pub ttl: Duration,
    /// Fields that may differ between two deliveries of one event.
    pub volatile: Vec<Path>,
    pub content_window: ContentDedup,
    /// The sender signs the body, but not the header that the key is derived from. The signed content then has one owner for the
    /// lifetime of the key, whatever id it comes with: a captured request must not become another event.
    pub owns_signed_content: bool,
    pub on_clash: OnClash,
}

impl Idempotency {
    /// Default lifetime of a key. Longer than the retry horizon of every known sender, and than most people wait before they
    /// press "resend".
    pub const TTL: Duration = Duration::from_secs(30 * 86_400);
    /// Default length of the content window.
    pub const CONTENT_WINDOW: Duration = Duration::from_secs(15 * 60);
}

/// How long equal content counts as a duplicate although the key differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentDedup {
    /// For [`Idempotency::CONTENT_WINDOW`], if the key is a fingerprint or from a fallback strategy. A key of the first
    /// strategy is an identifier set by the sender, which decides alone.
    #[default]
    WithoutOwnId,
    Always(Duration),
    Off,
}

/// What to do with a key clash: the same key with other content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnClash {
    /// Record it without processing.
    #[default]
    Drop,
    /// Accept it as a variant, an event of its own.
    Update,
    /// Accept it as a variant whose jobs wait for an operator.
    Quarantine,
}

/// Rate limit of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Evenly spread.
    pub rate: Rate,
    /// Requests that may arrive at once after an idle period.
    pub burst: u32,
}

/// One `queue:` step of a flow.
#[derive(Clone, Debug)]
pub struct Enqueue {
    pub step: String,
    pub queue: String,
    /// Enqueue only if true.
    pub condition: Option<Expression>,
    /// `body` that the workers see; the request's own body if `None`.
    pub body_from: Option<Expression>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn record_ids_are_all_that_an_output_gives_away() {
        assert_eq!(record_ids(&json!({"id": 7, "body": {"email": "a@b.c"}})), Some(json!({"id": 7})));
        let several = json!({"tidy": {"name": "Ada"}, "upsert": {"id": "003", "created": true}, "x": {"id": {"y": 1}}});
        assert_eq!(record_ids(&several), Some(json!({"upsert": {"id": "003"}})));
        assert_eq!(record_ids(&json!({"status": 200, "headers": {}, "body": "x"})), None);
    }
}
