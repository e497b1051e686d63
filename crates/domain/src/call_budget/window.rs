//! The window of a budget: a day that starts at a time of the day, or the last hours.

use std::time::Duration;

use jiff::tz::TimeZone;

use crate::policy::TimeOfDay;
use crate::time::Time;

/// Parts in which a rolling window is counted.
const PARTS: i64 = 24;

/// Calls of which time count.
#[derive(Clone, Debug, PartialEq)]
pub enum BudgetWindow {
    /// Those since the last reset.
    Daily { reset: TimeOfDay, zone: TimeZone },
    /// Those of this long before now, counted in parts: a call counts up to one part longer.
    Rolling(Duration),
}

impl BudgetWindow {
    pub fn as_str(&self) -> &'static str {
        match self {
            BudgetWindow::Daily { .. } => "daily",
            BudgetWindow::Rolling(_) => "rolling",
        }
    }

    /// Start and end of the interval in which a call at this time is counted.
    pub(super) fn interval(&self, at: Time) -> (Time, Time) {
        match self {
            BudgetWindow::Daily { reset, zone } => {
                let local = at.to_jiff().to_zoned(zone.clone());
                let start = |date: jiff::civil::Date| {
                    // If a clock change skips the time, the day starts at the first valid time after it.
                    let start = date.to_datetime(reset.time()).to_zoned(zone.clone());
                    start.map_or(at, |start| Time::from(start.timestamp()))
                };
                let (today, day) = (local.date(), Duration::from_secs(24 * 3600));
                let next = |date: jiff::civil::Date| date.tomorrow().map_or(at + day, start);
                match start(today) {
                    from if from <= at => (from, next(today).max(Time(at.0 + 1))),
                    to => (today.yesterday().map_or(at - day, start).min(at), to),
                }
            }
            BudgetWindow::Rolling(_) => {
                let part = self.part_ms();
                let from = at.0 - at.0.rem_euclid(part);
                (Time(from), Time(from + part))
            }
        }
    }

    /// Start of the oldest interval that counts.
    pub(super) fn counts_from(&self, at: Time) -> Time {
        let (from, _) = self.interval(at);
        match self {
            BudgetWindow::Daily { .. } => from,
            BudgetWindow::Rolling(_) => Time(from.0 - PARTS * self.part_ms()),
        }
    }

    /// When the calls of an interval count no longer.
    pub(super) fn forgets_at(&self, from: Time) -> Time {
        match self {
            BudgetWindow::Daily { .. } => self.interval(from).1,
            BudgetWindow::Rolling(_) => Time(from.0 + (PARTS + 1) * self.part_ms()),
        }
    }

    fn part_ms(&self) -> i64 {
        match self {
            BudgetWindow::Daily { .. } => 24 * 3_600_000,
            BudgetWindow::Rolling(window) => (i64::try_from(window.as_millis()).unwrap_or(i64::MAX) / PARTS).max(1),
        }
    }
}
