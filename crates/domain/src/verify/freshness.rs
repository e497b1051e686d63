//! Signing time: formats, and the check against the tolerance.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::error::VerifyError;

/// Format of a signing time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampUnit {
    /// Unix time in whole seconds.
    Seconds,
    /// Unix time in whole milliseconds.
    Milliseconds,
    /// Without an offset it is UTC.
    Iso8601,
    /// HTTP date: `Mon, 02 Mar 2026 09:30:00 GMT`.
    HttpDate,
}

impl TimestampUnit {
    /// Strict: numeric formats accept digits only.
    pub(super) fn parse(self, text: &[u8]) -> Option<Timestamp> {
        let text = std::str::from_utf8(text).ok()?;
        match self {
            TimestampUnit::Seconds => Timestamp::from_second(digits(text)?).ok(),
            TimestampUnit::Milliseconds => Timestamp::from_millisecond(digits(text)?).ok(),
            TimestampUnit::Iso8601 => text.parse().ok().or_else(|| {
                let local: DateTime = text.parse().ok()?;
                TimeZone::UTC.to_timestamp(local).ok()
            }),
            TimestampUnit::HttpDate => jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok(),
        }
    }

    pub(super) fn write(self, at: Timestamp) -> String {
        match self {
            TimestampUnit::Seconds => at.as_second().to_string(),
            TimestampUnit::Milliseconds => at.as_millisecond().to_string(),
            TimestampUnit::Iso8601 => at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            TimestampUnit::HttpDate => at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
        }
    }

    /// Rejects a signing time that differs from now by more than the tolerance.
    ///
    /// Both times are compared in the sender's precision: a sender that truncates to seconds must not appear up to a second
    /// older.
    pub(super) fn check(self, at: Timestamp, now: Timestamp, tolerance: Option<Duration>) -> Result<(), VerifyError> {
        let Some(tolerance) = tolerance else { return Ok(()) };
        let age_ms = match self {
            TimestampUnit::Seconds | TimestampUnit::HttpDate => (now.as_second() - at.as_second()) * 1000,
            TimestampUnit::Milliseconds | TimestampUnit::Iso8601 => now.as_millisecond() - at.as_millisecond(),
        };
        if u128::from(age_ms.unsigned_abs()) <= tolerance.as_millis() {
            return Ok(());
        }
        let tolerance_seconds = tolerance.as_secs();
        Err(if age_ms > 0 {
            VerifyError::TimestampTooOld { age_seconds: age_ms / 1000, tolerance_seconds }
        } else {
            VerifyError::TimestampInFuture { ahead_seconds: -age_ms / 1000, tolerance_seconds }
        })
    }
}

fn digits(text: &str) -> Option<i64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: [TimestampUnit; 4] =
        [TimestampUnit::Seconds, TimestampUnit::Milliseconds, TimestampUnit::Iso8601, TimestampUnit::HttpDate];

    #[test]
    fn written_timestamp_parses_back() {
        let at = Timestamp::from_second(1_772_443_800).unwrap();
        for unit in UNITS {
            assert_eq!(unit.parse(unit.write(at).as_bytes()), Some(at), "{unit:?}");
        }
        assert_eq!(TimestampUnit::HttpDate.write(at), "Mon, 02 Mar 2026 09:30:00 GMT");
        assert_eq!(TimestampUnit::Iso8601.parse(b"2026-03-02T09:30:00"), Some(at));
        assert_eq!(TimestampUnit::Iso8601.parse(b"2026-03-02T11:30:00+02:00"), Some(at));
    }

    #[test]
    fn invalid_timestamps_are_rejected() {
        let wrong: [&[u8]; 9] = [b"", b"-1", b"+1", b"1.5", b"1e9", b" 1", b"abc", b"\xff", b"99999999999999999999"];
        for unit in UNITS {
            for text in wrong {
                assert_eq!(unit.parse(text), None, "{unit:?} {text:?}");
            }
        }
    }

    #[test]
    fn tolerance_is_inclusive_in_both_directions() {
        let now = Timestamp::from_millisecond(1_000_000_900).unwrap();
        let check = |unit: TimestampUnit, at_ms| {
            let at = Timestamp::from_millisecond(at_ms).unwrap();
            unit.check(at, now, Some(Duration::from_secs(300))).map_err(|error| error.code())
        };
        use TimestampUnit::{Milliseconds, Seconds};
        assert_eq!(check(Seconds, 999_700_000), Ok(()));
        assert_eq!(check(Seconds, 999_699_000), Err("timestamp-too-old"));
        assert_eq!(check(Seconds, 1_000_300_000), Ok(()));
        assert_eq!(check(Seconds, 1_000_301_000), Err("timestamp-in-future"));
        assert_eq!(check(Milliseconds, 999_700_900), Ok(()));
        assert_eq!(check(Milliseconds, 999_700_899), Err("timestamp-too-old"));
        assert_eq!(check(Milliseconds, 1_000_300_900), Ok(()));
        assert_eq!(check(Milliseconds, 1_000_300_901), Err("timestamp-in-future"));
        assert!(Seconds.check(Timestamp::MIN, Timestamp::MAX, None).is_ok());
        let wide = Some(Duration::from_secs(1));
        assert!(Milliseconds.check(Timestamp::MIN, Timestamp::MAX, wide).is_err());
    }
}
