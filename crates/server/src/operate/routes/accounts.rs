//! Flows, queues and the balance.

use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use utoipa::IntoParams;

use super::jobs::moment;
use super::{ApiResult, QueryParams};
use crate::operate::operator::Operator;
use crate::operate::views::{BalanceView, FlowDetail, QueueView};

pub(super) fn routes() -> Router<Operator> {
    Router::new().route("/flows", get(flows)).route("/queues", get(queues)).route("/balance", get(balance))
}

/// Flows: route, verification, queues and workers.
#[utoipa::path(get, path = "/api/v1/flows", responses((status = 200, body = Vec<FlowDetail>)))]
pub(super) async fn flows(operator: Operator) -> ApiResult<Vec<FlowDetail>> {
    Ok(Json(operator.flows()))
}

/// Queues: live jobs, dead letters, workers.
#[utoipa::path(get, path = "/api/v1/queues", responses((status = 200, body = Vec<QueueView>)))]
pub(super) async fn queues(operator: Operator) -> ApiResult<Vec<QueueView>> {
    Ok(Json(operator.queues().await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct BalanceQuery {
    /// A duration (`7d`) or a time; whole days are counted, the last 7 by default.
    since: Option<String>,
    /// Continue after this cursor.
    after: Option<String>,
}

/// What became of accepted events, by day and source. An answer looks at 50,000 events; with `next`, add the next part up.
#[utoipa::path(get, path = "/api/v1/balance", params(BalanceQuery), responses((status = 200, body = BalanceView)))]
pub(super) async fn balance(
    operator: Operator,
    QueryParams(query): QueryParams<BalanceQuery>,
) -> ApiResult<BalanceView> {
    let since = moment(query.since.as_deref().unwrap_or("7d"))?;
    Ok(Json(operator.balance(since, query.after.as_deref()).await?))
}
