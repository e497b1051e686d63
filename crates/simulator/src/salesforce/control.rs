//! `/sim/…`: control and inspection API of the simulator for tests and demos. Never affected by faults.

use hyper::{Method, StatusCode};
use serde_json::json;

use super::shared::Shared;
use crate::inspect;
use crate::reply::FakeReply;
use crate::uri;

const PAGE_DEFAULT: usize = 1_000;
const PAGE_MAX: usize = 10_000;

/// Handles a request; `path` follows `/sim`.
pub(crate) fn respond(shared: &Shared, method: &Method, path: &str, query: &str, body: &[u8]) -> FakeReply {
    if (method, path) == (&Method::GET, "/received") {
        return FakeReply::json(StatusCode::OK, &shared.received_by_all(inspect::limit(query)));
    }
    for simulator in &shared.beside {
        let inner = path.strip_prefix('/').and_then(|path| path.strip_prefix(simulator.name()));
        if let Some(reply) = inner.and_then(|inner| inspect::respond(&**simulator, method, inner, query, body)) {
            return reply;
        }
    }
    if let Some(reply) = inspect::respond(shared, method, path, query, body) {
        return reply;
    }
    let parameter = |name: &str| uri::form_value(query, name);
    let limit = parameter("limit").and_then(|limit| limit.parse().ok()).unwrap_or(PAGE_DEFAULT).min(PAGE_MAX);
    match (method.as_str(), path) {
        ("GET", "/records") => match parameter("object") {
            Some(object) => {
                let after = parameter("after").unwrap_or_default();
                FakeReply::json(StatusCode::OK, &shared.records_page(&object, &after, limit))
            }
            None => bad_request("parameter `object` is missing, for example /sim/records?object=Lead"),
        },
        ("GET", "/writes") => {
            let after = parameter("after").and_then(|after| after.parse().ok()).unwrap_or(0);
            FakeReply::json(StatusCode::OK, &shared.writes_page(after, parameter("external_id").as_deref(), limit))
        }
        ("GET", "/calls") => {
            let after = parameter("after").and_then(|after| after.parse().ok()).unwrap_or(0);
            FakeReply::json(StatusCode::OK, &shared.calls_page(after, limit))
        }
        ("GET", "/external-ids") => match (parameter("object"), parameter("field")) {
            (Some(object), Some(field)) => FakeReply::json(StatusCode::OK, &shared.external_ids(&object, &field)),
            _ => bad_request(
                "parameters `object` and `field` are required, for example /sim/external-ids?object=Lead&field=External_Lead_Id__c",
            ),
        },
        ("POST", "/expire-tokens") => {
            shared.org().tokens.expire_all();
            FakeReply::empty(StatusCode::NO_CONTENT)
        }
        ("POST", "/new-day") => {
            shared.org().api_usage = 0;
            FakeReply::empty(StatusCode::NO_CONTENT)
        }
        ("POST", "/reset") => {
            shared.reset();
            FakeReply::empty(StatusCode::NO_CONTENT)
        }
        _ => FakeReply::json(StatusCode::NOT_FOUND, &json!({"error": "unknown endpoint", "known": known(shared)})),
    }
}

fn known(shared: &Shared) -> Vec<String> {
    let own = [
        "GET /sim/records?object=&after=&limit=",
        "GET /sim/writes?after=&external_id=&limit=",
        "GET /sim/calls?after=&limit=",
        "GET /sim/external-ids?object=&field=",
        "POST /sim/expire-tokens",
        "POST /sim/new-day",
        "POST /sim/reset",
    ];
    let beside = shared.beside.iter().flat_map(|simulator| {
        inspect::ENDPOINTS.map(|endpoint| endpoint.replace("/sim/", &format!("/sim/{}/", simulator.name())))
    });
    inspect::ENDPOINTS.into_iter().chain(own).map(str::to_owned).chain(beside).collect()
}

fn bad_request(error: &str) -> FakeReply {
    FakeReply::json(StatusCode::BAD_REQUEST, &json!({"error": error}))
}
