//! Writes of a simulated node as data: they wait for the writer, and a shadow ledger is given the same.

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::alert::state::AlertChanges;
use sluice_domain::approval::ApprovalId;
use sluice_domain::call_budget::BudgetRow;
use sluice_domain::job::JobId;
use sluice_domain::ops::{
    ApprovalRecord, Begin, CappedBeginResult, ChargeResult, DecideApproval, Mark, Marked, RequestApproval, SetConsent,
    Skip, StepResult,
};
use sluice_domain::policy::CapReservation;
use sluice_domain::respond::ResponseChange;
use sluice_domain::run::Settle;
use sluice_domain::time::Time;
use sluice_ledger::memory::Store;
use sluice_ledger::{
    Acceptance, ChargeCalls, ContactChange, Decided, DropJobs, EditEvent, Edited, Error, KeepClock, Ledger,
    MergeContacts, NewEvent, Pause, Prune, Recheck, Replay, Resolve, Resume, SetSafeMode, SplitContact, Suppress,
    Unsuppress,
};

#[derive(Clone, Debug)]
pub(super) enum SimOp {
    Accept(Box<NewEvent>),
    Begin(Box<Begin>, Vec<CapReservation>),
    Settle(Box<Settle>),
    RecordStep(Box<StepResult>),
    SetMark(Box<Mark>),
    Skip(Box<Skip>),
    SetConsent(SetConsent),
    RequestApproval(Box<RequestApproval>),
    Decide(DecideApproval),
    Replay(Replay),
    Resolve(Resolve),
    Drop(DropJobs),
    Pause(Pause),
    Resume(Resume),
    SafeMode(SetSafeMode),
    Suppress(Suppress),
    Unsuppress(Unsuppress),
    Prune(Prune),
    KeepClock(KeepClock),
    Recheck(Recheck),
    KeepAlerts(AlertChanges),
    KeepResponse(ResponseChange),
    MergeContacts(MergeContacts),
    SplitContact(SplitContact),
    ChargeCalls(ChargeCalls),
    Edit(Box<EditEvent>),
}

/// The reply to a [`SimOp`].
#[derive(Clone, Debug)]
pub(super) enum SimReply {
    Accepted(Acceptance),
    Begun(CappedBeginResult),
    Settled(ChargeResult),
    Recorded(Option<Value>),
    Marked(Option<Marked>),
    Skipped(bool),
    Approval(Option<Box<ApprovalRecord>>),
    Decided(Vec<(ApprovalId, Decided)>),
    Jobs(Vec<(JobId, Arc<str>)>),
    Pruned(u64),
    Kept(bool),
    ContactChanged(ContactChange),
    Charged(Vec<BudgetRow>),
    Edited(Edited),
    Done,
}

impl SimOp {
    /// Applies the write to the ledger in memory.
    pub(crate) fn apply(self, store: &mut Store, at: Time) -> SimReply {
        match self {
            SimOp::Accept(event) => SimReply::Accepted(store.accept(at, *event)),
            SimOp::Begin(begin, caps) => SimReply::Begun(store.begin(*begin, caps)),
            SimOp::Settle(settle) => SimReply::Settled(store.settle(*settle)),
            SimOp::RecordStep(result) => SimReply::Recorded(store.record_step(*result)),
            SimOp::SetMark(mark) => SimReply::Marked(store.set_mark(*mark)),
            SimOp::Skip(skip) => SimReply::Skipped(store.skip(*skip)),
            SimOp::SetConsent(consent) => {
                store.set_consent(consent);
                SimReply::Done
            }
            SimOp::RequestApproval(request) => SimReply::Approval(store.request_approval(*request).map(Box::new)),
            SimOp::Decide(decide) => SimReply::Decided(store.decide_approval(&decide)),
            SimOp::Replay(replay) => SimReply::Jobs(store.replay(&replay)),
            SimOp::Resolve(resolve) => SimReply::Jobs(store.resolve(&resolve)),
            SimOp::Drop(drop) => SimReply::Jobs(store.drop_jobs(&drop)),
            SimOp::Pause(pause) => {
                store.pause(pause);
                SimReply::Done
            }
            SimOp::Resume(resume) => {
                store.resume(&resume);
                SimReply::Done
            }
            SimOp::SafeMode(set) => {
                store.set_safe_mode(set);
                SimReply::Done
            }
            SimOp::Suppress(suppress) => {
                store.suppress(&suppress);
                SimReply::Done
            }
            SimOp::Unsuppress(unsuppress) => {
                store.unsuppress(&unsuppress);
                SimReply::Done
            }
            SimOp::Prune(prune) => SimReply::Pruned(store.prune(&prune).rows),
            SimOp::Recheck(recheck) => SimReply::Jobs(store.recheck(&recheck)),
            SimOp::KeepAlerts(changes) => {
                store.keep_alerts(&changes);
                SimReply::Done
            }
            SimOp::KeepResponse(change) => SimReply::Kept(store.keep_response(&change)),
            SimOp::MergeContacts(merge) => SimReply::ContactChanged(store.merge_contacts(&merge)),
            SimOp::SplitContact(split) => SimReply::ContactChanged(store.split_contact(&split)),
            SimOp::ChargeCalls(charge) => SimReply::Charged(store.charge_calls(&charge)),
            SimOp::Edit(edit) => SimReply::Edited(store.edit_event(at, &edit)),
            SimOp::KeepClock(keep) => {
                store.keep_clock(&keep);
                SimReply::Done
            }
        }
    }

    /// Submits the write to a real ledger.
    pub(crate) async fn submit(self, ledger: &Ledger) -> Result<SimReply, Error> {
        Ok(match self {
            SimOp::Accept(event) => SimReply::Accepted(ledger.accept(*event).await?),
            SimOp::Begin(begin, caps) => SimReply::Begun(ledger.begin(*begin, caps).await?),
            SimOp::Settle(settle) => SimReply::Settled(ledger.settle(*settle).await?),
            SimOp::RecordStep(result) => SimReply::Recorded(ledger.record_step(*result).await?),
            SimOp::SetMark(mark) => SimReply::Marked(ledger.set_mark(*mark).await?),
            SimOp::Skip(skip) => SimReply::Skipped(ledger.skip(*skip).await?),
            SimOp::SetConsent(consent) => {
                ledger.set_consent(consent).await?;
                SimReply::Done
            }
            SimOp::RequestApproval(request) => {
                SimReply::Approval(ledger.request_approval(*request).await?.map(Box::new))
            }
            SimOp::Decide(decide) => SimReply::Decided(ledger.decide_approval(decide).await?),
            SimOp::Replay(replay) => SimReply::Jobs(ledger.replay(replay).await?),
            SimOp::Resolve(resolve) => SimReply::Jobs(ledger.resolve(resolve).await?),
            SimOp::Drop(drop) => SimReply::Jobs(ledger.drop_jobs(drop).await?),
            SimOp::Pause(pause) => {
                ledger.pause(pause).await?;
                SimReply::Done
            }
            SimOp::Resume(resume) => {
                ledger.resume(resume).await?;
                SimReply::Done
            }
            SimOp::SafeMode(set) => {
                ledger.set_safe_mode(set).await?;
                SimReply::Done
            }
            SimOp::Suppress(suppress) => {
                ledger.suppress(suppress).await?;
                SimReply::Done
            }
            SimOp::Unsuppress(unsuppress) => {
                ledger.unsuppress(unsuppress).await?;
                SimReply::Done
            }
            SimOp::Prune(prune) => SimReply::Pruned(ledger.prune(prune).await?.rows),
            SimOp::Recheck(recheck) => SimReply::Jobs(ledger.recheck(recheck).await?),
            SimOp::KeepAlerts(changes) => {
                ledger.keep_alerts(changes).await?;
                SimReply::Done
            }
            SimOp::KeepResponse(change) => SimReply::Kept(ledger.keep_response(change).await?),
            SimOp::MergeContacts(merge) => SimReply::ContactChanged(ledger.merge_contacts(merge).await?),
            SimOp::SplitContact(split) => SimReply::ContactChanged(ledger.split_contact(split).await?),
            SimOp::ChargeCalls(charge) => SimReply::Charged(ledger.charge_calls(charge).await?),
            SimOp::Edit(edit) => SimReply::Edited(ledger.edit_event(*edit).await?),
            SimOp::KeepClock(keep) => {
                ledger.keep_clock(keep).await?;
                SimReply::Done
            }
        })
    }
}
