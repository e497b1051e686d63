//! Values written as text: durations, sizes, rates, times of day, time zones, shares.

use std::time::Duration;

use sluice_domain::policy::{self, TimeOfDay};
use sluice_domain::unit::{self, Rate};

use super::fields::Fields;
use super::table::ValueType;

impl<'n> Fields<'n, '_> {
    /// Duration in the range of its spec.
    pub(super) fn duration(&self, name: &'static str) -> Option<Duration> {
        let found = self.unit(name, unit::duration)?;
        match self.key(name).map(|key| key.shape) {
            Some(shape) => self.in_range(name, found, shape),
            None => Some(found),
        }
    }

    /// Duration in the range of `shape`, for keys that also allow a word.
    pub(super) fn duration_in(&self, name: &'static str, shape: ValueType) -> Option<Duration> {
        let found = self.unit(name, unit::duration)?;
        self.in_range(name, found, shape)
    }

    fn in_range(&self, name: &'static str, found: Duration, shape: ValueType) -> Option<Duration> {
        match shape {
            ValueType::Between(least, most) if !(least..=most).contains(&found) => self.bad(name),
            _ => Some(found),
        }
    }

    fn bad<T>(&self, name: &'static str) -> Option<T> {
        let shape = self.key(name).map_or_else(String::new, |key| key.shape.describe());
        self.report.error(self.value_span(name), "bad-value", format!("`{name}` must be {shape}"));
        None
    }

    /// Size in bytes, in the range of its spec.
    pub(super) fn size(&self, name: &'static str) -> Option<u64> {
        let found = self.unit(name, unit::size)?;
        match self.key(name).map(|key| key.shape) {
            Some(ValueType::Size(max)) if !(1..=max).contains(&found) => self.bad(name),
            _ => Some(found),
        }
    }

    pub(super) fn clock(&self, name: &'static str) -> Option<TimeOfDay> {
        self.read(name, TimeOfDay::parse, "a time of day", "such as '21:00', in quotes")
    }

    pub(super) fn zone(&self, name: &'static str) -> Option<&'n str> {
        let text = self.text(name)?;
        if policy::zones().any(|zone| zone == text) {
            return Some(text);
        }
        self.report.error(self.value_span(name), "bad-value", format!("unknown time zone `{text}`")).meant(
            text,
            policy::zones(),
            "such as Europe/Berlin or America/New_York",
        );
        None
    }

    /// Percentage below 100.
    pub(super) fn share(&self, name: &'static str) -> Option<f64> {
        let parse = |text: &str| {
            let number = text.trim().strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok()?;
            (0.0..100.0).contains(&number).then_some(number)
        };
        self.read(name, parse, "a share below 100%", &format!("such as: {name}: 20%"))
    }

    fn read<T>(&self, name: &'static str, parse: impl Fn(&str) -> Option<T>, what: &str, hint: &str) -> Option<T> {
        let text = self.text(name)?;
        let found = parse(text);
        if found.is_none() {
            self.report
                .error(self.value_span(name), "bad-value", format!("`{name}` must be {what}, found `{text}`"))
                .hint(hint);
        }
        found
    }

    pub(super) fn rate(&self, name: &'static str) -> Option<Rate> {
        self.unit(name, unit::rate)
    }

    fn unit<T>(&self, name: &'static str, read: fn(&str) -> Result<T, unit::UnitProblem>) -> Option<T> {
        let node = self.node(name)?;
        let text = node.text().or_else(|| self.wrong(name, node))?;
        match read(text) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.report.error(node.span, "bad-value", format!("`{name}`: {problem}"));
                None
            }
        }
    }
}
