//! Encryption keys of the ledger.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Encryption keys of the ledger, without secrets.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeysView {
    /// Public id of the root key.
    pub root_key: String,
    /// Source of the root key.
    pub root_key_from: String,
    /// Version of the tenant key for new data.
    pub tenant_key_version: u32,
    pub tenant_key_since: String,
    /// Number of contact keys.
    pub contact_keys: u64,
    /// Number of contact keys wrapped by an older tenant key.
    pub contact_keys_to_rewrap: u64,
}
