//! Shapes as an editor understands them.

use serde_json::{Value, json};
use sluice_domain::action::{Parameter, Shape as ParameterShape};

use super::reference;
use crate::config::table::Shape;

const DURATION: &str = r"^\s*([0-9]*\.?[0-9]+\s*(ms|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)\s*)+$";
const SIZE: &str = r"^\s*[0-9]*\.?[0-9]+\s*(B|kB|KB|MB|GB|KiB|K|MiB|M|GiB|G)?\s*$";
const RATE: &str = r"^\s*[0-9]+\s*/\s*([0-9]*\.?[0-9]+\s*)?(ms|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)\s*$";
const SECRET: &str = r"\$\{secrets\.[A-Za-z0-9_][A-Za-z0-9_-]*\}";
const FILLED_IN: &str = r"\{\{|\$\{secrets\.";
pub(super) const NAME: &str = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$";

/// What a value of this shape may be.
pub(super) fn schema(shape: &Shape) -> Value {
    match shape {
        Shape::Text => text(),
        Shape::Name => json!({ "type": ["string", "number"], "pattern": NAME }),
        Shape::Count(min, max) => {
            json!({ "type": ["integer", "string"], "minimum": min, "maximum": max, "pattern": "^[0-9]+$" })
        }
        Shape::Number(min, max) => {
            json!({ "type": ["number", "string"], "minimum": min, "maximum": max, "pattern": r"^[0-9]*\.?[0-9]+$" })
        }
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Duration => json!({ "type": "string", "pattern": DURATION, "examples": ["30s", "15m", "48h", "7d"] }),
        Shape::Size => json!({ "type": ["string", "integer"], "pattern": SIZE, "examples": ["64KiB", "1MiB"] }),
        Shape::Rate => json!({ "type": "string", "pattern": RATE, "examples": ["5/min", "100/s"] }),
        Shape::OneOf(words) => one_of(words),
        Shape::Secret => json!({ "type": "string", "pattern": SECRET, "examples": ["${secrets.NAME}"] }),
        Shape::Template => template(),
        Shape::Condition => json!({ "type": ["string", "boolean"], "not": not_ended() }),
        Shape::Table(title) => json!({ "$ref": reference(title) }),
        Shape::Tables(title) => json!({ "type": "array", "items": { "$ref": reference(title) } }),
        Shape::Described(words) => described(words).unwrap_or_else(|| json!({ "not": { "type": "null" } })),
    }
}

/// What these words mean, as far as an editor can be told.
pub(super) fn described(words: &str) -> Option<Value> {
    let texts = || json!({ "type": "array", "items": text() });
    let text_or = |other: Value| json!({ "anyOf": [text(), other] });
    let paths = || json!({ "anyOf": [path(), { "type": "array", "items": path() }] });
    let values = || json!({ "type": "object", "additionalProperties": any_template() });
    Some(match words {
        "a map of header names to text" | "a map of names to text" => {
            json!({ "type": "object", "additionalProperties": template() })
        }
        "a map of names to values" => values(),
        "a map of names to values, or a list of fields of the body" => json!({ "anyOf": [values(), texts()] }),
        "a list of paths into the body"
        | "a list of paths into the body, or headers.NAME"
        | "a list of paths into the event, such as identity.email" => paths(),
        "a path such as value or entry.changes, or [] when the body is the list" => {
            json!({ "anyOf": [path(), { "type": "array", "maxItems": 0 }] })
        }
        "a duration such as 15m, or off" => json!({ "anyOf": [{ "enum": ["off", false] }, schema(&Shape::Duration)] }),
        "`immediate` or a duration such as 1s" => {
            json!({ "anyOf": [{ "enum": ["immediate"] }, schema(&Shape::Duration)] })
        }
        "a JSON Schema, or the path of a file of this configuration that holds one" => {
            json!({ "anyOf": [{ "type": "string" }, { "$ref": "http://json-schema.org/draft-07/schema#" }] })
        }
        "request.body or an expression" => json!({ "type": "string", "not": not_ended() }),
        "step:NAME" => json!({ "type": "string", "pattern": "^step:" }),
        "a path" => path(),
        "a dead-letter queue, written dlq:NAME" => json!({ "type": "string", "pattern": r"^dlq:\s*\S" }),
        "ledger or kv:NAME" => json!({ "type": "string", "pattern": "^(ledger$|kv:.)" }),
        "a path that begins with /" => {
            json!({ "type": "string", "pattern": r"^/[A-Za-z0-9/_.~:@%-]*$", "not": { "pattern": r"//|/\.\.?(/|$)" } })
        }
        "a rate such as 100/s, or a map with rate and burst" => {
            json!({ "anyOf": [schema(&Shape::Rate), { "$ref": reference("a rate limit") }] })
        }
        "a list of secrets, or of maps with value, name, not_after and rate_limit" => {
            let one = json!({ "anyOf": [schema(&Shape::Secret), { "$ref": reference("one of several secrets") }] });
            json!({ "type": "array", "minItems": 1, "items": one })
        }
        "a header's name, or a list of two of which the first that is there counts" => text_or(texts()),
        "text with {body}, {timestamp}, {id}, {url} and {method}, in quotes" => text(),
        "a time such as 2026-12-31T00:00:00Z" => json!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}" }),
        "a list of texts" => texts(),
        "the name of a policy, or a list of them" => {
            let name = schema(&Shape::Name);
            json!({ "anyOf": [name, { "type": "array", "minItems": 1, "items": name }] })
        }
        "true, or a map with list" => json!({ "anyOf": [{ "const": true }, { "$ref": reference("suppression") }] }),
        "a time of day such as 21:00" | "a time of day such as 08:00" => {
            json!({ "type": "string", "pattern": "^([01]?[0-9]|2[0-3]):[0-5][0-9]$" })
        }
        "a time zone such as Europe/Berlin" => json!({ "type": "string", "minLength": 1 }),
        "a map of templates to templates" => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        "a share such as 20%" => json!({ "type": ["string", "number"] }),
        "an expression such as event.email"
        | "an expression such as event.consent"
        | "an expression such as event.time_zone" => template(),
        "a type of event such as shopify.cart.abandoned" => json!({ "type": "string", "minLength": 1 }),
        "a rule such as */10 * * * *: minute, hour, day of the month, month, day of the week" => {
            json!({ "type": "string", "pattern": r"^\s*\S+(\s+\S+){4}\s*$" })
        }
        "a span of time such as 200-600ms" => json!({ "type": "string", "pattern": "[0-9]" }),
        "an expression" | "a list: step:NAME.path, or an expression" => template(),
        _ => return None,
    })
}

/// What a parameter of an action may be. Text that is filled in may become anything.
pub(super) fn parameter(parameter: &Parameter) -> Value {
    let filled_in = || json!({ "type": "string", "pattern": FILLED_IN, "not": not_ended() });
    let or_filled_in = |other: Value| json!({ "anyOf": [other, filled_in()] });
    match &parameter.shape {
        ParameterShape::Text => template(),
        ParameterShape::Any => any_template(),
        ParameterShape::Flag => or_filled_in(json!({ "type": "boolean" })),
        ParameterShape::OneOf(words) if ["class", "repeat"].contains(&parameter.name) => json!({ "enum": words }),
        ParameterShape::OneOf(words) => or_filled_in(json!({ "enum": words })),
        ParameterShape::Map => or_filled_in(json!({ "type": "object", "additionalProperties": any_template() })),
        ParameterShape::Duration => or_filled_in(schema(&Shape::Duration)),
        ParameterShape::Number => or_filled_in(json!({ "type": "number", "exclusiveMinimum": 0 })),
        ParameterShape::Numbers => json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } }),
        ParameterShape::Texts => json!({ "anyOf": [template(), { "type": "array", "items": template() }] }),
    }
}

/// Text, or what reads as a number or a flag without its quotes.
pub(super) fn text() -> Value {
    json!({ "type": ["string", "number", "boolean"] })
}

/// Text in which `{{ … }}` stands for values.
pub(super) fn template() -> Value {
    json!({ "type": ["string", "number", "boolean"], "not": not_ended() })
}

/// A value of any kind that is not empty.
fn any_template() -> Value {
    json!({ "not": not_ended() })
}

/// A `{{` that no `}}` follows.
fn not_ended() -> Value {
    json!({ "type": "string", "pattern": r"\{\{(?![\s\S]*\}\})" })
}

fn path() -> Value {
    json!({ "type": "string", "pattern": r"^\S+$" })
}

/// Any case is accepted; completion offers the usual one.
fn one_of(words: &[&str]) -> Value {
    let numbers = words.iter().filter_map(|word| word.parse::<u64>().ok()).map(Value::from);
    let all: Vec<Value> = words.iter().map(|word| Value::from(*word)).chain(numbers).collect();
    let any_case = |c: char| match c.is_ascii_alphabetic() {
        true => format!("[{}{}]", c.to_ascii_uppercase(), c.to_ascii_lowercase()),
        false => c.to_string(),
    };
    let patterns: Vec<String> = words.iter().map(|word| word.chars().map(any_case).collect()).collect();
    json!({ "anyOf": [{ "enum": all }, { "type": "string", "pattern": format!("^({})$", patterns.join("|")) }] })
}
