//! The history of a large node stays within its bound.

use std::time::Duration;

use super::codec::{Points, encode};
use super::measure::{Kind, MEASURES, MeasureSpec};
use super::{Gauge, Histogram, Step, Value};

const SOURCES: u64 = 50;
const DESTINATIONS: u64 = 20;
const WORKERS: u64 = 20;
const QUEUES: u64 = 20;
/// Those with a response clock.
const FLOWS: u64 = 10;
const RESULTS: u64 = 3;
const CODES: u64 = 3;
const STATES: u64 = 4;
const OUTCOMES: u64 = 4;
/// Columns of the key, and the header of a row, in the store.
const ROW_BYTES: u64 = 24;
/// What pages and the index of the store add, in percent: measured with rows of this size over 160 days of minutes and 900 of hours,
/// with their deletions.
const STORE_PERCENT: u64 = 150;

/// Series that have a value in every interval.
fn series(spec: &MeasureSpec) -> u64 {
    let of = |label: &str| match label {
        "source" => SOURCES,
        "destination" => DESTINATIONS,
        "worker" => WORKERS,
        "queue" => QUEUES,
        "code" => CODES,
        "state" => STATES,
        "outcome" => OUTCOMES,
        "class" => 1,
        "flow" => FLOWS,
        "result" => RESULTS,
        // A notice of one kind in every interval is more than any node sends.
        "alert" => 1,
        other => panic!("unknown label {other}"),
    };
    spec.labels.iter().map(|label| of(label)).product()
}

/// A busy interval: events of a few per second, durations over a range of 64.
fn value(kind: Kind, step: Step) -> Value {
    let events = step.length().as_secs() * 4;
    match kind {
        Kind::Counter => Value::Count(events),
        Kind::Gauge => Value::Gauge(Gauge { last: 900, max: 9_000 }),
        Kind::Histogram => {
            let mut histogram = Histogram::default();
            (0..6u32).for_each(|doubling| {
                for quarter in 4..8u64 {
                    histogram.observe(Duration::from_micros((20_000 * quarter / 4) << doubling));
                }
            });
            histogram.buckets.values_mut().for_each(|count| *count = events / 24);
            Value::Histogram(histogram)
        }
    }
}

#[test]
fn two_years_of_50_sources_and_20_destinations_stay_under_64_mib() {
    let mut bytes = 0;
    for step in Step::ALL {
        let intervals = step.retention().as_secs() / step.length().as_secs();
        for spec in &MEASURES {
            // Numbers of series beyond one byte, as on a node that has many.
            let points: Points = (0..series(spec)).map(|n| (n * 2 + 300, value(spec.kind, step))).collect();
            bytes += intervals * (encode(&points).len() as u64 + ROW_BYTES);
        }
    }
    let stored = bytes * STORE_PERCENT / 100;
    assert!(stored < 64 * 1024 * 1024, "{stored} bytes");
}
