//! Safe mode: other messages, stricter policies or no effects at all for a limited time, set by an operator or by a trigger.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::time::Time;

/// Policy name and failure code of an effect that safe mode holds.
pub const SAFE_MODE_HOLDS: &str = "safe-mode";

/// Behaviour of a worker in safe mode, and the triggers that enter it.
#[derive(Clone, Debug, PartialEq)]
pub struct SafeMode {
    /// Messages to replace, by name.
    pub templates: BTreeMap<String, String>,
    /// Additional policy of every external step.
    pub policy: Option<Arc<str>>,
    /// Defers every external step to the end of safe mode.
    pub hold: bool,
    pub when: Vec<Trigger>,
    /// Duration of safe mode after a trigger, or if the operator gives none.
    pub duration: Duration,
}

impl SafeMode {
    pub const DEFAULT_DURATION: Duration = Duration::from_secs(30 * 60);
}

impl Default for SafeMode {
    fn default() -> SafeMode {
        SafeMode {
            templates: BTreeMap::new(),
            policy: None,
            hold: false,
            when: vec![],
            duration: SafeMode::DEFAULT_DURATION,
        }
    }
}

/// Enters safe mode automatically.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// The breaker of this destination opens.
    Breaker(String),
    /// Too many attempts of the worker fail.
    ErrorRate(RateRule),
}

/// Threshold of an error rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateRule {
    /// Exclusive, in percent.
    pub over_percent: f64,
    /// Interval over which attempts are counted.
    pub window: Duration,
    /// Minimum number of attempts.
    pub calls_min: u32,
}

/// Recent attempts of a worker.
#[derive(Clone, Debug, Default)]
pub struct ErrorRate {
    attempts: VecDeque<(Time, bool)>,
    failed: usize,
}

/// Maximum number of attempts; older ones are dropped.
const ATTEMPTS_MAX: usize = 10_000;

impl ErrorRate {
    /// Counts an attempt; true if the error rate exceeds the rule.
    pub fn count(&mut self, rule: RateRule, now: Time, failed: bool) -> bool {
        self.attempts.push_back((now, failed));
        self.failed += usize::from(failed);
        while let Some((at, was_failed)) = self.attempts.front().copied()
            && (now.since(at) > rule.window || self.attempts.len() > ATTEMPTS_MAX)
        {
            self.attempts.pop_front();
            self.failed -= usize::from(was_failed);
        }
        let all = self.attempts.len();
        all >= rule.calls_min as usize && self.failed as f64 * 100.0 > rule.over_percent * all as f64
    }

    pub fn clear(&mut self) {
        *self = ErrorRate::default();
    }
}

/// End of safe mode, for all workers and per worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    pub all: Option<Time>,
    pub workers: BTreeMap<String, Time>,
}

impl Modes {
    /// End of safe mode for this worker, if it is active.
    pub fn until(&self, worker: &str, now: Time) -> Option<Time> {
        self.all.into_iter().chain(self.workers.get(worker).copied()).filter(|until| *until > now).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RateRule = RateRule { over_percent: 20.0, window: Duration::from_secs(60), calls_min: 10 };

    #[test]
    fn error_rate_triggers_above_the_threshold_and_the_minimum() {
        let mut rate = ErrorRate::default();
        for n in 0..9 {
            assert!(!rate.count(RULE, Time(n), true), "{n}");
        }
        assert!(rate.count(RULE, Time(9), true));
        let mut rate = ErrorRate::default();
        let triggered: Vec<i64> = (0..20).filter(|n| rate.count(RULE, Time(*n), n % 5 == 0)).collect();
        assert_eq!(triggered, [10, 11, 12, 13, 15, 16, 17, 18], "twenty per cent is not over twenty per cent");
    }

    #[test]
    fn attempts_outside_the_window_are_dropped() {
        let mut rate = ErrorRate::default();
        for n in 0..10 {
            rate.count(RULE, Time(n), true);
        }
        assert!(!rate.count(RULE, Time(70_000), true));
        assert_eq!(rate.attempts.len(), 1);
    }

    #[test]
    fn safe_mode_expires() {
        let modes = Modes { all: Some(Time(10)), workers: BTreeMap::from([("w".to_owned(), Time(20))]) };
        assert_eq!((modes.until("w", Time(5)), modes.until("x", Time(5))), (Some(Time(20)), Some(Time(10))));
        assert_eq!((modes.until("w", Time(20)), modes.until("x", Time(10))), (None, None));
    }
}
