//! Quiet hours: a daily interval in the contact's time zone.

use std::fmt;
use std::sync::LazyLock;

use jiff::civil;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::event::scalar;
use crate::template::{Expression, Scope, TemplateProblem};
use crate::time::Time;

/// Bundled, so that every machine knows the same zones.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Finds a time zone by its IANA name, such as `Europe/Berlin`.
pub fn zone(name: &str) -> Option<TimeZone> {
    ZONES.get(name.trim()).ok()
}

/// IANA names of all zones, sorted.
pub fn zones() -> impl Iterator<Item = &'static str> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut names: Vec<String> = ZONES.available().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names
    });
    NAMES.iter().map(String::as_str)
}

/// Time of day, in minutes since midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(pub u32);

impl TimeOfDay {
    /// Parses `21:00`. `24:00` is midnight.
    pub fn parse(text: &str) -> Option<TimeOfDay> {
        let (hour, minute) = text.trim().split_once(':')?;
        let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok().filter(|_| minute.len() == 2)?);
        (minute < 60 && (hour < 24 || (hour, minute) == (24, 0))).then_some(TimeOfDay(hour % 24 * 60 + minute))
    }

    pub(crate) fn time(self) -> civil::Time {
        civil::time((self.0 / 60) as i8, (self.0 % 60) as i8, 0, 0)
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// Daily interval in which no effect is sent.
#[derive(Clone, Debug)]
pub struct QuietHours {
    /// Inclusive.
    pub from: TimeOfDay,
    /// Exclusive. If it is before `from`, it is on the next day.
    pub to: TimeOfDay,
    /// Gives the contact's zone.
    pub zone: Option<Expression>,
    /// Zone of contacts whose zone is missing or unknown.
    pub fallback: TimeZone,
    pub action: QuietAction,
}

/// What to do with an effect within quiet hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuietAction {
    /// The effect is skipped and recorded as a no-op.
    Skip,
    /// Defer it to the end of the quiet hours.
    Wait,
}

/// Whether quiet hours apply now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuietStatus {
    /// Outside, in this zone.
    Inactive(String),
    Active {
        until: Time,
        zone: String,
    },
}

impl QuietHours {
    /// Evaluates the quiet hours at the contact's local time.
    pub fn evaluate(&self, scope: &Scope, now: Time) -> Result<QuietStatus, TemplateProblem> {
        let name = match &self.zone {
            Some(expression) => expression.evaluate(scope)?.as_ref().and_then(scalar),
            None => None,
        };
        let zone = name.as_deref().and_then(zone).unwrap_or_else(|| self.fallback.clone());
        Ok(self.status_at(&zone, now))
    }

    fn status_at(&self, zone: &TimeZone, now: Time) -> QuietStatus {
        let name = zone.iana_name().unwrap_or("UTC").to_owned();
        let local = now.to_jiff().to_zoned(zone.clone());
        let minute = TimeOfDay(local.hour() as u32 * 60 + local.minute() as u32);
        let quiet = match self.from <= self.to {
            true => self.from <= minute && minute < self.to,
            false => self.from <= minute || minute < self.to,
        };
        if !quiet {
            return QuietStatus::Inactive(name);
        }
        let today = local.date();
        let ends = if minute < self.to { Ok(today) } else { today.tomorrow() };
        // If a clock change skips the end time, the interval ends at the first valid time after it; if the end time comes twice, with the
        // second one: the first may be over.
        let until = ends.and_then(|day| zone.to_ambiguous_zoned(day.to_datetime(self.to.time())).later());
        let until = until.map_or(now, |until| Time::from(until.timestamp()));
        QuietStatus::Active { until: until.max(Time(now.0 + 1)), zone: name }
    }
}
