//! Safe mode: other messages, tighter policies or no effects at all for a while, by hand or by rule.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::time::Time;

/// Policy name and failure code of an effect that safe mode holds.
pub const SAFE_MODE_HOLDS: &str = "safe-mode";

/// What a worker does otherwise in safe mode, and when it goes there by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct SafeMode {
    /// Messages that are sent instead of others.
    pub templates: BTreeMap<String, String>,
    /// A policy that every outward step is asked for, beside its own.
    pub policy: Option<Arc<str>>,
    /// Whether every outward step waits for the end of safe mode.
    pub hold: bool,
    /// What turns it on.
    pub when: Vec<Trigger>,
    /// For how long a trigger, or a person who does not say, turns it on.
    pub duration: Duration,
}

impl SafeMode {
    /// For how long, unless the worker says otherwise.
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

/// What turns safe mode on by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// The breaker of this destination opens.
    Breaker(String),
    /// Too many of the worker's attempts fail.
    ErrorRate(RateRule),
}

/// How many are too many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateRule {
    /// More than this share, of a hundred.
    pub over_percent: f64,
    /// Over this span.
    pub window: Duration,
    /// No verdict from fewer attempts than this.
    pub calls_min: u32,
}

/// Attempts of a worker within a span, and how many of them failed.
#[derive(Clone, Debug, Default)]
pub struct ErrorRate {
    attempts: VecDeque<(Time, bool)>,
    failed: usize,
}

/// Attempts that are remembered at the most: older ones count no more.
const REMEMBERED_MAX: usize = 10_000;

impl ErrorRate {
    /// Counts an attempt. Answers whether there are too many failures now.
    pub fn count(&mut self, rule: RateRule, now: Time, failed: bool) -> bool {
        self.attempts.push_back((now, failed));
        self.failed += usize::from(failed);
        while let Some((at, was_failed)) = self.attempts.front().copied()
            && (now.since(at) > rule.window || self.attempts.len() > REMEMBERED_MAX)
        {
            self.attempts.pop_front();
            self.failed -= usize::from(was_failed);
        }
        let all = self.attempts.len();
        all >= rule.calls_min as usize && self.failed as f64 * 100.0 > rule.over_percent * all as f64
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        *self = ErrorRate::default();
    }
}

/// Until when safe mode is on: for all workers, and for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// For all of them.
    pub all: Option<Time>,
    /// By worker.
    pub workers: BTreeMap<String, Time>,
}

impl Modes {
    /// Until when this worker is in safe mode, if it is.
    pub fn until(&self, worker: &str, now: Time) -> Option<Time> {
        self.all.into_iter().chain(self.workers.get(worker).copied()).filter(|until| *until > now).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RateRule = RateRule { over_percent: 20.0, window: Duration::from_secs(60), calls_min: 10 };

    #[test]
    fn too_many_failures_are_noticed_and_few_attempts_say_nothing() {
        let mut rate = ErrorRate::default();
        for n in 0..9 {
            assert!(!rate.count(RULE, Time(n), true), "{n}");
        }
        assert!(rate.count(RULE, Time(9), true));
        let mut rate = ErrorRate::default();
        let noticed: Vec<i64> = (0..20).filter(|n| rate.count(RULE, Time(*n), n % 5 == 0)).collect();
        assert_eq!(noticed, [10, 11, 12, 13, 15, 16, 17, 18], "twenty per cent is not over twenty per cent");
    }

    #[test]
    fn what_is_older_than_the_window_counts_no_more() {
        let mut rate = ErrorRate::default();
        for n in 0..10 {
            rate.count(RULE, Time(n), true);
        }
        assert!(!rate.count(RULE, Time(70_000), true));
        assert_eq!(rate.attempts.len(), 1);
    }

    #[test]
    fn safe_mode_ends_by_itself() {
        let modes = Modes { all: Some(Time(10)), workers: BTreeMap::from([("w".to_owned(), Time(20))]) };
        assert_eq!((modes.until("w", Time(5)), modes.until("x", Time(5))), (Some(Time(20)), Some(Time(10))));
        assert_eq!((modes.until("w", Time(20)), modes.until("x", Time(10))), (None, None));
    }
}
