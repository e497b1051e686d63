//! Lengths of the intervals of the history, and how long each is kept.

use std::time::Duration;

use crate::time::Time;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    Minute,
    Hour,
    Day,
}

impl Step {
    pub const ALL: [Step; 3] = [Step::Minute, Step::Hour, Step::Day];

    pub fn length(self) -> Duration {
        Duration::from_secs(match self {
            Step::Minute => MINUTE,
            Step::Hour => HOUR,
            Step::Day => DAY,
        })
    }

    /// How long an interval is kept after its start.
    pub fn retention(self) -> Duration {
        Duration::from_secs(match self {
            Step::Minute => DAY,
            Step::Hour => 92 * DAY,
            Step::Day => 731 * DAY,
        })
    }

    /// Start of the interval that contains a time, in UTC.
    pub fn start(self, at: Time) -> Time {
        let length = i64::try_from(self.length().as_millis()).unwrap_or(i64::MAX);
        Time(at.0.div_euclid(length).saturating_mul(length))
    }

    /// Intervals that start before this time are removed.
    pub fn expired_before(self, now: Time) -> Time {
        self.start(now) - self.retention()
    }

    /// The shortest step whose intervals since a time are still kept and number at most `points_max`.
    pub fn finest(since: Time, now: Time, points_max: u32) -> Step {
        let fits = |step: &Step| {
            let points = now.since(since).as_secs().div_ceil(step.length().as_secs());
            step.start(since) >= step.expired_before(now) && points <= u64::from(points_max)
        };
        Step::ALL.into_iter().find(fits).unwrap_or(Step::Day)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Step::Minute => "minute",
            Step::Hour => "hour",
            Step::Day => "day",
        }
    }

    pub fn parse(word: &str) -> Option<Step> {
        Step::ALL.into_iter().find(|step| step.as_str() == word)
    }

    /// In stored rows; never changes.
    pub fn code(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_772_323_261_500);

    #[test]
    fn intervals_start_at_whole_minutes_hours_and_days() {
        let starts = Step::ALL.map(|step| step.start(NOW).to_string());
        assert_eq!(starts, ["2026-03-01T00:01:00.000Z", "2026-03-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z"]);
        assert_eq!(Step::Minute.start(Time(-1)), Time(-60_000));
    }

    #[test]
    fn finest_step_is_kept_and_within_the_points() {
        let ago = |hours: u64| NOW - Duration::from_secs(hours * HOUR);
        assert_eq!(Step::finest(ago(1), NOW, 1500), Step::Minute);
        assert_eq!(Step::finest(ago(1), NOW, 30), Step::Hour);
        assert_eq!(Step::finest(ago(48), NOW, 1500), Step::Hour);
        assert_eq!(Step::finest(ago(24 * 100), NOW, 5000), Step::Day);
    }
}
