//! History of a node: what happened in each minute, hour and day, as counters, gauges and histograms.
//!
//! A [`Measure`] is a quantity, its [`Labels`] say of what, and a [`Value`] is what it was in one interval of a [`Step`]. Values of
//! one series merge: an hour is the merge of its minutes, and a total over labels is the merge of its series. Counters that the
//! ledger keeps are exact; what a node observes itself is lost for the open minute when its process dies.

pub mod codec;
pub mod histogram;
pub mod measure;
pub mod north_star;
pub mod recorder;
pub mod series;
pub mod step;

use std::sync::Arc;

pub use histogram::Histogram;
pub use measure::{Kind, Measure};
pub use recorder::Recorder;
pub use step::Step;

/// Label values of a series, in the order of [`MeasureSpec::labels`](measure::MeasureSpec::labels). A measure with fewer labels
/// leaves the rest empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(pub Arc<str>, pub Arc<str>);

impl Labels {
    pub fn new(first: impl Into<Arc<str>>, second: impl Into<Arc<str>>) -> Labels {
        Labels(first.into(), second.into())
    }
}

/// What a series was in one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Count(u64),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// A level: at the end of the interval, and its highest within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    pub last: u64,
    pub max: u64,
}

impl Value {
    /// Adds what came later in time. Values of different kinds do not merge: the earlier one stays.
    pub fn merge(&mut self, later: &Value) {
        match (self, later) {
            (Value::Count(count), Value::Count(more)) => *count = count.saturating_add(*more),
            (Value::Gauge(gauge), Value::Gauge(later)) => {
                *gauge = Gauge { last: later.last, max: gauge.max.max(later.max) };
            }
            (Value::Histogram(histogram), Value::Histogram(more)) => histogram.merge(more),
            _ => {}
        }
    }

    /// Adds another series of the same interval. Levels of several series add up.
    pub fn add(&mut self, other: &Value) {
        match (self, other) {
            (Value::Gauge(gauge), Value::Gauge(other)) => {
                gauge.last = gauge.last.saturating_add(other.last);
                gauge.max = gauge.max.saturating_add(other.max);
            }
            (value, other) => value.merge(other),
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Value::Count(_) => Kind::Counter,
            Value::Gauge(_) => Kind::Gauge,
            Value::Histogram(_) => Kind::Histogram,
        }
    }
}

#[cfg(test)]
mod size_tests;
