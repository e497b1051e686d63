//! `/sim/…`: control and inspection API of the simulator for tests and demos. Never affected by faults.

use hyper::{Method, StatusCode};
use serde_json::json;

use super::{Crm, CrmServer};
use crate::inspect;
use crate::reply::FakeReply;
use crate::uri;

const PAGE_DEFAULT: usize = 1_000;
const PAGE_MAX: usize = 10_000;

/// Handles a request; `path` follows `/sim`.
pub(super) fn respond<C: Crm>(
    server: &CrmServer<C>,
    method: &Method,
    path: &str,
    query: &str,
    body: &[u8],
) -> FakeReply {
    if (method, path) == (&Method::GET, "/received") {
        return FakeReply::json(StatusCode::OK, &server.received_by_all(inspect::limit(query)));
    }
    for simulator in &server.beside {
        let inner = path.strip_prefix('/').and_then(|path| path.strip_prefix(simulator.name()));
        if let Some(reply) = inner.and_then(|inner| inspect::respond(&**simulator, method, inner, query, body)) {
            return reply;
        }
    }
    if let Some(reply) = inspect::respond(server, method, path, query, body) {
        return reply;
    }
    let parameter = |name: &str| uri::form_value(query, name);
    let limit = parameter("limit").and_then(|limit| limit.parse().ok()).unwrap_or(PAGE_DEFAULT).min(PAGE_MAX);
    let after_number = || parameter("after").and_then(|after| after.parse().ok()).unwrap_or(0);
    let (object, field) = C::EXAMPLE;
    match (method.as_str(), path) {
        ("GET", "/records") => match parameter("object") {
            Some(object) => {
                let after = parameter("after").unwrap_or_default();
                FakeReply::json(StatusCode::OK, &server.crm().records(&object, &after, limit))
            }
            None => bad_request(&format!("parameter `object` is missing, for example /sim/records?object={object}")),
        },
        ("GET", "/writes") => {
            let external_id = parameter("external_id");
            FakeReply::json(StatusCode::OK, &server.writes_page(after_number(), external_id.as_deref(), limit))
        }
        ("GET", "/calls") => FakeReply::json(StatusCode::OK, &server.calls_page(after_number(), limit)),
        ("GET", "/external-ids") => match (parameter("object"), parameter("field")) {
            (Some(object), Some(field)) => FakeReply::json(StatusCode::OK, &server.external_ids(&object, &field)),
            _ => bad_request(&format!(
                "parameters `object` and `field` are required, for example /sim/external-ids?object={object}&field={field}"
            )),
        },
        ("POST", "/expire-tokens") => {
            server.crm().expire_tokens();
            FakeReply::empty(StatusCode::NO_CONTENT)
        }
        ("POST", "/new-day") => {
            server.crm().new_day();
            FakeReply::empty(StatusCode::NO_CONTENT)
        }
        ("POST", "/reset") => {
            server.reset();
            FakeReply::empty(StatusCode::NO_CONTENT)
        }
        _ => FakeReply::json(StatusCode::NOT_FOUND, &json!({"error": "unknown endpoint", "known": known(server)})),
    }
}

fn known<C: Crm>(server: &CrmServer<C>) -> Vec<String> {
    let own = [
        "GET /sim/records?object=&after=&limit=",
        "GET /sim/writes?after=&external_id=&limit=",
        "GET /sim/calls?after=&limit=",
        "GET /sim/external-ids?object=&field=",
        "POST /sim/expire-tokens",
        "POST /sim/new-day",
        "POST /sim/reset",
    ];
    let beside = server.beside.iter().flat_map(|simulator| {
        inspect::ENDPOINTS.map(|endpoint| endpoint.replace("/sim/", &format!("/sim/{}/", simulator.name())))
    });
    inspect::ENDPOINTS.into_iter().chain(own).map(str::to_owned).chain(beside).collect()
}

fn bad_request(error: &str) -> FakeReply {
    FakeReply::json(StatusCode::BAD_REQUEST, &json!({"error": error}))
}
