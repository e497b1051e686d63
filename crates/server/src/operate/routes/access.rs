//! Users, API tokens, sessions and sign-in links.

use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use serde_json::json;
use sluice_domain::access::CredentialKind;
use utoipa::ToSchema;

use super::{ApiResult, JsonBody};
use crate::operate::commands::{TokenRequest, UserRequest};
use crate::operate::operator::Operator;
use crate::operate::views::{CallerView, LinkView, NewTokenView, SessionView, TokenView, UserView};

/// Who asks, and what the caller may do.
#[utoipa::path(get, path = "/api/v1/whoami", responses((status = 200, body = CallerView)))]
pub(super) async fn whoami(operator: Operator) -> ApiResult<CallerView> {
    Ok(Json(operator.whoami()))
}

/// Users. Needs the role admin.
#[utoipa::path(get, path = "/api/v1/users", responses((status = 200, body = Vec<UserView>), (status = 403)))]
pub(super) async fn users(operator: Operator) -> ApiResult<Vec<UserView>> {
    Ok(Json(operator.users().await?))
}

/// Add a user, or change one. A new password ends the user's sessions.
#[utoipa::path(post, path = "/api/v1/users", request_body = UserRequest, responses((status = 200, body = UserView), (status = 403), (status = 409)))]
pub(super) async fn put_user(operator: Operator, JsonBody(request): JsonBody<UserRequest>) -> ApiResult<UserView> {
    Ok(Json(operator.put_user(request).await?))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RemovalRequest {
    actor: String,
}

/// Remove a user with their sessions.
#[utoipa::path(post, path = "/api/v1/users/{name}/remove", params(("name" = String, Path)), request_body = RemovalRequest, responses((status = 200), (status = 403), (status = 404)))]
pub(super) async fn remove_user(
    operator: Operator,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<RemovalRequest>,
) -> ApiResult<serde_json::Value> {
    operator.remove_user(&name, &request.actor).await?;
    Ok(Json(json!({ "removed": name })))
}

/// API tokens without their secrets. Needs the role admin.
#[utoipa::path(get, path = "/api/v1/tokens", responses((status = 200, body = Vec<TokenView>), (status = 403)))]
pub(super) async fn tokens(operator: Operator) -> ApiResult<Vec<TokenView>> {
    Ok(Json(operator.tokens().await?))
}

/// Add an API token. Its secret is shown once.
#[utoipa::path(post, path = "/api/v1/tokens", request_body = TokenRequest, responses((status = 200, body = NewTokenView), (status = 403), (status = 409)))]
pub(super) async fn add_token(
    operator: Operator,
    JsonBody(request): JsonBody<TokenRequest>,
) -> ApiResult<NewTokenView> {
    Ok(Json(operator.add_token(request).await?))
}

/// Revoke an API token, by its number.
#[utoipa::path(post, path = "/api/v1/tokens/{id}/revoke", params(("id" = String, Path)), request_body = RemovalRequest, responses((status = 200), (status = 403), (status = 404)))]
pub(super) async fn revoke_token(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<RemovalRequest>,
) -> ApiResult<serde_json::Value> {
    operator.revoke(CredentialKind::Token, &id, &request.actor).await?;
    Ok(Json(json!({ "revoked": id })))
}

/// Sessions of the console. Needs the role admin.
#[utoipa::path(get, path = "/api/v1/sessions", responses((status = 200, body = Vec<SessionView>), (status = 403)))]
pub(super) async fn sessions(operator: Operator) -> ApiResult<Vec<SessionView>> {
    Ok(Json(operator.sessions().await?))
}

/// End a session, by its number.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/revoke", params(("id" = String, Path)), request_body = RemovalRequest, responses((status = 200), (status = 403), (status = 404)))]
pub(super) async fn revoke_session(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<RemovalRequest>,
) -> ApiResult<serde_json::Value> {
    operator.revoke(CredentialKind::Session, &id, &request.actor).await?;
    Ok(Json(json!({ "revoked": id })))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LinkRequest {
    /// The holder of the admin token by default.
    user: Option<String>,
    actor: String,
}

/// Make a sign-in link for the console. It is valid for 30 minutes and counts once.
#[utoipa::path(post, path = "/api/v1/sign-in-links", request_body = LinkRequest, responses((status = 200, body = LinkView), (status = 403), (status = 404)))]
pub(super) async fn add_link(operator: Operator, JsonBody(request): JsonBody<LinkRequest>) -> ApiResult<LinkView> {
    Ok(Json(operator.add_link(request.user.as_deref(), &request.actor).await?))
}
