//! A sorted run of keys: written once, in slices, and then only read.

use rusqlite::{Connection, params};

use super::Tables;
use super::filter::BloomFilter;

/// A key's prefix and the event that has it.
pub(super) type KeyEntry = (u64, i64);

/// A page with this many entries of 16 bytes fits into one leaf of the table.
pub(super) const PAGE_ENTRIES: usize = 248;
const CHUNK_BYTES: usize = 256 * 1024;

/// What is held in memory of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub run: i64,
    pub level: i64,
    pub entries: usize,
    pub first_seq: i64,
    pub last_seq: i64,
    filter: BloomFilter,
    /// The prefix of the first entry of each page.
    fences: Vec<u64>,
}

fn page_id(run: i64, page: usize) -> i64 {
    (run << 32) | i64::try_from(page).expect("fewer than 2^31 pages")
}

fn decode(bytes: &[u8]) -> impl Iterator<Item = KeyEntry> {
    bytes.chunks_exact(16).map(|entry| {
        let (prefix, seq) = entry.split_at(8);
        (
            u64::from_be_bytes(prefix.try_into().expect("eight bytes")),
            i64::from_be_bytes(seq.try_into().expect("eight bytes")),
        )
    })
}

impl Run {
    pub(super) fn load(connection: &Connection, tables: &Tables) -> rusqlite::Result<Vec<Run>> {
        let rows: Vec<(i64, i64, i64, i64, i64)> = connection
            .prepare(&tables.runs)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let mut chunks = connection.prepare(&tables.index)?;
        let mut bytes = |run: i64, kind: i64| -> rusqlite::Result<Vec<u8>> {
            let mut all = Vec::new();
            for chunk in chunks.query_map(params![run, kind], |row| row.get::<_, Vec<u8>>(0))? {
                all.extend(chunk?);
            }
            Ok(all)
        };
        rows.into_iter()
            .map(|(run, level, entries, first_seq, last_seq)| {
                Ok(Run {
                    run,
                    level,
                    entries: usize::try_from(entries).unwrap_or(0),
                    first_seq,
                    last_seq,
                    filter: BloomFilter::from_bytes(&bytes(run, 0)?),
                    fences: bytes(run, 1)?
                        .chunks_exact(8)
                        .map(|fence| u64::from_be_bytes(fence.try_into().expect("eight bytes")))
                        .collect(),
                })
            })
            .collect()
    }

    /// Appends the events that may have this key.
    pub(super) fn find(
        &self,
        connection: &Connection,
        tables: &Tables,
        prefix: u64,
        found: &mut Vec<i64>,
    ) -> rusqlite::Result<()> {
        if !self.filter.may_contain(prefix) {
            return Ok(());
        }
        // Equal prefixes may lie across a page boundary, so start with the last page that begins below.
        let mut page = self.fences.partition_point(|fence| *fence < prefix).saturating_sub(1);
        while page < self.fences.len() && self.fences[page] <= prefix {
            for (candidate, seq) in decode(&self.page(connection, tables, page)?) {
                if candidate == prefix {
                    found.push(seq);
                }
            }
            page += 1;
        }
        Ok(())
    }

    fn page(&self, connection: &Connection, tables: &Tables, page: usize) -> rusqlite::Result<Vec<u8>> {
        connection.prepare_cached(&tables.page)?.query_row([page_id(self.run, page)], |row| row.get(0))
    }

    pub(super) fn pages(&self) -> usize {
        self.fences.len()
    }

    pub(super) fn read_page(
        &self,
        connection: &Connection,
        tables: &Tables,
        page: usize,
    ) -> rusqlite::Result<Vec<KeyEntry>> {
        Ok(decode(&self.page(connection, tables, page)?).collect())
    }
}

/// Writes a run, page by page. It counts once [`Writer::finish`] is committed.
#[derive(Debug)]
pub(super) struct RunWriter {
    tables: &'static Tables,
    run: i64,
    level: i64,
    entries: usize,
    filter: BloomFilter,
    fences: Vec<u64>,
    page: Vec<u8>,
}

impl RunWriter {
    pub(super) fn new(tables: &'static Tables, run: i64, level: i64, capacity: usize) -> RunWriter {
        RunWriter {
            tables,
            run,
            level,
            entries: 0,
            filter: BloomFilter::with_capacity(capacity),
            fences: vec![],
            page: vec![],
        }
    }

    /// Entries must come in ascending order.
    pub(super) fn push(&mut self, connection: &Connection, entry: KeyEntry) -> rusqlite::Result<()> {
        if self.page.is_empty() {
            self.fences.push(entry.0);
        }
        self.page.extend(entry.0.to_be_bytes());
        self.page.extend(entry.1.to_be_bytes());
        self.filter.insert(entry.0);
        self.entries += 1;
        if self.page.len() >= PAGE_ENTRIES * 16 { self.flush(connection) } else { Ok(()) }
    }

    fn flush(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if self.page.is_empty() {
            return Ok(());
        }
        let id = page_id(self.run, self.fences.len() - 1);
        connection.prepare_cached(&self.tables.insert_page)?.execute(params![id, self.page])?;
        self.page.clear();
        Ok(())
    }

    /// The events in it lie between these two places.
    pub(super) fn finish(mut self, connection: &Connection, first_seq: i64, last_seq: i64) -> rusqlite::Result<Run> {
        self.flush(connection)?;
        let fences: Vec<u8> = self.fences.iter().flat_map(|fence| fence.to_be_bytes()).collect();
        let mut insert = connection.prepare_cached(&self.tables.insert_index)?;
        for (kind, bytes) in [(0i64, self.filter.to_bytes()), (1, fences)] {
            for (chunk, bytes) in bytes.chunks(CHUNK_BYTES).enumerate() {
                insert.execute(params![self.run, kind, i64::try_from(chunk).unwrap_or(i64::MAX), bytes])?;
            }
        }
        let entries = i64::try_from(self.entries).unwrap_or(i64::MAX);
        connection
            .prepare_cached(&self.tables.insert_run)?
            .execute(params![self.run, self.level, entries, first_seq, last_seq])?;
        Ok(Run {
            run: self.run,
            level: self.level,
            entries: self.entries,
            first_seq,
            last_seq,
            filter: self.filter,
            fences: self.fences,
        })
    }
}
