//! Requests that were turned away: counted, sampled, and shown.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use serde::Serialize;
use sluice_domain::time::Time;

/// A request that was turned away.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// When.
    pub at: Time,
    /// Whose it claimed to be.
    pub source: String,
    /// From where.
    pub address: String,
    /// The problem's code.
    pub code: &'static str,
    /// The problem's detail.
    pub detail: String,
}

const RECENT_MAX: usize = 256;

/// How many requests were turned away lately, so that a jump shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lately {
    /// In this minute and the one before.
    pub minute: u64,
    /// In the last hour.
    pub hour: u64,
    /// In the last day.
    pub day: u64,
}

impl Lately {
    /// Fewer than this are no jump, whatever went before.
    const JUMP_MIN: u64 = 10;
    /// So many times what is usual.
    const JUMP_TIMES: u64 = 5;

    /// Whether far more are turned away now than in the time before: in these minutes against the rest of the hour, or in this
    /// hour against the rest of the day.
    pub fn is_jump(&self) -> bool {
        let jumped = |now: u64, all: u64, spans_before: u64| {
            now >= Lately::JUMP_MIN && now * spans_before > Lately::JUMP_TIMES * all.saturating_sub(now)
        };
        // The newest two minutes stand against the 29 pairs before them.
        jumped(self.minute, self.hour, 29) || jumped(self.hour, self.day, 23)
    }
}

/// Counts in minutes for an hour and in hours for a day.
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

/// The latest refusals, and when each kind was last written to the audit trail.
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
    /// Remembers one. Answers how many of its kind an audit line should speak of: one line a second and kind, so that
    /// a flood of forged requests does not become a flood of writes.
    pub fn note(&self, refused: Refused) -> Option<u64> {
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

    /// The latest, newest first.
    pub fn recent(&self) -> Vec<Refused> {
        self.inner.lock().map(|inner| inner.recent.iter().cloned().collect()).unwrap_or_default()
    }

    /// How many lately, by source and code.
    pub fn lately(&self, now: Time) -> Vec<(String, &'static str, Lately)> {
        let Ok(inner) = self.inner.lock() else { return vec![] };
        let all = inner.counts.iter().map(|((source, code), counts)| (source.clone(), *code, counts.lately(now)));
        all.filter(|(_, _, lately)| *lately != Lately::default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_far_more_than_before_and_not_just_a_few() {
        let lately = |minute, hour, day| Lately { minute, hour, day };
        assert!(!lately(9, 9, 9).is_jump(), "a few are no jump");
        assert!(lately(10, 10, 10).is_jump(), "where there was nothing, ten are");
        assert!(!lately(10, 300, 7_200).is_jump(), "as many as always");
        assert!(lately(60, 350, 7_250).is_jump(), "this minute against the hour");
        assert!(lately(10, 300, 1_300).is_jump(), "this hour against the day");
    }

    #[test]
    fn counts_fall_out_of_their_windows() {
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
