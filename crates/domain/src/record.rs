//! Events, jobs and effects as the ledger stores them.

use crate::call_budget::Traffic;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::contact::Observation;
use crate::digest::DigestContext;
use crate::event::{Event, EventId, MappingWarning};
use crate::job::{EffectKey, EffectState, JobId, JobState, Term};
use crate::key::{KeyDigest, TENANT};
use crate::outcome::{EffectClass, Failure};
use crate::respond::{AwaitedEvent, NewResponse, ResponseClock};
use crate::run::StepRoute;
use crate::time::Time;
use crate::worker::LaneOrder;

/// Sequence number of an event: the order of acceptance.
pub type EventSeq = i64;

/// An event that is to be accepted.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Digest of the idempotency key: decides whether the event is a duplicate.
    pub key: KeyDigest,
    pub key_text: String,
    /// End of the key's lifetime.
    pub expires_at: Time,
    pub flow: Arc<str>,
    pub source: Arc<str>,
    pub event_type: String,
    /// Digest of the person or thing that the event is about.
    pub entity: u64,
    pub received_at: Time,
    /// By the sender's own clock.
    pub occurred_at: Option<Time>,
    /// Name of the secret that verified the request.
    pub verified_by: Option<String>,
    /// Configuration that the event is accepted under.
    pub revision: Arc<str>,
    pub trace: String,
    /// Fingerprint of the content without its volatile fields.
    pub fingerprint: [u8; 16],
    pub body: Arc<EventBody>,
    /// One job for each worker.
    pub jobs: Vec<NewJob>,
    /// Keys of the adjacent time buckets: their owner owns this key too.
    pub adjacent_keys: Vec<KeyDigest>,
    pub clash: ClashPolicy,
    /// Digest of the signed content, if the signature does not cover the key: it has one owner, as the key has.
    pub signed_content: Option<KeyDigest>,
    /// How long an event of this flow with the same type and content is a duplicate, whatever its key.
    pub content_window: Option<Duration>,
    pub quarantine: Option<Quarantine>,
    /// Digest of the person whose data the body holds, if known.
    pub contact: Option<KeyDigest>,
    /// A proof of the sender that counts for one request. The events of one request carry the same.
    pub proof: Option<Proof>,
    /// Fields whose conversion lost something. Counted by source, field and code.
    pub warnings: Vec<MappingWarning>,
    /// What the event says about its contact, if contacts are kept. It has an identifier, or it is quarantined without one and waits
    /// for a later event that supplies it.
    pub observation: Option<Box<Observation>>,
    /// A row of an import: when it arrives says nothing about its source.
    pub imported: bool,
    /// Starts the response clock of its flow.
    pub response: Option<Box<NewResponse>>,
}

/// A one-time proof of a sender, such as a token that is signed without the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    pub digest: KeyDigest,
    /// End of the time in which the proof is accepted at all.
    pub expires_at: Time,
}

impl Proof {
    /// Names the request with these events: their keys and their content. A proof counts for it alone. Where the proof does not cover
    /// the body, who has read a request could send another body under its keys otherwise.
    pub fn request(events: &[NewEvent]) -> KeyDigest {
        static CONTEXT: DigestContext = DigestContext::new("sluice proven request");
        KeyDigest(CONTEXT.of(|hasher| {
            for event in events {
                hasher.update(&event.key.0).update(&event.fingerprint);
            }
        }))
    }
}

/// The parts of a [`NewEvent`] that do not follow from its normalized form.
#[derive(Debug)]
pub struct EventDraft<'a> {
    pub flow: &'a str,
    pub source: &'a Arc<str>,
    pub expires_at: Time,
    pub revision: &'a Arc<str>,
    pub trace: &'a str,
    pub fingerprint: [u8; 16],
    /// Stored headers as a JSON object.
    pub headers: String,
    pub raw: Vec<u8>,
    pub event: &'a Event,
    pub jobs: Vec<NewJob>,
}

impl EventDraft<'_> {
    /// Id of the first event of a flow with this key.
    pub fn event_id(flow: &str, key: &str) -> EventId {
        EventId::new(KeyDigest::new(TENANT, flow, key), 0)
    }
}

/// What is done with a duplicate whose content differs from the first event's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClashPolicy {
    /// Stored and shown; nothing is done with it.
    #[default]
    Drop,
    /// Accepted as an event of its own.
    Update,
    /// Accepted as an event of its own whose jobs are quarantined.
    Quarantine,
}

/// Why the jobs of an event are dead letters from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantine {
    pub failure: Failure,
    /// Lookups of a worker may supply the identity that is missing: see [`crate::run::IdentitySearch`].
    pub looks_up_identity: bool,
}

impl Quarantine {
    pub fn new(failure: Failure) -> Quarantine {
        Quarantine { failure, looks_up_identity: false }
    }
}

/// The request as it arrived, and the normalized event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventBody {
    /// Stored headers as a JSON object.
    pub headers: String,
    pub raw: Vec<u8>,
    /// The normalized event as JSON.
    pub normalized: String,
    /// Number of edits of the normalized event.
    pub edits: u32,
    /// Identity fields that were supplied after the event was accepted. The normalized event has them; the request does not.
    pub supplied: Map<String, Value>,
    pub decoded: DecodedEvent,
}

impl EventBody {
    /// Whether the body was removed at the end of its retention: what is loaded instead is empty.
    pub fn is_removed(&self) -> bool {
        self.normalized.is_empty()
    }

    /// Approximate size in memory and on disk.
    pub fn bytes(&self) -> usize {
        self.headers.len() + self.raw.len() + self.normalized.len()
    }
}

/// The decoded event of a body, so that runs do not parse its text again. Memory only: it is never stored, a clone has none, and
/// it does not count for equality. Large events are not cached.
#[derive(Default)]
pub struct DecodedEvent(Mutex<Option<Decoded>>);

enum Decoded {
    /// As intake has it. Its reference to the stored request is not known yet.
    Event(Box<Event>),
    Scope(Arc<Value>),
}

impl DecodedEvent {
    /// Caches an event. It must equal what its text decodes to.
    pub fn put(&self, event: Event) {
        if let Ok(mut cached) = self.0.lock() {
            *cached = Some(Decoded::Event(Box::new(event)));
        }
    }

    /// Caches the value of the event in expressions.
    pub fn put_scope(&self, scope: Arc<Value>) {
        if let Ok(mut cached) = self.0.lock() {
            *cached = Some(Decoded::Scope(scope));
        }
    }

    pub fn clear(&self) {
        if let Ok(mut cached) = self.0.lock() {
            *cached = None;
        }
    }
}

impl EventBody {
    /// The value of `event` in expressions, for the event with this id.
    pub fn scope(&self, id: EventId) -> Result<Arc<Value>, serde_json::Error> {
        let Ok(mut cached) = self.decoded.0.lock() else {
            return Event::scope_of_text(&self.normalized, id).map(Arc::new);
        };
        let scope = match cached.take() {
            Some(Decoded::Scope(scope)) => scope,
            Some(Decoded::Event(mut event)) => {
                event.audit.locate(id);
                Arc::new(event.into_scope())
            }
            None => {
                let scope = Arc::new(Event::scope_of_text(&self.normalized, id)?);
                if !Event::is_cacheable(&scope) {
                    return Ok(scope);
                }
                scope
            }
        };
        *cached = Some(Decoded::Scope(scope.clone()));
        Ok(scope)
    }
}

impl Clone for DecodedEvent {
    fn clone(&self) -> DecodedEvent {
        DecodedEvent::default()
    }
}

impl PartialEq for DecodedEvent {
    fn eq(&self, _: &DecodedEvent) -> bool {
        true
    }
}

impl Eq for DecodedEvent {}

impl fmt::Debug for DecodedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecodedEvent")
    }
}

/// A job that is accepted with its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    pub worker: Arc<str>,
    pub queue: Arc<str>,
    /// Where a quarantined job lies.
    pub dead_letter_queue: Option<Arc<str>>,
    pub route: StepRoute,
}

impl NewJob {
    /// A job that runs internal steps first and has no dead-letter queue.
    pub fn new(worker: &str, queue: &str) -> NewJob {
        NewJob { worker: worker.into(), queue: queue.into(), dead_letter_queue: None, route: StepRoute::internal() }
    }

    /// The same with a dead-letter queue.
    pub fn or_dead_in(self, queue: &str) -> NewJob {
        NewJob { dead_letter_queue: Some(queue.into()), ..self }
    }

    /// The same with a route.
    pub fn routed(self, route: StepRoute) -> NewJob {
        NewJob { route, ..self }
    }
}

impl NewEvent {
    /// The event of a draft: everything else follows from its normalized form. Verification, duplicates of content and
    /// quarantine are set by the caller where they differ from the defaults.
    pub fn new(draft: EventDraft<'_>) -> NewEvent {
        let key = KeyDigest::new(TENANT, draft.flow, &draft.event.idempotency_key);
        NewEvent::with_key(draft, key)
    }

    /// The same for a caller that has the digest of the event's key already.
    pub fn with_key(draft: EventDraft<'_>, key: KeyDigest) -> NewEvent {
        let event = draft.event;
        let body = EventBody {
            headers: draft.headers,
            raw: draft.raw,
            normalized: serde_json::to_string(event).expect("an event has a JSON form"),
            ..EventBody::default()
        };
        NewEvent {
            key,
            key_text: event.idempotency_key.clone(),
            expires_at: draft.expires_at,
            flow: Arc::from(draft.flow),
            source: draft.source.clone(),
            event_type: event.event_type.clone(),
            entity: event.entity(),
            received_at: event.audit.received_at,
            occurred_at: event.occurred_at,
            verified_by: None,
            revision: draft.revision.clone(),
            trace: draft.trace.to_owned(),
            fingerprint: draft.fingerprint,
            body: Arc::new(body),
            jobs: draft.jobs,
            adjacent_keys: vec![],
            clash: ClashPolicy::Drop,
            signed_content: None,
            content_window: None,
            quarantine: None,
            contact: event.contact(),
            proof: None,
            warnings: event.audit.warnings.clone(),
            observation: None,
            imported: false,
            response: None,
        }
    }

    /// The response clock that starts with this event, whose jobs have the ids from `first_job` on.
    pub fn response_clock(&self, seq: EventSeq, id: EventId, first_job: JobId) -> Option<ResponseClock> {
        let new = self.response.as_deref()?;
        let place = self.jobs.iter().position(|job| job.worker == new.worker)?;
        let job = JobId(first_job.0 + i64::try_from(place).unwrap_or(0));
        let event = AwaitedEvent { seq, id, flow: self.flow.clone(), job, received_at: self.received_at };
        Some(ResponseClock::new(event, new))
    }

    /// A job of this event as it is accepted, due at once. The driver sets its sequence number.
    pub fn queued(&self, job: &NewJob, id: JobId, now: Time) -> JobRecord {
        JobRecord {
            id,
            seq: 0,
            worker: job.worker.clone(),
            queue: job.queue.clone(),
            revision: self.revision.clone(),
            entity: self.entity,
            destination: job.route.destination.clone(),
            order: job.route.order,
            state: JobState::Queued,
            step: 0,
            attempts: 0,
            attempts_total: 0,
            term: Term::default(),
            due_at: now,
            verifying: false,
            created_at: now,
            updated_at: now,
            finished_at: None,
            replays: 0,
            imported: self.imported,
            failure: None,
            dead_letter_queue: None,
            result: None,
        }
    }

    /// This event as the first of its key under this id. The driver sets its sequence number and its jobs.
    pub fn record(&self, id: EventId) -> EventRecord {
        EventRecord {
            seq: 0,
            id,
            generation: 0,
            key_text: self.key_text.clone(),
            flow: self.flow.clone(),
            source: self.source.clone(),
            event_type: self.event_type.clone(),
            received_at: self.received_at,
            persisted_at: self.received_at,
            occurred_at: self.occurred_at,
            expires_at: self.expires_at,
            revision: self.revision.clone(),
            verified_by: self.verified_by.clone(),
            trace: self.trace.clone(),
            first_job: JobId(0),
            jobs: u32::try_from(self.jobs.len()).unwrap_or(u32::MAX),
            variant_of: None,
        }
    }
}

/// An accepted event without its body.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRecord {
    pub seq: EventSeq,
    pub id: EventId,
    /// Number of expired events that had this key before.
    pub generation: u32,
    pub key_text: String,
    pub flow: Arc<str>,
    pub source: Arc<str>,
    pub event_type: String,
    pub received_at: Time,
    /// When the event became durable.
    pub persisted_at: Time,
    /// By the sender's own clock.
    pub occurred_at: Option<Time>,
    /// End of the key's lifetime.
    pub expires_at: Time,
    /// Configuration that the event was accepted under.
    pub revision: Arc<str>,
    /// Name of the secret that verified the request.
    pub verified_by: Option<String>,
    pub trace: String,
    /// The ids of the event's jobs are consecutive, from this one.
    pub first_job: JobId,
    pub jobs: u32,
    /// The event with the same key and other content that came before.
    pub variant_of: Option<EventSeq>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    pub id: JobId,
    /// Sequence number of its event.
    pub seq: EventSeq,
    pub worker: Arc<str>,
    pub queue: Arc<str>,
    /// Configuration that the job runs under.
    pub revision: Arc<str>,
    pub entity: u64,
    /// Destination that the job calls next; empty if internal steps come first.
    pub destination: Arc<str>,
    /// Whether jobs of one entity keep their order there.
    pub order: LaneOrder,
    pub state: JobState,
    /// The next step.
    pub step: u32,
    /// Attempts at this step since the last replay: what the retry policy counts.
    pub attempts: u32,
    /// Attempts in all, never reset.
    pub attempts_total: u32,
    /// Term of the owner that wrote the job last.
    pub term: Term,
    /// Not before this time of the steady clock.
    pub due_at: Time,
    /// The outcome of the last attempt must be read back first.
    pub verifying: bool,
    pub created_at: Time,
    pub updated_at: Time,
    pub finished_at: Option<Time>,
    pub replays: u32,
    /// Its event was imported.
    pub imported: bool,
    /// The last failure.
    pub failure: Option<Failure>,
    pub dead_letter_queue: Option<String>,
    pub result: Option<Arc<Value>>,
}

impl JobRecord {
    /// The due time of a waiting job that is made due. The ledger does not know the steady clock that due times are kept by.
    pub const DUE_AT_ONCE: Time = Time(0);

    /// Why the job calls its destination.
    pub fn traffic(&self) -> Traffic {
        if self.imported || self.replays > 0 { Traffic::Background } else { Traffic::Live }
    }

    pub fn route(&self) -> StepRoute {
        StepRoute { destination: self.destination.clone(), order: self.order }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct EffectRecord {
    pub job: JobId,
    pub step: u32,
    /// Label of the effect: the step's id, with item and round where there are several.
    pub step_id: String,
    pub key: EffectKey,
    pub action: String,
    pub destination: String,
    pub class: EffectClass,
    pub state: EffectState,
    /// Attempts in all.
    pub attempts: u32,
    /// Reads that did not find the effect, since the last attempt.
    pub absent_reads: u32,
    /// Reads in all, since the last attempt.
    pub reads: u32,
    pub result: Option<Arc<Value>>,
    pub first_at: Time,
    pub last_at: Time,
}

/// Whether an attempt called the destination or read back an earlier call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptKind {
    Call,
    Read,
}
