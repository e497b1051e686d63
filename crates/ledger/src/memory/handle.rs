//! The store behind the facade: a thread that applies what callers submit, in their order.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;
use sluice_domain::alert::state::AlertChanges;
use sluice_domain::approval::ApprovalId;
use sluice_domain::call_budget::BudgetRow;
use sluice_domain::contact::ContactId;
use sluice_domain::event::EventId;
use sluice_domain::idempotent_command::Claim;
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::respond::ResponseChange;
use sluice_domain::time::Time;
use tokio::sync::watch;

use super::Store;
use crate::access::{CredentialRecord, NewCredential, PutUser, RemoveUser, RevokeCredential, TakeLink, UseCredential};
use crate::command::{ClaimCommand, FinishCommand};
use crate::event_edit::{EditEvent, Edited};
use crate::failure_group::{MarkGroup, MarkedGroup};
use crate::import::{CancelImport, NewImport};
use crate::op::*;
use crate::options::Opened;
use crate::record::{EventSeq, ImportRecord, LoadedJob, ReplayRecord};
use crate::submission_queue::BatchReceiver;
use crate::write_store::{Op, WriteStore};
use crate::{Error, LedgerOptions, Stats};

/// Operations that are applied at once, at most.
const BATCH_OPS_MAX: usize = 512;

/// A store in memory that ledgers are opened on, one at a time. Lives as long as the handle; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StoreHandle(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    store: Mutex<Store>,
    is_open: AtomicBool,
}

impl StoreHandle {
    pub fn new() -> StoreHandle {
        StoreHandle::default()
    }

    /// Opens the store under a new term; it is free again once the writer is dropped.
    pub(crate) fn open(&self) -> Result<(Writer, Opened), Error> {
        if self.0.is_open.swap(true, Ordering::AcqRel) {
            return Err(Error::Locked { path: PathBuf::from(":memory:") });
        }
        let mut store = self.lock();
        let term = store.reopen();
        let changes = watch::Sender::new(store.change_seq());
        let opened = Opened { term, changes: changes.subscribe(), pseudonyms: PseudonymKey::public() };
        Ok((Writer { shared: self.0.clone(), changes }, opened))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer of an open store.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    changes: watch::Sender<u64>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.is_open.store(false, Ordering::Release);
    }
}

impl Writer {
    /// Runs until it receives a close, or every sender is gone.
    pub(crate) fn run(self, mut operations: BatchReceiver<Op>, options: &LedgerOptions, stats: &Stats) {
        let mut batch = Vec::with_capacity(BATCH_OPS_MAX);
        while operations.recv_batch(&mut batch, BATCH_OPS_MAX) > 0 {
            let started = Instant::now();
            let size = batch.len() as u64;
            stats.queued.fetch_sub(size, Ordering::Relaxed);
            let closing = batch.iter().any(|op| matches!(op, Op::Close(_)));
            self.commit(std::mem::take(&mut batch), options);
            stats.batches.fetch_add(1, Ordering::Relaxed);
            stats.operations.fetch_add(size, Ordering::Relaxed);
            stats.commit_micros.fetch_add(started.elapsed().as_micros() as u64, Ordering::Relaxed);
            if closing {
                break;
            }
        }
    }

    fn commit(&self, mut batch: Vec<Op>, options: &LedgerOptions) {
        let now = (options.clock)();
        let mut new_jobs = Vec::new();
        let (change_seq, requeued);
        {
            let mut store = self.shared.store.lock().unwrap_or_else(PoisonError::into_inner);
            let mut batch_store = Batch { store: &mut store, now };
            for op in &mut batch {
                let Ok(()) = op.apply(&mut batch_store);
            }
            change_seq = store.change_seq();
            requeued = store.take_requeued();
            for op in &batch {
                if let Op::Accept(request) = op {
                    new_jobs.extend(request.output.iter().flatten().flat_map(|one| announced(&store, one)));
                }
            }
        }
        self.changes.send_if_modified(|seq| std::mem::replace(seq, change_seq) != change_seq);
        new_jobs.retain(|new| (options.wants_new_jobs)(&new.job.worker));
        if !new_jobs.is_empty() {
            (options.on_new_jobs)(new_jobs);
        }
        if !requeued.is_empty() {
            (options.on_requeued)(requeued);
        }
        batch.iter_mut().for_each(Op::answer);
    }
}

/// The jobs of an accepted event that can run.
fn announced(store: &Store, acceptance: &Acceptance) -> Vec<LoadedJob> {
    match acceptance {
        Acceptance::Accepted(accepted) if !accepted.quarantined => store.new_jobs(accepted.seq),
        _ => vec![],
    }
}

/// The store while a batch is applied at one time.
struct Batch<'a> {
    store: &'a mut Store,
    now: Time,
}

type Result<T, E = Infallible> = std::result::Result<T, E>;

impl WriteStore for Batch<'_> {
    type Error = Infallible;

    fn accept(&mut self, request: &RequestEvents) -> Result<Vec<Acceptance>> {
        Ok(self.store.accept_request(self.now, request))
    }

    fn begin(&mut self, request: &CappedBegin) -> Result<CappedBeginResult> {
        Ok(self.store.begin(request.begin.clone(), request.caps.clone()))
    }

    fn settle(&mut self, settle: &Settle) -> Result<ChargeResult> {
        Ok(self.store.settle(settle.clone()))
    }

    fn record_step(&mut self, result: &StepResult) -> Result<Option<Value>> {
        Ok(self.store.record_step(result.clone()))
    }

    fn set_mark(&mut self, mark: &Mark) -> Result<Option<Marked>> {
        Ok(self.store.set_mark(mark.clone()))
    }

    fn skip(&mut self, skip: &Skip) -> Result<bool> {
        Ok(self.store.skip(skip.clone()))
    }

    fn set_consent(&mut self, consent: &SetConsent) -> Result<()> {
        self.store.set_consent(consent.clone());
        Ok(())
    }

    fn suppress(&mut self, suppress: &Suppress) -> Result<u64> {
        Ok(self.store.suppress(suppress))
    }

    fn unsuppress(&mut self, unsuppress: &Unsuppress) -> Result<u64> {
        Ok(self.store.unsuppress(unsuppress))
    }

    fn request_approval(&mut self, request: &RequestApproval) -> Result<Option<ApprovalRecord>> {
        Ok(self.store.request_approval(request.clone()))
    }

    fn decide_approval(&mut self, decide: &DecideApproval) -> Result<Vec<(ApprovalId, Decided)>> {
        Ok(self.store.decide_approval(decide))
    }

    fn set_safe_mode(&mut self, set: &SetSafeMode) -> Result<()> {
        self.store.set_safe_mode(set.clone());
        Ok(())
    }

    fn make_due(&mut self, due: &MakeDue) -> Result<Vec<ChangedJob>> {
        Ok(self.store.make_due(due))
    }

    fn replay(&mut self, replay: &Replay) -> Result<Vec<ChangedJob>> {
        Ok(self.store.replay(replay))
    }

    fn start_import(&mut self, new: &NewImport) -> Result<ImportRecord> {
        Ok(self.store.start_import(new))
    }

    fn cancel_import(&mut self, cancel: &CancelImport) -> Result<Option<ImportRecord>> {
        Ok(self.store.cancel_import(cancel))
    }

    fn start_replay(&mut self, new: &NewReplay) -> Result<ReplayRecord> {
        Ok(self.store.start_replay(new))
    }

    fn advance_replay(&mut self, advance: &AdvanceReplay) -> Result<Option<Vec<ChangedJob>>> {
        Ok(self.store.advance_replay(advance))
    }

    fn control_replay(&mut self, control: &ControlReplay) -> Result<Controlled> {
        Ok(self.store.control_replay(control))
    }

    fn resolve(&mut self, resolve: &Resolve) -> Result<Vec<ChangedJob>> {
        Ok(self.store.resolve(resolve))
    }

    fn drop_jobs(&mut self, drop: &DropJobs) -> Result<Vec<ChangedJob>> {
        Ok(self.store.drop_jobs(drop))
    }

    fn recheck(&mut self, recheck: &Recheck) -> Result<Vec<ChangedJob>> {
        Ok(self.store.recheck(recheck))
    }

    fn pause(&mut self, pause: &Pause) -> Result<()> {
        self.store.pause(pause.clone());
        Ok(())
    }

    fn resume(&mut self, resume: &Resume) -> Result<()> {
        self.store.resume(resume);
        Ok(())
    }

    fn activate_revision(&mut self, revision: &NewRevision) -> Result<()> {
        self.store.activate_revision(revision.clone());
        Ok(())
    }

    fn audit(&mut self, entry: &AuditEntry) -> Result<()> {
        self.store.audit(entry.clone());
        Ok(())
    }

    fn prune(&mut self, prune: &Prune) -> Result<Pruned> {
        Ok(self.store.prune(prune))
    }

    fn keep_clock(&mut self, keep: &KeepClock) -> Result<()> {
        self.store.keep_clock(keep);
        Ok(())
    }

    fn record_history(&mut self, record: &RecordHistory) -> Result<bool> {
        Ok(self.store.record_history(record))
    }

    fn keep_alerts(&mut self, changes: &AlertChanges) -> Result<()> {
        self.store.keep_alerts(changes);
        Ok(())
    }

    fn keep_response(&mut self, change: &ResponseChange) -> Result<bool> {
        Ok(self.store.keep_response(change))
    }

    fn mark_alert(&mut self, mark: &MarkAlert) -> Result<bool> {
        Ok(self.store.mark_alert(mark))
    }

    fn charge_calls(&mut self, charge: &ChargeCalls) -> Result<Vec<BudgetRow>> {
        Ok(self.store.charge_calls(charge))
    }

    fn keep_shapes(&mut self, keep: &KeepShapes) -> Result<bool> {
        Ok(self.store.keep_shapes(keep))
    }

    fn accept_drift(&mut self, accept: &AcceptDrift) -> Result<u64> {
        Ok(self.store.accept_drift(accept))
    }

    fn claim_command(&mut self, claim: &ClaimCommand) -> Result<Claim> {
        Ok(self.store.claim_command(claim))
    }

    fn finish_command(&mut self, finish: &FinishCommand) -> Result<()> {
        self.store.finish_command(finish);
        Ok(())
    }

    fn mark_group(&mut self, mark: &MarkGroup) -> Result<MarkedGroup> {
        Ok(self.store.mark_group(mark))
    }

    fn set_shadow(&mut self, set: &SetShadow) -> Result<()> {
        self.store.set_shadow(set);
        Ok(())
    }

    fn stop_shadow(&mut self, stop: &StopShadow) -> Result<bool> {
        Ok(self.store.stop_shadow(stop))
    }

    fn keep_shadow(&mut self, keep: &KeepShadow) -> Result<bool> {
        Ok(self.store.keep_shadow(keep))
    }

    fn schedule(&mut self, schedule: &Schedule) -> Result<Time> {
        Ok(self.store.schedule(schedule.clone()))
    }

    fn find_event(&mut self, id: &EventId) -> Result<Vec<EventSeq>> {
        Ok(self.store.find_candidates(*id))
    }

    fn find_keys(&mut self, lookup: &KeyLookup) -> Result<FoundKeys> {
        Ok(self.store.find_keys(lookup))
    }

    fn find_referenced(&mut self, lookup: &EventLookup) -> Result<Vec<EventSeq>> {
        Ok(self.store.find_referenced(lookup))
    }

    fn contact_events(&mut self, lookup: &ContactEvents) -> Result<Vec<EventSeq>> {
        Ok(self.store.contact_events(lookup.contact, lookup.page))
    }

    fn find_contacts(&mut self, lookup: &ContactLookup) -> Result<Vec<ContactId>> {
        Ok(self.store.find_contacts(&lookup.identifiers))
    }

    fn identify(&mut self, identify: &IdentifyEvent) -> Result<Identified> {
        Ok(self.store.identify_event(self.now, identify))
    }

    fn identity_lookup_ended(&mut self, ended: &IdentityLookupEnded) -> Result<bool> {
        Ok(self.store.end_identity_lookup(ended))
    }

    fn edit_event(&mut self, edit: &EditEvent) -> Result<Edited> {
        Ok(self.store.edit_event(self.now, edit))
    }

    fn merge_contacts(&mut self, merge: &MergeContacts) -> Result<ContactChange> {
        Ok(self.store.merge_contacts(merge))
    }

    fn split_contact(&mut self, split: &SplitContact) -> Result<ContactChange> {
        Ok(self.store.split_contact(split))
    }

    /// Nothing is sealed in memory.
    fn put_user(&mut self, put: &PutUser) -> Result<bool> {
        Ok(self.store.put_user(put))
    }

    fn remove_user(&mut self, remove: &RemoveUser) -> Result<bool> {
        Ok(self.store.remove_user(remove))
    }

    fn issue_credential(&mut self, new: &NewCredential) -> Result<CredentialRecord> {
        Ok(self.store.issue_credential(new))
    }

    fn take_link(&mut self, take: &TakeLink) -> Result<Option<CredentialRecord>> {
        Ok(self.store.take_link(take))
    }

    fn use_credential(&mut self, used: &UseCredential) -> Result<()> {
        self.store.use_credential(used);
        Ok(())
    }

    fn revoke_credential(&mut self, revoke: &RevokeCredential) -> Result<bool> {
        Ok(self.store.revoke_credential(revoke))
    }

    fn rotate(&mut self, _: &Rotate) -> Result<u64> {
        Ok(0)
    }
}
