//! Approvals: list, one, decide.

use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use sluice_domain::approval::ApprovalState;
use sluice_ledger::ApprovalFilter;
use utoipa::IntoParams;

use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::operate::commands::{DecisionRequest, DecisionsRequest};
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{ApprovalView, BulkResult, List};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalsQuery {
    /// Only in this state: pending, approved or rejected.
    state: Option<String>,
    /// Only of this worker.
    worker: Option<String>,
    /// Continue after this cursor.
    after: Option<i64>,
    /// Maximum number of rows.
    limit: Option<u32>,
}

/// Approvals, newest first.
#[utoipa::path(get, path = "/api/v1/approvals", params(ApprovalsQuery), responses((status = 200, body = List<ApprovalView>)))]
pub(super) async fn list(
    operator: Operator,
    QueryParams(query): QueryParams<ApprovalsQuery>,
) -> ApiResult<List<ApprovalView>> {
    let state = query.state.map(|word| {
        ApprovalState::parse(&word).ok_or_else(|| {
            OperateError::Invalid(format!("`{word}` is not an approval state; use pending, approved or rejected"))
        })
    });
    let filter = ApprovalFilter { state: state.transpose()?, worker: query.worker, asked_before: None };
    Ok(Json(operator.approvals(filter, query.after, query.limit.unwrap_or(LIMIT)).await?))
}

/// One approval.
#[utoipa::path(get, path = "/api/v1/approvals/{id}", params(("id" = String, Path)), responses((status = 200, body = ApprovalView), (status = 404)))]
pub(super) async fn show(operator: Operator, Path(id): Path<String>) -> ApiResult<ApprovalView> {
    Ok(Json(operator.approval(&id).await?))
}

/// Decide an approval. The same decision again is accepted; a different one is a conflict.
#[utoipa::path(post, path = "/api/v1/approvals/{id}", params(("id" = String, Path)), request_body = DecisionRequest, responses((status = 200, body = ApprovalView), (status = 404), (status = 409)))]
pub(super) async fn decide_one(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(order): JsonBody<DecisionRequest>,
) -> ApiResult<ApprovalView> {
    Ok(Json(operator.decide(&id, order.decision, &order.actor, &order.reason).await?))
}

/// Decide several approvals.
#[utoipa::path(post, path = "/api/v1/approvals", request_body = DecisionsRequest, responses((status = 200, body = BulkResult)))]
pub(super) async fn decide_many(
    operator: Operator,
    JsonBody(order): JsonBody<DecisionsRequest>,
) -> ApiResult<BulkResult> {
    Ok(Json(operator.decide_many(order).await?))
}
