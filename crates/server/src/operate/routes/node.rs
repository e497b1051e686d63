//! Node: status, reload, audit trail, metrics, readiness.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use sluice_ledger::AuditFilter;
use utoipa::{IntoParams, ToSchema};

use super::jobs::moment;
use super::{ApiResult, LIMIT, QueryParams, problem};
use crate::observe::metric_table;
use crate::operate::commands::Stranding;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views;

/// Status of the node.
#[utoipa::path(get, path = "/api/v1/status", responses((status = 200, body = views::Status)))]
pub(super) async fn status(operator: Operator) -> ApiResult<views::Status> {
    Ok(Json(operator.status().await?))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReloadRequest {
    /// Recorded in the audit trail.
    reason: String,
    actor: String,
    /// Reload even if jobs need removed resources.
    allow_stranded: bool,
}

/// Reload the configuration; with errors the active one stays. The body may be empty.
#[utoipa::path(post, path = "/api/v1/reload", request_body = ReloadRequest, responses((status = 200), (status = 409), (status = 422)))]
pub(super) async fn reload(operator: Operator, body: Bytes) -> ApiResult<serde_json::Value> {
    let order = if body.is_empty() { Ok(ReloadRequest::default()) } else { serde_json::from_slice(&body) };
    let order = order.map_err(|error| OperateError::Invalid(format!("the body is not valid: {error}")))?;
    let stranding = if order.allow_stranded { Stranding::Allowed } else { Stranding::Refused };
    let (revision, changed) = operator.reload(&order.actor, &order.reason, stranding).await?;
    Ok(Json(json!({ "revision": revision, "changed": changed })))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    /// Only of this actor.
    actor: Option<String>,
    /// Only this action, such as `replay` or `pause`.
    action: Option<String>,
    /// Only about objects that begin like this: `job_17`, `destination:crm`, `user`.
    object: Option<String>,
    /// Only within this duration (`1h`) or since this time.
    since: Option<String>,
    /// Only before this duration (`1h`) or time.
    until: Option<String>,
    /// Continue after this entry.
    after: Option<i64>,
    /// Maximum number of rows.
    limit: Option<u32>,
}

/// Audit trail, newest first. A filtered page looks at 50,000 entries; with `next`, there are older ones.
#[utoipa::path(get, path = "/api/v1/audit", params(AuditQuery), responses((status = 200, body = views::List<views::AuditView>)))]
pub(super) async fn audit(
    operator: Operator,
    QueryParams(query): QueryParams<AuditQuery>,
) -> ApiResult<views::List<views::AuditView>> {
    let filter = AuditFilter {
        actor: query.actor,
        action: query.action,
        object: query.object,
        since: query.since.as_deref().map(moment).transpose()?,
        until: query.until.as_deref().map(moment).transpose()?,
    };
    Ok(Json(operator.audit(filter, query.after, query.limit.unwrap_or(LIMIT)).await?))
}

/// The metrics page: OpenMetrics, unless the scraper reads the text format of Prometheus alone.
pub(super) async fn metrics(operator: Operator, headers: HeaderMap) -> Result<Response, OperateError> {
    let page = operator.metrics().await?;
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (content_type, page) = match accepted.contains("text/plain") && !accepted.contains("openmetrics") {
        true => ("text/plain; version=0.0.4; charset=utf-8", metric_table::prometheus_text(&page)),
        false => ("application/openmetrics-text; version=1.0.0; charset=utf-8", page),
    };
    Ok(([(header::CONTENT_TYPE, content_type)], page).into_response())
}

pub(super) async fn intake_api(operator: Operator) -> Json<serde_json::Value> {
    Json(operator.intake_api())
}

pub(super) async fn ready(State(operator): State<Operator>) -> Response {
    if operator.is_ready() {
        return Json(json!({ "status": "ready" })).into_response();
    }
    let mut response =
        problem(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "requests arrive faster than they can be written");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
    response
}
