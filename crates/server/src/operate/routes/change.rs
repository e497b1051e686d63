//! Plan, apply and revisions of the configuration.

use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::change::Plan;
use crate::operate::commands::{ApplyRequest, Wanted};
use crate::operate::operator::Operator;
use crate::operate::views::{AppliedView, List, PendingPlanView, RevisionDetail, RevisionView};

/// Maximum request size with files, in bytes.
pub(super) const ORDER_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct RevisionsQuery {
    /// Continue after this entry.
    after: Option<i64>,
    /// Maximum number of rows.
    limit: Option<u32>,
}

/// Plan of the files in the configuration directory of the node, if they are not active.
#[utoipa::path(get, path = "/api/v1/plan", responses((status = 200, body = PendingPlanView)))]
pub(super) async fn pending_plan(operator: Operator) -> ApiResult<PendingPlanView> {
    Ok(Json(operator.pending_plan().await?))
}

/// Plan a new configuration: files, or an earlier revision.
#[utoipa::path(post, path = "/api/v1/plan", request_body = Wanted, responses((status = 200, body = Plan), (status = 422)))]
pub(super) async fn plan_route(operator: Operator, JsonBody(wanted): JsonBody<Wanted>) -> ApiResult<Plan> {
    Ok(Json(operator.plan(&wanted).await?))
}

/// Activate a configuration, if the plan is still current.
#[utoipa::path(post, path = "/api/v1/apply", request_body = ApplyRequest, responses((status = 200, body = AppliedView), (status = 409), (status = 422)))]
pub(super) async fn apply_route(operator: Operator, JsonBody(order): JsonBody<ApplyRequest>) -> ApiResult<AppliedView> {
    Ok(Json(operator.apply(&order).await?))
}

/// Activations of revisions, newest first.
#[utoipa::path(get, path = "/api/v1/revisions", params(RevisionsQuery), responses((status = 200, body = List<RevisionView>)))]
pub(super) async fn revisions(
    operator: Operator,
    QueryParams(query): QueryParams<RevisionsQuery>,
) -> ApiResult<List<RevisionView>> {
    Ok(Json(operator.configured(query.after, query.limit.unwrap_or(LIMIT)).await?))
}

/// One revision with its files.
#[utoipa::path(get, path = "/api/v1/revisions/{revision}", params(("revision" = String, Path)), responses((status = 200, body = RevisionDetail), (status = 404)))]
pub(super) async fn revision(operator: Operator, Path(name): Path<String>) -> ApiResult<RevisionDetail> {
    Ok(Json(operator.revision(&name).await?))
}
