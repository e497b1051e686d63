//! Schemas of values with several notations, which the section spec does not express.

use serde_json::{Value, json};
use sluice_domain::action::Action;
use sluice_domain::verify::Scheme;

use super::rules::actions;
use super::shape::{name, not_ended, schema};
use super::{action, pattern, reference};
use crate::config::table::ValueType;

/// Schema of a key of a section.
pub(super) fn of(table: &str, key: &str) -> Option<Value> {
    Some(match (table, key) {
        ("any document", "queues") => named("a queue"),
        ("any document", "destinations") => named("a destination"),
        ("any document", "policies") => named("a policy"),
        ("a flow", "triggers") => {
            let one = json!({ "$ref": reference("a trigger") });
            json!({ "anyOf": [{ "type": "array", "minItems": 1, "items": one }, one] })
        }
        ("a flow", "steps") => some("a step of a flow"),
        ("a worker", "run" | "steps") => some("a step"),
        ("a retry policy", "phases") => some("a phase"),
        // A step inherits the worker's budget; a worker inherits none.
        ("a worker" | "a policy document", "retry") => {
            let budget = json!({ "dependencies": { "budget_window": ["budget_per_contact"] } });
            json!({ "allOf": [{ "$ref": reference("a retry policy") }, budget] })
        }
        ("a worker", "consumes") => queue("what a worker consumes"),
        ("a step of a flow", "queue") => queue("the queue of a step"),
        ("a step", "queue") => queue("the queue of a worker's step"),
        ("a step of a flow" | "a step", "name" | "id") => {
            let mut name = name(pattern::STEP_NAME);
            name["type"] = json!(["string", "integer", "boolean"]);
            name
        }
        ("an http trigger", "verify") => {
            json!({ "anyOf": [{ "enum": ["none"] }, { "$ref": reference("a verification") }] })
        }
        ("a verification", "scheme") => {
            json!({ "enum": Scheme::ALL.iter().map(ToString::to_string).collect::<Vec<_>>() })
        }
        ("a verification", "public_url") => json!({ "type": "string", "pattern": pattern::PUBLIC_URL }),
        ("a verification", "user") => json!({ "type": ["string", "number", "boolean"], "pattern": "^[^:]*$" }),
        ("a time of signing", "body") => {
            json!({ "type": ["string", "number", "boolean"], "pattern": pattern::PATH })
        }
        ("idempotency", "key_from") | ("the queue of a step", "key_from") => key_from(),
        ("a key", "first_of") => json!({ "type": "array", "minItems": 1, "items": key_from() }),
        ("a key", "fields") => json!({ "anyOf": [part(), { "type": "array", "minItems": 1, "items": part() }] }),
        ("a key", "at") => part(),
        ("a step", "run") => json!({ "enum": actions(|_| true) }),
        ("a step", "uses") => uses(actions(|_| true)),
        ("an undo", "run") => json!({ "enum": outward() }),
        ("an undo", "uses") => uses(outward()),
        ("a step" | "an undo", "env") => action::environment(),
        ("a step" | "an undo", "script") => action::program(),
        ("a step" | "an undo", "with") => json!({ "type": "object" }),
        ("an event", "type" | "id" | "occurred_at") => {
            json!({ "allOf": [{ "not": { "type": "null" } }, { "$ref": "#/definitions/mapped-value" }] })
        }
        _ => return None,
    })
}

fn outward() -> Vec<&'static str> {
    actions(|action: Action| !action.is_internal())
}

fn uses(names: Vec<&str>) -> Value {
    json!({ "anyOf": [{ "enum": names }, { "type": "string", "pattern": pattern::RUNTIME }] })
}

/// Key without `event_id`.
pub(super) fn without_id() -> Value {
    let part = json!({ "not": { "type": "string", "pattern": r"^\s*event_id\s*$" } });
    let itself = json!({ "$ref": "#/definitions/key-without-id" });
    json!({ "allOf": [part], "items": part, "properties": { "first_of": { "items": itself }, "fields": { "allOf": [part], "items": part } } })
}

/// Key without a time bucket that uses the event time.
pub(super) fn without_moment() -> Value {
    let itself = json!({ "$ref": "#/definitions/key-without-moment" });
    json!({ "dependencies": { "bucket": ["at"] }, "properties": { "first_of": { "items": itself } } })
}

/// Non-empty list of such maps.
fn some(title: &str) -> Value {
    json!({ "type": "array", "minItems": 1, "items": { "$ref": reference(title) } })
}

/// The name of a queue, or a map.
fn queue(title: &str) -> Value {
    json!({ "anyOf": [schema(&ValueType::Name), { "$ref": reference(title) }] })
}

/// List of named resources, or a map of names to resources. A queue may be just a name.
fn named(title: &str) -> Value {
    let by_name = json!({ "$ref": format!("{}-by-name", reference(title)) });
    let with_name =
        json!({ "allOf": [by_name], "required": ["name"], "properties": { "name": schema(&ValueType::Name) } });
    let (in_map, in_list) = match title {
        "a queue" => (
            json!({ "anyOf": [by_name, { "type": "null" }] }),
            json!({ "anyOf": [schema(&ValueType::Name), with_name] }),
        ),
        _ => (by_name, with_name),
    };
    json!({ "anyOf": [
        { "type": "object", "propertyNames": { "pattern": pattern::NAME }, "additionalProperties": in_map },
        { "type": "array", "items": in_list },
    ] })
}

/// A bare word that is not a known event field.
const BARE_WORD: &str =
    r"^\s*(?!(tenant|source|event_type|event_id|body|headers|request)\s*$)[A-Za-z_][A-Za-z0-9_]*\s*$";

/// Invalid parts of a key: empty text, a secret, an invalid header name.
const NO_PART: &str = r"^\s*$|\$\{secrets\.|^\s*headers?:(?!\s*[A-Za-z0-9_-]+\s*$)";

fn part() -> Value {
    let wrong = json!({ "anyOf": [{ "pattern": BARE_WORD }, { "pattern": NO_PART }, not_ended()] });
    json!({ "type": "string", "not": wrong })
}

fn key_from() -> Value {
    let alone = json!({ "anyOf": [{ "type": "string", "pattern": r"^\s*fingerprint\s*$" }, part()] });
    json!({ "anyOf": [alone, { "type": "array", "minItems": 1, "items": part() }, { "$ref": reference("a key") }] })
}
