//! Admin server: API routes by resource, health, metrics.

mod approvals;
mod change;
mod dead_letters;
mod document;
mod endpoints;
mod events;
mod guards;
mod jobs;
mod keys;
mod node;
mod pauses;

use std::net::SocketAddr;

use axum::extract::{DefaultBodyLimit, Query, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;
use sluice_domain::verify::SecretValue;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::operator::{OperateError, Operator};

pub use document::openapi;

#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
    operator: Operator,
    token: Option<SecretValue>,
}

impl AdminServer {
    pub async fn bind(
        address: SocketAddr,
        operator: Operator,
        token: Option<SecretValue>,
    ) -> std::io::Result<AdminServer> {
        Ok(AdminServer { listener: TcpListener::bind(address).await?, operator, token })
    }

    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let router = router(self.operator, self.token);
        let stopped = async move {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        if let Err(error) = axum::serve(self.listener, router).with_graceful_shutdown(stopped).await {
            tracing::error!(%error, "admin server ended");
        }
    }
}

fn router(operator: Operator, token: Option<SecretValue>) -> Router {
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
        .route("/replays", post(jobs::replay))
        .route("/sources", get(endpoints::sources))
        .route("/sources/{name}", get(endpoints::source))
        .route("/destinations", get(endpoints::destinations))
        .route("/pauses", get(pauses::pauses))
        .route("/pause", post(pauses::pause))
        .route("/resume", post(pauses::resume))
        .route("/reload", post(node::reload))
        .route("/approvals", get(approvals::list).post(approvals::decide_many))
        .route("/approvals/{id}", get(approvals::show).post(approvals::decide_one))
        .route("/suppressions", get(guards::suppressions).post(guards::suppress))
        .route("/safe-mode", get(guards::safe_modes).post(guards::set_safe_mode))
        .route("/plan", post(change::plan_route).layer(DefaultBodyLimit::max(change::ORDER_BYTES_MAX)))
        .route("/apply", post(change::apply_route).layer(DefaultBodyLimit::max(change::ORDER_BYTES_MAX)))
        .route("/revisions", get(change::revisions))
        .route("/revisions/{revision}", get(change::revision))
        .route("/keys", get(keys::show))
        .route("/keys/rotate", post(keys::rotate))
        .route("/audit", get(node::audit));
    let guarded = Router::new()
        .nest("/api/v1", api)
        .route("/metrics", get(node::metrics))
        .route("/openapi/intake.json", get(node::intake_api))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            let token = token.clone();
            async move {
                match guard(token.as_ref(), &request) {
                    Ok(()) => next.run(request).await,
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

/// Checks the token, and rejects cross-site browser requests, so that a web page cannot act through an operator's
/// browser.
fn guard(token: Option<&SecretValue>, request: &Request) -> Result<(), Box<Response>> {
    let foreign = request.headers().get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    if foreign {
        let refusal = problem(StatusCode::FORBIDDEN, "cross-site", "cross-site requests are rejected");
        return Err(Box::new(refusal));
    }
    let Some(token) = token else { return Ok(()) };
    let shown = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    let matches = shown.is_some_and(|shown| token.matches(shown));
    if matches {
        return Ok(());
    }
    let mut refusal =
        problem(StatusCode::UNAUTHORIZED, "unauthorized", "send the admin token: Authorization: Bearer …");
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(Box::new(refusal))
}

fn problem(status: StatusCode, code: &str, detail: &str) -> Response {
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
