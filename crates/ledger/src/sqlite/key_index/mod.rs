//! Index from key prefix to sequence number: of idempotency keys and signed contents to events, of contact digests to contacts,
//! of identifiers to their links, of the keys of duplicates to their bindings, of contacts and traces to their events,
//! and of records at destinations to the effects that wrote them.
//!
//! A unique B-tree index over random keys would limit an embedded store: every insert touches another page. This is a small LSM
//! tree instead. The newest keys are in a memtable, rebuilt from the rows of events and contacts at start. Older keys are in
//! sorted runs, written in slices between batches and read through a Bloom filter each. Runs of one size are merged into a
//! larger one, and a run whose events are all pruned is dropped. Not earlier: a key that is used again after its lifetime must
//! find its last owner, to get the next generation.
//!
//! The writer thread alone looks keys up and inserts them, in the order of its batches. A hit is a candidate; the row with the
//! whole key decides.

mod filter;
mod memtable;
mod run;
mod set;
mod tables;

use memtable::Memtable;
use run::{KeyEntry, Run, RunWriter};
use rusqlite::{Connection, params};
pub(super) use set::KeyIndexes;
use tables::{BINDINGS, CONTACTS, EVENT_REFS, EVENTS, IDENTIFIERS, RECORDS, Tables};

/// Runs of one level before they are merged into one of the next.
const MERGE_RUNS: usize = 8;
/// Runs of this level are not merged further: whole runs can then still expire.
const LEVEL_MAX: i64 = 2;
/// Entries that one slice of compaction writes: a few milliseconds.
const SLICE_ENTRIES: usize = 8 * 1024;

#[derive(Debug)]
struct Frozen {
    entries: Vec<KeyEntry>,
    written: usize,
    writer: RunWriter,
}

#[derive(Debug)]
struct Merge {
    inputs: Vec<Input>,
    writer: RunWriter,
}

#[derive(Debug)]
struct Input {
    run: i64,
    next_page: usize,
    page: std::collections::VecDeque<KeyEntry>,
}

/// Index from key prefix to sequence number.
#[derive(Debug)]
pub(super) struct KeyIndex {
    tables: &'static Tables,
    recent: Memtable,
    /// Inserted by the open transaction.
    uncommitted: Vec<KeyEntry>,
    frozen: Option<Frozen>,
    runs: Vec<Run>,
    merge: Option<Merge>,
    /// Removed runs whose pages are still to be deleted.
    doomed: Vec<(i64, i64)>,
    /// Whether events were pruned since the runs were last checked.
    pruned: bool,
    next_run: i64,
    recent_max: usize,
}

impl KeyIndex {
    /// Reads the runs and rebuilds the newest keys from the rows. Writes nothing, so it works on a full disk.
    pub(super) fn load(
        connection: &Connection,
        tables: &'static Tables,
        recent_max: usize,
    ) -> rusqlite::Result<KeyIndex> {
        let runs = Run::load(connection, tables)?;
        let in_runs = runs.iter().map(|run| run.last_seq).max().unwrap_or(0);
        let mut recent = Memtable::new(tables.lookups);
        let mut statement = connection.prepare(tables.rows_after)?;
        let mut rows = statement.query([in_runs])?;
        while let Some(row) = rows.next()? {
            let seq = row.get(0)?;
            for prefix in (tables.prefixes)(row)?.into_iter().flatten() {
                recent.insert(prefix, seq);
            }
        }
        let with_pages = runs_with_pages(connection, tables)?;
        let next_run = runs.iter().map(|run| run.run).chain(with_pages.iter().copied()).max().unwrap_or(0) + 1;
        // Pages of a run that was never finished or not yet deleted.
        let doomed =
            with_pages.into_iter().filter(|page| runs.iter().all(|run| run.run != *page)).map(|run| (run, 0)).collect();
        Ok(KeyIndex {
            tables,
            recent,
            uncommitted: Vec::new(),
            frozen: None,
            runs,
            merge: None,
            doomed,
            pruned: true,
            next_run,
            recent_max: recent_max.max(1),
        })
    }

    /// Rows that may have this key or id, newest last. The row decides.
    pub(super) fn candidates(&self, connection: &Connection, prefix: u64) -> rusqlite::Result<Vec<i64>> {
        let mut found = Vec::new();
        self.recent.find(prefix, &mut found);
        if let Some(frozen) = &self.frozen {
            let from = frozen.entries.partition_point(|entry| entry.0 < prefix);
            found.extend(frozen.entries[from..].iter().take_while(|entry| entry.0 == prefix).map(|entry| entry.1));
        }
        for run in &self.runs {
            run.find(connection, self.tables, prefix, &mut found)?;
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Part of the open transaction: [`KeyIndex::commit`] or [`KeyIndex::roll_back`] follows.
    pub(super) fn insert(&mut self, prefix: u64, seq: i64) {
        self.recent.insert(prefix, seq);
        self.uncommitted.push((prefix, seq));
    }

    /// Whether the open transaction inserted an entry for this row.
    pub(super) fn is_uncommitted(&self, seq: i64) -> bool {
        self.uncommitted.iter().any(|(_, new)| *new == seq)
    }

    /// The transaction is committed. Returns whether it inserted anything.
    pub(super) fn commit(&mut self) -> bool {
        let any = !self.uncommitted.is_empty();
        self.uncommitted.clear();
        any
    }

    /// The transaction was rolled back: removes what it inserted.
    pub(super) fn roll_back(&mut self) {
        self.recent.remove_last(&self.uncommitted);
        self.uncommitted.clear();
    }

    /// Events were pruned: a run may have none left.
    pub(super) fn note_pruned(&mut self) {
        self.pruned = true;
    }

    /// Number of keys in memory.
    #[cfg(test)]
    pub(super) fn recent_len(&self) -> usize {
        self.recent.len()
    }

    /// Whether [`KeyIndex::compact_slice`] has something to do.
    pub(super) fn needs_compaction(&self) -> bool {
        self.frozen.is_some()
            || self.merge.is_some()
            || !self.doomed.is_empty()
            || self.recent.len() >= self.recent_max
            || self.mergeable().is_some()
            || (self.pruned && !self.runs.is_empty())
    }

    /// One slice of compaction, inside a transaction of its own. If that does not commit, the index must be loaded again.
    pub(super) fn compact_slice(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if self.frozen.is_none() && self.recent.len() >= self.recent_max {
            self.freeze();
        }
        if self.frozen.is_some() {
            return self.write_frozen(connection);
        }
        if self.pruned && self.merge.is_none() {
            if let Some(at) = self.run_without_events(connection)? {
                let run = self.runs.remove(at);
                return self.doom(connection, &run);
            }
            self.pruned = false;
        }
        if let Some((run, page)) = self.doomed.pop() {
            let upto = page + 512;
            connection.execute(&self.tables.delete_pages, params![(run << 32) | page, (run << 32) | upto])?;
            let rest = params![(run << 32) | upto, (run + 1) << 32];
            let left: bool = connection.query_row(&self.tables.has_pages, rest, |row| row.get(0))?;
            if left {
                self.doomed.push((run, upto));
            }
            return Ok(());
        }
        if self.merge.is_none()
            && let Some(level) = self.mergeable()
        {
            self.start_merge(level);
        }
        self.continue_merge(connection)
    }

    fn run_without_events(&self, connection: &Connection) -> rusqlite::Result<Option<usize>> {
        for (at, run) in self.runs.iter().enumerate() {
            let mut has_events = connection.prepare_cached(self.tables.has_rows)?;
            if !has_events.query_row([run.first_seq, run.last_seq], |row| row.get::<_, bool>(0))? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn mergeable(&self) -> Option<i64> {
        (0..LEVEL_MAX).find(|level| self.runs.iter().filter(|run| run.level == *level).count() >= MERGE_RUNS)
    }

    fn freeze(&mut self) {
        let mut entries = std::mem::replace(&mut self.recent, Memtable::new(self.tables.lookups)).into_entries();
        entries.sort_unstable();
        let writer = RunWriter::new(self.tables, self.take_run(), 0, entries.len());
        self.frozen = Some(Frozen { entries, written: 0, writer });
    }

    fn take_run(&mut self) -> i64 {
        self.next_run += 1;
        self.next_run - 1
    }

    fn write_frozen(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let Some(mut frozen) = self.frozen.take() else { return Ok(()) };
        let upto = (frozen.written + SLICE_ENTRIES).min(frozen.entries.len());
        for entry in &frozen.entries[frozen.written..upto] {
            frozen.writer.push(connection, *entry)?;
        }
        frozen.written = upto;
        if upto == frozen.entries.len() {
            // Of the entries themselves: numbers of a rolled-back batch were higher, and are assigned again.
            let seqs = || frozen.entries.iter().map(|entry| entry.1);
            let (first_seq, last_seq) = (seqs().min().unwrap_or(0), seqs().max().unwrap_or(0));
            self.runs.push(frozen.writer.finish(connection, first_seq, last_seq)?);
        } else {
            self.frozen = Some(frozen);
        }
        Ok(())
    }

    fn start_merge(&mut self, level: i64) {
        let inputs: Vec<&Run> = self.runs.iter().filter(|run| run.level == level).take(MERGE_RUNS).collect();
        let capacity = inputs.iter().map(|run| run.entries).sum();
        let inputs = inputs.iter().map(|run| Input { run: run.run, next_page: 0, page: Default::default() }).collect();
        let writer = RunWriter::new(self.tables, self.take_run(), level + 1, capacity);
        self.merge = Some(Merge { inputs, writer });
    }

    fn continue_merge(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let Some(mut merge) = self.merge.take() else { return Ok(()) };
        for _ in 0..SLICE_ENTRIES {
            for input in &mut merge.inputs {
                if let Some(run) = self.runs.iter().find(|run| run.run == input.run)
                    && input.page.is_empty()
                    && input.next_page < run.pages()
                {
                    input.page.extend(run.read_page(connection, self.tables, input.next_page)?);
                    input.next_page += 1;
                }
            }
            let smallest =
                merge.inputs.iter_mut().filter(|input| !input.page.is_empty()).min_by_key(|input| input.page[0]);
            let Some(entry) = smallest.and_then(|input| input.page.pop_front()) else {
                return self.finish_merge(connection, merge);
            };
            merge.writer.push(connection, entry)?;
        }
        self.merge = Some(merge);
        Ok(())
    }

    /// The merged run replaces its inputs in one transaction.
    fn finish_merge(&mut self, connection: &Connection, merge: Merge) -> rusqlite::Result<()> {
        let is_input = |run: &Run| merge.inputs.iter().any(|input| input.run == run.run);
        let first_seq = self.runs.iter().filter(|run| is_input(run)).map(|run| run.first_seq).min().unwrap_or(0);
        let last_seq = self.runs.iter().filter(|run| is_input(run)).map(|run| run.last_seq).max().unwrap_or(0);
        let merged = merge.writer.finish(connection, first_seq, last_seq)?;
        let (inputs, kept) = std::mem::take(&mut self.runs).into_iter().partition::<Vec<_>, _>(is_input);
        self.runs = kept;
        self.runs.push(merged);
        inputs.iter().try_for_each(|run| self.doom(connection, run))
    }

    fn doom(&mut self, connection: &Connection, run: &Run) -> rusqlite::Result<()> {
        connection.execute(&self.tables.delete_run, [run.run])?;
        connection.execute(&self.tables.delete_index, [run.run])?;
        self.doomed.push((run.run, 0));
        Ok(())
    }
}

/// Every run that has pages, by one lookup each.
fn runs_with_pages(connection: &Connection, tables: &Tables) -> rusqlite::Result<Vec<i64>> {
    let mut next = connection.prepare(&tables.next_page)?;
    let mut runs = Vec::new();
    let mut from = 0i64;
    while let Some(page) = next.query_row([from], |row| row.get::<_, Option<i64>>(0))? {
        runs.push(page >> 32);
        from = ((page >> 32) + 1) << 32;
    }
    Ok(runs)
}

/// The prefix of a reference in [`EVENT_REFS`]. The row decides.
pub(super) fn ref_prefix(reference: EventRef) -> u64 {
    let number = match reference {
        EventRef::ContactKey(id) => id << 1,
        EventRef::Contact(id) => (id << 1) | 1,
        EventRef::Trace(start) => return start,
    };
    // The finalizer of SplitMix64: numbers ascend, and filters want prefixes that look random.
    let mixed = (number as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What events are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventRef {
    /// The number of the key that seals the event.
    ContactKey(i64),
    /// The contact of the identity map.
    Contact(i64),
    /// The first half of a trace id.
    Trace(u64),
}

impl EventRef {
    /// Of the stored trace of an event, which begins with the trace id; `None` for other text.
    pub(super) fn trace(text: &str) -> Option<EventRef> {
        let id = text.split('-').next().filter(|id| id.len() == 32)?;
        u64::from_str_radix(id.get(..16)?, 16).ok().map(EventRef::Trace)
    }
}

/// The part of a key or an id that is looked up.
pub(super) fn prefix(key: &[u8; 16]) -> u64 {
    u64::from_be_bytes(key[..8].try_into().expect("eight of sixteen bytes"))
}

#[cfg(test)]
mod tests;
