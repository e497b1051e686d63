//! Stored form of the values of one measure in one interval.
//!
//! Series are numbered by the store. A point is the distance to the number of the series before it and its value, as variable-length
//! integers: a counter one, a gauge two, a histogram its sum and its buckets.
//!
//! Buckets of durations are mostly neighbours, so they are written as runs: a zero, the number of runs, and for each the distance to the run
//! before it, its length and its counts. Earlier versions wrote the number of buckets, at least one, and the distance and count of each;
//! that form is still read.

use std::collections::BTreeMap;

use super::histogram::Histogram;
use super::measure::Kind;
use super::{Gauge, Value};

/// Values by the number of their series.
pub type Points = BTreeMap<u64, Value>;

/// The points as bytes. All values have the kind of the measure.
pub fn encode(points: &Points) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut last = 0;
    for (series, value) in points {
        write(&mut bytes, series - last);
        last = *series;
        match value {
            Value::Count(count) => write(&mut bytes, *count),
            Value::Gauge(gauge) => {
                write(&mut bytes, gauge.last);
                write(&mut bytes, gauge.max);
            }
            Value::Histogram(histogram) => {
                write(&mut bytes, histogram.sum_micros);
                write_buckets(&mut bytes, &histogram.buckets);
            }
        }
    }
    bytes
}

fn write_buckets(bytes: &mut Vec<u8>, buckets: &BTreeMap<u16, u64>) {
    let buckets: Vec<(u16, u64)> = buckets.iter().map(|(bucket, count)| (*bucket, *count)).collect();
    let runs = || buckets.chunk_by(|one, next| one.0.checked_add(1) == Some(next.0));
    write(bytes, 0);
    write(bytes, runs().count() as u64);
    let mut last = 0;
    for run in runs() {
        write(bytes, u64::from(run[0].0 - last));
        write(bytes, run.len() as u64);
        run.iter().for_each(|(_, count)| write(bytes, *count));
        last = run[run.len() - 1].0;
    }
}

/// `None` if the bytes are not points of this kind.
pub fn decode(mut bytes: &[u8], kind: Kind) -> Option<Points> {
    let mut points = Points::new();
    let mut series = 0u64;
    while !bytes.is_empty() {
        series = series.checked_add(read(&mut bytes)?)?;
        let value = match kind {
            Kind::Counter => Value::Count(read(&mut bytes)?),
            Kind::Gauge => Value::Gauge(Gauge { last: read(&mut bytes)?, max: read(&mut bytes)? }),
            Kind::Histogram => Value::Histogram(histogram(&mut bytes)?),
        };
        points.insert(series, value);
    }
    Some(points)
}

fn histogram(bytes: &mut &[u8]) -> Option<Histogram> {
    let sum_micros = read(bytes)?;
    let mut buckets = BTreeMap::new();
    let mut bucket = 0u16;
    let singles = read(bytes)?;
    let runs = if singles == 0 { read(bytes)? } else { singles };
    for _ in 0..runs {
        bucket = bucket.checked_add(u16::try_from(read(bytes)?).ok()?)?;
        let length = if singles == 0 { read(bytes)? } else { 1 };
        for place in 0..length {
            bucket = bucket.checked_add(u16::from(place > 0))?;
            buckets.insert(bucket, read(bytes)?);
        }
    }
    Some(Histogram { buckets, sum_micros })
}

/// Seven bits per byte, the lowest first; the highest bit says that more follow.
fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(first & 0x7f);
        if part.leading_zeros() < shift {
            return None;
        }
        number |= part << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn histogram_of(millis: &[u64]) -> Value {
        let mut histogram = Histogram::default();
        millis.iter().for_each(|millis| histogram.observe(Duration::from_millis(*millis)));
        Value::Histogram(histogram)
    }

    #[test]
    fn histogram_of_an_earlier_version_is_read() {
        let old = [3, 40, 2, 5, 7, 2, 9];
        let buckets = BTreeMap::from([(5, 7), (7, 9)]);
        let points = Points::from([(3, Value::Histogram(Histogram { buckets, sum_micros: 40 }))]);
        assert_eq!(decode(&old, Kind::Histogram), Some(points));
    }

    proptest! {
        #[test]
        fn points_round_trip(counts in prop::collection::btree_map(any::<u64>(), any::<u64>(), 0..20), millis in prop::collection::vec(0..1_000_000u64, 0..40)) {
            let counters: Points = counts.iter().map(|(series, count)| (*series, Value::Count(*count))).collect();
            prop_assert_eq!(decode(&encode(&counters), Kind::Counter), Some(counters));
            let gauges: Points =
                counts.iter().map(|(series, count)| (*series, Value::Gauge(Gauge { last: count / 2, max: *count }))).collect();
            prop_assert_eq!(decode(&encode(&gauges), Kind::Gauge), Some(gauges));
            let histograms = Points::from([(3, histogram_of(&millis)), (9, histogram_of(&[]))]);
            prop_assert_eq!(decode(&encode(&histograms), Kind::Histogram), Some(histograms));
        }

        #[test]
        fn damaged_bytes_are_no_points_or_other_points(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            for kind in [Kind::Counter, Kind::Gauge, Kind::Histogram] {
                let _ = decode(&bytes, kind);
            }
        }
    }
}
