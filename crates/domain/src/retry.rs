//! Retry policy as data, and the function that computes the delay.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::mutant::Mutant;
use crate::outcome::{Failure, FailureClass};
use crate::random::Random;
use crate::unit::{as_text, format_duration};

/// Random part of a delay, so that many jobs do not retry at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Jitter {
    /// Uniform between zero and the whole delay.
    Full,
    /// Uniform between half and the whole delay.
    Equal,
    None,
}

/// Growth of the delay from attempt to attempt.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Delay {
    Immediate,
    Fixed {
        #[serde(serialize_with = "as_text")]
        delay: Duration,
    },
    /// `base × multiplierⁿ`, at most `cap`.
    Exponential {
        #[serde(serialize_with = "as_text")]
        base: Duration,
        multiplier: f64,
        #[serde(serialize_with = "as_text")]
        cap: Duration,
    },
}

/// Consecutive retries that share one kind of delay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetryPhase {
    /// Number of retries in this phase.
    pub retries: u32,
    /// Delay before each of them.
    pub delay: Delay,
}

/// When a failed attempt is retried, and how often.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetryPolicy {
    /// In order; the last phase continues until no attempts are left.
    pub phases: Vec<RetryPhase>,
    pub jitter: Jitter,
    /// Including the first attempt. At least 1.
    pub max_attempts: u32,
    /// For failures of class conflict, after which the job is quarantined.
    pub max_attempts_conflict: u32,
    /// Upper bound for `Retry-After`.
    #[serde(serialize_with = "as_text")]
    pub retry_after_cap: Duration,
    /// Queue of the job once it is a dead letter.
    pub dead_letter_queue: Option<Arc<str>>,
    /// Limits the retries of one contact over all jobs of the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<RetryBudget>,
}

/// Limits the retries of one contact, so that it cannot monopolise a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RetryBudget {
    pub retries: u32,
    #[serde(serialize_with = "as_text")]
    pub window: Duration,
}

impl RetryBudget {
    pub const WINDOW: Duration = Duration::from_secs(3600);

    /// Failure of a job whose contact has no retry left.
    pub(crate) fn used_up(self, worker: &str, last: Option<&Failure>) -> Failure {
        Failure {
            class: last.map_or(FailureClass::Retryable, |failure| failure.class),
            code: "retry-budget".to_owned(),
            message: format!(
                "{} (retry budget exhausted: {} retries in {} for its contact, over all jobs of `{worker}`)",
                last.map_or("", |failure| &failure.message),
                self.retries,
                format_duration(self.window),
            ),
            status: last.and_then(|failure| failure.status),
        }
    }
}

impl RetryPolicy {
    /// Base 2 s, doubled up to 2 min, full jitter, seven attempts.
    pub fn standard() -> RetryPolicy {
        RetryPolicy {
            phases: vec![RetryPhase {
                retries: u32::MAX,
                delay: Delay::Exponential {
                    base: Duration::from_secs(2),
                    multiplier: 2.0,
                    cap: Duration::from_secs(120),
                },
            }],
            jitter: Jitter::Full,
            max_attempts: 7,
            max_attempts_conflict: 3,
            retry_after_cap: Duration::from_secs(3600),
            dead_letter_queue: None,
            budget: None,
        }
    }

    /// Delay after `attempts` failed attempts, without jitter.
    pub fn ceiling(&self, attempts: u32) -> Duration {
        let mut index = attempts.saturating_sub(1);
        let mut phases = self.phases.iter().peekable();
        while let Some(phase) = phases.next() {
            if index < phase.retries || phases.peek().is_none() {
                return match &phase.delay {
                    Delay::Immediate => Duration::ZERO,
                    Delay::Fixed { delay } => *delay,
                    Delay::Exponential { base, multiplier, cap } => {
                        let factor = multiplier.powi(i32::try_from(index).unwrap_or(i32::MAX));
                        let ms = base.as_secs_f64() * 1e3 * factor;
                        if ms.is_finite() && ms < cap.as_secs_f64() * 1e3 {
                            Duration::from_secs_f64(ms / 1e3)
                        } else {
                            *cap
                        }
                    }
                };
            }
            index -= phase.retries;
        }
        Duration::ZERO
    }

    /// Delay after `attempts` failed attempts.
    ///
    /// A `Retry-After` of the destination is a lower bound, up to the cap; up to a tenth is added, so that jobs with the
    /// same `Retry-After` do not retry at the same time.
    pub fn delay(&self, attempts: u32, retry_after: Option<Duration>, random: &mut Random) -> Duration {
        let ceiling = self.ceiling(attempts);
        let own = match self.jitter {
            _ if Mutant::JitterMissing.is_on() => ceiling,
            Jitter::Full => ceiling.mul_f64(random.unit()),
            Jitter::Equal => ceiling.mul_f64(0.5 + random.unit() / 2.0),
            Jitter::None => ceiling,
        };
        match retry_after {
            Some(requested) => own.max(requested.min(self.retry_after_cap).mul_f64(1.0 + random.unit() / 10.0)),
            None => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(policy: &RetryPolicy, attempts: std::ops::RangeInclusive<u32>) -> Vec<u64> {
        attempts.map(|n| policy.ceiling(n).as_secs()).collect()
    }

    #[test]
    fn exponential_delay_doubles_up_to_its_cap() {
        let policy = RetryPolicy::standard();
        assert_eq!(seconds(&policy, 1..=8), [2, 4, 8, 16, 32, 64, 120, 120]);
        assert_eq!(policy.ceiling(u32::MAX), Duration::from_secs(120));
    }

    #[test]
    fn phases_apply_in_order_and_the_last_one_continues() {
        let fixed = |secs| Delay::Fixed { delay: Duration::from_secs(secs) };
        let policy = RetryPolicy {
            phases: vec![
                RetryPhase { retries: 3, delay: Delay::Immediate },
                RetryPhase { retries: 2, delay: fixed(1) },
                RetryPhase {
                    retries: 10,
                    delay: Delay::Exponential {
                        base: Duration::from_secs(2),
                        multiplier: 2.0,
                        cap: Duration::from_secs(60),
                    },
                },
                RetryPhase { retries: 1, delay: fixed(60) },
            ],
            jitter: Jitter::None,
            ..RetryPolicy::standard()
        };
        assert_eq!(seconds(&policy, 1..=12), [0, 0, 0, 1, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(seconds(&policy, 15..=40).into_iter().max(), Some(60));
    }

    proptest::proptest! {
        #[test]
        fn a_delay_stays_within_its_jitter(attempts in 1u32..500, seed: u64, requested in proptest::option::of(0u64..100_000)) {
            let mut random = Random::seeded(seed);
            for jitter in [Jitter::Full, Jitter::Equal, Jitter::None] {
                let policy = RetryPolicy { jitter, ..RetryPolicy::standard() };
                let ceiling = policy.ceiling(attempts);
                let requested = requested.map(Duration::from_secs);
                let delay = policy.delay(attempts, requested, &mut random);
                let floor = match jitter { Jitter::Full => Duration::ZERO, Jitter::Equal => ceiling / 2, Jitter::None => ceiling };
                let capped = requested.unwrap_or_default().min(policy.retry_after_cap);
                proptest::prop_assert!(delay >= floor.max(capped));
                proptest::prop_assert!(delay <= ceiling.max(capped.mul_f64(1.1)) + Duration::from_millis(1));
            }
        }
    }
}
