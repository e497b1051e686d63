//! Latency of a destination against its own baseline: a sign of overload.

use std::time::Duration;

/// Weight of one call in the recent mean.
const RECENT: f64 = 0.05;
/// Weight of one call in the baseline: it follows quickly down and slowly up.
const BASELINE_DOWN: f64 = 0.05;
const BASELINE_UP: f64 = 0.002;
/// The recent mean is too high above this multiple of the baseline, plus [`SLACK_MS`].
const RISE: f64 = 3.0;
const SLACK_MS: f64 = 25.0;
/// Calls before the baseline means anything.
const CALLS_MIN: u32 = 50;

#[derive(Clone, Debug, Default)]
pub(super) struct Latency {
    calls: u32,
    baseline_ms: f64,
    recent_ms: f64,
}

impl Latency {
    /// Counts a successful call. Returns whether recent calls take much longer than the baseline.
    pub(super) fn is_rising_with(&mut self, took: Duration) -> bool {
        let took = took.as_secs_f64() * 1e3;
        self.calls = self.calls.saturating_add(1);
        if self.calls == 1 {
            (self.baseline_ms, self.recent_ms) = (took, took);
        }
        self.recent_ms += (took - self.recent_ms) * RECENT;
        let weight = if self.recent_ms < self.baseline_ms { BASELINE_DOWN } else { BASELINE_UP };
        self.baseline_ms += (self.recent_ms - self.baseline_ms) * weight;
        self.calls >= CALLS_MIN && self.recent_ms > self.baseline_ms * RISE + SLACK_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(latency: &mut Latency, count: u32, ms: u64) -> u32 {
        (0..count).map(|_| u32::from(latency.is_rising_with(Duration::from_millis(ms)))).sum()
    }

    #[test]
    fn latency_far_above_its_baseline_is_noticed_until_the_baseline_follows() {
        let mut latency = Latency::default();
        assert_eq!(calls(&mut latency, 1_000, 20), 0);
        assert_eq!(calls(&mut latency, 10, 40), 0, "twice as long is no sign of overload");
        assert!(calls(&mut latency, 100, 400) > 50);
        calls(&mut latency, 5_000, 400);
        assert_eq!(
            calls(&mut latency, 100, 400),
            0,
            "a destination that became slower for good is not held back for ever"
        );
    }

    #[test]
    fn single_slow_calls_are_no_sign_of_overload() {
        let mut latency = Latency::default();
        let noticed: u32 = (0..100).map(|_| calls(&mut latency, 30, 20) + calls(&mut latency, 1, 300)).sum();
        assert_eq!(noticed, 0);
    }
}
