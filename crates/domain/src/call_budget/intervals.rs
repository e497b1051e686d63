//! Counts of calls by interval. A window has few intervals, and they are summed up often: they lie side by side.

use crate::time::Time;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Interval {
    /// Calls that were made or are reserved. At most `charged`.
    pub used: u64,
    pub charged: u64,
}

/// Intervals by their start, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Intervals(Vec<(Time, Interval)>);

impl Intervals {
    fn place(&self, from: Time) -> Result<usize, usize> {
        self.0.binary_search_by_key(&from, |(from, _)| *from)
    }

    pub(super) fn get(&self, from: Time) -> Option<Interval> {
        self.place(from).ok().map(|place| self.0[place].1)
    }

    pub(super) fn get_mut(&mut self, from: Time) -> Option<&mut Interval> {
        self.place(from).ok().map(|place| &mut self.0[place].1)
    }

    /// The interval with this start; a new one has no calls.
    pub(super) fn entry(&mut self, from: Time) -> &mut Interval {
        let place = self.place(from).unwrap_or_else(|place| {
            self.0.insert(place, (from, Interval::default()));
            place
        });
        &mut self.0[place].1
    }

    /// Those that start at this time or later.
    pub(super) fn since(&self, from: Time) -> &[(Time, Interval)] {
        &self.0[self.place(from).unwrap_or_else(|place| place)..]
    }

    pub(super) fn forget_before(&mut self, from: Time) {
        self.0.retain(|(start, _)| *start >= from);
    }
}
