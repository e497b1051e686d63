//! Retry policy as data, and the one function that turns it into a delay.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::mutant::Mutant;
use crate::outcome::{Failure, FailureClass};
use crate::random::Random;
use crate::unit::{as_text, format_duration};

/// How much of a delay is left to chance, so that many jobs do not come back at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Jitter {
    /// Anywhere between nothing and the whole delay.
    Full,
    /// Half the delay, and up to as much again.
    Equal,
    /// Exactly the delay.
    None,
}

/// How the delay grows from one attempt to the next.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Delay {
    /// At once.
    Immediate,
    /// Always the same.
    Fixed {
        /// The delay.
        #[serde(serialize_with = "as_text")]
        delay: Duration,
    },
    /// `base × multiplierⁿ`, at most `cap`.
    Exponential {
        /// The first delay.
        #[serde(serialize_with = "as_text")]
        base: Duration,
        /// What each following one is multiplied by.
        multiplier: f64,
        /// No delay is longer.
        #[serde(serialize_with = "as_text")]
        cap: Duration,
    },
}

/// A stretch of attempts that share one kind of delay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetryPhase {
    /// How many retries this phase covers.
    pub retries: u32,
    /// The delay before each of them.
    pub delay: Delay,
}

/// When a failed attempt is tried again, and when no more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetryPolicy {
    /// One phase after the other; the last one goes on for as long as attempts are left.
    pub phases: Vec<RetryPhase>,
    /// How delays are spread.
    pub jitter: Jitter,
    /// Attempts in all, the first one included. At least 1.
    pub max_attempts: u32,
    /// Attempts for failures that may pass (a conflict, a lock), before the job is quarantined.
    pub max_attempts_conflict: u32,
    /// A longer `Retry-After` than this is not believed.
    #[serde(serialize_with = "as_text")]
    pub retry_after_cap: Duration,
    /// The queue that holds the job once it is dead.
    pub dead_letter_queue: Option<Arc<str>>,
    /// Retries that one contact may take up, over all jobs of the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<RetryBudget>,
}

/// Retries that one contact may take up, so that nobody monopolises a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RetryBudget {
    /// So many.
    pub retries: u32,
    /// In so long.
    #[serde(serialize_with = "as_text")]
    pub window: Duration,
}

impl RetryBudget {
    /// How long a retry counts, unless the policy says otherwise.
    pub const WINDOW: Duration = Duration::from_secs(3600);

    /// Why a job dies that would have been tried again, had its contact a retry left.
    pub fn used_up(self, worker: &str, last: Option<&Failure>) -> Failure {
        Failure {
            class: last.map_or(FailureClass::Retryable, |failure| failure.class),
            code: "retry-budget".to_owned(),
            message: format!(
                "{} (its contact has used up {} retries in {}, over all jobs of `{worker}`)",
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

    /// The delay before the attempt that follows `attempts` failed ones, without jitter.
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

    /// The delay before the attempt that follows `attempts` failed ones.
    ///
    /// A `Retry-After` from the destination is a floor, up to the cap; up to a tenth is added so
    /// that all who were told the same moment do not come back in it.
    pub fn delay(&self, attempts: u32, retry_after: Option<Duration>, random: &mut Random) -> Duration {
        let ceiling = self.ceiling(attempts);
        let own = match self.jitter {
            _ if Mutant::JitterMissing.is_on() => ceiling,
            Jitter::Full => ceiling.mul_f64(random.unit()),
            Jitter::Equal => ceiling.mul_f64(0.5 + random.unit() / 2.0),
            Jitter::None => ceiling,
        };
        match retry_after {
            Some(asked) => own.max(asked.min(self.retry_after_cap).mul_f64(1.0 + random.unit() / 10.0)),
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
    fn exponential_doubles_up_to_its_cap() {
        let policy = RetryPolicy::standard();
        assert_eq!(seconds(&policy, 1..=8), [2, 4, 8, 16, 32, 64, 120, 120]);
        assert_eq!(policy.ceiling(u32::MAX), Duration::from_secs(120));
    }

    #[test]
    fn phases_follow_each_other_and_the_last_one_stays() {
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
        fn a_delay_stays_within_its_jitter(attempts in 1u32..500, seed: u64, asked in proptest::option::of(0u64..100_000)) {
            let mut random = Random::seeded(seed);
            for jitter in [Jitter::Full, Jitter::Equal, Jitter::None] {
                let policy = RetryPolicy { jitter, ..RetryPolicy::standard() };
                let ceiling = policy.ceiling(attempts);
                let asked = asked.map(Duration::from_secs);
                let delay = policy.delay(attempts, asked, &mut random);
                let floor = match jitter { Jitter::Full => Duration::ZERO, Jitter::Equal => ceiling / 2, Jitter::None => ceiling };
                let believed = asked.unwrap_or_default().min(policy.retry_after_cap);
                proptest::prop_assert!(delay >= floor.max(believed));
                proptest::prop_assert!(delay <= ceiling.max(believed.mul_f64(1.1)) + Duration::from_millis(1));
            }
        }
    }
}
