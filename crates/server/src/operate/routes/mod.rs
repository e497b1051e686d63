//! Routes of the admin server: the API by resource, health, metrics.

mod access;
mod accounts;
mod alerts;
mod approvals;
mod change;
mod clock;
mod contacts;
mod dead_letters;
mod document;
mod endpoints;
mod event_edits;
mod events;
mod export;
mod exports;
mod failure_groups;
mod guards;
mod history;
mod idempotency;
mod imports;
mod jobs;
mod keys;
mod node;
mod pauses;
mod replays;
mod shadow;
mod shapes;
mod stream;
mod trials;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Query, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;

use super::listener::Peer;
use super::operator::{OperateError, Operator};
use crate::access::{Access, Refusal, RequestCaller};

pub use document::openapi;
pub(crate) use jobs::moment;

/// History and alerts.
fn watch_routes() -> Router<Operator> {
    Router::new()
        .route("/alerts", get(alerts::list))
        .route("/responses", get(alerts::responses))
        .route("/alerts/rules", get(alerts::rules))
        .route("/alerts/acknowledge", post(alerts::acknowledge))
        .route("/alerts/snooze", post(alerts::snooze))
        .route("/alerts/test", post(alerts::test))
        .route("/series", get(history::series))
        .route("/totals", get(history::totals))
        .route("/latency", get(history::latency))
        .route("/north-stars", get(history::north_stars))
}

pub(super) fn not_found() -> Response {
    problem(StatusCode::NOT_FOUND, "not-found", "no such route; see /openapi.json")
}

/// A rejection that is not a problem yet, such as a path that is not UTF-8, as one.
async fn as_problem(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_plain = kind.is_empty() || kind.starts_with(b"text/plain");
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) || !is_plain {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let text = axum::body::to_bytes(body, PROBLEM_TEXT_MAX).await.unwrap_or_default();
    let detail = String::from_utf8_lossy(&text);
    let detail = if detail.trim().is_empty() { "the request cannot be served" } else { detail.trim() };
    let (problem, body) = problem(status, "request-invalid", detail).into_parts();
    // Such as `Allow`.
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.extend(problem.headers);
    Response::from_parts(head, body)
}

async fn wrong_method() -> Response {
    problem(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "this route has other methods; see /openapi.json")
}

/// What came in and what became of it.
fn event_routes() -> Router<Operator> {
    Router::new()
        .route("/status", get(node::status))
        .route("/events", get(events::events))
        .route("/events/{id}", get(events::event))
        .route("/events/{id}/reveal", post(events::reveal))
        .route("/jobs", get(jobs::jobs))
        .route("/jobs/{id}", get(jobs::job))
        .route("/jobs/{id}/resolve", post(jobs::resolve))
        .route("/dead-letters", get(dead_letters::dead_letters))
        .route("/dead-letters/top", get(dead_letters::dead_reasons))
        .route("/dead-letters/drop", post(dead_letters::drop_jobs))
        .merge(event_edits::routes())
        .merge(failure_groups::routes())
        .merge(accounts::routes())
        .route("/replays", get(replays::list).post(replays::start))
        .route("/replays/{id}", get(replays::show))
        .route("/replays/{id}/pause", post(replays::pause))
        .route("/replays/{id}/resume", post(replays::resume))
        .route("/replays/{id}/cancel", post(replays::cancel))
        .route("/sources", get(endpoints::sources))
        .route("/sources/{name}", get(endpoints::source))
        .route("/sources/{name}/shape", get(shapes::show))
        .route("/sources/{name}/shape/accept", post(shapes::accept))
        .route("/destinations", get(endpoints::destinations))
        .route("/destinations/{name}", get(endpoints::destination))
        .route("/workers", get(endpoints::workers))
        .route("/stream", get(stream::stream))
}

/// The node, its configuration and its users.
fn node_routes() -> Router<Operator> {
    Router::new()
        .route("/pauses", get(pauses::pauses))
        .route("/pause", post(pauses::pause))
        .route("/resume", post(pauses::resume))
        .route("/reload", post(node::reload))
        .route("/approvals", get(approvals::list).post(approvals::decide_many))
        .route("/approvals/{id}", get(approvals::show).post(approvals::decide_one))
        .merge(contacts::routes())
        .merge(exports::routes())
        .merge(imports::routes())
        .route("/suppressions", get(guards::suppressions).post(guards::suppress))
        .route("/safe-mode", get(guards::safe_modes).post(guards::set_safe_mode))
        .route(
            "/plan",
            get(change::pending_plan).post(change::plan_route).layer(DefaultBodyLimit::max(change::ORDER_BYTES_MAX)),
        )
        .route("/apply", post(change::apply_route).layer(DefaultBodyLimit::max(change::ORDER_BYTES_MAX)))
        .route("/shadow", get(shadow::show).post(shadow::start).layer(DefaultBodyLimit::max(change::ORDER_BYTES_MAX)))
        .route("/shadow/stop", post(shadow::stop))
        .route("/trials", post(trials::start).layer(DefaultBodyLimit::max(change::ORDER_BYTES_MAX)))
        .route("/trials/{id}", get(trials::show))
        .route("/trials/{id}/cancel", post(trials::cancel))
        .route("/revisions", get(change::revisions))
        .route("/revisions/{revision}", get(change::revision))
        .route("/keys", get(keys::show))
        .route("/keys/rotate", post(keys::rotate))
        .route("/clock", get(clock::show))
        .route("/clock/accept", post(clock::accept))
        .route("/audit", get(node::audit))
        .route("/whoami", get(access::whoami))
        .route("/users", get(access::users).post(access::put_user))
        .route("/users/{name}/remove", post(access::remove_user))
        .route("/tokens", get(access::tokens).post(access::add_token))
        .route("/tokens/{id}/revoke", post(access::revoke_token))
        .route("/sessions", get(access::sessions))
        .route("/sessions/{id}/revoke", post(access::revoke_session))
        .route("/sign-in-links", post(access::add_link))
}

pub(super) fn router(operator: Operator, access: Access, body_timeout: Duration) -> Router {
    let api = event_routes()
        .merge(node_routes())
        .merge(watch_routes())
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(export::convert))
        .layer(middleware::map_response(as_problem))
        .layer(middleware::from_fn_with_state(operator.clone(), idempotency::once))
        .layer(axum::Extension(stream::Streams::default()))
        .layer(axum::Extension(access.clone()))
        .layer(axum::Extension(exports::Exports::default()));
    let guarded = Router::new()
        .nest("/api/v1", api)
        .route("/metrics", get(node::metrics))
        .route("/openapi/intake.json", get(node::intake_api))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            let access = access.clone();
            async move {
                let request = admit(&access, request, body_timeout).await;
                match request {
                    Ok(request) => next.run(request).await,
                    Err(refusal) => *refusal,
                }
            }
        }));
    Router::new()
        .merge(guarded)
        .route("/healthz", get(|| async { Json(json!({ "status": "alive" })) }))
        .route("/readyz", get(node::ready))
        .route("/openapi.json", get(|| async { ([(header::CONTENT_TYPE, "application/json")], openapi()) }))
        .with_state(operator)
}

/// Checks the caller, then reads the body in limited time.
async fn admit(access: &Access, request: Request, body_timeout: Duration) -> Result<Request, Box<Response>> {
    let peer = request.extensions().get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
    let (mut head, body) = request.into_parts();
    let identified = access.identify(&head, peer).await.map_err(refused)?;
    if !head.method.is_safe() {
        let presented = head.headers.get(FORM_TOKEN).and_then(|value| value.to_str().ok());
        identified.check_form(&head.headers, presented).map_err(refused)?;
    }
    head.extensions.insert(RequestCaller(identified.caller));
    let reading = axum::body::to_bytes(body, change::ORDER_BYTES_MAX);
    match tokio::time::timeout(body_timeout, reading).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(head, Body::from(bytes))),
        Ok(Err(error)) => {
            let detail = format!("the body cannot be read: {error}; at most {} bytes", change::ORDER_BYTES_MAX);
            Err(Box::new(problem(StatusCode::PAYLOAD_TOO_LARGE, "body-invalid", &detail)))
        }
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", body_timeout.as_secs_f32());
            Err(Box::new(problem(StatusCode::REQUEST_TIMEOUT, "body-timeout", &detail)))
        }
    }
}

/// Longest text of a rejection that is shown, in bytes.
const PROBLEM_TEXT_MAX: usize = 16 * 1024;

/// Header with the form token of a session, for changes that its pages make by script.
const FORM_TOKEN: &str = "x-form-token";

fn refused(refusal: Refusal) -> Box<Response> {
    let mut response = problem(refusal.status, refusal.code, &refusal.detail);
    if let Some(seconds) = refusal.retry_after_seconds {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if refusal.status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    Box::new(response)
}

/// The operator of the caller that the request was admitted for.
impl axum::extract::FromRequestParts<Operator> for Operator {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &Operator,
    ) -> Result<Operator, Response> {
        match parts.extensions.get::<RequestCaller>() {
            Some(RequestCaller(caller)) => Ok(state.acting_for(caller.clone())),
            None => Err(problem(StatusCode::UNAUTHORIZED, "unauthorized", "this route needs a caller")),
        }
    }
}

pub(super) fn problem(status: StatusCode, code: &str, detail: &str) -> Response {
    let body = json!({
        "type": format!("urn:sluice:problem:{code}"),
        "title": status.canonical_reason().unwrap_or("Problem"),
        "status": status.as_u16(),
        "code": code,
        "detail": detail,
    });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}

impl IntoResponse for OperateError {
    fn into_response(self) -> Response {
        problem(self.status(), self.code(), &self.to_string())
    }
}

pub(super) type ApiResult<T> = Result<Json<T>, OperateError>;

/// JSON body with a problem response for invalid input.
pub(super) struct JsonBody<T>(pub T);

impl<T: serde::de::DeserializeOwned, S: Send + Sync> axum::extract::FromRequest<S> for JsonBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<JsonBody<T>, Response> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(JsonBody(body)),
            Err(rejection) => Err(problem(rejection.status(), "body-invalid", &rejection.body_text())),
        }
    }
}

/// Query parameters with a problem response for invalid input.
pub(super) struct QueryParams<T>(pub T);

impl<T: serde::de::DeserializeOwned, S: Send + Sync> axum::extract::FromRequestParts<S> for QueryParams<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, state: &S) -> Result<QueryParams<T>, Response> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(QueryParams(query)),
            Err(rejection) => Err(problem(StatusCode::BAD_REQUEST, "query-invalid", &rejection.body_text())),
        }
    }
}

pub(super) const LIMIT: u32 = 50;
