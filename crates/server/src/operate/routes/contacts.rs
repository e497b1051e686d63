//! Contacts, and everything that happened to a person.

use axum::extract::Path;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::operate::commands::{IdentifyRequest, MergeContactRequest, SplitContactRequest};
use crate::operate::operator::Operator;
use crate::operate::views::{ContactView, EventDetail, List, TraceView};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ContactsQuery {
    /// Only contacts with conflicts.
    conflicts: Option<bool>,
    /// Id of the last contact of the previous page.
    after: Option<String>,
    /// Maximum number of rows.
    limit: Option<u32>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceQuery {
    /// Event id, idempotency key, contact id, email address, phone number or external id.
    about: String,
}

pub(super) fn routes() -> Router<Operator> {
    Router::new()
        .route("/contacts", get(list))
        .route("/contacts/{id}", get(show))
        .route("/contacts/{id}/merge", post(merge))
        .route("/contacts/{id}/split", post(split))
        .route("/events/{id}/identify", post(identify))
        .route("/trace", get(trace))
}

/// Contacts, masked, newest first.
#[utoipa::path(get, path = "/api/v1/contacts", params(ContactsQuery), responses((status = 200, body = List<ContactView>)))]
pub(super) async fn list(
    operator: Operator,
    QueryParams(query): QueryParams<ContactsQuery>,
) -> ApiResult<List<ContactView>> {
    let conflicts = query.conflicts.unwrap_or(false);
    Ok(Json(operator.contacts(conflicts, query.after.as_deref(), query.limit.unwrap_or(LIMIT)).await?))
}

/// One contact, by its id, email address, phone number or external id.
#[utoipa::path(get, path = "/api/v1/contacts/{id}", params(("id" = String, Path)), responses((status = 200, body = ContactView), (status = 404), (status = 409)))]
pub(super) async fn show(operator: Operator, Path(id): Path<String>) -> ApiResult<ContactView> {
    Ok(Json(operator.contact(&id).await?))
}

/// Merge a contact into another one. A split takes it back.
#[utoipa::path(post, path = "/api/v1/contacts/{id}/merge", params(("id" = String, Path)), request_body = MergeContactRequest, responses((status = 200, body = ContactView), (status = 404), (status = 409)))]
pub(super) async fn merge(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<MergeContactRequest>,
) -> ApiResult<ContactView> {
    Ok(Json(operator.merge_contact(&id, request).await?))
}

/// Take a contact out of the one that it is merged into.
#[utoipa::path(post, path = "/api/v1/contacts/{id}/split", params(("id" = String, Path)), request_body = SplitContactRequest, responses((status = 200, body = ContactView), (status = 404), (status = 409)))]
pub(super) async fn split(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<SplitContactRequest>,
) -> ApiResult<ContactView> {
    Ok(Json(operator.split_contact(&id, request).await?))
}

/// Release a quarantined event with an identity. The event itself stays as it was sent.
#[utoipa::path(post, path = "/api/v1/events/{id}/identify", params(("id" = String, Path)), request_body = IdentifyRequest, responses((status = 200, body = EventDetail), (status = 400), (status = 404), (status = 409)))]
pub(super) async fn identify(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<IdentifyRequest>,
) -> ApiResult<EventDetail> {
    Ok(Json(operator.identify_event(&id, request).await?))
}

/// Everything that happened to an event or a person, oldest first.
#[utoipa::path(get, path = "/api/v1/trace", params(TraceQuery), responses((status = 200, body = TraceView), (status = 404), (status = 409)))]
pub(super) async fn trace(operator: Operator, QueryParams(query): QueryParams<TraceQuery>) -> ApiResult<TraceView> {
    Ok(Json(operator.trace(&query.about).await?))
}
