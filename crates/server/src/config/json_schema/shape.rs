//! JSON Schemas of value types.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::policy::zones;
use sluice_domain::unit::DURATION_MAX;

use super::{pattern, reference};
use crate::config::body::CONTENT_WINDOW;
use crate::config::table::{LASTING, SOME_TIME, ValueType};

/// Schema of a value type.
pub(super) fn schema(shape: &ValueType) -> Value {
    match shape {
        ValueType::Text => text(),
        ValueType::Name => name(pattern::NAME),
        ValueType::Count(min, max) => {
            let written = pattern::count((*min).into(), (*max).into());
            let said = said(shape);
            json!({ "type": ["integer", "string"], "minimum": min, "maximum": max, "pattern": written, "patternErrorMessage": said })
        }
        ValueType::Number(min, max) => {
            let written = pattern::number((*min).into(), (*max).into());
            let said = said(shape);
            json!({ "type": ["number", "string"], "minimum": min, "maximum": max, "pattern": written, "patternErrorMessage": said })
        }
        ValueType::Flag => json!({ "type": "boolean" }),
        ValueType::Duration => shared("duration"),
        &LASTING => shared("lasting"),
        ValueType::Between(least, most) => duration(*least, *most, shape),
        ValueType::Size(max) => json!({
            "type": ["string", "number"], "exclusiveMinimum": 0, "maximum": max,
            "pattern": pattern::size(*max), "patternErrorMessage": said(shape), "examples": ["64KiB", "1MiB"],
        }),
        ValueType::Rate => shared("rate"),
        ValueType::OneOf(words) => one_of(words),
        ValueType::Secret => secret(),
        ValueType::Plain => plain(),
        ValueType::Url => {
            json!({ "type": "string", "pattern": pattern::URL, "patternErrorMessage": said(shape), "not": { "pattern": r"\{\{" } })
        }
        ValueType::Header => header(),
        ValueType::Clock => json!({
            "type": "string", "pattern": pattern::CLOCK, "patternErrorMessage": said(shape), "examples": ["21:00"],
        }),
        ValueType::Zone => shared("time-zone"),
        ValueType::Share => json!({
            "type": ["string", "number"], "minimum": 0, "exclusiveMaximum": 100,
            "pattern": pattern::SHARE, "patternErrorMessage": said(shape), "allOf": [{ "not": { "type": "string", "pattern": r"^\s*%?\s*$" } }],
        }),
        ValueType::Template => template(),
        ValueType::Expression(_) | ValueType::Condition => expression(),
        ValueType::Table(title) => json!({ "$ref": reference(title) }),
        ValueType::Tables(title) => json!({ "type": "array", "items": { "$ref": reference(title) } }),
        ValueType::Described(words) => described(words).unwrap_or_else(|| json!({ "not": { "type": "null" } })),
    }
}

/// Schema of a type described in words.
pub(super) fn described(words: &str) -> Option<Value> {
    let list_or_one = |one: Value| json!({ "anyOf": [one, { "type": "array", "items": one }] });
    let or_duration = |words: Value, long: &ValueType| json!({ "anyOf": [{ "enum": words }, schema(long)] });
    let limited = json!({ "anyOf": [schema(&ValueType::Rate), { "$ref": reference("a rate limit") }] });
    Some(match words {
        "a map of header names to text" => json!({
            "type": "object",
            "propertyNames": { "pattern": pattern::header() },
            "patternProperties": { pattern::secret_names(): secret() },
            "additionalProperties": plain(),
        }),
        "a map of names to values" => mapped(),
        "a map of names to values, or a list of fields of the body" => {
            json!({ "anyOf": [mapped(), { "type": "array", "items": path() }] })
        }
        "a list of paths into the body" | "a list of paths into the body, or headers.NAME" => list_or_one(path()),
        "a list of paths into the event, such as identity.email" => json!({ "type": "array", "items": path() }),
        "a path such as value or entry.changes, or [] when the body is the list" => {
            let names = json!({ "type": ["string", "number", "boolean"], "pattern": pattern::NAMES });
            json!({ "anyOf": [names, { "type": "array", "maxItems": 0 }] })
        }
        "a duration from 1ms to 2d, or off" => or_duration(json!(["off", false]), &CONTENT_WINDOW),
        "`immediate` or a duration such as 1s" => or_duration(json!(["immediate"]), &ValueType::Duration),
        "a JSON Schema, or the path of a file of this configuration that holds one" => {
            json!({ "anyOf": [{ "type": "string" }, { "$ref": "http://json-schema.org/draft-07/schema#" }] })
        }
        "step:NAME" => json!({ "type": "string", "pattern": "^step:" }),
        "a dead-letter queue, written dlq:NAME" => json!({ "type": "string", "pattern": r"^dlq:\s*\S" }),
        "ledger or kv:NAME" => json!({ "type": "string", "pattern": "^(ledger$|kv:.)" }),
        "a path that begins with /" => {
            json!({ "type": "string", "pattern": r"^/[A-Za-z0-9/_.~:@%-]*$", "not": { "pattern": r"//|/\.\.?(/|$)" } })
        }
        "a rate such as 100/s, or a map with rate and burst" => limited,
        "a list of secrets, or of maps with value, name, not_after and rate_limit" => {
            let one = json!({ "anyOf": [secret(), { "$ref": reference("one of several secrets") }] });
            json!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] })
        }
        "a header's name, or a list of two of which the first that is there counts" => {
            json!({ "anyOf": [header(), { "type": "array", "minItems": 2, "maxItems": 2, "items": header() }] })
        }
        "text with {body}, {timestamp}, {id}, {url} and {method}, in quotes" => {
            json!({ "type": "string", "pattern": r"^([^{}]|\{(body|timestamp|id|url|method)\})*$", "allOf": [{ "pattern": r"\{body\}" }] })
        }
        "a time such as 2026-12-31T00:00:00Z" => json!({
            "type": "string",
            "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}(:?[0-9]{2}){0,2}([.,][0-9]+)?\s*([Zz]|[+-][0-9]{2}(:?[0-9]{2}){0,2})",
        }),
        "a list of texts" => {
            let words = json!({ "type": ["string", "number", "boolean"], "pattern": r"\S", "not": not_ended() });
            json!({ "anyOf": [words, { "type": "array", "minItems": 1, "items": template() }] })
        }
        "an address, or Name <address>" => json!({ "type": "string", "pattern": "@" }),
        "a version such as v60.0" => json!({ "type": "string", "pattern": pattern::API_VERSION }),
        "the name of a policy, or a list of them" => list_or_one(schema(&ValueType::Name)),
        "true, or a map with list" => json!({ "anyOf": [{ "const": true }, { "$ref": reference("suppression") }] }),
        "a map of templates to templates" => {
            json!({ "type": "object", "additionalProperties": { "type": ["string", "number", "boolean"] } })
        }
        "a type of event such as shopify.cart.abandoned" => {
            json!({ "type": ["string", "number", "boolean"], "pattern": r"^[^\s*{]+$" })
        }
        "a rule such as */10 * * * *: minute, hour, day of the month, month, day of the week" => {
            let said = format!("This must be {words}.");
            json!({ "type": "string", "pattern": pattern::cron(), "patternErrorMessage": said, "examples": ["*/10 * * * *"] })
        }
        "a span of time such as 200-600ms" => {
            json!({ "type": "string", "pattern": pattern::span(), "patternErrorMessage": format!("This must be {words}.") })
        }
        "a list: step:NAME.path, or an expression" => expression(),
        _ => return None,
    })
}

/// Reference to a shared definition.
fn shared(name: &str) -> Value {
    json!({ "$ref": format!("#/definitions/{name}") })
}

fn duration(least: Duration, most: Duration, shape: &ValueType) -> Value {
    json!({
        "type": "string", "pattern": pattern::duration(least, most),
        "patternErrorMessage": said(shape), "examples": ["30s", "15m", "48h", "7d"],
    })
}

/// Message of an editor if the text does not match, instead of the regular expression.
fn said(shape: &ValueType) -> String {
    format!("This must be {}.", shape.describe())
}

/// Name that matches the pattern; unquoted numbers and flags are allowed.
pub(super) fn name(pattern: &str) -> Value {
    json!({ "type": ["string", "number", "boolean"], "pattern": pattern, "patternErrorMessage": said(&ValueType::Name), "minimum": 0 })
}

pub(super) fn secret() -> Value {
    json!({ "type": "string", "pattern": pattern::SECRET, "patternErrorMessage": said(&ValueType::Secret), "not": { "pattern": r"\{\{" }, "examples": ["${secrets.NAME}"] })
}

fn header() -> Value {
    json!({ "type": ["string", "number", "boolean"], "pattern": pattern::header() })
}

/// Text; unquoted numbers and flags are allowed.
pub(super) fn text() -> Value {
    json!({ "type": ["string", "number", "boolean"] })
}

/// Text read at startup.
fn plain() -> Value {
    json!({ "type": ["string", "number", "boolean"], "not": { "type": "string", "pattern": r"\{\{" } })
}

/// Text with `{{ … }}`.
pub(super) fn template() -> Value {
    json!({ "type": ["string", "number", "boolean"], "not": not_ended() })
}

/// Expression with or without `{{ }}`.
pub(super) fn expression() -> Value {
    let text_around = r"^\s*[^\s{][\s\S]*\{\{|^(?=[\s\S]*\{\{)(?!\s*\{\{[\s\S]*\}\}\s*$)";
    let wrong = json!({ "type": "string", "pattern": format!(r"{}|\$\{{|^\s*$|{text_around}", pattern::NOT_ENDED) });
    json!({ "type": ["string", "number", "boolean"], "not": wrong })
}

/// Value of any type with `{{ … }}`. A key that names a secret has no literal value.
pub(super) fn any_template() -> Value {
    json!({ "$ref": "#/definitions/value" })
}

/// Map of names to values in an event, without secrets.
fn mapped() -> Value {
    json!({ "allOf": [{ "type": "object" }, { "$ref": "#/definitions/mapped-value" }] })
}

/// Definitions that are not sections.
pub(super) fn values() -> [(&'static str, Value); 6] {
    let any = |name: &str, refused: String| {
        let itself = json!({ "$ref": format!("#/definitions/{name}") });
        json!({
            "not": { "type": "string", "pattern": refused },
            "items": itself,
            "patternProperties": { pattern::secret_names(): { "not": literal() } },
            "allOf": [{ "additionalProperties": itself }],
        })
    };
    let rate = json!({
        "type": "string", "pattern": pattern::rate(),
        "patternErrorMessage": said(&ValueType::Rate), "examples": ["5/min", "100/s"],
    });
    [
        ("duration", duration(Duration::ZERO, DURATION_MAX, &ValueType::Duration)),
        ("lasting", duration(SOME_TIME, DURATION_MAX, &LASTING)),
        ("rate", rate),
        ("time-zone", json!({ "enum": zones().collect::<Vec<_>>() })),
        ("value", any("value", pattern::NOT_ENDED.to_owned())),
        ("mapped-value", any("mapped-value", format!(r"{}|\$\{{secrets\.", pattern::NOT_ENDED))),
    ]
}

/// Text or a number that is not filled in and is no path into a request.
pub(super) fn literal() -> Value {
    json!({ "anyOf": [
        { "type": "number" },
        { "type": "string", "pattern": r"^(?!body\.|headers\.)[\s\S]*\S", "not": { "pattern": r"\{\{|\$\{" } },
    ] })
}

/// Unclosed `{{`.
pub(super) fn not_ended() -> Value {
    json!({ "type": "string", "pattern": pattern::NOT_ENDED })
}

fn path() -> Value {
    json!({ "type": ["string", "number", "boolean"], "pattern": pattern::PATH })
}

/// Case-insensitive; completion offers the canonical case.
fn one_of(words: &[&str]) -> Value {
    let numbers = words.iter().filter_map(|word| word.parse::<u64>().ok()).map(Value::from);
    let all: Vec<Value> = words.iter().map(|word| Value::from(*word)).chain(numbers).collect();
    json!({ "anyOf": [{ "enum": all }, { "type": "string", "pattern": format!("^({})$", pattern::any_case(words)) }] })
}
