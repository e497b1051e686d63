//! How late a source duplicates itself, and the lifetime that its keys need for that.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// Each doubling of the lateness has this many buckets, so that a bound is at most a quarter above the truth.
const BUCKETS_PER_DOUBLING: u32 = 4;

/// The bucket that a lateness is counted in. Later is never in a lower one.
pub fn bucket(lateness: Duration) -> u32 {
    let millis = u64::try_from(lateness.as_millis()).unwrap_or(u64::MAX);
    if millis < u64::from(BUCKETS_PER_DOUBLING) {
        return millis as u32;
    }
    let doublings = millis.ilog2();
    // The two bits behind the highest one.
    let quarter = (millis >> (doublings - 2)) & 3;
    (doublings - 1) * BUCKETS_PER_DOUBLING + quarter as u32
}

/// Everything in a bucket is at most this late.
pub fn upper_bound(bucket: u32) -> Duration {
    if bucket < BUCKETS_PER_DOUBLING {
        return Duration::from_millis(u64::from(bucket));
    }
    let (doublings, quarter) = (bucket / BUCKETS_PER_DOUBLING + 1, u128::from(bucket % BUCKETS_PER_DOUBLING));
    let end = (5 + quarter).checked_shl(doublings.saturating_sub(2)).unwrap_or(u128::MAX);
    Duration::from_millis(u64::try_from(end - 1).unwrap_or(u64::MAX))
}

/// How often so many duplicates came so late, and what follows from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DuplicateStats {
    /// Repeats in all, those after expiry among them.
    pub duplicates: u64,
    /// Those that came when their key had expired: each was taken for a new event.
    pub after_expiry: u64,
    /// How many came at most this late after the first, and later than the line before says.
    pub lateness: Vec<(Duration, u64)>,
    /// Half of them came within this.
    pub p50: Option<Duration>,
    /// 99 % of them.
    pub p99: Option<Duration>,
    /// 99.9 % of them.
    pub p999: Option<Duration>,
    /// The lifetime of keys that would have caught 99.9 % of them; `None` while there were none.
    pub suggested_ttl: Option<Duration>,
}

impl DuplicateStats {
    /// From the counts of each bucket, within the lifetime of their keys and after it.
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
    /// How many of them a key that lives this long would have caught, at the least.
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

/// A key that lives exactly as long as its repeat is late has expired when the repeat comes; and nobody writes
/// milliseconds into a configuration.
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
    fn a_bucket_holds_what_lies_below_its_bound_and_above_the_one_before() {
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
    fn a_bound_is_at_most_a_quarter_above_the_truth() {
        for millis in [5u64, 900, 61_000, 86_400_000, 30 * 86_400_000] {
            let bound = upper_bound(bucket(Duration::from_millis(millis))).as_millis() as u64;
            assert!(bound >= millis && bound - millis <= millis / 4, "{millis} {bound}");
        }
    }

    #[test]
    fn the_lifetime_covers_all_but_one_in_a_thousand() {
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
    fn what_came_after_expiry_asks_for_a_longer_life() {
        let within = BTreeMap::from([(bucket(HOUR), 5)]);
        let late = BTreeMap::from([(bucket(72 * HOUR), 5)]);
        let stats = DuplicateStats::new(&within, &late);
        assert_eq!((stats.duplicates, stats.after_expiry, stats.lateness.len()), (10, 5, 2));
        assert!(stats.suggested_ttl.unwrap() > 72 * HOUR);
    }

    #[test]
    fn a_lifetime_catches_what_is_less_late_than_it_is_long() {
        let within = BTreeMap::from([(bucket(HOUR), 5), (bucket(72 * HOUR), 3)]);
        let stats = DuplicateStats::new(&within, &BTreeMap::new());
        let caught = [HOUR / 2, 2 * HOUR, 72 * HOUR, 200 * HOUR].map(|ttl| stats.caught_within(ttl));
        assert_eq!(caught, [0, 5, 5, 8]);
        assert_eq!(stats.caught_within(stats.suggested_ttl.unwrap()), 8);
    }

    #[test]
    fn without_repeats_there_is_nothing_to_suggest() {
        assert_eq!(DuplicateStats::new(&BTreeMap::new(), &BTreeMap::new()), DuplicateStats::default());
    }
}
