//! Replays: durable, taken batch by batch.

use sluice_domain::job::{EffectState, JobId};
use sluice_domain::replay::{Reapply, ReplayId, ReplayState};
use sluice_domain::time::Time;

use super::Store;
use crate::filter::Page;
use crate::op::{AdvanceReplay, ChangedJob, ControlReplay, Controlled, NewReplay, Replay};
use crate::record::{ReplayRecord, audited_replay};

impl Store {
    pub fn start_replay(&mut self, new: &NewReplay) -> ReplayRecord {
        let id = ReplayId(self.replays.len() as i64 + 1);
        let record = ReplayRecord {
            id,
            selection: new.selection.clone(),
            actor: new.actor.clone(),
            reason: new.reason.clone(),
            revision: new.revision.clone(),
            reapply: new.reapply.clone(),
            rate: new.rate,
            batch: new.batch,
            state: ReplayState::Running,
            created_at: new.at,
            updated_at: new.at,
            after: JobId(0),
            last_job: JobId(self.last_job),
            next_at: new.at,
            replayed: 0,
            skipped: 0,
        };
        self.replays.push(record.clone());
        self.log(new.at, &new.actor, "replay", &id.to_string(), &audited_replay(new));
        record
    }

    /// Requeues the jobs of a batch. `None` if the replay does not run, or has moved on.
    pub fn advance_replay(&mut self, advance: &AdvanceReplay) -> Option<Vec<ChangedJob>> {
        let is_current = |record: &ReplayRecord| record.state == ReplayState::Running && record.after == advance.after;
        let record = self.replay_record(advance.id).filter(is_current)?;
        let (jobs, at) = (advance.jobs.clone(), advance.at);
        let replay = Replay { jobs, actor: record.actor, reason: record.reason, revision: record.revision, at };
        let changed = self.requeue_jobs(&replay, &record.reapply);
        let stored = self.replay_mut(advance.id)?;
        stored.after = advance.until;
        stored.replayed += changed.len() as u64;
        stored.skipped += advance.skipped + (advance.jobs.len() - changed.len()) as u64;
        stored.state = if advance.is_last { ReplayState::Done } else { ReplayState::Running };
        (stored.next_at, stored.updated_at) = (advance.next_at, at);
        Some(changed)
    }

    pub fn control_replay(&mut self, control: &ControlReplay) -> Controlled {
        let Some(record) = self.replay_record(control.id) else { return Controlled::Unknown };
        if record.state == control.state {
            return Controlled::Same(record);
        }
        if !record.state.may_become(control.state) {
            return Controlled::Refused(record);
        }
        self.log(control.at, &control.actor, control.action(), &control.id.to_string(), &control.reason);
        let changed = ReplayRecord { state: control.state, updated_at: control.at, ..record };
        if let Some(stored) = self.replay_mut(control.id) {
            *stored = changed.clone();
        }
        Controlled::Changed(changed)
    }

    fn replay_mut(&mut self, id: ReplayId) -> Option<&mut ReplayRecord> {
        self.replays.iter_mut().find(|record| record.id == id)
    }

    pub(crate) fn replay_record(&self, id: ReplayId) -> Option<ReplayRecord> {
        self.replays.iter().find(|record| record.id == id).cloned()
    }

    pub(crate) fn replays(&self, page: Page) -> Vec<ReplayRecord> {
        let newest_first =
            self.replays.iter().rev().filter(|record| page.after.is_none_or(|after| record.id.0 < after));
        newest_first.take(page.limit as usize).cloned().collect()
    }

    pub(crate) fn running_replays(&self) -> Vec<ReplayRecord> {
        self.replays.iter().filter(|record| record.state == ReplayState::Running).cloned().collect()
    }

    /// The effects that are applied again make room for others.
    pub(super) fn supersede_effects(&mut self, job: JobId, reapply: &Reapply, at: Time) {
        let Some(job) = self.jobs.get_mut(&job) else { return };
        for effect in &mut job.effects {
            if !effect.begin.destination.is_empty() && reapply.supersedes(effect.begin.class, effect.state) {
                (effect.state, effect.last_at) = (EffectState::Superseded, at);
            }
        }
    }
}
