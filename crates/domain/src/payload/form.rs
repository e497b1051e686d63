//! Forms: `type=subscribe&data[email]=a%40b.c` becomes an object.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::PayloadProblem;
use crate::flow::DuplicateKeys;
use crate::verify::{form_pairs, percent_encode};

/// Maximum number of fields in a form.
pub(super) const FIELDS_MAX: usize = 2_000;
/// Maximum nesting of a field name.
const BRACKETS_MAX: usize = 8;

/// Parses a form. `data[email]` is the member `email` of `data`, `tags[]` an item of the list `tags`, and a name that occurs
/// twice becomes a list. A form whose only field is `payload` carries a JSON body in it, as GitHub and Slack send it.
pub fn parse(body: &[u8], duplicate_keys: DuplicateKeys) -> Result<Value, PayloadProblem> {
    from_pairs(form_pairs(body), duplicate_keys)
}

/// Same as [`parse`] for decoded names and values.
pub(super) fn from_pairs<'b>(
    pairs: impl Iterator<Item = (Cow<'b, [u8]>, Cow<'b, [u8]>)>,
    duplicate_keys: DuplicateKeys,
) -> Result<Value, PayloadProblem> {
    let mut root = Map::new();
    let mut fields = 0;
    for (name, value) in pairs {
        fields += 1;
        if fields > FIELDS_MAX {
            return Err(PayloadProblem::Form(format!("it has more than {FIELDS_MAX} fields")));
        }
        let name = decoded(&name)?;
        let value = decoded(&value)?;
        insert(&mut root, name, value)?;
    }
    if root.is_empty() {
        return Err(PayloadProblem::Empty);
    }
    match root.get("payload") {
        Some(Value::String(inner)) if fields == 1 && inner.trim_start().starts_with('{') => {
            super::parse_json(inner.as_bytes(), duplicate_keys)
        }
        _ => Ok(Value::Object(root)),
    }
}

/// Writes an object in the form that [`parse`] reads: members in brackets, items under `name[]`. A scalar that is not text
/// is written as its JSON text.
pub fn write(object: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, value) in object {
        write_field(name.clone(), value, &mut text);
    }
    text
}

fn write_field(name: String, value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(inner, value)| write_field(format!("{name}[{inner}]"), value, text));
        }
        Value::Array(items) => items.iter().for_each(|item| write_field(format!("{name}[]"), item, text)),
        value => {
            if !text.is_empty() {
                text.push('&');
            }
            percent_encode(name.as_bytes(), b"-_.~[]", text);
            text.push('=');
            let value = value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed);
            percent_encode(value.as_bytes(), b"-_.~", text);
        }
    }
}

fn decoded(bytes: &[u8]) -> Result<&str, PayloadProblem> {
    let problem = |error: std::str::Utf8Error| {
        PayloadProblem::Form(format!("a decoded field is not UTF-8: invalid byte at offset {}", error.valid_up_to()))
    };
    std::str::from_utf8(bytes).map_err(problem)
}

fn insert(root: &mut Map<String, Value>, name: &str, value: &str) -> Result<(), PayloadProblem> {
    let (first, inner) = path(name)?;
    let conflict =
        || PayloadProblem::Form(format!("`{}` is both a value and a parent of other fields", truncated(name)));
    let mut slot = root.entry(first).or_insert(Value::Null);
    for segment in inner {
        slot = match segment {
            "" => match slot {
                Value::Null => {
                    *slot = Value::Array(vec![Value::Null]);
                    last_of(slot).ok_or_else(conflict)?
                }
                Value::Array(items) => {
                    items.push(Value::Null);
                    last_of(slot).ok_or_else(conflict)?
                }
                _ => return Err(conflict()),
            },
            key => {
                if slot.is_null() {
                    *slot = Value::Object(Map::new());
                }
                let Value::Object(members) = slot else { return Err(conflict()) };
                members.entry(key).or_insert(Value::Null)
            }
        };
    }
    match slot {
        Value::Null => *slot = Value::String(value.to_owned()),
        Value::String(first) => {
            *slot = Value::Array(vec![Value::String(std::mem::take(first)), Value::String(value.to_owned())])
        }
        Value::Array(items) if items.iter().all(Value::is_string) => items.push(Value::String(value.to_owned())),
        _ => return Err(conflict()),
    }
    Ok(())
}

fn last_of(list: &mut Value) -> Option<&mut Value> {
    list.as_array_mut().and_then(|items| items.last_mut())
}

/// Splits `a[b][]` into `a` and its inner segments `b` and ``. A name with incomplete brackets is taken verbatim.
fn path(name: &str) -> Result<(&str, Vec<&str>), PayloadProblem> {
    let Some((first, rest)) = name.split_once('[').filter(|(first, rest)| !first.is_empty() && rest.ends_with(']'))
    else {
        return Ok((name, vec![]));
    };
    let inner: Vec<&str> = rest[..rest.len() - 1].split("][").collect();
    if inner.len() > BRACKETS_MAX {
        return Err(PayloadProblem::Form(format!("`{}` has more than {BRACKETS_MAX} brackets", truncated(name))));
    }
    if inner.iter().any(|segment| segment.contains(['[', ']'])) {
        return Ok((name, vec![]));
    }
    Ok((first, inner))
}

fn truncated(name: &str) -> String {
    name.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Value, PayloadProblem> {
        parse(text.as_bytes(), DuplicateKeys::Refuse)
    }

    #[test]
    fn brackets_nest_and_repeated_names_become_lists() {
        assert_eq!(
            read("type=subscribe&data%5Bemail%5D=a%40b.c&data[merges][FNAME]=Zo%C3%AB+x&tag=1&tag=2&ids[]=7&ids[]=8")
                .unwrap(),
            json!({"type": "subscribe", "data": {"email": "a@b.c", "merges": {"FNAME": "Zoë x"}}, "tag": ["1", "2"], "ids": ["7", "8"]})
        );
        assert_eq!(read("a[b=1&[c]=2&d[e]f=3&g=").unwrap(), json!({"a[b": "1", "[c]": "2", "d[e]f": "3", "g": ""}));
        assert_eq!(read("payload=%7B%22zen%22%3A%22x%22%7D").unwrap(), json!({"zen": "x"}));
        assert_eq!(read("payload=%7B%7D&x=1").unwrap(), json!({"payload": "{}", "x": "1"}));
    }

    #[test]
    fn written_form_parses_back() {
        let value = json!({"type": "subscribe", "data": {"email": "a+b@c.d", "tags": ["x", "ÿ&="]}, "fired_at": "2026-11-15 10:00:00"});
        let text = write(value.as_object().unwrap());
        assert_eq!(
            text,
            "type=subscribe&data[email]=a%2Bb%40c.d&data[tags][]=x&data[tags][]=%C3%BF%26%3D&fired_at=2026-11-15%2010%3A00%3A00"
        );
        assert_eq!(read(&text).unwrap(), value);
    }

    #[test]
    fn conflicting_or_oversized_forms_are_rejected() {
        for text in ["a=1&a[b]=2", "a[b]=1&a=2", "a[]=1&a[b]=2", "x=%ff", &format!("a{}=1", "[b]".repeat(9))] {
            assert_eq!(read(text).unwrap_err().code(), "form-invalid", "{text}");
        }
        assert_eq!(read("").unwrap_err(), PayloadProblem::Empty);
        assert_eq!(read(&"a=1&".repeat(FIELDS_MAX + 1)).unwrap_err().code(), "form-invalid");
        assert_eq!(read("payload=%7B%22a%22%3A1%2C%22a%22%3A2%7D").unwrap_err().code(), "json-duplicate-key");
    }

    proptest::proptest! {
        #[test]
        fn parse_never_panics(text in "[a-c\\[\\]=&%0-9+]{0,60}") {
            let _ = read(&text);
        }
    }
}
