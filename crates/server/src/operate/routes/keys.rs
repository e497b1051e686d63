//! Encryption keys of the ledger.

use axum::Json;

use super::{ApiResult, JsonBody};
use crate::operate::commands::RotateRequest;
use crate::operate::operator::Operator;
use crate::operate::views::KeysView;

/// Encryption keys of the ledger.
#[utoipa::path(get, path = "/api/v1/keys", responses((status = 200, body = KeysView)))]
pub(super) async fn show(operator: Operator) -> ApiResult<KeysView> {
    Ok(Json(operator.keys().await?))
}

/// Rotate the root key or the tenant key. Needs the role admin.
#[utoipa::path(post, path = "/api/v1/keys/rotate", request_body = RotateRequest, responses((status = 200, body = KeysView), (status = 400), (status = 403)))]
pub(super) async fn rotate(operator: Operator, JsonBody(order): JsonBody<RotateRequest>) -> ApiResult<KeysView> {
    Ok(Json(operator.rotate_keys(&order).await?))
}
