//! The tables of an index: the same statements for each, under its own names.

use std::sync::LazyLock;

use rusqlite::Row;

use super::memtable::Lookups;
use super::{EventRef, prefix, ref_prefix};

/// The statements of one index.
#[derive(Debug)]
pub(in crate::sqlite) struct Tables {
    pub(super) runs: String,
    pub(super) index: String,
    pub(super) page: String,
    pub(super) next_page: String,
    pub(super) has_pages: String,
    pub(super) insert_run: String,
    pub(super) insert_index: String,
    pub(super) insert_page: String,
    pub(super) delete_run: String,
    pub(super) delete_index: String,
    pub(super) delete_pages: String,
    /// The rows beyond a place, whose keys are not in a run yet.
    pub(super) rows_after: &'static str,
    /// The prefixes of such a row.
    pub(super) prefixes: fn(&Row<'_>) -> rusqlite::Result<[Option<u64>; 3]>,
    /// Whether there are rows between two places.
    pub(super) has_rows: &'static str,
    pub(super) lookups: Lookups,
}

/// The keys of events.
pub(in crate::sqlite) static EVENTS: LazyLock<Tables> = LazyLock::new(|| {
    Tables::named("key_", include_str!("../sql/keys_after.sql"), include_str!("../sql/has_events.sql"))
});

/// The digests of contacts.
pub(in crate::sqlite) static CONTACTS: LazyLock<Tables> = LazyLock::new(|| {
    Tables::named("contact_", include_str!("../sql/contacts_after.sql"), include_str!("../sql/has_contacts.sql"))
});

/// The keys of duplicates that are bound to an event.
pub(in crate::sqlite) static BINDINGS: LazyLock<Tables> = LazyLock::new(|| {
    Tables::named("binding_", include_str!("../sql/bindings_after.sql"), include_str!("../sql/has_bindings.sql"))
});

/// The digests of identifiers.
pub(in crate::sqlite) static IDENTIFIERS: LazyLock<Tables> = LazyLock::new(|| {
    Tables::named(
        "identifier_",
        include_str!("../sql/identifiers_after.sql"),
        include_str!("../sql/has_identifiers.sql"),
    )
});

/// The events of contacts and traces. Contacts come back at any time, so a B-tree over them would touch a page for every event.
pub(in crate::sqlite) static EVENT_REFS: LazyLock<Tables> = LazyLock::new(|| Tables {
    prefixes: ref_prefixes,
    lookups: Lookups::Rare,
    ..Tables::named("event_ref_", include_str!("../sql/event_refs_after.sql"), include_str!("../sql/has_events.sql"))
});

/// The records that effects have written.
pub(in crate::sqlite) static RECORDS: LazyLock<Tables> = LazyLock::new(|| {
    Tables::named("record_", include_str!("../sql/record_refs_after.sql"), include_str!("../sql/has_record_refs.sql"))
});

/// Of a key, an id if it is another, and a content.
fn key_prefixes(row: &Row<'_>) -> rusqlite::Result<[Option<u64>; 3]> {
    let (key, id): ([u8; 16], [u8; 16]) = (row.get(1)?, row.get(2)?);
    let content: Option<[u8; 16]> = row.get(3)?;
    Ok([Some(prefix(&key)), (id != key).then(|| prefix(&id)), content.as_ref().map(prefix)])
}

fn ref_prefixes(row: &Row<'_>) -> rusqlite::Result<[Option<u64>; 3]> {
    let (key, contact): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
    let trace = EventRef::trace(row.get_ref(3)?.as_str()?);
    let refs = [key.map(EventRef::ContactKey), contact.map(EventRef::Contact), trace];
    Ok(refs.map(|reference| reference.map(ref_prefix)))
}

impl Tables {
    fn named(prefix: &str, rows_after: &'static str, has_rows: &'static str) -> Tables {
        let named = |sql: &str| sql.replace("key_", prefix);
        Tables {
            runs: named(include_str!("../sql/key_runs.sql")),
            index: named(include_str!("../sql/key_index.sql")),
            page: named(include_str!("../sql/key_page.sql")),
            next_page: named(include_str!("../sql/next_key_page.sql")),
            has_pages: named(include_str!("../sql/has_key_pages.sql")),
            insert_run: named(include_str!("../sql/insert_key_run.sql")),
            insert_index: named(include_str!("../sql/insert_key_index.sql")),
            insert_page: named(include_str!("../sql/insert_key_page.sql")),
            delete_run: named(include_str!("../sql/delete_key_run.sql")),
            delete_index: named(include_str!("../sql/delete_key_index.sql")),
            delete_pages: named(include_str!("../sql/delete_key_pages.sql")),
            rows_after,
            prefixes: key_prefixes,
            has_rows,
            lookups: Lookups::Frequent,
        }
    }
}
