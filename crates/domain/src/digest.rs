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
    pub(crate) const fn new(context: &'static str) -> DigestContext {
        DigestContext { context, key: OnceLock::new() }
    }

    /// The first `N` bytes of the digest of the written data.
    pub(crate) fn of<const N: usize>(&self, write: impl FnOnce(&mut DigestInput)) -> [u8; N] {
        const { assert!(N <= blake3::OUT_LEN) };
        let key = self.key.get_or_init(|| hash_derive_key_context(self.context));
        let mut input =
            DigestInput { hasher: blake3::Hasher::new_from_context_key(key), buffer: [0; BUFFER_BYTES], buffered: 0 };
        write(&mut input);
        input.flush();
        let mut digest = [0; N];
        digest.copy_from_slice(&input.hasher.finalize().as_bytes()[..N]);
        digest
    }
}

/// Most inputs are shorter: a few ids and names.
const BUFFER_BYTES: usize = 128;

/// The data of one digest. It is collected first: an update of the hasher costs more than the copy of a few bytes.
pub(crate) struct DigestInput {
    hasher: blake3::Hasher,
    buffer: [u8; BUFFER_BYTES],
    buffered: usize,
}

impl DigestInput {
    pub(crate) fn update(&mut self, bytes: &[u8]) -> &mut DigestInput {
        if self.buffered + bytes.len() > BUFFER_BYTES {
            self.flush();
        }
        match self.buffer[self.buffered..].get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.buffered += bytes.len();
            }
            None => {
                self.hasher.update(bytes);
            }
        }
        self
    }

    fn flush(&mut self) {
        self.hasher.update(&self.buffer[..self.buffered]);
        self.buffered = 0;
    }
}

/// Writes each text with its length, so that different parts never give the same input.
pub(crate) fn write_parts(input: &mut DigestInput, parts: &[&str]) {
    for part in parts {
        input.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_equals_the_blake3_derive_key_mode() {
        static CONTEXT: DigestContext = DigestContext::new("sluice test");
        let mut hasher = blake3::Hasher::new_derive_key("sluice test");
        hasher.update(b"\x02\0\0\0\0\0\0\0ab\x01\0\0\0\0\0\0\0c");
        let mut expected = [0; 16];
        hasher.finalize_xof().fill(&mut expected);
        for _ in 0..2 {
            assert_eq!(CONTEXT.of::<16>(|hasher| write_parts(hasher, &["ab", "c"])), expected);
        }
        assert_ne!(CONTEXT.of::<16>(|hasher| write_parts(hasher, &["a", "bc"])), expected);
    }

    #[test]
    fn digest_does_not_depend_on_how_its_input_is_divided() {
        static CONTEXT: DigestContext = DigestContext::new("sluice test");
        let bytes: Vec<u8> = (0..1_000u32).map(|n| n as u8).collect();
        for length in [0, 1, 127, 128, 129, 400, 1_000] {
            let input = &bytes[..length];
            let mut hasher = blake3::Hasher::new_derive_key("sluice test");
            let expected: [u8; 32] = *hasher.update(input).finalize().as_bytes();
            for part in [1, 7, 64, 127, 128, 129, 1_000] {
                let digest: [u8; 32] = CONTEXT.of(|digest| {
                    for part in input.chunks(part) {
                        digest.update(part);
                    }
                });
                assert_eq!(digest, expected, "{length} bytes in parts of {part}");
            }
        }
    }
}
