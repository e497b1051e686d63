//! What steps inside have come to: notes, and marks that only one may set.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use serde_json::Value;
use sluice_domain::event::EventId;
use sluice_domain::key::KeyDigest;

use super::apply::{Batch, sealed_json};
use super::key_store::Sealer;
use super::row::place;
use crate::op::{Mark, Marked, Reply, StepResult};

impl Batch<'_, '_> {
    pub fn note(&mut self, note: &StepResult) -> rusqlite::Result<Reply> {
        let Some(sealer) = self.sealer_of_run(note)? else { return Ok(Reply::Stale) };
        let new = self.write_note(include_str!("sql/insert_note.sql"), note, &note.result, &sealer)?;
        if new > 0 {
            return Ok(Reply::Noted(note.result.clone()));
        }
        let kept = self
            .cached(include_str!("sql/note.sql"))?
            .query_row(params![note.job.0, note.key.0], |row| self.reader().note(note.job, note.key, row))?;
        Ok(Reply::Noted(kept))
    }

    pub fn mark(&mut self, mark: &Mark) -> rusqlite::Result<Reply> {
        let Some(sealer) = self.sealer_of_run(&mark.result)? else { return Ok(Reply::Stale) };
        let marked = self.set_mark(mark)?;
        self.write_note(include_str!("sql/replace_note.sql"), &mark.result, &marked.output(), &sealer)?;
        Ok(Reply::Marked(marked))
    }

    fn set_mark(&self, mark: &Mark) -> rusqlite::Result<Marked> {
        for key in std::iter::once(&mark.key).chain(&mark.adjacent) {
            let found: Option<([u8; 16], [u8; 16])> = self
                .cached(include_str!("sql/mark.sql"))?
                .query_row(params![mark.store, self.mark_key(*key), mark.result.at.0], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            match found {
                Some((owner, _)) if owner == mark.result.key.0 => return Ok(Marked { set: true, owner: None }),
                Some((_, event)) => return Ok(Marked { set: false, owner: Some(EventId(event)) }),
                None => {}
            }
        }
        self.cached(include_str!("sql/set_mark.sql"))?.execute(params![
            mark.store,
            self.mark_key(mark.key),
            mark.result.key.0,
            mark.event.0,
            mark.result.job.0,
            mark.expires_at.0,
            mark.result.at.0
        ])?;
        Ok(Marked { set: true, owner: None })
    }

    /// What is marked can be guessed by whoever guesses what the event says, so it is digested once more with a key of
    /// the tenant.
    fn mark_key(&self, key: KeyDigest) -> [u8; 16] {
        self.vault.digest("mark", &key.0)
    }

    /// What seals the results of a job; `None` if it has moved on without this run.
    fn sealer_of_run(&self, note: &StepResult) -> rusqlite::Result<Option<Sealer>> {
        let mut job = self.cached(include_str!("sql/noting_job.sql"))?;
        match job.query_row(params![note.job.0, note.n], |row| row.get::<_, Option<i64>>(0)).optional()? {
            None => Ok(None),
            Some(contact) => self.sealer(contact).map(Some),
        }
    }

    fn write_note(&self, sql: &str, note: &StepResult, result: &Value, sealer: &Sealer) -> rusqlite::Result<usize> {
        let step_id: &Arc<str> = &note.step_id;
        self.cached(sql)?.execute(params![
            note.job.0,
            note.step,
            step_id.as_ref(),
            note.key.0,
            note.action,
            note.n,
            sealed_json(sealer, place::effect_result(note.job.0, &note.key.0), Some(result)),
            note.at.0,
            note.state.as_str()
        ])
    }
}
