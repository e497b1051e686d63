//! Sealing and opening of one value.

use std::cell::RefCell;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use data_encoding::HEXLOWER;

/// The layout of a sealed value: the format, the key that sealed it, a nonce, the bytes, and the tag behind them.
///
/// Format 1 binds a value to the number of its row, format 2 to an id that stays the same in every store.
const FORMAT_ROW: u8 = 1;
const FORMAT_STABLE: u8 = 2;
const HEAD_BYTES: usize = 1 + 8;
const TAG_BYTES: usize = 16;
/// Bytes that sealing adds to a value.
pub(crate) const SEALED_OVERHEAD_BYTES: usize = HEAD_BYTES + NONCE_LEN + TAG_BYTES;
/// Nonces that are generated at once.
const NONCES_AHEAD: usize = 64;
/// Inputs of a digest up to this length are hashed in one call, which costs half as much.
const MAC_BYTES_AT_ONCE: usize = 256;
/// Capacity for the head and the context of a value.
const AAD_BYTES: usize = 128;

/// Which key sealed a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyId {
    Root,
    /// A version of the tenant key.
    Tenant(u32),
    /// The key of a contact.
    Contact(i64),
}

impl KeyId {
    fn code(self) -> i64 {
        match self {
            KeyId::Root => 0,
            KeyId::Tenant(version) => -i64::from(version) - 1,
            KeyId::Contact(id) => id,
        }
    }

    fn from_code(code: i64) -> Option<KeyId> {
        match code {
            0 => Some(KeyId::Root),
            1.. => Some(KeyId::Contact(code)),
            _ => u32::try_from(-(code + 1)).ok().map(KeyId::Tenant),
        }
    }

    /// The key that a value names. Only opening it proves that.
    pub(crate) fn of(sealed: &[u8]) -> Option<KeyId> {
        let (format, rest) = sealed.split_first()?;
        let code = i64::from_be_bytes(rest.get(..8)?.try_into().ok()?);
        [FORMAT_ROW, FORMAT_STABLE].contains(format).then(|| KeyId::from_code(code)).flatten()
    }
}

/// The context of a sealed value. It does not open in another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SealContext<'a> {
    pub table: &'static str,
    /// Number of the row, or of the job that it belongs to.
    pub row: i64,
    /// What else identifies the row.
    pub part: &'a [u8],
    pub column: &'static str,
    /// Binds a value of format 2 instead of the row.
    pub stable: Option<StableId>,
}

/// An id that does not depend on the numbering of a store: of an event with an index within it, or an effect key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StableId {
    pub owner: [u8; 16],
    pub index: u32,
}

impl<'a> SealContext<'a> {
    pub(crate) fn new(table: &'static str, row: i64, column: &'static str) -> SealContext<'a> {
        SealContext { table, row, part: &[], column, stable: None }
    }

    /// The format of new values.
    fn format(&self) -> u8 {
        if self.stable.is_some() { FORMAT_STABLE } else { FORMAT_ROW }
    }

    /// Appends the context and the tenant, unambiguously. `None` if a value of this format cannot have this context.
    fn write(&self, tenant: &str, format: u8, bytes: &mut Vec<u8>) -> Option<()> {
        for text in [tenant.as_bytes(), self.table.as_bytes(), self.column.as_bytes(), self.part] {
            bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
            bytes.extend_from_slice(text);
        }
        match format {
            FORMAT_ROW => bytes.extend_from_slice(&self.row.to_be_bytes()),
            FORMAT_STABLE => {
                let stable = self.stable?;
                bytes.extend_from_slice(&stable.owner);
                bytes.extend_from_slice(&stable.index.to_be_bytes());
            }
            _ => return None,
        }
        Some(())
    }
}

/// A key that seals. Never printed, and wiped when it is dropped.
#[derive(Clone)]
pub(crate) struct DataKey([u8; 32]);

impl Drop for DataKey {
    fn drop(&mut self) {
        self.0.fill(0);
        // Otherwise the compiler would remove the write.
        std::hint::black_box(&self.0);
    }
}

impl std::fmt::Debug for DataKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataKey")
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("random numbers do not run out");
    bytes
}

/// A credential that cannot be guessed: 256 random bits as hexadecimal digits.
pub fn random_token() -> String {
    HEXLOWER.encode(&random::<32>())
}

/// A random nonce. Many are generated at once, which costs hardly more than one; they are no secret.
fn nonce() -> [u8; NONCE_LEN] {
    thread_local! {
        static AHEAD: RefCell<Vec<[u8; NONCE_LEN]>> = const { RefCell::new(Vec::new()) };
    }
    AHEAD.with_borrow_mut(|ahead| {
        if ahead.is_empty() {
            let many: [u8; NONCE_LEN * NONCES_AHEAD] = random();
            ahead.extend_from_slice(many.as_chunks().0);
        }
        ahead.pop().expect("they were just made")
    })
}

impl DataKey {
    pub(crate) fn new(bytes: [u8; 32]) -> DataKey {
        DataKey(bytes)
    }

    pub(crate) fn generate() -> DataKey {
        DataKey(random())
    }

    pub(crate) fn to_hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// A keyed digest.
    pub(crate) fn mac(&self, purpose: &str, bytes: &[u8]) -> [u8; 32] {
        let length = (purpose.len() as u64).to_be_bytes();
        let parts = [&length, purpose.as_bytes(), bytes];
        if parts.iter().map(|part| part.len()).sum::<usize>() <= MAC_BYTES_AT_ONCE {
            let (mut input, mut end) = ([0; MAC_BYTES_AT_ONCE], 0);
            for part in parts {
                input[end..end + part.len()].copy_from_slice(part);
                end += part.len();
            }
            return *blake3::keyed_hash(&self.0, &input[..end]).as_bytes();
        }
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// The key for one context.
    fn at(&self, place: &[u8]) -> LessSafeKey {
        let own = self.mac("sluice key of a place", place);
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &own).expect("a digest has as many bytes as the key"))
    }

    /// Seals the concatenated parts.
    pub(crate) fn seal(&self, id: KeyId, tenant: &str, place: SealContext<'_>, parts: &[&[u8]]) -> Vec<u8> {
        let format = place.format();
        let mut aad = Vec::with_capacity(AAD_BYTES);
        aad.push(format);
        aad.extend_from_slice(&id.code().to_be_bytes());
        place.write(tenant, format, &mut aad).expect("a context has the bytes of its own format");
        let (head, place) = aad.split_at(HEAD_BYTES);
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut sealed = Vec::with_capacity(HEAD_BYTES + NONCE_LEN + length + TAG_BYTES);
        sealed.extend_from_slice(head);
        let nonce = nonce();
        sealed.extend_from_slice(&nonce);
        parts.iter().for_each(|part| sealed.extend_from_slice(part));
        let tag = self
            .at(place)
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(&aad),
                &mut sealed[HEAD_BYTES + NONCE_LEN..],
            )
            .expect("a value is shorter than 64 GiB");
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    /// `None` if the value was sealed with another key or in another context, or was altered.
    pub(crate) fn open(&self, tenant: &str, place: SealContext<'_>, sealed: &[u8]) -> Option<Vec<u8>> {
        let (head, rest) = sealed.split_at_checked(HEAD_BYTES)?;
        let (nonce, content) = rest.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut aad = Vec::with_capacity(AAD_BYTES);
        aad.extend_from_slice(head);
        place.write(tenant, *head.first()?, &mut aad)?;
        let mut content = content.to_vec();
        let length = self.at(&aad[HEAD_BYTES..]).open_in_place(nonce, Aad::from(&aad), &mut content).ok()?.len();
        content.truncate(length);
        Some(content)
    }

    /// Wraps another key.
    pub(crate) fn wrap(&self, id: KeyId, tenant: &str, place: SealContext<'_>, key: &DataKey) -> Vec<u8> {
        self.seal(id, tenant, place, &[&key.0])
    }

    pub(crate) fn unwrap_key(&self, tenant: &str, place: SealContext<'_>, wrapped: &[u8]) -> Option<DataKey> {
        self.open(tenant, place, wrapped)?.try_into().ok().map(DataKey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: SealContext<'_> =
        SealContext { table: "event_body", row: 7, part: b"x", column: "sealed", stable: None };

    #[test]
    fn a_value_opens_in_its_context_and_in_no_other() {
        let key = DataKey::generate();
        let sealed = key.seal(KeyId::Contact(5), "default", HERE, &[b"ann@", b"example.com"]);
        assert_eq!(key.open("default", HERE, &sealed).unwrap(), b"ann@example.com");
        assert_eq!(KeyId::of(&sealed), Some(KeyId::Contact(5)));
        let elsewhere = [
            SealContext { table: "variant", ..HERE },
            SealContext { row: 8, ..HERE },
            SealContext { part: b"y", ..HERE },
            SealContext { column: "raw", ..HERE },
        ];
        assert!(elsewhere.iter().all(|place| key.open("default", *place, &sealed).is_none()));
        assert!(key.open("other", HERE, &sealed).is_none());
        assert!(DataKey::generate().open("default", HERE, &sealed).is_none());
    }

    #[test]
    fn a_value_with_a_stable_id_opens_under_another_row_number_and_under_no_other_id() {
        let key = DataKey::generate();
        let stable = Some(StableId { owner: [3; 16], index: 1 });
        let here = SealContext { stable, ..HERE };
        let sealed = key.seal(KeyId::Tenant(1), "default", here, &[b"secret"]);
        assert_eq!(key.open("default", SealContext { row: 99, ..here }, &sealed).unwrap(), b"secret");
        for other in [StableId { owner: [4; 16], index: 1 }, StableId { owner: [3; 16], index: 2 }] {
            assert!(key.open("default", SealContext { stable: Some(other), ..HERE }, &sealed).is_none());
        }
        assert!(key.open("default", HERE, &sealed).is_none());
        let old = key.seal(KeyId::Tenant(1), "default", HERE, &[b"old"]);
        assert_eq!(key.open("default", here, &old).unwrap(), b"old", "a value of the older format still opens");
    }

    #[test]
    fn every_altered_bit_and_every_truncation_is_noticed() {
        let key = DataKey::generate();
        let sealed = key.seal(KeyId::Tenant(1), "default", HERE, &[b"secret"]);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(key.open("default", HERE, &changed).is_none(), "byte {at}");
            assert!(key.open("default", HERE, &sealed[..at]).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn digest_is_the_same_whatever_the_length_of_its_input() {
        let key = DataKey::generate();
        for length in [0, 16, MAC_BYTES_AT_ONCE - 15, MAC_BYTES_AT_ONCE - 14, MAC_BYTES_AT_ONCE - 13, 2_000] {
            let bytes: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let whole = [&6u64.to_be_bytes()[..], b"entity", &bytes].concat();
            assert_eq!(key.mac("entity", &bytes), *blake3::keyed_hash(&key.0, &whole).as_bytes(), "{length}");
        }
    }

    #[test]
    fn sealing_is_not_deterministic() {
        let key = DataKey::generate();
        let seal = || key.seal(KeyId::Root, "default", HERE, &[b""]);
        assert_ne!(seal(), seal());
        assert_eq!(key.open("default", HERE, &seal()).unwrap(), b"");
    }

    #[test]
    fn key_ids_have_codes() {
        for id in [KeyId::Root, KeyId::Tenant(0), KeyId::Tenant(u32::MAX), KeyId::Contact(1), KeyId::Contact(i64::MAX)]
        {
            assert_eq!(KeyId::from_code(id.code()), Some(id));
        }
        assert_eq!(KeyId::from_code(i64::MIN), None);
    }
}
