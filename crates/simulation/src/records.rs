//! Records that natural effects write: which write each shows, and which it must show.

use std::sync::Arc;

use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::run::StepCall;

use super::coverage::Fault;
use super::invariants::Invariant;
use super::plan::step_of;
use super::trace::About;
use super::world::{SimEvent, Simulation};

/// The record of one step and entity.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// The job whose write it shows.
    shows: Option<JobId>,
    /// The last write that the ledger calls applied.
    confirmed: Option<JobId>,
    /// Jobs that have called since: their writes may be applied, whatever the destination said.
    called: Vec<JobId>,
}

impl Simulation {
    fn record(&mut self, job: JobId, label: &Arc<str>) -> &mut Record {
        let (entity, step) = (self.checker.job(job).entity(), step_of(label));
        // One record, however often its event was edited.
        let step = if step.len() == label.len() { label.clone() } else { Arc::from(step) };
        self.checker.records.entry((step, entity)).or_default()
    }

    /// A call is applied after it was given up.
    pub(super) fn plan_landing(&mut self, after_ms: i64, call: &StepCall) {
        self.stragglers.push(call.clone());
        let index = (self.stragglers.len() - 1) as u32;
        self.plan_in(after_ms, SimEvent::Lands { index });
    }

    /// A call that was given up is applied all the same, perhaps after newer ones.
    pub(super) fn lands(&mut self, index: u32) {
        let call = self.stragglers[index as usize].clone();
        let (job, label) = (call.job, &call.label);
        self.trace.note(self.now, "lands late", About::Job(job), 0);
        if self.plan.facts(label).is_some_and(|facts| facts.upsert) {
            self.coverage.fault(Fault::CreateLandsLate);
            return self.create_applied(&call);
        }
        if self.checker.job(job).effect(label).shown == 0 {
            self.applied(job, label, self.now);
        }
        self.record_written(&call);
    }

    /// A write is applied at the destination.
    pub(super) fn record_written(&mut self, call: &StepCall) {
        match self.plan.facts(&call.label).is_some_and(|facts| facts.merged) {
            true => self.checker.people.apply(call),
            false => self.record(call.job, &call.label).shows = Some(call.job),
        }
    }

    /// Whether the record is as this call would write it: one of a contact has its values, any other was written by its job last.
    pub(super) fn record_is_of(&mut self, call: &StepCall) -> bool {
        match self.plan.facts(&call.label).is_some_and(|facts| facts.merged) {
            true => self.checker.people.shows(call),
            false => self.record(call.job, &call.label).shows == Some(call.job),
        }
    }

    pub(super) fn write_confirmed(&mut self, job: JobId, label: &Arc<str>) {
        let record = self.record(job, label);
        record.confirmed = Some(job);
        record.called.clear();
    }

    /// The destination left the record alone on purpose.
    pub(super) fn write_declined(&mut self, job: JobId, label: &Arc<str>) {
        let record = self.record(job, label);
        record.confirmed = record.confirmed.filter(|confirmed| *confirmed != job);
    }

    pub(super) fn write_called(&mut self, job: JobId, label: &Arc<str>) {
        self.record(job, label).called.push(job);
    }

    /// The ledger has decided to compare a confirmed write with its record.
    pub(super) fn look_at_recheck(&mut self, id: JobId) {
        let rechecking = self.store.effect_states(id).filter(|effect| effect.state == EffectState::Rechecking);
        for label in rechecking.map(|effect| effect.step_id.clone()).collect::<Vec<_>>() {
            self.checker.job(id).rechecked(&label);
        }
        self.look_at(id);
    }

    /// In the end: a record shows the last confirmed write, or one that was called later and never confirmed.
    pub(super) fn check_records(&mut self) {
        for ((label, entity), record) in &self.checker.records {
            let (Some(shows), Some(confirmed)) = (record.shows, record.confirmed) else { continue };
            // A job that died in a later step keeps its lane as it is.
            let done = self.store.job(confirmed).is_some_and(|job| job.state == JobState::Succeeded);
            if done && shows != confirmed && !record.called.contains(&shows) {
                let detail = format!(
                    "`{label}` of entity {entity} shows the write of {shows}; the last confirmed is of {confirmed}"
                );
                return self.checker.fail(self.now, Invariant::NewestWriteStands, About::Job(confirmed), || detail);
            }
        }
    }
}
