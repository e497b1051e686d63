//! Failure groups: list, one, acknowledge, resolve, reopen.

use axum::extract::Path;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use sluice_domain::failure_group::GroupState;
use sluice_ledger::GroupQuery;
use utoipa::IntoParams;

use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::operate::commands::GroupRequest;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::failure_groups::parse_cursor;
use crate::operate::views::{FailureGroupView, List};

pub(super) fn routes() -> Router<Operator> {
    Router::new()
        .route("/dead-letters/groups", get(list))
        .route("/dead-letters/groups/{id}", get(show))
        .route("/dead-letters/groups/{id}/acknowledge", post(acknowledge))
        .route("/dead-letters/groups/{id}/resolve", post(resolve))
        .route("/dead-letters/groups/{id}/reopen", post(reopen))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupsQuery {
    /// Only in this state: open, acknowledged or resolved.
    state: Option<String>,
    /// Only of this worker.
    worker: Option<String>,
    /// Only with this failure code.
    code: Option<String>,
    /// Also groups without dead letters, up to 90 days after their last one.
    empty: Option<bool>,
    /// Continue after this cursor.
    after: Option<String>,
    /// Maximum number of rows.
    limit: Option<u32>,
}

/// Dead letters by worker and failure, the group with the newest first.
#[utoipa::path(get, path = "/api/v1/dead-letters/groups", params(GroupsQuery), responses((status = 200, body = List<FailureGroupView>)))]
pub(super) async fn list(
    operator: Operator,
    QueryParams(query): QueryParams<GroupsQuery>,
) -> ApiResult<List<FailureGroupView>> {
    let state = query.state.map(|word| {
        GroupState::parse(&word).ok_or_else(|| {
            OperateError::Invalid(format!("`{word}` is not a state; use open, acknowledged or resolved"))
        })
    });
    let query = GroupQuery {
        state: state.transpose()?,
        worker: query.worker,
        code: query.code,
        with_dead_letters: !query.empty.unwrap_or(false),
        after: query.after.as_deref().map(parse_cursor).transpose()?,
        limit: query.limit.unwrap_or(LIMIT),
    };
    Ok(Json(operator.failure_groups(query).await?))
}

/// One failure group.
#[utoipa::path(get, path = "/api/v1/dead-letters/groups/{id}", params(("id" = String, Path)), responses((status = 200, body = FailureGroupView), (status = 404)))]
pub(super) async fn show(operator: Operator, Path(id): Path<String>) -> ApiResult<FailureGroupView> {
    Ok(Json(operator.failure_group(&id).await?))
}

/// Acknowledge a failure group: a person handles it. Further dead letters do not open it again.
#[utoipa::path(post, path = "/api/v1/dead-letters/groups/{id}/acknowledge", params(("id" = String, Path)), request_body = GroupRequest, responses((status = 200, body = FailureGroupView), (status = 404), (status = 409)))]
pub(super) async fn acknowledge(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<GroupRequest>,
) -> ApiResult<FailureGroupView> {
    Ok(Json(operator.mark_group(&id, GroupState::Acknowledged, &request).await?))
}

/// Resolve a failure group: its cause is gone. The next dead letter opens it again.
#[utoipa::path(post, path = "/api/v1/dead-letters/groups/{id}/resolve", params(("id" = String, Path)), request_body = GroupRequest, responses((status = 200, body = FailureGroupView), (status = 404), (status = 409)))]
pub(super) async fn resolve(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<GroupRequest>,
) -> ApiResult<FailureGroupView> {
    Ok(Json(operator.mark_group(&id, GroupState::Resolved, &request).await?))
}

/// Open a failure group again.
#[utoipa::path(post, path = "/api/v1/dead-letters/groups/{id}/reopen", params(("id" = String, Path)), request_body = GroupRequest, responses((status = 200, body = FailureGroupView), (status = 404), (status = 409)))]
pub(super) async fn reopen(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<GroupRequest>,
) -> ApiResult<FailureGroupView> {
    Ok(Json(operator.mark_group(&id, GroupState::Open, &request).await?))
}
