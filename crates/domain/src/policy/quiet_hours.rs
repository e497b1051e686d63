//! When it is night at the contact's.

use std::fmt;
use std::sync::LazyLock;

use jiff::civil;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::event::scalar;
use crate::template::{Expression, Scope, TemplateProblem};
use crate::time::Time;

/// Comes with the program, so that a machine without a database of its own knows the same zones.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The zone of this name, such as `Europe/Berlin`.
pub fn zone(name: &str) -> Option<TimeZone> {
    ZONES.get(name.trim()).ok()
}

/// The name of every zone, in order.
pub fn zones() -> impl Iterator<Item = &'static str> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut names: Vec<String> = ZONES.available().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names
    });
    NAMES.iter().map(String::as_str)
}

/// A time of day to the minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(pub u32);

impl TimeOfDay {
    /// Reads `21:00`. `24:00` is midnight.
    pub fn parse(text: &str) -> Option<TimeOfDay> {
        let (hour, minute) = text.trim().split_once(':')?;
        let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok().filter(|_| minute.len() == 2)?);
        (minute < 60 && (hour < 24 || (hour, minute) == (24, 0))).then_some(TimeOfDay(hour % 24 * 60 + minute))
    }

    fn time(self) -> civil::Time {
        civil::time((self.0 / 60) as i8, (self.0 % 60) as i8, 0, 0)
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// Hours in which nobody is written to.
#[derive(Clone, Debug)]
pub struct QuietHours {
    /// From this time of day on.
    pub from: TimeOfDay,
    /// Up to this one; an earlier one is that of the next day.
    pub to: TimeOfDay,
    /// The contact's zone.
    pub zone: Option<Expression>,
    /// The zone of contacts that have none.
    pub fallback: TimeZone,
    /// What happens then.
    pub action: QuietAction,
}

/// What happens in quiet hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuietAction {
    /// Nothing, now or later.
    Skip,
    /// It waits for their end.
    Wait,
}

/// Whether it is quiet now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuietStatus {
    /// It is not, in this zone.
    Inactive(String),
    /// It is.
    Active {
        /// When it ends.
        until: Time,
        /// In this zone.
        zone: String,
    },
}

impl QuietHours {
    /// Whether it is quiet now, where the contact is.
    pub fn evaluate(&self, scope: &Scope, now: Time) -> Result<QuietStatus, TemplateProblem> {
        let said = match &self.zone {
            Some(expression) => expression.evaluate(scope)?.as_ref().and_then(scalar),
            None => None,
        };
        let zone = said.as_deref().and_then(zone).unwrap_or_else(|| self.fallback.clone());
        Ok(self.at(&zone, now))
    }

    fn at(&self, zone: &TimeZone, now: Time) -> QuietStatus {
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
        // An hour that a change of clocks leaves out ends when the clock has come past it.
        let until = ends.and_then(|day| day.to_datetime(self.to.time()).to_zoned(zone.clone()));
        let until = until.map_or(now, |until| Time::from(until.timestamp()));
        QuietStatus::Active { until: until.max(Time(now.0 + 1)), zone: name }
    }
}
