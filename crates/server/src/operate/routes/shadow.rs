//! The configuration that runs beside the active one.

use axum::Json;
use serde_json::json;

use super::{ApiResult, JsonBody};
use crate::operate::commands::{ShadowRequest, StopShadowRequest};
use crate::operate::operator::Operator;
use crate::operate::views::ShadowView;

/// What the shadow configuration does otherwise, on requests since it was started.
#[utoipa::path(get, path = "/api/v1/shadow", responses((status = 200, body = ShadowView), (status = 404)))]
pub(super) async fn show(operator: Operator) -> ApiResult<ShadowView> {
    Ok(Json(operator.shadow().await?))
}

/// Run a configuration beside the active one on accepted requests, without effects.
#[utoipa::path(post, path = "/api/v1/shadow", request_body = ShadowRequest, responses((status = 200, body = ShadowView), (status = 409), (status = 422)))]
pub(super) async fn start(operator: Operator, JsonBody(request): JsonBody<ShadowRequest>) -> ApiResult<ShadowView> {
    Ok(Json(operator.set_shadow(&request).await?))
}

/// Stop the shadow configuration.
#[utoipa::path(post, path = "/api/v1/shadow/stop", request_body = StopShadowRequest, responses((status = 200), (status = 404)))]
pub(super) async fn stop(
    operator: Operator,
    JsonBody(request): JsonBody<StopShadowRequest>,
) -> ApiResult<serde_json::Value> {
    operator.stop_shadow(&request).await?;
    Ok(Json(json!({ "stopped": true })))
}
