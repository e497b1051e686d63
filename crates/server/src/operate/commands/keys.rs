//! Rotate the encryption keys of the ledger.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::KeysView;
use crate::root_key::{self, RootKeyError};

/// Contacts whose keys are re-wrapped in one transaction: a few milliseconds.
const SLICE_ROWS: u32 = 500;

/// Which key is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// The root key.
    Root,
    /// The key of the tenant.
    Tenant,
}

/// A rotation, as it is asked for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateRequest {
    /// Which key.
    pub key: KeyKind,
    /// A file on the node's machine for the new root key, where that does not lie in the data directory. What is in it
    /// already is taken.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub to: Option<PathBuf>,
    /// Who asks.
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
    /// Replaces a key while everything goes on. Payloads are not touched.
    pub async fn rotate_keys(&self, order: &RotateRequest) -> Result<KeysView, OperateError> {
        let actor = if order.actor.trim().is_empty() { "unknown" } else { order.actor.trim() };
        let at = self.clock.wall();
        match order.key {
            KeyKind::Root => {
                let (key, path) =
                    root_key::rotate(&self.ledger, &self.settings.data, order.to.as_deref(), actor, at).await?;
                tracing::warn!(key = key.id(), path = %path.display(), "the ledger has a new root key; keep a copy of it elsewhere");
            }
            KeyKind::Tenant => {
                self.ledger.rotate_tenant(actor.to_owned(), at).await?;
                while self.ledger.rewrap_contacts(SLICE_ROWS, at).await? > 0 {}
            }
        }
        self.keys().await
    }
}
