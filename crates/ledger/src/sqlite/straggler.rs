//! Lanes in which a call of unknown outcome may still be applied, and overwrite a newer write.

use rusqlite::{OptionalExtension, params};
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_domain::time::Time;

use super::batch::{Batch, JobHead};
use super::mac::EffectColumns;
use super::totals::TotalRef;
use crate::op::{ChangedJob, EffectSettlement, Recheck};
use crate::straggler::{DueLane, Straggler, StragglerChange};

/// The step of a worker and an entity.
#[derive(Debug)]
struct Lane {
    worker: String,
    entity: i64,
    step_id: String,
}

impl Batch<'_, '_> {
    /// The effect of a job was settled: its call may be applied later, or its write is confirmed.
    pub(super) fn note_straggler(
        &mut self,
        head: &JobHead,
        settled: &EffectSettlement,
        effect: &EffectColumns,
    ) -> rusqlite::Result<()> {
        if !EffectClass::parse(&effect.class).is_some_and(|class| Straggler::concerns(class, settled)) {
            return Ok(());
        }
        let worker = head.total.worker.to_string();
        let lane = Lane { worker, entity: head.entity, step_id: effect.step_id.clone() };
        let known = self
            .cached(include_str!("sql/straggler.sql"))?
            .query_row(params![lane.worker, lane.entity, lane.step_id], |row| {
                Ok(Straggler { job: JobId(row.get(0)?), key: EffectKey(row.get(1)?), due_at: Time(row.get(2)?) })
            })
            .optional()?;
        match Straggler::settled(known, JobId(effect.job), settled) {
            StragglerChange::Keep => Ok(()),
            StragglerChange::Delete => self.delete_straggler(&lane),
            StragglerChange::Write(straggler) => self.write_straggler(&lane, straggler),
            StragglerChange::Supersede { old, new } => {
                self.supersede(old)?;
                self.write_straggler(&lane, new)
            }
        }
    }

    fn write_straggler(&self, lane: &Lane, straggler: Straggler) -> rusqlite::Result<()> {
        let Straggler { job, key, due_at } = straggler;
        let write = include_str!("sql/write_straggler.sql");
        let values = params![lane.worker, lane.entity, lane.step_id, job.0, key.0, due_at.0];
        self.cached(write)?.execute(values).map(drop)
    }

    fn delete_straggler(&self, lane: &Lane) -> rusqlite::Result<()> {
        let delete = include_str!("sql/delete_straggler.sql");
        self.cached(delete)?.execute(params![lane.worker, lane.entity, lane.step_id]).map(drop)
    }

    /// The write of a live job is not compared any more: it is applied, as before.
    fn supersede(&mut self, old: Straggler) -> rusqlite::Result<()> {
        let Some(head) = self.job_head(old.job)?.filter(|head| head.guard.state.is_live()) else { return Ok(()) };
        match self.find_effect(&head, old.key)? {
            Some(effect) if !effect.is_final() => {
                let state = EffectState::Applied.as_str().to_owned();
                self.write_effect(&EffectColumns { state, ..effect })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn recheck_lanes(&mut self, recheck: &Recheck) -> rusqlite::Result<Vec<ChangedJob>> {
        let mut due = Vec::new();
        {
            let mut statement = self.cached(include_str!("sql/due_stragglers.sql"))?;
            let mut rows = statement.query(params![recheck.due_at.0, recheck.jobs_max])?;
            while let Some(row) = rows.next()? {
                let lane = Lane { worker: row.get(0)?, entity: row.get(1)?, step_id: row.get(2)? };
                let (job, key) = (JobId(row.get(3)?), EffectKey(row.get(4)?));
                due.push((lane, Straggler { job, key, due_at: Time::NEVER }));
            }
        }
        let mut changed = Vec::new();
        for (lane, straggler) in due {
            changed.extend(self.recheck_lane(&lane, straggler, recheck)?);
        }
        changed.sort_unstable_by_key(|(job, _)| *job);
        Ok(changed)
    }

    fn recheck_lane(
        &mut self,
        lane: &Lane,
        straggler: Straggler,
        recheck: &Recheck,
    ) -> rusqlite::Result<Option<ChangedJob>> {
        let head = self.job_head(straggler.job)?;
        let effect = match &head {
            Some(head) => self.find_effect(head, straggler.key)?,
            None => None,
        };
        let effect_state = effect.as_ref().and_then(|effect| EffectState::parse(&effect.state));
        let due = DueLane::of(recheck, head.as_ref().map(|head| head.guard.state), effect_state);
        let (DueLane::Compare, Some(head), Some(effect)) = (due, head, effect) else {
            match due {
                DueLane::Later(due_at) => self.write_straggler(lane, Straggler { due_at, ..straggler })?,
                DueLane::Compare | DueLane::Delete => self.delete_straggler(lane)?,
            }
            return Ok(None);
        };
        self.write_straggler(lane, straggler)?;
        let state = EffectState::Rechecking.as_str().to_owned();
        let effect = EffectColumns { state, absent_reads: 0, reads: 0, last_at: recheck.at.0, ..effect };
        self.write_effect(&effect)?;
        self.cached(include_str!("sql/recheck_job.sql"))?.execute(params![
            straggler.job.0,
            effect.step,
            recheck.due_at.0,
            recheck.at.0,
            effect.destination
        ])?;
        let destination = effect.destination.as_str();
        let queued = TotalRef { state: JobState::Queued, destination, dead_letter_queue: "", ..head.total.as_ref() };
        self.move_total(&head, queued);
        Ok(Some((straggler.job, head.total.worker)))
    }
}
