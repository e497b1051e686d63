//! Mergeable histogram of durations.
//!
//! Buckets are exponential with four per doubling, so that a percentile is at most an eighth away from the true value. Two
//! histograms merge without loss, whatever intervals or labels they come from.

use std::collections::BTreeMap;
use std::time::Duration;

/// Buckets per doubling of the duration.
const BUCKETS_PER_DOUBLING: u16 = 4;
/// Longer durations count as this one.
const MICROS_MAX: u64 = 1 << 42;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of durations by bucket; no bucket is empty.
    pub(super) buckets: BTreeMap<u16, u64>,
    /// Sum of all durations.
    pub(super) sum_micros: u64,
}

impl Histogram {
    pub fn observe(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(MICROS_MAX).min(MICROS_MAX);
        *self.buckets.entry(bucket(micros)).or_default() += 1;
        self.sum_micros = self.sum_micros.saturating_add(micros);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, count) in &other.buckets {
            let own = self.buckets.entry(*bucket).or_default();
            *own = own.saturating_add(*count);
        }
        self.sum_micros = self.sum_micros.saturating_add(other.sum_micros);
    }

    pub fn count(&self) -> u64 {
        self.buckets.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// `None` without durations.
    pub fn mean(&self) -> Option<Duration> {
        self.sum_micros.checked_div(self.count()).map(Duration::from_micros)
    }

    /// Duration that this share of all durations does not exceed, from the middle of its bucket. `None` without durations.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((percent.clamp(0.0, 100.0) / 100.0 * count as f64).ceil() as u64).clamp(1, count);
        let mut below = 0u64;
        for (bucket, count) in &self.buckets {
            below = below.saturating_add(*count);
            if below >= rank {
                let (from, to) = bounds(*bucket);
                return Some(Duration::from_micros(from + (to - from) / 2));
            }
        }
        None
    }

    /// Number of durations that do not exceed a limit, by whole buckets.
    pub fn count_within(&self, limit: Duration) -> u64 {
        let micros = u64::try_from(limit.as_micros()).unwrap_or(MICROS_MAX).min(MICROS_MAX);
        self.buckets.range(..=bucket(micros)).fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// Bucket of a duration; monotonic.
fn bucket(micros: u64) -> u16 {
    if micros < u64::from(BUCKETS_PER_DOUBLING) {
        return micros as u16;
    }
    let doublings = micros.ilog2();
    // The two bits below the highest one.
    let quarter = (micros >> (doublings - 2)) & 3;
    (doublings as u16 - 1) * BUCKETS_PER_DOUBLING + quarter as u16
}

/// First duration of a bucket and first duration of the next one, in microseconds.
fn bounds(bucket: u16) -> (u64, u64) {
    if bucket < BUCKETS_PER_DOUBLING {
        return (u64::from(bucket), u64::from(bucket) + 1);
    }
    let doublings = u32::from(bucket / BUCKETS_PER_DOUBLING) + 1;
    let quarter = u64::from(bucket % BUCKETS_PER_DOUBLING);
    let width = 1u64.checked_shl(doublings - 2).unwrap_or(u64::MAX);
    let from = (4 + quarter).saturating_mul(width);
    (from, from.saturating_add(width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(micros: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        micros.iter().for_each(|micros| histogram.observe(Duration::from_micros(*micros)));
        histogram
    }

    #[test]
    fn empty_histogram_has_no_percentile() {
        assert_eq!((Histogram::default().percentile(95.0), Histogram::default().mean()), (None, None));
    }

    #[test]
    fn longest_duration_is_counted() {
        let mut histogram = of(&[u64::MAX]);
        histogram.observe(Duration::MAX);
        assert_eq!(histogram.count(), 2);
        assert!(histogram.percentile(100.0).unwrap() >= Duration::from_micros(MICROS_MAX));
    }

    #[test]
    fn durations_within_a_limit_are_counted() {
        let histogram = of(&[10, 100, 1_000, 10_000]);
        assert_eq!(histogram.count_within(Duration::from_micros(1_000)), 3);
        assert_eq!(histogram.count_within(Duration::ZERO), 0);
    }

    proptest! {
        #[test]
        fn bucket_contains_its_durations(micros in 0..=MICROS_MAX) {
            let (from, to) = bounds(bucket(micros));
            prop_assert!(from <= micros && micros < to, "{micros}: {from}..{to}");
        }

        #[test]
        fn percentile_is_at_most_an_eighth_away(mut micros in prop::collection::vec(1..1_000_000_000u64, 1..200), percent in 1..=100u32) {
            let found = of(&micros).percentile(f64::from(percent)).unwrap().as_micros() as f64;
            micros.sort_unstable();
            let rank = (f64::from(percent) / 100.0 * micros.len() as f64).ceil() as usize;
            let exact = micros[rank.clamp(1, micros.len()) - 1] as f64;
            prop_assert!((found - exact).abs() <= (exact / 8.0).max(1.0), "{found} for {exact}");
        }

        #[test]
        fn merged_parts_are_the_whole(a in prop::collection::vec(0..u64::MAX, 0..50), b in prop::collection::vec(0..u64::MAX, 0..50)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let whole: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(merged, of(&whole));
        }
    }
}
