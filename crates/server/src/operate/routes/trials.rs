//! Trials of a new configuration on stored requests.

use axum::Json;
use axum::extract::Path;

use super::{ApiResult, JsonBody};
use crate::operate::commands::TrialRequest;
use crate::operate::operator::Operator;
use crate::operate::views::TrialView;

/// Apply a new configuration to stored requests beside the active one. Changes nothing; one at a time.
#[utoipa::path(post, path = "/api/v1/trials", request_body = TrialRequest, responses((status = 200, body = TrialView), (status = 400), (status = 409), (status = 422)))]
pub(super) async fn start(operator: Operator, JsonBody(request): JsonBody<TrialRequest>) -> ApiResult<TrialView> {
    Ok(Json(operator.start_trial(&request).await?))
}

/// Progress of a trial, and its report. A trial that is not looked at for a minute is cancelled.
#[utoipa::path(get, path = "/api/v1/trials/{id}", params(("id" = u64, Path)), responses((status = 200, body = TrialView), (status = 404)))]
pub(super) async fn show(operator: Operator, Path(id): Path<u64>) -> ApiResult<TrialView> {
    Ok(Json(operator.trial(id)?))
}

/// Cancel a trial.
#[utoipa::path(post, path = "/api/v1/trials/{id}/cancel", params(("id" = u64, Path)), responses((status = 200, body = TrialView), (status = 404)))]
pub(super) async fn cancel(operator: Operator, Path(id): Path<u64>) -> ApiResult<TrialView> {
    Ok(Json(operator.cancel_trial(id)?))
}
