//! Owners by content: of signed content, of content within a window, and of the keys of duplicates that were recognized so.

use rusqlite::{OptionalExtension, params};
use sluice_domain::key::KeyDigest;
use sluice_domain::time::Time;

use super::accept::{KeyedEvent, Owner};
use super::batch::Batch;
use super::content_cache::Content;
use super::key_index::prefix;

impl Batch<'_, '_> {
    /// The event that a key was bound to, as the key of a duplicate.
    pub(super) fn bound_owner(&self, key: KeyDigest, at: Time) -> rusqlite::Result<Option<Owner>> {
        for id in self.indexes.bindings.candidates(self.connection, prefix(&key.0))?.into_iter().rev() {
            let row = |row: &rusqlite::Row<'_>| Ok((KeyDigest(row.get(0)?), row.get(1)?, Time(row.get(2)?)));
            let bound = self.cached(include_str!("sql/key_binding.sql"))?.query_row([id], row).optional()?;
            if let Some((bound_key, seq, expires_at)) = bound
                && bound_key == key
                && expires_at > at
            {
                return self.owner(seq);
            }
        }
        Ok(None)
    }

    /// Binds the key of a duplicate to the event whose content it has, for the lifetime of that event's key: beyond the
    /// content window the same request must not become an event. Signed content needs no binding, since it stays owned.
    pub(super) fn bind_key(&mut self, event: &KeyedEvent<'_>, owner: &Owner) -> rusqlite::Result<()> {
        let by_signed_content = event.signed_content.is_some_and(|content| owner.signed_content == Some(content.0));
        if by_signed_content || owner.expires_at <= event.received_at {
            return Ok(());
        }
        let id = self.counters.next_binding;
        let binding = params![id, event.key.0, owner.seq, owner.expires_at.0];
        self.cached(include_str!("sql/insert_key_binding.sql"))?.execute(binding)?;
        self.counters.next_binding += 1;
        self.indexes.bindings.insert(prefix(&event.key.0), id);
        Ok(())
    }

    /// The event that owns the content, under another key.
    pub(super) fn content_owner(&self, event: &KeyedEvent<'_>) -> rusqlite::Result<Option<Owner>> {
        match self.signed_content_owner(event)? {
            Some(owner) => Ok(Some(owner)),
            None => self.same_content(event),
        }
    }

    fn signed_content_owner(&self, event: &KeyedEvent<'_>) -> rusqlite::Result<Option<Owner>> {
        let Some(content) = event.signed_content else { return Ok(None) };
        for seq in self.indexes.keys.candidates(self.connection, prefix(&content.0))?.into_iter().rev() {
            if let Some(owner) = self.owner(seq)?
                && owner.signed_content == Some(content.0)
            {
                return Ok(Some(owner).filter(|owner| owner.expires_at > event.received_at));
            }
        }
        Ok(None)
    }

    /// The event of this flow with the same type and content within the window, under another key.
    fn same_content(&self, event: &KeyedEvent<'_>) -> rusqlite::Result<Option<Owner>> {
        let Some(window) = event.content_window else { return Ok(None) };
        let Some(seq) = self.contents.find(content_of(event)) else { return Ok(None) };
        Ok(self.owner(seq)?.filter(|owner| {
            owner.fingerprint == event.fingerprint
                && *owner.flow == *event.flow
                && owner.event_type == event.event_type
                && owner.key != event.key
                && event.received_at.since(owner.received_at) <= window
        }))
    }
}

pub(super) fn content_of<'a>(event: &'a KeyedEvent<'_>) -> Content<'a> {
    Content { flow: &event.flow, event_type: &event.event_type, fingerprint: &event.fingerprint }
}
