//! Lateness of a source's duplicates, and the key lifetime that would catch them.

use std::collections::BTreeMap;
use std::time::Duration;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::Serialize;

use crate::time::Time;

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

/// Duplicates of one event that are kept one by one, the last ones. Further ones are counted.
pub const RECENT_DUPLICATES_MAX: usize = 8;
/// Bytes of one of them as it is stored: time, difference, trace id.
const REQUEST_BYTES: usize = 8 + 1 + 16;

/// In what a duplicate differs from its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateDifference {
    Nothing,
    /// The same content under another idempotency key.
    Key,
    /// The key of an adjacent time bucket.
    TimeBucket,
    /// Another content under the same key, which was not accepted.
    Content,
}

impl DuplicateDifference {
    const ALL: [DuplicateDifference; 4] = [
        DuplicateDifference::Nothing,
        DuplicateDifference::Key,
        DuplicateDifference::TimeBucket,
        DuplicateDifference::Content,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            DuplicateDifference::Nothing => "nothing",
            DuplicateDifference::Key => "key",
            DuplicateDifference::TimeBucket => "time_bucket",
            DuplicateDifference::Content => "content",
        }
    }
}

/// A request that was answered as a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateRequest {
    pub at: Time,
    pub differs: DuplicateDifference,
    /// Trace id of the request; zeros for none.
    pub trace: [u8; 16],
}

impl DuplicateRequest {
    /// `trace` is as the event would store it: its id comes first.
    pub fn new(at: Time, differs: DuplicateDifference, trace: &str) -> DuplicateRequest {
        let id = trace.split('-').next().unwrap_or_default();
        let bytes = HEXLOWER_PERMISSIVE.decode(id.as_bytes()).ok();
        let trace = bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
        DuplicateRequest { at, differs, trace }
    }

    /// The trace id as it is shown; empty for none.
    pub fn trace_id(&self) -> String {
        if self.trace == [0; 16] { String::new() } else { HEXLOWER.encode(&self.trace) }
    }
}

/// Requests that were answered as duplicates of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDuplicates {
    pub count: u64,
    pub first_at: Time,
    pub last_at: Time,
    /// The last ones in the order of their arrival, at most [`RECENT_DUPLICATES_MAX`].
    pub recent: Vec<DuplicateRequest>,
}

impl EventDuplicates {
    /// The last requests as they are stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.recent.len() * REQUEST_BYTES);
        for DuplicateRequest { at, differs, trace } in &self.recent {
            bytes.extend_from_slice(&at.0.to_be_bytes());
            bytes.push(*differs as u8);
            bytes.extend_from_slice(trace);
        }
        bytes
    }

    /// Reads what [`EventDuplicates::encode`] wrote. `None` if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Vec<DuplicateRequest>> {
        let request = |bytes: &[u8]| {
            let (at, rest) = bytes.split_first_chunk::<8>()?;
            let (differs, trace) = rest.split_first()?;
            let differs = *DuplicateDifference::ALL.get(usize::from(*differs))?;
            Some(DuplicateRequest { at: Time(i64::from_be_bytes(*at)), differs, trace: trace.try_into().ok()? })
        };
        bytes.chunks(REQUEST_BYTES).map(request).collect()
    }

    /// Counts requests, in the order of their arrival. `None` stays `None` without any.
    pub fn add(known: Option<EventDuplicates>, requests: Vec<DuplicateRequest>) -> Option<EventDuplicates> {
        let (first, last) = (requests.first()?.at, requests.last()?.at);
        let mut all = known.unwrap_or(EventDuplicates { count: 0, first_at: first, last_at: last, recent: vec![] });
        all.count += requests.len() as u64;
        all.last_at = last;
        all.recent.extend(requests);
        let surplus = all.recent.len().saturating_sub(RECENT_DUPLICATES_MAX);
        all.recent.drain(..surplus);
        Some(all)
    }
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

    #[test]
    fn last_duplicates_of_an_event_are_kept_and_all_are_counted() {
        let request = |at: i64| DuplicateRequest::new(Time(at), DuplicateDifference::Nothing, "no trace");
        assert_eq!(EventDuplicates::add(None, vec![]), None);
        let first = EventDuplicates::add(None, vec![request(1)]).unwrap();
        assert_eq!((first.count, first.first_at, first.recent[0].trace_id()), (1, Time(1), String::new()));
        let all = EventDuplicates::add(Some(first), (2..=20).map(request).collect()).unwrap();
        assert_eq!((all.count, all.first_at, all.last_at), (20, Time(1), Time(20)));
        let kept: Vec<i64> = all.recent.iter().map(|request| request.at.0).collect();
        assert_eq!(kept, (13..=20).collect::<Vec<_>>());
    }

    #[test]
    fn stored_duplicates_read_back_and_damaged_ones_do_not() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let request = |differs| DuplicateRequest::new(Time(-7), differs, &format!("{trace}-b7ad6b7169203331-01"));
        let requests: Vec<_> = DuplicateDifference::ALL.map(request).to_vec();
        let all = EventDuplicates::add(None, requests.clone()).unwrap();
        assert_eq!((all.encode().len(), all.recent[0].trace_id()), (100, trace.to_owned()));
        assert_eq!(EventDuplicates::decode(&all.encode()), Some(requests));
        assert_eq!(EventDuplicates::decode(&all.encode()[1..]), None);
        assert_eq!(EventDuplicates::decode(&[9; REQUEST_BYTES]), None);
        assert_eq!(EventDuplicates::decode(&[]), Some(vec![]));
    }
}
