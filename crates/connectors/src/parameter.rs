//! Reads the values of a rendered `with:`, and names the parameter that is wrong.

use std::borrow::Cow;

use serde_json::{Map, Value};
use sluice_domain::outcome::{Failure, FailureClass};

/// A parameter that cannot be used as it came out of its template.
pub(crate) fn problem(name: &str, what: impl std::fmt::Display) -> Failure {
    Failure::new(FailureClass::Mapping, "invalid-parameter", format!("`with.{name}` {what}."))
}

/// What `with:` holds under this name; `null` counts as left out.
pub(crate) fn value<'a>(with: &'a Value, name: &str) -> Option<&'a Value> {
    with.get(name).filter(|value| !value.is_null())
}

/// A scalar as text. `None` for lists and maps.
pub(crate) fn scalar(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The text under this name.
pub(crate) fn text<'a>(with: &'a Value, name: &str) -> Result<Option<Cow<'a, str>>, Failure> {
    let Some(value) = value(with, name) else { return Ok(None) };
    scalar(value).map(Some).ok_or_else(|| problem(name, format_args!("must be text; it is {}", kind(value))))
}

/// The text under this name, which must be there and not be empty.
pub(crate) fn required<'a>(with: &'a Value, name: &str) -> Result<Cow<'a, str>, Failure> {
    match text(with, name)? {
        Some(text) if !text.trim().is_empty() => Ok(text),
        Some(_) => Err(problem(name, "is empty")),
        None => Err(problem(name, "is missing")),
    }
}

/// The map under this name.
pub(crate) fn map<'a>(with: &'a Value, name: &str) -> Result<Option<&'a Map<String, Value>>, Failure> {
    match value(with, name) {
        None => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(other) => Err(problem(name, format_args!("must be a map of names to values; it is {}", kind(other)))),
    }
}

/// What a value is, for a sentence.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}
