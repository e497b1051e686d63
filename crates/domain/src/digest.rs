//! Digests of our own, which are stored and must stay what they are: each kind has a context, so that no two kinds ever agree.

use std::sync::OnceLock;

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};

/// One kind of digest. The key of its context is made once.
pub(crate) struct DigestContext {
    context: &'static str,
    key: OnceLock<ContextKey>,
}

impl DigestContext {
    pub const fn new(context: &'static str) -> DigestContext {
        DigestContext { context, key: OnceLock::new() }
    }

    /// The digest of what is written, at most 32 bytes of it.
    pub fn of<const N: usize>(&self, write: impl FnOnce(&mut blake3::Hasher)) -> [u8; N] {
        const { assert!(N <= blake3::OUT_LEN) };
        let key = self.key.get_or_init(|| hash_derive_key_context(self.context));
        let mut hasher = blake3::Hasher::new_from_context_key(key);
        write(&mut hasher);
        let mut digest = [0; N];
        digest.copy_from_slice(&hasher.finalize().as_bytes()[..N]);
        digest
    }
}

/// Writes texts so that they cannot be shifted into one another.
pub(crate) fn write_parts(hasher: &mut blake3::Hasher, parts: &[&str]) {
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_what_blake3_derives_from_its_context() {
        static KIND: DigestContext = DigestContext::new("sluice test");
        let mut hasher = blake3::Hasher::new_derive_key("sluice test");
        write_parts(&mut hasher, &["ab", "c"]);
        let mut expected = [0; 16];
        hasher.finalize_xof().fill(&mut expected);
        for _ in 0..2 {
            assert_eq!(KIND.of::<16>(|hasher| write_parts(hasher, &["ab", "c"])), expected);
        }
        assert_ne!(KIND.of::<16>(|hasher| write_parts(hasher, &["a", "bc"])), expected);
    }
}
