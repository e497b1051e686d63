//! Series of a query: rows of the history grouped by labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::measure::Measure;
use super::step::Step;
use super::{Labels, Value};
use crate::time::Time;

/// Intervals of one query.
pub const POINTS_MAX: u32 = 3_000;

/// The values of a measure in one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// Start of the interval.
    pub at: Time,
    pub values: Vec<(Labels, Value)>,
}

/// Rows of a measure since a time (of the interval's start) and before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    pub measure: Measure,
    pub step: Step,
    pub since: Time,
    pub until: Time,
}

/// One line of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Values of the labels that the series are grouped by, in the order of the grouping.
    pub labels: Vec<Arc<str>>,
    /// By time. Intervals without a value are left out.
    pub points: Vec<(Time, Value)>,
}

/// Label names of a measure that series are grouped by, as positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grouping(Vec<usize>);

impl Grouping {
    /// Reads a list such as `destination,outcome`; empty adds everything up. Fails with the unknown name.
    pub fn parse(measure: Measure, names: &str) -> Result<Grouping, String> {
        let place = |name: &str| {
            let labels = measure.spec().labels;
            labels.iter().position(|label| *label == name).ok_or_else(|| name.to_owned())
        };
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(place).collect::<Result<Vec<_>, _>>().map(Grouping)
    }

    /// By every label of the measure.
    pub fn by_all(measure: Measure) -> Grouping {
        Grouping((0..measure.spec().labels.len()).collect())
    }

    /// Names of the labels.
    pub fn names(&self, measure: Measure) -> Vec<&'static str> {
        self.0.iter().filter_map(|place| measure.spec().labels.get(*place).copied()).collect()
    }

    fn values(&self, labels: &Labels) -> Vec<Arc<str>> {
        self.0.iter().map(|place| if *place == 0 { labels.0.clone() } else { labels.1.clone() }).collect()
    }
}

/// Groups rows, in the order of their labels.
pub fn group(rows: &[HistoryRow], by: &Grouping) -> Vec<Series> {
    let mut series: BTreeMap<Vec<Arc<str>>, Vec<(Time, Value)>> = BTreeMap::new();
    for row in rows {
        for (labels, value) in &row.values {
            let points = series.entry(by.values(labels)).or_default();
            match points.last_mut().filter(|(at, _)| *at == row.at) {
                Some((_, sum)) => sum.add(value),
                None => points.push((row.at, value.clone())),
            }
        }
    }
    series.into_iter().map(|(labels, points)| Series { labels, points }).collect()
}

/// All points of each group as one value.
pub fn total(rows: &[HistoryRow], by: &Grouping) -> Vec<(Vec<Arc<str>>, Value)> {
    let merged = |series: Series| {
        let mut points = series.points.into_iter().map(|(_, value)| value);
        let first = points.next()?;
        let merge = |mut sum: Value, later: Value| {
            sum.merge(&later);
            sum
        };
        Some((series.labels, points.fold(first, merge)))
    };
    group(rows, by).into_iter().filter_map(merged).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Gauge;

    fn rows() -> Vec<HistoryRow> {
        let count = |destination, outcome, n| (Labels::new(destination, outcome), Value::Count(n));
        vec![
            HistoryRow { at: Time(0), values: vec![count("crm", "done", 3), count("crm", "retry", 1)] },
            HistoryRow { at: Time(60_000), values: vec![count("crm", "done", 4), count("mail", "done", 5)] },
        ]
    }

    #[test]
    fn series_are_grouped_by_some_labels_and_added_over_the_rest() {
        let by = Grouping::parse(Measure::Attempts, "destination").unwrap();
        let series = group(&rows(), &by);
        assert_eq!(series[0].labels, [Arc::from("crm")]);
        assert_eq!(series[0].points, [(Time(0), Value::Count(4)), (Time(60_000), Value::Count(4))]);
        assert_eq!(series[1].points, [(Time(60_000), Value::Count(5))]);
        let all = group(&rows(), &Grouping::default());
        assert_eq!(
            (all.len(), &all[0].points),
            (1, &vec![(Time(0), Value::Count(4)), (Time(60_000), Value::Count(9))])
        );
        assert_eq!(group(&rows(), &Grouping::by_all(Measure::Attempts)).len(), 3);
        let totals = total(&rows(), &by);
        assert_eq!(totals[0], (vec![Arc::from("crm")], Value::Count(8)));
    }

    #[test]
    fn unknown_label_is_named() {
        assert_eq!(Grouping::parse(Measure::Attempts, "destination, worker"), Err("worker".into()));
    }

    #[test]
    fn levels_add_up_over_labels_and_not_over_time() {
        let level = |worker, state, last, max| (Labels::new(worker, state), Value::Gauge(Gauge { last, max }));
        let rows = [
            HistoryRow { at: Time(0), values: vec![level("a", "queued", 1, 5), level("b", "queued", 2, 2)] },
            HistoryRow { at: Time(60_000), values: vec![level("a", "queued", 4, 4)] },
        ];
        let series = group(&rows, &Grouping::default());
        assert_eq!(series[0].points[0].1, Value::Gauge(Gauge { last: 3, max: 7 }));
        assert_eq!(total(&rows, &Grouping::default())[0].1, Value::Gauge(Gauge { last: 4, max: 7 }));
    }
}
