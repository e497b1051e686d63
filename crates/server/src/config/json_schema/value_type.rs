//! JSON Schema of the value types of the configuration.
//!
//! Patterns are simple on purpose: they show the form of a value. `sluice check` is exact.

use serde_json::{Value, json};
use sluice_domain::policy::zones;

use super::reference;
use crate::config::table::ValueType;

/// Form of a name of a resource or a step.
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]*$";
const DURATION: &str = r"^\s*[0-9.]+\s*[a-z]+";
const SECRET: &str = r"\$\{secrets\..+\}";

/// Schema of a value of this type.
pub(super) fn schema(value_type: &ValueType) -> Value {
    match value_type {
        ValueType::Text
        | ValueType::Plain
        | ValueType::Header
        | ValueType::Template
        | ValueType::Expression(_)
        | ValueType::Condition => scalar(),
        ValueType::Name => name(),
        ValueType::Count(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        ValueType::Number(min, max) => json!({ "type": "number", "minimum": min, "maximum": max }),
        ValueType::Flag => json!({ "type": "boolean" }),
        ValueType::Duration | ValueType::Between(..) => duration(),
        ValueType::Size(_) => json!({
            "type": ["string", "integer"], "pattern": r"^\s*[0-9.]+\s*[A-Za-z]+\s*$", "examples": ["64KiB", "1MiB"],
        }),
        ValueType::Rate => rate(),
        ValueType::OneOf(words) => one_of(words),
        ValueType::Secret => secret(),
        ValueType::Url => json!({ "type": "string", "pattern": r"^https?://|\$\{secrets\." }),
        ValueType::Clock => json!({ "type": "string", "pattern": r"^\s*[0-9]+:[0-9]{2}\s*$", "examples": ["21:00"] }),
        ValueType::Zone => json!({ "$ref": "#/definitions/time-zone" }),
        ValueType::Share => json!({ "type": ["string", "number"], "examples": ["20%"] }),
        ValueType::Table(title) => json!({ "$ref": reference(title) }),
        ValueType::Tables(title) => json!({ "type": "array", "items": { "$ref": reference(title) } }),
        ValueType::Described(words) => described(words).unwrap_or_else(|| json!({})),
    }
}

/// Schema of a value that only a description defines; `None` for an unknown description.
/// A member with `from` is a field of an event; any other is a value as it is.
fn fields_of_event() -> Value {
    let field = super::reference("a field of an event");
    json!({
        "type": "object",
        "additionalProperties": { "if": { "required": ["from"] }, "then": { "anyOf": [scalar(), { "$ref": field }] } },
    })
}

pub(super) fn described(words: &str) -> Option<Value> {
    Some(match words {
        "a map of header names to text" => json!({ "type": "object", "additionalProperties": scalar() }),
        "a map of names to values" => json!({ "type": "object" }),
        "a map of names to values, or to a field of an event" => fields_of_event(),
        "a map of paths into an item to texts" => json!({ "type": "object", "additionalProperties": scalar() }),
        "a path into the chosen item, or a list of paths" => one_or_list(scalar()),
        "a path, or text with {{ … }}" | "text, a number, true or false" => scalar(),
        "a map of names to WORKER.PATH" => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        "a map of names to values, or to a field of an event; or a list of fields of the body" => {
            json!({ "anyOf": [fields_of_event(), { "type": "array", "items": scalar() }] })
        }
        "critical, warning, or a list of them"
        | "a list of kinds of alerts"
        | "a list of names of channels"
        | "an address or a number, or a list of addresses"
        | "a list of paths into the body"
        | "a list of paths into the body, or headers.NAME"
        | "a list of paths into the event, such as identity.email"
        | "a list of texts"
        | "a header's name, or a list of two of which the first that is there counts" => one_or_list(scalar()),
        "a path such as value or entry.changes, or [] when the body is the list" => {
            json!({ "anyOf": [scalar(), { "type": "array", "maxItems": 0 }] })
        }
        "a duration from 1ms to 2d, or off" => json!({ "anyOf": [{ "enum": ["off", false] }, duration()] }),
        "`immediate` or a duration such as 1s" => json!({ "anyOf": [{ "enum": ["immediate"] }, duration()] }),
        "a JSON Schema, or the path of a file of this configuration that holds one" => {
            json!({ "type": ["string", "object", "boolean"] })
        }
        "a duration, or a map with time and more" => {
            json!({ "anyOf": [duration(), { "$ref": reference("a response time") }] })
        }
        "WORKER or WORKER.STEP" => name(),
        "step:NAME" => json!({ "type": "string", "pattern": "^step:" }),
        "a dead-letter queue, written dlq:NAME" => json!({ "type": "string", "pattern": "^dlq:" }),
        "ledger or kv:NAME" => json!({ "type": "string", "pattern": "^(ledger$|kv:)" }),
        "a path that begins with /" => json!({ "type": "string", "pattern": "^/" }),
        "a rate such as 100/s, or a map with rate and burst" => {
            json!({ "anyOf": [rate(), { "$ref": reference("a rate limit") }] })
        }
        "anything" => json!({}),
        "a list of parameters" => json!({ "type": "array", "items": name() }),
        "a list of maps of the action's parameters" => json!({ "type": "array", "items": { "type": "object" } }),
        "a list of secrets" => json!({ "type": "array", "items": secret() }),
        "a list of secrets, or of maps with value, name, not_after and rate_limit" => {
            one_or_list(json!({ "anyOf": [secret(), { "$ref": reference("one of several secrets") }] }))
        }
        "text with {body}, {timestamp}, {id}, {url}, {path} and {method}, in quotes" => {
            json!({ "type": "string", "pattern": r"\{body\}" })
        }
        "a time such as 2026-12-31T00:00:00Z" => {
            json!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}", "examples": ["2026-12-31T00:00:00Z"] })
        }
        "a list of dates such as 2026-12-25" => {
            json!({ "type": "array", "items": { "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$" } })
        }
        "an address, or Name <address>" => json!({ "type": "string", "pattern": "@" }),
        "v3, or a version such as 2026-03" => json!({ "type": "string", "pattern": "^(v3|[0-9]{4}-[0-9]{2})$" }),
        "a status such as 429, or a range such as 500-599" => {
            json!({ "type": ["string", "integer"], "examples": [429, "500-599"] })
        }
        "a version such as v60.0" => json!({ "type": "string", "pattern": r"^v?[0-9]+\.0$" }),
        "the name of a policy, or a list of them" => one_or_list(name()),
        "true, or a map with list" => json!({ "anyOf": [{ "const": true }, { "$ref": reference("suppression") }] }),
        "a map of templates to templates" => json!({ "type": "object", "additionalProperties": scalar() }),
        "a type of event such as shopify.cart.abandoned" => scalar(),
        "a rule such as */10 * * * *: minute, hour, day of the month, month, day of the week" => {
            json!({ "type": "string", "examples": ["*/10 * * * *"] })
        }
        "a span of time such as 200-600ms" => json!({ "type": "string", "pattern": "^[0-9]" }),
        "a list: step:NAME.path, or an expression" => scalar(),
        crate::config::lookup::IDENTITY => json!({
            "type": "object",
            "minProperties": 1,
            "additionalProperties": { "type": "string", "pattern": r"steps\." },
        }),
        _ => return None,
    })
}

/// The definition that `ValueType::Zone` refers to: completion of a time zone.
pub(super) fn time_zone() -> Value {
    json!({ "enum": zones().collect::<Vec<_>>() })
}

/// Text. YAML reads a number or a flag without quotes as another type, and `check` accepts it as text.
pub(super) fn scalar() -> Value {
    json!({ "type": ["string", "number", "boolean"] })
}

/// One value, or a list of values.
pub(super) fn one_or_list(one: Value) -> Value {
    json!({ "anyOf": [one, { "type": "array", "items": one }] })
}

pub(super) fn duration() -> Value {
    json!({ "type": "string", "pattern": DURATION, "examples": ["30s", "15m", "48h", "7d"] })
}

fn name() -> Value {
    json!({ "type": ["string", "number", "boolean"], "pattern": NAME })
}

fn rate() -> Value {
    json!({ "type": "string", "pattern": r"^\s*[0-9]+\s*/", "examples": ["5/min", "100/s"] })
}

fn secret() -> Value {
    json!({ "type": "string", "pattern": SECRET, "examples": ["${secrets.NAME}"] })
}

/// The words; a number among them also as a number, a word with capitals (`POST`) also in lower case.
fn one_of(words: &[&str]) -> Value {
    let numbers = words.iter().filter_map(|word| word.parse::<u64>().ok()).map(Value::from);
    let lower_case = words.iter().map(|word| word.to_lowercase()).filter(|word| !words.contains(&word.as_str()));
    let words = words.iter().map(|word| Value::from(*word));
    json!({ "enum": words.chain(numbers).chain(lower_case.map(Value::from)).collect::<Vec<_>>() })
}
