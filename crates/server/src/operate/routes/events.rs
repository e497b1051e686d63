//! Events: list, one.

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{ApiResult, LIMIT, QueryParams};
use crate::operate::commands::actor_of;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::Reveal;
use crate::operate::views;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Only from this source.
    source: Option<String>,
    /// Only of this type.
    r#type: Option<String>,
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
    Ok(Json(operator.events(query.source, query.r#type, query.after, query.limit.unwrap_or(LIMIT)).await?))
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

/// One event with its jobs and its body, masked unless revealed.
#[utoipa::path(get, path = "/api/v1/events/{id}", params(("id" = String, Path), EventQuery), responses((status = 200, body = views::EventDetail), (status = 404)))]
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
