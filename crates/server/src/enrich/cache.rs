//! Answers of lookups that are used again, in memory.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use sluice_domain::enrich::LookupResult;
use sluice_domain::time::Time;

/// Digest of a request and of the fields that are taken from its answer.
pub(super) type CacheKey = [u8; 32];

/// Answers in memory, at the most. One has at most `domain::enrich::OUTPUT_BYTES_MAX`, and usually some hundred bytes.
const ENTRIES_MAX: usize = 10_000;

/// A bounded cache. Beyond its limit the oldest answers are dropped.
#[derive(Debug, Default)]
pub(super) struct LookupCache {
    entries: HashMap<CacheKey, Entry>,
    /// Keys in the order in which they were put, with the number of their entry: a key that was put again is here twice.
    order: VecDeque<(CacheKey, u64)>,
    last: u64,
}

#[derive(Debug)]
struct Entry {
    result: LookupResult,
    expires_at: Time,
    number: u64,
}

impl LookupCache {
    /// The answer to a request, if it is still used. `now` is by the steady clock.
    pub(super) fn get(&self, key: &CacheKey, now: Time) -> Option<LookupResult> {
        self.entries.get(key).filter(|entry| now < entry.expires_at).map(|entry| entry.result.clone())
    }

    /// Keeps an answer for a while.
    pub(super) fn put(&mut self, key: CacheKey, result: LookupResult, lifetime: Duration, now: Time) {
        if lifetime.is_zero() {
            self.entries.remove(&key);
            return;
        }
        self.last += 1;
        self.entries.insert(key, Entry { result, expires_at: now + lifetime, number: self.last });
        self.order.push_back((key, self.last));
        // Entries that were replaced leave their old place in the order, so both are bounded.
        while self.entries.len() > ENTRIES_MAX || self.order.len() > 2 * ENTRIES_MAX {
            let Some((oldest, number)) = self.order.pop_front() else { return };
            if self.entries.get(&oldest).is_some_and(|entry| entry.number == number) {
                self.entries.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> CacheKey {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&(n as u64).to_be_bytes());
        key
    }

    #[test]
    fn answer_is_used_again_until_it_expires() {
        let mut cache = LookupCache::default();
        cache.put(key(1), LookupResult::Absent, Duration::from_secs(60), Time(0));
        assert_eq!(cache.get(&key(1), Time(59_999)), Some(LookupResult::Absent));
        assert_eq!((cache.get(&key(1), Time(60_000)), cache.get(&key(2), Time(0))), (None, None));
        cache.put(key(1), LookupResult::Absent, Duration::ZERO, Time(0));
        assert_eq!(cache.get(&key(1), Time(1)), None, "what must not be used again replaces what was");
    }

    #[test]
    fn cache_is_bounded_and_drops_the_oldest() {
        let mut cache = LookupCache::default();
        let mut put = |n: usize| cache.put(key(n), LookupResult::Absent, Duration::from_secs(60), Time(0));
        for n in 0..=ENTRIES_MAX {
            put(n);
        }
        for _ in 0..3 * ENTRIES_MAX {
            put(7);
        }
        assert!(cache.entries.len() <= ENTRIES_MAX && cache.order.len() <= 2 * ENTRIES_MAX);
        assert_eq!(cache.get(&key(0), Time(0)), None);
        assert_eq!(cache.get(&key(7), Time(0)), Some(LookupResult::Absent));
    }
}
