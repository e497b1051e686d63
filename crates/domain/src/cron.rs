//! When a worker runs by the clock.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;

use crate::policy;

use crate::time::Time;

/// A rule such as `*/10 * * * *` in a time zone.
#[derive(Clone)]
pub struct Schedule {
    rule: croner::Cron,
    zone: TimeZone,
    /// The rule and the zone as they were written: what is the same schedule has the same.
    text: String,
}

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleProblem {
    /// The rule cannot be read.
    #[error("`{rule}` is not a cron rule: {problem}")]
    Rule {
        /// As it was written.
        rule: String,
        /// What is wrong.
        problem: String,
    },
    /// Nobody knows the zone.
    #[error("nobody knows the time zone `{0}`")]
    Zone(String),
    /// The rule never applies.
    #[error("`{0}` never comes to pass")]
    Never(String),
}

impl Schedule {
    /// Reads a rule of five fields (minute, hour, day of the month, month, day of the week), or six with the second in front,
    /// and the name of a time zone.
    pub fn parse(rule: &str, zone: &str) -> Result<Schedule, ScheduleProblem> {
        let bad = |problem: String| ScheduleProblem::Rule { rule: rule.to_owned(), problem };
        if !(5..=6).contains(&rule.split_whitespace().count()) && !rule.trim().starts_with('@') {
            return Err(bad("it has five fields: minute, hour, day of the month, month, day of the week".to_owned()));
        }
        let parsed = croner::Cron::from_str(rule).map_err(|error| bad(error.to_string()))?;
        let known = policy::zone(zone).ok_or_else(|| ScheduleProblem::Zone(zone.to_owned()))?;
        let schedule = Schedule { rule: parsed, zone: known, text: format!("{} {zone}", rule.trim()) };
        // The year does not matter: a rule that applies at all applies within a few of them.
        match schedule.next(Time(1_767_225_600_000)) {
            Some(_) => Ok(schedule),
            None => Err(ScheduleProblem::Never(rule.to_owned())),
        }
    }

    /// The first moment after this one.
    pub fn next(&self, after: Time) -> Option<Time> {
        let found = self.rule.find_next_occurrence(&after.to_jiff().to_zoned(self.zone.clone()), false);
        found.ok().map(|at| Time::from(at.timestamp()))
    }

    /// The last moment up to this one.
    pub fn last(&self, until: Time) -> Option<Time> {
        let found = self.rule.find_previous_occurrence(&until.to_jiff().to_zoned(self.zone.clone()), true);
        found.ok().map(|at| Time::from(at.timestamp()))
    }

    /// As it was written.
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
    fn every_ten_minutes_is_every_ten_minutes() {
        let schedule = Schedule::parse("*/10 * * * *", "UTC").unwrap();
        assert_eq!(schedule.next(at("2026-11-15T12:00:00Z")), Some(at("2026-11-15T12:10:00Z")));
        assert_eq!(schedule.last(at("2026-11-15T12:09:59.999Z")), Some(at("2026-11-15T12:00:00Z")));
        assert_eq!(schedule.last(at("2026-11-15T12:10:00Z")), Some(at("2026-11-15T12:10:00Z")));
    }

    #[test]
    fn a_zone_says_what_nine_in_the_morning_is() {
        let schedule = Schedule::parse("0 9 * * MON-FRI", "Europe/Berlin").unwrap();
        assert_eq!(schedule.next(at("2026-11-13T12:00:00Z")), Some(at("2026-11-16T08:00:00Z")));
        assert_eq!(schedule.next(at("2026-07-01T00:00:00Z")), Some(at("2026-07-01T07:00:00Z")));
    }

    #[test]
    fn an_hour_that_there_is_twice_is_one_slot_and_one_that_there_is_not_comes_later() {
        let nightly = Schedule::parse("30 2 * * *", "Europe/Berlin").unwrap();
        let night = |from: &str| nightly.next(at(from)).unwrap().to_string();
        assert_eq!(night("2026-10-24T12:00:00Z"), "2026-10-25T00:30:00.000Z");
        assert_eq!(night("2026-10-25T00:30:00.000Z"), "2026-10-26T01:30:00.000Z", "and not an hour later once more");
        assert!(night("2026-03-28T12:00:00Z").starts_with("2026-03-29T01:"), "{}", night("2026-03-28T12:00:00Z"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(Schedule::parse("* * *", "UTC").unwrap_err().to_string().contains("five fields"));
        assert!(Schedule::parse("61 * * * *", "UTC").is_err());
        assert!(Schedule::parse("0 0 30 2 *", "UTC").unwrap_err().to_string().contains("never"));
        assert!(Schedule::parse("* * * * *", "Mars/Olympus").unwrap_err().to_string().contains("Mars"));
        assert!(Schedule::parse("@daily", "UTC").is_ok());
    }
}
