//! Commands of operators: replay, resolve, drop, pauses, revisions, keys.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::params;
use sluice_domain::job::{EffectKey, JobState};
use sluice_domain::ledger_clock::ClockRecord;
use sluice_domain::replay::{Reapply, replayable};
use sluice_domain::time::Time;

use super::batch::{Batch, JobHead};
use super::mac::EffectColumns;
use super::totals::TotalRef;
use crate::op::{
    ChangedJob, DropJobs, KeepClock, MakeDue, NewRevision, Pause, RETENTION, Replay, Resolution, Resolve, Resume,
    Rotate, Rotation,
};

impl Batch<'_, '_> {
    /// With `reapply`, applied effects of its classes are superseded and a job starts at the first step.
    pub(super) fn requeue_jobs(&mut self, replay: &Replay, reapply: &Reapply) -> rusqlite::Result<Vec<ChangedJob>> {
        let mut changed = Vec::new();
        for id in &replay.jobs {
            if self.job_head(*id)?.is_none_or(|head| replayable(head.guard.state).is_err()) {
                continue;
            }
            self.identify_replayed(*id, replay)?;
            let Some(head) = self.job_head(*id)? else { continue };
            let revision = replay.revision.clone().unwrap_or_else(|| head.total.revision.clone());
            let restarts = revision != head.total.revision || !reapply.is_empty();
            let destination = if restarts { Arc::default() } else { head.total.destination.clone() };
            if !reapply.is_empty() {
                self.supersede_effects(*id, reapply, replay.at)?;
            }
            self.note_revival(&head)?;
            self.cached(include_str!("sql/replay_job.sql"))?.execute(params![
                id.0,
                replay.at.0,
                revision.as_ref(),
                destination.as_ref(),
                restarts
            ])?;
            let queued = TotalRef {
                state: JobState::Queued,
                revision: &revision,
                destination: &destination,
                dead_letter_queue: "",
                wait: "",
                ..head.total.as_ref()
            };
            self.move_total(&head, queued);
            changed.push((*id, head.total.worker));
            self.log(replay.at, &replay.actor, "replay", &id.to_string(), &replay.reason)?;
        }
        Ok(changed)
    }

    pub(super) fn make_jobs_due(&mut self, due: &MakeDue) -> rusqlite::Result<Vec<ChangedJob>> {
        let mut changed = Vec::new();
        for job in &due.jobs {
            if let Some(head) = self.job_head(*job)?
                && self.make_waiting_due(&head, due.at)?
            {
                changed.push((*job, head.total.worker));
            }
        }
        Ok(changed)
    }

    /// Makes a job due at once if it waits.
    pub(super) fn make_waiting_due(&self, head: &JobHead, at: Time) -> rusqlite::Result<bool> {
        if head.guard.state != JobState::Waiting {
            return Ok(false);
        }
        self.cached(include_str!("sql/make_job_due.sql"))?.execute(params![head.id.0, at.0])?;
        self.cached(include_str!("sql/make_deferred_due.sql"))?.execute([head.id.0])?;
        Ok(true)
    }

    pub(super) fn resolve_job(&mut self, resolve: &Resolve) -> rusqlite::Result<Vec<ChangedJob>> {
        let Some(head) = self.job_head(resolve.job)?.filter(|head| head.guard.state == JobState::Unknown) else {
            return Ok(vec![]);
        };
        let (job, at) = (resolve.job.0, resolve.at.0);
        let (state, steps, word) = match resolve.resolution {
            Resolution::Happened => ("applied", 1, "happened"),
            Resolution::NotHappened => ("not_applied", 0, "did not happen"),
        };
        let effect = self.unknown_effect(&head)?;
        // A step with items, or one that undoes, has more to do; what is applied is passed over.
        let is_part = |step_id: &str| step_id.ends_with(']') || step_id.contains(".undo");
        let steps = if effect.as_ref().is_some_and(|effect| is_part(&effect.step_id)) { 0 } else { steps };
        let destination = if steps == 0 { head.total.destination.clone() } else { Arc::default() };
        self.cached(include_str!("sql/resolve_job.sql"))?.execute(params![job, steps, at, destination.as_ref()])?;
        if let Some(effect) = effect {
            self.write_effect(&EffectColumns { state: state.to_owned(), last_at: at, ..effect.clone() })?;
            if resolve.resolution == Resolution::NotHappened {
                self.release_caps(EffectKey(effect.key))?;
            }
        }
        let (state, dead_letter_queue) = (JobState::Queued, "");
        let queued = TotalRef { state, destination: &destination, dead_letter_queue, wait: "", ..head.total.as_ref() };
        self.move_total(&head, queued);
        let detail = format!("{word}: {}", resolve.reason);
        self.log(resolve.at, &resolve.actor, "resolve", &resolve.job.to_string(), &detail)?;
        Ok(vec![(resolve.job, head.total.worker)])
    }

    pub(super) fn drop_dead_jobs(&mut self, drop: &DropJobs) -> rusqlite::Result<Vec<ChangedJob>> {
        let mut changed = Vec::new();
        for id in &drop.jobs {
            let droppable = [JobState::Dead, JobState::Unknown];
            let Some(head) = self.job_head(*id)?.filter(|head| droppable.contains(&head.guard.state)) else {
                continue;
            };
            self.note_revival(&head)?;
            self.cached(include_str!("sql/drop_job.sql"))?.execute(params![id.0, drop.at.0])?;
            self.cached(include_str!("sql/release_marks.sql"))?.execute([id.0])?;
            self.move_total(&head, TotalRef { state: JobState::Dropped, ..head.total.as_ref() });
            changed.push((*id, head.total.worker));
            self.log(drop.at, &drop.actor, "drop", &id.to_string(), &drop.reason)?;
        }
        if drop.actor == RETENTION {
            self.count_pruned("dead_letter", changed.len())?;
        }
        Ok(changed)
    }

    pub(super) fn insert_pause(&mut self, pause: &Pause) -> rusqlite::Result<()> {
        let Pause { target, actor, reason, at } = pause;
        self.cached(include_str!("sql/upsert_pause.sql"))?.execute(params![target, at.0, actor, reason])?;
        self.is_change = true;
        self.log(*at, actor, "pause", target, reason)
    }

    pub(super) fn delete_pause(&mut self, resume: &Resume) -> rusqlite::Result<()> {
        self.cached(include_str!("sql/delete_pause.sql"))?.execute([&resume.target])?;
        self.is_change = true;
        self.log(resume.at, &resume.actor, "resume", &resume.target, &resume.reason)
    }

    pub(super) fn insert_revision(&mut self, revision: &NewRevision) -> rusqlite::Result<()> {
        let NewRevision { hash, files, actor, reason, at } = revision;
        let hash = hash.as_ref();
        self.cached(include_str!("sql/insert_revision.sql"))?.execute(params![hash, at.0, actor, files])?;
        let insert = include_str!("sql/insert_configured.sql");
        if self.cached(insert)?.execute(params![hash, at.0, actor, reason])? > 0 {
            self.is_change = true;
            self.log(*at, actor, "configure", hash, reason)?;
        }
        Ok(())
    }

    pub(super) fn write_clock(&mut self, keep: &KeepClock) -> rusqlite::Result<()> {
        let ClockRecord { time, steady, allowance, uncounted, ahead, scheduled, scheduled_at_boot } = keep.record;
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        self.cached(include_str!("sql/keep_clock.sql"))?.execute(params![
            time.0,
            steady.boot.cast_signed(),
            millis(steady.elapsed),
            millis(allowance),
            millis(uncounted),
            millis(ahead),
            scheduled.0,
            scheduled_at_boot.0
        ])?;
        if let Some(confirmed) = &keep.confirmed {
            self.log(confirmed.at, &confirmed.actor, "clock accept", "clock", &confirmed.detail())?;
        }
        Ok(())
    }

    pub(super) fn rotate_keys(&mut self, rotate: &Rotate) -> rusqlite::Result<u64> {
        Ok(match &rotate.rotation {
            Rotation::Root(new) => {
                self.key_store.rotate_root(self.connection, &mut self.key_changes, new)?;
                self.log(rotate.at, &rotate.actor, "rotate", "root key", &new.id())?;
                0
            }
            Rotation::Tenant => {
                let version = self.key_store.rotate_tenant(self.connection, &mut self.key_changes, rotate.at)?;
                self.log(rotate.at, &rotate.actor, "rotate", "tenant key", &format!("version {version}"))?;
                u64::from(version)
            }
            Rotation::Contacts { rows_max } => self.key_store.rewrap(self.connection, &self.key_changes, *rows_max)?,
        })
    }
}
