//! The write verbs, and what a driver implements for them.

use serde_json::Value;
use sluice_domain::alert::state::AlertChanges;
use sluice_domain::approval::ApprovalId;
use sluice_domain::call_budget::BudgetRow;
use sluice_domain::contact::ContactId;
use sluice_domain::event::EventId;
use sluice_domain::idempotent_command::Claim;
use sluice_domain::respond::ResponseChange;
use sluice_domain::time::Time;
use tokio::sync::oneshot;

use crate::Error;
use crate::access::{CredentialRecord, NewCredential, PutUser, RemoveUser, RevokeCredential, TakeLink, UseCredential};
use crate::command::{ClaimCommand, FinishCommand};
use crate::event_edit::{EditEvent, Edited};
use crate::failure_group::{MarkGroup, MarkedGroup};
use crate::import::{CancelImport, NewImport};
use crate::op::*;
use crate::record::{EventSeq, ImportRecord, ReplayRecord};

/// The input of a verb, its output once it is applied, and the caller that waits for it.
#[derive(Debug)]
pub(crate) struct Request<I, O> {
    pub input: I,
    pub output: Option<O>,
    reply: Option<oneshot::Sender<Result<O, Error>>>,
}

/// Receives the output of a request.
type Reply<O> = oneshot::Receiver<Result<O, Error>>;

impl<I, O> Request<I, O> {
    pub(crate) fn new(input: I) -> (Box<Request<I, O>>, Reply<O>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(Request { input, output: None, reply: Some(reply) }), answer)
    }

    /// A request whose caller does not wait.
    pub(crate) fn without_reply(input: I) -> Box<Request<I, O>> {
        Box::new(Request { input, output: None, reply: None })
    }

    fn reply(&mut self, result: Result<O, Error>) {
        if let Some(reply) = self.reply.take() {
            // The caller may have gone; the write stays.
            let _ = reply.send(result);
        }
    }
}

/// Generates [`Op`] and [`WriteStore`] from the table of verbs.
macro_rules! write_verbs {
    ($($(#[$doc:meta])* $variant:ident: $verb:ident($input:ty) -> $output:ty;)*) => {
        /// A verb with its request. A batch of these is one transaction.
        #[derive(Debug)]
        pub(crate) enum Op {
            $($variant(Box<Request<$input, $output>>),)*
            /// Ends the writer after everything before it is written.
            Close(Box<Request<(), ()>>),
        }

        /// The write verbs inside a transaction. Called by one thread at a time.
        pub(crate) trait WriteStore {
            type Error;
            $($(#[$doc])* fn $verb(&mut self, input: &$input) -> Result<$output, Self::Error>;)*
        }

        impl Op {
            /// Applies the verb and keeps its output. May be called again after a rollback.
            pub(crate) fn apply<S: WriteStore>(&mut self, store: &mut S) -> Result<(), S::Error> {
                match self {
                    $(Op::$variant(request) => request.output = Some(store.$verb(&request.input)?),)*
                    Op::Close(request) => request.output = Some(()),
                }
                Ok(())
            }

            /// Sends the output to the caller. The input is dropped with the operation.
            pub(crate) fn answer(&mut self) {
                match self {
                    $(Op::$variant(request) => {
                        let output = request.output.take().ok_or(Error::Failed);
                        request.reply(output);
                    })*
                    Op::Close(request) => request.reply(Ok(())),
                }
            }

            /// Sends an error to the caller.
            pub(crate) fn fail(mut self, error: Error) {
                match &mut self {
                    $(Op::$variant(request) => request.reply(Err(error)),)*
                    Op::Close(request) => request.reply(Err(error)),
                }
            }
        }
    };
}

write_verbs! {
    /// Accepts the events of one request, in their order.
    Accept: accept(RequestEvents) -> Vec<Acceptance>;
    /// Records the intent of an attempt.
    Begin: begin(CappedBegin) -> CappedBeginResult;
    /// Records the end of a run.
    Settle: settle(Settle) -> ChargeResult;
    /// Records the result of an internal step; the first one counts. `None` if the run is stale.
    RecordStep: record_step(StepResult) -> Option<Value>;
    /// Sets a mark unless another job has. `None` if the run is stale.
    SetMark: set_mark(Mark) -> Option<Marked>;
    /// Records that an effect is skipped. `false` if the run is stale.
    Skip: skip(Skip) -> bool;
    SetConsent: set_consent(SetConsent) -> ();
    /// Returns the number of contacts that were not suppressed before.
    Suppress: suppress(Suppress) -> u64;
    /// Returns the number of contacts that were suppressed.
    Unsuppress: unsuppress(Unsuppress) -> u64;
    /// `None` if the run is stale.
    RequestApproval: request_approval(RequestApproval) -> Option<ApprovalRecord>;
    DecideApproval: decide_approval(DecideApproval) -> Vec<(ApprovalId, Decided)>;
    SetSafeMode: set_safe_mode(SetSafeMode) -> ();
    MakeDue: make_due(MakeDue) -> Vec<ChangedJob>;
    Replay: replay(Replay) -> Vec<ChangedJob>;
    /// Starts an import, or continues the one that is known by its id.
    StartImport: start_import(NewImport) -> ImportRecord;
    /// `None` if there is no such import.
    CancelImport: cancel_import(CancelImport) -> Option<ImportRecord>;
    StartReplay: start_replay(NewReplay) -> ReplayRecord;
    /// `None` if the replay does not run, or has moved on.
    AdvanceReplay: advance_replay(AdvanceReplay) -> Option<Vec<ChangedJob>>;
    ControlReplay: control_replay(ControlReplay) -> Controlled;
    Resolve: resolve(Resolve) -> Vec<ChangedJob>;
    DropJobs: drop_jobs(DropJobs) -> Vec<ChangedJob>;
    Recheck: recheck(Recheck) -> Vec<ChangedJob>;
    Pause: pause(Pause) -> ();
    Resume: resume(Resume) -> ();
    /// Stores a revision and makes it the active one.
    ActivateRevision: activate_revision(NewRevision) -> ();
    Audit: audit(AuditEntry) -> ();
    Prune: prune(Prune) -> Pruned;
    KeepClock: keep_clock(KeepClock) -> ();
    /// Writes a minute of the history. `false` if it is written already.
    RecordHistory: record_history(RecordHistory) -> bool;
    KeepAlerts: keep_alerts(AlertChanges) -> ();
    /// Stores a response clock after a look, or removes one that has ended. `false` if it does not run any more.
    KeepResponse: keep_response(ResponseChange) -> bool;
    /// `false` if there is no such alert.
    MarkAlert: mark_alert(MarkAlert) -> bool;
    /// Claims an idempotency key for a command of an operator.
    ClaimCommand: claim_command(ClaimCommand) -> Claim;
    /// Stores the response of a command, or frees its key.
    FinishCommand: finish_command(FinishCommand) -> ();
    /// An operator acknowledges, resolves or reopens a failure group.
    MarkGroup: mark_group(MarkGroup) -> MarkedGroup;
    /// Returns the rows of the budget, oldest first.
    ChargeCalls: charge_calls(ChargeCalls) -> Vec<BudgetRow>;
    /// `false` if the shapes or the last event are not those that were read: they are to be read again.
    KeepShapes: keep_shapes(KeepShapes) -> bool;
    /// Returns the number of notices.
    AcceptDrift: accept_drift(AcceptDrift) -> u64;
    /// Replaces another one.
    SetShadow: set_shadow(SetShadow) -> ();
    /// `false` if there is none.
    StopShadow: stop_shadow(StopShadow) -> bool;
    /// `false` if the shadow is another one by now, or has moved on.
    KeepShadow: keep_shadow(KeepShadow) -> bool;
    /// Returns since when the worker has had this schedule.
    Schedule: schedule(Schedule) -> Time;
    /// Returns events that may have this id; their rows decide. The index of ids belongs to the writer.
    FindEvent: find_event(EventId) -> Vec<EventSeq>;
    /// Looks up events and contacts by their digests. The indexes belong to the writer.
    FindKeys: find_keys(KeyLookup) -> FoundKeys;
    /// Looks up contacts by the digests of their identifiers. The index belongs to the writer.
    FindContacts: find_contacts(ContactLookup) -> Vec<ContactId>;
    /// Events of a trace, or whose effects wrote a record, newest first. The indexes belong to the writer.
    FindReferenced: find_referenced(EventLookup) -> Vec<EventSeq>;
    /// Events of a contact and of those that are merged into it, newest first. The index belongs to the writer.
    ContactEvents: contact_events(ContactEvents) -> Vec<EventSeq>;
    /// Releases a quarantined event with an identity that an operator or a lookup supplies.
    Identify: identify(IdentifyEvent) -> Identified;
    /// `false` if the event was identified meanwhile, or the lookups were made by another process.
    IdentityLookupEnded: identity_lookup_ended(IdentityLookupEnded) -> bool;
    /// Stores an edited event as a new revision and requeues its jobs.
    EditEvent: edit_event(EditEvent) -> Edited;
    MergeContacts: merge_contacts(MergeContacts) -> ContactChange;
    SplitContact: split_contact(SplitContact) -> ContactChange;
    /// Returns the version of a new tenant key, or the number of contacts that were looked at.
    Rotate: rotate(Rotate) -> u64;
    /// `true` if the user is new.
    PutUser: put_user(PutUser) -> bool;
    /// `false` if there is no such user.
    RemoveUser: remove_user(RemoveUser) -> bool;
    IssueCredential: issue_credential(NewCredential) -> CredentialRecord;
    /// `None` if there is no such link, or if it has expired.
    TakeLink: take_link(TakeLink) -> Option<CredentialRecord>;
    UseCredential: use_credential(UseCredential) -> ();
    /// `false` if there is no such credential.
    RevokeCredential: revoke_credential(RevokeCredential) -> bool;
}
