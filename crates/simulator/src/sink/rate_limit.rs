//! Limit of calls in any second.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// Calls that a rate limit has decided about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateCounts {
    pub accepted: u64,
    pub refused: u64,
}

#[derive(Debug, Default)]
pub(super) struct RateLimit {
    pub(super) calls_per_second_max: Option<u32>,
    /// Times of the calls that were accepted within the last second.
    accepted: VecDeque<Instant>,
    pub(super) counts: RateCounts,
}

impl RateLimit {
    pub(super) fn new(calls_per_second_max: Option<u32>) -> RateLimit {
        RateLimit { calls_per_second_max, ..RateLimit::default() }
    }

    /// Whether a call is accepted now.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        let Some(max) = self.calls_per_second_max else {
            self.counts.accepted += 1;
            return true;
        };
        while self.accepted.front().is_some_and(|at| now.duration_since(*at) >= SECOND) {
            self.accepted.pop_front();
        }
        let admitted = self.accepted.len() < max as usize;
        if admitted {
            self.accepted.push_back(now);
            self.counts.accepted += 1;
        } else {
            self.counts.refused += 1;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_second_has_no_more_calls_than_the_limit() {
        let mut limit = RateLimit::new(Some(3));
        let start = Instant::now();
        let admits = |limit: &mut RateLimit, ms| limit.admits(start + Duration::from_millis(ms));
        let first: Vec<bool> = [0, 10, 20, 30, 999].map(|ms| admits(&mut limit, ms)).into();
        assert_eq!(first, [true, true, true, false, false]);
        assert!(admits(&mut limit, 1_000) && !admits(&mut limit, 1_001));
        limit.calls_per_second_max = None;
        assert!(admits(&mut limit, 1_002));
        assert_eq!(limit.counts, RateCounts { accepted: 5, refused: 3 });
    }
}
