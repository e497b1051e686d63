//! `/sim/received`, `/sim/truth` and `/sim/faults`, the same for every simulator.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::faults::{FaultPlan, Injector};
use crate::reply::{FakeReply, Hangup};
use crate::serve::read_body;
use crate::uri;

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 10_000;

/// The endpoints of this module, for messages.
pub(crate) const ENDPOINTS: [&str; 4] =
    ["GET /sim/received?limit=", "GET /sim/truth", "GET /sim/faults", "POST /sim/faults"];

/// A simulator whose truth and fault plan can be read.
pub(crate) trait Inspect: Debug + Send + Sync {
    /// Name in paths, such as `/sim/mail/received`.
    fn name(&self) -> &'static str;

    /// What it received last, oldest first.
    fn received(&self, limit: usize) -> Vec<Value>;

    fn truth(&self) -> Value;

    fn injector(&self) -> &Injector;
}

/// A running simulator, as `/sim/…` of another one shows it.
#[derive(Debug, Clone)]
pub struct Inspected(pub(crate) Arc<dyn Inspect>);

/// A request that was read.
#[derive(Debug)]
pub(crate) enum Received {
    Call(Parts, Bytes),
    /// Too large, or for an endpoint of this module.
    Answered(FakeReply),
}

/// Reads a request to a simulator that has no endpoints below `/sim` but those of this module.
pub(crate) async fn receive(
    simulator: &dyn Inspect,
    request: Request<Incoming>,
    body_bytes_max: usize,
) -> Result<Received, Hangup> {
    let (parts, body) = request.into_parts();
    let Some(body) = read_body(body, body_bytes_max).await? else {
        return Ok(Received::Answered(FakeReply::empty(StatusCode::PAYLOAD_TOO_LARGE)));
    };
    let Some(path) = parts.uri.path().strip_prefix("/sim") else { return Ok(Received::Call(parts, body)) };
    let query = parts.uri.query().unwrap_or_default();
    let reply = respond(simulator, &parts.method, path, query, &body);
    Ok(Received::Answered(reply.unwrap_or_else(|| {
        FakeReply::json(StatusCode::NOT_FOUND, &json!({"error": "unknown endpoint", "known": ENDPOINTS}))
    })))
}

/// Responds to the endpoints that every simulator has; `path` follows `/sim`.
pub(crate) fn respond(
    simulator: &dyn Inspect,
    method: &Method,
    path: &str,
    query: &str,
    body: &[u8],
) -> Option<FakeReply> {
    Some(match (method.as_str(), path) {
        ("GET", "/received") => FakeReply::json(StatusCode::OK, &simulator.received(limit(query))),
        ("GET", "/truth") => FakeReply::json(StatusCode::OK, &simulator.truth()),
        ("GET", "/faults") => FakeReply::json(StatusCode::OK, &simulator.injector().plan()),
        ("POST", "/faults") => replace_faults(simulator.injector(), body),
        _ => return None,
    })
}

pub(crate) fn limit(query: &str) -> usize {
    uri::form_value(query, "limit").and_then(|limit| limit.parse().ok()).unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX)
}

/// The last `limit` items as JSON.
pub(crate) fn last<T: Serialize>(items: impl ExactSizeIterator<Item = T>, limit: usize) -> Vec<Value> {
    let skipped = items.len().saturating_sub(limit);
    items.skip(skipped).map(|item| json!(item)).collect()
}

fn replace_faults(injector: &Injector, body: &[u8]) -> FakeReply {
    let plan = serde_json::from_slice::<FaultPlan>(body).map_err(|error| error.to_string());
    match plan.and_then(|plan| injector.replace(plan).map_err(|error| error.to_string())) {
        Ok(()) => FakeReply::empty(StatusCode::NO_CONTENT),
        Err(error) => FakeReply::json(StatusCode::BAD_REQUEST, &json!({"error": error})),
    }
}
