//! Typed access to the values of a rendered `with:`; errors name the parameter.

use std::borrow::Cow;

use serde_json::{Map, Value};
use sluice_domain::outcome::{Failure, FailureClass};

/// Failure for a parameter whose rendered value is invalid. The message is "`with.NAME` WHAT."
pub(crate) fn problem(name: &str, what: impl std::fmt::Display) -> Failure {
    Failure::new(FailureClass::Mapping, "invalid-parameter", format!("`with.{name}` {what}."))
}

/// Value of a parameter; `null` counts as absent.
pub(crate) fn value<'a>(with: &'a Value, name: &str) -> Option<&'a Value> {
    with.get(name).filter(|value| !value.is_null())
}

/// Scalar as text; `None` for null, lists and maps.
pub(crate) fn scalar(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Optional text parameter.
pub(crate) fn text<'a>(with: &'a Value, name: &str) -> Result<Option<Cow<'a, str>>, Failure> {
    let Some(value) = value(with, name) else { return Ok(None) };
    scalar(value).map(Some).ok_or_else(|| problem(name, format_args!("must be text; it is {}", kind(value))))
}

/// The text without surrounding blanks. Destinations store ids so; one that is sent with blanks in the URL of a record addresses another
/// record than in the body of a batch.
pub(crate) fn trimmed(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    }
}

/// Required, non-blank text parameter.
pub(crate) fn required<'a>(with: &'a Value, name: &str) -> Result<Cow<'a, str>, Failure> {
    match text(with, name)? {
        Some(text) if !text.trim().is_empty() => Ok(text),
        Some(_) => Err(problem(name, "is empty")),
        None => Err(problem(name, "is missing")),
    }
}

/// Optional map parameter.
pub(crate) fn map<'a>(with: &'a Value, name: &str) -> Result<Option<&'a Map<String, Value>>, Failure> {
    match value(with, name) {
        None => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(other) => Err(problem(name, format_args!("must be a map of names to values; it is {}", kind(other)))),
    }
}

/// Type of a value, worded for a message.
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
