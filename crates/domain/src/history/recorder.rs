//! What a node has observed since the last minute was written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::measure::{Kind, Measure};
use super::{Gauge, Histogram, Labels, Value};

/// Series of one measure in one minute. Labels are names of the configuration, so there are few; further ones share one series.
pub const SERIES_MAX: usize = 512;
/// Label of the series that further ones share.
pub const OTHER: &str = "other";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub measure: Measure,
    pub labels: Labels,
    pub value: Value,
}

/// The open minute.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    values: BTreeMap<Measure, Series>,
}

/// The series of one measure, by their first and their second label: found without building labels.
#[derive(Clone, Debug, Default)]
struct Series {
    values: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Value>>,
    len: usize,
}

impl Series {
    fn get(&mut self, first: &str, second: &str) -> Option<&mut Value> {
        self.values.get_mut(first)?.get_mut(second)
    }

    fn contains(&self, first: &str, second: &str) -> bool {
        self.values.get(first).is_some_and(|values| values.contains_key(second))
    }

    /// The value of these labels, or a new one.
    fn entry(&mut self, labels: Labels, new: impl FnOnce() -> Value) -> &mut Value {
        let Series { values, len } = self;
        values.entry(labels.0).or_default().entry(labels.1).or_insert_with(|| {
            *len += 1;
            new()
        })
    }
}

impl Recorder {
    pub fn count(&mut self, measure: Measure, first: &str, second: &str) {
        if let Value::Count(count) = self.value(measure, first, second) {
            *count = count.saturating_add(1);
        }
    }

    pub fn level(&mut self, measure: Measure, first: &str, second: &str, level: u64) {
        if let Value::Gauge(gauge) = self.value(measure, first, second) {
            *gauge = Gauge { last: level, max: gauge.max.max(level) };
        }
    }

    pub fn observe(&mut self, measure: Measure, first: &str, duration: Duration) {
        if let Value::Histogram(histogram) = self.value(measure, first, "") {
            histogram.observe(duration);
        }
    }

    /// What was observed, in the order of measures and labels. The recorder is empty afterwards.
    pub fn take(&mut self) -> Vec<Point> {
        let values = std::mem::take(&mut self.values);
        let points = |(measure, series): (Measure, Series)| {
            series.values.into_iter().flat_map(move |(first, values)| {
                let labels = move |second| Labels(first.clone(), second);
                values.into_iter().map(move |(second, value)| Point { measure, labels: labels(second), value })
            })
        };
        values.into_iter().flat_map(points).collect()
    }

    /// Puts points back that could not be written. What was observed since comes later.
    pub fn restore(&mut self, points: Vec<Point>) {
        for Point { measure, labels, value: mut earlier } in points {
            let series = self.values.entry(measure).or_default();
            if let Some(later) = series.get(&labels.0, &labels.1) {
                earlier.merge(later);
                *later = earlier;
            } else {
                series.entry(labels, || earlier);
            }
        }
    }

    fn value(&mut self, measure: Measure, first: &str, second: &str) -> &mut Value {
        let series = self.values.entry(measure).or_default();
        let (first, second) = match series.len < SERIES_MAX || series.contains(first, second) {
            true => (first, second),
            false => (OTHER, ""),
        };
        if !series.contains(first, second) {
            series.entry(Labels::new(first, second), || match measure.kind() {
                Kind::Counter => Value::Count(0),
                Kind::Gauge => Value::Gauge(Gauge::default()),
                Kind::Histogram => Value::Histogram(Histogram::default()),
            });
        }
        series.get(first, second).expect("it was just made")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_beyond_the_maximum_share_one_series() {
        let mut recorder = Recorder::default();
        for n in 0..SERIES_MAX + 10 {
            recorder.count(Measure::Refused, &format!("source-{n}"), "signature");
        }
        let points = recorder.take();
        assert_eq!(points.len(), SERIES_MAX + 1);
        let other = points.iter().find(|point| &*point.labels.0 == OTHER).unwrap();
        assert_eq!(other.value, Value::Count(10));
        assert!(recorder.take().is_empty());
    }

    #[test]
    fn restored_points_come_before_what_was_observed_since() {
        let mut recorder = Recorder::default();
        recorder.level(Measure::JobsLive, "crm", "queued", 9);
        recorder.count(Measure::Refused, "website", "signature");
        let points = recorder.take();
        recorder.level(Measure::JobsLive, "crm", "queued", 4);
        recorder.count(Measure::Refused, "website", "signature");
        recorder.restore(points);
        let values: Vec<Value> = recorder.take().into_iter().map(|point| point.value).collect();
        assert_eq!(values, [Value::Count(2), Value::Gauge(Gauge { last: 4, max: 9 })]);
    }
}
