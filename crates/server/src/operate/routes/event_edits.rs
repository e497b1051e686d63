//! Revisions of events: list, edit and replay.

use axum::extract::Path;
use axum::routing::get;
use axum::{Json, Router};

use super::{ApiResult, JsonBody};
use crate::operate::commands::EditRequest;
use crate::operate::operator::Operator;
use crate::operate::views::{EditView, EventRevisionView};

pub(super) fn routes() -> Router<Operator> {
    Router::new().route("/events/{id}/revisions", get(list).post(edit))
}

/// Revisions of an event with their differences, masked; the event as it was accepted is the first.
#[utoipa::path(get, path = "/api/v1/events/{id}/revisions", params(("id" = String, Path)), responses((status = 200, body = Vec<EventRevisionView>), (status = 404)))]
pub(super) async fn list(operator: Operator, Path(id): Path<String>) -> ApiResult<Vec<EventRevisionView>> {
    Ok(Json(operator.event_revisions(&id).await?))
}

/// Edit an event: stores a new revision of it and runs its jobs again with it. The event as it was accepted stays.
#[utoipa::path(post, path = "/api/v1/events/{id}/revisions", params(("id" = String, Path)), request_body = EditRequest, responses((status = 200, body = EditView), (status = 404), (status = 409)))]
pub(super) async fn edit(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<EditRequest>,
) -> ApiResult<EditView> {
    Ok(Json(operator.edit_event(&id, request).await?))
}
