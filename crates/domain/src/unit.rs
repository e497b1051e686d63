//! Durations, sizes and rates as people write them: `90s`, `48h`, `256KiB`, `5/min`; and counts as they read them.

use std::time::Duration;

use serde::Serialize;

/// Why a text is not a quantity. The message says what would be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitProblem(String);

/// A unit by all of its names, and how much one of it is.
pub type Unit = (&'static [&'static str], f64);

/// The units of a duration, in milliseconds.
pub const DURATION_UNITS: [Unit; 5] = [
    (&["ms"], 1.0),
    (&["s", "sec", "second", "seconds"], 1e3),
    (&["m", "min", "minute", "minutes"], 60e3),
    (&["h", "hour", "hours"], 3600e3),
    (&["d", "day", "days"], 86_400e3),
];

/// The units of a size, in bytes; a number alone is bytes too.
pub const SIZE_UNITS: [Unit; 7] = [
    (&["", "B"], 1.0),
    (&["kB", "KB"], 1e3),
    (&["MB"], 1e6),
    (&["GB"], 1e9),
    (&["KiB", "K"], 1024.0),
    (&["MiB", "M"], 1024.0 * 1024.0),
    (&["GiB", "G"], 1024.0 * 1024.0 * 1024.0),
];

/// The longest duration: a hundred years.
pub const DURATION_MAX: Duration = Duration::from_secs(36_525 * 86_400);

fn scale(units: &[Unit], name: &str) -> Option<f64> {
    units.iter().find(|(names, _)| names.contains(&name)).map(|(_, scale)| *scale)
}

fn split(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    (&text[..at], text[at..].trim_start())
}

/// `250ms`, `90s`, `15m` (or `15min`), `48h`, `7d`, and sums of them such as `1h30m`.
pub fn duration(text: &str) -> Result<Duration, UnitProblem> {
    let problem =
        || UnitProblem(format!("`{text}` is not a duration; write a number and a unit: 250ms, 90s, 15m, 48h or 7d"));
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(problem());
    }
    let mut total = 0f64;
    while !rest.is_empty() {
        let (number, after) = split(rest);
        let number: f64 = number.parse().map_err(|_| problem())?;
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        total += number * scale(&DURATION_UNITS, &after[..end]).ok_or_else(problem)?;
        rest = after[end..].trim_start();
    }
    if total > DURATION_MAX.as_millis() as f64 {
        return Err(UnitProblem(format!("`{text}` is longer than a hundred years")));
    }
    Ok(Duration::from_millis(total.round() as u64))
}

/// `512`, `64KiB`, `1MiB`, `10kB`: bytes.
pub fn size(text: &str) -> Result<u64, UnitProblem> {
    let problem =
        || UnitProblem(format!("`{text}` is not a size; write a number and a unit: 512B, 64KiB, 256KiB or 1MiB"));
    let (number, unit) = split(text.trim());
    let number: f64 = number.parse().map_err(|_| problem())?;
    Ok((number * scale(&SIZE_UNITS, unit.trim()).ok_or_else(problem)?).round() as u64)
}

/// So many in so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// In how long.
    #[serde(serialize_with = "as_text")]
    pub per: Duration,
}

impl Rate {
    /// The distance between two, evenly spread.
    pub fn interval(self) -> Duration {
        self.per / self.count.max(1)
    }
}

/// `5/min`, `100/s`, `1000/h`, `20/10s`.
pub fn rate(text: &str) -> Result<Rate, UnitProblem> {
    let problem = || UnitProblem(format!("`{text}` is not a rate; write a count and a span: 5/min, 100/s or 20/10s"));
    let (count, per) = text.trim().split_once('/').ok_or_else(problem)?;
    let count: u32 = count.trim().parse().map_err(|_| problem())?;
    let per = per.trim();
    let per = if per.starts_with(|c: char| c.is_ascii_digit()) {
        duration(per).map_err(|_| problem())?
    } else {
        duration(&format!("1{per}")).map_err(|_| problem())?
    };
    if count == 0 || per.is_zero() {
        return Err(UnitProblem(format!("`{text}` would let nothing through; to stop a source, pause it")));
    }
    Ok(Rate { count, per })
}

/// `200-600ms`, `1s-2m`, or `500ms` for anything up to it: from the least to the most.
pub fn span(text: &str) -> Result<(Duration, Duration), UnitProblem> {
    let problem =
        || UnitProblem(format!("`{text}` is not a span of time; write the least and the most: 200-600ms or 1s-2s"));
    let Some((least, most)) = text.trim().split_once('-') else {
        return duration(text).map(|most| (Duration::ZERO, most)).map_err(|_| problem());
    };
    let most_long = duration(most).map_err(|_| problem())?;
    // The unit may stand behind the second number alone.
    let unit: String = most.chars().filter(|c| c.is_ascii_alphabetic()).collect();
    let least = least.trim();
    let least = match least.ends_with(|c: char| c.is_ascii_digit()) {
        true => duration(&format!("{least}{unit}")),
        false => duration(least),
    };
    let least = least.map_err(|_| problem())?;
    if least > most_long {
        return Err(UnitProblem(format!("`{text}` ends before it begins")));
    }
    Ok((least, most_long))
}

/// A duration as a person would write it, exactly: `1h30m`, `250ms`.
pub fn format_duration(duration: Duration) -> String {
    let mut ms = duration.as_millis();
    if ms == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (unit, scale) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        if ms >= scale {
            text.push_str(&format!("{}{unit}", ms / scale));
            ms %= scale;
        }
    }
    text
}

/// A size as a person would write it, exactly: `32MiB`, `512B`.
pub fn format_size(bytes: u64) -> String {
    let units: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, scale)| bytes >= *scale && bytes.is_multiple_of(*scale)) {
        Some((name, scale)) => format!("{}{name}", bytes / scale),
        None => format!("{bytes}B"),
    }
}

/// `1 job`, `2 jobs`, `1,204 retries`.
pub fn plural(count: u64, word: &str) -> String {
    let count_text = grouped(count);
    match word.strip_suffix('y') {
        _ if count == 1 => format!("{count_text} {word}"),
        Some(stem) => format!("{count_text} {stem}ies"),
        None => format!("{count_text} {word}s"),
    }
}

/// `1204` is `1,204`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Serializes a duration in the form that [`duration`] reads.
pub fn as_text<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_written() {
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("1h30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(duration("1.5h").unwrap(), Duration::from_secs(5400));
        assert_eq!(duration("7d").unwrap(), Duration::from_secs(7 * 86_400));
        assert_eq!(duration("10min").unwrap(), Duration::from_secs(600));
        for wrong in ["", "90", "s", "1 fortnight", "-5s", "1..2s", "1e9d", "999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_rates_are_read_as_written() {
        assert_eq!(size("256KiB").unwrap(), 262_144);
        assert_eq!(size("512").unwrap(), 512);
        assert!(size("many").is_err());
        for (bytes, text) in [(512, "512B"), (1536, "1536B"), (32 << 20, "32MiB"), (0, "0B")] {
            assert_eq!((format_size(bytes).as_str(), size(text).unwrap()), (text, bytes));
        }
        assert_eq!(rate("5/min").unwrap().interval(), Duration::from_secs(12));
        assert_eq!(rate("20/10s").unwrap().interval(), Duration::from_millis(500));
        assert!(rate("0/s").is_err());
        assert!(rate("5").is_err());
    }

    #[test]
    fn spans_are_read_as_written() {
        let ms = |least, most| (Duration::from_millis(least), Duration::from_millis(most));
        assert_eq!(span("200-600ms").unwrap(), ms(200, 600));
        assert_eq!(span("500ms-2s").unwrap(), ms(500, 2000));
        assert_eq!(span("500ms").unwrap(), ms(0, 500));
        for wrong in ["", "600-200ms", "-5ms", "5", "a-b"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_are_grouped_and_one_is_one() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let told = [plural(0, "job"), plural(1, "job"), plural(2_000, "job"), plural(1, "retry"), plural(3, "retry")];
        assert_eq!(told, ["0 jobs", "1 job", "2,000 jobs", "1 retry", "3 retries"]);
    }

    proptest::proptest! {
        #[test]
        fn what_is_formatted_reads_back(ms in 0u64..4_000_000_000_000) {
            let once = Duration::from_millis(ms);
            if ms > 100 * 36525 * 864_000 { return Ok(()); }
            proptest::prop_assert_eq!(duration(&format_duration(once)).unwrap(), once);
        }

        #[test]
        fn no_text_makes_a_reader_panic(text in ".{0,40}") {
            let _ = duration(&text);
            let _ = size(&text);
            let _ = rate(&text);
            let _ = span(&text);
        }
    }
}
