//! Parser of `Retry-After`: seconds or an HTTP date.

use std::time::Duration;

use jiff::tz::TimeZone;
use sluice_domain::time::Time;

/// Date formats that RFC 9110 requires recipients to accept.
const DATE_FORMATS: [&str; 3] = ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// Upper bound, more than a century; keeps additions to a timestamp from overflowing.
const LONGEST_SECONDS: u64 = u32::MAX as u64;

/// Requested wait. A date in the past yields zero; a larger number is capped at [`LONGEST_SECONDS`], and the
/// retry policy caps it further; anything else yields `None`.
pub(crate) fn parse(value: &str, now: Time) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = value.parse().unwrap_or(LONGEST_SECONDS);
        return Some(Duration::from_secs(seconds.min(LONGEST_SECONDS)));
    }
    DATE_FORMATS.into_iter().find_map(|format| {
        let date = jiff::civil::DateTime::strptime(format, value).ok()?;
        let longest = Duration::from_secs(LONGEST_SECONDS);
        // 9999-12-31 parses but is outside the range of a timestamp.
        let wait = date.to_zoned(TimeZone::UTC).map_or(longest, |at| Time::from(at.timestamp()).since(now));
        Some(wait.min(longest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_http_dates_parse_and_other_values_do_not() {
        let now = Time::parse("1994-11-06T08:49:00Z").unwrap();
        let seconds = |value: &str| parse(value, now).map(|wait| wait.as_secs());
        let table = [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("99999999999999999999999999", Some(u64::from(u32::MAX))),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(37)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(37)),
            ("Sun Nov  6 08:49:37 1994", Some(37)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(u64::from(u32::MAX))),
            ("-5", None),
            ("1.5", None),
            ("", None),
            ("soon", None),
            ("1994-11-06T08:49:37Z", None),
            ("Sun, 06 Nov 1994", None),
        ];
        for (value, expected) in table {
            assert_eq!(seconds(value), expected, "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_values_do_not_panic(value in ".{0,60}", now: i64) {
            let _ = parse(&value, Time(now));
        }
    }
}
