//! Rate limits of sources and of unverified requests.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sluice_domain::flow::RateLimit;
use sluice_domain::time::Time;

/// One leaky bucket per source (GCRA, which stores one timestamp per bucket).
#[derive(Debug, Default)]
pub(super) struct RateLimiter {
    buckets: Mutex<HashMap<String, f64>>,
}

impl RateLimiter {
    /// Takes one token, or returns the time until one is available.
    pub(super) fn take(&self, source: &str, limit: RateLimit, now: Time) -> Result<(), Duration> {
        let interval = limit.rate.interval().as_secs_f64() * 1e3;
        let now = now.0 as f64;
        let Ok(mut buckets) = self.buckets.lock() else { return Ok(()) };
        let empty_at = match buckets.get_mut(source) {
            Some(empty_at) => empty_at,
            None => buckets.entry(source.to_owned()).or_insert(f64::MIN),
        };
        let earliest = *empty_at - interval * f64::from(limit.burst.saturating_sub(1));
        if now < earliest {
            return Err(Duration::from_secs_f64((earliest - now) / 1e3));
        }
        *empty_at = empty_at.max(now) + interval;
        Ok(())
    }
}

/// One leaky bucket without a lock. It stores the time at which the bucket is full again, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    full_at: AtomicI64,
}

impl Bucket {
    /// Takes one token, or returns the time until one is available.
    pub(super) fn take(&self, limit: RateLimit, now: Time) -> Result<(), Duration> {
        let taken = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            wait_micros(full_at, limit, now)
                .is_none()
                .then(|| full_at.max(micros(now)).saturating_add(interval_micros(limit)))
        });
        taken.map(drop).map_err(|_| self.wait(limit, now).unwrap_or_default())
    }

    /// Time until a token is available; `None` if there is one now. Takes nothing.
    pub(super) fn wait(&self, limit: RateLimit, now: Time) -> Option<Duration> {
        wait_micros(self.full_at.load(Ordering::Relaxed), limit, now).map(Duration::from_micros)
    }

    /// True if no token is missing.
    pub(super) fn is_full(&self, now: Time) -> bool {
        self.full_at.load(Ordering::Relaxed) <= micros(now)
    }
}

fn micros(now: Time) -> i64 {
    now.0.saturating_mul(1_000)
}

fn interval_micros(limit: RateLimit) -> i64 {
    i64::try_from(limit.rate.interval().as_micros()).unwrap_or(i64::MAX)
}

fn wait_micros(full_at: i64, limit: RateLimit, now: Time) -> Option<u64> {
    let spare = interval_micros(limit).saturating_mul(i64::from(limit.burst.saturating_sub(1)));
    let earliest = full_at.saturating_sub(spare);
    u64::try_from(earliest.saturating_sub(micros(now))).ok().filter(|wait| *wait > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_domain::unit;

    #[test]
    fn burst_passes_then_rate_applies() {
        let limits = RateLimiter::default();
        let limit = RateLimit { rate: unit::rate("10/s").unwrap(), burst: 5 };
        let passed = |at: i64| limits.take("s", limit, Time(at)).is_ok();
        assert_eq!((0..10).filter(|_| passed(1_000)).count(), 5);
        assert!(!passed(1_099));
        assert!(passed(1_100));
        assert!(limits.take("other", limit, Time(1_000)).is_ok(), "one sender does not use up another's");
        let wait = limits.take("s", limit, Time(1_100)).unwrap_err();
        assert!(wait <= Duration::from_millis(100), "{wait:?}");
    }

    #[test]
    fn bucket_agrees_with_the_rate_limiter() {
        let limit = RateLimit { rate: unit::rate("10/s").unwrap(), burst: 5 };
        let (bucket, limiter) = (Bucket::default(), RateLimiter::default());
        let mut at = 1_000;
        for step in [0, 0, 0, 0, 0, 0, 50, 50, 10, 90, 400, 0, 0, 0, 0, 5_000, 0, 0, 0, 0, 0, 0] {
            at += step;
            let expected = limiter.take("s", limit, Time(at)).is_ok();
            assert_eq!(bucket.wait(limit, Time(at)).is_none(), expected, "at {at}");
            assert_eq!(bucket.take(limit, Time(at)).is_ok(), expected, "at {at}");
        }
        assert!(!bucket.is_full(Time(at)) && bucket.is_full(Time(at + 500)));
    }
}
