//! Replays: start, list, one, pause, resume, cancel.

use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use sluice_domain::replay::ReplayState;
use utoipa::{IntoParams, ToSchema};

use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::operate::commands::ReplayRequest;
use crate::operate::operator::Operator;
use crate::operate::views;

/// Requeue jobs with the same keys, or preview that with `dry_run`.
#[utoipa::path(post, path = "/api/v1/replays", request_body = ReplayRequest, responses((status = 200, body = views::ReplayResult)))]
pub(super) async fn start(
    operator: Operator,
    JsonBody(request): JsonBody<ReplayRequest>,
) -> ApiResult<views::ReplayResult> {
    Ok(Json(operator.replay(request).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplaysQuery {
    /// Continue after this replay.
    after: Option<String>,
    /// Maximum number of rows.
    limit: Option<u32>,
}

/// Replays, newest first.
#[utoipa::path(get, path = "/api/v1/replays", params(ReplaysQuery), responses((status = 200, body = views::List<views::ReplayView>)))]
pub(super) async fn list(
    operator: Operator,
    QueryParams(query): QueryParams<ReplaysQuery>,
) -> ApiResult<views::List<views::ReplayView>> {
    Ok(Json(operator.replays(query.after, query.limit.unwrap_or(LIMIT)).await?))
}

/// One replay with its progress.
#[utoipa::path(get, path = "/api/v1/replays/{id}", params(("id" = String, Path)), responses((status = 200, body = views::ReplayView), (status = 404)))]
pub(super) async fn show(operator: Operator, Path(id): Path<String>) -> ApiResult<views::ReplayView> {
    Ok(Json(operator.replay_view(&id).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ControlRequest {
    /// Recorded in the audit trail.
    reason: String,
    #[serde(default)]
    actor: String,
}

/// Pause a running replay: it takes no further batch until it is resumed.
#[utoipa::path(post, path = "/api/v1/replays/{id}/pause", params(("id" = String, Path)), request_body = ControlRequest, responses((status = 200, body = views::ReplayView), (status = 404), (status = 409)))]
pub(super) async fn pause(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<ControlRequest>,
) -> ApiResult<views::ReplayView> {
    Ok(Json(operator.control_replay(&id, ReplayState::Paused, &request.actor, &request.reason).await?))
}

/// Resume a paused replay.
#[utoipa::path(post, path = "/api/v1/replays/{id}/resume", params(("id" = String, Path)), request_body = ControlRequest, responses((status = 200, body = views::ReplayView), (status = 404), (status = 409)))]
pub(super) async fn resume(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<ControlRequest>,
) -> ApiResult<views::ReplayView> {
    Ok(Json(operator.control_replay(&id, ReplayState::Running, &request.actor, &request.reason).await?))
}

/// Cancel a replay: jobs that were requeued run on, the others stay as they are.
#[utoipa::path(post, path = "/api/v1/replays/{id}/cancel", params(("id" = String, Path)), request_body = ControlRequest, responses((status = 200, body = views::ReplayView), (status = 404), (status = 409)))]
pub(super) async fn cancel(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<ControlRequest>,
) -> ApiResult<views::ReplayView> {
    Ok(Json(operator.control_replay(&id, ReplayState::Cancelled, &request.actor, &request.reason).await?))
}
