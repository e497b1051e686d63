//! Regular expressions of values written as text, limited to syntax that every editor supports.

use std::fmt::Display;
use std::time::Duration;

use sluice_domain::unit::{DURATION_MAX, DURATION_UNITS, SIZE_UNITS, Unit};
use sluice_domain::verify::HEADER_NAME_SYMBOLS;

use crate::config::plaintext_secrets::{SECRET_ENDS, SECRET_NAMES};

pub(super) const NAME: &str = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$";
/// Step name: a name without a dot.
pub(super) const STEP_NAME: &str = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$";
/// Contains a secret.
pub(super) const SECRET: &str = r"\$\{secrets\.[A-Za-z0-9_][A-Za-z0-9_-]*\}";
/// Contains a template or a secret.
pub(super) const FILLED_IN: &str = r"\{\{|\$\{secrets\.";
/// Unclosed `{{`.
pub(super) const NOT_ENDED: &str = r"\{\{(?![\s\S]*\}\})";
pub(super) const RUNTIME: &str = "^(node(:0*[1-9][0-9]*)?|python(:0*[1-9][0-9]*)?|bash)$";
/// `21:00`.
pub(super) const CLOCK: &str = r"^\s*(0*([0-9]|1[0-9]|2[0-3]):[0-5][0-9]|0*24:00)\s*$";
/// `20%`.
pub(super) const SHARE: &str = r"^\s*0*([0-9]|[1-9][0-9])?(\.[0-9]+)?\s*%?\s*$";
/// A version of the Salesforce API.
pub(super) const API_VERSION: &str = r"^v?0*([2-9][0-9]|[1-9][0-9]{2,8})\.0$";
/// `https://host/path`, or text with a secret.
pub(super) const URL: &str = r"^(https?://[^\s/?#@]+([/?#]\S*)?|[\s\S]*\$\{secrets\.[\s\S]*)$";
pub(super) const PUBLIC_URL: &str = r"^https?://[^\s/?:#][^\s#]*$";
/// Path into a payload: `a.b[0]["c d"]`. Names have letters and digits of any script, `_`, `-`, `$` and `@`.
pub(super) const PATH: &str = concat!(
    r#"^\s*([^\s!-#%-,./:-?\x5b-\x5e\x60\x7b-\x7e]+|\[("[^"]*"|'[^']*'|\s*[0-9]+\s*)\])"#,
    r#"(\.[^\s!-#%-,./:-?\x5b-\x5e\x60\x7b-\x7e]+|\[("[^"]*"|'[^']*'|\s*[0-9]+\s*)\])*\s*$"#
);
/// A path of names.
pub(super) const NAMES: &str = r"^(body\.)?[^\[\]\s{.]+(\[\])*(\.[^\[\]\s{.]+(\[\])*)*$";

/// Integer up to `max`, without leading zeros.
pub(super) fn up_to(max: u64) -> String {
    let digits = max.to_string();
    let rest = |length: usize| match length {
        0 => String::new(),
        1 => "[0-9]".to_owned(),
        _ => format!("[0-9]{{{length}}}"),
    };
    let mut ways = vec![];
    if digits.len() > 1 {
        ways.push(format!("[0-9]{{1,{}}}", digits.len() - 1));
    }
    for (at, digit) in digits.char_indices() {
        let least = if at == 0 && digits.len() > 1 { '1' } else { '0' };
        if digit > least {
            let below = char::from(digit as u8 - 1);
            ways.push(format!("{}[{least}-{below}]{}", &digits[..at], rest(digits.len() - at - 1)));
        }
    }
    ways.push(digits);
    format!("({})", ways.join("|"))
}

/// Integer in this range, as text.
pub(super) fn count(min: u64, max: u64) -> String {
    format!("^{}0*{}$", not_below(min, "$"), up_to(max))
}

/// Number in this range, as text.
pub(super) fn number(min: u64, max: u64) -> String {
    let fraction = r"(\.[0-9]+)?$";
    format!(r"^{}(0*{}{fraction}|0*{max}(\.0+)?$)", not_below(min, fraction), up_to(max.saturating_sub(1)))
}

fn not_below(min: u64, end: impl Display) -> String {
    if min == 0 { String::new() } else { format!("(?!0*{}{end})", up_to(min - 1)) }
}

/// Number with its unit, up to `max`.
fn part(units: &[Unit], max: f64) -> String {
    let ways: Vec<String> = units
        .iter()
        .filter(|(_, scale)| max / scale >= 1.0)
        .map(|(names, scale)| {
            let whole = (max / scale).floor() as u64;
            format!(r"(?=\.?[0-9])(0*{whole}(\.0*)?|(0*{})?(\.[0-9]*)?)\s*({})", up_to(whole - 1), names.join("|"))
        })
        .collect();
    // Values below one unit are fractions of it.
    let small = units.iter().filter(|(_, scale)| max / scale < 1.0).flat_map(|(names, _)| names.iter());
    let small: Vec<&str> = small.copied().collect();
    match small.is_empty() {
        true => format!("({})", ways.join("|")),
        false => format!(r"({}|0*\.[0-9]+\s*({}))", ways.join("|"), small.join("|")),
    }
}

/// Duration in this range. Each part of a sum is checked separately.
pub(super) fn duration(least: Duration, most: Duration) -> String {
    let (least, most) = (least.as_millis() as f64, most.as_millis() as f64);
    let too_small: Vec<String> = DURATION_UNITS
        .iter()
        .filter(|(_, scale)| least / scale > 1.0)
        .map(|(names, scale)| {
            format!(r"(?!\s*0*{}(\.[0-9]*)?\s*({})\s*$)", up_to((least / scale).ceil() as u64 - 1), names.join("|"))
        })
        .collect();
    let something = if least > 0.0 { "(?=[^1-9]*[1-9])" } else { "" };
    format!(r"^{something}{}\s*({}\s*)+$", too_small.concat(), part(&DURATION_UNITS, most))
}

/// Size from one byte to `max`.
pub(super) fn size(max: u64) -> String {
    format!(r"^(?=[^1-9]*[1-9])\s*{}\s*$", part(&SIZE_UNITS, max as f64))
}

/// Rate: `5/min`, `20/10s`.
pub(super) fn rate() -> String {
    let most = DURATION_MAX.as_millis() as f64;
    let units: Vec<&str> = DURATION_UNITS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
    let long = part(&DURATION_UNITS, most);
    let count = up_to(u32::MAX.into());
    format!(r"^\s*(?!0*\s*/)0*{count}\s*/\s*((?=[^1-9]*[1-9])({long}\s*)+|({})\s*)$", units.join("|"))
}

/// Range: `200-600ms`. The order of its ends is not checked.
pub(super) fn span() -> String {
    let long = format!(r"({}\s*)+", part(&DURATION_UNITS, DURATION_MAX.as_millis() as f64));
    format!(r"^\s*(([0-9]*\.?[0-9]+\s*|{long})-\s*)?{long}$")
}

/// The name of a header.
pub(super) fn header() -> String {
    format!("^[A-Za-z0-9{}-]+$", HEADER_NAME_SYMBOLS.replace('-', ""))
}

/// Any of these words, case-insensitive.
pub(super) fn any_case(words: &[&str]) -> String {
    let any = |c: char| match c {
        c if c.is_ascii_alphabetic() => format!("[{}{}]", c.to_ascii_uppercase(), c.to_ascii_lowercase()),
        '.' | '*' | '+' | '?' | '(' | ')' => format!("\\{c}"),
        c => c.to_string(),
    };
    let words: Vec<String> = words.iter().map(|word| word.chars().map(any).collect()).collect();
    words.join("|")
}

/// Keys that usually hold a secret.
pub(super) fn secret_names() -> String {
    let any = |words: &[&str]| any_case(words).replace('_', "[_-]");
    format!("^({}|.*({}))$", any(&SECRET_NAMES), any(&SECRET_ENDS))
}

/// Cron rule of five or six fields, or a word such as `@daily`.
pub(super) fn cron() -> String {
    let list = |one: &str| {
        let item = format!(r"(\*|\?|{one}(-{one})?)(/[0-9]+)?");
        format!("{item}(,{item})*")
    };
    let minute = list("0*([0-9]|[1-5][0-9])");
    let hour = list("0*([0-9]|1[0-9]|2[0-3])");
    let day = list("(0*([1-9]|[12][0-9]|3[01])[Ww]?|[Ll][Ww]?)");
    let months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let month = list(&format!("(0*([1-9]|1[0-2])|{})", any_case(&months)));
    let days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let weekday = list(&format!(r"((0*[0-7]|{})([Ll]|#([1-5]|[Ll]))?|[Ll])", any_case(&days)));
    format!(r"^\s*(@[A-Za-z]+|({minute}\s+)?{minute}\s+{hour}\s+{day}\s+{month}\s+\+?{weekday})\s*$")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use sluice_domain::schema::Schema;
    use sluice_domain::unit;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Schema::new(&json!({ "pattern": pattern })).unwrap().check(&json!(text)).is_empty()
    }

    #[test]
    fn number_patterns_respect_the_maximum() {
        for (max, last) in [(0u64, 3), (7, 12), (9, 12), (10, 25), (59, 120), (366, 1200), (1000, 1200)] {
            let pattern = format!("^{}$", up_to(max));
            let schema = Schema::new(&json!({ "pattern": pattern })).unwrap();
            for number in 0..=last {
                assert_eq!(schema.check(&json!(number.to_string())).is_empty(), number <= max, "{number} of {max}");
            }
        }
        let port = Schema::new(&json!({ "pattern": count(1, 65_535) })).unwrap();
        for (text, good) in [("0", false), ("1", true), ("0080", true), ("65535", true), ("65536", false), ("x", false)]
        {
            assert_eq!(port.check(&json!(text)).is_empty(), good, "{text}");
        }
    }

    #[test]
    fn duration_patterns_respect_the_range() {
        let year = duration(Duration::from_millis(1), Duration::from_secs(366 * 86_400));
        let bucket = duration(Duration::from_secs(1), Duration::from_secs(7 * 86_400));
        for (pattern, text, good) in [
            (&year, "90d", true),
            (&year, "366d", true),
            (&year, "367d", false),
            (&year, "900d", false),
            (&year, "365.5 days", true),
            (&year, "366.5d", false),
            (&year, "0s", false),
            (&year, "0.0h", false),
            (&year, "1d12h", true),
            (&year, "1d 400d", false),
            (&year, "x", false),
            (&year, "", false),
            (&bucket, "5m", true),
            (&bucket, "999ms", false),
            (&bucket, "1000ms", true),
            (&bucket, "1s", true),
            (&bucket, "7d", true),
            (&bucket, "8d", false),
            (&bucket, "168h", true),
            (&bucket, "169h", false),
        ] {
            assert_eq!(matches(pattern, text), good, "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsed_quantities_match_their_pattern(
            text in r"( ?[0-9]{0,3}\.?[0-9]{1,2} ?(ms|s|min|h|d|days|B|KiB|MB|x)?){1,2}|[0-9]{1,3}/[0-9]{0,2}(s|min|y)",
        ) {
            let any = duration(Duration::ZERO, unit::DURATION_MAX);
            prop_assert_eq!(unit::duration(&text).is_ok(), matches(&any, &text), "{:?}", text);
            // The reader rounds less than half a byte to zero.
            if !text.contains('.') {
                let bytes = unit::size(&text).is_ok_and(|bytes| (1..=32 << 20).contains(&bytes));
                prop_assert_eq!(bytes, matches(&size(32 << 20), &text), "{:?}", text);
            }
            prop_assert_eq!(unit::rate(&text).is_ok(), matches(&rate(), &text), "{:?}", text);
        }
    }
}
