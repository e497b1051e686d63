//! One attempt at an external step: the intent, the call, the settlement.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::group::Offer;
use super::guard::Guarded;
use super::item::StepItem;
use super::settle::AttemptResult;
use super::{CallBatch, Command, DenialKind, JobRun, Recording, RunContext, StepCall, Waiting};
use crate::job::{EffectState, Term};
use crate::mutant::Mutant;
use crate::ops::{AttemptSettlement, Begin, BeginResult, CappedBeginResult, Skip};
use crate::outcome::{EffectClass, Failure, FailureClass, Outcome, Readback};
use crate::policy::{CapReservation, PolicyDenial};
use crate::record::AttemptKind;
use crate::settle::{AttemptContext, NextAction, is_over_budget, settle, settle_readback, settle_record};
use crate::time::Time;
use crate::transition::{AttemptEnd, attempts_after, must_verify};
use crate::unit::format_duration;
use crate::upsert::{BUSY_DELAY, IDENTITY_BUSY, RecordIdentity};
use crate::worker::{Queue, Step, Worker};

/// An attempt under way.
#[derive(Debug)]
pub(super) struct Attempt {
    item: StepItem,
    caps: Vec<CapReservation>,
    begin: Option<Begin>,
    started_at: Time,
    /// Term that the job carried before the attempt.
    job_term: Term,
}

/// An attempt whose call is made once its intent is durable.
#[derive(Debug)]
pub(super) struct PreparedCall {
    attempt: Attempt,
    call: StepCall,
}

impl JobRun {
    /// Attempts the step, or reads back how the last attempt ended.
    pub(super) fn attempt(&mut self, item: StepItem, with: Value, context: RunContext) -> Command {
        if self.effects.get(item.key).is_some_and(|entry| entry.state.is_absorbing()) {
            return self.pass_over_finished(&item, context);
        }
        match self.must_verify(&item) {
            true => self.offer(Offer::ReadBack(item, with), context),
            false => self.guard(item, with, context),
        }
    }

    pub(super) fn read_back(&mut self, item: StepItem, with: Value, context: RunContext) -> Command {
        if let Some(later) = self.too_early_to_read(&item, context) {
            return self.end_without_attempt(later, context);
        }
        let call = self.call(&item, with, context);
        let attempt = Attempt { item, caps: vec![], begin: None, started_at: context.at, job_term: self.job.term };
        self.waiting = Waiting::ReadBack(Box::new(attempt));
        Command::ReadBack(Box::new(call))
    }

    /// Whether the outcome of an earlier attempt has to be read back before anything else.
    fn must_verify(&self, item: &StepItem) -> bool {
        let state = self.effects.get(item.key).map(|entry| entry.state);
        match self.job.replays {
            _ if self.compared == Some(item.key) => self.job.verifying,
            // The mark is of the step at which the job was read. Should another process have settled that step since, there is
            // nothing to read back of the next one.
            0 => self.job.verifying && state.is_some_and(EffectState::is_open),
            _ => must_verify(item.step().class, state),
        }
    }

    fn call(&self, item: &StepItem, with: Value, context: RunContext) -> StepCall {
        let step = item.step();
        let queue = self.config.pinned.as_ref().and_then(|pinned| pinned.config.queues.get(&item.worker.queue));
        StepCall {
            job: self.job.id,
            action: step.action,
            destination: step.destination.clone(),
            with,
            effect_key: item.key,
            label: item.label.clone(),
            message_key: (*item.label == *step.id).then(|| self.event.key_text.clone()),
            attempt: self.job.attempts + 1,
            traceparent: self.traceparent(),
            record: None,
            timeout: queue.map_or(Queue::VISIBILITY_TIMEOUT, |queue| queue.visibility_timeout),
            at: context.wall,
        }
    }

    /// The policies have decided.
    pub(super) fn guarded(&mut self, item: StepItem, with: Value, guarded: Guarded, context: RunContext) -> Command {
        match guarded {
            Guarded::Go(caps) => self.offer(Offer::Call(item, with, caps), context),
            Guarded::Refused(denial) => self.refuse(item, &denial, context),
            Guarded::Later(until, denial) => self.put_off(until, &denial, context),
            Guarded::Broken(failure) if self.compared.is_some() => self.end_comparison(failure.message, context),
            Guarded::Broken(failure) => self.end_without_attempt(NextAction::Die { failure }, context),
        }
    }

    pub(super) fn begin(
        &mut self,
        item: StepItem,
        with: Value,
        caps: Vec<CapReservation>,
        context: RunContext,
    ) -> Command {
        let step = item.step();
        let begin = Begin {
            job: self.job.id,
            n: self.job.attempts_total + 1,
            fence: self.fence(context),
            step: item.place,
            step_id: item.label.clone(),
            key: item.key,
            class: step.class,
            action: step.action.name(),
            destination: step.destination.clone(),
            identity: record_identity(step, &with),
            at: context.at,
        };
        let waits = step.class.waits_for_intent(self.job.replays) && !Mutant::EffectMarkedAfterInsteadOfBefore.is_on();
        let waits = waits || !caps.is_empty() || self.looks_for_late_calls(step);
        let call = self.call(&item, with, context);
        self.job.attempts_total += 1;
        let job_term = std::mem::replace(&mut self.job.term, context.term);
        let attempt =
            Attempt { item, caps: caps.clone(), begin: Some(begin.clone()), started_at: context.at, job_term };
        if waits {
            self.waiting = Waiting::Begun(Box::new(PreparedCall { attempt, call }));
            return Command::Begin { begin: Box::new(begin), caps };
        }
        // A merged write is compared with the last confirmed one: a call whose run is lost must not go unnoticed.
        let recording = match context.record_first || attempt.item.step().merged.is_some() {
            true => Recording::Before(Box::new(begin)),
            false => Recording::IfSlow(Box::new(begin)),
        };
        self.make_call(PreparedCall { attempt, call }, recording, context)
    }

    fn make_call(&mut self, prepared: PreparedCall, recording: Recording, context: RunContext) -> Command {
        let PreparedCall { attempt, call } = prepared;
        self.call_started = Some(context.now);
        let batch = CallBatch { calls: vec![call], recording: vec![recording] };
        self.waiting = Waiting::Called(Box::new(attempt));
        Command::Call(batch)
    }

    /// The intent is durable, or was refused.
    pub(super) fn begun(&mut self, prepared: PreparedCall, begun: CappedBeginResult, context: RunContext) -> Command {
        match begun {
            CappedBeginResult::Begun(BeginResult::Go) => self.recall(prepared, context),
            // The effects were loaded before this one was finished.
            CappedBeginResult::Begun(BeginResult::AlreadyApplied | BeginResult::Stale) => self.reload(),
            CappedBeginResult::Begun(BeginResult::IdentityBusy) => {
                self.forget_begin(&prepared.attempt);
                let failure = Failure::new(
                    FailureClass::Retryable,
                    IDENTITY_BUSY,
                    "the outcome of another effect for the same record is open; this one waits for it",
                );
                self.wait_until(context.at + BUSY_DELAY, Some(failure), context)
            }
            CappedBeginResult::Refused(cap) => {
                let attempt = prepared.attempt;
                self.forget_begin(&attempt);
                match attempt.caps.get(cap) {
                    Some(cap) => self.refuse(attempt.item, &cap.refusal(), context),
                    None => self.reload(),
                }
            }
        }
    }

    /// The intent was not written.
    fn forget_begin(&mut self, attempt: &Attempt) {
        self.job.attempts_total -= 1;
        self.job.term = attempt.job_term;
    }

    /// Asks for the record that an effect of the same identity wrote before, then calls.
    fn recall(&mut self, prepared: PreparedCall, context: RunContext) -> Command {
        let identity = prepared.attempt.begin.as_ref().and_then(|begin| begin.identity.clone());
        let Some(identity) = identity else { return self.make_call(prepared, Recording::Done, context) };
        self.waiting = Waiting::Record(Box::new(prepared));
        Command::ReadRecord { job: self.job.id, identity }
    }

    pub(super) fn recalled(
        &mut self,
        mut prepared: PreparedCall,
        record: Option<Value>,
        context: RunContext,
    ) -> Command {
        prepared.call.record = record;
        self.make_call(prepared, Recording::Done, context)
    }

    /// The effect does not happen. That is recorded with the reason, and the job goes on behind it.
    fn refuse(&mut self, item: StepItem, denial: &PolicyDenial, context: RunContext) -> Command {
        self.notice_denial(denial, DenialKind::Refused);
        if self.compared.is_some() {
            return self.end_comparison(format!("{}, {}: {}", denial.policy, denial.rule, denial.detail), context);
        }
        let reason = format!("{}: {}", denial.policy, denial.rule);
        self.skip(item, denial.to_value(), reason, context)
    }

    /// Records that the effect does not happen, and why.
    pub(super) fn skip(&mut self, item: StepItem, result: Value, reason: String, context: RunContext) -> Command {
        let step = item.step();
        let result = Arc::new(result);
        let skip = Skip {
            job: self.job.id,
            n: self.job.attempts_total,
            fence: self.fence(context),
            step: item.place,
            step_id: item.label.clone(),
            key: item.key,
            class: step.class,
            action: step.action.name(),
            destination: step.destination.clone(),
            result: Value::clone(&result),
            at: context.at,
        };
        self.waiting = Waiting::Skipped(item, result, reason);
        Command::Skip(Box::new(skip))
    }

    /// The destination has answered, or did not in time.
    pub(super) fn called(
        &mut self,
        attempt: Attempt,
        outcome: Outcome,
        recorded: bool,
        context: RunContext,
    ) -> Command {
        let Attempt { item, begin, started_at, .. } = attempt;
        self.call_took = self.call_started.map(|started| context.now.since(started));
        let settlement = AttemptSettlement {
            step_id: item.label.clone(),
            kind: AttemptKind::Call,
            started_at,
            outcome: outcome.as_str(),
            failure: outcome.failure().cloned(),
        };
        let end = if matches!(outcome, Outcome::Unsure { .. }) { AttemptEnd::Unsure } else { AttemptEnd::Answered };
        let worker = item.worker.clone();
        let attempted = self.attempt_context(&item, &worker, self.job.attempts + 1, context);
        let (next, health) = settle(attempted, outcome, &mut self.random);
        let attempts = attempts_after(self.job.attempts, &next);
        let begin = begin.filter(|_| !recorded);
        let result = AttemptResult { item, attempt: settlement, reads: (0, 0), end, attempts, health, begin };
        self.end_attempt(next, result, context)
    }

    /// The destination was asked how an earlier attempt ended.
    pub(super) fn was_read_back(&mut self, attempt: Attempt, readback: Readback, context: RunContext) -> Command {
        let Attempt { item, started_at, .. } = attempt;
        let entry = self.effects.get(item.key);
        let (absent, reads) = entry.map_or((0, 0), |entry| entry.reads);
        let earlier = entry.and_then(|entry| entry.result.clone());
        let reads = (
            if readback == Readback::Absent { absent + 1 } else { absent },
            if is_over_budget(&readback) { reads } else { reads + 1 },
        );
        let (outcome, failure) = match &readback {
            Readback::Present(_) => ("present", None),
            Readback::Absent => ("absent", None),
            Readback::Unreadable(failure) => ("unreadable", Some(failure.clone())),
        };
        let step_id = item.label.clone();
        let settlement = AttemptSettlement { step_id, kind: AttemptKind::Read, started_at, outcome, failure };
        let (attempts, worker) = (self.job.attempts, item.worker.clone());
        let attempted = self.attempt_context(&item, &worker, attempts, context);
        let (next, health) = match item.step().class {
            EffectClass::Natural => settle_record(attempted, readback, earlier, reads.1, &mut self.random),
            _ => settle_readback(attempted, readback, reads.0, reads.1, &mut self.random),
        };
        let end = AttemptEnd::Answered;
        let result = AttemptResult { item, attempt: settlement, reads, end, attempts, health, begin: None };
        self.end_attempt(next, result, context)
    }

    /// The effect is finished already, as after a replay: the job goes on behind it.
    fn pass_over_finished(&mut self, item: &StepItem, context: RunContext) -> Command {
        self.keep_attempt_output(item);
        self.more_items = self.has_more(item);
        let entry = self.effects.get(item.key).map(|entry| (entry.state, entry.result.clone()));
        match entry {
            Some((EffectState::Skipped, Some(result))) => self.settle_skip(result, String::new(), context),
            _ => {
                let result = self.effects.output_of(item.step(), item.key).unwrap_or_default();
                self.end_without_attempt(NextAction::Advance { result }, context)
            }
        }
    }

    fn attempt_context<'p>(
        &self,
        item: &StepItem,
        worker: &'p Worker,
        attempts: u32,
        context: RunContext,
    ) -> AttemptContext<'p> {
        let step = item.step();
        AttemptContext {
            class: step.class,
            resend_allowed: step.resend_allowed,
            policy: worker.retry_for(item.place),
            attempts,
            late_window: self.late_window(step),
            now: context.now,
        }
    }

    /// Each attempt is a span of its own.
    pub(super) fn traceparent(&self) -> String {
        self.trace.call(self.job.id, self.job.attempts_total + 1).to_string()
    }
}

/// The record that the step writes, if no other effect may write it at the same time.
fn record_identity(step: &Step, with: &Value) -> Option<RecordIdentity> {
    let identity = step.action.record_identity(with)?;
    Some(RecordIdentity { destination: step.destination.clone(), identity: identity.into() })
}

/// The failure of an attempt that was given up after its time-out.
pub fn timed_out(timeout: Duration) -> Failure {
    Failure::new(
        FailureClass::Retryable,
        "attempt-timeout",
        format!("no answer within {}, the queue's visibility timeout", format_duration(timeout)),
    )
}
