//! Encryption keys of the ledger.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What may be told about the keys.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeysView {
    /// The name of the root key; it says nothing about the key.
    pub root_key: String,
    /// Where the root key comes from.
    pub root_key_from: String,
    /// The version of the tenant's key that new data is sealed with.
    pub tenant_key_version: u32,
    /// Since when.
    pub tenant_key_since: String,
    /// How many contacts have a key of their own.
    pub contact_keys: u64,
    /// How many of those are still wrapped by an older key of the tenant.
    pub contact_keys_to_rewrap: u64,
}
