//! Attempts: the intent before a call, and the settlement after it.

use rusqlite::{OptionalExtension, params};
use sluice_domain::job::{EffectState, JobState};
use sluice_domain::policy::CapReservation;
use sluice_domain::worker::LaneOrder;

use super::batch::{Batch, JobHead, sealed_failure, sealed_json};
use super::key_store::Sealer;
use super::row::place;
use super::statements::StatementId;
use super::totals::TotalKey;
use crate::op::{
    AttemptSettlement, Begin, BeginResult, CappedBeginResult, ChargeResult, EffectSettlement, RetryCharge, Settle,
    Settlement,
};
use crate::record::AttemptKind;

const GO: CappedBeginResult = CappedBeginResult::Begun(BeginResult::Go);
const ALREADY_APPLIED: CappedBeginResult = CappedBeginResult::Begun(BeginResult::AlreadyApplied);
const STALE: CappedBeginResult = CappedBeginResult::Begun(BeginResult::Stale);

impl Batch<'_, '_> {
    pub fn begin_attempt(&mut self, begin: &Begin, caps: &[CapReservation]) -> rusqlite::Result<CappedBeginResult> {
        let Some(head) = self.job_head(begin.job)?.filter(|head| head.guard.may_begin(begin)) else {
            return Ok(STALE);
        };
        if self.is_effect_final(begin)? {
            // Another revision may have given its step another place.
            self.cached(include_str!("sql/place_effect.sql"))?.execute(params![
                begin.job.0,
                begin.key.0,
                begin.step
            ])?;
            return Ok(ALREADY_APPLIED);
        }
        if let Some(exhausted) = self.exhausted_cap(begin, caps)? {
            return Ok(CappedBeginResult::Refused(exhausted));
        }
        self.use_caps(begin, caps)?;
        self.cached(include_str!("sql/begin_effect.sql"))?.execute(params![
            begin.job.0,
            begin.step,
            begin.step_id.as_ref(),
            begin.key.0,
            begin.action,
            begin.destination.as_ref(),
            begin.class.as_str(),
            begin.at.0,
            begin.n,
            begin.fence.owner.0
        ])?;
        self.cached(include_str!("sql/begin_job.sql"))?.execute(params![
            begin.job.0,
            begin.n,
            begin.at.0,
            begin.fence.owner.0
        ])?;
        let running = TotalKey { state: JobState::Running, ..head.total.clone() };
        self.move_total(head.total, running);
        Ok(GO)
    }

    fn is_effect_final(&self, begin: &Begin) -> rusqlite::Result<bool> {
        let found = self
            .cached(include_str!("sql/is_effect_final.sql"))?
            .query_row(params![begin.job.0, begin.key.0], |row| row.get(0))
            .optional()?;
        Ok(found.unwrap_or(false))
    }

    pub fn settle_run(&mut self, settle: &Settle) -> rusqlite::Result<ChargeResult> {
        let Settle { settlement, charge, begin } = settle;
        let Some(head) = self.job_head(settlement.job)? else { return Ok(ChargeResult::Stale) };
        let current = match begin {
            Some(begin) => head.guard.may_begin(begin) && !self.is_effect_final(begin)?,
            None => head.guard.may_settle(settlement),
        };
        if !current {
            return Ok(ChargeResult::Stale);
        }
        match charge {
            Some(charge) if !self.charge_retry(&head, settlement, charge)? => {
                let otherwise = Settlement { next: charge.otherwise.clone(), ..settlement.clone() };
                self.write_settlement(head, &otherwise, begin.as_ref())?;
                Ok(ChargeResult::Exhausted)
            }
            _ => {
                self.write_settlement(head, settlement, begin.as_ref())?;
                Ok(ChargeResult::Settled)
            }
        }
    }

    /// Counts a retry against the budget of the job's contact. `false` if none is left.
    fn charge_retry(&self, head: &JobHead, settlement: &Settlement, charge: &RetryCharge) -> rusqlite::Result<bool> {
        let worker = head.total.worker.as_ref();
        let spent: u32 = self
            .cached(include_str!("sql/retries_spent.sql"))?
            .query_row(params![worker, head.entity, settlement.at.0], |row| row.get(0))?;
        if spent >= charge.retries {
            return Ok(false);
        }
        self.cached(include_str!("sql/spend_retry.sql"))?.execute(params![
            worker,
            head.entity,
            charge.until.0,
            settlement.job.0,
            settlement.n
        ])?;
        Ok(true)
    }

    fn write_settlement(
        &mut self,
        head: JobHead,
        settlement: &Settlement,
        begin: Option<&Begin>,
    ) -> rusqlite::Result<()> {
        let sealer = self.sealer(head.contact)?;
        match (&settlement.effect, begin) {
            (Some(effect), Some(begin)) => self.begin_and_settle_effect(begin, settlement, effect, &sealer)?,
            (Some(effect), None) => self.settle_effect(settlement, effect, &sealer)?,
            (None, _) => {}
        }
        if let Some(attempt) = &settlement.attempt {
            self.insert_attempt(settlement, attempt, &sealer)?;
        }
        self.settle_job(head, settlement, &sealer)
    }

    fn settle_job(&mut self, head: JobHead, settlement: &Settlement, sealer: &Sealer) -> rusqlite::Result<()> {
        let (next, job) = (&settlement.next, settlement.job.0);
        let finished_at = (!next.state.is_live()).then_some(settlement.at.0);
        let (failure, message) = sealed_failure(sealer, place::job_message(job), next.failure.as_ref());
        self.statements.get(StatementId::SettleJob)?.execute(params![
            job,
            settlement.n,
            next.state.code(),
            next.step,
            next.attempts,
            next.due_at.0,
            next.verifying,
            failure,
            next.dead_letter_queue,
            sealed_json(sealer, place::job_result(job), next.result.as_deref()),
            settlement.at.0,
            finished_at,
            message,
            next.destination.as_ref(),
            lane_order_code(next.order),
            settlement.fence.owner.0
        ])?;
        let settled = TotalKey {
            state: next.state,
            destination: next.destination.clone(),
            dead_letter_queue: self.names.intern(next.dead_letter_queue.as_deref().unwrap_or_default()),
            ..head.total.clone()
        };
        self.move_total(head.total, settled);
        Ok(())
    }

    fn settle_effect(
        &self,
        settlement: &Settlement,
        effect: &EffectSettlement,
        sealer: &Sealer,
    ) -> rusqlite::Result<()> {
        let job = settlement.job.0;
        let result = sealed_json(sealer, place::effect_result(job, &effect.key.0), effect.result.as_deref());
        self.cached(include_str!("sql/settle_effect.sql"))?.execute(params![
            job,
            effect.key.0,
            effect.state.as_str(),
            result,
            effect.absent_reads,
            effect.reads,
            settlement.at.0,
            effect.step,
            settlement.fence.owner.0
        ])?;
        if matches!(effect.state, EffectState::NotApplied | EffectState::Skipped) {
            self.release_caps(effect.key)?;
        }
        Ok(())
    }

    /// The effect of an attempt whose intent was not recorded before.
    fn begin_and_settle_effect(
        &mut self,
        begin: &Begin,
        settlement: &Settlement,
        effect: &EffectSettlement,
        sealer: &Sealer,
    ) -> rusqlite::Result<()> {
        let job = begin.job.0;
        self.statements.get(StatementId::BeginAndSettleEffect)?.execute(params![
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
            sealed_json(sealer, place::effect_result(job, &effect.key.0), effect.result.as_deref()),
            begin.at.0,
            settlement.at.0,
            begin.fence.owner.0
        ])?;
        Ok(())
    }

    fn insert_attempt(
        &mut self,
        settlement: &Settlement,
        attempt: &AttemptSettlement,
        sealer: &Sealer,
    ) -> rusqlite::Result<()> {
        let kind = match attempt.kind {
            AttemptKind::Call => "call",
            AttemptKind::Read => "read",
        };
        let part = place::attempt_part(settlement.n, attempt.started_at.0);
        let context = place::attempt_message(settlement.job.0, &part);
        let (failure, message) = sealed_failure(sealer, context, attempt.failure.as_ref());
        self.statements.get(StatementId::InsertAttempt)?.execute(params![
            settlement.job.0,
            settlement.n,
            attempt.step_id.as_ref(),
            kind,
            attempt.started_at.0,
            settlement.at.0,
            attempt.outcome,
            failure,
            message,
            settlement.fence.owner.0
        ])?;
        Ok(())
    }
}

pub(super) fn lane_order_code(order: LaneOrder) -> i64 {
    match order {
        LaneOrder::Fifo => 0,
        LaneOrder::None => 1,
    }
}

pub(super) fn lane_order_from_code(code: i64) -> LaneOrder {
    if code == 0 { LaneOrder::Fifo } else { LaneOrder::None }
}
