//! Idempotency keys: identify duplicates of an event.

mod dedup;
mod fingerprint;
mod strategy;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::{DigestContext, write_parts};
use crate::time::Time;

pub use dedup::{DedupKey, DedupProblem, dedup, is_time_field};
pub use fingerprint::{fingerprint, fingerprint_digest};
pub use strategy::{
    DerivedKey, Explanation, KEY_BYTES_MAX, KeyContext, KeyPart, KeyProblem, KeyStrategy, PartValue, derive,
};

/// Tenant of every key. Sluice has a single tenant so far; its name is part of each digest already.
pub const TENANT: &str = "default";

/// Idempotency key as the ledger stores it: a digest of fixed length that reveals nothing of the key text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyDigest(pub [u8; 16]);

impl KeyDigest {
    /// Tenant and flow are part of the digest: the same key text in two flows is two keys.
    pub fn new(tenant: &str, flow: &str, key: &str) -> KeyDigest {
        static CONTEXT: DigestContext = DigestContext::new("sluice idempotency key");
        KeyDigest(CONTEXT.of(|hasher| write_parts(hasher, &[tenant, flow, key])))
    }

    /// Key of a variant: other content under the same key that becomes an event of its own. The same fingerprint gives the
    /// same key.
    pub fn variant(self, fingerprint: [u8; 16]) -> KeyDigest {
        static CONTEXT: DigestContext = DigestContext::new("sluice key of another content under the same key");
        KeyDigest(CONTEXT.of(|hasher| {
            hasher.update(&self.0).update(&fingerprint);
        }))
    }

    /// Digest of a signed content in a flow: the type of the event, the signing time where the sender signs one, and the
    /// fingerprint of the whole payload.
    pub fn signed_content(flow: &str, event_type: &str, signed_at: Option<Time>, fingerprint: [u8; 16]) -> KeyDigest {
        static CONTEXT: DigestContext = DigestContext::new("sluice signed content");
        KeyDigest(CONTEXT.of(|hasher| {
            write_parts(hasher, &[TENANT, flow, event_type]);
            hasher.update(&signed_at.map_or(i64::MIN, |at| at.0).to_le_bytes()).update(&fingerprint);
        }))
    }

    /// First 8 bytes. Selects candidates; equality is decided on the whole digest.
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
    fn same_key_text_in_two_flows_gives_two_keys() {
        assert_ne!(KeyDigest::new("t", "a", "bc"), KeyDigest::new("t", "ab", "c"));
        assert_eq!(KeyDigest::new("t", "a", "b"), KeyDigest::new("t", "a", "b"));
    }
}
