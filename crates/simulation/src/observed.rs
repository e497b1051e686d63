//! What the checker needs of a write once it is durable: the write itself is given away to the ledger.

use std::sync::Arc;

use sluice_domain::alert;
use sluice_domain::contact::{ContactId, Observation};
use sluice_domain::job::{EffectKey, JobId, JobState};
use sluice_domain::outcome::BATCH_REJECTED;
use sluice_domain::record::{AttemptKind, NewEvent};
use sluice_domain::respond::ResponseClock;
use sluice_domain::run::Settle;
use sluice_domain::time::Time;
use sluice_ledger::EditEvent;

use super::ops::SimOp;

/// A write that became durable, or was refused.
#[derive(Debug)]
pub(super) enum Observed {
    Accept(Box<ObservedAccept>),
    Begin {
        job: JobId,
        key: EffectKey,
        at: Time,
        is_capped: bool,
    },
    Settle(ObservedSettle),
    Mark(ObservedMark),
    /// A write about one job of which nothing else is checked.
    Job(JobId),
    /// Jobs were requeued or dropped.
    Requeue,
    Recheck,
    Prune(Time),
    Alerts,
    Response(Box<ResponseClock>),
    Merge {
        contact: ContactId,
        into: ContactId,
    },
    Split(ContactId),
    Edit(Box<EditEvent>),
    Nothing,
}

#[derive(Debug)]
pub(super) struct ObservedAccept {
    pub received_at: Time,
    pub observation: Option<Box<Observation>>,
    pub has_clock: bool,
    /// Type and key of an event that the node itself accepts.
    pub notice: Option<(String, String)>,
}

#[derive(Debug)]
pub(super) struct ObservedSettle {
    pub job: JobId,
    pub n: u32,
    pub at: Time,
    /// Retries that the budget allows, and until when this one counts.
    pub charge: Option<(u32, Time)>,
    pub attempt: Option<ObservedAttempt>,
    /// The job after it.
    pub state: JobState,
    pub step: u32,
    pub has_failed: bool,
}

#[derive(Debug)]
pub(super) struct ObservedAttempt {
    pub label: Arc<str>,
    pub kind: AttemptKind,
    pub outcome: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ObservedMark {
    pub job: JobId,
    pub key: EffectKey,
    pub at: Time,
    pub expires_at: Time,
}

impl Observed {
    pub(crate) fn of(op: &SimOp) -> Observed {
        match op {
            SimOp::Accept(event) => Observed::Accept(Box::new(ObservedAccept::of(event))),
            SimOp::Begin(begin, caps) => {
                Observed::Begin { job: begin.job, key: begin.key, at: begin.at, is_capped: !caps.is_empty() }
            }
            SimOp::Settle(settle) => Observed::Settle(ObservedSettle::of(settle)),
            SimOp::SetMark(mark) => Observed::Mark(ObservedMark {
                job: mark.result.job,
                key: mark.result.key,
                at: mark.result.at,
                expires_at: mark.expires_at,
            }),
            SimOp::RecordStep(result) => Observed::Job(result.job),
            SimOp::Skip(skip) => Observed::Job(skip.job),
            SimOp::RequestApproval(request) => Observed::Job(request.job),
            SimOp::Replay(_) | SimOp::Resolve(_) | SimOp::Drop(_) => Observed::Requeue,
            SimOp::Recheck(_) => Observed::Recheck,
            SimOp::Prune(prune) => Observed::Prune(prune.at),
            SimOp::KeepAlerts(_) => Observed::Alerts,
            SimOp::KeepResponse(change) => Observed::Response(Box::new(change.clock.clone())),
            SimOp::MergeContacts(merge) => Observed::Merge { contact: merge.contact, into: merge.into },
            SimOp::SplitContact(split) => Observed::Split(split.contact),
            SimOp::Edit(edit) => Observed::Edit(edit.clone()),
            SimOp::SetConsent(_)
            | SimOp::Decide(_)
            | SimOp::Pause(_)
            | SimOp::Resume(_)
            | SimOp::SafeMode(_)
            | SimOp::Suppress(_)
            | SimOp::Unsuppress(_)
            | SimOp::KeepClock(_)
            | SimOp::ChargeCalls(_) => Observed::Nothing,
        }
    }
}

impl ObservedAccept {
    fn of(event: &NewEvent) -> ObservedAccept {
        ObservedAccept {
            received_at: event.received_at,
            observation: event.observation.clone(),
            has_clock: event.response.is_some(),
            notice: (&*event.source == alert::SOURCE).then(|| (event.event_type.clone(), event.key_text.clone())),
        }
    }
}

impl ObservedSettle {
    fn of(settle: &Settle) -> ObservedSettle {
        let settlement = &settle.settlement;
        ObservedSettle {
            job: settlement.job,
            n: settlement.n,
            at: settlement.at,
            charge: settle.charge.as_ref().map(|charge| (charge.retries, charge.until)),
            attempt: settlement.attempt.as_ref().map(|attempt| ObservedAttempt {
                label: attempt.step_id.clone(),
                kind: attempt.kind,
                // The rejection of a request for several jobs is no attempt of one of them.
                outcome: match attempt.failure.as_ref().map(|failure| failure.code.as_str()) {
                    Some(BATCH_REJECTED) => BATCH_REJECTED,
                    _ => attempt.outcome,
                },
            }),
            state: settlement.next.state,
            step: settlement.next.step,
            has_failed: settlement.next.failure.is_some(),
        }
    }
}
