//! Lanes in which a call of unknown outcome may still be applied, and overwrite a newer write.

use std::sync::Arc;

use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::time::Time;
use sluice_domain::worker::LaneOrder;

use super::Store;
use crate::op::{ChangedJob, EffectSettlement, Recheck};
use crate::straggler::{DueLane, Straggler, StragglerChange};

impl Store {
    /// The effect of a job was settled: its call may be applied later, or its write is confirmed.
    pub(super) fn note_straggler(&mut self, job: JobId, settled: &EffectSettlement) {
        let Some(row) = self.jobs.get(&job) else { return };
        let Some(effect) = row.effects.iter().find(|effect| effect.begin.key == settled.key) else { return };
        if !Straggler::concerns(effect.begin.class, settled) {
            return;
        }
        let lane = (row.record.worker.clone(), row.record.entity, effect.begin.step_id.clone());
        match Straggler::settled(self.stragglers.get(&lane).copied(), job, settled) {
            StragglerChange::Keep => {}
            StragglerChange::Delete => drop(self.stragglers.remove(&lane)),
            StragglerChange::Write(straggler) => drop(self.stragglers.insert(lane, straggler)),
            StragglerChange::Supersede { old, new } => {
                self.supersede(old);
                self.stragglers.insert(lane, new);
            }
        }
    }

    /// The write of a live job is not compared any more: it is applied, as before.
    fn supersede(&mut self, old: Straggler) {
        let Some(row) = self.jobs.get_mut(&old.job).filter(|row| row.record.state.is_live()) else { return };
        if let Some(effect) = row.effects.iter_mut().find(|effect| effect.begin.key == old.key) {
            effect.state = if effect.state.is_final() { effect.state } else { EffectState::Applied };
        }
    }

    /// When the next lane is due to be compared with its record.
    pub fn next_straggler(&self) -> Option<Time> {
        self.stragglers.values().map(|straggler| straggler.due_at).min()
    }

    /// Whether a lane is still to be compared whose job has not failed.
    pub fn waits_for_stragglers(&self) -> bool {
        self.stragglers.values().filter(|straggler| !straggler.is_compared()).any(|straggler| {
            let state = self.jobs.get(&straggler.job).map(|job| job.record.state);
            !matches!(state, Some(JobState::Dead | JobState::Unknown))
        })
    }

    /// Requeues the jobs of lanes in which a call may have been applied late. Returns those that were requeued.
    pub fn recheck(&mut self, recheck: &Recheck) -> Vec<ChangedJob> {
        let due = self.stragglers.iter().filter(|(_, straggler)| straggler.due_at <= recheck.due_at);
        let mut due: Vec<_> = due.map(|(lane, straggler)| (straggler.due_at, lane.clone(), *straggler)).collect();
        // As the table has them: entities are signed there.
        let place = |(worker, entity, step): &(Arc<str>, u64, Arc<str>)| (worker.clone(), *entity as i64, step.clone());
        due.sort_by_key(|(due_at, lane, _)| (*due_at, place(lane)));
        due.truncate(recheck.jobs_max as usize);
        let mut changed = Vec::new();
        for (_, lane, straggler) in due {
            let job = self.jobs.get(&straggler.job);
            let effect = job.and_then(|job| job.effects.iter().find(|effect| effect.begin.key == straggler.key));
            let states = (job.map(|job| job.record.state), effect.map(|effect| effect.state));
            let requeued = match DueLane::of(recheck, states.0, states.1) {
                DueLane::Later(due_at) => {
                    self.stragglers.insert(lane, Straggler { due_at, ..straggler });
                    None
                }
                DueLane::Delete => {
                    self.stragglers.remove(&lane);
                    None
                }
                DueLane::Compare => {
                    self.stragglers.insert(lane, Straggler { due_at: Time::NEVER, ..straggler });
                    self.recheck_job(straggler, recheck)
                }
            };
            changed.extend(requeued);
        }
        changed.sort_unstable_by_key(|(job, _)| *job);
        changed
    }

    fn recheck_job(&mut self, straggler: Straggler, recheck: &Recheck) -> Option<ChangedJob> {
        let Straggler { job, key, .. } = straggler;
        let row = self.jobs.get_mut(&job)?;
        let effect = row.effects.iter_mut().find(|effect| effect.begin.key == key)?;
        (effect.state, effect.absent_reads, effect.reads) = (EffectState::Rechecking, 0, 0);
        effect.last_at = recheck.at;
        let (step, destination) = (effect.begin.step, effect.begin.destination.clone());
        let worker = row.record.worker.clone();
        self.change(job, |job| {
            (job.state, job.step, job.attempts, job.verifying) = (JobState::Queued, step, 0, true);
            (job.due_at, job.updated_at, job.finished_at) = (recheck.due_at, recheck.at, None);
            (job.destination, job.order) = (destination, LaneOrder::Fifo);
        });
        Some((job, worker))
    }
}
