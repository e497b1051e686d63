//! Commands of operators, and removal of expired rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::ledger_clock::ClockRecord;
use sluice_domain::outcome::EffectClass;
use sluice_domain::replay::{Reapply, replayable};
use sluice_domain::time::Time;
use sluice_domain::upsert::RecordIdentity;
use sluice_domain::worker::LaneOrder;

use super::lanes::LanePlace;
use super::{DAY_MS, EffectRow, EventRow, Store};
use crate::op::{
    AuditEntry, ChangedJob, DropJobs, KeepClock, MakeDue, NewRevision, Pause, Prune, Pruned, RETENTION, Replay,
    Resolution, Resolve, Resume, Schedule,
};
use crate::record::{AuditRecord, EventSeq, JobRecord, PauseRecord, RevisionRecord};

impl Store {
    pub fn audit(&mut self, entry: AuditEntry) {
        self.log(entry.at, &entry.actor, &entry.action, &entry.object, &entry.detail);
    }

    pub(super) fn log(&mut self, at: Time, actor: &str, action: &str, object: &str, detail: &str) {
        let id = self.audit.len() as i64 + 1;
        let (actor, action, object, detail) = (actor.into(), action.into(), object.into(), detail.into());
        self.audit.push(AuditRecord { id, at, actor, action, object, detail });
    }

    /// Returns since when the worker has had this schedule.
    pub fn schedule(&mut self, schedule: Schedule) -> Time {
        let Schedule { worker, rule, at } = schedule;
        let kept = self.schedules.entry(worker).or_insert_with(|| (rule.clone(), at));
        if kept.0 != rule {
            *kept = (rule, at);
        }
        kept.1
    }

    pub fn pause(&mut self, pause: Pause) {
        let Pause { target, actor, reason, at } = pause;
        self.change_seq += 1;
        self.log(at, &actor, "pause", &target, &reason);
        self.pauses.insert(target.clone(), PauseRecord { target, at, actor, reason });
    }

    pub fn resume(&mut self, resume: &Resume) {
        self.pauses.remove(&resume.target);
        self.change_seq += 1;
        self.log(resume.at, &resume.actor, "resume", &resume.target, &resume.reason);
    }

    pub fn activate_revision(&mut self, revision: NewRevision) {
        let NewRevision { hash, files, actor, reason, at } = revision;
        if self.revision_history.last().is_none_or(|last| *last.hash != *hash) {
            self.change_seq += 1;
            self.log(at, &actor, "configure", &hash, &reason);
            let n = self.revision_history.len() as i64 + 1;
            self.revision_history.push(RevisionRecord { n, at, hash: hash.to_string(), actor, reason });
        }
        self.revisions.entry(hash).or_insert(files);
    }

    /// Requeues finished and dead jobs. Returns those that were requeued.
    pub fn replay(&mut self, replay: &Replay) -> Vec<ChangedJob> {
        self.requeue_jobs(replay, &Reapply::default())
    }

    /// With `reapply`, applied effects of its classes are superseded and a job starts at the first step.
    pub(super) fn requeue_jobs(&mut self, replay: &Replay, reapply: &Reapply) -> Vec<ChangedJob> {
        let mut changed = Vec::new();
        for id in &replay.jobs {
            if self.jobs.get(id).is_none_or(|job| replayable(job.record.state).is_err()) {
                continue;
            }
            self.identify_replayed(*id, replay);
            let Some(job) = self.jobs.get(id) else { continue };
            let unknown = |effect: &EffectRow| {
                effect.state == EffectState::Unknown && effect.begin.class == EffectClass::Verifiable
            };
            let verifying = job.effects.iter().any(unknown);
            changed.push((*id, job.record.worker.clone()));
            self.change(*id, |job| {
                requeue(job, replay.at);
                job.verifying = verifying;
                if let Some(revision) = replay.revision.as_ref().filter(|revision| **revision != job.revision) {
                    job.revision = revision.clone();
                    move_to_step(job, 0);
                }
                if !reapply.is_empty() {
                    move_to_step(job, 0);
                }
            });
            if !reapply.is_empty() {
                self.supersede_effects(*id, reapply, replay.at);
            }
            self.log(replay.at, &replay.actor, "replay", &id.to_string(), &replay.reason);
        }
        changed
    }

    /// Records what became of an effect of unknown outcome. Returns its job if that continues.
    pub fn make_due(&mut self, due: &MakeDue) -> Vec<ChangedJob> {
        let mut changed = Vec::new();
        for id in &due.jobs {
            let Some(job) = self.job(*id).filter(|job| job.state == JobState::Waiting) else { continue };
            changed.push((*id, job.worker.clone()));
            self.change(*id, |job| (job.due_at, job.updated_at) = (JobRecord::DUE_AT_ONCE, due.at));
        }
        changed
    }

    pub fn resolve(&mut self, resolve: &Resolve) -> Vec<ChangedJob> {
        let (state, steps, word) = match resolve.resolution {
            Resolution::Happened => (EffectState::Applied, 1, "happened"),
            Resolution::NotHappened => (EffectState::NotApplied, 0, "did not happen"),
        };
        let Some(job) = self.jobs.get_mut(&resolve.job).filter(|job| job.record.state == JobState::Unknown) else {
            return vec![];
        };
        // The resolution is about the effect that the job is parked for: the unknown one that was begun last.
        let unknown = job.effects.iter_mut().filter(|effect| effect.state == EffectState::Unknown);
        let last = unknown.max_by_key(|effect| effect.begin.n);
        // A step with items, or one that undoes, has more to do; what is applied is passed over.
        let is_part =
            |effect: &EffectRow| effect.begin.step_id.ends_with(']') || effect.begin.step_id.contains(".undo");
        let steps = if last.as_deref().is_some_and(is_part) { 0 } else { steps };
        let resolved = last.map(|effect| {
            (effect.state, effect.last_at) = (state, resolve.at);
            effect.begin.key
        });
        let worker = job.record.worker.clone();
        self.change(resolve.job, |job| {
            requeue(job, resolve.at);
            if steps > 0 {
                move_to_step(job, job.step + steps);
            }
        });
        if resolve.resolution == Resolution::NotHappened {
            resolved.into_iter().for_each(|key| self.release_caps(key));
        }
        let detail = format!("{word}: {}", resolve.reason);
        self.log(resolve.at, &resolve.actor, "resolve", &resolve.job.to_string(), &detail);
        vec![(resolve.job, worker)]
    }

    /// Discards dead and unknown jobs. Returns those that were discarded.
    pub fn drop_jobs(&mut self, drop: &DropJobs) -> Vec<ChangedJob> {
        let mut changed = Vec::new();
        for id in &drop.jobs {
            let droppable = |job: &JobRecord| matches!(job.state, JobState::Dead | JobState::Unknown);
            let Some(worker) = self.job(*id).filter(|job| droppable(job)).map(|job| job.worker.clone()) else {
                continue;
            };
            self.change(*id, |job| {
                (job.state, job.updated_at, job.finished_at) = (JobState::Dropped, drop.at, Some(drop.at));
            });
            changed.push((*id, worker));
        }
        for (id, _) in &changed {
            self.marks.retain(|_, mark| mark.job != *id);
            self.log(drop.at, &drop.actor, "drop", &id.to_string(), &drop.reason);
        }
        if drop.actor == RETENTION {
            self.count_pruned("dead_letter", changed.len());
        }
        changed
    }

    /// Removes a slice of expired rows.
    pub fn prune(&mut self, prune: &Prune) -> Pruned {
        let limit = prune.rows_max as usize;
        let bodies = self.prune_bodies(prune, limit);
        let events = self.prune_events(prune, limit);
        let expired = self.marks.iter().filter(|(_, mark)| mark.expires_at <= prune.at);
        let marks: Vec<_> = expired.map(|(key, _)| key.clone()).take(limit).collect();
        for key in &marks {
            self.marks.remove(key);
        }
        let retries = self.prune_retries(prune.at, limit);
        let proofs = self.prune_proofs(prune.at, limit);
        let bindings = self.prune_bindings(prune.at, limit);
        let waiting = self.prune_waiting(prune.at, limit);
        let groups = self.failure_groups.prune(prune.at, limit);
        let approvals = self.approvals.len();
        let uses = self.prune_policies(prune.at, limit);
        let approvals = approvals - self.approvals.len();
        let marks = marks.len();
        let kinds = [("body", bodies), ("mark", marks), ("retry", retries), ("proof", proofs), ("cap_use", uses)];
        let others = [("event", events), ("approval", approvals), ("binding", bindings), ("waiting_event", waiting)];
        let commands = self.prune_commands(prune.at, limit);
        self.count_pruned("failure_group", groups);
        self.count_pruned("command", commands);
        for (kind, rows) in kinds.into_iter().chain(others) {
            self.count_pruned(kind, rows);
        }
        let slices = [bodies, events, marks, retries, proofs, bindings, uses, waiting, groups, commands];
        let rows = slices.iter().sum::<usize>() as u64;
        Pruned { rows, more: slices.iter().any(|rows| *rows >= limit) }
    }

    /// Whether a job still needs the event.
    fn is_needed(&self, event: &EventRow) -> bool {
        event
            .job_ids()
            .filter_map(|id| self.jobs.get(&id))
            .any(|job| job.record.state.is_live() || matches!(job.record.state, JobState::Dead | JobState::Unknown))
    }

    fn prune_bodies(&mut self, prune: &Prune, limit: usize) -> usize {
        let with_body = self.events.values().filter(|event| event.body.is_some());
        let old = with_body.take_while(|event| event.record.persisted_at < prune.bodies_before);
        let unneeded = old.filter(|event| !self.is_needed(event));
        let seqs: Vec<EventSeq> = unneeded.map(|event| event.seq).take(limit).collect();
        for seq in &seqs {
            self.variants.remove(seq);
            self.event_revisions.remove(seq);
            if let Some(event) = self.events.get_mut(seq) {
                event.body = None;
            }
        }
        seqs.len()
    }

    fn prune_events(&mut self, prune: &Prune, limit: usize) -> usize {
        let old = self.events.values().take_while(|event| event.record.persisted_at < prune.events_before);
        let expired = old.filter(|event| event.new.expires_at < prune.at && !self.is_needed(event));
        let seqs: Vec<EventSeq> = expired.map(|event| event.seq).take(limit).collect();
        for seq in &seqs {
            let Some(event) = self.events.remove(seq) else { continue };
            self.forget_identity(*seq);
            self.variants.remove(seq);
            self.responses.remove(seq);
            if let Some(content) = event.new.signed_content
                && self.signed_contents.get(&content.0) == Some(seq)
            {
                self.signed_contents.remove(&content.0);
            }
            self.count_pruned("body", usize::from(event.body.is_some()));
            let day = (event.record.persisted_at.0.div_euclid(DAY_MS), event.new.source.clone());
            self.source_days.entry(day).or_default().pruned += 1;
            for id in event.job_ids() {
                self.remove_job(id);
            }
            self.later_ids.remove(&event.id);
            if let Some(owners) = self.owners.get_mut(&event.new.key.0) {
                owners.retain(|other| other != seq);
                if owners.is_empty() {
                    self.owners.remove(&event.new.key.0);
                }
            }
        }
        seqs.len()
    }

    fn remove_job(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            self.lanes.update(LanePlace::of(&job.record), None);
            self.count_job(Some(job.record.state), None);
            for identity in job.effects.iter().filter_map(|effect| effect.begin.identity.as_ref()) {
                self.forget_identity_of_job(identity, id);
            }
            self.stragglers.retain(|_, straggler| straggler.job != id);
            self.count_pruned("job", 1);
            self.count_pruned("effect", job.effects.len());
            self.count_pruned("attempt", job.attempts.len());
        }
    }

    fn forget_identity_of_job(&mut self, identity: &RecordIdentity, job: JobId) {
        if let Some(jobs) = self.identities.get_mut(identity)
            && jobs.remove(&job)
            && jobs.is_empty()
        {
            self.identities.remove(identity);
        }
    }

    fn count_pruned(&mut self, kind: &str, rows: usize) {
        if rows > 0 {
            *self.pruned.entry(kind.to_owned()).or_default() += rows as u64;
        }
    }

    /// Rows that retention has deleted, by kind.
    pub fn pruned_totals(&self) -> BTreeMap<String, u64> {
        self.pruned.clone()
    }

    /// Stores the state of the ledger's clock.
    pub fn keep_clock(&mut self, keep: &KeepClock) {
        self.clock = Some(keep.record);
        if let Some(confirmed) = &keep.confirmed {
            self.log(confirmed.at, &confirmed.actor, "clock accept", "clock", &confirmed.detail());
        }
    }

    /// The clock as it was stored last, not before the newest event.
    pub fn clock(&self) -> Option<ClockRecord> {
        let newest = self.events.values().next_back().map_or(Time(i64::MIN), |event| event.record.persisted_at);
        self.clock.map(|record| record.continued_from(newest))
    }
}

pub(super) fn requeue(job: &mut JobRecord, at: Time) {
    (job.state, job.attempts, job.due_at, job.updated_at) = (JobState::Queued, 0, at, at);
    (job.finished_at, job.dead_letter_queue, job.failure, job.verifying) = (None, None, None, false);
    job.replays += 1;
}

/// The destination of the step is not known here.
pub(super) fn move_to_step(job: &mut JobRecord, step: u32) {
    (job.step, job.destination, job.order) = (step, Arc::default(), LaneOrder::Fifo);
}
