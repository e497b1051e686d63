//! The agenda: what happens when, in the order in which it was planned where times are equal.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::world::SimEvent;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Time, then number, so that one comparison decides.
    order: i128,
    what: SimEvent,
}

impl Ord for Entry {
    /// The earliest entry is the greatest: a heap returns it first.
    fn cmp(&self, other: &Entry) -> Ordering {
        other.order.cmp(&self.order)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.order == other.order
    }
}

impl Eq for Entry {}

#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BinaryHeap<Entry>,
    planned: u64,
}

impl Agenda {
    pub(crate) fn push(&mut self, at: i64, what: SimEvent) {
        self.planned += 1;
        self.entries.push(Entry { order: i128::from(at) << 64 | i128::from(self.planned), what });
    }

    /// The next entry and its time.
    pub(crate) fn pop(&mut self) -> Option<(i64, SimEvent)> {
        self.entries.pop().map(|entry| (time_of(&entry), entry.what))
    }

    #[cfg(test)]
    pub(crate) fn next_at(&self) -> Option<i64> {
        self.entries.peek().map(time_of)
    }

    /// Entries so far, those that have happened included.
    pub(crate) fn planned(&self) -> u64 {
        self.planned
    }
}

fn time_of(entry: &Entry) -> i64 {
    (entry.order >> 64) as i64
}
