//! Retries that count against the budget of a contact.

use rusqlite::{OptionalExtension, params};

use super::apply::Batch;
use crate::op::{Reply, RetryCharge, Settlement};

impl Batch<'_, '_> {
    pub fn settle_within(&mut self, settlement: &Settlement, draw: &RetryCharge) -> rusqlite::Result<Reply> {
        let job: Option<(String, i64)> = self
            .cached(include_str!("sql/job_entity.sql"))?
            .query_row(params![settlement.job.0, settlement.n], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((worker, entity)) = job else { return Ok(Reply::Stale) };
        let spent: u32 = self
            .cached(include_str!("sql/retries_spent.sql"))?
            .query_row(params![worker, entity, settlement.at.0], |row| row.get(0))?;
        if spent >= draw.retries {
            let otherwise = Settlement { next: draw.otherwise.clone(), ..settlement.clone() };
            return Ok(match self.settle(&otherwise)? {
                Reply::Settled => Reply::Exhausted,
                other => other,
            });
        }
        self.cached(include_str!("sql/spend_retry.sql"))?.execute(params![
            worker,
            entity,
            draw.until.0,
            settlement.job.0,
            settlement.n
        ])?;
        self.settle(settlement)
    }
}
