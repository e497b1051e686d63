//! Pseudonyms: keyed digests that stand for personal data where only equality matters.

use std::fmt;
use std::sync::Arc;

use crate::normalize;

/// Secret key of pseudonyms. Without it a pseudonym cannot be computed from a guessed address or number.
#[derive(Clone)]
pub struct PseudonymKey(Arc<[u8; 32]>);

impl PseudonymKey {
    pub fn new(key: [u8; 32]) -> PseudonymKey {
        PseudonymKey(Arc::new(key))
    }

    /// A key that is no secret, for dry runs and tests: its pseudonyms differ from those of every node.
    pub fn public() -> PseudonymKey {
        PseudonymKey::new([0; 32])
    }

    /// Pseudonym of an email address, whatever its case and the white space around it.
    pub fn email(&self, text: &str) -> String {
        self.digest("email", &normalize::email(text))
    }

    /// Pseudonym of a phone number, whatever its notation.
    pub fn phone(&self, text: &str) -> String {
        self.digest("phone", &normalize::e164(text, None))
    }

    /// Pseudonym of a value that is an unkeyed digest of personal data.
    pub fn digested(&self, text: &str) -> String {
        self.digest("digest", text)
    }

    /// Hashes under the key.
    pub(crate) fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.0)
    }

    /// 32 hexadecimal digits.
    fn digest(&self, kind: &str, text: &str) -> String {
        let mut hasher = self.hasher();
        hasher.update(kind.as_bytes()).update(&[0]).update(text.as_bytes());
        data_encoding::HEXLOWER.encode(&hasher.finalize().as_bytes()[..16])
    }
}

impl Default for PseudonymKey {
    fn default() -> PseudonymKey {
        PseudonymKey::public()
    }
}

impl fmt::Debug for PseudonymKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PseudonymKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pseudonym_needs_the_key_and_ignores_notation() {
        let (ours, theirs) = (PseudonymKey::new([7; 32]), PseudonymKey::new([8; 32]));
        assert_eq!(ours.email(" Ada@X.org"), ours.email("ada@x.org"));
        assert_eq!(ours.phone("+1 (415) 555-0123"), ours.phone("+14155550123"));
        assert_ne!(ours.email("ada@x.org"), theirs.email("ada@x.org"));
        assert_ne!(ours.email("ada@x.org"), normalize::email_hash("ada@x.org"));
        assert_ne!(ours.email("1"), ours.phone("1"));
        assert_eq!(ours.email("ada@x.org").len(), 32);
        assert!(!format!("{ours:?}").contains('7'));
    }
}
