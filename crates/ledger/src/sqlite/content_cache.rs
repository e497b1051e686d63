//! The newest contents of each flow: what catches a repeat whose key is another.
//!
//! Only in memory, and bounded; durable in the event rows, from which it is filled at start. As with keys, a hit is a
//! candidate, and the event row has the last word.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use sluice_domain::time::Time;

/// Contents that are remembered, whatever the window. About 5 MiB.
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
    /// The longest time for which any flow compares contents; while none does, nothing is remembered.
    window: Duration,
}

/// What undoes the remembering of one content.
#[derive(Debug)]
pub(super) struct Undo {
    content: u64,
    before: Option<Seen>,
}

fn content(flow: &str, fingerprint: &[u8; 16]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (flow, fingerprint).hash(&mut hasher);
    hasher.finish()
}

impl ContentCache {
    /// Reads the newest events back, as far as the longest window reaches.
    pub fn load(connection: &Connection) -> rusqlite::Result<ContentCache> {
        let millis: Option<i64> =
            connection.query_row(include_str!("sql/content_window.sql"), [], |row| row.get(0)).optional()?;
        let Some(millis) = millis else { return Ok(ContentCache::default()) };
        let window = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        let mut statement = connection.prepare(include_str!("sql/newest_contents.sql"))?;
        let mut rows = statement.query([i64::try_from(CONTENTS_MAX).unwrap_or(i64::MAX)])?;
        let mut newest_first: Vec<(u64, Seen)> = Vec::new();
        while let Some(row) = rows.next()? {
            let seen = Seen { seq: row.get(0)?, received_at: Time(row.get(3)?) };
            if newest_first.first().is_some_and(|(_, newest)| newest.received_at.since(seen.received_at) > window) {
                break;
            }
            newest_first.push((content(row.get_ref(1)?.as_str().unwrap_or(""), &row.get(2)?), seen));
        }
        newest_first.reverse();
        Ok(ContentCache { newest: newest_first.iter().copied().collect(), order: newest_first.into(), window })
    }

    /// The event that may have had this content last.
    pub fn find(&self, flow: &str, fingerprint: &[u8; 16]) -> Option<i64> {
        self.newest.get(&content(flow, fingerprint)).map(|seen| seen.seq)
    }

    /// A flow compares contents for so long. Answers whether that is longer than any did before.
    pub fn widen(&mut self, window: Duration) -> bool {
        let wider = window > self.window;
        self.window = self.window.max(window);
        wider
    }

    /// An event with this content was accepted. Nothing is remembered while nobody would ask for it.
    pub fn insert(&mut self, flow: &str, fingerprint: &[u8; 16], seq: i64, received_at: Time) -> Option<Undo> {
        if self.window.is_zero() {
            return None;
        }
        let content = content(flow, fingerprint);
        let seen = Seen { seq, received_at };
        self.order.push_back((content, seen));
        Some(Undo { content, before: self.newest.insert(content, seen) })
    }

    /// The transaction of the newest insert was rolled back. The newest is undone first.
    pub fn undo(&mut self, undo: Undo) {
        self.order.pop_back();
        match undo.before {
            Some(before) => self.newest.insert(undo.content, before),
            None => self.newest.remove(&undo.content),
        };
    }

    /// Forgets what is too old or too much. Only between transactions: what an undo brings back must still be there.
    pub fn trim(&mut self) {
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

    #[test]
    fn what_is_outside_of_the_window_is_forgotten_and_the_newest_of_a_content_counts() {
        let mut net = ContentCache::default();
        assert!(net.insert("leads", &[1; 16], 1, Time(0)).is_none(), "nobody asks");
        assert!(net.widen(15 * MINUTE) && !net.widen(MINUTE));
        let minute = |n: u32| Time(0) + n * MINUTE;
        net.insert("leads", &[1; 16], 2, minute(0));
        net.insert("leads", &[1; 16], 3, minute(10));
        net.insert("orders", &[1; 16], 4, minute(15));
        net.trim();
        assert_eq!((net.find("leads", &[1; 16]), net.find("orders", &[1; 16])), (Some(3), Some(4)));
        net.insert("leads", &[2; 16], 5, minute(26));
        net.trim();
        assert_eq!((net.find("leads", &[1; 16]), net.order.len(), net.newest.len()), (None, 2, 2));
    }

    #[test]
    fn a_rolled_back_batch_leaves_nothing_behind() {
        let mut net = ContentCache::default();
        net.widen(MINUTE);
        net.insert("leads", &[1; 16], 1, Time(0));
        let mut undo: Vec<Undo> = [(1, 2), (2, 3), (1, 4)]
            .iter()
            .filter_map(|(fp, seq)| net.insert("leads", &[*fp; 16], *seq, Time(0)))
            .collect();
        while let Some(last) = undo.pop() {
            net.undo(last);
        }
        assert_eq!((net.find("leads", &[1; 16]), net.find("leads", &[2; 16]), net.order.len()), (Some(1), None, 1));
    }

    #[test]
    fn memory_is_bounded() {
        let mut net = ContentCache::default();
        net.widen(MINUTE);
        for n in 0..CONTENTS_MAX as u128 + 100 {
            net.insert("leads", &n.to_le_bytes(), n as i64, Time(0));
        }
        net.trim();
        assert_eq!((net.order.len(), net.newest.len()), (CONTENTS_MAX, CONTENTS_MAX));
    }
}
