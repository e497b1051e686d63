//! From what a destination said to what is written down, by the same functions as a node.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sluice_domain::job::{EffectState, JobState};
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome, Readback};
use sluice_domain::outputs::Outputs;
use sluice_domain::retry::Jitter;
use sluice_domain::settle::{AttemptContext, DestinationHealth, NextAction, settle, settle_readback};
use sluice_domain::time::Time;
use sluice_domain::transition::{AttemptEnd, JobPosition, attempts_after, effect_after};
use sluice_ledger::memory::Op;
use sluice_ledger::{AttemptKind, AttemptSettlement, EffectSettlement, RetryCharge, Settlement};

use super::Invariant;
use super::coverage::Fault;
use super::destinations::{Answer, Look};
use super::plan::StepPlan;
use super::run::SimRun;
use super::trace::About;
use super::world::Simulation;

impl Simulation {
    fn attempted<'p>(&'p self, run: &SimRun, step: &StepPlan, attempts: u32) -> AttemptContext<'p> {
        AttemptContext {
            class: step.class,
            resend_allowed: step.repeat_allowed,
            policy: &self.plan.current().workers[run.slot.worker].policy,
            attempts,
            now: self.node.as_ref().map_or(Time(self.now), |node| node.steady(self.now)),
        }
    }

    pub(super) fn settle_call(&mut self, mut run: SimRun, answer: Answer) {
        let step = self.worker_plan(&run).steps[run.job.step as usize].clone();
        let outcome = outcome_of(answer, step.class);
        let seen = if matches!(outcome, Outcome::Unsure { .. }) { AttemptEnd::Unsure } else { AttemptEnd::Answered };
        let attempt = AttemptSettlement {
            step_id: step.labels[run.item].clone(),
            kind: AttemptKind::Call,
            started_at: run.started_at,
            outcome: outcome.as_str(),
            failure: None,
        };
        let mut random = run.random.clone();
        let attempted = self.attempted(&run, &step, run.job.attempts + 1);
        let policy = attempted.policy;
        let (now, cap) = (attempted.now, policy.retry_after_cap);
        let (ceiling, jitter) = (policy.ceiling(run.job.attempts + 1), policy.jitter);
        let (next, verdict) = settle(attempted, outcome, &mut random);
        run.random = random;
        run.unauthorized = answer == Answer::Unauthorized;
        if let Answer::Throttled(Some(seconds)) = answer {
            run.asked_ms = Some(Duration::from_secs(u64::from(seconds)).min(cap).as_millis() as i64);
        }
        if let NextAction::Retry { due, .. } = &next
            && jitter != Jitter::None
            && ceiling > Duration::ZERO
        {
            let about = About::Job(run.job.id);
            self.checker.retry_delay(self.now, about, due.since(now).as_millis(), ceiling.as_millis());
        }
        if let NextAction::Wait { .. } = &next
            && attempts_after(run.job.attempts, &next) != run.job.attempts
        {
            let about = About::Job(run.job.id);
            self.checker.fail(self.now, Invariant::WaitingIsFree, about, || "waiting cost an attempt".into());
        }
        let attempts = attempts_after(run.job.attempts, &next);
        self.end(run, next, Tried { attempt, reads: (0, 0), seen, attempts, verdict });
    }

    pub(super) fn settle_read(&mut self, mut run: SimRun, look: Look) {
        let step = self.worker_plan(&run).steps[run.job.step as usize].clone();
        let before = self.store.effect_states(run.job.id).find(|effect| effect.key == run.key);
        let (absent, reads) = before.map_or((0, 0), |effect| (effect.absent_reads, effect.reads));
        let (readback, outcome) = match look {
            Look::Present => (Readback::Present(Value::Bool(true)), "present"),
            Look::Absent => (Readback::Absent, "absent"),
            Look::Unreadable => (
                Readback::Unreadable(Failure::new(FailureClass::Retryable, "connect", "it cannot be asked")),
                "unreadable",
            ),
        };
        let reads = (absent + u32::from(look == Look::Absent), reads + 1);
        let attempt = AttemptSettlement {
            step_id: step.labels[run.item].clone(),
            kind: AttemptKind::Read,
            started_at: run.started_at,
            outcome,
            failure: None,
        };
        let mut random = run.random.clone();
        let attempted = self.attempted(&run, &step, run.job.attempts);
        let (next, verdict) = settle_readback(attempted, readback, reads.0, reads.1, &mut random);
        run.random = random;
        let attempts = run.job.attempts;
        self.end(run, next, Tried { attempt, reads, seen: AttemptEnd::Answered, attempts, verdict });
    }

    /// What the finished steps of a job left.
    pub(super) fn outputs(&self, run: &SimRun) -> Outputs {
        let applied = self.store.effect_states(run.job.id).filter(|effect| {
            effect.state == EffectState::Applied && self.plan.effect_identity(effect.step_id).is_some()
        });
        let (mut outputs, done) = (Outputs::default(), Arc::new(Value::Bool(true)));
        applied.for_each(|effect| outputs.put(effect.step_id, done.clone()));
        outputs
    }

    /// The same with what the decision adds; nobody asks for it before the last step.
    pub(super) fn outputs_after(&self, run: &SimRun, next: &NextAction) -> Outputs {
        let steps = &self.worker_plan(run).steps;
        let last = steps.last().filter(|step| run.job.step as usize + 1 == steps.len() && !self.has_more(run, step));
        match (last, next) {
            (Some(step), NextAction::Advance { result }) => {
                let mut outputs = self.outputs(run);
                outputs.put(&step.labels[run.item], result.clone());
                outputs
            }
            (Some(_), NextAction::Skip { .. }) => self.outputs(run),
            _ => Outputs::default(),
        }
    }

    pub(super) fn standing<'r>(&self, run: &SimRun, attempts: u32, outputs: &'r Outputs) -> JobPosition<'r> {
        let plan = self.worker_plan(run);
        JobPosition {
            step: run.job.step,
            steps: plan.steps.len() as u32,
            more_items: plan.steps.get(run.job.step as usize).is_some_and(|step| self.has_more(run, step)),
            attempts,
            dead_letter_queue: Some(plan.dead_letter_queue),
            outputs,
            at: self.wall(),
        }
    }

    /// The end of a run as an operation: within the budget of its contact, if it takes a retry of it.
    pub(super) fn settle_op(&self, settlement: Box<Settlement>) -> Op {
        let worker = self.store.job(settlement.job).map(|job| self.plan.worker(&job.worker));
        let Some(worker) = worker.map(|worker| &self.plan.current().workers[worker]) else {
            return Op::Settle(settlement);
        };
        let (Some(budget), JobState::Retrying) = (worker.policy.budget, settlement.next.state) else {
            return Op::Settle(settlement);
        };
        let (next, outputs) = (&settlement.next, Outputs::default());
        let standing = JobPosition {
            step: next.step,
            steps: u32::MAX,
            more_items: false,
            attempts: next.attempts,
            dead_letter_queue: Some(worker.dead_letter_queue),
            outputs: &outputs,
            at: settlement.at,
        };
        let failure = budget.used_up(&worker.name, next.failure.as_ref());
        let draw = RetryCharge {
            retries: budget.retries,
            until: settlement.at + budget.window,
            otherwise: standing.after(NextAction::Die { failure }),
        };
        Op::SettleWithBudget(Box::new((*settlement, draw)))
    }

    fn end(&mut self, mut run: SimRun, next: NextAction, tried: Tried) {
        if self.worker_plan(&run).steps[run.job.step as usize].foreach.is_some()
            && matches!(next, NextAction::Advance { .. })
        {
            self.coverage.fault(Fault::ItemFollows);
        }
        let (state, result) = effect_after(&next, tried.seen);
        let (absent_reads, reads) = tried.reads;
        let effect = EffectSettlement { key: run.key, step: run.job.step, state, result, absent_reads, reads };
        let outputs = self.outputs_after(&run, &next);
        let next = self.standing(&run, tried.attempts, &outputs).after(next);
        run.verdict = Some(tried.verdict);
        self.write(run, next, Some(effect), Some(tried.attempt));
    }
}

/// What was tried in a run.
#[derive(Debug)]
struct Tried {
    attempt: AttemptSettlement,
    reads: (u32, u32),
    seen: AttemptEnd,
    attempts: u32,
    verdict: DestinationHealth,
}

fn outcome_of(answer: Answer, class: EffectClass) -> Outcome {
    let failure = |class, code| Failure::new(class, code, "simulated");
    let retry = |code| Outcome::Retry { failure: failure(FailureClass::Retryable, code), after: None };
    let unsure = |code| Outcome::Unsure { failure: failure(FailureClass::Retryable, code) };
    match answer {
        Answer::Done => Outcome::Done { result: Value::Bool(true) },
        Answer::Noop => Outcome::Noop { reason: "nothing to do".into() },
        Answer::Refused => retry("connect"),
        Answer::Away => retry("503"),
        Answer::Throttled(seconds) => Outcome::Wait {
            failure: failure(FailureClass::Retryable, "429"),
            after: seconds.map(|seconds| Duration::from_secs(u64::from(seconds))),
        },
        Answer::ServerError if class == EffectClass::Natural => retry("500"),
        Answer::ServerError => unsure("500"),
        Answer::Cut => unsure("cut"),
        Answer::TimedOut | Answer::Panicked => unsure("timeout"),
        Answer::Conflict => Outcome::Retry { failure: failure(FailureClass::Conflict, "409"), after: None },
        Answer::Rejected => Outcome::Reject { failure: failure(FailureClass::Permanent, "422") },
        Answer::Unauthorized => Outcome::Reject { failure: failure(FailureClass::Auth, "401") },
    }
}
