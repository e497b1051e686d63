//! From the outcome of an attempt to what happens next: one pure function.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::call_budget::BUDGET_EXHAUSTED;
use crate::mutant::Mutant;
use crate::outcome::{EffectClass, Failure, FailureClass, Outcome, Readback};
use crate::random::Random;
use crate::retry::RetryPolicy;
use crate::time::Time;

/// Everything that the decision depends on, beside the outcome itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptContext<'a> {
    /// How the destination treats a repeat.
    pub class: EffectClass,
    /// Whether a blind effect may be sent again when nobody knows.
    pub resend_allowed: bool,
    /// The step's policy.
    pub policy: &'a RetryPolicy,
    /// Attempts so far, this one included, counted over restarts.
    pub attempts: u32,
    /// How long after an unknown outcome the effect may still be applied.
    pub late_window: Duration,
    pub now: Time,
}

impl AttemptContext<'_> {
    /// How long the read-back after this many reads waits at least. The last one that the policy allows comes after the window of a
    /// late call: should the effect be left to an operator then, it cannot be applied beside another one of its identity.
    fn read_delay(&self, reads: u32) -> Duration {
        match reads + 1 >= self.policy.max_attempts {
            true => self.late_window.max(SETTLE_DELAY),
            false => SETTLE_DELAY,
        }
    }
}

/// What happens to the job.
#[derive(Clone, Debug, PartialEq)]
pub enum NextAction {
    /// The effect is applied: on to the next step.
    Advance {
        /// The step's output.
        result: Arc<serde_json::Value>,
    },
    /// There was nothing to do: on to the next step.
    Skip { reason: String },
    /// Tried again later; the attempt counts.
    Retry { due: Time, failure: Failure },
    /// Tried again when the destination wants; the attempt does not count.
    Wait { due: Time, failure: Failure },
    /// The outcome is read back at the destination before anything else is done.
    Verify {
        due: Time,
        /// What made it necessary.
        failure: Failure,
    },
    /// Nobody can tell: a person decides.
    Park { failure: Failure },
    /// Failed for good.
    Die { failure: Failure },
}

/// What a call says about the destination, whatever it means for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationHealth {
    Healthy,
    /// It asks for fewer calls, and for a pause if it says how long.
    Throttled {
        after: Option<Duration>,
    },
    /// It failed in a way that points to overload: fewer calls may be in flight.
    Overloaded,
    /// It failed. Counts for the breaker; as many calls as before may be in flight.
    Failing,
    /// It rejects the credentials: no other job must call it.
    Unauthorized,
    /// The call says nothing about the destination.
    Silent,
}

impl DestinationHealth {
    /// What one call for several jobs says, from what it says for each: where it was right for one, the destination works.
    pub(crate) fn of_call(
        one: Option<DestinationHealth>,
        other: Option<DestinationHealth>,
    ) -> Option<DestinationHealth> {
        let weight = |health: &DestinationHealth| match health {
            DestinationHealth::Silent => (0, Duration::ZERO),
            DestinationHealth::Failing => (1, Duration::ZERO),
            DestinationHealth::Overloaded => (2, Duration::ZERO),
            DestinationHealth::Healthy => (3, Duration::ZERO),
            DestinationHealth::Throttled { after } => (4, after.unwrap_or_default()),
            DestinationHealth::Unauthorized => (5, Duration::ZERO),
        };
        one.into_iter().chain(other).max_by_key(weight)
    }

    /// Time-outs, 429 and 503 are signs of overload. Other server errors and broken connections are not.
    pub(crate) fn of_failure(failure: &Failure) -> DestinationHealth {
        let is_overload = matches!(failure.status, Some(429 | 503)) || is_timeout(failure);
        if is_overload { DestinationHealth::Overloaded } else { DestinationHealth::Failing }
    }
}

/// Failure codes of time-outs: a connector's, and [`crate::run::timed_out`].
const TIMEOUT_CODES: [&str; 2] = ["timeout", "attempt-timeout"];

pub(crate) fn is_timeout(failure: &Failure) -> bool {
    TIMEOUT_CODES.contains(&&*failure.code)
}

/// How long a destination is given to show what it did before it is read back, and between two reads.
pub(crate) const SETTLE_DELAY: Duration = Duration::from_secs(2);

/// How many reads must find nothing before an effect counts as not applied: remote indexes lag.
pub(crate) const ABSENT_READS: u32 = 2;

/// Decides after a call.
pub(crate) fn settle(
    attempted: AttemptContext<'_>,
    outcome: Outcome,
    random: &mut Random,
) -> (NextAction, DestinationHealth) {
    match outcome {
        Outcome::Done { result } => (NextAction::Advance { result: Arc::new(result) }, DestinationHealth::Healthy),
        Outcome::Noop { reason } => (NextAction::Skip { reason }, DestinationHealth::Healthy),
        Outcome::Wait { failure, after } => {
            let after = after.filter(|_| !Mutant::RetryAfterIgnored.is_on());
            let due = attempted.now + after.unwrap_or_default().min(attempted.policy.retry_after_cap);
            (
                NextAction::Wait { due, failure },
                DestinationHealth::Throttled { after: after.map(|after| after.min(attempted.policy.retry_after_cap)) },
            )
        }
        Outcome::Retry { failure, after } => {
            let health = match failure.class {
                FailureClass::Retryable => DestinationHealth::of_failure(&failure),
                _ => DestinationHealth::Healthy,
            };
            (retry_or_die(attempted, failure, after, random), health)
        }
        Outcome::Reject { failure } => {
            let health = match failure.class {
                FailureClass::Auth => DestinationHealth::Unauthorized,
                FailureClass::Mapping | FailureClass::Identity => DestinationHealth::Silent,
                _ => DestinationHealth::Healthy,
            };
            (NextAction::Die { failure }, health)
        }
        Outcome::Unsure { failure } => {
            let health = DestinationHealth::of_failure(&failure);
            (unsure(attempted, failure, random), health)
        }
    }
}

/// Decides when nobody saw how an attempt ended: after a time-out, or after the process died in the middle of it.
pub(crate) fn unsure(attempted: AttemptContext<'_>, failure: Failure, random: &mut Random) -> NextAction {
    if Mutant::TimeoutTreatedAsFailure.is_on() {
        return retry_or_die(attempted, failure, None, random);
    }
    match attempted.class {
        EffectClass::Natural | EffectClass::Keyed | EffectClass::Transactional => {
            retry_or_die(attempted, failure, None, random)
        }
        EffectClass::Verifiable => NextAction::Verify { due: attempted.now + attempted.read_delay(0), failure },
        EffectClass::Blind if attempted.resend_allowed || Mutant::BlindEffectRepeated.is_on() => {
            retry_or_die(attempted, failure, None, random)
        }
        EffectClass::Blind => NextAction::Park { failure: Failure { class: FailureClass::Unknown, ..failure } },
    }
}

/// Whether a read-back says nothing because the budget of the destination had no call left for it. It does not count.
pub(crate) fn is_over_budget(readback: &Readback) -> bool {
    matches!(readback, Readback::Unreadable(failure) if failure.code == BUDGET_EXHAUSTED)
}

/// The read is made when the budget allows it.
fn read_later(attempted: AttemptContext<'_>, failure: Failure) -> (NextAction, DestinationHealth) {
    (NextAction::Verify { due: attempted.now + SETTLE_DELAY, failure }, DestinationHealth::Silent)
}

/// Decides after a read-back. `absent_reads` counts the reads that found nothing, this one included; `reads` all.
pub(crate) fn settle_readback(
    attempted: AttemptContext<'_>,
    readback: Readback,
    absent_reads: u32,
    reads: u32,
    random: &mut Random,
) -> (NextAction, DestinationHealth) {
    match readback {
        Readback::Present(result) => (NextAction::Advance { result: Arc::new(result) }, DestinationHealth::Healthy),
        Readback::Absent if absent_reads < ABSENT_READS && !Mutant::AbsentBelievedAtFirstRead.is_on() => {
            let failure = Failure::new(
                FailureClass::Retryable,
                "not-seen-yet",
                "the destination does not show the effect; it is read once more before it is sent again",
            );
            // Most calls of unknown outcome are found at once. A late one can be there only after its window.
            let due = attempted.now + attempted.late_window.max(SETTLE_DELAY);
            (NextAction::Verify { due, failure }, DestinationHealth::Healthy)
        }
        Readback::Absent => {
            let failure = Failure::new(
                FailureClass::Retryable,
                "verified-absent",
                "the destination does not have the effect; it is sent again",
            );
            (retry_or_die(attempted, failure, Some(Duration::ZERO), random), DestinationHealth::Healthy)
        }
        Readback::Unreadable(failure) if failure.code == BUDGET_EXHAUSTED => read_later(attempted, failure),
        Readback::Unreadable(failure) if Mutant::UnreadableTakenForAbsent.is_on() => {
            (retry_or_die(attempted, failure, None, random), DestinationHealth::Healthy)
        }
        Readback::Unreadable(failure) if reads >= attempted.policy.max_attempts => {
            let health = DestinationHealth::of_failure(&failure);
            (NextAction::Park { failure: Failure { class: FailureClass::Unknown, ..failure } }, health)
        }
        Readback::Unreadable(failure) => {
            let health = DestinationHealth::of_failure(&failure);
            let delay = attempted.policy.delay(reads, None, random).max(attempted.read_delay(reads));
            (NextAction::Verify { due: attempted.now + delay, failure }, health)
        }
    }
}

/// Decides after the record of a confirmed natural effect was read back, because an earlier call of its lane may have been applied
/// late. `result` is what the confirmed call returned; `reads` counts all reads. A record that cannot be read stays as it is.
pub(crate) fn settle_record(
    attempted: AttemptContext<'_>,
    readback: Readback,
    result: Option<Arc<Value>>,
    reads: u32,
    random: &mut Random,
) -> (NextAction, DestinationHealth) {
    match readback {
        Readback::Present(found) => {
            (NextAction::Advance { result: result.unwrap_or_else(|| Arc::new(found)) }, DestinationHealth::Healthy)
        }
        Readback::Absent => {
            let failure = Failure::new(
                FailureClass::Retryable,
                "overwritten",
                "the record differs from the last confirmed write, perhaps by a call that was applied late; it is written again",
            );
            (retry_or_die(attempted, failure, Some(Duration::ZERO), random), DestinationHealth::Healthy)
        }
        Readback::Unreadable(failure) if failure.code == BUDGET_EXHAUSTED => read_later(attempted, failure),
        Readback::Unreadable(failure) if reads >= attempted.policy.max_attempts => {
            (NextAction::Advance { result: result.unwrap_or_default() }, DestinationHealth::of_failure(&failure))
        }
        Readback::Unreadable(failure) => {
            let health = DestinationHealth::of_failure(&failure);
            let due = attempted.now + attempted.policy.delay(reads, None, random).max(SETTLE_DELAY);
            (NextAction::Verify { due, failure }, health)
        }
    }
}

fn retry_or_die(
    attempted: AttemptContext<'_>,
    failure: Failure,
    after: Option<Duration>,
    random: &mut Random,
) -> NextAction {
    let policy = attempted.policy;
    let limit = match failure.class {
        FailureClass::Conflict => policy.max_attempts.min(policy.max_attempts_conflict),
        _ => policy.max_attempts,
    };
    let may_end = !failure.is_of_shared_request() && !Mutant::AttemptsUnbounded.is_on();
    if attempted.attempts >= limit && may_end {
        let message = format!("{} (gave up after {} attempts)", failure.message, attempted.attempts);
        return NextAction::Die { failure: Failure { message, ..failure } };
    }
    let due = attempted.now + policy.delay(attempted.attempts, after, random);
    NextAction::Retry { due, failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attempted(policy: &RetryPolicy, class: EffectClass, attempts: u32) -> AttemptContext<'_> {
        AttemptContext {
            class,
            resend_allowed: false,
            policy,
            attempts,
            late_window: Duration::ZERO,
            now: Time(1_000_000),
        }
    }

    fn failure(class: FailureClass) -> Failure {
        Failure::new(class, "code", "message")
    }

    fn decide(class: EffectClass, attempts: u32, outcome: Outcome) -> (NextAction, DestinationHealth) {
        settle(attempted(&RetryPolicy::standard(), class, attempts), outcome, &mut Random::seeded(1))
    }

    #[test]
    fn an_unknown_outcome_follows_the_class_of_the_effect() {
        let unsure = |class| decide(class, 1, Outcome::Unsure { failure: failure(FailureClass::Retryable) }).0;
        assert!(matches!(unsure(EffectClass::Natural), NextAction::Retry { .. }));
        assert!(matches!(unsure(EffectClass::Keyed), NextAction::Retry { .. }));
        assert!(matches!(unsure(EffectClass::Transactional), NextAction::Retry { .. }));
        assert!(matches!(unsure(EffectClass::Verifiable), NextAction::Verify { .. }));
        let NextAction::Park { failure } = unsure(EffectClass::Blind) else { panic!("a blind effect is parked") };
        assert_eq!(failure.class, FailureClass::Unknown);
    }

    #[test]
    fn waiting_costs_no_attempt_and_a_conflict_ends_early() {
        let wait = Outcome::Wait { failure: failure(FailureClass::Retryable), after: Some(Duration::from_secs(30)) };
        let (next, verdict) = decide(EffectClass::Natural, 99, wait);
        assert_eq!(next, NextAction::Wait { due: Time(1_030_000), failure: failure(FailureClass::Retryable) });
        assert_eq!(verdict, DestinationHealth::Throttled { after: Some(Duration::from_secs(30)) });
        let conflict = |n| {
            decide(EffectClass::Natural, n, Outcome::Retry { failure: failure(FailureClass::Conflict), after: None }).0
        };
        assert!(matches!(conflict(2), NextAction::Retry { .. }));
        assert!(matches!(conflict(3), NextAction::Die { .. }));
    }

    #[test]
    fn job_at_its_last_attempt_survives_the_rejection_of_a_request_that_it_shared() {
        let rejected = Outcome::Reject { failure: failure(FailureClass::Permanent) };
        let shared = rejected.of_whole_batch(2).remove(0);
        let (next, health) = decide(EffectClass::Natural, 99, shared);
        assert!(matches!(next, NextAction::Retry { .. }), "{next:?}");
        assert_eq!(health, DestinationHealth::Healthy);
        assert_eq!(crate::transition::attempts_after(98, &next), 98, "the answer may be about another job");
    }

    #[test]
    fn read_that_the_budget_did_not_allow_neither_parks_the_effect_nor_blames_the_destination() {
        let policy = RetryPolicy { max_attempts: 1, ..RetryPolicy::standard() };
        let attempted = attempted(&policy, EffectClass::Verifiable, 1);
        let unread = || Readback::Unreadable(Failure::new(FailureClass::Retryable, BUDGET_EXHAUSTED, "no calls left"));
        assert!(is_over_budget(&unread()) && !is_over_budget(&Readback::Absent));
        let random = &mut Random::seeded(1);
        for (next, health) in
            [settle_readback(attempted, unread(), 0, 9, random), settle_record(attempted, unread(), None, 9, random)]
        {
            assert!(matches!(next, NextAction::Verify { .. }), "{next:?}");
            assert_eq!(health, DestinationHealth::Silent);
        }
    }

    #[test]
    fn only_signs_of_overload_are_reported_as_overload() {
        let retry = |failure| decide(EffectClass::Natural, 1, Outcome::Retry { failure, after: None }).1;
        let unsure = |failure| decide(EffectClass::Natural, 1, Outcome::Unsure { failure }).1;
        let failed = |code| Failure::new(FailureClass::Retryable, code, "message");
        for failure in [failed("timeout"), failed("attempt-timeout"), failed("x").with_status(503)] {
            assert_eq!(unsure(failure.clone()), DestinationHealth::Overloaded, "{failure:?}");
            assert_eq!(retry(failure), DestinationHealth::Overloaded);
        }
        for failure in [failed("connect"), failed("reset"), failed("x").with_status(500), failed("x").with_status(502)]
        {
            assert_eq!(unsure(failure.clone()), DestinationHealth::Failing, "{failure:?}");
            assert_eq!(retry(failure), DestinationHealth::Failing);
        }
    }

    #[test]
    fn a_rejected_job_dies_and_an_auth_failure_speaks_for_all() {
        let (next, verdict) = decide(EffectClass::Natural, 1, Outcome::Reject { failure: failure(FailureClass::Auth) });
        assert!(matches!(next, NextAction::Die { .. }));
        assert_eq!(verdict, DestinationHealth::Unauthorized);
    }

    #[test]
    fn absence_is_believed_only_the_second_time() {
        let policy = RetryPolicy::standard();
        let read = |readback, absent, reads| {
            settle_readback(
                attempted(&policy, EffectClass::Verifiable, 1),
                readback,
                absent,
                reads,
                &mut Random::seeded(1),
            )
            .0
        };
        assert!(matches!(read(Readback::Absent, 1, 1), NextAction::Verify { .. }));
        assert!(matches!(read(Readback::Absent, 2, 2), NextAction::Retry { .. }));
        assert_eq!(read(Readback::Present(json!(1)), 1, 2), NextAction::Advance { result: json!(1).into() });
        let unreadable = || Readback::Unreadable(failure(FailureClass::Retryable));
        assert!(matches!(read(unreadable(), 0, 1), NextAction::Verify { .. }));
        assert!(matches!(read(unreadable(), 0, 7), NextAction::Park { .. }));
    }

    #[test]
    fn the_last_read_comes_after_the_window_of_a_late_call() {
        let policy = RetryPolicy { max_attempts: 3, ..RetryPolicy::standard() };
        let window = Duration::from_secs(7_200);
        let attempted = AttemptContext { late_window: window, ..attempted(&policy, EffectClass::Verifiable, 1) };
        let read = |reads| {
            let unreadable = Readback::Unreadable(failure(FailureClass::Retryable));
            settle_readback(attempted, unreadable, 0, reads, &mut Random::seeded(1)).0
        };
        assert!(matches!(read(1), NextAction::Verify { due, .. } if due < attempted.now + window));
        assert!(matches!(read(2), NextAction::Verify { due, .. } if due >= attempted.now + window));
        assert!(matches!(read(3), NextAction::Park { .. }));
        let one = RetryPolicy { max_attempts: 1, ..RetryPolicy::standard() };
        let lost = unsure(
            AttemptContext { policy: &one, ..attempted },
            failure(FailureClass::Retryable),
            &mut Random::seeded(1),
        );
        assert!(matches!(lost, NextAction::Verify { due, .. } if due >= attempted.now + window));
    }

    proptest::proptest! {
        #[test]
        fn attempts_are_bounded_whatever_happens(outcomes in proptest::collection::vec(0u8..5, 1..80), seed: u64) {
            let policy = RetryPolicy::standard();
            let mut random = Random::seeded(seed);
            let mut attempts = 0;
            for which in outcomes {
                attempts += 1;
                let outcome = match which {
                    0 => Outcome::Retry { failure: failure(FailureClass::Retryable), after: None },
                    1 => Outcome::Retry { failure: failure(FailureClass::Conflict), after: Some(Duration::from_secs(9)) },
                    2 => Outcome::Unsure { failure: failure(FailureClass::Retryable) },
                    3 => Outcome::Wait { failure: failure(FailureClass::Retryable), after: None },
                    _ => Outcome::Reject { failure: failure(FailureClass::Permanent) },
                };
                match settle(attempted(&policy, EffectClass::Natural, attempts), outcome, &mut random).0 {
                    NextAction::Retry { due, .. } => proptest::prop_assert!(due >= Time(1_000_000)),
                    NextAction::Wait { .. } => attempts -= 1,
                    NextAction::Die { .. } => break,
                    other => return Err(proptest::test_runner::TestCaseError::fail(format!("{other:?}"))),
                }
                proptest::prop_assert!(attempts < policy.max_attempts);
            }
        }
    }
}
