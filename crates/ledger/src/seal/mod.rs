//! Sealing: what is personal leaves this process only encrypted.
//!
//! A root key, which is never written here, wraps the keys of the tenant; those wrap one key for each contact; and these
//! seal payloads, results and messages. What belongs to no contact is sealed with the tenant's key. So rotating a key
//! re-wraps keys and touches no payload, and forgetting a person means destroying one key.
//!
//! Every value is sealed with AES-256-GCM under a key of its own, derived from the place where the value lies: no key is
//! ever used often enough for its random nonces to meet, and a value that is moved to another row does not open.

mod cipher;
mod root;

pub(crate) use cipher::{DataKey, KeyId, SEALED_OVERHEAD_BYTES, SealContext, StableId};
pub use root::{RootKey, RootKeyProblem};
