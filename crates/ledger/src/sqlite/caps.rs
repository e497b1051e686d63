//! Caps of policies: how many effects reach a contact within a window.

use rusqlite::{OptionalExtension, params};
use sluice_domain::job::EffectKey;
use sluice_domain::key::KeyDigest;
use sluice_domain::policy::CapReservation;
use sluice_domain::time::Time;

use super::batch::Batch;
use super::key_store::KeyStore;
use super::read_pool::Reader;
use crate::op::Begin;

/// The digest under which a contact is stored: without the tenant key, an address cannot be looked up.
pub(super) fn contact_digest(key_store: &KeyStore, contact: KeyDigest) -> [u8; 16] {
    key_store.digest("policy contact", &contact.0)
}

impl Batch<'_, '_> {
    /// Index of the first cap that has no room for this effect.
    pub(super) fn exhausted_cap(&self, begin: &Begin, caps: &[CapReservation]) -> rusqlite::Result<Option<usize>> {
        for (index, cap) in caps.iter().enumerate() {
            if !self.holds_cap(cap, begin.key)? && cap.is_exhausted(self.reader().cap_used(cap, &begin.at)?) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    pub(super) fn use_caps(&self, begin: &Begin, caps: &[CapReservation]) -> rusqlite::Result<()> {
        for cap in caps {
            self.cached(include_str!("sql/use_cap.sql"))?.execute(params![
                cap.policy.as_ref(),
                cap.channel.as_ref(),
                contact_digest(self.key_store, cap.contact),
                begin.key.0,
                begin.at.0,
                (begin.at + cap.cap.window).0
            ])?;
        }
        Ok(())
    }

    fn holds_cap(&self, cap: &CapReservation, key: EffectKey) -> rusqlite::Result<bool> {
        let contact = contact_digest(self.key_store, cap.contact);
        let held = self
            .cached(include_str!("sql/holds_cap.sql"))?
            .query_row(params![cap.policy.as_ref(), cap.channel.as_ref(), contact, key.0], |_| Ok(()))
            .optional()?;
        Ok(held.is_some())
    }

    /// An effect that was surely not applied does not count.
    pub(super) fn release_caps(&self, key: EffectKey) -> rusqlite::Result<()> {
        self.cached(include_str!("sql/release_caps.sql"))?.execute([key.0])?;
        Ok(())
    }
}

impl Reader<'_> {
    pub(crate) fn cap_used(&self, cap: &CapReservation, now: &Time) -> rusqlite::Result<u64> {
        let contact = contact_digest(self.key_store, cap.contact);
        let since = *now - cap.cap.window;
        self.prepare_cached(include_str!("sql/cap_used.sql"))?
            .query_row(params![cap.policy.as_ref(), cap.channel.as_ref(), contact, since.0], |row| {
                row.get::<_, i64>(0).map(i64::unsigned_abs)
            })
    }
}
