//! Counters by kind of difference, with samples. Their number is bounded.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use sluice_domain::hash::Set;

use super::Sample;

/// Rows of one table. Names of fields come from senders.
pub(super) const ROWS_MAX: usize = 500;
pub(super) const SAMPLES_MAX: usize = 3;
/// Pairs of a row and a contact that are told apart: about 32 MiB.
const CONTACTS_MAX: usize = 1_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub events: u64,
    pub contacts: u64,
    pub samples: Vec<Sample>,
}

/// Rows by what differs.
#[derive(Clone, Debug)]
pub(super) struct Rows<K> {
    rows: BTreeMap<K, Row>,
    pub left_out: u64,
}

impl<K> Default for Rows<K> {
    fn default() -> Rows<K> {
        Rows { rows: BTreeMap::new(), left_out: 0 }
    }
}

impl<K: Ord> Rows<K> {
    /// The row of this key; `None` once there are too many.
    fn row(&mut self, key: K) -> Option<&mut Row> {
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&key) {
            self.left_out += 1;
            return None;
        }
        Some(self.rows.entry(key).or_default())
    }

    pub(super) fn add(&mut self, key: K, is_new_contact: bool, sample: impl FnOnce() -> Sample) {
        let Some(row) = self.row(key) else { return };
        row.events += 1;
        row.contacts += u64::from(is_new_contact);
        if row.samples.len() < SAMPLES_MAX {
            row.samples.push(sample());
        }
    }

    /// Rows, the most frequent first.
    pub(super) fn sorted(self) -> Vec<(K, Row)> {
        let mut rows: Vec<(K, Row)> = self.rows.into_iter().collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.events));
        rows
    }
}

/// What is more or fewer, by kind.
#[derive(Clone, Debug)]
pub(super) struct Balances<K> {
    counts: BTreeMap<K, (u64, u64)>,
    pub left_out: u64,
}

impl<K> Default for Balances<K> {
    fn default() -> Balances<K> {
        Balances { counts: BTreeMap::new(), left_out: 0 }
    }
}

impl<K: Ord> Balances<K> {
    fn count(&mut self, key: K) -> Option<&mut (u64, u64)> {
        if self.counts.len() >= ROWS_MAX && !self.counts.contains_key(&key) {
            self.left_out += 1;
            return None;
        }
        Some(self.counts.entry(key).or_default())
    }

    pub(super) fn more(&mut self, key: K) {
        if let Some(count) = self.count(key) {
            count.0 += 1;
        }
    }

    pub(super) fn fewer(&mut self, key: K) {
        if let Some(count) = self.count(key) {
            count.1 += 1;
        }
    }

    pub(super) fn sorted(self) -> Vec<(K, (u64, u64))> {
        let mut counts: Vec<_> = self.counts.into_iter().collect();
        counts.sort_by_key(|(_, (more, fewer))| std::cmp::Reverse(more + fewer));
        counts
    }
}

/// Contacts that were counted for a row.
#[derive(Clone, Debug, Default)]
pub(super) struct CountedContacts {
    seen: Set<u64>,
    pub is_full: bool,
}

impl CountedContacts {
    /// Whether the contact is new in this row. `false` for every contact once too many are known.
    pub(super) fn is_new(&mut self, row: impl Hash, contact: u64) -> bool {
        let mut hasher = DefaultHasher::new();
        (row, contact).hash(&mut hasher);
        let digest = hasher.finish();
        if self.seen.len() >= CONTACTS_MAX {
            self.is_full |= !self.seen.contains(&digest);
            return false;
        }
        self.seen.insert(digest)
    }
}
