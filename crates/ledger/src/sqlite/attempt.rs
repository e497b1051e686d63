//! Attempts: the intent before a call, and the settlement after it.

use rusqlite::params;
use sluice_domain::history::Measure;
use sluice_domain::job::{EffectState, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_domain::policy::CapReservation;
use sluice_domain::wait::WaitReason;
use sluice_domain::worker::LaneOrder;

use super::batch::{Batch, JobHead, sealed_failure, sealed_json};
use super::key_store::Sealer;
use super::mac::{AttemptColumns, EffectColumns};
use super::row::place;
use super::statements::StatementId;
use super::totals::TotalRef;
use crate::op::{
    AttemptSettlement, Begin, BeginResult, CappedBeginResult, ChargeResult, EffectSettlement, RetryCharge, Settle,
    Settlement,
};
use crate::record::AttemptKind;

const GO: CappedBeginResult = CappedBeginResult::Begun(BeginResult::Go);
const ALREADY_APPLIED: CappedBeginResult = CappedBeginResult::Begun(BeginResult::AlreadyApplied);
const IDENTITY_BUSY: CappedBeginResult = CappedBeginResult::Begun(BeginResult::IdentityBusy);
const STALE: CappedBeginResult = CappedBeginResult::Begun(BeginResult::Stale);

/// The settlement of an effect.
struct SealedEffect<'a> {
    settled: &'a EffectSettlement,
    /// Its result, sealed.
    result: Option<Vec<u8>>,
}

impl Batch<'_, '_> {
    pub(super) fn begin_attempt(
        &mut self,
        begin: &Begin,
        caps: &[CapReservation],
    ) -> rusqlite::Result<CappedBeginResult> {
        let Some(mut head) = self.job_head(begin.job)?.filter(|head| head.guard.may_begin(begin)) else {
            return Ok(STALE);
        };
        let earlier = self.find_effect(&head, begin.key)?;
        if let Some(effect) = earlier.as_ref().filter(|effect| effect.is_absorbing()) {
            // Another revision may have given its step another place.
            self.write_effect(&EffectColumns { step: begin.step, ..effect.clone() })?;
            return Ok(ALREADY_APPLIED);
        }
        if let Some(identity) = &begin.identity
            && !self.claim_identity(begin.job, identity)?
        {
            return Ok(IDENTITY_BUSY);
        }
        if let Some(exhausted) = self.exhausted_cap(begin, caps)? {
            return Ok(CappedBeginResult::Refused(exhausted));
        }
        self.use_caps(begin, caps)?;
        if earlier.is_none() {
            head.count_effect();
        }
        self.write_effect(&EffectColumns::begun(earlier, begin))?;
        self.cached(include_str!("sql/begin_job.sql"))?.execute(params![
            begin.job.0,
            begin.n,
            begin.at.0,
            begin.fence.owner.0,
            head.effect_rows,
            head.mac(self.key_store)
        ])?;
        self.update_deferred(&head, None)?;
        self.move_total(&head, TotalRef { state: JobState::Running, wait: "", ..head.total.as_ref() });
        Ok(GO)
    }

    pub(super) fn settle_run(&mut self, settle: &Settle) -> rusqlite::Result<ChargeResult> {
        let Settle { settlement, charge, begin } = settle;
        let Some(head) = self.job_head(settlement.job)? else { return Ok(ChargeResult::Stale) };
        let current = match begin {
            Some(begin) => {
                let earlier = self.find_effect(&head, begin.key)?;
                head.guard.may_begin(begin) && !earlier.is_some_and(|effect| effect.is_absorbing())
            }
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
        mut head: JobHead,
        settlement: &Settlement,
        begin: Option<&Begin>,
    ) -> rusqlite::Result<()> {
        let sealer = self.sealer(head.contact)?;
        if let Some(effect) = &settlement.effect {
            let result = effect.result.as_deref();
            let result = sealed_json(&sealer, place::effect_result(settlement.job.0, &effect.key.0), result);
            self.settle_effect(&mut head, settlement, SealedEffect { settled: effect, result }, begin)?;
        }
        if let Some(attempt) = &settlement.attempt {
            self.insert_attempt(&mut head, settlement, attempt, &sealer)?;
        }
        if let Some(write) = &settlement.write {
            self.record_write(settlement.job, write)?;
        }
        self.settle_job(head, settlement, &sealer)
    }

    fn settle_job(&mut self, mut head: JobHead, settlement: &Settlement, sealer: &Sealer) -> rusqlite::Result<()> {
        let (next, job) = (&settlement.next, settlement.job.0);
        let finished_at = (!next.state.is_live()).then_some(settlement.at.0);
        let message = place::job_message(job, head.identity);
        let (failure, message) = sealed_failure(sealer, message, next.failure.as_ref());
        head.result = sealed_json(sealer, place::job_result(job, head.identity), next.result.as_deref());
        let mac = head.mac(self.key_store);
        let wait = next.wait_reason().map_or("", WaitReason::as_str);
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
            head.result,
            settlement.at.0,
            finished_at,
            message,
            next.destination.as_ref(),
            lane_order_code(next.order),
            settlement.fence.owner.0,
            head.effect_rows,
            head.attempt_rows,
            mac,
            wait
        ])?;
        let deferred = matches!(next.state, JobState::Retrying | JobState::Waiting);
        self.update_deferred(&head, deferred.then_some((&*next.destination, next.due_at)))?;
        let settled = TotalRef {
            state: next.state,
            destination: &next.destination,
            dead_letter_queue: next.dead_letter_queue.as_deref().unwrap_or_default(),
            wait,
            ..head.total.as_ref()
        };
        self.move_total(&head, settled);
        match &next.failure {
            Some(failure) if next.state == JobState::Dead => self.note_death(&head, failure, settlement.at),
            _ => Ok(()),
        }
    }

    /// With `begin`, the effect of an attempt whose intent was not recorded before.
    fn settle_effect(
        &mut self,
        head: &mut JobHead,
        settlement: &Settlement,
        effect: SealedEffect<'_>,
        begin: Option<&Begin>,
    ) -> rusqlite::Result<()> {
        let SealedEffect { settled, result } = effect;
        let earlier = self.find_effect(head, settled.key)?;
        self.count_attempt(settlement, begin, earlier.as_ref());
        let mut effect = match (earlier, begin) {
            (earlier, Some(begin)) => {
                if earlier.is_none() {
                    head.count_effect();
                }
                EffectColumns::begun(earlier, begin)
            }
            (Some(earlier), None) if !earlier.is_final() => earlier,
            (_, None) => return Ok(()),
        };
        if let Some(result) = result {
            effect.result = Some(result);
        }
        effect.state = settled.state.as_str().to_owned();
        (effect.step, effect.absent_reads, effect.reads) = (settled.step, settled.absent_reads, settled.reads);
        (effect.last_at, effect.term) = (settlement.at.0, settlement.fence.owner.0);
        self.write_effect(&effect)?;
        self.note_straggler(head, settled, &effect)?;
        if let Some(result) = settled.result.as_deref() {
            self.refer_to_record(head.id, result)?;
        }
        // An effect whose intent was not recorded before has no caps.
        if begin.is_none() && matches!(settled.state, EffectState::NotApplied | EffectState::Skipped) {
            self.release_caps(settled.key)?;
        }
        Ok(())
    }

    /// Counts a call of the destination that its effect has.
    fn count_attempt(&mut self, settlement: &Settlement, begin: Option<&Begin>, earlier: Option<&EffectColumns>) {
        let call = settlement.attempt.as_ref().filter(|attempt| attempt.kind == AttemptKind::Call);
        let applied = settlement.effect.as_ref().is_some_and(|effect| effect.state == EffectState::Applied);
        let destination = begin.map(|begin| &*begin.destination).or(earlier.map(|effect| &*effect.destination));
        if let (Some(call), Some(destination)) = (call, destination) {
            self.counts.add(Measure::Attempts, destination, call.outcome);
            let stored = earlier.and_then(|effect| EffectClass::parse(&effect.class));
            let class = begin.map(|begin| begin.class).or(stored);
            if let Some(class) = class.filter(|_| applied) {
                self.counts.add(Measure::Effects, destination, class.as_str());
            }
        }
    }

    fn insert_attempt(
        &mut self,
        head: &mut JobHead,
        settlement: &Settlement,
        attempt: &AttemptSettlement,
        sealer: &Sealer,
    ) -> rusqlite::Result<()> {
        let part = place::attempt_part(settlement.n, attempt.started_at.0);
        let context = place::attempt_message(settlement.job.0, head.identity, &part);
        let (failure, message) = sealed_failure(sealer, context, attempt.failure.as_ref());
        let columns = AttemptColumns {
            job: settlement.job.0,
            n: settlement.n,
            seq: self.attempt_seq(head)?,
            step_id: &attempt.step_id,
            kind: match attempt.kind {
                AttemptKind::Call => "call",
                AttemptKind::Read => "read",
            },
            started_at: attempt.started_at.0,
            ended_at: settlement.at.0,
            outcome: attempt.outcome,
            failure: failure.as_deref(),
            message: message.as_deref(),
            term: settlement.fence.owner.0,
        };
        let mac = columns.mac(self.key_store);
        self.statements.get(StatementId::InsertAttempt)?.execute(params![
            columns.job,
            columns.n,
            columns.seq,
            columns.step_id,
            columns.kind,
            columns.started_at,
            columns.ended_at,
            columns.outcome,
            columns.failure,
            columns.message,
            columns.term,
            mac
        ])?;
        head.count_attempt();
        Ok(())
    }

    /// Place of the next attempt among all of the job.
    fn attempt_seq(&self, head: &JobHead) -> rusqlite::Result<i64> {
        match head.attempt_rows {
            Some(rows) => Ok(i64::from(rows)),
            None => self.cached(include_str!("sql/attempt_count.sql"))?.query_row([head.id.0], |row| row.get(0)),
        }
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
