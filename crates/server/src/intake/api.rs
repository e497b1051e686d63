//! OpenAPI description of the intake: the endpoint, body and responses of every flow.

use serde_json::{Map, Value, json};
use sluice_domain::config::Config;
use sluice_domain::flow::{BodyFormat, Flow};
use sluice_domain::verify::{CredentialLocation, Success};

/// Only for button presses in Slack; flows do not use it.
const INTERACTION_INVALID: &str = "interaction-invalid";

/// Status and code of every error response.
pub const PROBLEMS: &[(u16, &str)] = &[
    (400, "body-empty"),
    (400, "body-incomplete"),
    (400, "content-encoding-invalid"),
    (400, "events-missing"),
    (400, "form-invalid"),
    (400, "header-repeated"),
    (400, "idempotency-key-failed"),
    (400, "idempotency-key-missing"),
    (400, "idempotency-key-too-long"),
    (400, INTERACTION_INVALID),
    (400, "json-duplicate-key"),
    (400, "json-invalid"),
    (400, "json-not-an-object"),
    (400, "json-too-deep"),
    (400, "multipart-file"),
    (400, "number-too-large"),
    (400, "number-too-precise"),
    (400, "schema-mismatch"),
    (400, "too-many-events"),
    (400, "utf8-invalid"),
    (401, "body-malformed"),
    (401, "body-mismatch"),
    (401, "credentials-malformed"),
    (401, "credentials-mismatch"),
    (401, "credentials-missing"),
    (401, "id-malformed"),
    (401, "id-missing"),
    (401, "proof-replayed"),
    (401, "secret-expired"),
    (401, "signature-malformed"),
    (401, "signature-mismatch"),
    (401, "signature-missing"),
    (401, "timestamp-in-future"),
    (401, "timestamp-malformed"),
    (401, "timestamp-missing"),
    (401, "timestamp-too-old"),
    (403, "unverified-source"),
    (404, "no-such-flow"),
    (405, "method-not-allowed"),
    (408, "body-timeout"),
    (413, "body-too-large"),
    (415, "charset-unsupported"),
    (415, "content-encoding-unsupported"),
    (415, "content-type-unsupported"),
    (422, "condition-failed"),
    (422, "field-invalid"),
    (422, "field-missing"),
    (429, "address-limited"),
    (429, "rate-limited"),
    (503, "disk-full"),
    (503, "in-doubt"),
    (503, "overloaded"),
    (503, "source-paused"),
    (503, "unavailable"),
];

/// OpenAPI 3.1 document of a configuration.
pub(crate) fn describe(config: &Config) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    let mut security: Map<String, Value> = Map::new();
    for flow in config.flows.values() {
        let (required, parameters) = proof(flow, &mut security);
        let path = paths.entry(flow.path.clone()).or_insert_with(|| json!({}));
        path[flow.method.to_lowercase()] = operation(flow, required, parameters);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice intake",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Endpoints of senders. Errors are application/problem+json with a stable code. Handshakes of senders are not described.",
        },
        "paths": paths,
        "components": { "securitySchemes": security, "schemas": schemas() },
    })
}

fn operation(flow: &Flow, security: Value, parameters: Vec<Value>) -> Value {
    let mut operation = json!({
        "operationId": flow.name,
        "summary": format!("Events of {}", flow.source),
        "tags": [flow.source],
        "security": security,
        "responses": responses(flow),
    });
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    // HTTP defines no body semantics for other methods.
    if !matches!(flow.method.as_str(), "GET" | "HEAD" | "DELETE") {
        operation["requestBody"] = json!({ "required": true, "content": content(flow) });
    }
    operation
}

/// Security schemes of a flow, and the headers that a sender signs.
fn proof(flow: &Flow, schemes: &mut Map<String, Value>) -> (Value, Vec<Value>) {
    let Some(verifier) = &flow.verify else { return (json!([]), vec![]) };
    let scheme = verifier.scheme();
    let mut required = Map::new();
    let mut parameters = Vec::new();
    for place in verifier.credential_locations() {
        let described = match place {
            CredentialLocation::Bearer => json!({ "type": "http", "scheme": "bearer" }),
            CredentialLocation::Basic => json!({ "type": "http", "scheme": "basic" }),
            CredentialLocation::Token(name) => json!({ "type": "apiKey", "in": "header", "name": name }),
            CredentialLocation::Query(name) => json!({ "type": "apiKey", "in": "query", "name": name }),
            CredentialLocation::Body => continue,
            CredentialLocation::Signed(name) => {
                let about = format!("Part of the signature of the scheme {scheme}.");
                parameters.push(json!({ "name": name, "in": "header", "required": true, "description": about, "schema": { "type": "string" } }));
                continue;
            }
        };
        schemes.insert(flow.name.clone(), described);
        required.insert(flow.name.clone(), json!([]));
    }
    (if required.is_empty() { json!([]) } else { json!([required]) }, parameters)
}

fn content(flow: &Flow) -> Value {
    let one = match &flow.admission.schema {
        Some(schema) => named(schema.as_value(), &flow.name),
        None => json!({ "type": "object" }),
    };
    // Nested lists; the innermost contains the events.
    let body = match &flow.body.events {
        None => one,
        Some(lists) => lists.iter().rev().fold(json!({ "type": "array", "items": one }), |inner, name| {
            let object = json!({ "type": "object", "required": [name], "properties": { name: inner } });
            if Some(name) == lists.first() { object } else { json!({ "type": "array", "items": object }) }
        }),
    };
    let form = json!({ "schema": { "type": "object" } });
    let json = json!({ "schema": body });
    match flow.body.format {
        BodyFormat::Json => json!({ "application/json": json }),
        BodyFormat::Form => json!({ "application/x-www-form-urlencoded": form, "multipart/form-data": form }),
        BodyFormat::JsonOrForm => {
            json!({ "application/json": json, "application/x-www-form-urlencoded": form, "multipart/form-data": form })
        }
    }
}

/// Rewrites `$ref`s so that a schema stays valid inside another document.
fn named(schema: &Value, flow: &str) -> Value {
    let mut schema = schema.clone();
    let refers = schema.to_string().contains("\"$ref\"");
    if let Some(members) = schema.as_object_mut().filter(|_| refers) {
        members.entry("$id").or_insert_with(|| json!(format!("urn:sluice:schema:{flow}")));
    }
    schema
}

fn responses(flow: &Flow) -> Value {
    let yes = if flow.success == Success::Exactly200 { "200" } else { "202" };
    let body = if flow.body.events.is_some() { "Events" } else { "Event" };
    let mut responses = Map::new();
    responses.insert(
        yes.to_owned(),
        json!({
            "description": "The event is on disk.",
            "headers": { "Idempotent-Replayed": { "description": "`true` for a duplicate.", "schema": { "type": "string", "enum": ["true"] } } },
            "content": { "application/json": { "schema": { "$ref": format!("#/components/schemas/{body}") } } },
        }),
    );
    for (status, _) in PROBLEMS {
        let meant = match status {
            401 => flow.verify.is_some(),
            403 => flow.verify.is_none(),
            404 | 405 => false,
            _ => true,
        };
        let text = status.to_string();
        if !meant || responses.contains_key(&text) {
            continue;
        }
        let codes: Vec<&str> = PROBLEMS
            .iter()
            .filter(|(own, code)| own == status && *code != INTERACTION_INVALID)
            .map(|(_, code)| *code)
            .collect();
        let mut response = json!({
            "description": codes.join(", "),
            "content": { "application/problem+json": { "schema": {
                "allOf": [{ "$ref": "#/components/schemas/Problem" }],
                "properties": { "status": { "const": status }, "code": { "enum": codes } },
            } } },
        });
        if matches!(status, 429 | 503) {
            response["headers"] = json!({ "Retry-After": { "description": "Seconds.", "required": true, "schema": { "type": "integer", "minimum": 1 } } });
        }
        responses.insert(text, response);
    }
    Value::Object(responses)
}

fn schemas() -> Value {
    let event = |statuses: &[&str]| {
        json!({
            "type": "object",
            "required": ["event_id", "status"],
            "properties": {
                "event_id": { "type": "string", "pattern": "^evt_[0-9a-z]+$" },
                "idempotency_key": { "type": "string", "description": "Not for a duplicate." },
                "status": { "enum": statuses },
                "reason": { "type": "string", "description": "Why the event is quarantined." },
                "result": { "type": "object", "description": "For a duplicate, once known: the values that the flow names as its result." },
            },
        })
    };
    json!({
        "Event": event(&["accepted", "quarantined"]),
        "Events": {
            "type": "object",
            "required": ["status", "events"],
            "properties": {
                "status": { "const": "accepted" },
                "events": { "type": "array", "items": event(&["accepted", "quarantined", "duplicate"]) },
            },
        },
        "Problem": {
            "type": "object",
            "required": ["type", "title", "status", "code", "detail"],
            "properties": {
                "type": { "type": "string" },
                "title": { "type": "string" },
                "status": { "type": "integer" },
                "code": { "type": "string" },
                "detail": { "type": "string" },
            },
        },
    })
}
