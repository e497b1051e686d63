//! Sealing: personal data is written only encrypted.
//!
//! A root key, which is never stored, wraps the tenant keys; these wrap one key for each contact; and these seal payloads,
//! results and messages. What belongs to no contact is sealed with the tenant key. So rotating a key re-wraps keys and touches
//! no payload, and forgetting a person means destroying one key.
//!
//! Every value is sealed with AES-256-GCM under a key of its own, derived from its context: no key is used often enough for its
//! random nonces to collide, and a value that is moved to another row does not open.

mod cipher;
mod root;

pub use cipher::random_token;
pub(crate) use cipher::{DataKey, KeyId, SEALED_OVERHEAD_BYTES, SealContext, StableId};
pub use root::{RootKey, RootKeyProblem};
