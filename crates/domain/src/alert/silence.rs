//! Whether a source is silent, against what the same hour of the week usually brings.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::ToSpan;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;

use crate::time::Time;

/// Weeks that the usual number is learned from.
pub const WEEKS: usize = 4;
/// Weeks with history before a source can be silent.
const WEEKS_MIN: usize = 3;
/// A source is silent after this many times the longest gap of the hour.
const GAPS: u32 = 3;
/// No silence is shorter.
const GAP_MIN: Duration = Duration::from_secs(5 * 60);
/// No silence that is waited for is longer; also the gap of an hour whose gaps are not known yet.
const GAP_MAX: Duration = Duration::from_secs(60 * 60);

/// What is known of an hour that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HourFacts {
    pub events: u64,
    /// Longest time without an event within the hour; `None` if it was not recorded.
    pub longest_gap: Option<Duration>,
}

/// What a source has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceActivity {
    pub source: String,
    /// Time without an event that the node has watched.
    pub quiet: Duration,
    /// Whether its alert fires and it has sent nothing since. Then it is silent until it sends, whatever the hour and however short the
    /// node has watched it.
    pub is_known_silent: bool,
    /// Time since the hour began.
    pub hour_elapsed: Duration,
    /// This hour in the weeks before, the last week first; `None` before the source was known.
    pub weeks: Vec<Option<HourFacts>>,
    /// The hour before, in the same weeks.
    pub weeks_before: Vec<Option<HourFacts>>,
}

/// Events that an hour usually brings: the median of the weeks. `None` if too little is known.
fn usual(weeks: &[Option<HourFacts>]) -> Option<u64> {
    let mut known: Vec<u64> = weeks.iter().take(WEEKS).flatten().map(|week| week.events).collect();
    known.sort_unstable();
    (known.len() >= WEEKS_MIN).then(|| known[(known.len() - 1) / 2])
}

impl SourceActivity {
    /// Time without an event from which the source is silent, learned from the same hour of the weeks before.
    pub fn gap(&self) -> Duration {
        let busy = self.weeks.iter().take(WEEKS).flatten().filter(|week| week.events > 0);
        let gaps: Vec<Duration> = busy.filter_map(|week| week.longest_gap).collect();
        match gaps.iter().max() {
            Some(longest) if gaps.len() >= WEEKS_MIN => (*longest * GAPS).clamp(GAP_MIN, GAP_MAX),
            _ => GAP_MAX,
        }
    }

    /// The usual number of events, if the source is silent. Hours that usually bring fewer than `events_min` say nothing: nights
    /// and quiet sources do not alert.
    pub fn silent(&self, events_min: u64) -> Option<u64> {
        if self.is_known_silent {
            return Some(usual(&self.weeks).unwrap_or_default());
        }
        let usual_now = usual(&self.weeks).filter(|usual| *usual >= events_min)?;
        // Silence before a busy hour is no silence: the hour before counts only if it is busy too.
        let is_busy_before = usual(&self.weeks_before).is_some_and(|usual| usual >= events_min);
        let watched = self.hour_elapsed + if is_busy_before { GAP_MAX } else { Duration::ZERO };
        (self.quiet.min(watched) >= self.gap()).then_some(usual_now)
    }

    /// Whole minutes without an event.
    pub fn quiet_minutes(&self) -> Duration {
        Duration::from_secs(self.quiet.as_secs() / 60 * 60)
    }

    #[cfg(test)]
    pub(super) fn stopped(source: &str, usual: u64) -> SourceActivity {
        let weeks = vec![Some(HourFacts { events: usual, longest_gap: None }); WEEKS];
        let (quiet, hour_elapsed, source) = (GAP_MAX, GAP_MAX / 2, source.to_owned());
        SourceActivity { source, quiet, is_known_silent: false, hour_elapsed, weeks_before: weeks.clone(), weeks }
    }
}

/// Days on which sources send as they do on Sundays, in a time zone.
#[derive(Clone, Debug)]
pub struct Holidays {
    pub zone: TimeZone,
    pub days: BTreeSet<Date>,
}

impl Default for Holidays {
    fn default() -> Holidays {
        Holidays { zone: TimeZone::UTC, days: BTreeSet::new() }
    }
}

impl PartialEq for Holidays {
    fn eq(&self, other: &Holidays) -> bool {
        self.zone == other.zone && self.days == other.days
    }
}

impl Holidays {
    /// The same time of day in the weeks before, the last week first. A holiday is compared with Sundays.
    pub fn same_time(&self, at: Time) -> Vec<Time> {
        let local = at.to_jiff().to_zoned(self.zone.clone());
        let is_holiday = self.days.contains(&local.date()) && local.weekday() != Weekday::Sunday;
        let back = if is_holiday { i64::from(local.weekday().to_sunday_zero_offset()) } else { 7 };
        let days = (0..WEEKS as i64).map(|week| back + 7 * week);
        days.filter_map(|days| local.checked_sub(days.days()).ok()).map(|then| Time::from(then.timestamp())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::zone;
    use crate::random::Random;

    const MIN: u64 = 10;
    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;
    const WEEK: i64 = 168 * HOUR;
    /// Monday, 2 March 2026, 00:00 UTC.
    const START: i64 = 1_772_409_600_000;

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(minutes * 60)
    }

    fn activity(quiet: u64, weeks: &[Option<u64>], gap: Option<u64>) -> SourceActivity {
        let fact = |events: &Option<u64>| events.map(|events| HourFacts { events, longest_gap: gap.map(minutes) });
        let weeks: Vec<_> = weeks.iter().map(fact).collect();
        SourceActivity {
            source: "website".into(),
            quiet: minutes(quiet),
            is_known_silent: false,
            hour_elapsed: minutes(59),
            weeks_before: weeks.clone(),
            weeks,
        }
    }

    #[test]
    fn busy_hour_without_events_is_silent() {
        let weeks = [Some(40), Some(50), Some(45), Some(60)];
        assert_eq!(activity(60, &weeks, None).silent(MIN), Some(45));
        assert_eq!(activity(59, &weeks, None).silent(MIN), None, "gaps are not known yet: an hour");
        assert_eq!(activity(12, &weeks, Some(4)).silent(MIN), Some(45), "three times the longest gap");
        assert_eq!(activity(11, &weeks, Some(4)).silent(MIN), None);
        assert_eq!(activity(4, &weeks, Some(0)).silent(MIN), None, "never below five minutes");
    }

    #[test]
    fn holiday_in_the_weeks_before_does_not_hide_silence() {
        assert!(activity(60, &[Some(0), Some(50), Some(45), Some(60)], None).silent(MIN).is_some());
    }

    #[test]
    fn night_weekend_and_new_source_are_not_silent() {
        assert_eq!(activity(600, &[Some(0), Some(2), Some(0), Some(1)], None).silent(MIN), None, "a quiet hour");
        assert_eq!(activity(600, &[Some(90), Some(90), None, None], None).silent(MIN), None, "too little is known");
        assert_eq!(activity(600, &[], None).silent(MIN), None);
    }

    #[test]
    fn holiday_is_compared_with_sundays_in_its_zone() {
        let zone = zone("Europe/Berlin").unwrap();
        let days = BTreeSet::from([jiff::civil::date(2026, 4, 6)]);
        let holidays = Holidays { zone, days };
        let text = |at: &str| -> Vec<String> {
            holidays.same_time(Time::parse(at).unwrap()).iter().map(|at| at.to_string()[..16].to_owned()).collect()
        };
        // 10:00 in summer time; the weeks before 29 March had 10:00 at 09:00 UTC.
        let sundays = ["2026-04-05T08:00", "2026-03-29T08:00", "2026-03-22T09:00", "2026-03-15T09:00"];
        assert_eq!(text("2026-04-06T08:00:00Z"), sundays);
        let tuesdays = ["2026-03-31T08:00", "2026-03-24T09:00", "2026-03-17T09:00", "2026-03-10T09:00"];
        assert_eq!(text("2026-04-07T08:00:00Z"), tuesdays);
    }

    /// Events of a source by minute, and what the node learns of them.
    struct Month {
        events: BTreeSet<i64>,
        holidays: Holidays,
    }

    impl Month {
        /// 30 events per hour on working days from 8 to 18 at random times, none on a holiday, and none from `stopped` on.
        fn new(seed: u64, weeks: i64, holiday: Date, stopped: i64) -> Month {
            let mut random = Random::seeded(seed);
            let holidays = Holidays { days: BTreeSet::from([holiday]), ..Holidays::default() };
            let mut events = BTreeSet::new();
            for minute in 0..weeks * WEEK / MINUTE {
                let at = START + minute * MINUTE;
                let local = Time(at).to_jiff().to_zoned(TimeZone::UTC);
                let is_open = local.weekday().to_monday_zero_offset() < 5 && (8..18).contains(&local.hour());
                // A chance per minute of 1 - 1/e^0.5: 30 events per hour that do not know of each other.
                if is_open && local.date() != holiday && at < stopped && random.chance(0.3935) {
                    events.insert(at);
                }
            }
            Month { events, holidays }
        }

        fn facts(&self, hour: i64) -> Option<HourFacts> {
            if hour < START {
                return None;
            }
            let mut gap = 0;
            let mut last = hour;
            for at in self.events.range(hour..hour + HOUR).copied().chain([hour + HOUR]) {
                gap = gap.max(at - last);
                last = at;
            }
            let events = self.events.range(hour..hour + HOUR).count() as u64;
            Some(HourFacts { events, longest_gap: Some(Duration::from_millis(gap as u64)) })
        }

        fn activity(&self, now: i64) -> SourceActivity {
            let hour = now.div_euclid(HOUR) * HOUR;
            let weeks = |hour: i64| {
                let hours = self.holidays.same_time(Time(hour));
                hours.iter().map(|at| self.facts(at.0.div_euclid(HOUR) * HOUR)).collect()
            };
            let last = self.events.range(..=now).next_back().copied().unwrap_or(START);
            SourceActivity {
                source: "website".into(),
                quiet: Duration::from_millis((now - last) as u64),
                is_known_silent: false,
                hour_elapsed: Duration::from_millis((now - hour) as u64),
                weeks: weeks(hour),
                weeks_before: weeks(hour - HOUR),
            }
        }

        fn silent(&self, from: i64, until: i64) -> Vec<i64> {
            let minutes = (0..(until - from) / MINUTE).map(|minute| from + minute * MINUTE);
            minutes.filter(|now| self.activity(*now).silent(MIN).is_some()).collect()
        }
    }

    #[test]
    fn month_with_weekends_and_a_holiday_alerts_only_when_the_source_stops() {
        let holiday = jiff::civil::date(2026, 4, 14);
        // Wednesday of the eighth week, 10:10.
        let stopped = START + 7 * WEEK + 2 * 24 * HOUR + 10 * HOUR + 10 * MINUTE;
        for seed in 1..=2 {
            let month = Month::new(seed, 8, holiday, stopped);
            assert_eq!(
                month.silent(START + 4 * WEEK, stopped),
                Vec::<i64>::new(),
                "no false alarm in a month, seed {seed}"
            );
            let noticed = month.silent(stopped, stopped + 2 * HOUR);
            let last = month.events.range(..stopped).next_back().copied().unwrap();
            let after = Duration::from_millis((noticed[0] - last) as u64);
            let gap = month.activity(noticed[0]).gap();
            assert!(after <= gap + minutes(1), "noticed after {after:?}; the learned gap is {gap:?}, seed {seed}");
            assert!(gap < minutes(60), "the gap is learned: {gap:?}");
            let later = month.silent(stopped, START + 8 * WEEK);
            let hour = |at: &i64| Time(*at).to_jiff().to_zoned(TimeZone::UTC).hour();
            assert!(later.iter().all(|at| (8..18).contains(&hour(at))), "nights and evenings are not silence");
        }
    }
}
