//! The newest entries of an index, in memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use super::run::KeyEntry;

/// How often an index is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookups {
    /// With every insert.
    Frequent,
    /// Now and then, for an operator. A lookup reads every entry in memory, which takes less than a millisecond.
    Rare,
}

/// Prefixes are digests: they are their own hash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64 keys are hashed")
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

type ByPrefix<T> = HashMap<u64, T, BuildHasherDefault<Identity>>;

#[derive(Debug)]
pub(super) enum Memtable {
    Hashed(Hashed),
    /// In the order of their inserts: one append for each, instead of a random access.
    Appended(Vec<KeyEntry>),
}

#[derive(Debug, Default)]
pub(super) struct Hashed {
    map: ByPrefix<i64>,
    /// Further events under a prefix that is taken: a later generation, or two keys that begin alike.
    more: ByPrefix<Vec<i64>>,
    len: usize,
}

impl Hashed {
    fn insert(&mut self, prefix: u64, seq: i64) {
        match self.map.entry(prefix) {
            Entry::Vacant(slot) => {
                slot.insert(seq);
            }
            Entry::Occupied(_) => self.more.entry(prefix).or_default().push(seq),
        }
        self.len += 1;
    }

    fn remove(&mut self, prefix: u64, seq: i64) {
        if self.map.get(&prefix) == Some(&seq) {
            self.map.remove(&prefix);
        } else if let Some(more) = self.more.get_mut(&prefix) {
            more.retain(|other| *other != seq);
        }
        self.len -= 1;
    }
}

impl Memtable {
    pub(super) fn new(lookups: Lookups) -> Memtable {
        match lookups {
            Lookups::Frequent => Memtable::Hashed(Hashed::default()),
            Lookups::Rare => Memtable::Appended(Vec::new()),
        }
    }

    pub(super) fn insert(&mut self, prefix: u64, seq: i64) {
        match self {
            Memtable::Hashed(hashed) => hashed.insert(prefix, seq),
            Memtable::Appended(entries) => entries.push((prefix, seq)),
        }
    }

    /// Removes the entries that were inserted last.
    pub(super) fn remove_last(&mut self, last: &[KeyEntry]) {
        match self {
            Memtable::Hashed(hashed) => last.iter().for_each(|(prefix, seq)| hashed.remove(*prefix, *seq)),
            Memtable::Appended(entries) => entries.truncate(entries.len().saturating_sub(last.len())),
        }
    }

    pub(super) fn find(&self, prefix: u64, found: &mut Vec<i64>) {
        match self {
            Memtable::Hashed(hashed) => {
                found.extend(hashed.map.get(&prefix));
                found.extend(hashed.more.get(&prefix).into_iter().flatten());
            }
            Memtable::Appended(entries) => {
                found.extend(entries.iter().filter(|entry| entry.0 == prefix).map(|entry| entry.1));
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Memtable::Hashed(hashed) => hashed.len,
            Memtable::Appended(entries) => entries.len(),
        }
    }

    /// Not sorted.
    pub(super) fn into_entries(self) -> Vec<KeyEntry> {
        match self {
            Memtable::Hashed(hashed) => {
                let more = hashed.more.into_iter();
                let more = more.flat_map(|(prefix, seqs)| seqs.into_iter().map(move |seq| (prefix, seq)));
                hashed.map.into_iter().chain(more).collect()
            }
            Memtable::Appended(entries) => entries,
        }
    }
}
