//! Differences between two JSON values, field by field.

use serde::Serialize;
use serde_json::Value;

/// One path at which two values differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldChange {
    /// `contact.emails[0]`; `$` for the whole value.
    pub path: String,
    /// `None` if the first value has nothing at this path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// `None` if the second value has nothing at this path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// Compares objects by member, arrays by index, and other values as a whole. Order of members and number notation do not
/// matter.
pub fn diff(first: &Value, other: &Value) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    walk("", Some(first), Some(other), &mut changes);
    changes
}

fn walk(path: &str, before: Option<&Value>, after: Option<&Value>, changes: &mut Vec<FieldChange>) {
    match (before, after) {
        (Some(Value::Object(first)), Some(Value::Object(other))) => {
            for (name, value) in first {
                walk(&member(path, name), Some(value), other.get(name), changes);
            }
            for (name, value) in other.iter().filter(|(name, _)| !first.contains_key(*name)) {
                walk(&member(path, name), None, Some(value), changes);
            }
        }
        (Some(Value::Array(first)), Some(Value::Array(other))) => {
            for at in 0..first.len().max(other.len()) {
                walk(&format!("{path}[{at}]"), first.get(at), other.get(at), changes);
            }
        }
        (before, after) if same(before, after) => {}
        (before, after) => changes.push(FieldChange {
            path: if path.is_empty() { "$".to_owned() } else { path.to_owned() },
            before: before.cloned(),
            after: after.cloned(),
        }),
    }
}

fn same(before: Option<&Value>, after: Option<&Value>) -> bool {
    match (before, after) {
        (Some(Value::Number(first)), Some(Value::Number(other))) if first != other => {
            // Integers are compared as integers: as floats, neighbours beyond 2^53 would be equal.
            !(is_integer(first) && is_integer(other)) && first.as_f64() == other.as_f64()
        }
        _ => before == after,
    }
}

fn is_integer(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64()
}

fn member(path: &str, name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '@');
    let is_plain = !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit());
    match (is_plain, path.is_empty()) {
        (true, true) => name.to_owned(),
        (true, false) => format!("{path}.{name}"),
        (false, _) => format!("{path}[{}]", Value::from(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(first: Value, other: Value) -> Vec<String> {
        let text = |value: Option<Value>| value.map_or("nothing".to_owned(), |value| value.to_string());
        diff(&first, &other)
            .into_iter()
            .map(|change| format!("{}: {} -> {}", change.path, text(change.before), text(change.after)))
            .collect()
    }

    #[test]
    fn every_differing_field_is_listed_with_both_values() {
        let first =
            json!({"email": "ann@example.com", "plan": "free", "tags": ["a", "b"], "address": {"city": "Bern"}});
        let other = json!({"plan": "pro", "email": "ann@example.com", "tags": ["a", "c", "d"], "address": {"city": "Bern", "zip": 3000}});
        assert_eq!(
            lines(first, other),
            [
                "plan: \"free\" -> \"pro\"",
                "tags[1]: \"b\" -> \"c\"",
                "tags[2]: nothing -> \"d\"",
                "address.zip: nothing -> 3000"
            ]
        );
    }

    #[test]
    fn notation_is_no_difference() {
        assert!(diff(&json!({"a": 1, "b": [1.0, null]}), &json!({"b": [1, null], "a": 1.0})).is_empty());
        assert_eq!(diff(&json!(9_007_199_254_740_993u64), &json!(9_007_199_254_740_992u64)).len(), 1);
    }

    #[test]
    fn values_of_different_types_are_listed_as_a_whole() {
        assert_eq!(lines(json!({"a": {"b": 1}}), json!({"a": [1]})), ["a: {\"b\":1} -> [1]"]);
        assert_eq!(lines(json!([1]), json!({"a": 1})), ["$: [1] -> {\"a\":1}"]);
        assert_eq!(lines(json!({"a": null}), json!({})), ["a: null -> nothing"]);
    }

    #[test]
    fn names_that_are_not_identifiers_are_quoted() {
        assert_eq!(
            lines(json!({"a b": 1, "0": {"x": 1}}), json!({"a b": 2, "0": {"x": 2}})),
            ["[\"a b\"]: 1 -> 2", "[\"0\"].x: 1 -> 2"]
        );
    }
}
