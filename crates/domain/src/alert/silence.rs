//! Whether a source is silent, against what the same hour of the week usually brings.

/// Weeks that the usual number is learned from.
pub const WEEKS: usize = 4;
/// Weeks with history before a source can be silent.
const WEEKS_MIN: usize = 3;
/// Fewer events in an hour say nothing: nights and quiet sources do not alert.
const USUAL_MIN: u64 = 10;

/// What a source has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceActivity {
    pub source: String,
    /// Events of the last 60 minutes.
    pub last_hour: u64,
    /// Events of the same hour in the weeks before, the last week first; `None` before the source was known.
    pub weeks: Vec<Option<u64>>,
}

impl SourceActivity {
    /// Events that this hour of the week usually brings: the median of the weeks. `None` if too little is known.
    pub fn usual(&self) -> Option<u64> {
        let mut known: Vec<u64> = self.weeks.iter().take(WEEKS).filter_map(|week| *week).collect();
        known.sort_unstable();
        (known.len() >= WEEKS_MIN).then(|| known[(known.len() - 1) / 2])
    }

    pub fn is_silent(&self) -> bool {
        self.last_hour == 0 && self.usual().is_some_and(|usual| usual >= USUAL_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(last_hour: u64, weeks: &[Option<u64>]) -> SourceActivity {
        SourceActivity { source: "website".into(), last_hour, weeks: weeks.to_vec() }
    }

    #[test]
    fn busy_hour_without_events_is_silent() {
        assert!(activity(0, &[Some(40), Some(50), Some(45), Some(60)]).is_silent());
        assert!(!activity(1, &[Some(40), Some(50), Some(45), Some(60)]).is_silent());
    }

    #[test]
    fn holiday_in_the_weeks_before_does_not_hide_silence() {
        assert!(activity(0, &[Some(0), Some(50), Some(45), Some(60)]).is_silent());
    }

    #[test]
    fn night_weekend_and_new_source_are_not_silent() {
        assert!(!activity(0, &[Some(0), Some(2), Some(0), Some(1)]).is_silent(), "a quiet hour");
        assert!(!activity(0, &[Some(90), Some(90), None, None]).is_silent(), "too little is known");
        assert!(!activity(0, &[]).is_silent());
    }

    #[test]
    fn month_with_weekends_alerts_only_when_the_source_stops() {
        // Hours of five weeks: 30 events per hour on working days from 8 to 18, none at other times.
        let busy = |hour: usize| (hour / 24) % 7 < 5 && (8..18).contains(&(hour % 24));
        let events = |hour: usize| if busy(hour) { 30 } else { 0 };
        let stopped_at = 5 * 168 + 10;
        let sent = |hour: usize| if hour >= stopped_at { 0 } else { events(hour) };
        let silent: Vec<usize> = (0..6 * 168)
            .filter(|hour| {
                let week = |weeks: usize| usize::checked_sub(*hour, weeks * 168).map(sent);
                activity(sent(*hour), &(1..=WEEKS).map(week).collect::<Vec<_>>()).is_silent()
            })
            .collect();
        assert_eq!(silent.first(), Some(&stopped_at), "no earlier alert, and one within the first hour");
        assert!(silent.iter().all(|hour| busy(*hour)), "{silent:?}");
    }
}
