//! Suppressed contacts and safe mode.

use axum::Json;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::operate::commands::{SafeModeRequest, SuppressRequest};
use crate::operate::operator::Operator;
use crate::operate::views::{List, SafeModeView, SuppressedView, SuppressionView};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct SuppressionsQuery {
    /// Continue after this cursor.
    after: Option<i64>,
    /// Maximum number of rows.
    limit: Option<u32>,
}

/// Suppressed contacts, masked, newest first.
#[utoipa::path(get, path = "/api/v1/suppressions", params(SuppressionsQuery), responses((status = 200, body = List<SuppressionView>)))]
pub(super) async fn suppressions(
    operator: Operator,
    QueryParams(query): QueryParams<SuppressionsQuery>,
) -> ApiResult<List<SuppressionView>> {
    Ok(Json(operator.suppressions(query.after, query.limit.unwrap_or(LIMIT)).await?))
}

/// Add contacts to the suppression list, or remove them.
#[utoipa::path(post, path = "/api/v1/suppressions", request_body = SuppressRequest, responses((status = 200, body = SuppressedView)))]
pub(super) async fn suppress(
    operator: Operator,
    JsonBody(order): JsonBody<SuppressRequest>,
) -> ApiResult<SuppressedView> {
    Ok(Json(operator.suppress(order).await?))
}

/// Workers in safe mode.
#[utoipa::path(get, path = "/api/v1/safe-mode", responses((status = 200, body = Vec<SafeModeView>)))]
pub(super) async fn safe_modes(operator: Operator) -> ApiResult<Vec<SafeModeView>> {
    Ok(Json(operator.safe_modes().await?))
}

/// Turn safe mode on or off.
#[utoipa::path(post, path = "/api/v1/safe-mode", request_body = SafeModeRequest, responses((status = 200, body = Vec<SafeModeView>)))]
pub(super) async fn set_safe_mode(
    operator: Operator,
    JsonBody(order): JsonBody<SafeModeRequest>,
) -> ApiResult<Vec<SafeModeView>> {
    operator.set_safe_mode(order).await?;
    Ok(Json(operator.safe_modes().await?))
}
