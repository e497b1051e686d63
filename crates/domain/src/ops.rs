//! What a run writes to the ledger, as data. Each is one transaction, and a repeat of it does no harm.
//!
//! A write names the state that it follows from: the attempt number `n` and the term of the owner that wrote the job last. If
//! the job has changed since, the write is stale and refused.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::approval::{ApprovalId, ApprovalState, Choice};
use crate::contact::WriteRecord;
use crate::event::{EventId, MappingWarning};
use crate::job::{EffectKey, EffectState, JobId, Term};
use crate::key::KeyDigest;
use crate::mutant::Mutant;
use crate::outcome::{EffectClass, Failure};
use crate::record::AttemptKind;
use crate::time::Time;
use crate::transition::JobUpdate;
use crate::upsert::RecordIdentity;

/// The intent of an attempt: the effect is recorded before it is made.
#[derive(Clone, Debug)]
pub struct Begin {
    pub job: JobId,
    /// Number of this attempt among all of the job.
    pub n: u32,
    pub fence: Fence,
    pub step: u32,
    pub step_id: Arc<str>,
    /// Stable across retries, restarts and replays.
    pub key: EffectKey,
    pub class: EffectClass,
    pub action: &'static str,
    pub destination: Arc<str>,
    /// Of an action that [looks first](crate::action::Action::looks_first): no other effect of this identity is begun before
    /// this one is settled.
    pub identity: Option<RecordIdentity>,
    pub at: Time,
}

/// Who writes, and what the writer believes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// Term of the writer. The job carries it afterwards.
    pub owner: Term,
    /// Term that the job carries now; if it carries another, the write is stale.
    pub expected: Term,
}

/// The result of a [`Begin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginResult {
    /// The intent is durable: make the call.
    Go,
    /// The effect is finished already.
    AlreadyApplied,
    /// The outcome of another effect of the same identity is open; nothing was written.
    IdentityBusy,
    Stale,
}

/// The result of a [`Begin`] under caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CappedBeginResult {
    Begun(BeginResult),
    /// The cap at this index is exhausted; nothing was written.
    Refused(usize),
}

/// The end of a run: what the job becomes, and what became of its attempt.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub job: JobId,
    /// Number of the job's last attempt. With an `attempt` of kind call the job must be running it.
    pub n: u32,
    pub fence: Fence,
    /// `None` if no effect was touched.
    pub effect: Option<EffectSettlement>,
    /// `None` if nothing was attempted.
    pub attempt: Option<AttemptSettlement>,
    /// A call that wrote the merged state of the contact.
    pub write: Option<WriteRecord>,
    pub next: JobUpdate,
    pub at: Time,
}

/// A retry that counts against the budget of the job's contact. It is counted and checked in the transaction that settles the
/// job, over all jobs of the worker about the same entity.
#[derive(Clone, Debug)]
pub struct RetryCharge {
    /// How many may count at once.
    pub retries: u32,
    /// Until when this one counts.
    pub until: Time,
    /// The update that is written if none is left.
    pub otherwise: JobUpdate,
}

/// The result of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeResult {
    Settled,
    /// No retry was left: the other update is written.
    Exhausted,
    /// Nothing was written.
    Stale,
}

/// What became of an effect.
#[derive(Clone, Debug)]
pub struct EffectSettlement {
    pub key: EffectKey,
    /// Place of its step in the revision that the job runs under.
    pub step: u32,
    pub state: EffectState,
    pub result: Option<Arc<Value>>,
    /// Reads that did not find the effect, since the last attempt.
    pub absent_reads: u32,
    /// Reads in all, since the last attempt.
    pub reads: u32,
    /// Until when, by the ledger's clock, the call of an unsure attempt may still be applied and overwrite later writes of its lane;
    /// the last confirmed one is read back then. `None` if it cannot, or if that cannot be found out.
    pub late_until: Option<Time>,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub struct AttemptSettlement {
    pub step_id: Arc<str>,
    pub kind: AttemptKind,
    pub started_at: Time,
    pub outcome: &'static str,
    pub failure: Option<Failure>,
}

/// The result of an internal step, recorded as a finished effect of the job. The first result counts.
#[derive(Clone, Debug)]
pub struct StepResult {
    pub job: JobId,
    /// Number of the job's last attempt.
    pub n: u32,
    pub fence: Fence,
    pub step: u32,
    pub step_id: Arc<str>,
    pub key: EffectKey,
    pub action: &'static str,
    /// Applied or skipped.
    pub state: EffectState,
    pub result: Value,
    /// Counted for the source of the event if the result is recorded.
    pub warning: Option<Box<StepWarning>>,
    pub at: Time,
}

/// A warning of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepWarning {
    /// Source of the event.
    pub source: Arc<str>,
    pub warning: MappingWarning,
}

/// Sets a mark unless another job has. The result of the step is recorded with it: whether the mark was set.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The step that owns the mark, in every run of its job. Its result is replaced.
    pub result: StepResult,
    /// Marks of different stores are independent.
    pub store: String,
    pub key: KeyDigest,
    /// Keys of the adjacent time buckets: the mark counts as set under each of them.
    pub adjacent: Vec<KeyDigest>,
    /// The event of the job.
    pub event: EventId,
    pub expires_at: Time,
}

impl Mark {
    /// The answer if the mark, or one of an adjacent bucket, is owned by the step with this effect key, of a job of this event.
    /// `None` if it can be set nevertheless.
    pub fn owned_by(&self, owner: EffectKey, event: EventId) -> Option<Marked> {
        if Mutant::MarkSetTwice.is_on() {
            return None;
        }
        let is_own = owner == self.result.key && !Mutant::MarkForgetsItsOwner.is_on();
        Some(if is_own { Marked::SET } else { Marked { set: false, owner: Some(event) } })
    }
}

/// The owner of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Whether the step that asked owns it.
    pub set: bool,
    /// The event whose job owns it otherwise.
    pub owner: Option<EventId>,
}

impl Marked {
    /// The step that asked owns it.
    pub const SET: Marked = Marked { set: true, owner: None };

    /// As the output of the step.
    pub fn output(self) -> Value {
        match self.owner {
            None => json!({ "set": self.set }),
            Some(owner) => json!({ "set": self.set, "owner_event": owner }),
        }
    }
}

/// An effect that does not happen, with the reason as its result.
#[derive(Clone, Debug)]
pub struct Skip {
    pub job: JobId,
    /// Number of the job's last attempt.
    pub n: u32,
    pub fence: Fence,
    pub step: u32,
    pub step_id: Arc<str>,
    pub key: EffectKey,
    pub class: EffectClass,
    pub action: &'static str,
    pub destination: Arc<str>,
    pub result: Value,
    pub at: Time,
}

/// A consent that was given or withdrawn. The newest statement counts, in whatever order they arrive.
#[derive(Clone, Debug)]
pub struct SetConsent {
    pub contact: KeyDigest,
    pub purpose: Arc<str>,
    pub granted: bool,
    /// When the contact stated it.
    pub at: Time,
}

/// Requests an approval. A request that was made before is not made again.
#[derive(Clone, Debug)]
pub struct RequestApproval {
    pub id: ApprovalId,
    /// The job that waits for the decision.
    pub job: JobId,
    pub worker: Arc<str>,
    pub step_id: Arc<str>,
    /// One line.
    pub title: String,
    pub summary: String,
    /// When the default decision counts.
    pub expires_at: Time,
    pub default: Choice,
    pub at: Time,
    /// How the job waits while nobody has decided: written in the same commit, so that no decision comes in between.
    pub waits: Option<Settlement>,
}

impl RequestApproval {
    /// How the job waits for a request that is already recorded and expires at this time. Due times are by the steady clock and
    /// expiry by the wall clock, so the due time moves by the difference.
    pub fn waits_until(&self, expires_at: Time) -> Option<Settlement> {
        let mut waits = self.waits.clone()?;
        waits.next.due_at = Time(waits.next.due_at.0 - (self.expires_at.0 - expires_at.0));
        Some(waits)
    }
}

/// A decision on one or more approvals. The first decision on each counts.
#[derive(Clone, Debug)]
pub struct DecideApproval {
    pub ids: Vec<ApprovalId>,
    pub choice: Choice,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRecord {
    /// Ascending in the order of requests.
    pub n: i64,
    pub id: ApprovalId,
    pub job: JobId,
    pub worker: String,
    pub step_id: String,
    pub title: String,
    pub summary: String,
    pub asked_at: Time,
    pub expires_at: Time,
    pub default: Choice,
    pub state: ApprovalState,
    pub decided_at: Option<Time>,
    pub decided_by: Option<String>,
    pub reason: Option<String>,
}
