//! PagerDuty: Events API v2. A `dedup_key` names an alert as long as it is open.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::ServiceKind;
use super::shared::ServiceRequest;
use super::state::ServiceState;
use crate::reply::FakeReply;

const KEY_CHARACTERS_MAX: usize = 255;
const SUMMARY_CHARACTERS_MAX: usize = 1_024;
const SEVERITIES: [&str; 4] = ["critical", "error", "warning", "info"];

pub(super) fn answer(state: &mut ServiceState, request: &ServiceRequest<'_>) -> FakeReply {
    if (request.method, request.path) != ("POST", "/v2/enqueue") {
        return FakeReply::json(
            StatusCode::NOT_FOUND,
            &json!({"status": "error", "message": "Not found", "errors": []}),
        );
    }
    let event = request.json().unwrap_or_default();
    let problems = problems(&event);
    if !problems.is_empty() {
        let body = json!({"status": "invalid event", "message": "Event object is invalid", "errors": problems});
        return FakeReply::json(StatusCode::BAD_REQUEST, &body);
    }
    let assigned = || format!("{:032x}", state.truth.effects + 1);
    let key = event["dedup_key"].as_str().map_or_else(assigned, str::to_owned);
    match event["event_action"].as_str() {
        Some("trigger") if state.is_new(key.clone()) => {
            state.apply("alert", &key, event["payload"].clone(), |number| number.to_string());
        }
        // A resolved alert is closed: its key opens another one.
        Some("resolve") => {
            state.known.remove(&key);
        }
        _ => {}
    }
    let body = json!({"status": "success", "message": "Event processed", "dedup_key": key});
    FakeReply::json(StatusCode::ACCEPTED, &body)
}

fn problems(event: &Value) -> Vec<&'static str> {
    let text = |value: &Value| value.as_str().map_or(0, |text| text.chars().count());
    let action = event["event_action"].as_str().unwrap_or_default();
    let payload = &event["payload"];
    let is_trigger = action == "trigger";
    let checks = [
        (event["routing_key"] != ServiceKind::Pagerduty.credential(), "'routing_key' is missing or invalid"),
        (!["trigger", "acknowledge", "resolve"].contains(&action), "'event_action' is missing or invalid"),
        (text(&event["dedup_key"]) > KEY_CHARACTERS_MAX, "'dedup_key' is too long"),
        (!is_trigger && text(&event["dedup_key"]) == 0, "'dedup_key' is missing or blank"),
        (is_trigger && text(&payload["summary"]) == 0, "'payload.summary' is missing or blank"),
        (text(&payload["summary"]) > SUMMARY_CHARACTERS_MAX, "'payload.summary' is too long"),
        (is_trigger && text(&payload["source"]) == 0, "'payload.source' is missing or blank"),
        (
            is_trigger && !payload["severity"].as_str().is_some_and(|word| SEVERITIES.contains(&word)),
            "'payload.severity' is missing or invalid",
        ),
    ];
    checks.into_iter().filter(|(wrong, _)| *wrong).map(|(_, message)| message).collect()
}
