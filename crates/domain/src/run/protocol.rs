//! Inputs and commands of a run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::action::Action;
use crate::config::Config;
use crate::contact::{ContactView, WriteSlot};
use crate::enrich::{Lookup, LookupResult};
use crate::event::EventId;
use crate::job::{EffectKey, JobId, JobState, Term};
use crate::key::KeyDigest;
use crate::ops::{
    ApprovalRecord, Begin, CappedBeginResult, ChargeResult, DecideApproval, Mark, Marked, RequestApproval, RetryCharge,
    SetConsent, Settlement, Skip, StepResult,
};
use crate::outcome::{Outcome, Readback};
use crate::policy::{CapReservation, ContactFacts, Policy};
use crate::pseudonym::PseudonymKey;
use crate::record::{EffectRecord, EventBody, EventRecord, EventSeq, JobRecord, NewEvent};
use crate::settle::DestinationHealth;
use crate::template::Secrets;
use crate::time::Time;
use crate::upsert::RecordIdentity;
use crate::worker::{LaneOrder, Worker};

/// A job with everything that a run reads of the ledger.
#[derive(Clone, Debug)]
pub struct LoadedJob {
    pub job: JobRecord,
    pub event: Arc<EventRecord>,
    pub body: Arc<EventBody>,
    /// Every effect of the job. Empty for a job that has never run.
    pub effects: Vec<EffectRecord>,
}

/// What a run depends on beside its job. Read anew for every input.
#[derive(Clone, Copy, Debug)]
pub struct RunContext {
    /// Steady clock. Due times are kept by it.
    pub now: Time,
    /// The ledger's clock. Everything that is recorded or compared with stored times.
    pub at: Time,
    /// Wall clock: quiet hours, and what destinations are told.
    pub wall: Time,
    /// Term of the process: what it writes carries it.
    pub term: Term,
    /// End of the safe mode of the job's worker, by the ledger's clock; `None` if it is off.
    pub safe_mode_until: Option<Time>,
    /// Record every attempt before its call, whatever its class: set for a while after an unclean shutdown.
    pub record_first: bool,
    /// The steady clock's time at the last start of the machine: due times that were written before may be early.
    pub at_boot: Time,
}

/// One revision of the configuration with its secrets.
#[derive(Clone)]
pub struct ConfigRevision {
    pub name: Arc<str>,
    pub config: Arc<Config>,
    pub secrets: Arc<dyn Secrets + Send + Sync>,
    pub pseudonyms: PseudonymKey,
}

/// Secrets are not shown.
impl fmt::Debug for ConfigRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigRevision").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The configuration of a run: the steps come from the revision that the job was accepted under, retry policies, policies
/// and dead-letter queues from the active one where it still has them.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// `None` if the revision cannot be read any more.
    pub pinned: Option<ConfigRevision>,
    pub active: ConfigRevision,
}

impl RunConfig {
    /// The worker of a job, with the retry policy of the active revision.
    pub fn worker(&self, name: &str) -> Option<Arc<Worker>> {
        let pinned = self.pinned.as_ref()?;
        let worker = pinned.config.workers.get(name)?;
        match self.active.config.workers.get(name) {
            Some(newer) if self.active.name != pinned.name && newer.retry != worker.retry => {
                Some(Arc::new(Worker { retry: newer.retry.clone(), ..(**worker).clone() }))
            }
            _ => Some(worker.clone()),
        }
    }

    pub(super) fn policy(&self, name: &str) -> Option<Arc<Policy>> {
        let pinned = || self.pinned.as_ref().and_then(|pinned| pinned.config.policies.get(name));
        self.active.config.policies.get(name).or_else(pinned).cloned()
    }

    pub(super) fn dead_letter_queue(&self, worker: &Worker) -> Option<Arc<str>> {
        let of_queue = |revision: &ConfigRevision| {
            revision.config.queues.get(&worker.queue).and_then(|queue| queue.dead_letter_queue.clone())
        };
        let own = worker.retry.dead_letter_queue.clone();
        own.or_else(|| of_queue(&self.active)).or_else(|| self.pinned.as_ref().and_then(of_queue))
    }
}

/// Where a job waits: the lane group of its next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRoute {
    /// The destination that the job calls next; empty if it runs internal steps first.
    pub destination: Arc<str>,
    pub order: LaneOrder,
}

impl StepRoute {
    /// For a job whose next step calls no destination.
    pub fn internal() -> StepRoute {
        StepRoute { destination: Arc::from(""), order: LaneOrder::Fifo }
    }

    /// Whether no destination is called.
    pub fn is_internal(&self) -> bool {
        self.destination.is_empty()
    }
}

/// One attempt at one effect, as a connector needs it.
#[derive(Clone)]
pub struct StepCall {
    pub job: JobId,
    pub action: Action,
    pub destination: Arc<str>,
    /// Rendered parameters. They hold secrets and personal data.
    pub with: Value,
    pub effect_key: EffectKey,
    /// Label of the effect: the step's id, with item and round where there are several.
    pub label: Arc<str>,
    /// The event's own key where the effect may be known by it; items of a list and repeated rounds have only their own.
    pub message_key: Option<String>,
    /// Id of the record that an effect of the same identity wrote before.
    pub record: Option<Value>,
    /// From 1, since the job was last replayed.
    pub attempt: u32,
    pub traceparent: String,
    pub timeout: Duration,
    /// Wall clock.
    pub at: Time,
}

impl fmt::Debug for StepCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepCall")
            .field("job", &self.job)
            .field("action", &self.action.name())
            .field("destination", &self.destination)
            .field("effect_key", &self.effect_key)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// When the intent of a call becomes durable.
#[derive(Clone, Debug)]
pub enum Recording {
    /// It is durable already.
    Done,
    /// Submit it before the call, without waiting for the commit.
    Before(Box<Begin>),
    /// Submit it if the call takes longer than [`super::RECORD_AFTER`]. A quicker call is recorded with its outcome.
    IfSlow(Box<Begin>),
}

/// Calls of one or more jobs to one destination, to be made as one request where the connector can batch. The answer has one
/// outcome for each call, in their order.
#[derive(Clone, Debug)]
pub struct CallBatch {
    pub calls: Vec<StepCall>,
    pub recording: Vec<Recording>,
}

/// The place of a call among those that may share a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchItem {
    /// Calls in one request, at the most.
    pub max: usize,
    /// Only calls with the same key share a request.
    pub key: String,
    /// Only calls with different identities share a request.
    pub identity: String,
}

/// Whether a job of a group calls the destination with the slot of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferAnswer {
    Taken,
    /// Another job has the slot; `alone` if this one can share no request.
    Released {
        alone: bool,
    },
}

/// The end of a run as it is written: one transaction.
#[derive(Clone, Debug)]
pub struct Settle {
    pub settlement: Settlement,
    /// A retry that counts against the budget of the job's contact.
    pub charge: Option<RetryCharge>,
    /// The attempt, if its intent was not recorded before.
    pub begin: Option<Begin>,
}

/// What to do next for a job. Exactly one [`Input`] answers each command but [`Command::Finish`].
#[derive(Clone, Debug)]
pub enum Command {
    /// Read what is known of a contact. Answer: [`Input::ContactFacts`].
    ReadContactFacts { contact: KeyDigest, channel: Arc<str>, purposes: Vec<Arc<str>> },
    /// Read the contact of an event, with the last confirmed write of a step. Answer: [`Input::Contact`].
    ReadContact { seq: EventSeq, slot: WriteSlot },
    /// Count what is used of a cap. Answer: [`Input::CapUsed`].
    ReadCapUsed(CapReservation),
    /// Record the result of an internal step. Answer: [`Input::Recorded`].
    RecordStep(Box<StepResult>),
    /// Set a mark unless another job has. Answer: [`Input::Marked`].
    SetMark(Box<Mark>),
    /// Record a consent. Answer: [`Input::Done`].
    SetConsent(SetConsent),
    /// Ask for an approval. Answer: [`Input::Approval`].
    RequestApproval(Box<RequestApproval>),
    /// Decide an expired approval and read it. Answer: [`Input::Approval`].
    ExpireApproval(Box<DecideApproval>),
    /// Choose dead letters to replay. Answer: [`Input::DeadLetters`].
    PullDeadLetters { queue: String, limit: usize, replays_max: u32 },
    /// Read dead letters with their events. Answer: [`Input::Messages`].
    ReadMessages(Vec<JobId>),
    /// Read the state of a job in a queue. Answer: [`Input::JobIn`].
    ReadJobIn { job: JobId, queue: String },
    /// Requeue a dead letter. Answer: [`Input::Requeued`].
    Requeue { job: JobId, actor: String },
    /// Accept a new event. Answer: [`Input::Accepted`].
    Accept(Box<NewEvent>),
    /// Look something up. Answer: [`Input::LookedUp`], within [`crate::enrich::TIMEOUT_MAX`].
    LookUp(Box<Lookup>),
    /// Only of a job in a group, which answers it: ready to call, with its place in a batch, or to read back. Answer:
    /// [`Input::Offer`].
    Offer(Option<BatchItem>),
    /// Record an intent and wait until it is durable. Answer: [`Input::Begun`].
    Begin { begin: Box<Begin>, caps: Vec<CapReservation> },
    /// Read the id of the record of an identity, as an earlier effect returned it. Answer: [`Input::Record`].
    ReadRecord { job: JobId, identity: RecordIdentity },
    /// Call the destination. Answer: [`Input::Called`].
    Call(CallBatch),
    /// Read back how an earlier call ended. Answer: [`Input::ReadBack`].
    ReadBack(Box<StepCall>),
    /// Record that an effect is skipped, and why. Answer: [`Input::Skipped`].
    Skip(Box<Skip>),
    /// Write the end of the run. Answer: [`Input::Settled`].
    Settle(Box<Settle>),
    /// The run has ended.
    Finish(Box<RunResult>),
}

/// The answer to a [`Command`].
#[derive(Clone, Debug)]
pub enum Input {
    ContactFacts(ContactFacts),
    /// `None` if the event has no contact.
    Contact(Option<Box<ContactView>>),
    CapUsed(u64),
    /// The result as it is recorded, the first one counts; `None` if the run is stale.
    Recorded(Option<Value>),
    /// `None` if the run is stale.
    Marked(Option<Marked>),
    Done,
    /// `None` if the run is stale or the approval is gone.
    Approval(Option<Box<ApprovalRecord>>),
    DeadLetters(DeadLetters),
    Messages(Value),
    /// The state of the job, if it is in that queue.
    JobIn(Option<JobState>),
    Requeued(Requeue),
    Accepted {
        id: EventId,
        /// `false` for a duplicate.
        new: bool,
    },
    LookedUp(Box<LookupResult>),
    Offer(OfferAnswer),
    Begun(CappedBeginResult),
    Record(Option<Value>),
    Called {
        outcome: Outcome,
        /// Whether the intent was submitted before the outcome was known.
        recorded: bool,
    },
    ReadBack(Readback),
    /// `false` if the run is stale.
    Skipped(bool),
    Settled(ChargeResult),
}

/// Dead letters that a `queue_pull` found.
#[derive(Clone, Debug)]
pub enum DeadLetters {
    Found(Vec<JobId>),
    /// Replays are paused; the value says since when and why.
    Paused(Value),
}

/// What came of a requeue.
#[derive(Clone, Debug)]
pub enum Requeue {
    /// `false` if the job was not dead any more.
    Requeued(bool),
    /// Replays are paused; the value says since when and why.
    Paused(Value),
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum RunResult {
    /// The job as it is now.
    Ended {
        job: JobRecord,
        /// What the attempt says about the destination; `None` if it was not called.
        health: Option<DestinationHealth>,
        /// Duration of the call; `None` if none was made.
        took: Option<Duration>,
        /// Where a live job waits next.
        route: StepRoute,
        /// Whether the ledger knows the job so. A job that was only handed to another destination has not changed there.
        settled: bool,
    },
    /// The slot was used for other jobs. The destination was not called, and the ledger has no other route of the job than before.
    Released {
        job: JobRecord,
        /// Its call can share no request: it needs a slot of its own.
        alone: bool,
    },
    /// The ledger has another state than this run assumed: load the job again.
    Reload,
}

/// Something that happened in a run and is counted or logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    PolicyDenied {
        policy: Arc<str>,
        rule: Arc<str>,
        kind: DenialKind,
    },
    Mark {
        set: bool,
    },
    /// A lookup was made; a failed one has a message.
    Lookup {
        step: Arc<str>,
        action: &'static str,
        result: &'static str,
        failure: Option<String>,
    },
    RetryBudgetExhausted,
    Requeued,
    /// A write of this run was refused: the job has changed since it was loaded.
    Stale,
    /// A record is not compared with its last confirmed write any more.
    NotCompared {
        reason: String,
    },
}

/// Whether a policy refused an effect or put it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialKind {
    Refused,
    Deferred,
}

impl DenialKind {
    /// As a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            DenialKind::Refused => "refused",
            DenialKind::Deferred => "wait",
        }
    }
}
