//! Events: list, one.

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use sluice_domain::event::EventStatus;
use utoipa::IntoParams;

use super::jobs::moment;
use super::{ApiResult, LIMIT, QueryParams};
use crate::config::did_you_mean;
use crate::operate::commands::actor_of;
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
    State(operator): State<Operator>,
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

fn status(word: &str) -> Result<EventStatus, OperateError> {
    EventStatus::parse(word.trim()).ok_or_else(|| {
        let known = EventStatus::ALL.map(EventStatus::as_str);
        let hint = did_you_mean(word, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        OperateError::Invalid(format!("`{word}` is not a status of events; use one of {}{hint}", known.join(", ")))
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct EventQuery {
    /// Show personal data; leaves an audit entry with the actor.
    reveal: Option<bool>,
    actor: Option<String>,
    /// Required to reveal; recorded in the audit trail.
    reason: Option<String>,
}

/// One event, by its id or its idempotency key, with its jobs and its body, masked unless revealed.
#[utoipa::path(get, path = "/api/v1/events/{id}", params(("id" = String, Path), EventQuery), responses((status = 200, body = views::EventDetail), (status = 404), (status = 409)))]
pub(super) async fn event(
    State(operator): State<Operator>,
    Path(id): Path<String>,
    QueryParams(query): QueryParams<EventQuery>,
) -> ApiResult<views::EventDetail> {
    if !query.reveal.unwrap_or(false) {
        return Ok(Json(operator.event(&id, None).await?));
    }
    let reason = query.reason.filter(|reason| !reason.trim().is_empty());
    let reason = reason.ok_or_else(|| OperateError::Invalid("revealing personal data needs a reason".to_owned()))?;
    let reveal = Reveal { actor: actor_of(&query.actor.unwrap_or_default()).to_owned(), reason };
    Ok(Json(operator.event(&id, Some(&reveal)).await?))
}
