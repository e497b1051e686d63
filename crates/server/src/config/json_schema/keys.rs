//! Schemas of keys whose value has several forms.

use serde_json::{Value, json};
use sluice_domain::action::Action;
use sluice_domain::verify::Scheme;

use super::value_type::{one_or_list, scalar, schema};
use super::{OWN_NAME, reference};
use crate::config::catalogue::known_actions;
use crate::config::table::ValueType;

/// A runtime of a script: `node:20`, `python:3`, `bash`.
pub(super) const RUNTIME: &str = "^(node|python|bash)(:[0-9]+)?$";

/// Schema of this key of this section; `None` if the type of the value defines it.
pub(super) fn of(section: &str, key: &str) -> Option<Value> {
    Some(match (section, key) {
        ("any document", "queues") => named("a queue"),
        ("any document", "destinations") => named("a destination"),
        ("any document", "policies") => named("a policy"),
        ("a destination", "type") => json!({ "type": "string" }),
        ("a flow", "triggers") => one_or_list(json!({ "$ref": reference("a trigger") })),
        ("a flow", "steps") => list("a step of a flow"),
        ("a worker", "run" | "steps") => list("a step"),
        ("a retry policy", "phases") => list("a phase"),
        ("a worker", "consumes") => queue("what a worker consumes"),
        ("a step of a flow", "queue") => queue("the queue of a step"),
        ("a step", "queue") => queue("the queue of a worker's step"),
        ("an http trigger", "verify") => {
            json!({ "anyOf": [{ "enum": ["none"] }, { "$ref": reference("a verification") }] })
        }
        ("a verification", "scheme") => {
            json!({ "enum": Scheme::ALL.iter().map(|scheme| scheme.name()).collect::<Vec<_>>() })
        }
        ("idempotency" | "the queue of a step", "key_from") => key_from(),
        ("a key", "first_of") => json!({ "type": "array", "minItems": 1, "items": key_from() }),
        ("a key", "fields") => one_or_list(scalar()),
        ("a time of signing", "body") | ("a key", "at") => scalar(),
        ("a step", "run") => run(actions(|_| true)),
        ("a step", "uses") => uses(actions(|_| true)),
        ("an undo", "run") => run(actions(is_external)),
        ("an undo", "uses") => uses(actions(is_external)),
        ("a step" | "an undo", "with") => json!({ "type": "object" }),
        ("a connector", "destination") => map_of("a key of a connector"),
        ("a connector", "actions") => map_of("an action of a connector"),
        ("an action of a connector", "any_of") | ("a key of a connector" | "a parameter of a connector", "values") => {
            one_or_list(scalar())
        }
        ("a request of a connector", "json")
        | ("an expected request" | "a recorded answer", "body")
        | ("a recorded answer", "result") => json!({}),
        ("an action of a connector", "parameters") => map_of("a parameter of a connector"),
        ("a connector" | "a request of a connector", "headers")
        | ("a request of a connector", "query" | "form")
        | ("an oauth token", "form")
        | ("an action of a connector" | "a read-back rule", "result")
        | ("recorded answers", "destination")
        | ("a recorded case", "with")
        | ("a recorded answer", "headers")
        | ("an expected request", "headers") => json!({ "type": "object" }),
        ("a failure rule of a connector" | "a success rule", "status") | ("a failure rule of a connector", "code") => {
            one_or_list(scalar())
        }
        ("a step" | "an undo", "env") => json!({ "type": ["object", "string"] }),
        _ => return None,
    })
}

fn is_external(action: Action) -> bool {
    !action.is_internal()
}

fn actions(selected: impl Fn(Action) -> bool) -> Vec<&'static str> {
    known_actions().filter(|action| selected(*action)).map(Action::name).collect()
}

/// The name of an action, also of one that the configuration declares.
fn run(names: Vec<&str>) -> Value {
    json!({ "anyOf": [{ "enum": names }, { "type": "string", "pattern": OWN_NAME }] })
}

fn uses(names: Vec<&str>) -> Value {
    json!({ "anyOf": [{ "enum": names }, { "type": "string", "pattern": OWN_NAME }, { "type": "string", "pattern": RUNTIME }] })
}

/// A list of such maps, with at least one item.
fn list(title: &str) -> Value {
    json!({ "type": "array", "minItems": 1, "items": { "$ref": reference(title) } })
}

/// A map of names to such maps.
fn map_of(title: &str) -> Value {
    json!({ "type": "object", "additionalProperties": { "$ref": reference(title) } })
}

/// The name of a queue, or a map.
fn queue(title: &str) -> Value {
    json!({ "anyOf": [schema(&ValueType::Name), { "$ref": reference(title) }] })
}

/// A map of names to resources, or a list of resources with a name. A queue may be a name alone.
fn named(title: &str) -> Value {
    let resource = json!({ "$ref": reference(title) });
    let (in_map, in_list) = match title {
        "a queue" => (
            json!({ "anyOf": [resource, { "type": "null" }] }),
            json!({ "anyOf": [schema(&ValueType::Name), resource] }),
        ),
        _ => (resource.clone(), resource),
    };
    json!({ "anyOf": [
        { "type": "object", "additionalProperties": in_map },
        { "type": "array", "items": in_list },
    ] })
}

fn key_from() -> Value {
    json!({ "anyOf": [
        { "type": "string" },
        { "type": "array", "minItems": 1, "items": { "type": "string" } },
        { "$ref": reference("a key") },
    ] })
}
