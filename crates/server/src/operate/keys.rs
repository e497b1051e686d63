//! The keys that seal the ledger: what may be told about them, and how they are replaced.

use std::path::PathBuf;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::api::{ApiResult, JsonBody};
use super::operator::{OperateError, Operator};
use crate::root_key::{self, RootKeyError};

/// Contacts whose keys are re-wrapped in one transaction: a few milliseconds.
const SLICE_ROWS: u32 = 500;

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
    /// What may be told about the keys.
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

/// The keys that seal the ledger.
#[utoipa::path(get, path = "/api/v1/keys", responses((status = 200, body = KeysView)))]
pub(super) async fn show(State(operator): State<Operator>) -> ApiResult<KeysView> {
    Ok(Json(operator.keys().await?))
}

/// Replace the root key or the tenant's key.
#[utoipa::path(post, path = "/api/v1/keys/rotate", request_body = RotateRequest, responses((status = 200, body = KeysView)))]
pub(super) async fn rotate(
    State(operator): State<Operator>,
    JsonBody(order): JsonBody<RotateRequest>,
) -> ApiResult<KeysView> {
    Ok(Json(operator.rotate_keys(&order).await?))
}
