//! Rejected requests: counts and recent samples.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use serde::Serialize;
use sluice_domain::time::Time;

/// Problem code of the requests of a source that an operator paused.
pub(crate) const SOURCE_PAUSED: &str = "source-paused";

#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    pub at: Time,
    /// Claimed source.
    pub source: String,
    pub address: String,
    pub code: &'static str,
    pub detail: String,
}

const RECENT_MAX: usize = 256;

/// Recent number of rejections, for detecting spikes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lately {
    /// Current and previous minute.
    pub minute: u64,
    pub hour: u64,
    pub day: u64,
}

impl Lately {
    /// Minimum number of rejections of a spike.
    const JUMP_MIN: u64 = 10;
    /// Factor over the average.
    const JUMP_TIMES: u64 = 5;

    /// Whether rejections spike: the last two minutes against the hour, or the last hour against the day.
    pub fn is_jump(&self) -> bool {
        let jumped = |now: u64, all: u64, spans_before: u64| {
            now >= Lately::JUMP_MIN && now * spans_before > Lately::JUMP_TIMES * all.saturating_sub(now)
        };
        // Compares the last two minutes with the 29 pairs before them.
        jumped(self.minute, self.hour, 29) || jumped(self.hour, self.day, 23)
    }
}

/// Counts per minute for an hour, and per hour for a day.
#[derive(Debug)]
struct Counts {
    minutes: [(i64, u64); 60],
    hours: [(i64, u64); 24],
}

impl Counts {
    fn new() -> Counts {
        Counts { minutes: [(i64::MIN, 0); 60], hours: [(i64::MIN, 0); 24] }
    }

    fn add(&mut self, at: Time) {
        for (slots, unit) in [(&mut self.minutes[..], 60), (&mut self.hours[..], 3_600)] {
            let number = at.seconds().div_euclid(unit);
            let length = slots.len() as i64;
            let slot = &mut slots[number.rem_euclid(length) as usize];
            if slot.0 != number {
                *slot = (number, 0);
            }
            slot.1 += 1;
        }
    }

    fn lately(&self, now: Time) -> Lately {
        let sum = |slots: &[(i64, u64)], unit: i64, back: i64| {
            let newest = now.seconds().div_euclid(unit);
            slots
                .iter()
                .filter(|(number, _)| *number > newest - back && *number <= newest)
                .map(|(_, count)| count)
                .sum()
        };
        Lately { minute: sum(&self.minutes, 60, 2), hour: sum(&self.minutes, 60, 60), day: sum(&self.hours, 3_600, 24) }
    }
}

/// Recent rejections, and the time of the last audit entry per kind.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    recent: VecDeque<Refused>,
    audited: HashMap<(String, &'static str), (i64, u64)>,
    counts: HashMap<(String, &'static str), Counts>,
}

impl Refusals {
    /// Records a rejection. Returns the count for an audit entry if one is due: at most one entry per second and kind,
    /// so that forged requests do not flood the ledger.
    pub(super) fn note(&self, refused: Refused) -> Option<u64> {
        let Ok(mut inner) = self.inner.lock() else { return None };
        let key = (refused.source.clone(), refused.code);
        let second = refused.at.seconds();
        inner.counts.entry(key.clone()).or_insert_with(Counts::new).add(refused.at);
        if inner.recent.len() >= RECENT_MAX {
            inner.recent.pop_back();
        }
        inner.recent.push_front(refused);
        let (last, waiting) = inner.audited.entry(key).or_insert((i64::MIN, 0));
        *waiting += 1;
        if *last == second {
            return None;
        }
        *last = second;
        Some(std::mem::take(waiting))
    }

    /// Newest first.
    pub(super) fn recent(&self) -> Vec<Refused> {
        self.inner.lock().map(|inner| inner.recent.iter().cloned().collect()).unwrap_or_default()
    }

    /// Recent counts by source and code.
    pub(super) fn lately(&self, now: Time) -> Vec<(String, &'static str, Lately)> {
        let Ok(inner) = self.inner.lock() else { return vec![] };
        let all = inner.counts.iter().map(|((source, code), counts)| (source.clone(), *code, counts.lately(now)));
        all.filter(|(_, _, lately)| *lately != Lately::default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spike_needs_a_minimum_and_a_multiple_of_the_average() {
        let lately = |minute, hour, day| Lately { minute, hour, day };
        assert!(!lately(9, 9, 9).is_jump(), "a few are no jump");
        assert!(lately(10, 10, 10).is_jump(), "where there was nothing, ten are");
        assert!(!lately(10, 300, 7_200).is_jump(), "as many as always");
        assert!(lately(60, 350, 7_250).is_jump(), "this minute against the hour");
        assert!(lately(10, 300, 1_300).is_jump(), "this hour against the day");
    }

    #[test]
    fn counts_expire_with_their_windows() {
        let mut counts = Counts::new();
        let minute = |n: i64| Time(n * 60_000);
        for n in [0, 1, 1, 100, 100, 101] {
            counts.add(minute(n));
        }
        assert_eq!(counts.lately(minute(101)), Lately { minute: 3, hour: 3, day: 6 });
        assert_eq!(counts.lately(minute(130)), Lately { minute: 0, hour: 3, day: 6 });
        assert_eq!(counts.lately(minute(101 + 1440)), Lately { minute: 0, hour: 0, day: 0 });
    }
}
