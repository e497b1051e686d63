//! Dead letters: list, causes, drop.

use axum::Json;
use serde::Deserialize;
use sluice_domain::job::JobState;
use utoipa::{IntoParams, ToSchema};

use super::jobs::{JobsQuery, moment};
use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::operate::commands::Selection;
use crate::operate::operator::Operator;
use crate::operate::views;

/// Dead and unknown jobs, newest first.
#[utoipa::path(get, path = "/api/v1/dead-letters", params(JobsQuery), responses((status = 200, body = views::List<views::JobView>)))]
pub(super) async fn dead_letters(
    operator: Operator,
    QueryParams(query): QueryParams<JobsQuery>,
) -> ApiResult<views::List<views::JobView>> {
    let (after, limit) = (query.after.clone(), query.limit.unwrap_or(LIMIT));
    Ok(Json(operator.jobs(query.filter(vec![JobState::Dead, JobState::Unknown])?, after, limit).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    /// A duration (`1h`) or a time; the last hour by default.
    since: Option<String>,
    /// Maximum number of rows.
    limit: Option<u32>,
}

/// Failures of dead jobs, most frequent first.
#[utoipa::path(get, path = "/api/v1/dead-letters/top", params(TopQuery), responses((status = 200, body = Vec<views::ReasonView>)))]
pub(super) async fn dead_reasons(
    operator: Operator,
    QueryParams(query): QueryParams<TopQuery>,
) -> ApiResult<Vec<views::ReasonView>> {
    let since = moment(query.since.as_deref().unwrap_or("1h"))?;
    Ok(Json(operator.dead_reasons(since, query.limit.unwrap_or(10)).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DropRequest {
    #[serde(flatten)]
    selection: Selection,
    reason: String,
    #[serde(default)]
    actor: String,
    /// Report the result without changing anything.
    #[serde(default)]
    dry_run: bool,
}

/// Drop dead or unknown jobs.
#[utoipa::path(post, path = "/api/v1/dead-letters/drop", request_body = DropRequest, responses((status = 200, body = views::BulkResult)))]
pub(super) async fn drop_jobs(
    operator: Operator,
    JsonBody(order): JsonBody<DropRequest>,
) -> ApiResult<views::BulkResult> {
    Ok(Json(operator.drop_jobs(&order.selection, &order.actor, &order.reason, order.dry_run).await?))
}
