//! Encryption keys of the ledger.

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::KeysView;
use crate::root_key;

impl Operator {
    pub async fn keys(&self) -> Result<KeysView, OperateError> {
        let keys = self.ledger.keys().await?;
        let newest = keys.tenant.last();
        Ok(KeysView {
            root_key: keys.root,
            root_key_from: root_key::origin(&self.settings.data)?.to_string(),
            tenant_key_version: newest.map_or(0, |key| key.version),
            tenant_key_since: newest.map(|key| key.created_at.to_string()).unwrap_or_default(),
            contact_keys: keys.contacts,
            contact_keys_to_rewrap: keys.to_rewrap,
        })
    }
}
