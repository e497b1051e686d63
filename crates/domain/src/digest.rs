//! Digests that are stored and must never change. Each use has its own BLAKE3 context, so that digests of two uses never
//! collide.

use std::sync::OnceLock;

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};

/// Context of one use; its key is derived on first use.
pub(crate) struct DigestContext {
    context: &'static str,
    key: OnceLock<ContextKey>,
}

impl DigestContext {
    pub const fn new(context: &'static str) -> DigestContext {
        DigestContext { context, key: OnceLock::new() }
    }

    /// The first `N` bytes of the digest of the written data.
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

/// Writes each text with its length, so that different parts never give the same input.
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
    fn digest_equals_the_blake3_derive_key_mode() {
        static CONTEXT: DigestContext = DigestContext::new("sluice test");
        let mut hasher = blake3::Hasher::new_derive_key("sluice test");
        write_parts(&mut hasher, &["ab", "c"]);
        let mut expected = [0; 16];
        hasher.finalize_xof().fill(&mut expected);
        for _ in 0..2 {
            assert_eq!(CONTEXT.of::<16>(|hasher| write_parts(hasher, &["ab", "c"])), expected);
        }
        assert_ne!(CONTEXT.of::<16>(|hasher| write_parts(hasher, &["a", "bc"])), expected);
    }
}
