//! Time in whole milliseconds since the Unix epoch.
//!
//! Nothing in this crate reads a clock: the caller passes the time.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

impl Time {
    /// The end of time, for "never".
    pub const NEVER: Time = Time(i64::MAX);

    /// Last millisecond of the year 9999.
    pub const MAX_DATE: Time = Time(253_402_300_799_999);

    /// Parses RFC 3339 text.
    pub fn parse(text: &str) -> Option<Time> {
        text.parse::<jiff::Timestamp>().ok().map(Time::from).or_else(|| parse_late(text))
    }

    /// Time elapsed since `earlier`; zero if it is not earlier.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Whole seconds since the epoch.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Clamped to the range that jiff supports.
    pub fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(if self.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        })
    }
}

/// Parses a time of the last two days of the year 9999, which jiff does not support as an instant: senders write
/// 9999-12-31 for "no end".
fn parse_late(text: &str) -> Option<Time> {
    let pieces = jiff::fmt::temporal::Pieces::parse(text).ok()?;
    let offset = pieces.to_numeric_offset()?.seconds();
    let at = pieces.date().to_datetime(pieces.time()?);
    let ms = i64::try_from(at.duration_since(EPOCH).as_millis()).ok()? - i64::from(offset) * 1000;
    Some(Time(ms)).filter(|at| *at > jiff::Timestamp::MAX.into() && *at <= Time::MAX_DATE)
}

const EPOCH: jiff::civil::DateTime = jiff::civil::DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Date and time in UTC of a time that jiff does not support as an instant.
fn late(at: Time) -> jiff::civil::DateTime {
    let at = at.min(Time::MAX_DATE);
    EPOCH.checked_add(jiff::SignedDuration::from_millis(at.0)).unwrap_or(jiff::civil::DateTime::MAX)
}

impl From<jiff::Timestamp> for Time {
    fn from(at: jiff::Timestamp) -> Time {
        Time(at.as_millisecond())
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, wait: Duration) -> Time {
        Time(self.0.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, wait: Duration) -> Time {
        Time(self.0.saturating_sub(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER {
            return f.write_str("never");
        }
        match jiff::Timestamp::from_millisecond(self.0) {
            Err(_) if self.0 > 0 => write!(f, "{:.3}Z", late(*self)),
            _ => write!(f, "{:.3}", self.to_jiff()),
        }
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Time::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not an RFC 3339 time")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let time = Time::parse("2026-03-22T12:34:56.789Z").unwrap();
        assert_eq!(time.to_string(), "2026-03-22T12:34:56.789Z");
        assert_eq!(time + Duration::from_millis(211), Time::parse("2026-03-22T12:34:57Z").unwrap());
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
    }

    #[test]
    fn last_day_of_the_year_9999_is_a_time() {
        for (text, expected) in [
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
            ("9999-12-31T23:59:59+02:00", "9999-12-31T21:59:59.000Z"),
            ("9999-12-30T21:00:00Z", "9999-12-30T21:00:00.000Z"),
            ("9999-01-01T00:00:00Z", "9999-01-01T00:00:00.000Z"),
        ] {
            let time = Time::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(time.to_string(), expected, "{text}");
            assert_eq!(Time::parse(expected), Some(time), "{text}");
        }
        for text in ["9999-12-31T23:59:59-02:00", "9999-12-31T23:59:59", "10000-01-01T00:00:00Z", "9999-12-31"] {
            assert_eq!(Time::parse(text), None, "{text}");
        }
        assert_eq!(Time(i64::MAX - 1).to_string(), "9999-12-31T23:59:59.999Z");
    }
}
