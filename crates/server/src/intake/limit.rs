//! Rate limits of sources.

use std::collections::HashMap;
use std::sync::Mutex;
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
}
