//! What stands between a step and its effect: places under caps, consent, suppressed contacts, questions to people, safe mode.

use std::sync::Arc;

use sluice_domain::approval::{ApprovalId, ApprovalState};
use sluice_domain::job::JobId;
use sluice_domain::key::KeyDigest;
pub use sluice_domain::ops::{ApprovalRecord, CappedBeginResult, DecideApproval, RequestApproval, SetConsent, Skip};
use sluice_domain::policy::{CapReservation, ContactFacts};
use sluice_domain::time::Time;

use crate::op::{Begin, Op, Reply};
use crate::view::Snapshot;
use crate::{BeginResult, Error, Ledger, Page};

/// Something to write.
#[derive(Clone, Debug)]
pub enum GuardOp {
    /// An attempt is about to be made, if there is a place under each of these caps.
    BeginWithin(Box<Begin>, Vec<CapReservation>),
    /// An effect does not happen, for a reason that is kept.
    Skip(Box<Skip>),
    /// Somebody agreed or withdrew.
    Consent(SetConsent),
    /// Somebody must not be written to.
    Suppress(Suppress),
    /// Somebody may be written to again.
    Release(Unsuppress),
    /// Ask a person, and let the job wait.
    Ask(Box<RequestApproval>),
    /// A person, or the end of their time, has answered.
    Decide(DecideApproval),
    /// Safe mode begins or ends.
    SafeMode(SetSafeMode),
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum GuardReply {
    /// The attempt may be made, or not.
    Begun(BeginResult),
    /// There is no place under the cap in this place of the list.
    Refused(usize),
    /// It is written.
    Done,
    /// The job has moved on without this run; nothing was written.
    Stale,
    /// So many rows were changed.
    Changed(u64),
    /// How the question stands.
    Asked(Box<ApprovalRecord>),
    /// What became of each answer.
    Decided(Vec<(ApprovalId, Decided)>),
}

/// These contacts must not be written to.
#[derive(Clone, Debug)]
pub struct Suppress {
    /// Who, and how they are shown in a list: masked.
    pub contacts: Vec<(KeyDigest, String)>,
    /// By which channel; empty means any.
    pub channel: String,
    /// Who says so.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
}

/// These contacts may be written to again.
#[derive(Clone, Debug)]
pub struct Unsuppress {
    /// Who.
    pub contacts: Vec<KeyDigest>,
    /// By which channel; empty means any.
    pub channel: String,
    /// Who says so.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
}

/// What became of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It counts; this job goes on or ends.
    Counts(JobId, Arc<str>),
    /// It was given before, with the same choice.
    Same,
    /// Another was given before.
    Conflict(Box<ApprovalRecord>),
    /// There is no such question.
    Unknown,
}

/// Which questions.
#[derive(Clone, Debug, Default)]
pub struct ApprovalFilter {
    /// Only in this state.
    pub state: Option<ApprovalState>,
    /// Only of this worker.
    pub worker: Option<String>,
    /// Only asked before this.
    pub asked_before: Option<Time>,
}

impl ApprovalFilter {
    pub(crate) fn matches(&self, record: &ApprovalRecord) -> bool {
        self.state.is_none_or(|state| record.state == state)
            && self.worker.as_deref().is_none_or(|worker| record.worker == worker)
            && self.asked_before.is_none_or(|before| record.asked_at < before)
    }
}

/// Safe mode begins, or ends.
#[derive(Clone, Debug)]
pub struct SetSafeMode {
    /// The worker; `None` is all of them.
    pub worker: Option<String>,
    /// Until when; `None` ends it now.
    pub until: Option<Time>,
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
}

/// Safe mode of a worker, or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeModeRecord {
    /// The worker; `None` is all of them.
    pub worker: Option<String>,
    /// Since when.
    pub at: Time,
    /// Until when.
    pub until: Time,
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// A contact that must not be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuppressionRecord {
    /// How it is shown: masked.
    pub label: String,
    /// By which channel; empty means any.
    pub channel: String,
    /// Since when.
    pub at: Time,
    /// Who said so.
    pub actor: String,
    /// Why.
    pub reason: String,
}

impl Ledger {
    async fn guard(&self, op: GuardOp) -> Result<GuardReply, Error> {
        match self.submit(Op::Guard(op)).await? {
            Reply::Guard(reply) => Ok(reply),
            other => unreachable!("a guard is not answered with {other:?}"),
        }
    }

    /// Writes down that an attempt is about to be made and takes its place under every cap, or does neither.
    pub async fn begin_under_caps(&self, begin: Begin, caps: Vec<CapReservation>) -> Result<CappedBeginResult, Error> {
        if caps.is_empty() {
            return self.begin(begin).await.map(CappedBeginResult::Begun);
        }
        match self.guard(GuardOp::BeginWithin(Box::new(begin), caps)).await? {
            GuardReply::Begun(begun) => Ok(CappedBeginResult::Begun(begun)),
            GuardReply::Refused(cap) => Ok(CappedBeginResult::Refused(cap)),
            other => unreachable!("a begin is not answered with {other:?}"),
        }
    }

    /// Keeps that an effect does not happen, and why. `false` if the job has moved on without this run.
    pub async fn skip(&self, skip: Skip) -> Result<bool, Error> {
        Ok(matches!(self.guard(GuardOp::Skip(Box::new(skip))).await?, GuardReply::Done))
    }

    /// Keeps what somebody agreed to.
    pub async fn set_consent(&self, consent: SetConsent) -> Result<(), Error> {
        self.guard(GuardOp::Consent(consent)).await.map(drop)
    }

    /// Keeps whom not to write to. Answers how many were not known before.
    pub async fn suppress(&self, suppress: Suppress) -> Result<u64, Error> {
        self.changed(GuardOp::Suppress(suppress)).await
    }

    /// Takes contacts off the list. Answers how many were on it.
    pub async fn unsuppress(&self, release: Unsuppress) -> Result<u64, Error> {
        self.changed(GuardOp::Release(release)).await
    }

    async fn changed(&self, op: GuardOp) -> Result<u64, Error> {
        match self.guard(op).await? {
            GuardReply::Changed(rows) => Ok(rows),
            other => unreachable!("a change is not answered with {other:?}"),
        }
    }

    /// Asks a person, and answers how the question stands. `None` if the job has moved on without this run.
    pub async fn request_approval(&self, ask: RequestApproval) -> Result<Option<ApprovalRecord>, Error> {
        match self.guard(GuardOp::Ask(Box::new(ask))).await? {
            GuardReply::Asked(record) => Ok(Some(*record)),
            GuardReply::Stale => Ok(None),
            other => unreachable!("a question is not answered with {other:?}"),
        }
    }

    /// Writes an answer down. The first one counts; its job is due at once.
    pub async fn decide_approval(&self, decide: DecideApproval) -> Result<Vec<(ApprovalId, Decided)>, Error> {
        match self.guard(GuardOp::Decide(decide)).await? {
            GuardReply::Decided(decided) => Ok(decided),
            other => unreachable!("a decision is not answered with {other:?}"),
        }
    }

    /// Begins or ends safe mode.
    pub async fn set_safe_mode(&self, set: SetSafeMode) -> Result<(), Error> {
        self.guard(GuardOp::SafeMode(set)).await.map(drop)
    }

    /// What is known of a contact that a policy asks about.
    pub async fn contact_facts(
        &self,
        contact: KeyDigest,
        channel: Arc<str>,
        purposes: Vec<Arc<str>>,
    ) -> Result<ContactFacts, Error> {
        let known = move |view: &Snapshot<'_>| match view {
            Snapshot::Sqlite(reader) => reader.known(contact, &channel, &purposes),
            Snapshot::Memory(store) => Ok(store.known(contact, &channel, &purposes)),
        };
        self.reads.ask(known).await
    }

    /// How many places of a cap are taken.
    pub async fn cap_used(&self, reserve: CapReservation, now: Time) -> Result<u64, Error> {
        let taken = move |view: &Snapshot<'_>| match view {
            Snapshot::Sqlite(reader) => reader.places_taken(&reserve, now),
            Snapshot::Memory(store) => Ok(store.places_taken(&reserve, None, now)),
        };
        self.reads.ask(taken).await
    }

    /// Contacts that must not be written to, newest first; at most `limit`.
    pub async fn suppressions(&self, limit: u32) -> Result<Vec<SuppressionRecord>, Error> {
        let list = move |view: &Snapshot<'_>| match view {
            Snapshot::Sqlite(reader) => reader.suppressions(limit),
            Snapshot::Memory(store) => Ok(store.suppressions(limit)),
        };
        self.reads.ask(list).await
    }

    /// A question to a person.
    pub async fn approval(&self, id: ApprovalId) -> Result<Option<ApprovalRecord>, Error> {
        let find = move |view: &Snapshot<'_>| match view {
            Snapshot::Sqlite(reader) => reader.approval(id),
            Snapshot::Memory(store) => Ok(store.approval(id)),
        };
        self.reads.ask(find).await
    }

    /// Questions to people, newest first.
    pub async fn approvals(&self, filter: ApprovalFilter, page: Page) -> Result<Vec<ApprovalRecord>, Error> {
        let list = move |view: &Snapshot<'_>| match view {
            Snapshot::Sqlite(reader) => reader.approvals(&filter, page),
            Snapshot::Memory(store) => Ok(store.approvals(&filter, page)),
        };
        self.reads.ask(list).await
    }

    /// Every safe mode that has not been ended, also when its time is over.
    pub async fn safe_modes(&self) -> Result<Vec<SafeModeRecord>, Error> {
        let list = |view: &Snapshot<'_>| match view {
            Snapshot::Sqlite(reader) => reader.safe_modes(),
            Snapshot::Memory(store) => Ok(store.safe_modes()),
        };
        self.reads.ask(list).await
    }
}
