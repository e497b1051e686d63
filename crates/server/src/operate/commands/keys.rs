//! Rotate the encryption keys of the ledger.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sluice_domain::access::Permission;
use utoipa::ToSchema;

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::KeysView;
use crate::root_key::{self, RootKeyError};

/// Contact keys re-wrapped per transaction, a few milliseconds.
const SLICE_ROWS: u32 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    Root,
    Tenant,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateRequest {
    pub key: KeyKind,
    /// Absolute path of a new file on the node's machine for the new root key; needed if the key is not in the data directory. Its
    /// directory exists, the file does not.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub to: Option<PathBuf>,
    #[serde(default)]
    pub actor: String,
}

impl From<RootKeyError> for OperateError {
    fn from(error: RootKeyError) -> OperateError {
        match error {
            RootKeyError::Ledger(error) => OperateError::Ledger(error),
            other => OperateError::Invalid(other.to_string()),
        }
    }
}

impl Operator {
    /// Rotates a key while the node runs. Payloads are not rewritten.
    pub async fn rotate_keys(&self, order: &RotateRequest) -> Result<KeysView, OperateError> {
        self.permit(Permission::Administer)?;
        let actor = &self.actor(&order.actor);
        let at = self.clock.ledger_time();
        match order.key {
            KeyKind::Root => {
                // Not cancelled with the request: a caller that hangs up must not leave a key behind that nobody installs.
                let rotation = self.clone().rotate_root(order.to.clone(), actor.clone());
                let rotated = tokio::spawn(rotation).await;
                rotated.map_err(|error| OperateError::Invalid(format!("the rotation failed: {error}")))??;
            }
            KeyKind::Tenant if order.to.is_some() => {
                return Err(OperateError::Invalid("only a root key has a file; leave `to` out".to_owned()));
            }
            KeyKind::Tenant => {
                self.ledger.rotate_tenant(actor.to_owned(), at).await?;
                while self.ledger.rewrap_contacts(SLICE_ROWS, at).await? > 0 {}
            }
        }
        self.keys().await
    }

    async fn rotate_root(self, to: Option<PathBuf>, actor: String) -> Result<(), OperateError> {
        let _one_at_a_time = self.rotating.lock().await;
        let at = self.clock.ledger_time();
        let (key, path) = root_key::rotate(&self.ledger, &self.settings.data, to.as_deref(), &actor, at).await?;
        tracing::warn!(key = key.id(), path = %path.display(), "root key rotated; keep a copy elsewhere");
        Ok(())
    }
}
