//! Results of internal steps, and marks.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;
use sluice_domain::event::EventId;
use sluice_domain::key::KeyDigest;

use super::batch::{Batch, sealed_json};
use super::key_store::Sealer;
use super::row::place;
use crate::op::{Mark, Marked, StepResult};

impl Batch<'_, '_> {
    pub fn record_step_result(&mut self, result: &StepResult) -> rusqlite::Result<Option<Value>> {
        let Some(sealer) = self.sealer_of_run(result)? else { return Ok(None) };
        let sql = include_str!("sql/insert_step_result.sql");
        if self.write_step_result(sql, result, &result.result, &sealer)? > 0 {
            return Ok(Some(result.result.clone()));
        }
        let first = self
            .cached(include_str!("sql/step_result.sql"))?
            .query_row(params![result.job.0, result.key.0], |row| {
                self.reader().step_result(result.job, result.key, row)
            })?;
        Ok(Some(first))
    }

    pub fn set_mark_of(&mut self, mark: &Mark) -> rusqlite::Result<Option<Marked>> {
        let Some(sealer) = self.sealer_of_run(&mark.result)? else { return Ok(None) };
        let marked = self.claim_mark(mark)?;
        let sql = include_str!("sql/replace_step_result.sql");
        self.write_step_result(sql, &mark.result, &marked.output(), &sealer)?;
        Ok(Some(marked))
    }

    fn claim_mark(&self, mark: &Mark) -> rusqlite::Result<Marked> {
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

    /// The plain digest could be guessed from the content of an event, so it is digested again with a tenant key.
    fn mark_key(&self, key: KeyDigest) -> [u8; 16] {
        self.key_store.digest("mark", &key.0)
    }

    /// Seals the results of the job. `None` if the run is stale.
    fn sealer_of_run(&mut self, result: &StepResult) -> rusqlite::Result<Option<Sealer>> {
        let head = self.job_head(result.job)?.filter(|head| head.guard.is_idle(result.n, result.fence));
        head.map(|head| self.sealer(head.contact)).transpose()
    }

    fn write_step_result(
        &self,
        sql: &str,
        result: &StepResult,
        output: &Value,
        sealer: &Sealer,
    ) -> rusqlite::Result<usize> {
        self.cached(sql)?.execute(params![
            result.job.0,
            result.step,
            result.step_id.as_ref(),
            result.key.0,
            result.action,
            result.n,
            sealed_json(sealer, place::effect_result(result.job.0, &result.key.0), Some(output)),
            result.at.0,
            result.state.as_str(),
            result.fence.owner.0
        ])
    }
}
