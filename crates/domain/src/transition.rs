//! From a decision to where the job and its effect stand next. Pure, so that a node and a simulation write the same.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::job::{EffectState, JobId, JobState};
use crate::mutant::Mutant;
use crate::outcome::{EffectClass, Failure, FailureClass};
use crate::outputs::Outputs;
use crate::random::Random;
use crate::retry::RetryPolicy;
use crate::settle::{AttemptContext, NextAction, unsure};
use crate::time::Time;
use crate::worker::LaneOrder;

/// Where a job stands after a run.
#[derive(Clone, Debug)]
pub struct JobUpdate {
    pub state: JobState,
    /// The next step.
    pub step: u32,
    /// Attempts at that step so far.
    pub attempts: u32,
    pub due_at: Time,
    /// Whether an outcome has to be read back first.
    pub verifying: bool,
    /// What went wrong last.
    pub failure: Option<Failure>,
    /// Where it lies if it is dead.
    pub dead_letter_queue: Option<String>,
    /// What came of it, if it is finished.
    pub result: Option<Arc<Value>>,
    /// Destination that the job calls next; empty if internal steps come first, or none is left.
    pub destination: Arc<str>,
    /// Whether jobs of one entity keep their order there.
    pub order: LaneOrder,
}

/// Where a run has brought a job, before the decision is applied to it.
#[derive(Clone, Copy, Debug)]
pub struct JobPosition<'a> {
    /// The step that the decision is about.
    pub step: u32,
    /// How many steps the worker has.
    pub steps: u32,
    /// Whether the step has more items than the one that the decision is about.
    pub more_items: bool,
    /// Attempts at the step, the one that was just made included if it counts.
    pub attempts: u32,
    /// Where the job lies should it die.
    pub dead_letter_queue: Option<&'a str>,
    /// What the finished steps left, by their names.
    pub outputs: &'a Outputs,
    /// The wall clock's time.
    pub at: Time,
}

impl JobPosition<'_> {
    /// Applies a decision.
    pub fn after(self, next: NextAction) -> JobUpdate {
        match next {
            NextAction::Advance { .. } | NextAction::Skip { .. } if self.more_items => {
                self.live(JobState::Queued, self.at, 0)
            }
            NextAction::Advance { .. } | NextAction::Skip { .. } => {
                let moved = JobPosition { step: self.step + 1, ..self };
                if moved.step < self.steps { moved.live(JobState::Queued, self.at, 0) } else { moved.complete() }
            }
            NextAction::Retry { due, failure } => self.failed(JobState::Retrying, due, failure),
            NextAction::Wait { due, failure } => self.failed(JobState::Waiting, due, failure),
            NextAction::Verify { due, failure } => {
                JobUpdate { verifying: true, ..self.failed(JobState::Waiting, due, failure) }
            }
            NextAction::Park { failure } => self.parked(JobState::Unknown, failure),
            NextAction::Die { failure } => self.parked(JobState::Dead, failure),
        }
    }

    /// Every step is done or was passed over.
    pub fn complete(self) -> JobUpdate {
        let state = if self.outputs.is_empty() { JobState::Noop } else { JobState::Succeeded };
        JobUpdate { result: self.outputs.result(), ..self.live(state, self.at, 0) }
    }

    /// Nothing failed, and it is not time yet.
    pub fn wait(self, due: Time, failure: Option<Failure>) -> JobUpdate {
        JobUpdate { failure, ..self.live(JobState::Waiting, due, self.attempts) }
    }

    /// Goes on in another place, as if nothing had been tried there.
    pub(crate) fn move_to(self, step: u32) -> JobUpdate {
        JobPosition { step, ..self }.live(JobState::Queued, self.at, 0)
    }

    /// Ends here without having done anything, and this is why.
    pub(crate) fn end_noop(self, reason: Value) -> JobUpdate {
        JobUpdate { result: Some(Arc::new(reason)), ..self.live(JobState::Noop, self.at, 0) }
    }

    fn live(self, state: JobState, due_at: Time, attempts: u32) -> JobUpdate {
        JobUpdate {
            state,
            step: self.step,
            attempts,
            due_at,
            verifying: false,
            failure: None,
            dead_letter_queue: None,
            result: None,
            destination: Arc::default(),
            order: LaneOrder::Fifo,
        }
    }

    fn failed(self, state: JobState, due_at: Time, failure: Failure) -> JobUpdate {
        JobUpdate { failure: Some(failure), ..self.live(state, due_at, self.attempts) }
    }

    fn parked(self, state: JobState, failure: Failure) -> JobUpdate {
        let dead_letter_queue = self.dead_letter_queue.map(str::to_owned);
        let failure = Some(failure).filter(|_| !Mutant::DeadLetterWithoutReason.is_on());
        JobUpdate { dead_letter_queue, failure, ..self.live(state, self.at, self.attempts) }
    }
}

/// Attempts at a step after a call that was decided upon like this. Waiting because the destination asked for it costs none, and
/// neither does a request that was rejected for all its jobs.
pub(crate) fn attempts_after(attempts: u32, next: &NextAction) -> u32 {
    match next {
        NextAction::Retry { failure, .. } if failure.is_of_shared_request() => attempts,
        NextAction::Wait { .. } if !Mutant::WaitingCountsAsAttempt.is_on() => attempts,
        _ => attempts + 1,
    }
}

/// Whether the effect of a step has to be read back before it is sent, by where the ledger says that it stands.
///
/// A job's own mark is enough until somebody replays it: then it may stand at another step than the one that nobody knows
/// the outcome of.
pub(crate) fn must_verify(class: EffectClass, effect: Option<EffectState>) -> bool {
    class == EffectClass::Verifiable && effect == Some(EffectState::Unknown)
}

/// Whether somebody saw how an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The destination answered.
    Answered,
    /// Nobody knows whether the effect was applied.
    Unsure,
}

/// Where the effect stands after a decision, and what it left.
pub(crate) fn effect_after(next: &NextAction, seen: AttemptEnd) -> (EffectState, Option<Arc<Value>>) {
    match next {
        NextAction::Advance { result } => (EffectState::Applied, Some(result.clone())),
        NextAction::Skip { .. } if Mutant::NoopRecordedAsApplied.is_on() => (EffectState::Applied, None),
        NextAction::Skip { reason } => (EffectState::Skipped, Some(Arc::new(serde_json::json!({ "noop": reason })))),
        NextAction::Verify { .. } | NextAction::Park { .. } => (EffectState::Unknown, None),
        NextAction::Retry { .. } | NextAction::Wait { .. } | NextAction::Die { .. } => match seen {
            AttemptEnd::Unsure => (EffectState::Unknown, None),
            AttemptEnd::Answered => (EffectState::NotApplied, None),
        },
    }
}

/// An attempt that was under way when the process ended.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted<'a> {
    /// The class of the effect that was begun; `None` if none was, or if it is finished already.
    pub effect: Option<EffectClass>,
    /// Whether a blind effect may be sent again when nobody knows.
    pub resend_allowed: bool,
    /// The step's policy.
    pub policy: &'a RetryPolicy,
    /// Attempts before the one that was interrupted.
    pub attempts: u32,
    /// How long the effect may still be applied.
    pub late_window: Duration,
    /// The steady clock's time: schedules are kept by it.
    pub now: Time,
}

/// Decides about an attempt that nobody saw the end of, by the same rules as after a time-out. The attempt counts, so that a
/// job that kills the process every time ends as a dead letter. Answers with the attempts, this one included.
pub(crate) fn interrupted_next(interrupted: Interrupted<'_>, random: &mut Random) -> (NextAction, u32) {
    let failure = Failure::new(
        FailureClass::Poison,
        "interrupted",
        "the process ended while this attempt was under way; nobody saw its outcome",
    );
    let attempts = if Mutant::AttemptsResetByRestart.is_on() { 0 } else { interrupted.attempts + 1 };
    let retry = |failure| NextAction::Retry { due: interrupted.now, failure };
    let next = match interrupted.effect {
        Some(_) if Mutant::RecoveryRetriesIntentsWithoutVerifying.is_on() => retry(failure),
        Some(class) => {
            let Interrupted { resend_allowed: repeat_allowed, policy, late_window, now, .. } = interrupted;
            let context = AttemptContext { class, resend_allowed: repeat_allowed, policy, attempts, late_window, now };
            unsure(context, failure, random)
        }
        None => retry(failure),
    };
    (next, attempts)
}

/// What a run of a job draws its chances from: another stream for each try.
pub(crate) fn run_seed(job: JobId, tries: u32, received_at: Time) -> u64 {
    (job.0 as u64) ^ (u64::from(tries) << 40) ^ (received_at.0 as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn position(outputs: &Outputs) -> JobPosition<'_> {
        JobPosition {
            step: 1,
            steps: 3,
            more_items: false,
            attempts: 2,
            dead_letter_queue: Some("dlq"),
            outputs,
            at: Time(50),
        }
    }

    fn failure() -> Failure {
        Failure::new(FailureClass::Permanent, "code", "message")
    }

    #[test]
    fn a_job_goes_on_with_the_next_step_and_ends_behind_the_last() {
        let mut outputs = Outputs::default();
        outputs.put(&"a".into(), json!(7).into());
        let advance = || NextAction::Advance { result: json!(7).into() };
        let next = position(&outputs).after(advance());
        assert_eq!((next.state, next.step, next.attempts, next.due_at), (JobState::Queued, 2, 0, Time(50)));
        let last = JobPosition { step: 2, ..position(&outputs) }.after(advance());
        assert_eq!((last.state, last.step, last.result), (JobState::Succeeded, 3, Some(json!(7).into())));
        let nothing = Outputs::default();
        let skip = NextAction::Skip { reason: "no change".into() };
        let noop = JobPosition { step: 2, ..position(&nothing) }.after(skip);
        assert_eq!((noop.state, noop.result), (JobState::Noop, None));
    }

    #[test]
    fn what_failed_keeps_its_step_and_its_reason() {
        let outputs = Outputs::default();
        let after = |next| position(&outputs).after(next);
        let retry = after(NextAction::Retry { due: Time(99), failure: failure() });
        assert_eq!((retry.state, retry.step, retry.attempts, retry.due_at), (JobState::Retrying, 1, 2, Time(99)));
        let verify = after(NextAction::Verify { due: Time(99), failure: failure() });
        assert!(verify.verifying && verify.state == JobState::Waiting);
        for (next, state) in [
            (NextAction::Park { failure: failure() }, JobState::Unknown),
            (NextAction::Die { failure: failure() }, JobState::Dead),
        ] {
            let parked = after(next);
            assert_eq!((parked.state, parked.due_at, parked.failure), (state, Time(50), Some(failure())));
            assert_eq!(parked.dead_letter_queue.as_deref(), Some("dlq"));
        }
    }

    #[test]
    fn only_waiting_is_free_and_only_an_answer_is_believed() {
        let wait = NextAction::Wait { due: Time(0), failure: failure() };
        let retry = NextAction::Retry { due: Time(0), failure: failure() };
        assert_eq!((attempts_after(3, &wait), attempts_after(3, &retry)), (3, 4));
        assert_eq!(effect_after(&retry, AttemptEnd::Unsure).0, EffectState::Unknown);
        assert_eq!(effect_after(&retry, AttemptEnd::Answered).0, EffectState::NotApplied);
    }

    #[test]
    fn an_interrupted_attempt_follows_its_class_and_counts() {
        let policy = RetryPolicy::standard();
        let after = |effect, attempts| {
            let case = Interrupted {
                effect,
                resend_allowed: false,
                policy: &policy,
                attempts,
                late_window: Duration::ZERO,
                now: Time(10),
            };
            let (next, attempts) = interrupted_next(case, &mut Random::seeded(1));
            let outputs = Outputs::default();
            let next = JobPosition { attempts, ..position(&outputs) }.after(next);
            (next.state, next.verifying, next.attempts)
        };
        assert_eq!(after(Some(EffectClass::Natural), 0), (JobState::Retrying, false, 1));
        assert_eq!(after(Some(EffectClass::Verifiable), 0), (JobState::Waiting, true, 1));
        assert_eq!(after(Some(EffectClass::Blind), 0), (JobState::Unknown, false, 1));
        assert_eq!(after(Some(EffectClass::Natural), 6), (JobState::Dead, false, 7));
        assert_eq!(after(None, 0), (JobState::Retrying, false, 1));
    }
}
