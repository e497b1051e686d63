//! From a request to an event: verify, parse, key, map. Nothing here waits or writes.

use std::sync::Arc;

use hyper::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use sluice_domain::event::{Event, EventId, MappingProblem, Origin};
use sluice_domain::flow::Flow;
use sluice_domain::key::{self, Key, KeyDigest, KeyProblem};
use sluice_domain::template::Scope;
use sluice_domain::time::Time;
use sluice_domain::verify::{self, HeaderSource};
use sluice_ledger::{ClashPolicy, EventBody, NewEvent, NewJob};

use super::answer::Problem;
use crate::live::Live;

/// There is one tenant so far; it is part of every key all the same.
pub const TENANT: &str = "default";

/// Headers as the verifiers read them.
pub(super) struct Headers<'a>(pub &'a HeaderMap);

impl HeaderSource for Headers<'_> {
    fn value(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(|value| value.as_bytes())
    }
}

/// Headers that prove who the sender is. They are never stored.
const SECRET_HEADERS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];

/// A request, read and understood.
#[derive(Debug)]
pub struct Prepared {
    /// The key and how it was found.
    pub key: Key,
    /// The event.
    pub event: Event,
    /// The queues that it goes to, by the step that sends it there.
    pub queues: Vec<(String, String)>,
    /// What is written.
    pub new: NewEvent,
}

/// What is known of a request beside its head and body.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// When.
    pub received_at: Time,
    /// Which secret proved where it comes from.
    pub verified_by: Option<&'a str>,
    /// The trace that it belongs to.
    pub trace: &'a str,
}

/// Turns a verified request into what is written to the ledger.
pub fn prepare(live: &Live, flow: &Flow, headers: &HeaderMap, body: &[u8], arrival: Arrival<'_>) -> Result<Prepared, Problem> {
    let payload = parse(headers, body)?;
    let kept = kept_headers(headers);
    let fingerprint = key::fingerprint_digest(&payload, &[]);
    let mut scope = Scope::new();
    scope.set("headers", Value::Object(kept));
    scope.set("body", payload);
    let key = key::derive(&flow.idempotency.strategies, &scope).map_err(key_problem)?;
    let digest = KeyDigest::new(TENANT, &flow.name, &key.text);
    let id = EventId::new(digest, 0);
    let origin = Origin { source: &flow.source, idempotency_key: &key.text, id, received_at: arrival.received_at };
    let event = flow.event.apply(&scope, origin).map_err(mapping_problem)?;
    let queues = queues(flow, &mut scope, &event)?;
    let jobs = queues
        .iter()
        .flat_map(|(_, queue)| {
            live.config.consumers(queue).map(|worker| NewJob {
                worker: Arc::from(worker.name.as_str()),
                queue: Arc::from(queue.as_str()),
            })
        })
        .collect();
    let normalized = serde_json::to_string(&event).expect("an event has a JSON form");
    let new = NewEvent {
        key: digest,
        key_text: key.text.clone(),
        expires_at: arrival.received_at + flow.idempotency.ttl,
        flow: Arc::from(flow.name.as_str()),
        source: Arc::from(flow.source.as_str()),
        event_type: event.event_type.clone(),
        entity: event.entity(),
        received_at: arrival.received_at,
        occurred_at: event.occurred_at,
        verified_by: arrival.verified_by.map(str::to_owned),
        revision: live.revision.clone(),
        trace: arrival.trace.to_owned(),
        fingerprint,
        body: Arc::new(EventBody {
            headers: scope.get("headers").map(Value::to_string).unwrap_or_default(),
            raw: body.to_vec(),
            normalized,
        }),
        jobs,
        near_keys: Vec::new(),
        clash: ClashPolicy::Drop,
        second_net: None,
        quarantine: None,
        contact: None,
    };
    Ok(Prepared { key, event, queues, new })
}

/// Checks where a request comes from, on the bytes as they arrived. Answers which secret proved it.
pub(super) fn verify_request<'v>(
    flow: &'v Flow,
    request: &verify::Request<'_>,
    now: Time,
) -> Result<Option<&'v str>, Problem> {
    let Some(verifier) = &flow.verify else { return Ok(None) };
    match verify::verify(verifier, request, now.to_jiff()) {
        Ok(verified) => Ok(verified.secret),
        Err(refusal) => Err(Problem::new(StatusCode::UNAUTHORIZED, refusal.code(), refusal.to_string())),
    }
}

fn parse(headers: &HeaderMap, body: &[u8]) -> Result<Value, Problem> {
    let content_type = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or("application/json");
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence != "application/json" && !essence.ends_with("+json") {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content-type-unsupported",
            format!("the body is {essence}; this flow takes application/json"),
        ));
    }
    if let Some(encoding) = headers.get("content-encoding") {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content-encoding-unsupported",
            format!("the body is encoded as {}; send it as it is", encoding.to_str().unwrap_or("something")),
        ));
    }
    if body.is_empty() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "body-empty", "the body is empty; a JSON object is expected"));
    }
    let payload: Value = serde_json::from_slice(body).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "json-invalid", format!("the body is not JSON: {error}"))
    })?;
    match payload {
        Value::Object(_) | Value::Array(_) => Ok(payload),
        _ => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "json-not-an-object",
            "the body is a single JSON value; a JSON object is expected",
        )),
    }
}

fn kept_headers(headers: &HeaderMap) -> Map<String, Value> {
    let mut kept = Map::with_capacity(headers.keys_len());
    for (name, value) in headers {
        if !SECRET_HEADERS.contains(&name.as_str())
            && let Ok(text) = value.to_str()
        {
            kept.insert(name.as_str().to_owned(), Value::String(text.to_owned()));
        }
    }
    kept
}

fn key_problem(problem: KeyProblem) -> Problem {
    let code = match &problem {
        KeyProblem::Missing(_) => "idempotency-key-missing",
        KeyProblem::TooLong(_) => "idempotency-key-too-long",
        KeyProblem::Expression(_) => "idempotency-key-failed",
    };
    Problem::new(StatusCode::BAD_REQUEST, code, problem.to_string())
}

fn mapping_problem(problem: MappingProblem) -> Problem {
    let code = match &problem {
        MappingProblem::Missing(_) => "field-missing",
        MappingProblem::Expression { .. } | MappingProblem::Value { .. } => "field-invalid",
    };
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, problem.to_string())
}

fn queues(flow: &Flow, scope: &mut Scope, event: &Event) -> Result<Vec<(String, String)>, Problem> {
    if flow.enqueue.iter().any(|enqueue| enqueue.condition.is_some()) {
        scope.set("event", event.to_scope());
    }
    let mut queues = Vec::with_capacity(flow.enqueue.len());
    for enqueue in &flow.enqueue {
        let holds = match &enqueue.condition {
            None => true,
            Some(condition) => condition.holds(scope).map_err(|problem| {
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "condition-failed", format!("step `{}`: {problem}", enqueue.step))
            })?,
        };
        if holds {
            queues.push((enqueue.step.clone(), enqueue.queue.clone()));
        }
    }
    Ok(queues)
}
