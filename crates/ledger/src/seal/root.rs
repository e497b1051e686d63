//! The root key.

use std::fmt;

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};

use super::cipher::DataKey;

/// The key that wraps the tenant keys. It is provided by the operator and never stored in the ledger; it cannot be printed.
#[derive(Clone)]
pub struct RootKey(DataKey);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a root key is 32 bytes, written as 64 hexadecimal digits or in base64")]
pub struct RootKeyProblem;

impl RootKey {
    pub fn generate() -> RootKey {
        RootKey(DataKey::generate())
    }

    /// Parses 64 hexadecimal digits, or base64 in any of its alphabets.
    pub fn parse(text: &str) -> Result<RootKey, RootKeyProblem> {
        let text = text.trim().as_bytes();
        let readings = [&HEXLOWER_PERMISSIVE, &BASE64, &BASE64_NOPAD, &BASE64URL, &BASE64URL_NOPAD];
        let read = |encoding: &&data_encoding::Encoding| encoding.decode(text).ok()?.try_into().ok();
        readings.iter().find_map(read).map(|bytes| RootKey(DataKey::new(bytes))).ok_or(RootKeyProblem)
    }

    /// An id that reveals nothing of the key.
    pub fn id(&self) -> String {
        HEXLOWER.encode(&self.0.mac("sluice name of a root key", &[])[..8])
    }

    /// The key itself, for a file that only its owner can read.
    pub fn to_hex(&self) -> String {
        self.0.to_hex()
    }

    pub(crate) fn key(&self) -> &DataKey {
        &self.0
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RootKey({})", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_key_is_parsed_in_every_common_encoding() {
        let hex = "fbff00112233445566778899aabbccddeeff00112233445566778899aabbccdd";
        let key = RootKey::parse(hex).unwrap();
        let bytes = HEXLOWER.decode(hex.as_bytes()).unwrap();
        for form in [hex.to_uppercase(), format!(" {hex}\n"), BASE64.encode(&bytes), BASE64URL_NOPAD.encode(&bytes)] {
            assert_eq!(RootKey::parse(&form).unwrap().id(), key.id(), "{form}");
        }
        assert_eq!(key.to_hex(), hex);
        for wrong in ["", "abc", &hex[2..], "correct horse battery staple"] {
            assert!(RootKey::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_never_printed() {
        let key = RootKey::generate();
        let shown = format!("{key:?}");
        assert!(!shown.contains(&key.to_hex()) && shown.len() < 32, "{shown}");
        assert_ne!(RootKey::generate().id(), key.id());
    }
}
