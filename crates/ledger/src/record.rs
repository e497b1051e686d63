//! What the ledger remembers, as callers see it. No SQL type leaves this crate.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use sluice_domain::event::EventId;
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::{EffectClass, Failure};
use sluice_domain::time::Time;

use crate::decoded_event::DecodedEvent;

/// The place of an event in the order of acceptance.
pub type EventSeq = i64;

/// An event that wants to be accepted.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// What decides whether it is a repeat.
    pub key: KeyDigest,
    /// The same for a person.
    pub key_text: String,
    /// How long the key is remembered.
    pub expires_at: Time,
    /// The flow that took it in.
    pub flow: Arc<str>,
    /// Who sent it.
    pub source: Arc<str>,
    /// What happened.
    pub event_type: String,
    /// Who or what it is about.
    pub entity: u64,
    /// When the request arrived.
    pub received_at: Time,
    /// When it happened, by the source's word.
    pub occurred_at: Option<Time>,
    /// Which secret proved where it comes from.
    pub verified_by: Option<String>,
    /// The configuration that it is accepted under.
    pub revision: Arc<str>,
    /// Joins what is logged and traced about it.
    pub trace: String,
    /// The content, without what changes on a resend.
    pub fingerprint: [u8; 16],
    /// The request and what was made of it.
    pub body: Arc<EventBody>,
    /// What is to be done: one job for each worker.
    pub jobs: Vec<NewJob>,
    /// More keys under which an owner counts as the owner of this one: the neighbouring time buckets.
    pub adjacent_keys: Vec<KeyDigest>,
    /// What is done with a repeat that says something else.
    pub clash: ClashPolicy,
    /// For how long another event of this flow with the same content is taken for a repeat, whatever its key.
    pub content_window: Option<std::time::Duration>,
    /// Why its jobs must wait for a person from the start.
    pub quarantine: Option<Quarantine>,
    /// Whose personal data the body holds, if that is known: a digest, never the address itself.
    pub contact: Option<KeyDigest>,
}

/// What is done with a repeat whose content is another than the first's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClashPolicy {
    /// Kept and shown, and nothing is done with it.
    #[default]
    Drop,
    /// Becomes an event of its own.
    Update,
    /// Becomes an event of its own whose jobs wait for a person.
    Quarantine,
}

/// Why an event's jobs wait for a person from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantine {
    /// What is wrong with the event. Each of its jobs lies in its own dead-letter queue.
    pub failure: Failure,
}

/// The request as it arrived, and the event that was made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventBody {
    /// The headers that are kept, as a JSON object.
    pub headers: String,
    /// The bytes of the body.
    pub raw: Vec<u8>,
    /// The normalized event, as JSON.
    pub normalized: String,
    /// The same as it is, until its first run.
    pub decoded: DecodedEvent,
}

impl EventBody {
    /// Roughly what it takes in memory and on disk.
    pub fn bytes(&self) -> usize {
        self.headers.len() + self.raw.len() + self.normalized.len()
    }
}

/// A job that comes with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Who works on it.
    pub worker: Arc<str>,
    /// Where it waits.
    pub queue: Arc<str>,
    /// Where it lies if it has to wait for a person from the start.
    pub dead_letter_queue: Option<Arc<str>>,
}

impl NewJob {
    /// With no dead-letter queue.
    pub fn new(worker: &str, queue: &str) -> NewJob {
        NewJob { worker: worker.into(), queue: queue.into(), dead_letter_queue: None }
    }

    /// The same, lying in this queue if it has to wait for a person from the start.
    pub fn or_dead_in(self, queue: &str) -> NewJob {
        NewJob { dead_letter_queue: Some(queue.into()), ..self }
    }
}

impl NewEvent {
    /// A job of it as it comes in at this time, to be done at once. What the ledger knows it by, its driver knows.
    pub fn queued(&self, job: &NewJob, id: JobId, now: Time) -> JobRecord {
        JobRecord {
            id,
            ord: 0,
            worker: job.worker.clone(),
            queue: job.queue.clone(),
            revision: self.revision.clone(),
            entity: self.entity,
            state: JobState::Queued,
            step: 0,
            attempts: 0,
            attempts_total: 0,
            due_at: now,
            verifying: false,
            created_at: now,
            updated_at: now,
            finished_at: None,
            replays: 0,
            failure: None,
            dead_letter_queue: None,
            result: None,
        }
    }

    /// How it is remembered under this name, as the first of its key. Where it is written, and with which jobs, its driver knows.
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

/// An accepted event, without its body.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRecord {
    /// Its place in the order of acceptance.
    pub seq: EventSeq,
    /// Its public name.
    pub id: EventId,
    /// How many events with this key went before it and expired.
    pub generation: u32,
    /// The idempotency key, readable.
    pub key_text: String,
    /// The flow that took it in.
    pub flow: Arc<str>,
    /// Who sent it.
    pub source: Arc<str>,
    /// What happened.
    pub event_type: String,
    /// When the request arrived.
    pub received_at: Time,
    /// When it became durable.
    pub persisted_at: Time,
    /// When it happened, by the source's word.
    pub occurred_at: Option<Time>,
    /// Until when its key is remembered.
    pub expires_at: Time,
    /// The configuration that it was accepted under.
    pub revision: Arc<str>,
    /// Which secret proved where it comes from.
    pub verified_by: Option<String>,
    /// Joins what is logged and traced about it.
    pub trace: String,
    /// The first of its jobs; they follow each other.
    pub first_job: JobId,
    /// How many jobs it has.
    pub jobs: u32,
    /// The event with the same key and another content, beside which this one was let in.
    pub variant_of: Option<EventSeq>,
}

/// The contents that came under the key of an event after it and say something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variants {
    /// The first few of them.
    pub kept: Vec<VariantRecord>,
    /// Requests with yet other contents, which were counted and not kept.
    pub further: u64,
}

/// Another content under the key of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantRecord {
    /// When it came first.
    pub received_at: Time,
    /// What tells it from others.
    pub fingerprint: [u8; 16],
    /// How often it came.
    pub times: u64,
    /// The event that it became, unless it was dropped.
    pub event: Option<EventSeq>,
    /// What it says, while that is kept.
    pub body: Option<EventBody>,
}

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    /// Which.
    pub id: JobId,
    /// The event that it belongs to.
    pub ord: EventSeq,
    /// Who works on it.
    pub worker: Arc<str>,
    /// Where it waits.
    pub queue: Arc<str>,
    /// The configuration that it runs under.
    pub revision: Arc<str>,
    /// Who or what it is about.
    pub entity: u64,
    /// Where it stands.
    pub state: JobState,
    /// The next step to be done.
    pub step: u32,
    /// Attempts at this step since it was last replayed: what the retry policy counts.
    pub attempts: u32,
    /// Attempts in all, never reset.
    pub attempts_total: u32,
    /// Not before.
    pub due_at: Time,
    /// The outcome of the last attempt must be read back before anything else.
    pub verifying: bool,
    /// When it was accepted.
    pub created_at: Time,
    /// When it last changed.
    pub updated_at: Time,
    /// When it came to an end.
    pub finished_at: Option<Time>,
    /// How often it was replayed.
    pub replays: u32,
    /// What went wrong last.
    pub failure: Option<Failure>,
    /// The dead-letter queue that it lies in.
    pub dead_letter_queue: Option<String>,
    /// What came of it.
    pub result: Option<Arc<Value>>,
}

/// An outward action in the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectRecord {
    /// The job that does it.
    pub job: JobId,
    /// The place of its step.
    pub step: u32,
    /// The name of its step.
    pub step_id: String,
    /// Its name for ever.
    pub key: EffectKey,
    /// What is done.
    pub action: String,
    /// Where.
    pub destination: String,
    /// How a repeat is treated there.
    pub class: EffectClass,
    /// Where it stands.
    pub state: EffectState,
    /// Attempts in all.
    pub attempts: u32,
    /// Reads that did not find it, since the last attempt.
    pub absent_reads: u32,
    /// Reads in all, since the last attempt.
    pub reads: u32,
    /// What the destination said.
    pub result: Option<Arc<Value>>,
    /// When it was first written down.
    pub first_at: Time,
    /// When it last changed.
    pub last_at: Time,
}

/// One try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptRecord {
    /// The job.
    pub job: JobId,
    /// Its number among the tries of the job.
    pub n: u32,
    /// The name of the step.
    pub step: String,
    /// `call`, or `read` when an outcome was read back.
    pub kind: AttemptKind,
    /// When it started.
    pub started_at: Time,
    /// When it ended.
    pub ended_at: Time,
    /// done, noop, retry, wait, reject, unsure, interrupted.
    pub outcome: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// Whether a try did something or only looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptKind {
    /// The effect was sent.
    Call,
    /// The outcome of an earlier call was read back.
    Read,
}

/// A job that has just become durable, with its event, so that it can run without another read.
#[derive(Clone, Debug)]
pub struct NewJobNotice {
    /// The job.
    pub job: JobRecord,
    /// Its event.
    pub event: Arc<EventRecord>,
    /// And the event's body.
    pub body: Arc<EventBody>,
}

/// A line of the audit trail.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditRecord {
    /// Its place.
    pub id: i64,
    /// When.
    pub at: Time,
    /// Who.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// To what.
    pub object: String,
    /// And why, or how.
    pub detail: String,
}

/// Something that is stopped by a person or by a refused credential.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PauseRecord {
    /// `destination:crm`, `worker:contact-upsert`, `source:website`.
    pub target: String,
    /// Since when.
    pub at: Time,
    /// By whom.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// A revision of the configuration that came into force.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RevisionRecord {
    /// Its place among all changes, from 1.
    pub n: i64,
    /// Since when.
    pub at: Time,
    /// The revision.
    pub hash: String,
    /// Who brought it.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// Jobs that belong together, by what they need of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PinnedRecord {
    /// The revision whose steps they do.
    pub revision: String,
    /// Their worker.
    pub worker: String,
    /// The queue that they were put into.
    pub queue: String,
    /// Where they lie when they are dead.
    pub dead_letter_queue: Option<String>,
    /// How many are live.
    pub live: u64,
    /// How many wait for a person: dead letters, and those whose outcome is unknown.
    pub parked: u64,
}

impl PinnedRecord {
    /// What one job counts for.
    pub(crate) fn one(
        revision: String,
        worker: String,
        queue: String,
        dead_letter_queue: Option<String>,
        parked: bool,
    ) -> PinnedRecord {
        let (live, parked) = (u64::from(!parked), u64::from(parked));
        PinnedRecord { revision, worker, queue, dead_letter_queue, live, parked }
    }

    /// Each of these so many times.
    pub(crate) fn counted(groups: BTreeMap<PinnedRecord, u64>) -> Vec<PinnedRecord> {
        let times = |(one, count): (PinnedRecord, u64)| PinnedRecord {
            live: one.live * count,
            parked: one.parked * count,
            ..one
        };
        groups.into_iter().map(times).collect()
    }
}

/// What a source has sent on one day, counted when it was committed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceDayCounts {
    /// The day, as `2026-11-15`.
    pub day: String,
    /// Who sent.
    pub source: String,
    /// Requests answered 202 for the first time.
    pub accepted: u64,
    /// Repeats answered with the first answer.
    pub duplicates: u64,
    /// Requests whose content was another than that of the first with their key, whatever was done with them.
    pub clashes: u64,
    /// Repeats that were recognised by their content alone; they are among the duplicates.
    pub by_content: u64,
    /// Accepted events by what became of their jobs; only in a balance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobCounts>,
}

/// Jobs by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobCounts {
    /// By the word for the state.
    #[serde(flatten)]
    pub by_state: std::collections::BTreeMap<&'static str, u64>,
}

/// What may be told about the keys that seal the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeysRecord {
    /// The name of the root key.
    pub root: String,
    /// The keys of the tenant, oldest first. New data is sealed with the last one.
    pub tenant: Vec<TenantKeyRecord>,
    /// How many contacts have a key.
    pub contacts: u64,
    /// How many of those a rotation of the tenant's key has not come to yet.
    pub to_rewrap: u64,
}

/// A key of the tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenantKeyRecord {
    /// Its version.
    pub version: u32,
    /// Since when.
    pub created_at: Time,
}
