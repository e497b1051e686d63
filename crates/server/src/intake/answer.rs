//! HTTP responses of the intake.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sluice_domain::event::EventId;
use sluice_domain::flow::Flow;
use sluice_ledger::{Acceptance, Duplicate};

/// Error response in RFC 9457 form. The code is stable; the detail is for humans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProblem {
    pub status: StatusCode,
    pub code: &'static str,
    pub detail: String,
    /// Seconds.
    pub retry_after: Option<u64>,
    /// `Allow` header of a 405.
    pub allow: Option<String>,
    /// Closes the connection, because the rest of the request is unread.
    pub close: bool,
}

impl HttpProblem {
    /// Problem without `Retry-After`.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> HttpProblem {
        HttpProblem { status, code, detail: detail.into(), retry_after: None, allow: None, close: false }
    }

    /// Sets `Retry-After`, in seconds.
    pub fn retry_after(self, seconds: u64) -> HttpProblem {
        HttpProblem { retry_after: Some(seconds.max(1)), ..self }
    }

    /// Closes the connection after the response.
    pub fn closing(self) -> HttpProblem {
        HttpProblem { close: true, ..self }
    }

    pub fn response(&self) -> Response<Full<Bytes>> {
        let body = json!({
            "type": format!("urn:sluice:problem:{}", self.code),
            "title": self.status.canonical_reason().unwrap_or("Problem"),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        let mut response = json_response(self.status, &body, "application/problem+json");
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow.as_ref().and_then(|allow| HeaderValue::from_str(allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

pub(super) fn json_response(status: StatusCode, body: &Value, content_type: &'static str) -> Response<Full<Bytes>> {
    raw(status, content_type, Bytes::from(body.to_string()))
}

pub(super) fn raw(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Result of one event.
pub(super) struct EventResult<'a> {
    pub acceptance: &'a Acceptance,
    pub key: &'a str,
    /// Why the event is quarantined.
    pub reason: Option<&'a str>,
}

/// Who is answered.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub flow: &'a Flow,
    /// Name of the secret that verified the request.
    pub verified_by: Option<&'a str>,
}

#[derive(Serialize)]
struct EventResponse<'a> {
    event_id: EventId,
    idempotency_key: &'a str,
    status: &'static str,
}

/// Response to one event. A duplicate gets the status and the event id of the first request, and its named results once they are
/// known.
pub(super) fn one<'a>(
    status: StatusCode,
    caller: Caller<'_>,
    mut events: impl Iterator<Item = EventResult<'a>>,
) -> Response<Full<Bytes>> {
    let Some(event) = events.next() else { return raw(status, "application/json", Bytes::from_static(b"{}")) };
    match event.acceptance {
        // Serialized directly, because this is the hot path.
        Acceptance::Accepted(accepted) if !accepted.quarantined => {
            let response = EventResponse { event_id: accepted.id, idempotency_key: event.key, status: "accepted" };
            let body = serde_json::to_vec(&response).expect("strings serialize to JSON");
            raw(status, "application/json", Bytes::from(body))
        }
        Acceptance::Accepted(_) => json_response(status, &described(&event), "application/json"),
        Acceptance::Duplicate(first) => {
            let mut body = described(&event);
            body["status"] = Value::from("accepted");
            if let Some(result) = result(caller, first) {
                body["result"] = Value::Object(result);
            }
            replayed(json_response(status, &body, "application/json"))
        }
        // The request was rejected as a whole.
        Acceptance::ProofUsed => json_response(status, &described(&event), "application/json"),
    }
}

/// Response to a request with several events.
pub(super) fn several<'a>(status: StatusCode, events: impl Iterator<Item = EventResult<'a>>) -> Response<Full<Bytes>> {
    let mut all_repeats = true;
    let events: Vec<Value> = events
        .map(|event| {
            all_repeats &= matches!(event.acceptance, Acceptance::Duplicate(_));
            described(&event)
        })
        .collect();
    all_repeats &= !events.is_empty();
    let response = json_response(status, &json!({ "status": "accepted", "events": events }), "application/json");
    if all_repeats { replayed(response) } else { response }
}

fn described(event: &EventResult<'_>) -> Value {
    match event.acceptance {
        Acceptance::Accepted(accepted) if accepted.quarantined => json!({
            "event_id": accepted.id, "idempotency_key": event.key, "status": "quarantined",
            "reason": event.reason.unwrap_or("key-clash"),
        }),
        Acceptance::Accepted(accepted) => {
            json!({ "event_id": accepted.id, "idempotency_key": event.key, "status": "accepted" })
        }
        // Not the key: that of the first request may be another, recognized by its content.
        Acceptance::Duplicate(first) => json!({ "event_id": first.id, "status": "duplicate" }),
        Acceptance::ProofUsed => json!({ "idempotency_key": event.key, "status": "rejected" }),
    }
}

fn replayed(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));
    response
}

/// Named results of the first event. Not for another sender: neither another source nor another secret, nor one who knows the id but
/// not the content.
fn result(caller: Caller<'_>, first: &Duplicate) -> Option<Map<String, Value>> {
    let same_sender = *first.source == *caller.flow.source && first.verified_by.as_deref() == caller.verified_by;
    if !same_sender || first.clash {
        return None;
    }
    caller.flow.result_of(&first.jobs)
}
