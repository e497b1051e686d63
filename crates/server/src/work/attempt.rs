//! One attempt at one step: the intent, the call, the settlement.

use std::time::Duration;

use serde_json::Value;
use sluice_connectors::Call;
use sluice_domain::job::{EffectKey, EffectState, JobId};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::settle::{AttemptContext, NextAction, settle, settle_readback};
use sluice_domain::time::Time;
use sluice_domain::transition::{AttemptEnd, attempts_after, must_verify};
use sluice_domain::unit::format_duration;
use sluice_domain::worker::{Queue, Step, Worker};
use sluice_ledger::{AttemptKind, AttemptSettlement, Begin, BeginResult, CappedBeginResult};

use super::guard::Guarded;
use super::job_effects::{EffectEntry, JobEffects};
use super::next_item::StepItem;
use super::run::{AttemptResult, JobRun};
use super::{LoadedRevision, RunResult};

/// A call that may be repeated without harm is written down together with its outcome, if that comes this soon. A slower one
/// is written down meanwhile, so that it counts should the process end.
const AT_ONCE: Duration = Duration::from_millis(20);

impl JobRun<'_> {
    /// Tries the step, or reads back how the last try ended.
    pub async fn attempt(
        mut self: Box<Self>,
        live: &LoadedRevision,
        worker: &Worker,
        step: &Step,
        turn: StepItem,
        with: &Value,
        guarded: Guarded,
    ) -> Result<Option<RunResult>, sluice_ledger::Error> {
        let key = turn.key;
        let (effect_key, traceparent) = (key.to_string(), self.traceparent());
        let connectors = self.context.revisions.connectors(live, &step.destination);
        let timeout =
            live.config.queues.get(&worker.queue).map_or(Queue::VISIBILITY_TIMEOUT, |queue| queue.visibility_timeout);
        let now = self.context.clock.wall();
        let event = self.event.clone();
        let call = Call {
            action: step.action,
            destination: &step.destination,
            with,
            effect_key: &effect_key,
            // An item of a list, or what is done again after an undo, has no key but its own.
            message_key: (*turn.label == *step.id).then_some(event.key_text.as_str()),
            attempt: self.job.attempts + 1,
            traceparent: Some(&traceparent),
            timeout,
            now,
        };
        if self.must_verify(step, key).await? {
            let readback = tokio::time::timeout(timeout, connectors.read_back(call)).await;
            let readback = readback.unwrap_or_else(|_| Readback::Unreadable(gave_up(timeout)));
            return self.settle_readback(worker, step, turn, readback, now).await;
        }
        let caps = match guarded {
            Guarded::Go(caps) => caps,
            Guarded::Refused(refusal) => return Box::pin(self.refuse(step, &turn, refusal)).await,
            Guarded::Later(until, refusal) => return Box::pin(self.put_off(until, &refusal)).await,
            Guarded::Broken(failure) => return self.end_untried(NextAction::Die { failure }).await,
        };
        let begin = Begin {
            job: self.job.id,
            n: self.job.attempts_total + 1,
            step: self.job.step,
            step_id: turn.label.clone(),
            key,
            class: step.class,
            action: step.action.name(),
            destination: step.destination.clone(),
            at: now,
        };
        self.job.attempts_total += 1;
        let waits = step.class.waits_for_intent(self.job.replays) || !caps.is_empty();
        if waits {
            match self.context.ledger.begin_under_caps(begin.clone(), caps.clone()).await? {
                CappedBeginResult::Begun(BeginResult::Go) => {}
                CappedBeginResult::Begun(BeginResult::AlreadyApplied) => {
                    return self.pass_over_applied(worker, step, turn).await;
                }
                CappedBeginResult::Begun(BeginResult::Stale) => return Ok(None),
                CappedBeginResult::Refused(cap) => {
                    self.job.attempts_total -= 1;
                    return Box::pin(self.refuse(step, &turn, caps[cap].refusal())).await;
                }
            }
        }
        let started = self.context.clock.now();
        let mut calling = std::pin::pin!(tokio::time::timeout(timeout, connectors.call(call)));
        let outcome = if waits {
            calling.await
        } else if started < self.context.careful_until {
            self.context.ledger.begin_without_waiting(begin).await?;
            calling.await
        } else {
            match tokio::time::timeout(AT_ONCE, calling.as_mut()).await {
                Ok(outcome) => {
                    self.begun = Some(begin);
                    outcome
                }
                Err(_) => {
                    self.context.ledger.begin_without_waiting(begin).await?;
                    calling.await
                }
            }
        };
        let outcome = outcome.unwrap_or_else(|_| Outcome::Unsure { failure: gave_up(timeout) });
        self.context.metrics.attempt(&step.destination, outcome.as_str(), self.context.clock.now().since(started));
        let failed = outcome.failure().is_some() && !matches!(outcome, Outcome::Wait { .. });
        if !worker.safe_mode.when.is_empty() {
            Box::pin(self.context.safe_modes.attempted(worker, failed, now)).await;
        }
        self.settle_call(worker, step, turn, outcome, now).await
    }

    /// Whether the outcome of an earlier try has to be read back before anything else.
    async fn must_verify(&self, step: &Step, key: EffectKey) -> Result<bool, sluice_ledger::Error> {
        if self.job.replays == 0 {
            return Ok(self.job.verifying);
        }
        let effects = self.context.ledger.effects(self.job.id).await?;
        Ok(must_verify(step.class, effects.iter().find(|effect| effect.key == key).map(|effect| effect.state)))
    }

    async fn settle_call(
        mut self: Box<Self>,
        worker: &Worker,
        step: &Step,
        turn: StepItem,
        outcome: Outcome,
        started_at: Time,
    ) -> Result<Option<RunResult>, sluice_ledger::Error> {
        let attempt = AttemptSettlement {
            step_id: turn.label.clone(),
            kind: AttemptKind::Call,
            started_at,
            outcome: outcome.as_str(),
            failure: outcome.failure().cloned(),
        };
        let seen = if matches!(outcome, Outcome::Unsure { .. }) { AttemptEnd::Unsure } else { AttemptEnd::Answered };
        let attempted = self.attempted(worker, step, self.job.attempts + 1);
        let (next, verdict) = settle(attempted, outcome, &mut self.random);
        let attempts = attempts_after(self.job.attempts, &next);
        let tried = AttemptResult { turn, attempt, reads: (0, 0), seen, attempts, verdict };
        self.end(next, tried).await
    }

    async fn settle_readback(
        mut self: Box<Self>,
        worker: &Worker,
        step: &Step,
        turn: StepItem,
        readback: Readback,
        started_at: Time,
    ) -> Result<Option<RunResult>, sluice_ledger::Error> {
        let effects = self.context.ledger.effects(self.job.id).await?;
        // By its key: another revision may have given its step another place.
        let before = effects.iter().find(|effect| effect.key == turn.key);
        let (absent, reads) = before.map_or((0, 0), |effect| (effect.absent_reads, effect.reads));
        let reads = (if readback == Readback::Absent { absent + 1 } else { absent }, reads + 1);
        let (outcome, failure) = match &readback {
            Readback::Present(_) => ("present", None),
            Readback::Absent => ("absent", None),
            Readback::Unreadable(failure) => ("unreadable", Some(failure.clone())),
        };
        let step_id = turn.label.clone();
        let attempt = AttemptSettlement { step_id, kind: AttemptKind::Read, started_at, outcome, failure };
        let attempts = self.job.attempts;
        let attempted = self.attempted(worker, step, attempts);
        let (next, verdict) = settle_readback(attempted, readback, reads.0, reads.1, &mut self.random);
        self.end(next, AttemptResult { turn, attempt, reads, seen: AttemptEnd::Answered, attempts, verdict }).await
    }

    /// The ledger knows better than memory: this was done before.
    async fn pass_over_applied(
        mut self: Box<Self>,
        worker: &Worker,
        step: &Step,
        turn: StepItem,
    ) -> Result<Option<RunResult>, sluice_ledger::Error> {
        let effects = self.context.ledger.effects(self.job.id).await?;
        self.books = JobEffects::new(self.event.id, &self.job.worker, effects);
        let result = self.books.left(step, turn.key).unwrap_or_default();
        self.remember(worker, step, &turn);
        self.more_items = self.has_more(step, &turn);
        match self.books.entry(turn.key) {
            Some(EffectEntry { state: EffectState::Skipped, result: Some(why), .. }) => {
                let (why, at) = (why.clone(), self.context.clock.wall());
                let next = self.decided(NextAction::Skip { reason: String::new() }, self.job.attempts, at);
                self.write_noop(next, why, at).await
            }
            _ => self.end_untried(NextAction::Advance { result }).await,
        }
    }

    fn attempted<'p>(&self, worker: &'p Worker, step: &Step, attempts: u32) -> AttemptContext<'p> {
        AttemptContext {
            class: step.class,
            resend_allowed: step.resend_allowed,
            policy: worker.retry_for(self.job.step),
            attempts,
            // The scheduler keeps due times by the steady clock.
            now: self.context.clock.now(),
        }
    }

    /// The trace of the event goes on; each try is a span of its own.
    fn traceparent(&self) -> String {
        format!("00-{}-{:016x}-01", self.event.trace, span(self.job.id, self.job.attempts_total + 1))
    }
}

/// The span that the n-th try of a job is known by at its destination.
pub fn span(job: JobId, n: u32) -> u64 {
    ((job.0 as u64).rotate_left(20) ^ u64::from(n)).max(1)
}

fn gave_up(timeout: Duration) -> Failure {
    Failure::new(
        FailureClass::Retryable,
        "attempt-timeout",
        format!("the attempt was given up after {}, the queue's visibility timeout", format_duration(timeout)),
    )
}
