//! North stars: few numbers that say whether the node does what it is for.

use super::series::{Grouping, HistoryRow, total};
use super::{Histogram, Value};

/// Class of effects that a second call applies twice.
const NOT_IDEMPOTENT: &str = "blind";

/// Rows that the numbers are computed from.
#[derive(Clone, Debug, Default)]
pub struct NorthStarRows {
    pub effects: Vec<HistoryRow>,
    pub replayed_jobs: Vec<HistoryRow>,
    pub effect_seconds: Vec<HistoryRow>,
    pub accepted: Vec<HistoryRow>,
    pub duplicates: Vec<HistoryRow>,
    pub signal_seconds: Vec<HistoryRow>,
}

/// `None` where nothing happened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NorthStars {
    /// Share of applied effects that a second call would not apply twice.
    pub idempotent_effects: Option<f64>,
    /// Share of replayed jobs that succeeded or had nothing to do.
    pub replay_success: Option<f64>,
    /// From the request to the applied effect, 95th percentile in seconds.
    pub intake_to_effect_p95: Option<f64>,
    /// Duplicates per 10,000 requests that were accepted or recognised.
    pub duplicates_per_10000: Option<f64>,
    /// From the beginning of trouble to the delivered notice, 95th percentile in seconds.
    pub time_to_first_signal_p95: Option<f64>,
}

impl NorthStars {
    pub fn new(rows: &NorthStarRows) -> NorthStars {
        let all = |_: &str| true;
        let effects = count(&rows.effects, all);
        let idempotent = count(&rows.effects, |class| class != NOT_IDEMPOTENT);
        let ended = count(&rows.replayed_jobs, |state| state != "dropped");
        let succeeded = count(&rows.replayed_jobs, |state| matches!(state, "succeeded" | "noop"));
        let duplicates = count(&rows.duplicates, all);
        let requests = duplicates.saturating_add(count(&rows.accepted, all));
        NorthStars {
            idempotent_effects: share(idempotent, effects),
            replay_success: share(succeeded, ended),
            intake_to_effect_p95: merged(&rows.effect_seconds).percentile(95.0).map(|p95| p95.as_secs_f64()),
            duplicates_per_10000: share(duplicates, requests).map(|share| share * 10_000.0),
            time_to_first_signal_p95: merged(&rows.signal_seconds).percentile(95.0).map(|p95| p95.as_secs_f64()),
        }
    }

    /// The known ones by name.
    pub fn values(&self) -> Vec<(&'static str, f64)> {
        let named = [
            ("idempotent_effects_share", self.idempotent_effects),
            ("replay_success_share", self.replay_success),
            ("intake_to_effect_p95_seconds", self.intake_to_effect_p95),
            ("duplicates_per_10000", self.duplicates_per_10000),
            ("time_to_first_signal_p95_seconds", self.time_to_first_signal_p95),
        ];
        named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Sum of a counter over the series whose second label matches.
fn count(rows: &[HistoryRow], of: impl Fn(&str) -> bool) -> u64 {
    let values = rows.iter().flat_map(|row| &row.values).filter(|(labels, _)| of(&labels.1));
    values.fold(0, |sum, (_, value)| match value {
        Value::Count(count) => sum.saturating_add(*count),
        _ => sum,
    })
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn merged(rows: &[HistoryRow]) -> Histogram {
    match total(rows, &Grouping::default()).pop() {
        Some((_, Value::Histogram(histogram))) => histogram,
        _ => Histogram::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Labels;
    use crate::time::Time;
    use std::time::Duration;

    fn counts(values: &[(&str, &str, u64)]) -> Vec<HistoryRow> {
        let value = |(first, second, n): &(&str, &str, u64)| (Labels::new(*first, *second), Value::Count(*n));
        vec![HistoryRow { at: Time(0), values: values.iter().map(value).collect() }]
    }

    #[test]
    fn nothing_is_known_of_an_idle_node() {
        assert_eq!(NorthStars::new(&NorthStarRows::default()), NorthStars::default());
        assert!(NorthStars::default().values().is_empty());
    }

    #[test]
    fn numbers_come_from_the_history() {
        let mut histogram = Histogram::default();
        (1..=100).for_each(|n| histogram.observe(Duration::from_millis(n)));
        let rows = NorthStarRows {
            effects: counts(&[("crm", "natural", 3), ("mail", "blind", 1)]),
            replayed_jobs: counts(&[("a", "succeeded", 6), ("a", "noop", 1), ("b", "dead", 1), ("b", "dropped", 5)]),
            effect_seconds: vec![HistoryRow {
                at: Time(0),
                values: vec![(Labels::new("crm", ""), Value::Histogram(histogram.clone()))],
            }],
            signal_seconds: vec![HistoryRow {
                at: Time(0),
                values: vec![(Labels::new("breaker-open", ""), Value::Histogram(histogram))],
            }],
            accepted: counts(&[("website", "", 9_900)]),
            duplicates: counts(&[("website", "", 100)]),
        };
        let stars = NorthStars::new(&rows);
        assert_eq!((stars.idempotent_effects, stars.replay_success), (Some(0.75), Some(0.875)));
        assert_eq!(stars.duplicates_per_10000, Some(100.0));
        let p95 = stars.intake_to_effect_p95.unwrap();
        assert!((0.083..0.107).contains(&p95), "{p95}");
        assert_eq!(stars.values().len(), 5);
    }
}
