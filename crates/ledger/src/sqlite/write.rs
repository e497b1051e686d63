//! The write verbs on a batch.

use rusqlite::params;
use serde_json::Value;
use sluice_domain::alert::state::AlertChanges;
use sluice_domain::approval::ApprovalId;
use sluice_domain::call_budget::BudgetRow;
use sluice_domain::contact::ContactId;
use sluice_domain::event::EventId;
use sluice_domain::idempotent_command::Claim;
use sluice_domain::replay::Reapply;
use sluice_domain::respond::ResponseChange;
use sluice_domain::time::Time;

use super::batch::Batch;
use super::key_index::prefix;
use crate::access::{CredentialRecord, NewCredential, PutUser, RemoveUser, RevokeCredential, TakeLink, UseCredential};
use crate::command::{ClaimCommand, FinishCommand};
use crate::event_edit::{EditEvent, Edited};
use crate::failure_group::{MarkGroup, MarkedGroup};
use crate::import::{CancelImport, NewImport};
use crate::op::*;
use crate::record::{EventSeq, ImportRecord, ReplayRecord};
use crate::write_store::WriteStore;

type Result<T> = rusqlite::Result<T>;

impl WriteStore for Batch<'_, '_> {
    type Error = rusqlite::Error;

    fn accept(&mut self, request: &RequestEvents) -> Result<Vec<Acceptance>> {
        let Some(step) = &request.import else { return self.accept_events(&request.events) };
        let Some(record) = self.current_import(step)? else { return Ok(vec![]) };
        let accepted = self.accept_events(&request.events)?;
        self.advance_import(&record, step, &accepted)?;
        Ok(accepted)
    }

    fn begin(&mut self, request: &CappedBegin) -> Result<CappedBeginResult> {
        self.begin_attempt(&request.begin, &request.caps)
    }

    fn settle(&mut self, settle: &Settle) -> Result<ChargeResult> {
        self.settle_run(settle)
    }

    fn record_step(&mut self, result: &StepResult) -> Result<Option<Value>> {
        self.record_step_result(result)
    }

    fn set_mark(&mut self, mark: &Mark) -> Result<Option<Marked>> {
        self.set_mark_of(mark)
    }

    fn skip(&mut self, skip: &Skip) -> Result<bool> {
        self.skip_effect(skip)
    }

    fn set_consent(&mut self, consent: &SetConsent) -> Result<()> {
        self.upsert_consent(consent)
    }

    fn suppress(&mut self, suppress: &Suppress) -> Result<u64> {
        self.insert_suppressions(suppress)
    }

    fn unsuppress(&mut self, unsuppress: &Unsuppress) -> Result<u64> {
        self.delete_suppressions(unsuppress)
    }

    fn request_approval(&mut self, request: &RequestApproval) -> Result<Option<ApprovalRecord>> {
        self.insert_approval(request)
    }

    fn decide_approval(&mut self, decide: &DecideApproval) -> Result<Vec<(ApprovalId, Decided)>> {
        decide.ids.iter().map(|id| Ok((*id, self.decide(*id, decide)?))).collect()
    }

    fn set_safe_mode(&mut self, set: &SetSafeMode) -> Result<()> {
        self.write_safe_mode(set)
    }

    fn make_due(&mut self, due: &MakeDue) -> Result<Vec<ChangedJob>> {
        self.make_jobs_due(due)
    }

    fn replay(&mut self, replay: &Replay) -> Result<Vec<ChangedJob>> {
        self.requeue_jobs(replay, &Reapply::default())
    }

    fn start_import(&mut self, new: &NewImport) -> Result<ImportRecord> {
        self.begin_import(new)
    }

    fn cancel_import(&mut self, cancel: &CancelImport) -> Result<Option<ImportRecord>> {
        self.end_import(cancel)
    }

    fn start_replay(&mut self, new: &NewReplay) -> Result<ReplayRecord> {
        self.insert_replay(new)
    }

    fn advance_replay(&mut self, advance: &AdvanceReplay) -> Result<Option<Vec<ChangedJob>>> {
        self.advance(advance)
    }

    fn control_replay(&mut self, control: &ControlReplay) -> Result<Controlled> {
        self.control(control)
    }

    fn resolve(&mut self, resolve: &Resolve) -> Result<Vec<ChangedJob>> {
        self.resolve_job(resolve)
    }

    fn drop_jobs(&mut self, drop: &DropJobs) -> Result<Vec<ChangedJob>> {
        self.drop_dead_jobs(drop)
    }

    fn recheck(&mut self, recheck: &Recheck) -> Result<Vec<ChangedJob>> {
        self.recheck_lanes(recheck)
    }

    fn pause(&mut self, pause: &Pause) -> Result<()> {
        self.insert_pause(pause)
    }

    fn resume(&mut self, resume: &Resume) -> Result<()> {
        self.delete_pause(resume)
    }

    fn activate_revision(&mut self, revision: &NewRevision) -> Result<()> {
        self.insert_revision(revision)
    }

    fn audit(&mut self, entry: &AuditEntry) -> Result<()> {
        self.log(entry.at, &entry.actor, &entry.action, &entry.object, &entry.detail)
    }

    fn prune(&mut self, prune: &Prune) -> Result<Pruned> {
        self.prune_slice(prune)
    }

    fn keep_clock(&mut self, keep: &KeepClock) -> Result<()> {
        self.write_clock(keep)
    }

    fn record_history(&mut self, record: &RecordHistory) -> Result<bool> {
        self.write_history(record)
    }

    fn keep_alerts(&mut self, changes: &AlertChanges) -> Result<()> {
        self.write_alerts(changes)
    }

    fn keep_response(&mut self, change: &ResponseChange) -> Result<bool> {
        self.change_response(change)
    }

    fn mark_alert(&mut self, mark: &MarkAlert) -> Result<bool> {
        self.write_alert_mark(mark)
    }

    fn charge_calls(&mut self, charge: &ChargeCalls) -> Result<Vec<BudgetRow>> {
        self.write_charge(charge)
    }

    fn keep_shapes(&mut self, keep: &KeepShapes) -> Result<bool> {
        self.write_shapes(keep)
    }

    fn accept_drift(&mut self, accept: &AcceptDrift) -> Result<u64> {
        self.accept_notices(accept)
    }

    fn claim_command(&mut self, claim: &ClaimCommand) -> Result<Claim> {
        self.claim_command_key(claim)
    }

    fn finish_command(&mut self, finish: &FinishCommand) -> Result<()> {
        self.finish_command_key(finish)
    }

    fn mark_group(&mut self, mark: &MarkGroup) -> Result<MarkedGroup> {
        self.mark_failure_group(mark)
    }

    fn set_shadow(&mut self, set: &SetShadow) -> Result<()> {
        self.write_shadow(set)
    }

    fn stop_shadow(&mut self, stop: &StopShadow) -> Result<bool> {
        self.delete_shadow(stop)
    }

    fn keep_shadow(&mut self, keep: &KeepShadow) -> Result<bool> {
        self.write_shadow_report(keep)
    }

    fn schedule(&mut self, schedule: &Schedule) -> Result<Time> {
        let mut keep = self.cached(include_str!("sql/keep_schedule.sql"))?;
        keep.query_row(params![schedule.worker, schedule.rule, schedule.at.0], |row| row.get(0).map(Time))
    }

    fn find_event(&mut self, id: &EventId) -> Result<Vec<EventSeq>> {
        self.indexes.keys.candidates(self.connection, prefix(&id.0))
    }

    fn find_keys(&mut self, lookup: &KeyLookup) -> Result<FoundKeys> {
        self.look_up_keys(lookup)
    }

    fn find_referenced(&mut self, lookup: &EventLookup) -> Result<Vec<EventSeq>> {
        match lookup {
            EventLookup::Trace(id) => self.events_of_trace(id),
            EventLookup::Record(id) => self.events_of_record(id),
            EventLookup::Identity(identity) => self.events_of_identity(identity),
        }
    }

    fn contact_events(&mut self, lookup: &ContactEvents) -> Result<Vec<EventSeq>> {
        self.events_of_contact(lookup.contact, lookup.page)
    }

    fn find_contacts(&mut self, lookup: &ContactLookup) -> Result<Vec<ContactId>> {
        self.contacts_with(&lookup.identifiers)
    }

    fn identify(&mut self, identify: &IdentifyEvent) -> Result<Identified> {
        self.identify_event(identify)
    }

    fn identity_lookup_ended(&mut self, ended: &IdentityLookupEnded) -> Result<bool> {
        self.end_identity_lookup(ended)
    }

    fn edit_event(&mut self, edit: &EditEvent) -> Result<Edited> {
        self.edit_stored_event(edit)
    }

    fn merge_contacts(&mut self, merge: &MergeContacts) -> Result<ContactChange> {
        self.merge_contact(merge)
    }

    fn split_contact(&mut self, split: &SplitContact) -> Result<ContactChange> {
        self.split_contact_off(split)
    }

    fn rotate(&mut self, rotate: &Rotate) -> Result<u64> {
        self.rotate_keys(rotate)
    }

    fn put_user(&mut self, put: &PutUser) -> Result<bool> {
        self.write_user(put)
    }

    fn remove_user(&mut self, remove: &RemoveUser) -> Result<bool> {
        self.delete_user(remove)
    }

    fn issue_credential(&mut self, new: &NewCredential) -> Result<CredentialRecord> {
        self.insert_credential(new)
    }

    fn take_link(&mut self, take: &TakeLink) -> Result<Option<CredentialRecord>> {
        self.delete_link(take)
    }

    fn use_credential(&mut self, used: &UseCredential) -> Result<()> {
        self.write_use(used)
    }

    fn revoke_credential(&mut self, revoke: &RevokeCredential) -> Result<bool> {
        self.delete_credential(revoke)
    }
}
