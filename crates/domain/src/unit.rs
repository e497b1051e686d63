//! Parses and formats durations (`90s`, `48h`), sizes (`256KiB`), rates (`5/min`) and counts.

use std::time::Duration;

use serde::Serialize;

/// Why a text is not a quantity. The message shows valid forms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitProblem(String);

/// All names of a unit, and its size in base units.
pub(crate) type Unit = (&'static [&'static str], f64);

/// Units of a duration, in milliseconds.
pub(crate) const DURATION_UNITS: [Unit; 5] = [
    (&["ms"], 1.0),
    (&["s", "sec", "second", "seconds"], 1e3),
    (&["m", "min", "minute", "minutes"], 60e3),
    (&["h", "hour", "hours"], 3600e3),
    (&["d", "day", "days"], 86_400e3),
];

/// Units of a size, in bytes; a number without a unit is in bytes.
pub(crate) const SIZE_UNITS: [Unit; 7] = [
    (&["", "B"], 1.0),
    (&["kB", "KB"], 1e3),
    (&["MB"], 1e6),
    (&["GB"], 1e9),
    (&["KiB", "K"], 1024.0),
    (&["MiB", "M"], 1024.0 * 1024.0),
    (&["GiB", "G"], 1024.0 * 1024.0 * 1024.0),
];

/// A hundred years.
pub const DURATION_MAX: Duration = Duration::from_secs(36_525 * 86_400);

fn scale(units: &[Unit], name: &str) -> Option<f64> {
    units.iter().find(|(names, _)| names.contains(&name)).map(|(_, scale)| *scale)
}

fn split(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    (&text[..at], text[at..].trim_start())
}

/// Parses `250ms`, `90s`, `15m` (or `15min`), `48h`, `7d`, and sums of them such as `1h30m`.
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
        return Err(UnitProblem(format!("`{text}` exceeds the maximum of 100 years")));
    }
    Ok(Duration::from_millis(total.round() as u64))
}

/// Parses `512`, `64KiB`, `1MiB`, `10kB` into bytes.
pub fn size(text: &str) -> Result<u64, UnitProblem> {
    let problem =
        || UnitProblem(format!("`{text}` is not a size; write a number and a unit: 512B, 64KiB, 256KiB or 1MiB"));
    let (number, unit) = split(text.trim());
    let number: f64 = number.parse().map_err(|_| problem())?;
    Ok((number * scale(&SIZE_UNITS, unit.trim()).ok_or_else(problem)?).round() as u64)
}

/// `count` per `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rate {
    pub count: u32,
    #[serde(serialize_with = "as_text")]
    pub per: Duration,
}

impl Rate {
    /// Interval between two, evenly spread.
    pub fn interval(self) -> Duration {
        self.per / self.count.max(1)
    }
}

/// Parses `5/min`, `100/s`, `1000/h`, `20/10s`.
pub fn rate(text: &str) -> Result<Rate, UnitProblem> {
    let problem =
        || UnitProblem(format!("`{text}` is not a rate; write a count and an interval: 5/min, 100/s or 20/10s"));
    let (count, per) = text.trim().split_once('/').ok_or_else(problem)?;
    let count: u32 = count.trim().parse().map_err(|_| problem())?;
    let per = per.trim();
    let per = if per.starts_with(|c: char| c.is_ascii_digit()) {
        duration(per).map_err(|_| problem())?
    } else {
        duration(&format!("1{per}")).map_err(|_| problem())?
    };
    if count == 0 || per.is_zero() {
        return Err(UnitProblem(format!("`{text}` allows nothing; to stop a source, pause it")));
    }
    Ok(Rate { count, per })
}

/// Parses a range of durations: `200-600ms`, `1s-2m`, or `500ms` for 0 to 500 ms. Minimum and maximum.
pub fn span(text: &str) -> Result<(Duration, Duration), UnitProblem> {
    let problem = || {
        UnitProblem(format!("`{text}` is not a range of durations; write a minimum and a maximum: 200-600ms or 1s-2s"))
    };
    let Some((min, max)) = text.trim().split_once('-') else {
        return duration(text).map(|max| (Duration::ZERO, max)).map_err(|_| problem());
    };
    let longest = duration(max).map_err(|_| problem())?;
    // The unit may follow the second number only.
    let unit: String = max.chars().filter(|c| c.is_ascii_alphabetic()).collect();
    let min = min.trim();
    let shortest = match min.ends_with(|c: char| c.is_ascii_digit()) {
        true => duration(&format!("{min}{unit}")),
        false => duration(min),
    };
    let shortest = shortest.map_err(|_| problem())?;
    if shortest > longest {
        return Err(UnitProblem(format!("`{text}`: the minimum exceeds the maximum")));
    }
    Ok((shortest, longest))
}

/// Exact, in the form that [`duration`] parses: `1h30m`, `250ms`.
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

/// Exact, in the form that [`size`] parses: `32MiB`, `512B`.
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
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Serializes a duration in the form that [`duration`] parses.
pub fn as_text<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_parses() {
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
    fn size_and_rate_parse() {
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
    fn span_parses() {
        let ms = |min, max| (Duration::from_millis(min), Duration::from_millis(max));
        assert_eq!(span("200-600ms").unwrap(), ms(200, 600));
        assert_eq!(span("500ms-2s").unwrap(), ms(500, 2000));
        assert_eq!(span("500ms").unwrap(), ms(0, 500));
        for wrong in ["", "600-200ms", "-5ms", "5", "a-b"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_are_grouped_and_pluralized() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let texts = [plural(0, "job"), plural(1, "job"), plural(2_000, "job"), plural(1, "retry"), plural(3, "retry")];
        assert_eq!(texts, ["0 jobs", "1 job", "2,000 jobs", "1 retry", "3 retries"]);
    }

    proptest::proptest! {
        #[test]
        fn formatted_duration_parses_back(ms in 0u64..4_000_000_000_000) {
            let once = Duration::from_millis(ms);
            if ms > 100 * 36525 * 864_000 { return Ok(()); }
            proptest::prop_assert_eq!(duration(&format_duration(once)).unwrap(), once);
        }

        #[test]
        fn parsers_never_panic(text in ".{0,40}") {
            let _ = duration(&text);
            let _ = size(&text);
            let _ = rate(&text);
            let _ = span(&text);
        }
    }
}
