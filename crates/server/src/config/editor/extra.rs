//! What the tables cannot say: values that may be written in several ways, and keys that exclude or need each other.

use serde_json::{Value, json};
use sluice_domain::action::Action;
use sluice_domain::verify::Scheme;

use super::reference;
use super::shape::{NAME, template};
use crate::config::script::OURS;

/// The value of this key, where its shape is not the whole truth.
pub(super) fn of_key(table: &str, key: &str) -> Option<Value> {
    let named = |title: &str| {
        let by_name = json!({ "$ref": format!("{}-by-name", reference(title)) });
        let mut with_name = json!({ "allOf": [by_name.clone()], "required": ["name"] });
        if title == "a queue" {
            with_name = json!({ "anyOf": [{ "type": "string", "pattern": NAME }, with_name] });
        }
        let or_nothing = json!({ "anyOf": [by_name, { "type": "null" }] });
        let in_map = if title == "a queue" { or_nothing } else { by_name_of(title) };
        json!({ "anyOf": [
            { "type": "object", "propertyNames": { "pattern": NAME }, "additionalProperties": in_map },
            { "type": "array", "items": with_name },
        ] })
    };
    let queue = |title: &str| json!({ "anyOf": [{ "type": "string", "pattern": NAME }, { "$ref": reference(title) }] });
    Some(match (table, key) {
        ("any document", "queues") => named("a queue"),
        ("any document", "destinations") => named("a destination"),
        ("any document", "policies") => named("a policy"),
        ("a flow", "triggers") => {
            let one = json!({ "$ref": reference("a trigger") });
            json!({ "anyOf": [{ "type": "array", "minItems": 1, "items": one }, one] })
        }
        ("a flow", "steps") => {
            json!({ "type": "array", "minItems": 1, "items": { "$ref": reference("a step of a flow") } })
        }
        ("a worker", "run" | "steps") => {
            json!({ "type": "array", "minItems": 1, "items": { "$ref": reference("a step") } })
        }
        ("a worker", "consumes") => queue("what a worker consumes"),
        ("a step of a flow", "queue") => queue("the queue of a step"),
        ("a step", "queue") => queue("the queue of a worker's step"),
        ("a step of a flow" | "a step", "name" | "id") => {
            json!({ "type": ["string", "number"], "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$" })
        }
        ("an http trigger", "verify") => {
            json!({ "anyOf": [{ "enum": ["none"] }, { "$ref": reference("a verification") }] })
        }
        ("a verification", "scheme") => {
            json!({ "enum": Scheme::ALL.iter().map(ToString::to_string).collect::<Vec<_>>() })
        }
        ("idempotency", "key_from") | ("the queue of a step", "key_from") => key_from(),
        ("a key", "first_of") => json!({ "type": "array", "minItems": 1, "items": key_from() }),
        ("a key", "fields") => json!({ "anyOf": [part(), { "type": "array", "minItems": 1, "items": part() }] }),
        ("a key", "at") => part(),
        ("a step" | "an undo", "run") => json!({ "enum": actions() }),
        ("a step" | "an undo", "uses") => {
            json!({ "anyOf": [{ "enum": actions() }, { "type": "string", "pattern": RUNTIME }] })
        }
        ("a step" | "an undo", "env") => {
            let ours = json!({ "enum": OURS });
            json!({
                "type": "object",
                "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "not": ours },
                "additionalProperties": template(),
            })
        }
        ("an smtp destination", "from") => json!({ "type": "string", "pattern": "@" }),
        ("a step" | "an undo", "with") => json!({ "type": "object" }),
        ("an event", "type" | "id" | "occurred_at") => {
            json!({ "anyOf": [template(), { "type": ["array", "object"] }] })
        }
        _ => return None,
    })
}

fn by_name_of(title: &str) -> Value {
    json!({ "$ref": format!("{}-by-name", reference(title)) })
}

fn actions() -> Vec<&'static str> {
    Action::ALL.into_iter().map(Action::name).collect()
}

/// What runs a script.
const RUNTIME: &str = "^(node(:[1-9][0-9]*)?|python(:[1-9][0-9]*)?|bash)$";

/// A word alone is no part of a request; the known ones stand for the event's own.
const BARE_WORD: &str =
    r"^(?!(fingerprint|tenant|source|event_type|event_id|body|headers|request)$)[A-Za-z_][A-Za-z0-9_-]*$";

fn part() -> Value {
    json!({ "type": "string", "minLength": 1, "not": { "pattern": BARE_WORD } })
}

fn key_from() -> Value {
    json!({ "anyOf": [part(), { "type": "array", "minItems": 1, "items": part() }, { "$ref": reference("a key") }] })
}

/// Keys that exclude or need each other.
pub(super) fn of_table(title: &str) -> Vec<Value> {
    let not_both = |one: &str, other: &str| json!({ "not": { "required": [one, other] } });
    let either =
        |keys: &[&str]| json!({ "anyOf": keys.iter().map(|key| json!({ "required": [key] })).collect::<Vec<_>>() });
    match title {
        "a flow" => vec![not_both("triggers", "consumes")],
        "a worker" => vec![
            not_both("run", "steps"),
            either(&["run", "steps"]),
            not_both("consumes", "on"),
            not_both("consumes", "schedule"),
            not_both("on", "schedule"),
        ],
        "a step of a flow" => vec![not_both("name", "id")],
        "a step" => {
            let does = ["run", "uses", "queue", "queue_pull"];
            let mut rules = vec![not_both("name", "id"), either(&["name", "id"]), either(&does)];
            for (place, one) in does.iter().enumerate() {
                rules.extend(does[place + 1..].iter().map(|other| not_both(one, other)));
            }
            rules.extend(Action::ALL.into_iter().flat_map(with_of));
            rules.extend(scripts());
            rules
        }
        "an undo" => {
            let mut rules = vec![not_both("run", "uses"), either(&["run", "uses"])];
            rules.extend(Action::ALL.into_iter().flat_map(with_of));
            rules.extend(scripts());
            rules
        }
        "a retry policy" => vec![
            not_both("base_ms", "base_delay"),
            json!({
                "if": { "required": ["strategy"], "properties": { "strategy": { "pattern": "^[Pp][Hh][Aa][Ss][Ee][Dd]$" } } },
                "then": { "required": ["phases"], "not": { "anyOf": [
                    { "required": ["base_delay"] }, { "required": ["base_ms"] },
                    { "required": ["multiplier"] }, { "required": ["max_delay"] },
                ] } },
            }),
        ],
        "a phase" => vec![not_both("delay", "exponential"), either(&["delay", "exponential"])],
        "a verification" => vec![json!({
            "if": { "properties": { "scheme": { "const": "none" } } },
            "else": either(&["secret", "secrets"]),
        })],
        "a key" => vec![
            not_both("first_of", "fields"),
            not_both("first_of", "fingerprint"),
            not_both("fields", "fingerprint"),
            json!({ "if": { "required": ["bucket"] }, "then": { "required": ["fields"] } }),
            json!({ "if": { "required": ["at"] }, "then": { "required": ["bucket"] } }),
        ],
        "http credentials" => vec![not_both("bearer", "basic")],
        "a slack destination" => vec![not_both("token", "webhook_url"), either(&["token", "webhook_url"])],
        "an smtp destination" => {
            let elsewhere = json!({ "not": { "pattern": "^(localhost|127\\.|::1$)" } });
            let open =
                json!({ "required": ["tls", "host"], "properties": { "tls": { "const": "none" }, "host": elsewhere } });
            let meant =
                json!({ "required": ["allow_plaintext"], "properties": { "allow_plaintext": { "const": true } } });
            vec![
                json!({ "dependencies": { "user": ["password"], "password": ["user"] } }),
                json!({ "if": open, "then": meant }),
            ]
        }
        _ => vec![],
    }
}

/// Keys that make a step a script, and those that it needs.
fn scripts() -> Vec<Value> {
    let has = |key: &str| json!({ "anyOf": [{ "required": [key] }, { "required": ["with"], "properties": { "with": { "required": [key] } } }] });
    let runtime = json!({ "required": ["uses"], "properties": { "uses": { "pattern": RUNTIME } } });
    let script = |key: &str| json!({ "required": [key], "properties": { key: { "const": Action::Script.name() } } });
    let any_script = json!({ "anyOf": [runtime, script("run"), script("uses")] });
    let on_step = ["script", "command", "env"].map(|key| json!({ "required": [key] }));
    vec![
        json!({ "if": runtime, "then": { "properties": { "with": { "$ref": "#/definitions/with-script" } } } }),
        json!({ "if": any_script, "else": { "not": { "anyOf": on_step } } }),
        json!({ "if": any_script, "then": { "anyOf": [has("script"), has("command")] } }),
        json!({ "not": { "allOf": [has("script"), has("command")] } }),
        json!({ "if": { "allOf": [script("run"), { "required": ["script"] }] }, "then": {
            "required": ["with"], "properties": { "with": { "required": ["runtime"] } },
        } }),
    ]
}

/// Of these parameters of an action one must be there.
pub(super) fn of_action(action: Action) -> Option<Value> {
    let either = |one: &str, other: &str| json!({ "anyOf": [{ "required": [one] }, { "required": [other] }] });
    match action {
        Action::EmailSend => Some(either("text", "html")),
        Action::SlackPost => Some(either("text", "blocks")),
        _ => None,
    }
}

/// What stands under `with:` goes by the action.
fn with_of(action: Action) -> Vec<Value> {
    let name = action.name();
    let parameters = json!({ "$ref": format!("#/definitions/with-{name}") });
    let needed = action.spec().parameters.iter().any(|parameter| parameter.required);
    ["run", "uses"]
        .iter()
        .map(|key| {
            let mut then = json!({ "properties": { "with": parameters } });
            // A script's program stands beside `with`, so nothing is needed in it.
            if needed && action != Action::Script {
                then["required"] = json!(["with"]);
            }
            json!({ "if": { "required": [key], "properties": { *key: { "const": name } } }, "then": then })
        })
        .collect()
}
