//! Effects: read, changed and written with their MAC.

use rusqlite::{OptionalExtension, params};
use sluice_domain::job::{EffectKey, EffectState};

use super::batch::{Batch, JobHead};
use super::mac::EffectColumns;
use super::statements::StatementId;
use crate::op::Begin;

impl EffectColumns {
    pub(super) fn is_absorbing(&self) -> bool {
        EffectState::parse(&self.state).is_some_and(EffectState::is_absorbing)
    }

    pub(super) fn is_final(&self) -> bool {
        EffectState::parse(&self.state).is_some_and(EffectState::is_final)
    }

    /// The effect of an attempt that begins: a new one, or the one of earlier attempts.
    pub(super) fn begun(earlier: Option<EffectColumns>, begin: &Begin) -> EffectColumns {
        let new = EffectColumns {
            job: begin.job.0,
            key: begin.key.0,
            step: begin.step,
            step_id: begin.step_id.to_string(),
            action: begin.action.to_owned(),
            destination: begin.destination.to_string(),
            class: begin.class.as_str().to_owned(),
            state: EffectState::Intent.as_str().to_owned(),
            attempts: 1,
            absent_reads: 0,
            reads: 0,
            n: begin.n,
            result: None,
            first_at: begin.at.0,
            last_at: begin.at.0,
            term: begin.fence.owner.0,
        };
        match earlier {
            None => new,
            Some(EffectColumns { step_id, attempts, result, first_at, state, .. }) => {
                let state =
                    EffectState::parse(&state).map_or(EffectState::Intent, EffectState::begun).as_str().to_owned();
                EffectColumns { step_id, attempts: attempts + 1, result, first_at, state, ..new }
            }
        }
    }
}

impl Batch<'_, '_> {
    /// The effect of a job with this key. A job without effects is not searched.
    pub(super) fn find_effect(&self, head: &JobHead, key: EffectKey) -> rusqlite::Result<Option<EffectColumns>> {
        if head.effect_rows == Some(0) {
            return Ok(None);
        }
        self.cached(include_str!("sql/effect.sql"))?
            .query_row(params![head.id.0, key.0], EffectColumns::read)
            .optional()
    }

    pub(super) fn unknown_effect(&self, head: &JobHead) -> rusqlite::Result<Option<EffectColumns>> {
        self.cached(include_str!("sql/unknown_effect.sql"))?.query_row([head.id.0], EffectColumns::read).optional()
    }

    /// Writes an effect. The caller counts a new one on its job.
    pub(super) fn write_effect(&mut self, effect: &EffectColumns) -> rusqlite::Result<()> {
        let mac = effect.mac(self.key_store);
        self.statements.get(StatementId::WriteEffect)?.execute(params![
            effect.job,
            effect.key,
            effect.step,
            effect.step_id,
            effect.action,
            effect.destination,
            effect.class,
            effect.state,
            effect.attempts,
            effect.absent_reads,
            effect.reads,
            effect.n,
            effect.result,
            effect.first_at,
            effect.last_at,
            effect.term,
            mac
        ])?;
        Ok(())
    }

    /// Writes the first effect with a key, and counts it on its job.
    pub(super) fn insert_effect(&mut self, head: &mut JobHead, effect: &EffectColumns) -> rusqlite::Result<()> {
        self.write_effect(effect)?;
        head.count_effect();
        self.cached(include_str!("sql/count_effects.sql"))?.execute(params![
            head.id.0,
            head.effect_rows,
            head.mac(self.key_store)
        ])?;
        Ok(())
    }
}
