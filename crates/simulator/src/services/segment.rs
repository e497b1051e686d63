//! Segment: the HTTP tracking API. A `messageId` that was seen is dropped; a wrong write key is answered with 200 as well.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::ServiceKind;
use super::shared::ServiceRequest;
use super::state::ServiceState;
use crate::reply::FakeReply;

const EVENT_BYTES_MAX: usize = 32 * 1024;
const BATCH_BYTES_MAX: usize = 500 * 1024;
const MESSAGE_ID_CHARACTERS_MAX: usize = 100;
const TYPES: [&str; 6] = ["track", "identify", "group", "page", "screen", "alias"];

pub(super) fn answer(state: &mut ServiceState, request: &ServiceRequest<'_>) -> FakeReply {
    let Some(name) = request.path.strip_prefix("/v1/").filter(|_| request.method == "POST") else {
        return FakeReply::json(StatusCode::NOT_FOUND, &json!({"success": false, "message": "not found"}));
    };
    let Some(body) = request.json() else { return malformed("malformed JSON") };
    let write_key = match request.basic() {
        Some((user, _)) => user,
        None => body["writeKey"].as_str().unwrap_or_default().to_owned(),
    };
    if write_key.is_empty() {
        return FakeReply::json(StatusCode::UNAUTHORIZED, &json!({"success": false, "message": "no write key"}));
    }
    let is_known = write_key == ServiceKind::Segment.credential();
    match name {
        "batch" => {
            let Some(events) = body["batch"].as_array() else { return malformed("batch is missing") };
            if request.body.len() > BATCH_BYTES_MAX || events.iter().any(|event| !is_event(event)) {
                return malformed("an event of the batch is malformed or too large");
            }
            for event in events.iter().filter(|_| is_known) {
                record(state, event["type"].as_str().unwrap_or_default(), event);
            }
        }
        name if TYPES.contains(&name) => {
            if request.body.len() > EVENT_BYTES_MAX || !is_message_id(&body) {
                return malformed("the event is malformed or too large");
            }
            if is_known {
                record(state, name, &body);
            }
        }
        _ => return FakeReply::json(StatusCode::NOT_FOUND, &json!({"success": false, "message": "not found"})),
    }
    FakeReply::json(StatusCode::OK, &json!({"success": true}))
}

fn is_event(event: &Value) -> bool {
    let is_type = event["type"].as_str().is_some_and(|name| TYPES.contains(&name));
    is_type && event.to_string().len() <= EVENT_BYTES_MAX && is_message_id(event)
}

fn is_message_id(event: &Value) -> bool {
    event["messageId"].as_str().is_none_or(|id| id.chars().count() <= MESSAGE_ID_CHARACTERS_MAX)
}

/// Without a `messageId` each request is another event.
fn record(state: &mut ServiceState, kind: &str, event: &Value) {
    let assigned = || format!("api-{}", uuid(state.truth.effects + 1));
    let id = event["messageId"].as_str().filter(|id| !id.is_empty()).map_or_else(assigned, str::to_owned);
    if state.is_new(id.clone()) {
        state.apply(kind, &id, event.clone(), |_| id.clone());
    }
}

fn uuid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

fn malformed(message: &str) -> FakeReply {
    FakeReply::json(StatusCode::BAD_REQUEST, &json!({"success": false, "message": message}))
}
