//! Dead letters: the list, why they died, and giving them up.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use sluice_domain::job::JobState;
use utoipa::{IntoParams, ToSchema};

use super::jobs::{JobsQuery, moment};
use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::operate::commands::Selection;
use crate::operate::operator::Operator;
use crate::operate::views;

/// Jobs that failed for good or whose outcome is unknown, newest first.
#[utoipa::path(get, path = "/api/v1/dead-letters", params(JobsQuery), responses((status = 200, body = views::List<views::JobView>)))]
pub(super) async fn dead_letters(
    State(operator): State<Operator>,
    QueryParams(query): QueryParams<JobsQuery>,
) -> ApiResult<views::List<views::JobView>> {
    let (after, limit) = (query.after.clone(), query.limit.unwrap_or(LIMIT));
    Ok(Json(operator.jobs(query.filter(vec![JobState::Dead, JobState::Unknown])?, after, limit).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    /// Within this span (`1h`) or since this time; the last hour when left out.
    since: Option<String>,
    /// At most so many.
    limit: Option<u32>,
}

/// Why jobs died, most frequent first.
#[utoipa::path(get, path = "/api/v1/dead-letters/top", params(TopQuery), responses((status = 200, body = Vec<views::ReasonView>)))]
pub(super) async fn dead_reasons(
    State(operator): State<Operator>,
    QueryParams(query): QueryParams<TopQuery>,
) -> ApiResult<Vec<views::ReasonView>> {
    let since = moment(query.since.as_deref().unwrap_or("1h"))?;
    Ok(Json(operator.dead_reasons(since, query.limit.unwrap_or(10)).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct DropRequest {
    /// Which jobs.
    #[serde(flatten)]
    selection: Selection,
    /// Why; somebody signs it off.
    reason: String,
    /// Who.
    #[serde(default)]
    actor: String,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
}

/// Give dead or parked jobs up.
#[utoipa::path(post, path = "/api/v1/dead-letters/drop", request_body = DropRequest, responses((status = 200, body = views::BulkResult)))]
pub(super) async fn drop_jobs(
    State(operator): State<Operator>,
    JsonBody(order): JsonBody<DropRequest>,
) -> ApiResult<views::BulkResult> {
    Ok(Json(operator.drop_jobs(&order.selection, &order.actor, &order.reason, order.dry_run).await?))
}
