//! Results of internal steps, and marks.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;
use sluice_domain::event::EventId;
use sluice_domain::job::EffectKey;
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::EffectClass;

use super::batch::{Batch, JobHead, sealed_json};
use super::mac::EffectColumns;
use super::row::place;
use crate::op::{Mark, Marked, StepResult, StepWarning};

impl Batch<'_, '_> {
    pub(super) fn record_step_result(&mut self, result: &StepResult) -> rusqlite::Result<Option<Value>> {
        let contact = self.job_head(result.job)?.and_then(|head| head.contact);
        self.record_output(result, contact)
    }

    /// Records the result of an internal step, sealed with the key of a person.
    pub(super) fn record_output(
        &mut self,
        result: &StepResult,
        contact_key: Option<i64>,
    ) -> rusqlite::Result<Option<Value>> {
        let Some(mut head) = self.head_of_run(result)? else { return Ok(None) };
        if let Some(first) = self.find_effect(&head, result.key)? {
            return self.reader().step_output(&first).map(Some);
        }
        let effect = self.step_effect(contact_key, result, &result.result)?;
        self.insert_effect(&mut head, &effect)?;
        if let Some(StepWarning { source, warning }) = result.warning.as_deref() {
            *self.mapping_warnings.entry((source.clone(), warning.clone())).or_default() += 1;
        }
        Ok(Some(result.result.clone()))
    }

    pub(super) fn set_mark_of(&mut self, mark: &Mark) -> rusqlite::Result<Option<Marked>> {
        let Some(mut head) = self.head_of_run(&mark.result)? else { return Ok(None) };
        let marked = self.claim_mark(mark)?;
        let effect = self.step_effect(head.contact, &mark.result, &marked.output())?;
        match self.find_effect(&head, mark.result.key)? {
            None => self.insert_effect(&mut head, &effect)?,
            Some(first) => {
                let EffectColumns { step, n, result, last_at, term, .. } = effect;
                self.write_effect(&EffectColumns { step, n, result, last_at, term, ..first })?;
            }
        }
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
            if let Some(owned) = found.and_then(|(owner, event)| mark.owned_by(EffectKey(owner), EventId(event))) {
                return Ok(owned);
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
        Ok(Marked::SET)
    }

    /// The plain digest could be guessed from the content of an event, so it is digested again with a tenant key.
    fn mark_key(&self, key: KeyDigest) -> [u8; 16] {
        self.key_store.digest("mark", &key.0)
    }

    /// `None` if the run is stale.
    fn head_of_run(&mut self, result: &StepResult) -> rusqlite::Result<Option<JobHead>> {
        Ok(self.job_head(result.job)?.filter(|head| head.guard.is_idle(result.n, result.fence)))
    }

    /// The result of an internal step as an effect.
    fn step_effect(
        &self,
        contact_key: Option<i64>,
        result: &StepResult,
        output: &Value,
    ) -> rusqlite::Result<EffectColumns> {
        let sealer = self.sealer(contact_key)?;
        Ok(EffectColumns {
            job: result.job.0,
            key: result.key.0,
            step: result.step,
            step_id: result.step_id.to_string(),
            action: result.action.to_owned(),
            destination: String::new(),
            class: EffectClass::Transactional.as_str().to_owned(),
            state: result.state.as_str().to_owned(),
            attempts: 1,
            absent_reads: 0,
            reads: 0,
            n: result.n,
            result: sealed_json(&sealer, place::effect_result(result.job.0, &result.key.0), Some(output)),
            first_at: result.at.0,
            last_at: result.at.0,
            term: result.fence.owner.0,
        })
    }
}
