//! History and totals.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_domain::history::series::Series;
use sluice_domain::history::{Histogram, Value};
use utoipa::ToSchema;

/// Series of a measure.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryView {
    pub measure: String,
    /// `counter`, `gauge` or `histogram`: says which members a point has.
    pub kind: String,
    /// `minute`, `hour` or `day`.
    pub step: String,
    pub step_seconds: u64,
    /// Start of the first interval.
    pub since: String,
    /// End of the last interval.
    pub until: String,
    /// By their labels.
    pub series: Vec<SeriesView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SeriesView {
    /// Label values by label name; empty if everything is added up.
    #[schema(value_type = Object)]
    pub labels: BTreeMap<String, String>,
    /// By time. An interval without a value is left out: a counter was zero in it.
    pub points: Vec<PointView>,
}

/// What a series was in one interval.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PointView {
    /// Start of the interval.
    pub at: String,
    /// Of a counter: increase in the interval. Of a histogram: number of durations.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub count: Option<u64>,
    /// Of a gauge: level at the end of the interval.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last: Option<u64>,
    /// Of a gauge: highest level of the interval.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max: Option<u64>,
    /// Of a histogram, in seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p95: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<f64>,
}

/// A counter since the ledger was created.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CounterView {
    pub measure: String,
    #[schema(value_type = Object)]
    pub labels: BTreeMap<String, String>,
    pub total: u64,
}

/// Latency of one destination, or of one worker, over a time window.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LatencyView {
    pub name: String,
    /// Number of durations.
    pub count: u64,
    /// Seconds. Percentiles are at most an eighth away from the true value.
    pub mean: f64,
    pub percentile: f64,
}

impl SeriesView {
    pub fn new(names: &[&str], series: &Series) -> SeriesView {
        let labels = names.iter().zip(&series.labels).map(|(name, value)| ((*name).to_owned(), value.to_string()));
        let point = |(at, value): &(sluice_domain::time::Time, Value)| PointView {
            at: at.to_string(),
            ..PointView::from(value)
        };
        SeriesView { labels: labels.collect(), points: series.points.iter().map(point).collect() }
    }
}

impl From<&Value> for PointView {
    fn from(value: &Value) -> PointView {
        match value {
            Value::Count(count) => PointView { count: Some(*count), ..PointView::default() },
            Value::Gauge(gauge) => PointView { last: Some(gauge.last), max: Some(gauge.max), ..PointView::default() },
            Value::Histogram(histogram) => PointView {
                count: Some(histogram.count()),
                mean: histogram.mean().map(|mean| mean.as_secs_f64()),
                p50: percentile(histogram, 50.0),
                p95: percentile(histogram, 95.0),
                p99: percentile(histogram, 99.0),
                ..PointView::default()
            },
        }
    }
}

fn percentile(histogram: &Histogram, percent: f64) -> Option<f64> {
    histogram.percentile(percent).as_ref().map(Duration::as_secs_f64)
}
