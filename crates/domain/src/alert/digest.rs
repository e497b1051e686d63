//! The daily digest of dead letters: when it is due, and what it says.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::notice::{Notice, NoticeEvent};
use crate::mask;
use crate::policy::TimeOfDay;
use crate::time::Time;
use crate::unit::{grouped, plural};

/// Type of the events that carry a digest; a playbook with `on: alert.digest` sends them.
pub const DIGEST_EVENT_TYPE: &str = "alert.digest";
/// Causes that a digest lists; further ones are counted.
pub const REASONS_MAX: usize = 10;

/// When the digest is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct DigestSettings {
    pub at: TimeOfDay,
    pub zone: TimeZone,
    /// Whether a day without dead letters is told too.
    pub when_empty: bool,
}

/// Dead letters with one class and code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestReason {
    pub class: String,
    pub code: String,
    pub count: u64,
}

impl DigestSettings {
    /// The day whose digest is due: from its time of day to the end of the local day. A node that was down at that time sends it
    /// later on the same day. A clock that is set back or an hour that is repeated gives the same day again, whose digest has the
    /// same key.
    pub fn due(&self, now: Time) -> Option<Date> {
        let local = now.to_jiff().to_zoned(self.zone.clone());
        let minute = local.hour() as u32 * 60 + local.minute() as u32;
        (minute >= self.at.0).then(|| local.date())
    }
}

/// The digest of a day. Its key is the day, so it is accepted once. Without dead letters nobody is told unless that is asked for: the
/// day is recorded all the same, so that a dead letter of the afternoon is told the next morning.
pub fn digest(settings: &DigestSettings, day: Date, reasons: &[DigestReason], now: Time) -> NoticeEvent {
    let total: u64 = reasons.iter().map(|reason| reason.count).sum();
    let listed: Vec<Value> = reasons.iter().take(REASONS_MAX).map(entry).collect();
    let text = match total {
        0 => format!("Dead letters on {day}: none."),
        _ => {
            let mut lines = vec![format!("Dead letters on {day}: {}.", grouped(total))];
            lines.extend(reasons.iter().take(REASONS_MAX).map(line));
            if reasons.len() > REASONS_MAX {
                lines.push(format!("… and {}", plural((reasons.len() - REASONS_MAX) as u64, "further cause")));
            }
            lines.push("Details: sluice dlq show JOB. Drop: sluice dlq drop JOB --reason TEXT.".to_owned());
            lines.join("\n")
        }
    };
    NoticeEvent {
        event_type: DIGEST_EVENT_TYPE,
        key_text: format!("digest:{day}"),
        lane: "digest".to_owned(),
        occurred_at: None,
        attributes: json!({
            "day": day.to_string(),
            "since": now,
            "dead_letters": total,
            "reasons": listed,
            "title": Notice::shorten(&format!("{} dead letters on {day}", grouped(total))),
            "text": text,
        }),
        is_told: total > 0 || settings.when_empty,
    }
}

/// Characters of a code; the rest is left out.
const CODE_CHARACTERS_MAX: usize = 60;

/// A code as it may be told: destinations write what they like into it.
fn shown(code: &str) -> String {
    mask::text(code).chars().take(CODE_CHARACTERS_MAX).collect()
}

/// Whether a code may be part of a command: it is shown as it is, and has only letters, digits and a few marks.
fn is_word(code: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    shown(code) == code && !code.is_empty() && code.chars().all(is_plain) && !code.starts_with('-')
}

fn commands(reason: &DigestReason) -> (String, String) {
    let DigestReason { class, code, .. } = reason;
    let one = "sluice replay JOB --reason TEXT".to_owned();
    match (is_word(code), class.is_empty()) {
        (true, _) => (format!("sluice dlq --code {code}"), format!("sluice replay --filter code={code} --reason TEXT")),
        // A changed code would find other dead letters, or none.
        (false, false) => (format!("sluice dlq --class {class}"), one),
        (false, true) => ("sluice dlq".to_owned(), one),
    }
}

fn entry(reason: &DigestReason) -> Value {
    let (list, replay) = commands(reason);
    json!({ "class": reason.class, "code": shown(&reason.code), "count": reason.count, "list": list, "replay": replay })
}

fn line(reason: &DigestReason) -> String {
    let (list, replay) = commands(reason);
    let name = if reason.code.is_empty() { "without a code".to_owned() } else { shown(&reason.code) };
    format!("{} {} {name}: {list}; {replay}", grouped(reason.count), reason.class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::zone;
    use std::time::Duration;

    fn settings() -> DigestSettings {
        DigestSettings { at: TimeOfDay(150), zone: zone("Europe/Berlin").unwrap(), when_empty: false }
    }

    fn at(text: &str) -> Time {
        Time::parse(text).unwrap()
    }

    #[test]
    fn every_local_day_has_one_key_over_clock_changes() {
        // 02:30 does not exist on 29 March and exists twice on 25 October 2026.
        for (from, hours) in [("2026-03-27T00:00:00Z", 96), ("2026-10-23T00:00:00Z", 96)] {
            let mut keys: Vec<String> = Vec::new();
            for minute in 0..hours * 60 {
                let now = at(from) + Duration::from_secs(minute * 60);
                if let Some(day) = settings().due(now) {
                    let key = digest(&settings(), day, &[], now).key_text;
                    if keys.last() != Some(&key) {
                        assert!(!keys.contains(&key), "{key} again");
                        keys.push(key);
                    }
                }
            }
            assert!((4..=5).contains(&keys.len()), "{keys:?}");
        }
        assert_eq!(settings().due(at("2026-11-18T01:29:00Z")), None);
        assert_eq!(settings().due(at("2026-11-18T01:30:00Z")), Some(jiff::civil::date(2026, 11, 18)));
    }

    #[test]
    fn digest_that_is_accepted_again_after_a_restart_is_a_duplicate_and_no_key_clash() {
        let day = jiff::civil::date(2026, 11, 18);
        let accept = |reasons: &[DigestReason], now: Time| {
            digest(&settings(), day, reasons, now).accept(&crate::config::Config::default(), &"r1".into(), now)
        };
        let reason = DigestReason { class: "permanent".into(), code: "timeout".into(), count: 3 };
        let (first, again) = (accept(&[], Time(0)), accept(&[reason], Time(60_000)));
        assert_eq!((first.key, first.fingerprint), (again.key, again.fingerprint));
    }

    #[test]
    fn digest_has_the_causes_and_the_commands() {
        let reason = |code: &str, count| DigestReason { class: "permanent".into(), code: code.into(), count };
        let day = jiff::civil::date(2026, 11, 18);
        let event = digest(&settings(), day, &[reason("timeout", 1_200), reason("x; rm -rf /", 1)], Time(0));
        let text = event.attributes["text"].as_str().unwrap();
        assert!(text.starts_with("Dead letters on 2026-11-18: 1,201."), "{text}");
        assert!(text.contains("sluice replay --filter code=timeout --reason TEXT"), "{text}");
        let listed =
            text.contains("1 permanent x; rm -rf /: sluice dlq --class permanent; sluice replay JOB --reason TEXT");
        assert!(listed, "a code of a destination is no shell text, and a part of it is another code: {text}");
        let echoed = digest(&settings(), day, &[reason("ada@example.com exists", 1)], Time(0)).attributes.to_string();
        assert!(!echoed.contains("ada@") && echoed.contains("a***@example.com exists"), "{echoed}");
        assert!(event.is_told);
        let empty = digest(&settings(), day, &[], Time(0));
        assert!(!empty.is_told && empty.key_text == event.key_text);
        assert!(digest(&DigestSettings { when_empty: true, ..settings() }, day, &[], Time(0)).is_told);
    }
}
