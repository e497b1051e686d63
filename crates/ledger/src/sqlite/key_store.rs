//! The keys that seal rows, unwrapped.
//!
//! Shared by the writer and the readers. It holds committed keys only: a value that is sealed with a rolled-back key could never
//! be opened again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use rusqlite::{Connection, OptionalExtension, params};
use sluice_domain::key::KeyDigest;
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::time::Time;

use super::{Unopened, sealed_error};
use crate::Error;
use crate::record::{KeysRecord, TenantKeyRecord};
use crate::seal::{DataKey, KeyId, RootKey, SealContext};

/// There is one tenant so far; it is part of every seal context all the same.
const TENANT: &str = "default";
/// Sealed with the root key, to recognize it.
const CHECK: &[u8] = b"sluice root key";
/// Version of the key for digests. It is never rotated, since rows are found by their digests.
const DIGESTS: u32 = 0;
/// Contact keys that are cached unwrapped. About 2 MiB.
const CONTACTS_OPEN_MAX: usize = 32 * 1024;

#[derive(Debug)]
pub(crate) struct KeyStore {
    ring: RwLock<Ring>,
    contacts: Mutex<HashMap<i64, ContactKey>>,
    digests: DataKey,
}

#[derive(Clone, Debug)]
struct Ring {
    root: RootKey,
    tenant: BTreeMap<u32, DataKey>,
}

impl Ring {
    fn version<'a>(&'a self, changes: Option<&'a Changes>, version: u32) -> Option<&'a DataKey> {
        changes.and_then(|changes| changes.tenant.get(&version)).or(self.tenant.get(&version))
    }
}

/// The key of a contact.
#[derive(Clone, Debug)]
pub(crate) struct ContactKey {
    pub digest: [u8; 16],
    pub key: DataKey,
}

/// A key to seal with.
#[derive(Clone, Debug)]
pub(crate) struct Sealer {
    pub id: KeyId,
    pub key: DataKey,
}

impl Sealer {
    pub(crate) fn seal(&self, place: SealContext<'_>, parts: &[&[u8]]) -> Vec<u8> {
        self.key.seal(self.id, TENANT, place, parts)
    }

    fn wrap(&self, place: SealContext<'_>, key: &DataKey) -> Vec<u8> {
        self.key.wrap(self.id, TENANT, place, key)
    }
}

/// Whether a sealed value is as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsealed {
    Unaltered,
    Altered,
    /// The key of its contact is destroyed, so it cannot be told.
    KeyDestroyed,
}

/// Changes of the keys by a batch, until it commits.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    root: Option<RootKey>,
    tenant: BTreeMap<u32, DataKey>,
    pub contacts: HashMap<i64, ContactKey>,
}

fn tenant_place(version: u32) -> SealContext<'static> {
    SealContext::new("tenant_key", i64::from(version), "wrapped")
}

fn contact_place(id: i64) -> SealContext<'static> {
    SealContext::new("contact_key", id, "wrapped")
}

const CHECK_PLACE: SealContext<'_> =
    SealContext { table: "meta", row: 0, part: b"", column: "root_check", stable: None };

fn unopened(place: SealContext<'_>) -> rusqlite::Error {
    let SealContext { table, row, column, .. } = place;
    let error = Box::new(Unopened { table, row, column });
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, error)
}

impl KeyStore {
    /// Unwraps the keys with the root key; creates them if there are none.
    pub(crate) fn open(connection: &mut Connection, root: Option<RootKey>, now: Time) -> Result<KeyStore, Error> {
        let root = root.ok_or(Error::RootKeyMissing)?;
        if !KeyStore::is_opened_by(connection, &root)? {
            return Err(Error::RootKeyWrong { given: root.id() });
        }
        if tenant_rows(connection)?.is_empty() {
            create(connection, &root, now)?;
        }
        KeyStore::open_existing(connection, root)
    }

    /// Opens the keys of a ledger that has some. Nothing is written.
    pub(crate) fn open_existing(connection: &Connection, root: RootKey) -> Result<KeyStore, Error> {
        if !KeyStore::is_opened_by(connection, &root)? {
            return Err(Error::RootKeyWrong { given: root.id() });
        }
        let mut tenant = BTreeMap::new();
        for (version, wrapped) in tenant_rows(connection)? {
            let key = root.key().unwrap_key(TENANT, tenant_place(version), &wrapped);
            tenant.insert(version, key.ok_or_else(|| unopened(tenant_place(version)))?);
        }
        let digests = tenant.remove(&DIGESTS).ok_or_else(|| unopened(tenant_place(DIGESTS)))?;
        Ok(KeyStore { ring: RwLock::new(Ring { root, tenant }), contacts: Mutex::default(), digests })
    }

    /// Whether the keys, if there are any, are wrapped with this root key.
    pub(crate) fn is_opened_by(connection: &Connection, root: &RootKey) -> rusqlite::Result<bool> {
        let check: Option<Vec<u8>> =
            connection.query_row(include_str!("sql/root_check.sql"), [], |row| row.get(0)).optional()?;
        Ok(check.is_none_or(|check| root.key().open(TENANT, CHECK_PLACE, &check).as_deref() == Some(CHECK)))
    }

    /// A keyed digest: cannot be computed without the root key, and never changes.
    pub(crate) fn digest(&self, purpose: &str, bytes: &[u8]) -> [u8; 16] {
        self.digests.mac(purpose, bytes)[..16].try_into().expect("sixteen of thirty-two bytes")
    }

    /// The key of pseudonyms: derived from the key for digests, so it never changes.
    pub(crate) fn pseudonym_key(&self) -> PseudonymKey {
        PseudonymKey::new(self.digests.mac("pseudonym key", b""))
    }

    pub(crate) fn key_digest(&self, key: KeyDigest) -> KeyDigest {
        KeyDigest(self.digest("key", &key.0))
    }

    fn ring(&self) -> RwLockReadGuard<'_, Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn contacts(&self) -> MutexGuard<'_, HashMap<i64, ContactKey>> {
        self.contacts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest tenant key.
    pub(crate) fn tenant(&self, changes: &Changes) -> Sealer {
        let ring = self.ring();
        let newest = changes.tenant.last_key_value().or(ring.tenant.last_key_value());
        let (version, key) = newest.expect("a key store is opened with a tenant key");
        Sealer { id: KeyId::Tenant(*version), key: key.clone() }
    }

    /// The key of a contact; `None` if it is destroyed. An uncommitted key is found in the changes only.
    pub(crate) fn contact(
        &self,
        connection: &Connection,
        changes: Option<&Changes>,
        id: i64,
    ) -> rusqlite::Result<Option<ContactKey>> {
        if let Some(contact) = changes.and_then(|changes| changes.contacts.get(&id)) {
            return Ok(Some(contact.clone()));
        }
        if let Some(contact) = self.contacts().get(&id) {
            return Ok(Some(contact.clone()));
        }
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, Option<Vec<u8>>>(1)?));
        let found = connection.prepare_cached(include_str!("sql/contact_key.sql"))?.query_row([id], row).optional()?;
        let Some((digest, Some(wrapped))) = found else { return Ok(None) };
        let key = self.unwrap_contact(id, &wrapped, changes)?;
        let contact = ContactKey { digest, key };
        self.cache(id, contact.clone());
        Ok(Some(contact))
    }

    fn unwrap_contact(&self, id: i64, wrapped: &[u8], changes: Option<&Changes>) -> rusqlite::Result<DataKey> {
        let ring = self.ring();
        let wrapping = match KeyId::of(wrapped) {
            Some(KeyId::Tenant(version)) => ring.version(changes, version),
            _ => None,
        };
        let place = contact_place(id);
        wrapping.and_then(|key| key.unwrap_key(TENANT, place, wrapped)).ok_or_else(|| unopened(place))
    }

    fn cache(&self, id: i64, contact: ContactKey) {
        let mut contacts = self.contacts();
        if contacts.len() >= CONTACTS_OPEN_MAX {
            contacts.clear();
        }
        contacts.insert(id, contact);
    }

    /// Creates the key of a new contact. It is cached once the transaction is committed.
    pub(crate) fn add_contact(
        &self,
        connection: &Connection,
        changes: &mut Changes,
        id: i64,
        digest: [u8; 16],
        now: Time,
    ) -> rusqlite::Result<Sealer> {
        let key = DataKey::generate();
        let wrapped = self.tenant(changes).wrap(contact_place(id), &key);
        let mut insert = connection.prepare_cached(include_str!("sql/insert_contact_key.sql"))?;
        insert.execute(params![id, digest, wrapped, now.0])?;
        changes.contacts.insert(id, ContactKey { digest, key: key.clone() });
        Ok(Sealer { id: KeyId::Contact(id), key })
    }

    /// Opens a sealed value.
    pub(crate) fn unseal(
        &self,
        connection: &Connection,
        changes: Option<&Changes>,
        place: SealContext<'_>,
        sealed: &[u8],
    ) -> rusqlite::Result<Vec<u8>> {
        let opened = match KeyId::of(sealed) {
            Some(KeyId::Contact(id)) => {
                self.contact(connection, changes, id)?.and_then(|contact| contact.key.open(TENANT, place, sealed))
            }
            Some(KeyId::Tenant(version)) => {
                self.ring().version(changes, version).and_then(|key| key.open(TENANT, place, sealed))
            }
            Some(KeyId::Root) | None => None,
        };
        opened.ok_or_else(|| unopened(place))
    }

    /// Whether a sealed value opens. Another process may have created keys since this store was opened: they are read first.
    pub(crate) fn try_unseal(
        &self,
        connection: &Connection,
        place: SealContext<'_>,
        sealed: &[u8],
    ) -> rusqlite::Result<Unsealed> {
        match self.try_unseal_once(connection, place, sealed)? {
            Unsealed::Altered => {
                self.load_new_tenant_keys(connection)?;
                self.try_unseal_once(connection, place, sealed)
            }
            opened => Ok(opened),
        }
    }

    fn try_unseal_once(
        &self,
        connection: &Connection,
        place: SealContext<'_>,
        sealed: &[u8],
    ) -> rusqlite::Result<Unsealed> {
        let key = match KeyId::of(sealed) {
            Some(KeyId::Contact(id)) => match self.contact(connection, None, id) {
                Ok(None) => return Ok(Unsealed::KeyDestroyed),
                Ok(Some(contact)) => Some(contact.key),
                // The key itself was altered.
                Err(error) if sealed_error(&error).is_some() => None,
                Err(error) => return Err(error),
            },
            Some(KeyId::Tenant(version)) => self.ring().version(None, version).cloned(),
            Some(KeyId::Root) | None => None,
        };
        let opens = key.is_some_and(|key| key.open(TENANT, place, sealed).is_some());
        Ok(if opens { Unsealed::Unaltered } else { Unsealed::Altered })
    }

    fn load_new_tenant_keys(&self, connection: &Connection) -> rusqlite::Result<()> {
        let rows = tenant_rows(connection)?;
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        for (version, wrapped) in rows.into_iter().filter(|(version, _)| *version != DIGESTS) {
            if !ring.tenant.contains_key(&version)
                && let Some(key) = ring.root.key().unwrap_key(TENANT, tenant_place(version), &wrapped)
            {
                ring.tenant.insert(version, key);
            }
        }
        Ok(())
    }

    /// Wraps the tenant keys with a new root key.
    pub(crate) fn rotate_root(
        &self,
        connection: &Connection,
        changes: &mut Changes,
        new: &RootKey,
    ) -> rusqlite::Result<()> {
        let old = changes.root.clone().unwrap_or_else(|| self.ring().root.clone());
        for (version, wrapped) in tenant_rows(connection)? {
            let place = tenant_place(version);
            let key = old.key().unwrap_key(TENANT, place, &wrapped).ok_or_else(|| unopened(place))?;
            let wrapped = new.key().wrap(KeyId::Root, TENANT, place, &key);
            connection.execute(include_str!("sql/rewrap_tenant_key.sql"), params![TENANT, version, wrapped])?;
        }
        keep_check(connection, new)?;
        changes.root = Some(new.clone());
        Ok(())
    }

    /// Creates a new tenant key and returns its version.
    pub(crate) fn rotate_tenant(
        &self,
        connection: &Connection,
        changes: &mut Changes,
        now: Time,
    ) -> rusqlite::Result<u32> {
        let KeyId::Tenant(newest) = self.tenant(changes).id else { unreachable!("the tenant's key has a version") };
        let root = changes.root.clone().unwrap_or_else(|| self.ring().root.clone());
        let (version, key) = (newest + 1, DataKey::generate());
        insert_tenant(connection, &root, version, &key, now)?;
        connection.execute(include_str!("sql/keep_rewrapped.sql"), [0])?;
        changes.tenant.insert(version, key);
        Ok(version)
    }

    /// Wraps the keys of the next contacts with the newest tenant key. Returns how many were looked at: 0 when all are done.
    pub(crate) fn rewrap(&self, connection: &Connection, changes: &Changes, rows_max: u32) -> rusqlite::Result<u64> {
        let done: Option<i64> =
            connection.query_row(include_str!("sql/rewrapped.sql"), [], |row| row.get(0)).optional()?;
        let Some(done) = done else { return Ok(0) };
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let next: Vec<(i64, Option<Vec<u8>>)> = connection
            .prepare_cached(include_str!("sql/contact_keys_after.sql"))?
            .query_map(params![done, rows_max], row)?
            .collect::<rusqlite::Result<_>>()?;
        let newest = self.tenant(changes);
        for (id, wrapped) in &next {
            let Some(wrapped) = wrapped.as_ref().filter(|wrapped| KeyId::of(wrapped) != Some(newest.id)) else {
                continue;
            };
            let key = self.unwrap_contact(*id, wrapped, Some(changes))?;
            let mut update = connection.prepare_cached(include_str!("sql/rewrap_contact_key.sql"))?;
            update.execute(params![id, newest.wrap(contact_place(*id), &key)])?;
        }
        match next.last() {
            Some((last, _)) => connection.execute(include_str!("sql/keep_rewrapped.sql"), [last])?,
            None => connection.execute(include_str!("sql/delete_rewrapped.sql"), [])?,
        };
        Ok(next.len() as u64)
    }

    /// The transaction is committed: its keys become visible.
    pub(crate) fn commit(&self, changes: Changes) {
        for (id, contact) in changes.contacts {
            self.cache(id, contact);
        }
        if changes.root.is_some() || !changes.tenant.is_empty() {
            let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
            ring.tenant.extend(changes.tenant);
            if let Some(root) = changes.root {
                ring.root = root;
            }
        }
    }

    /// Describes the keys without their values.
    pub(crate) fn describe(&self, connection: &Connection) -> rusqlite::Result<KeysRecord> {
        let tenant = connection
            .prepare_cached(include_str!("sql/tenant_keys.sql"))?
            .query_map([TENANT], |row| Ok((row.get::<_, u32>(0)?, Time(row.get(2)?))))?
            .filter(|row| row.as_ref().map_or(true, |(version, _)| *version != DIGESTS))
            .map(|row| row.map(|(version, created_at)| TenantKeyRecord { version, created_at }))
            .collect::<rusqlite::Result<_>>()?;
        let rewrapped: Option<i64> =
            connection.query_row(include_str!("sql/rewrapped.sql"), [], |row| row.get(0)).optional()?;
        let contacts: i64 = connection.query_row(include_str!("sql/last_contact.sql"), [], |row| row.get(0))?;
        Ok(KeysRecord {
            root: self.ring().root.id(),
            tenant,
            contacts: contacts.unsigned_abs(),
            to_rewrap: rewrapped.map_or(0, |done| (contacts - done).unsigned_abs()),
        })
    }
}

fn tenant_rows(connection: &Connection) -> rusqlite::Result<Vec<(u32, Vec<u8>)>> {
    connection
        .prepare(include_str!("sql/tenant_keys.sql"))?
        .query_map([TENANT], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn insert_tenant(
    connection: &Connection,
    root: &RootKey,
    version: u32,
    key: &DataKey,
    now: Time,
) -> rusqlite::Result<()> {
    let wrapped = root.key().wrap(KeyId::Root, TENANT, tenant_place(version), key);
    connection.execute(include_str!("sql/insert_tenant_key.sql"), params![TENANT, version, wrapped, now.0])?;
    Ok(())
}

fn keep_check(connection: &Connection, root: &RootKey) -> rusqlite::Result<()> {
    let check = root.key().seal(KeyId::Root, TENANT, CHECK_PLACE, &[CHECK]);
    connection.execute(include_str!("sql/keep_root_check.sql"), [check])?;
    Ok(())
}

fn create(connection: &mut Connection, root: &RootKey, now: Time) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for version in [DIGESTS, DIGESTS + 1] {
        insert_tenant(&transaction, root, version, &DataKey::generate(), now)?;
    }
    keep_check(&transaction, root)?;
    transaction.commit()
}
