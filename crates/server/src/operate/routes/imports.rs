//! Imports: check rows, start, take rows, list, one, cancel.

use axum::extract::{DefaultBodyLimit, Path};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::change::ORDER_BYTES_MAX;
use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::operate::commands::{CheckRowsRequest, ImportRowsRequest, StartImportRequest};
use crate::operate::operator::Operator;
use crate::operate::views::{ImportStepView, ImportView, List, RowView};

pub(super) fn routes() -> Router<Operator> {
    Router::new()
        .route("/imports", get(list).post(start))
        .route("/imports/check", post(check).layer(DefaultBodyLimit::max(ORDER_BYTES_MAX)))
        .route("/imports/{id}", get(show))
        .route("/imports/{id}/rows", post(rows).layer(DefaultBodyLimit::max(ORDER_BYTES_MAX)))
        .route("/imports/{id}/cancel", post(cancel))
}

/// Start an import, or continue the one of the same file and flow.
#[utoipa::path(post, path = "/api/v1/imports", request_body = StartImportRequest, responses((status = 200, body = ImportView), (status = 404)))]
pub(super) async fn start(
    operator: Operator,
    JsonBody(request): JsonBody<StartImportRequest>,
) -> ApiResult<ImportView> {
    Ok(Json(operator.start_import(request).await?))
}

/// What rows would become. Nothing is written.
#[utoipa::path(post, path = "/api/v1/imports/check", request_body = CheckRowsRequest, responses((status = 200, body = Vec<RowView>), (status = 404)))]
pub(super) async fn check(
    operator: Operator,
    JsonBody(request): JsonBody<CheckRowsRequest>,
) -> ApiResult<Vec<RowView>> {
    Ok(Json(operator.check_rows(request).await?))
}

/// Take the next rows of an import, all of them or none.
#[utoipa::path(post, path = "/api/v1/imports/{id}/rows", params(("id" = String, Path)), request_body = ImportRowsRequest, responses((status = 200, body = ImportStepView), (status = 404), (status = 409)))]
pub(super) async fn rows(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<ImportRowsRequest>,
) -> ApiResult<ImportStepView> {
    Ok(Json(operator.import_rows(&id, request).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportsQuery {
    /// Continue after this import.
    after: Option<String>,
    /// Maximum number of rows.
    limit: Option<u32>,
}

/// Imports, newest first.
#[utoipa::path(get, path = "/api/v1/imports", params(ImportsQuery), responses((status = 200, body = List<ImportView>)))]
pub(super) async fn list(
    operator: Operator,
    QueryParams(query): QueryParams<ImportsQuery>,
) -> ApiResult<List<ImportView>> {
    Ok(Json(operator.imports(query.after, query.limit.unwrap_or(LIMIT)).await?))
}

/// One import with its progress.
#[utoipa::path(get, path = "/api/v1/imports/{id}", params(("id" = String, Path)), responses((status = 200, body = ImportView), (status = 404)))]
pub(super) async fn show(operator: Operator, Path(id): Path<String>) -> ApiResult<ImportView> {
    Ok(Json(operator.import_view(&id).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelImportRequest {
    /// Recorded in the audit trail.
    reason: String,
    #[serde(default)]
    actor: String,
}

/// Cancel a running import. Events that it made stay; starting it again continues it.
#[utoipa::path(post, path = "/api/v1/imports/{id}/cancel", params(("id" = String, Path)), request_body = CancelImportRequest, responses((status = 200, body = ImportView), (status = 404), (status = 409)))]
pub(super) async fn cancel(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<CancelImportRequest>,
) -> ApiResult<ImportView> {
    Ok(Json(operator.cancel_import(&id, &request.actor, &request.reason).await?))
}
