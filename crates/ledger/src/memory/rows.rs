//! Rows by a number that only grows: a place each, found without a search.

use std::collections::VecDeque;
use std::marker::PhantomData;

use sluice_domain::job::JobId;

/// What rows are numbered by.
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

/// The rows of a table whose numbers are given out one after the other. Old ones go first, so little room is kept for what is gone.
#[derive(Clone, Debug)]
pub(super) struct Rows<N, T> {
    /// The number of the first place.
    first: i64,
    places: VecDeque<Option<Box<T>>>,
    count: usize,
    numbers: PhantomData<N>,
}

impl<N, T> Default for Rows<N, T> {
    fn default() -> Rows<N, T> {
        Rows { first: 1, places: VecDeque::new(), count: 0, numbers: PhantomData }
    }
}

impl<N: Number, T> Rows<N, T> {
    fn place(&self, number: &N) -> Option<usize> {
        usize::try_from(number.number() - self.first).ok()
    }

    pub fn get(&self, number: &N) -> Option<&T> {
        self.places.get(self.place(number)?)?.as_deref()
    }

    pub fn get_mut(&mut self, number: &N) -> Option<&mut T> {
        let place = self.place(number)?;
        self.places.get_mut(place)?.as_deref_mut()
    }

    /// Puts a row behind all others. Its number is higher than any before.
    pub fn push(&mut self, number: N, row: T) {
        if self.places.is_empty() {
            self.first = number.number();
        }
        let Some(place) = self.place(&number).filter(|place| *place >= self.places.len()) else {
            unreachable!("numbers only grow")
        };
        self.places.resize_with(place, || None);
        self.places.push_back(Some(Box::new(row)));
        self.count += 1;
    }

    pub fn remove(&mut self, number: &N) -> Option<Box<T>> {
        let place = self.place(number)?;
        let row = self.places.get_mut(place)?.take()?;
        self.count -= 1;
        while self.places.front().is_some_and(Option::is_none) {
            self.places.pop_front();
            self.first += 1;
        }
        Some(row)
    }

    /// From a number on, in order.
    pub fn from(&self, number: &N) -> impl Iterator<Item = &T> + use<'_, N, T> {
        let start = self.place(number).unwrap_or(0).min(self.places.len());
        self.places.range(start..).filter_map(Option::as_deref)
    }

    /// All, in order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.places.iter().filter_map(Option::as_deref)
    }

    pub fn len(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_their_numbers_whatever_is_gone() {
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
