//! The newest contents of each flow, to find duplicates that have another key.
//!
//! In memory and bounded; filled from the event rows at start. As with keys, a hit is a candidate, and the event row decides.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use sluice_domain::time::Time;

/// Contents in memory, whatever the window. About 5 MiB.
const CONTENTS_MAX: usize = 64 * 1024;

#[derive(Clone, Copy, Debug)]
struct Seen {
    seq: i64,
    received_at: Time,
}

/// The newest event with each content.
#[derive(Debug, Default)]
pub(super) struct ContentCache {
    newest: HashMap<u64, Seen>,
    /// In the order of acceptance, the newest last.
    order: VecDeque<(u64, Seen)>,
    /// The longest window of any flow; while none has one, nothing is cached.
    window: Duration,
}

/// Undoes one insert.
#[derive(Debug)]
pub(super) struct Undo {
    content: u64,
    before: Option<Seen>,
}

/// What makes two contents the same.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Content<'a> {
    pub flow: &'a str,
    pub event_type: &'a str,
    pub fingerprint: &'a [u8; 16],
}

impl Content<'_> {
    fn digest(self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

impl ContentCache {
    /// Reads the newest events, as far as the longest window reaches.
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<ContentCache> {
        let millis: Option<i64> =
            connection.query_row(include_str!("sql/content_window.sql"), [], |row| row.get(0)).optional()?;
        let Some(millis) = millis else { return Ok(ContentCache::default()) };
        let window = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        let mut statement = connection.prepare(include_str!("sql/newest_contents.sql"))?;
        let mut rows = statement.query([i64::try_from(CONTENTS_MAX).unwrap_or(i64::MAX)])?;
        let mut newest_first: Vec<(u64, Seen)> = Vec::new();
        while let Some(row) = rows.next()? {
            let seen = Seen { seq: row.get(0)?, received_at: Time(row.get(4)?) };
            if newest_first.first().is_some_and(|(_, newest)| newest.received_at.since(seen.received_at) > window) {
                break;
            }
            let (flow, event_type, fingerprint) = (row.get_ref(1)?, row.get_ref(2)?, row.get(3)?);
            let (flow, event_type) = (flow.as_str().unwrap_or(""), event_type.as_str().unwrap_or(""));
            newest_first.push((Content { flow, event_type, fingerprint: &fingerprint }.digest(), seen));
        }
        newest_first.reverse();
        Ok(ContentCache { newest: newest_first.iter().copied().collect(), order: newest_first.into(), window })
    }

    /// The last event that may have this content.
    pub(super) fn find(&self, content: Content<'_>) -> Option<i64> {
        self.newest.get(&content.digest()).map(|seen| seen.seq)
    }

    /// The longest window of any flow.
    pub(super) fn window(&self) -> Duration {
        self.window
    }

    /// The transaction that widened the window was rolled back; its inserts are undone before.
    pub(super) fn undo_widening(&mut self, before: Duration) {
        self.window = before;
    }

    /// Returns whether the window is longer than any before.
    pub(super) fn widen(&mut self, window: Duration) -> bool {
        let wider = window > self.window;
        self.window = self.window.max(window);
        wider
    }

    /// An event with this content was accepted.
    pub(super) fn insert(&mut self, content: Content<'_>, seq: i64, received_at: Time) -> Option<Undo> {
        if self.window.is_zero() {
            return None;
        }
        let content = content.digest();
        let seen = Seen { seq, received_at };
        self.order.push_back((content, seen));
        Some(Undo { content, before: self.newest.insert(content, seen) })
    }

    /// The transaction of the newest insert was rolled back. Inserts are undone in reverse order.
    pub(super) fn undo(&mut self, undo: Undo) {
        self.order.pop_back();
        match undo.before {
            Some(before) => self.newest.insert(undo.content, before),
            None => self.newest.remove(&undo.content),
        };
    }

    /// Removes what is too old or too many. Only between transactions: an undo needs what it restores.
    pub(super) fn trim(&mut self) {
        let Some((_, newest)) = self.order.back().copied() else { return };
        while let Some((content, seen)) = self.order.front().copied()
            && (self.order.len() > CONTENTS_MAX || newest.received_at.since(seen.received_at) > self.window)
        {
            self.order.pop_front();
            if self.newest.get(&content).is_some_and(|last| last.seq == seen.seq) {
                self.newest.remove(&content);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn content<'a>(flow: &'a str, fingerprint: &'a [u8; 16]) -> Content<'a> {
        Content { flow, event_type: "lead", fingerprint }
    }

    #[test]
    fn contents_outside_of_the_window_are_removed_and_the_newest_event_counts() {
        let mut cache = ContentCache::default();
        assert!(cache.insert(content("leads", &[1; 16]), 1, Time(0)).is_none(), "no flow has a window");
        assert!(cache.widen(15 * MINUTE) && !cache.widen(MINUTE));
        let minute = |n: u32| Time(0) + n * MINUTE;
        cache.insert(content("leads", &[1; 16]), 2, minute(0));
        cache.insert(content("leads", &[1; 16]), 3, minute(10));
        cache.insert(content("orders", &[1; 16]), 4, minute(15));
        cache.trim();
        assert_eq!(
            (cache.find(content("leads", &[1; 16])), cache.find(content("orders", &[1; 16]))),
            (Some(3), Some(4))
        );
        cache.insert(content("leads", &[2; 16]), 5, minute(26));
        cache.trim();
        assert_eq!((cache.find(content("leads", &[1; 16])), cache.order.len(), cache.newest.len()), (None, 2, 2));
    }

    #[test]
    fn a_rolled_back_batch_leaves_no_contents() {
        let mut cache = ContentCache::default();
        cache.widen(MINUTE);
        cache.insert(content("leads", &[1; 16]), 1, Time(0));
        let mut undo: Vec<Undo> = [(1, 2), (2, 3), (1, 4)]
            .iter()
            .filter_map(|(fp, seq)| cache.insert(content("leads", &[*fp; 16]), *seq, Time(0)))
            .collect();
        while let Some(last) = undo.pop() {
            cache.undo(last);
        }
        assert_eq!(
            (cache.find(content("leads", &[1; 16])), cache.find(content("leads", &[2; 16])), cache.order.len()),
            (Some(1), None, 1)
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut cache = ContentCache::default();
        cache.widen(MINUTE);
        for n in 0..CONTENTS_MAX as u128 + 100 {
            cache.insert(content("leads", &n.to_le_bytes()), n as i64, Time(0));
        }
        cache.trim();
        assert_eq!((cache.order.len(), cache.newest.len()), (CONTENTS_MAX, CONTENTS_MAX));
    }
}
