//! Lateness of a source's duplicates, and the key lifetime that would catch them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// Buckets per doubling of the lateness; an upper bound is at most a quarter above the true value.
const BUCKETS_PER_DOUBLING: u32 = 4;

/// Bucket of a lateness; monotonic.
pub fn bucket(lateness: Duration) -> u32 {
    let millis = u64::try_from(lateness.as_millis()).unwrap_or(u64::MAX);
    if millis < u64::from(BUCKETS_PER_DOUBLING) {
        return millis as u32;
    }
    let doublings = millis.ilog2();
    // The two bits below the highest one.
    let quarter = (millis >> (doublings - 2)) & 3;
    (doublings - 1) * BUCKETS_PER_DOUBLING + quarter as u32
}

/// Maximum lateness in a bucket.
pub(crate) fn upper_bound(bucket: u32) -> Duration {
    if bucket < BUCKETS_PER_DOUBLING {
        return Duration::from_millis(u64::from(bucket));
    }
    let (doublings, quarter) = (bucket / BUCKETS_PER_DOUBLING + 1, u128::from(bucket % BUCKETS_PER_DOUBLING));
    let end = (5 + quarter).checked_shl(doublings.saturating_sub(2)).unwrap_or(u128::MAX);
    Duration::from_millis(u64::try_from(end - 1).unwrap_or(u64::MAX))
}

/// Histogram of the lateness of duplicates, with percentiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DuplicateStats {
    /// All duplicates, including those after expiry.
    pub duplicates: u64,
    /// Duplicates that arrived after their key had expired: each was accepted as a new event.
    pub after_expiry: u64,
    /// Upper bound of the lateness per bucket, and the count in the bucket.
    pub lateness: Vec<(Duration, u64)>,
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    pub p999: Option<Duration>,
    /// Key lifetime that would have caught 99.9 %; `None` without duplicates.
    pub suggested_ttl: Option<Duration>,
}

impl DuplicateStats {
    /// From counts per bucket, of duplicates within the lifetime of their keys and after it.
    pub fn new(within: &BTreeMap<u32, u64>, after_expiry: &BTreeMap<u32, u64>) -> DuplicateStats {
        let mut counts = within.clone();
        for (bucket, count) in after_expiry {
            *counts.entry(*bucket).or_default() += count;
        }
        counts.retain(|_, count| *count > 0);
        let duplicates = counts.values().sum();
        let within_permille = |permille: u64| percentile(&counts, duplicates, permille);
        DuplicateStats {
            duplicates,
            after_expiry: after_expiry.values().sum(),
            p50: within_permille(500),
            p99: within_permille(990),
            p999: within_permille(999),
            suggested_ttl: within_permille(999).map(lifetime),
            lateness: counts.into_iter().map(|(bucket, count)| (upper_bound(bucket), count)).collect(),
        }
    }
}

impl DuplicateStats {
    /// Lower bound of the duplicates that a key lifetime of `ttl` would have caught.
    pub fn caught_within(&self, ttl: Duration) -> u64 {
        self.lateness.iter().filter(|(bound, _)| *bound < ttl).map(|(_, count)| count).sum()
    }
}

fn percentile(counts: &BTreeMap<u32, u64>, total: u64, permille: u64) -> Option<Duration> {
    let wanted = u128::from(total) * u128::from(permille);
    let mut seen = 0u128;
    let reached = counts.iter().find(|(_, count)| {
        seen += u128::from(**count) * 1000;
        seen >= wanted
    });
    reached.map(|(bucket, _)| upper_bound(*bucket))
}

/// Lifetime for a lateness, rounded up to a readable unit. Strictly longer: a key that lives exactly as long as its
/// duplicate is late has expired when it arrives.
fn lifetime(lateness: Duration) -> Duration {
    let unit = match lateness.as_secs() {
        0..60 => 1,
        60..3_600 => 60,
        3_600..172_800 => 3_600,
        _ => 86_400,
    };
    Duration::from_secs((lateness.as_secs() / unit + 1) * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn bucket_and_upper_bound_are_consistent() {
        for bucket in 0..200 {
            let bound = upper_bound(bucket);
            assert_eq!(super::bucket(bound), bucket, "{bound:?}");
            assert_eq!(super::bucket(bound + Duration::from_millis(1)), bucket + 1, "{bound:?}");
        }
        assert_eq!(bucket(Duration::ZERO), 0);
        assert!(bucket(Duration::MAX) < 256);
        assert_eq!(upper_bound(bucket(Duration::MAX)), Duration::from_millis(u64::MAX));
    }

    #[test]
    fn upper_bound_is_at_most_a_quarter_too_high() {
        for millis in [5u64, 900, 61_000, 86_400_000, 30 * 86_400_000] {
            let bound = upper_bound(bucket(Duration::from_millis(millis))).as_millis() as u64;
            assert!(bound >= millis && bound - millis <= millis / 4, "{millis} {bound}");
        }
    }

    #[test]
    fn suggested_lifetime_covers_999_permille() {
        let within =
            BTreeMap::from([(bucket(Duration::from_secs(2)), 990), (bucket(29 * HOUR), 9), (bucket(100 * HOUR), 1)]);
        let stats = DuplicateStats::new(&within, &BTreeMap::new());
        assert_eq!((stats.duplicates, stats.after_expiry), (1000, 0));
        assert!(stats.p50.unwrap() < Duration::from_secs(3) && stats.p99 == stats.p50, "{stats:?}");
        let ttl = stats.suggested_ttl.unwrap();
        assert!(ttl > 29 * HOUR && ttl < 37 * HOUR, "{ttl:?}");
        assert_eq!(ttl.as_secs() % 3_600, 0);
    }

    #[test]
    fn duplicates_after_expiry_raise_the_suggested_lifetime() {
        let within = BTreeMap::from([(bucket(HOUR), 5)]);
        let late = BTreeMap::from([(bucket(72 * HOUR), 5)]);
        let stats = DuplicateStats::new(&within, &late);
        assert_eq!((stats.duplicates, stats.after_expiry, stats.lateness.len()), (10, 5, 2));
        assert!(stats.suggested_ttl.unwrap() > 72 * HOUR);
    }

    #[test]
    fn lifetime_catches_duplicates_less_late_than_itself() {
        let within = BTreeMap::from([(bucket(HOUR), 5), (bucket(72 * HOUR), 3)]);
        let stats = DuplicateStats::new(&within, &BTreeMap::new());
        let caught = [HOUR / 2, 2 * HOUR, 72 * HOUR, 200 * HOUR].map(|ttl| stats.caught_within(ttl));
        assert_eq!(caught, [0, 5, 5, 8]);
        assert_eq!(stats.caught_within(stats.suggested_ttl.unwrap()), 8);
    }

    #[test]
    fn no_duplicates_give_no_suggestion() {
        assert_eq!(DuplicateStats::new(&BTreeMap::new(), &BTreeMap::new()), DuplicateStats::default());
    }
}
