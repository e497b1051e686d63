//! Attempts: the intent before a call, and the settlement after it.

use serde_json::Value;
use sluice_domain::history::Measure;
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::policy::CapReservation;
use sluice_domain::time::Time;
use sluice_domain::upsert::{self, RecordIdentity};

use super::failure_groups::group_key;
use super::lanes::LanePlace;
use super::{AttemptRow, EffectRow, JobRow, Store};
use crate::fence::JobGuard;
use crate::op::{
    Begin, BeginResult, CappedBeginResult, ChargeResult, EffectSettlement, RetryCharge, Settle, Settlement,
};
use crate::record::{AttemptKind, EffectRecord, JobRecord};

impl Store {
    /// Records the intent of an attempt, if every cap has room for its effect.
    pub fn begin(&mut self, begin: Begin, caps: Vec<CapReservation>) -> CappedBeginResult {
        let Some(job) = self.jobs.get_mut(&begin.job) else { return CappedBeginResult::Begun(BeginResult::Stale) };
        if !JobGuard::from(&job.record).may_begin(&begin) {
            return CappedBeginResult::Begun(BeginResult::Stale);
        }
        if let Some(effect) = job.absorbing_effect(begin.key) {
            // Another revision may have given its step another place.
            effect.begin.step = begin.step;
            return CappedBeginResult::Begun(BeginResult::AlreadyApplied);
        }
        if self.is_identity_busy(&begin) {
            return CappedBeginResult::Begun(BeginResult::IdentityBusy);
        }
        if let Some(exhausted) = self.exhausted_cap(&begin, &caps) {
            return CappedBeginResult::Refused(exhausted);
        }
        self.use_caps(&begin, &caps);
        self.write_begin(begin);
        CappedBeginResult::Begun(BeginResult::Go)
    }

    /// Whether the effect of another live job that has this identity is open.
    fn is_identity_busy(&self, begin: &Begin) -> bool {
        let Some(identity) = &begin.identity else { return false };
        let is_open = |job: &JobRow| {
            job.record.state.is_live()
                && job.effects.iter().any(|effect| effect.begin.identity.as_ref() == Some(identity))
                && job.effects.iter().any(|effect| upsert::is_open(effect.state))
        };
        self.jobs_of_identity(identity).filter(|job| job.record.id != begin.job).any(is_open)
    }

    /// Id of the record of an identity, for an effect of this job: as an earlier effect returned it.
    pub fn remembered_record(&self, job: JobId, identity: &RecordIdentity) -> Option<Value> {
        let jobs = self.jobs_of_identity(identity);
        let effects: Vec<EffectRecord> = jobs.flat_map(|row| self.effects(row.record.id)).collect();
        upsert::remembered(&effects, identity, job)
    }

    /// Jobs that have begun an effect of an identity.
    fn jobs_of_identity(&self, identity: &RecordIdentity) -> impl Iterator<Item = &JobRow> {
        self.identities.get(identity).into_iter().flatten().filter_map(|job| self.jobs.get(job))
    }

    fn write_begin(&mut self, begin: Begin) {
        self.change(begin.job, |job| {
            (job.state, job.attempts_total) = (JobState::Running, begin.n);
            (job.updated_at, job.term) = (begin.at, begin.fence.owner);
        });
        if let Some(identity) = &begin.identity {
            self.identities.entry(identity.clone()).or_default().insert(begin.job);
        }
        let Some(job) = self.jobs.get_mut(&begin.job) else { return };
        let at = begin.at;
        match job.effects.iter_mut().find(|effect| effect.begin.key == begin.key) {
            Some(effect) => {
                let (step_id, state) = (effect.begin.step_id.clone(), effect.state.begun());
                (effect.begin, effect.state, effect.last_at) = (Begin { step_id, ..begin }, state, at);
                effect.attempts += 1;
                (effect.absent_reads, effect.reads) = (0, 0);
            }
            None => job.effects.push(EffectRow {
                begin,
                state: EffectState::Intent,
                attempts: 1,
                absent_reads: 0,
                reads: 0,
                result: None,
                first_at: at,
                last_at: at,
            }),
        }
    }

    /// Records the end of a run.
    pub fn settle(&mut self, settle: Settle) -> ChargeResult {
        let Settle { mut settlement, charge, begin } = settle;
        let Some(job) = self.jobs.get_mut(&settlement.job) else { return ChargeResult::Stale };
        let guard = JobGuard::from(&job.record);
        let current = match &begin {
            Some(begin) => guard.may_begin(begin) && job.absorbing_effect(begin.key).is_none(),
            None => guard.may_settle(&settlement),
        };
        if !current {
            return ChargeResult::Stale;
        }
        begin.into_iter().for_each(|begin| self.write_begin(begin));
        let mut result = ChargeResult::Settled;
        if let Some(charge) = charge
            && !self.charge_retry(&settlement, &charge)
        {
            settlement.next = charge.otherwise;
            result = ChargeResult::Exhausted;
        }
        self.write_settlement(settlement);
        result
    }

    /// Counts a retry against the budget of the job's contact. `false` if none is left.
    fn charge_retry(&mut self, settlement: &Settlement, charge: &RetryCharge) -> bool {
        let Some(job) = self.jobs.get(&settlement.job).map(|job| &job.record) else { return false };
        let spent = self.retries.entry((job.worker.clone(), job.entity)).or_default();
        if spent.iter().filter(|until| **until > settlement.at).count() >= charge.retries as usize {
            return false;
        }
        spent.push(charge.until);
        true
    }

    fn write_settlement(&mut self, settlement: Settlement) {
        let Settlement { job: id, n, fence, effect, attempt, write, next, at } = settlement;
        self.change(id, |record| {
            (record.state, record.step, record.attempts) = (next.state, next.step, next.attempts);
            (record.due_at, record.verifying, record.failure) = (next.due_at, next.verifying, next.failure);
            (record.dead_letter_queue, record.result) = (next.dead_letter_queue, next.result);
            (record.destination, record.order, record.term) = (next.destination, next.order, fence.owner);
            (record.attempts_total, record.updated_at) = (n, at);
            record.finished_at = (!next.state.is_live()).then_some(at);
        });
        if let Some(write) = write {
            self.record_write(id, write);
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let settled = effect.clone();
        let call = attempt.as_ref().filter(|attempt| attempt.kind == AttemptKind::Call);
        let called = settled.as_ref().and_then(|settled| job.effects.iter().find(|row| row.begin.key == settled.key));
        if let (Some(call), Some(called)) = (call, called) {
            self.history.add(Measure::Attempts, &called.begin.destination, call.outcome);
            if settled.as_ref().is_some_and(|settled| settled.state == EffectState::Applied) {
                self.history.add(Measure::Effects, &called.begin.destination, called.begin.class.as_str());
            }
        }
        let released = effect.and_then(|effect| job.settle_effect(effect, at));
        job.attempts.extend(attempt.map(|attempt| AttemptRow { n, ended_at: at, attempt }));
        released.into_iter().for_each(|key| self.release_caps(key));
        if let Some(settled) = settled {
            self.note_straggler(id, &settled);
        }
    }

    /// Changes the record of a job and its place in the index of live jobs.
    pub(super) fn change(&mut self, id: JobId, change: impl FnOnce(&mut JobRecord)) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let before = LanePlace::of(&job.record);
        let state_before = job.record.state;
        let group_before = group_key(&job.record);
        change(&mut job.record);
        self.failure_groups.update(group_before, &job.record);
        self.lanes.update(before, LanePlace::of(&job.record));
        let JobRecord { state, replays, ref worker, .. } = job.record;
        if state == state_before {
            return;
        }
        if let Some(measure) = Measure::of_job_end(state, replays) {
            self.history.add(measure, worker, state.as_str());
        }
        self.count_job(Some(state_before), Some(state));
    }

    /// Counts a job in its new state, and no longer in the one before.
    pub(super) fn count_job(&mut self, before: Option<JobState>, after: Option<JobState>) {
        if let Some(state) = before {
            self.job_states[state as usize] -= 1;
        }
        if let Some(state) = after {
            self.job_states[state as usize] += 1;
        }
    }

    /// Removes retries that do not count any more. Returns their number.
    pub(super) fn prune_retries(&mut self, at: Time, limit: usize) -> usize {
        let mut removed = 0;
        for spent in self.retries.values_mut() {
            spent.retain(|until| {
                let stays = *until > at || removed >= limit;
                removed += usize::from(!stays);
                stays
            });
        }
        self.retries.retain(|_, spent| !spent.is_empty());
        removed
    }
}

impl JobRow {
    fn absorbing_effect(&mut self, key: EffectKey) -> Option<&mut EffectRow> {
        self.effects.iter_mut().find(|effect| effect.begin.key == key && effect.state.is_absorbing())
    }

    /// Returns the key if the effect was surely not applied: it does not count under its caps.
    fn settle_effect(&mut self, settled: EffectSettlement, at: Time) -> Option<EffectKey> {
        let effect = self.effects.iter_mut().find(|effect| effect.begin.key == settled.key)?;
        if effect.state.is_final() {
            return None;
        }
        (effect.state, effect.last_at) = (settled.state, at);
        (effect.begin.step, effect.absent_reads, effect.reads) = (settled.step, settled.absent_reads, settled.reads);
        if settled.result.is_some() {
            effect.result = settled.result;
        }
        matches!(settled.state, EffectState::NotApplied | EffectState::Skipped).then_some(settled.key)
    }
}
