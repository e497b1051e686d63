//! Alerts: list, acknowledge, snooze, test.

use axum::Json;
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::operate::commands::{AlertRequest, TestAlertRequest};
use crate::operate::operator::Operator;
use crate::operate::views;

/// Alerts, by kind and subject. Recovered ones are listed for a week.
#[utoipa::path(get, path = "/api/v1/alerts", responses((status = 200, body = Vec<views::AlertView>)))]
pub(super) async fn list(operator: Operator) -> ApiResult<Vec<views::AlertView>> {
    Ok(Json(operator.alerts().await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ResponsesQuery {
    /// Continue after this cursor.
    after: Option<i64>,
    /// Maximum number of rows.
    limit: Option<u32>,
}

/// Response clocks that run, newest event first.
#[utoipa::path(get, path = "/api/v1/responses", params(ResponsesQuery), responses((status = 200, body = views::List<views::ResponseView>)))]
pub(super) async fn responses(
    operator: Operator,
    QueryParams(query): QueryParams<ResponsesQuery>,
) -> ApiResult<views::List<views::ResponseView>> {
    Ok(Json(operator.responses(query.after, query.limit.unwrap_or(LIMIT)).await?))
}

/// What applies to every kind of alert: thresholds, hold times, severities.
#[utoipa::path(get, path = "/api/v1/alerts/rules", responses((status = 200, body = Vec<views::AlertRuleView>)))]
pub(super) async fn rules(operator: Operator) -> ApiResult<Vec<views::AlertRuleView>> {
    Ok(Json(operator.alert_rules()))
}

/// Acknowledge an alert: a person handles it.
#[utoipa::path(post, path = "/api/v1/alerts/acknowledge", request_body = AlertRequest, responses((status = 200, body = Vec<views::AlertView>), (status = 404)))]
pub(super) async fn acknowledge(
    operator: Operator,
    JsonBody(order): JsonBody<AlertRequest>,
) -> ApiResult<Vec<views::AlertView>> {
    operator.acknowledge_alert(&order).await?;
    Ok(Json(operator.alerts().await?))
}

/// Snooze an alert: its changes are not notified for a while.
#[utoipa::path(post, path = "/api/v1/alerts/snooze", request_body = AlertRequest, responses((status = 200, body = Vec<views::AlertView>), (status = 404)))]
pub(super) async fn snooze(
    operator: Operator,
    JsonBody(order): JsonBody<AlertRequest>,
) -> ApiResult<Vec<views::AlertView>> {
    operator.snooze_alert(&order).await?;
    Ok(Json(operator.alerts().await?))
}

/// Send a test notice through the playbooks that handle alerts.
#[utoipa::path(post, path = "/api/v1/alerts/test", request_body = TestAlertRequest, responses((status = 200), (status = 409)))]
pub(super) async fn test(
    operator: Operator,
    JsonBody(order): JsonBody<TestAlertRequest>,
) -> ApiResult<serde_json::Value> {
    Ok(Json(json!({ "playbooks": operator.test_alerts(&order).await? })))
}
