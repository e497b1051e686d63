//! Pauses: list, pause, resume.

use axum::Json;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{ApiResult, JsonBody};
use crate::operate::operator::Operator;
use crate::operate::views;

/// Active pauses.
#[utoipa::path(get, path = "/api/v1/pauses", responses((status = 200, body = Vec<views::PauseView>)))]
pub(super) async fn pauses(operator: Operator) -> ApiResult<Vec<views::PauseView>> {
    Ok(Json(operator.pauses().await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseRequest {
    /// `destination:NAME`, `worker:NAME`, `playbook:NAME`, `queue:NAME`, `source:NAME` or `replays`.
    target: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    actor: String,
}

/// Pause a source, a queue, a worker, a destination or replays.
#[utoipa::path(post, path = "/api/v1/pause", request_body = PauseRequest, responses((status = 200, body = Vec<views::PauseView>)))]
pub(super) async fn pause(
    operator: Operator,
    JsonBody(order): JsonBody<PauseRequest>,
) -> ApiResult<Vec<views::PauseView>> {
    operator.pause(&order.target, &order.actor, &order.reason).await?;
    Ok(Json(operator.pauses().await?))
}

/// Resume a paused target.
#[utoipa::path(post, path = "/api/v1/resume", request_body = PauseRequest, responses((status = 200, body = Vec<views::PauseView>)))]
pub(super) async fn resume(
    operator: Operator,
    JsonBody(order): JsonBody<PauseRequest>,
) -> ApiResult<Vec<views::PauseView>> {
    operator.resume(&order.target, &order.actor, &order.reason).await?;
    Ok(Json(operator.pauses().await?))
}
