//! Routes of the admin server: the API by resource, health, metrics.

mod approvals;
mod change;
mod clock;
mod contacts;
mod dead_letters;
mod document;
mod endpoints;
mod events;
mod guards;
mod jobs;
mod keys;
mod node;
mod pauses;
mod replays;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Query, Request};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;

use super::access::Access;
use super::listener::Peer;
use super::operator::{OperateError, Operator};

pub use document::openapi;

pub(super) fn router(operator: Operator, access: Access, body_timeout: Duration) -> Router {
    let api = Router::new()
        .route("/status", get(node::status))
        .route("/events", get(events::events))
        .route("/events/{id}", get(events::event))
        .route("/jobs", get(jobs::jobs))
        .route("/jobs/{id}", get(jobs::job))
        .route("/jobs/{id}/resolve", post(jobs::resolve))
        .route("/dead-letters", get(dead_letters::dead_letters))
        .route("/dead-letters/top", get(dead_letters::dead_reasons))
        .route("/dead-letters/drop", post(dead_letters::drop_jobs))
        .route("/replays", get(replays::list).post(replays::start))
        .route("/replays/{id}", get(replays::show))
        .route("/replays/{id}/pause", post(replays::pause))
        .route("/replays/{id}/resume", post(replays::resume))
        .route("/replays/{id}/cancel", post(replays::cancel))
        .route("/sources", get(endpoints::sources))
        .route("/sources/{name}", get(endpoints::source))
        .route("/destinations", get(endpoints::destinations))
        .route("/pauses", get(pauses::pauses))
        .route("/pause", post(pauses::pause))
        .route("/resume", post(pauses::resume))
        .route("/reload", post(node::reload))
        .route("/approvals", get(approvals::list).post(approvals::decide_many))
        .route("/approvals/{id}", get(approvals::show).post(approvals::decide_one))
        .merge(contacts::routes())
        .route("/suppressions", get(guards::suppressions).post(guards::suppress))
        .route("/safe-mode", get(guards::safe_modes).post(guards::set_safe_mode))
        .route("/plan", post(change::plan_route).layer(DefaultBodyLimit::max(change::ORDER_BYTES_MAX)))
        .route("/apply", post(change::apply_route).layer(DefaultBodyLimit::max(change::ORDER_BYTES_MAX)))
        .route("/revisions", get(change::revisions))
        .route("/revisions/{revision}", get(change::revision))
        .route("/keys", get(keys::show))
        .route("/keys/rotate", post(keys::rotate))
        .route("/clock", get(clock::show))
        .route("/clock/accept", post(clock::accept))
        .route("/audit", get(node::audit));
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
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "not-found", "no such route; see /openapi.json") })
        .with_state(operator)
}

/// Checks the caller, then reads the body in limited time.
async fn admit(access: &Access, request: Request, body_timeout: Duration) -> Result<Request, Box<Response>> {
    let peer = request.extensions().get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
    access.check(&request, peer)?;
    let (head, body) = request.into_parts();
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
