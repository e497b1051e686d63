//! An attempt that was over before anybody wrote down that it was begun: half the writes.

use rusqlite::params;

use super::apply::{Batch, sealed_json};
use super::row::place;
use super::statements::StatementId;
use crate::op::{Begin, Op, Reply, Settlement};

impl Batch<'_, '_> {
    /// The same as a begin and the settlement of its attempt.
    pub fn settle_at_once(&mut self, begin: &Begin, settlement: &Settlement) -> rusqlite::Result<Reply> {
        let Some(effect) = &settlement.effect else {
            return match self.apply(&Op::Begin(begin.clone()))? {
                Reply::Stale => Ok(Reply::Stale),
                _ => self.apply(&Op::Settle(Box::new(settlement.clone()))),
            };
        };
        let Some(sealer) = self.sealer_of_job(settlement)? else { return Ok(Reply::Stale) };
        let Some(before) = begin.n.checked_sub(1) else { return Ok(Reply::Stale) };
        if !self.settle_job(settlement, before, &sealer)? {
            return Ok(Reply::Stale);
        }
        let job = begin.job.0;
        let written = self.often.get(StatementId::EffectAtOnce)?.execute(params![
            job,
            effect.step,
            begin.step_id.as_ref(),
            effect.key.0,
            begin.action,
            begin.destination.as_ref(),
            begin.class.as_str(),
            effect.state.as_str(),
            effect.absent_reads,
            effect.reads,
            begin.n,
            sealed_json(&sealer, place::effect_result(job, &effect.key.0), effect.result.as_deref()),
            begin.at.0,
            settlement.at.0
        ])?;
        if written == 0 {
            // It was applied before; only its place may be another.
            self.cached(include_str!("sql/place_effect.sql"))?.execute(params![
                job,
                effect.key.0,
                effect.step,
                begin.n
            ])?;
        }
        if let Some(attempt) = &settlement.attempt {
            self.insert_attempt(settlement, attempt, &sealer)?;
        }
        Ok(Reply::Settled)
    }
}
