//! Keys of the persons whose data payloads hold.

use sluice_domain::key::KeyDigest;

use super::batch::Batch;
use super::key_index::prefix;
use super::key_store::{ContactKey, Sealer};
use crate::seal::KeyId;

/// The key that seals what is known of a person, or the tenant's if there is no person.
#[derive(Debug)]
pub(super) struct PersonSealer {
    /// Number of the person's key.
    pub contact: Option<i64>,
    pub sealer: Sealer,
}

impl Batch<'_, '_> {
    /// The number of the key of the person with this digest; a new one gets a key of its own.
    pub(super) fn contact_key(&mut self, contact: Option<KeyDigest>) -> rusqlite::Result<Option<i64>> {
        Ok(self.person_sealer(contact)?.contact)
    }

    /// The same with the key.
    pub(super) fn person_sealer(&mut self, contact: Option<KeyDigest>) -> rusqlite::Result<PersonSealer> {
        let Some(contact) = contact else {
            return Ok(PersonSealer { contact: None, sealer: self.key_store.tenant(&self.key_changes) });
        };
        let digest = self.key_store.digest("contact", &contact.0);
        if let Some((id, known)) = self.known_contact(&digest)? {
            return Ok(PersonSealer { contact: Some(id), sealer: Sealer { id: KeyId::Contact(id), key: known.key } });
        }
        let id = self.counters.next_contact;
        let sealer = self.key_store.add_contact(self.connection, &mut self.key_changes, id, digest, self.now)?;
        self.counters.next_contact += 1;
        self.indexes.contacts.insert(prefix(&digest), id);
        Ok(PersonSealer { contact: Some(id), sealer })
    }

    pub(super) fn find_contact(&self, digest: &[u8; 16]) -> rusqlite::Result<Option<i64>> {
        Ok(self.known_contact(digest)?.map(|(id, _)| id))
    }

    fn known_contact(&self, digest: &[u8; 16]) -> rusqlite::Result<Option<(i64, ContactKey)>> {
        for id in self.indexes.contacts.candidates(self.connection, prefix(digest))?.into_iter().rev() {
            let known = self.key_store.contact(self.connection, Some(&self.key_changes), id)?;
            if let Some(known) = known.filter(|known| known.digest == *digest) {
                return Ok(Some((id, known)));
            }
        }
        Ok(None)
    }
}
