//! One operation.

use sluice_domain::event::EventId;
use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::mutant::Mutant;
use sluice_domain::outcome::EffectClass;
use sluice_domain::time::Time;

use super::{AttemptRow, EffectRow, EventRow, Store};
use crate::op::{Begin, DropJobs, NewRevision, Op, Prune, Replay, Reply, Resolution, Resolve, Settlement};
use crate::record::{AuditRecord, EventSeq, JobRecord, NewEvent, PauseRecord, RevisionRecord, SourceDayCounts};

const DAY_MS: i64 = 86_400_000;

impl Store {
    /// Applies an operation; from here on it is durable. `now` is the wall clock's time.
    pub fn apply(&mut self, now: Time, op: Op) -> Reply {
        match op {
            Op::Accept(event) => self.accept(now, event).into(),
            Op::AcceptAll(events) => {
                Reply::Acceptances(events.into_iter().map(|event| self.accept(now, Box::new(event))).collect())
            }
            Op::Begin(begin) => self.begin(begin),
            Op::Settle(settlement) => self.settle(*settlement),
            Op::BeginAndSettle(attempt) => {
                let (begin, settlement) = *attempt;
                match self.begin(begin) {
                    Reply::Stale => Reply::Stale,
                    _ => self.settle(settlement),
                }
            }
            Op::SettleWithBudget(within) => {
                let (settlement, draw) = *within;
                self.settle_within(settlement, draw)
            }
            Op::Schedule { worker, rule, at } => {
                let kept = self.schedules.entry(worker).or_insert_with(|| (rule.clone(), at));
                if kept.0 != rule {
                    *kept = (rule, at);
                }
                Reply::Since(kept.1)
            }
            Op::Note(note) => self.note(*note),
            Op::Mark(mark) => self.mark(*mark),
            Op::Replay(replay) => self.replay(&replay),
            Op::Resolve(resolve) => self.resolve(&resolve),
            Op::Drop(drop) => self.drop_jobs(&drop),
            Op::Pause { target, actor, reason, at } => {
                self.log(at, &actor, "pause", &target, &reason);
                self.pauses.insert(target.clone(), PauseRecord { target, at, actor, reason });
                Reply::Done
            }
            Op::Resume { target, actor, at } => {
                self.pauses.remove(&target);
                self.log(at, &actor, "resume", &target, "");
                Reply::Done
            }
            Op::Revision(NewRevision { hash, files, actor, reason, at }) => {
                if self.configured.last().is_none_or(|last| *last.hash != *hash) {
                    self.log(at, &actor, "configure", &hash, &reason);
                    let n = self.configured.len() as i64 + 1;
                    self.configured.push(RevisionRecord { n, at, hash: hash.to_string(), actor, reason });
                }
                self.revisions.entry(hash).or_insert(files);
                Reply::Done
            }
            Op::Audit { at, actor, action, object, detail } => {
                self.log(at, &actor, &action, &object, &detail);
                Reply::Done
            }
            Op::Guard(op) => Reply::Guard(self.guard(op)),
            Op::Prune(prune) => self.prune(&prune),
            Op::Find(id) => Reply::Candidates(self.places_of(id)),
            // Nothing is sealed in memory.
            Op::Rotate(_) => Reply::Rotated(0),
            Op::Close => Reply::Done,
        }
    }

    pub(super) fn log(&mut self, at: Time, actor: &str, action: &str, object: &str, detail: &str) {
        let id = self.audit.len() as i64 + 1;
        let (actor, action, object, detail) = (actor.into(), action.into(), object.into(), detail.into());
        self.audit.push(AuditRecord { id, at, actor, action, object, detail });
    }

    pub(super) fn tally(&mut self, now: Time, event: &NewEvent) -> &mut SourceDayCounts {
        self.tallies.entry((now.0.div_euclid(DAY_MS), event.source.clone())).or_default()
    }

    fn places_of(&self, id: EventId) -> Vec<EventSeq> {
        let by_key = self.owners.get(&id.0).into_iter().flatten().copied();
        by_key.chain(self.later_names.get(&id).copied()).collect()
    }

    /// Keeps the lists of what is alive and of what runs.
    pub(super) fn set_live(
        &mut self,
        worker: &std::sync::Arc<str>,
        id: JobId,
        before: Option<JobState>,
        state: JobState,
    ) {
        let was_live = before.is_some_and(JobState::is_live);
        if was_live == state.is_live() {
            // It is in the list, or is not, as before.
        } else if state.is_live() {
            match self.live.get_mut(worker) {
                Some(jobs) => drop(jobs.insert(id)),
                None => drop(self.live.entry(worker.clone()).or_default().insert(id)),
            }
        } else if let Some(jobs) = self.live.get_mut(worker)
            && jobs.remove(&id)
            && jobs.is_empty()
        {
            self.live.remove(worker);
        }
        if state == JobState::Running {
            self.running.insert(id);
        } else if before == Some(JobState::Running) {
            self.running.remove(&id);
        }
    }

    pub(super) fn begin(&mut self, begin: Begin) -> Reply {
        let Some(job) = self.jobs.get_mut(&begin.job) else { return Reply::Stale };
        if !job.record.state.is_live() || job.record.attempts_total + 1 != begin.n {
            return Reply::Stale;
        }
        (job.record.state, job.record.attempts_total, job.record.updated_at) = (JobState::Running, begin.n, begin.at);
        self.running.insert(begin.job);
        let at = begin.at;
        let absorbing = !Mutant::AppliedNotAbsorbing.is_on();
        match job.effects.iter_mut().find(|effect| effect.begin.key == begin.key) {
            // Another revision may have given its step another place, under which it is settled.
            Some(effect) if effect.state.is_final() && absorbing => {
                (effect.begin.step, effect.begin.n) = (begin.step, begin.n);
                Reply::AlreadyApplied
            }
            Some(effect) => {
                let step_id = effect.begin.step_id.clone();
                (effect.begin, effect.state, effect.last_at) = (Begin { step_id, ..begin }, EffectState::Intent, at);
                effect.attempts += 1;
                (effect.absent_reads, effect.reads) = (0, 0);
                Reply::Begun
            }
            None => {
                job.effects.push(EffectRow {
                    begin,
                    state: EffectState::Intent,
                    attempts: 1,
                    absent_reads: 0,
                    reads: 0,
                    result: None,
                    first_at: at,
                    last_at: at,
                });
                Reply::Begun
            }
        }
    }

    pub(super) fn settle(&mut self, settlement: Settlement) -> Reply {
        let Settlement { job: id, n, fence, effect, attempt, next, at } = settlement;
        let Some(job) = self.jobs.get_mut(&id) else { return Reply::Stale };
        let current = job.record.attempts_total == n && job.record.state.is_live();
        if !current && !Mutant::LateResponseAccepted.is_on() {
            return Reply::Stale;
        }
        let record = &mut job.record;
        let before = record.state;
        (record.state, record.step, record.attempts, record.due_at) =
            (next.state, next.step, next.attempts, next.due_at);
        (record.verifying, record.failure, record.dead_letter_queue) =
            (next.verifying, next.failure, next.dead_letter_queue);
        (record.result, record.updated_at) = (next.result, at);
        (record.destination, record.order, record.term) = (next.destination, next.order, fence.owner);
        record.finished_at = (!next.state.is_live()).then_some(at);
        let worker = record.worker.clone();
        let mut given_back = None;
        if let Some(settled) = effect
            && let Some(effect) = job.effects.iter_mut().find(|effect| effect.begin.key == settled.key)
            && !effect.state.is_final()
        {
            (effect.state, effect.last_at) = (settled.state, at);
            (effect.begin.step, effect.absent_reads, effect.reads) =
                (settled.step, settled.absent_reads, settled.reads);
            if settled.result.is_some() {
                effect.result = settled.result;
            }
            given_back = matches!(settled.state, EffectState::NotApplied | EffectState::Skipped).then_some(settled.key);
        }
        if let Some(attempt) = attempt {
            job.attempts.push(AttemptRow { n, ended_at: at, attempt });
        }
        self.set_live(&worker, id, Some(before), next.state);
        given_back.into_iter().for_each(|key| self.give_back(key));
        Reply::Settled
    }

    fn replay(&mut self, replay: &Replay) -> Reply {
        let mut changed = Vec::new();
        for id in &replay.jobs {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            if !matches!(job.record.state, JobState::Succeeded | JobState::Noop | JobState::Dead) {
                continue;
            }
            let unknown = |effect: &EffectRow| {
                effect.state == EffectState::Unknown && effect.begin.class == EffectClass::Verifiable
            };
            let verifying = job.effects.iter().any(unknown);
            revive(&mut job.record, replay.at);
            job.record.verifying = verifying;
            if let Some(revision) = replay.revision.as_ref().filter(|revision| **revision != job.record.revision) {
                job.record.revision = revision.clone();
                job.record.step = 0;
            }
            changed.push((*id, job.record.worker.clone()));
        }
        for (id, worker) in &changed {
            self.set_live(worker, *id, None, JobState::Queued);
            self.log(replay.at, &replay.actor, "replay", &id.to_string(), &replay.reason);
        }
        Reply::Jobs(changed)
    }

    fn resolve(&mut self, resolve: &Resolve) -> Reply {
        let (state, steps, word) = match resolve.resolution {
            Resolution::Happened => (EffectState::Applied, 1, "happened"),
            Resolution::NotHappened => (EffectState::NotApplied, 0, "did not happen"),
        };
        let Some(job) = self.jobs.get_mut(&resolve.job).filter(|job| job.record.state == JobState::Unknown) else {
            return Reply::Jobs(vec![]);
        };
        revive(&mut job.record, resolve.at);
        // The verdict is about what the job is parked for: the last of what nobody knows.
        let unknown = job.effects.iter_mut().filter(|effect| effect.state == EffectState::Unknown);
        let last = unknown.max_by_key(|effect| effect.begin.n);
        // A step with items, and one that undoes, has more to do than this: what is applied is passed over.
        let is_part =
            |effect: &EffectRow| effect.begin.step_id.ends_with(']') || effect.begin.step_id.contains(".undo");
        job.record.step += if last.as_deref().is_some_and(is_part) { 0 } else { steps };
        let resolved = last.map(|effect| {
            (effect.state, effect.last_at) = (state, resolve.at);
            effect.begin.key
        });
        let worker = job.record.worker.clone();
        self.set_live(&worker, resolve.job, None, JobState::Queued);
        if resolve.resolution == Resolution::NotHappened {
            resolved.into_iter().for_each(|key| self.give_back(key));
        }
        let detail = format!("{word}: {}", resolve.reason);
        self.log(resolve.at, &resolve.actor, "resolve", &resolve.job.to_string(), &detail);
        Reply::Jobs(vec![(resolve.job, worker)])
    }

    fn drop_jobs(&mut self, drop: &DropJobs) -> Reply {
        let mut changed = Vec::new();
        for id in &drop.jobs {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            if matches!(job.record.state, JobState::Dead | JobState::Unknown) {
                (job.record.state, job.record.updated_at) = (JobState::Dropped, drop.at);
                job.record.finished_at = Some(drop.at);
                changed.push((*id, job.record.worker.clone()));
            }
        }
        for (id, _) in &changed {
            self.marks.retain(|_, mark| mark.job != *id);
            self.log(drop.at, &drop.actor, "drop", &id.to_string(), &drop.reason);
        }
        Reply::Jobs(changed)
    }

    /// Whether somebody still needs the event.
    fn is_held(&self, event: &EventRow) -> bool {
        event
            .job_ids()
            .filter_map(|id| self.jobs.get(&id))
            .any(|job| job.record.state.is_live() || matches!(job.record.state, JobState::Dead | JobState::Unknown))
    }

    fn prune(&mut self, prune: &Prune) -> Reply {
        let limit = prune.rows_max as usize;
        let old = |event: &&EventRow| event.persisted_at < prune.bodies_before;
        let bodies: Vec<EventSeq> = self
            .events
            .values()
            .filter(|event| event.body.is_some())
            .take_while(old)
            .filter(|event| !self.is_held(event))
            .map(|event| event.ord)
            .take(limit)
            .collect();
        for ord in &bodies {
            self.variants.remove(ord);
            if let Some(event) = self.events.get_mut(ord) {
                event.body = None;
            }
        }
        let events: Vec<EventSeq> = self
            .events
            .values()
            .take_while(|event| event.persisted_at < prune.events_before)
            .filter(|event| event.new.expires_at < prune.at && !self.is_held(event))
            .map(|event| event.ord)
            .take(limit)
            .collect();
        for ord in &events {
            let Some(event) = self.events.remove(ord) else { continue };
            self.variants.remove(ord);
            for id in event.job_ids() {
                self.jobs.remove(&id);
            }
            self.later_names.remove(&event.id);
            if let Some(ords) = self.owners.get_mut(&event.new.key.0) {
                ords.retain(|other| other != ord);
                if ords.is_empty() {
                    self.owners.remove(&event.new.key.0);
                }
            }
        }
        let expired = self.marks.iter().filter(|(_, mark)| mark.expires_at <= prune.at);
        let marks: Vec<_> = expired.map(|(key, _)| key.clone()).take(limit).collect();
        for key in &marks {
            self.marks.remove(key);
        }
        let retries = self.forget_retries(prune.at, limit);
        let slices = [bodies.len(), events.len(), marks.len(), retries, self.prune_guards(prune.at, limit)];
        let rows = slices.iter().sum::<usize>() as u64;
        Reply::Pruned { rows, more: slices.iter().any(|rows| *rows >= limit) }
    }
}

/// Alive again, from the step where it stood.
fn revive(job: &mut JobRecord, at: Time) {
    (job.state, job.attempts, job.due_at, job.updated_at) = (JobState::Queued, 0, at, at);
    (job.finished_at, job.dead_letter_queue, job.failure, job.verifying) = (None, None, None, false);
    job.replays += 1;
}
