//! Rows by an ascending number: a slot for each, found without a search.

use std::collections::VecDeque;
use std::marker::PhantomData;

use sluice_domain::job::JobId;

/// A row number.
pub(super) trait Number {
    fn number(&self) -> i64;
}

impl Number for i64 {
    fn number(&self) -> i64 {
        *self
    }
}

impl Number for JobId {
    fn number(&self) -> i64 {
        self.0
    }
}

/// Rows whose numbers are assigned one after the other. Old rows are removed first, so few slots are empty.
#[derive(Clone, Debug)]
pub(super) struct Rows<N, T> {
    /// Number of the first slot.
    first: i64,
    slots: VecDeque<Option<Box<T>>>,
    count: usize,
    numbers: PhantomData<N>,
}

impl<N, T> Default for Rows<N, T> {
    fn default() -> Rows<N, T> {
        Rows { first: 1, slots: VecDeque::new(), count: 0, numbers: PhantomData }
    }
}

impl<N: Number, T> Rows<N, T> {
    fn slot(&self, number: &N) -> Option<usize> {
        usize::try_from(number.number() - self.first).ok()
    }

    pub(super) fn get(&self, number: &N) -> Option<&T> {
        self.slots.get(self.slot(number)?)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, number: &N) -> Option<&mut T> {
        let slot = self.slot(number)?;
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// Appends a row. Its number is higher than any before.
    pub(super) fn push(&mut self, number: N, row: T) {
        if self.slots.is_empty() {
            self.first = number.number();
        }
        let Some(slot) = self.slot(&number).filter(|slot| *slot >= self.slots.len()) else {
            unreachable!("row numbers ascend")
        };
        self.slots.resize_with(slot, || None);
        self.slots.push_back(Some(Box::new(row)));
        self.count += 1;
    }

    pub(super) fn remove(&mut self, number: &N) -> Option<Box<T>> {
        let slot = self.slot(number)?;
        let row = self.slots.get_mut(slot)?.take()?;
        self.count -= 1;
        while self.slots.front().is_some_and(Option::is_none) {
            self.slots.pop_front();
            self.first += 1;
        }
        Some(row)
    }

    /// From a number on, ascending.
    pub(super) fn from(&self, number: &N) -> impl Iterator<Item = &T> + use<'_, N, T> {
        let start = self.slot(number).unwrap_or(0).min(self.slots.len());
        self.slots.range(start..).filter_map(Option::as_deref)
    }

    /// All rows, ascending.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.slots.iter().filter_map(Option::as_deref)
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_number_after_others_were_removed() {
        let mut rows = Rows::default();
        for number in [3, 4, 7, 8] {
            rows.push(number, number * 10);
        }
        assert_eq!((rows.get(&4), rows.get(&5), rows.get(&2), rows.get(&9)), (Some(&40), None, None, None));
        assert_eq!(rows.remove(&4).as_deref(), Some(&40));
        assert_eq!(rows.remove(&4), None);
        assert_eq!(rows.remove(&3).as_deref(), Some(&30));
        assert_eq!((rows.len(), rows.get(&7)), (2, Some(&70)));
        assert_eq!(rows.from(&5).copied().collect::<Vec<_>>(), [70, 80]);
        assert_eq!(rows.from(&8).copied().collect::<Vec<_>>(), [80]);
        assert_eq!(rows.from(&99).count(), 0);
        assert_eq!(rows.values().rev().copied().collect::<Vec<_>>(), [80, 70]);
        rows.push(12, 120);
        assert_eq!((rows.get(&12), rows.len()), (Some(&120), 3));
    }
}
