//! Events: list, one.

use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use sluice_domain::event::EventStatus;
use utoipa::{IntoParams, ToSchema};

use super::jobs::moment;
use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::config::did_you_mean;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::{EventsRequest, Reveal};
use crate::operate::views;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Only from this source.
    source: Option<String>,
    /// Only of this type.
    r#type: Option<String>,
    /// Only with this idempotency key. It is looked up by its digest.
    key: Option<String>,
    /// Only about this person: email address, phone number or external id. It is looked up by its digest.
    contact: Option<String>,
    /// Only received within this duration (`1h`) or since this time.
    since: Option<String>,
    /// Only with this status: `working`, `done`, `dead`, `unknown`, `dropped` or `unrouted`.
    state: Option<String>,
    /// Continue after this event.
    after: Option<String>,
    /// Maximum number of rows.
    limit: Option<u32>,
}

/// Accepted events, newest first.
#[utoipa::path(get, path = "/api/v1/events", params(EventsQuery), responses((status = 200, body = views::List<views::EventView>)))]
pub(super) async fn events(
    operator: Operator,
    QueryParams(query): QueryParams<EventsQuery>,
) -> ApiResult<views::List<views::EventView>> {
    let status = query.state.as_deref().map(status).transpose()?;
    let since = query.since.as_deref().map(moment).transpose()?;
    let request = EventsRequest {
        source: query.source,
        event_type: query.r#type,
        key: query.key,
        contact: query.contact,
        since,
        status,
        after: query.after,
        limit: query.limit.unwrap_or(LIMIT),
    };
    Ok(Json(operator.events(request).await?))
}

pub(super) fn status(word: &str) -> Result<EventStatus, OperateError> {
    EventStatus::parse(word.trim()).ok_or_else(|| {
        let known = EventStatus::ALL.map(EventStatus::as_str);
        let hint = did_you_mean(word, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        OperateError::Invalid(format!("`{word}` is not a status of events; use one of {}{hint}", known.join(", ")))
    })
}

/// One event, by its id or its idempotency key, with its jobs and its body, masked.
#[utoipa::path(get, path = "/api/v1/events/{id}", params(("id" = String, Path)), responses((status = 200, body = views::EventDetail), (status = 404), (status = 409)))]
pub(super) async fn event(operator: Operator, Path(id): Path<String>) -> ApiResult<views::EventDetail> {
    Ok(Json(operator.event(&id, None).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RevealRequest {
    /// Recorded in the audit trail.
    reason: String,
    #[serde(default)]
    actor: String,
}

/// One event with its body unmasked. Leaves an audit entry; needs the permission `reveal`.
#[utoipa::path(post, path = "/api/v1/events/{id}/reveal", params(("id" = String, Path)), request_body = RevealRequest, responses((status = 200, body = views::EventDetail), (status = 403), (status = 404), (status = 409)))]
pub(super) async fn reveal(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<RevealRequest>,
) -> ApiResult<views::EventDetail> {
    let reveal = Reveal { actor: request.actor, reason: request.reason };
    Ok(Json(operator.event(&id, Some(&reveal)).await?))
}
