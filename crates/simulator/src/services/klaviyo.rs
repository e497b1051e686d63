//! Klaviyo: import of profiles, plain creates that refuse a duplicate, and events that are recognised by their `unique_id`.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::ServiceKind;
use super::shared::ServiceRequest;
use super::state::{ServiceEffect, ServiceState};
use crate::reply::FakeReply;

pub(super) fn answer(state: &mut ServiceState, request: &ServiceRequest<'_>) -> FakeReply {
    let refused = |status: StatusCode, code: &str, detail: &str| {
        FakeReply::json(status, &errors(status, code, detail, Value::Null))
    };
    if request.authorization() != format!("Klaviyo-API-Key {}", ServiceKind::Klaviyo.credential()) {
        let detail = "Missing or invalid private key.";
        return refused(StatusCode::UNAUTHORIZED, "not_authenticated", detail);
    }
    if request.header("revision").is_empty() {
        return refused(StatusCode::BAD_REQUEST, "invalid", "The revision header is required.");
    }
    let path = request.path.trim_end_matches('/');
    let body = request.json().unwrap_or_default();
    let attributes = &body["data"]["attributes"];
    match (request.method, path) {
        ("POST", "/api/profile-import" | "/api/profiles") => {
            let identifiers = ["email", "phone_number", "external_id"];
            let Some(identity) = identifiers.iter().find_map(|name| attributes[*name].as_str()) else {
                let detail = "One of email, phone_number or external_id is required.";
                return refused(StatusCode::BAD_REQUEST, "invalid", detail);
            };
            profile(state, identity, attributes, path == "/api/profile-import")
        }
        ("POST", "/api/events") => event(state, attributes),
        _ => refused(StatusCode::NOT_FOUND, "not_found", "A requested resource was not found."),
    }
}

fn profile(state: &mut ServiceState, identity: &str, attributes: &Value, imports: bool) -> FakeReply {
    let is_same = |effect: &&mut ServiceEffect| effect.kind == "profile" && effect.key == identity;
    if let Some(known) = state.effects.iter_mut().find(is_same) {
        if !imports {
            let meta = json!({"duplicate_profile_id": known.id});
            let detail = "A profile already exists with one of these identifiers.";
            return FakeReply::json(
                StatusCode::CONFLICT,
                &errors(StatusCode::CONFLICT, "duplicate_profile", detail, meta),
            );
        }
        // Null clears a value; what is absent stays.
        for (name, value) in attributes.as_object().into_iter().flatten() {
            known.fields[name.as_str()] = value.clone();
        }
        let reply = json!({"data": {"type": "profile", "id": known.id, "attributes": known.fields}});
        state.truth.repeats += 1;
        return FakeReply::json(StatusCode::OK, &reply);
    }
    let id = state.apply("profile", identity, attributes.clone(), |number| format!("01SIM{number:021}"));
    FakeReply::json(StatusCode::CREATED, &json!({"data": {"type": "profile", "id": id, "attributes": attributes}}))
}

fn event(state: &mut ServiceState, attributes: &Value) -> FakeReply {
    let metric = attributes["metric"]["data"]["attributes"]["name"].as_str().unwrap_or_default();
    let profile = &attributes["profile"]["data"]["attributes"];
    let person = ["email", "phone_number", "external_id", "id"].iter().find_map(|name| profile[*name].as_str());
    let (Some(person), false) = (person, metric.is_empty()) else {
        let detail = "An event needs a metric and a profile.";
        return FakeReply::json(
            StatusCode::BAD_REQUEST,
            &errors(StatusCode::BAD_REQUEST, "invalid", detail, Value::Null),
        );
    };
    let second = || jiff::Timestamp::now().as_second().to_string();
    let unique = attributes["unique_id"].as_str().map_or_else(second, str::to_owned);
    if state.is_new(format!("{person} {metric} {unique}")) {
        state.apply("event", &unique, attributes.clone(), |number| number.to_string());
    }
    FakeReply::empty(StatusCode::ACCEPTED)
}

/// The body of an error.
pub(super) fn errors(status: StatusCode, code: &str, detail: &str, meta: Value) -> Value {
    let title = status.canonical_reason().unwrap_or_default();
    let id = "00000000-0000-4000-8000-000000000000";
    json!({"errors": [{"id": id, "status": status.as_u16(), "code": code, "title": title, "detail": detail, "meta": meta}]})
}
