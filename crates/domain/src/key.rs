//! Idempotency keys: what makes a repeat recognisable.

mod dedup;
mod fingerprint;
mod strategy;

use std::fmt;

use crate::digest::{DigestContext, write_parts};

pub use dedup::{DedupKey, DedupProblem, dedup, is_time_field};
pub use fingerprint::{fingerprint, fingerprint_digest};
pub use strategy::{
    DerivedKey, Explanation, KEY_BYTES_MAX, KeyContext, KeyPart, KeyProblem, KeyStrategy, PartValue, derive,
};

/// There is one tenant so far; it is part of every key all the same.
pub const TENANT: &str = "default";

/// A key as the ledger keeps it: a digest, so that neither its length nor what it says matters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyDigest(pub [u8; 16]);

impl KeyDigest {
    /// The digest of a key in its scope. The tenant and the flow are part of it: the same key from two
    /// senders is two keys.
    pub fn new(tenant: &str, flow: &str, key: &str) -> KeyDigest {
        static KIND: DigestContext = DigestContext::new("sluice idempotency key");
        KeyDigest(KIND.of(|hasher| write_parts(hasher, &[tenant, flow, key])))
    }

    /// The key of another content under the same key, for when that becomes an event of its own: the same content has the
    /// same one again.
    pub fn variant(self, fingerprint: [u8; 16]) -> KeyDigest {
        static KIND: DigestContext = DigestContext::new("sluice key of another content under the same key");
        KeyDigest(KIND.of(|hasher| {
            hasher.update(&self.0).update(&fingerprint);
        }))
    }

    /// The first half: enough to find candidates by, never enough to decide.
    pub fn prefix(self) -> u64 {
        u64::from_be_bytes(self.0[..8].try_into().expect("eight of sixteen bytes"))
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_of_two_flows_is_two_keys() {
        assert_ne!(KeyDigest::new("t", "a", "bc"), KeyDigest::new("t", "ab", "c"));
        assert_eq!(KeyDigest::new("t", "a", "b"), KeyDigest::new("t", "a", "b"));
    }
}
