//! Cron schedules of workers.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;

use crate::policy;

use crate::time::Time;

/// A cron rule such as `*/10 * * * *` in a time zone.
#[derive(Clone)]
pub struct Schedule {
    rule: croner::Cron,
    zone: TimeZone,
    /// Rule and zone as written; two schedules with the same text are equal.
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleProblem {
    #[error("`{rule}` is not a cron rule: {problem}")]
    Rule { rule: String, problem: String },
    #[error("unknown time zone `{0}`; use an IANA name such as Europe/Berlin")]
    Zone(String),
    #[error("cron rule `{0}` matches no date")]
    Never(String),
}

impl Schedule {
    /// Parses a rule of five fields (minute, hour, day of month, month, day of week), or of six with the second first, and an
    /// IANA zone name.
    pub fn parse(rule: &str, zone: &str) -> Result<Schedule, ScheduleProblem> {
        let invalid = |problem: String| ScheduleProblem::Rule { rule: rule.to_owned(), problem };
        if !(5..=6).contains(&rule.split_whitespace().count()) && !rule.trim().starts_with('@') {
            return Err(invalid("it must have five fields: minute, hour, day of month, month, day of week".to_owned()));
        }
        let parsed = croner::Cron::from_str(rule).map_err(|error| invalid(error.to_string()))?;
        let time_zone = policy::zone(zone).ok_or_else(|| ScheduleProblem::Zone(zone.to_owned()))?;
        let schedule = Schedule { rule: parsed, zone: time_zone, text: format!("{} {zone}", rule.trim()) };
        // Any start works: a rule that matches at all matches within a few years.
        match schedule.next(Time(1_767_225_600_000)) {
            Some(_) => Ok(schedule),
            None => Err(ScheduleProblem::Never(rule.to_owned())),
        }
    }

    /// The first match after this time.
    pub fn next(&self, after: Time) -> Option<Time> {
        let found = self.rule.find_next_occurrence(&after.to_jiff().to_zoned(self.zone.clone()), false);
        found.ok().map(|at| Time::from(at.timestamp()))
    }

    /// The last match at or before this time.
    pub fn last(&self, until: Time) -> Option<Time> {
        let found = self.rule.find_previous_occurrence(&until.to_jiff().to_zoned(self.zone.clone()), true);
        found.ok().map(|at| Time::from(at.timestamp()))
    }

    /// Rule and zone as written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Schedule) -> bool {
        self.text == other.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time::parse(text).unwrap()
    }

    #[test]
    fn next_excludes_and_last_includes_the_given_time() {
        let schedule = Schedule::parse("*/10 * * * *", "UTC").unwrap();
        assert_eq!(schedule.next(at("2026-11-15T12:00:00Z")), Some(at("2026-11-15T12:10:00Z")));
        assert_eq!(schedule.last(at("2026-11-15T12:09:59.999Z")), Some(at("2026-11-15T12:00:00Z")));
        assert_eq!(schedule.last(at("2026-11-15T12:10:00Z")), Some(at("2026-11-15T12:10:00Z")));
    }

    #[test]
    fn rule_applies_in_its_time_zone() {
        let schedule = Schedule::parse("0 9 * * MON-FRI", "Europe/Berlin").unwrap();
        assert_eq!(schedule.next(at("2026-11-13T12:00:00Z")), Some(at("2026-11-16T08:00:00Z")));
        assert_eq!(schedule.next(at("2026-07-01T00:00:00Z")), Some(at("2026-07-01T07:00:00Z")));
    }

    #[test]
    fn repeated_hour_matches_once_and_skipped_hour_matches_later() {
        let nightly = Schedule::parse("30 2 * * *", "Europe/Berlin").unwrap();
        let night = |from: &str| nightly.next(at(from)).unwrap().to_string();
        assert_eq!(night("2026-10-24T12:00:00Z"), "2026-10-25T00:30:00.000Z");
        assert_eq!(night("2026-10-25T00:30:00.000Z"), "2026-10-26T01:30:00.000Z", "not again in the repeated hour");
        assert!(night("2026-03-28T12:00:00Z").starts_with("2026-03-29T01:"), "{}", night("2026-03-28T12:00:00Z"));
    }

    #[test]
    fn problems_name_the_cause() {
        assert!(Schedule::parse("* * *", "UTC").unwrap_err().to_string().contains("five fields"));
        assert!(Schedule::parse("61 * * * *", "UTC").is_err());
        assert!(Schedule::parse("0 0 30 2 *", "UTC").unwrap_err().to_string().contains("matches no date"));
        assert!(Schedule::parse("* * * * *", "Mars/Olympus").unwrap_err().to_string().contains("Mars"));
        assert!(Schedule::parse("@daily", "UTC").is_ok());
    }
}
