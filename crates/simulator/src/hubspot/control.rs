//! `/sim/…`: control and inspection API of the simulator for tests and demos. Never affected by faults.

use hyper::{Method, StatusCode};
use serde_json::json;

use super::shared::Shared;
use crate::inspect;
use crate::reply::FakeReply;
use crate::uri;

const PAGE_DEFAULT: usize = 1_000;
const PAGE_MAX: usize = 10_000;

const OWN_ENDPOINTS: [&str; 7] = [
    "GET /sim/records?object=&after=&limit=",
    "GET /sim/writes?after=&external_id=&limit=",
    "GET /sim/calls?after=&limit=",
    "GET /sim/external-ids?object=&field=",
    "POST /sim/expire-tokens",
    "POST /sim/new-day",
    "POST /sim/reset",
];

/// Handles a request; `path` follows `/sim`.
pub(crate) fn respond(shared: &Shared, method: &Method, path: &str, query: &str, body: &[u8]) -> FakeReply {
    if let Some(reply) = inspect::respond(shared, method, path, query, body) {
        return reply;
    }
    let parameter = |name: &str| uri::form_value(query, name);
    let number = |name: &str| parameter(name).and_then(|text| text.parse::<u64>().ok());
    let limit = parameter("limit").and_then(|limit| limit.parse().ok()).unwrap_or(PAGE_DEFAULT).min(PAGE_MAX);
    let after = number("after").unwrap_or(0);
    match (method.as_str(), path) {
        ("GET", "/records") => match parameter("object") {
            Some(object) => FakeReply::json(StatusCode::OK, &shared.records_page(&object, after, limit)),
            None => bad_request("parameter `object` is missing, for example /sim/records?object=contacts"),
        },
        ("GET", "/writes") => {
            FakeReply::json(StatusCode::OK, &shared.writes_page(after, parameter("external_id").as_deref(), limit))
        }
        ("GET", "/calls") => FakeReply::json(StatusCode::OK, &shared.calls_page(after, limit)),
        ("GET", "/external-ids") => match (parameter("object"), parameter("field")) {
            (Some(object), Some(field)) => FakeReply::json(StatusCode::OK, &shared.external_ids(&object, &field)),
            _ => bad_request(
                "parameters `object` and `field` are required, for example /sim/external-ids?object=contacts&field=email",
            ),
        },
        ("POST", "/expire-tokens") => {
            shared.portal().tokens.expire_all();
            FakeReply::empty(StatusCode::NO_CONTENT)
        }
        ("POST", "/new-day") => {
            shared.portal().limits.new_day();
            FakeReply::empty(StatusCode::NO_CONTENT)
        }
        ("POST", "/reset") => {
            shared.reset();
            FakeReply::empty(StatusCode::NO_CONTENT)
        }
        _ => {
            let known: Vec<&str> = inspect::ENDPOINTS.into_iter().chain(OWN_ENDPOINTS).collect();
            FakeReply::json(StatusCode::NOT_FOUND, &json!({"error": "unknown endpoint", "known": known}))
        }
    }
}

fn bad_request(error: &str) -> FakeReply {
    FakeReply::json(StatusCode::BAD_REQUEST, &json!({"error": error}))
}
