//! The indexes of a ledger. They are loaded, committed, rolled back and compacted together.

use rusqlite::Connection;

use super::{BINDINGS, CONTACTS, EVENT_REFS, EVENTS, IDENTIFIERS, KeyIndex, RECORDS};

/// Keys in memory before they are frozen into a run. About 9 MiB.
const RECENT_KEYS_MAX: usize = 256 * 1024;
/// The same for contacts, of which there are fewer.
const RECENT_CONTACTS_MAX: usize = 64 * 1024;
/// The same for bindings, which are rare.
const RECENT_BINDINGS_MAX: usize = 16 * 1024;

#[derive(Debug)]
pub(in crate::sqlite) struct KeyIndexes {
    /// Idempotency keys, ids and signed contents of events.
    pub keys: KeyIndex,
    /// Digests of contacts.
    pub contacts: KeyIndex,
    /// Keys of duplicates that are bound to an event.
    pub bindings: KeyIndex,
    pub identifiers: KeyIndex,
    /// Events of contacts and traces.
    pub event_refs: KeyIndex,
    /// Records that effects have written.
    pub records: KeyIndex,
}

impl KeyIndexes {
    /// `recent_max` replaces the size of every memtable.
    pub(crate) fn load(connection: &Connection, recent_max: Option<usize>) -> rusqlite::Result<KeyIndexes> {
        let load = |tables, max: usize| KeyIndex::load(connection, tables, recent_max.unwrap_or(max));
        Ok(KeyIndexes {
            keys: load(&EVENTS, RECENT_KEYS_MAX)?,
            contacts: load(&CONTACTS, RECENT_CONTACTS_MAX)?,
            bindings: load(&BINDINGS, RECENT_BINDINGS_MAX)?,
            identifiers: load(&IDENTIFIERS, RECENT_CONTACTS_MAX)?,
            event_refs: load(&EVENT_REFS, RECENT_KEYS_MAX)?,
            records: load(&RECORDS, RECENT_KEYS_MAX)?,
        })
    }

    fn all(&mut self) -> [&mut KeyIndex; 6] {
        let KeyIndexes { keys, contacts, bindings, identifiers, event_refs, records } = self;
        [keys, contacts, bindings, identifiers, event_refs, records]
    }

    /// The transaction is committed. Returns whether it inserted an event.
    pub(crate) fn commit(&mut self) -> bool {
        let [events, ..] = self.all().map(KeyIndex::commit);
        events
    }

    pub(crate) fn roll_back(&mut self) {
        self.all().into_iter().for_each(KeyIndex::roll_back);
    }

    pub(crate) fn needs_compaction(&mut self) -> bool {
        self.all().iter().any(|index| index.needs_compaction())
    }

    /// One slice of each index, inside a transaction of its own. If that does not commit, the indexes must be loaded again.
    pub(crate) fn compact_slice(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let indexes = self.all().into_iter().filter(|index| index.needs_compaction());
        indexes.into_iter().try_for_each(|index| index.compact_slice(connection))
    }
}
