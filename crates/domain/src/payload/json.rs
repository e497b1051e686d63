//! Strict JSON parser.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::{PayloadProblem, text};
use crate::flow::DuplicateKeys;

/// Maximum nesting. Senders use less than ten levels; the limit protects the stack.
pub const DEPTH_MAX: usize = 64;

/// 2^64: integers from here on do not fit into 64 bits.
const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;

/// Initial capacity of the outermost object.
const MEMBERS_CAPACITY: usize = 24;

/// Parses an object or a list. 64-bit integers stay exact; larger ones are rejected instead of rounded.
pub fn parse(body: &[u8], duplicate_keys: DuplicateKeys) -> Result<Value, PayloadProblem> {
    let text = text(body)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_ascii().is_empty() {
        return Err(PayloadProblem::Empty);
    }
    let context = ParseContext { duplicate_keys, problem: RefCell::new(None) };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Seed { context: &context, depth: 0 }.deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value)).map_err(|error| {
        let own = context.problem.take().filter(|problem| !matches!(problem, PayloadProblem::NumberTooLarge(_)));
        own.unwrap_or_else(|| match error.to_string() {
            message if message.contains("recursion limit") => PayloadProblem::TooDeep,
            message => PayloadProblem::Json(message),
        })
    })?;
    if context.problem.take() == Some(PayloadProblem::NumberTooLarge(String::new()))
        && let Some(number) = large_integer(text)
    {
        return Err(PayloadProblem::NumberTooLarge(number));
    }
    match value {
        Value::Object(_) | Value::Array(_) => Ok(value),
        _ => Err(PayloadProblem::NotAnObject),
    }
}

struct ParseContext {
    duplicate_keys: DuplicateKeys,
    problem: RefCell<Option<PayloadProblem>>,
}

struct Seed<'r> {
    context: &'r ParseContext,
    depth: usize,
}

impl<'r> Seed<'r> {
    fn nested<E: serde::de::Error>(&self) -> Result<Seed<'r>, E> {
        if self.depth >= DEPTH_MAX {
            return Err(self.fail(PayloadProblem::TooDeep));
        }
        Ok(Seed { context: self.context, depth: self.depth + 1 })
    }

    fn fail<E: serde::de::Error>(&self, problem: PayloadProblem) -> E {
        let error = E::custom(&problem);
        self.context.problem.replace(Some(problem));
        error
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // An integer beyond 64 bits arrives here rounded. The text is searched for it afterwards.
        if value >= TOO_LARGE || value <= i64::MIN as f64 {
            self.context.problem.replace(Some(PayloadProblem::NumberTooLarge(String::new())));
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.nested()?)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        // Most members are in the outermost object.
        let mut map = Map::with_capacity(if self.depth == 0 { MEMBERS_CAPACITY } else { 0 });
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(self.nested()?)?;
            match map.entry(name) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(entry) if self.context.duplicate_keys == DuplicateKeys::Refuse => {
                    return Err(self.fail(PayloadProblem::DuplicateKey(entry.key().clone())));
                }
                Entry::Occupied(mut entry) => {
                    entry.insert(value);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

/// The first integer outside of strings that does not fit into 64 bits.
fn large_integer(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let start = at;
                while at < bytes.len() && matches!(bytes[at], b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') {
                    at += 1;
                }
                let token = &text[start..at];
                let whole = token.strip_prefix('-').unwrap_or(token).bytes().all(|byte| byte.is_ascii_digit());
                if whole && token.parse::<i64>().is_err() && token.parse::<u64>().is_err() {
                    return Some(token.chars().take(40).collect());
                }
            }
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Value, PayloadProblem> {
        parse(text.as_bytes(), DuplicateKeys::Refuse)
    }

    #[test]
    fn parse_agrees_with_serde_json() {
        for text in
            [r#"{"a": [1, -2, 3.5, "x\u00eb", null, true], "b": {}}"#, "[]", "\u{feff}{\"a\":1e3}\r\n", "{\"a\":-0}"]
        {
            let plain: Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).unwrap();
            assert_eq!(read(text).unwrap(), plain, "{text}");
        }
    }

    #[test]
    fn each_problem_has_its_own_code() {
        for (text, code) in [
            ("", "body-empty"),
            (" \n", "body-empty"),
            ("{\"a\": ", "json-invalid"),
            ("{} {}", "json-invalid"),
            ("17", "json-not-an-object"),
            ("{\"a\":1,\"b\":{\"c\":1,\"c\":2}}", "json-duplicate-key"),
            ("{\"n\":18446744073709551616}", "number-too-large"),
            ("{\"n\":-9223372036854775809}", "number-too-large"),
            (&"[".repeat(300), "json-too-deep"),
            (&format!("{}{}", "[".repeat(65), "]".repeat(65)), "json-too-deep"),
        ] {
            assert_eq!(read(text).unwrap_err().code(), code, "{text}");
        }
        assert!(read(&format!("{}{}", "[".repeat(64), "]".repeat(64))).is_ok());
        assert_eq!(parse(b"{\"a\":1,\"a\":2}", DuplicateKeys::Last).unwrap(), json!({"a": 2}));
        assert_eq!(parse(b"{\"a\":\"\xff\"}", DuplicateKeys::Refuse), Err(PayloadProblem::Utf8 { offset: 6 }));
    }

    #[test]
    fn integers_of_64_bits_stay_exact() {
        let text = r#"{"a":9007199254740993,"b":18446744073709551615,"c":-9223372036854775808,"d":0.1}"#;
        assert_eq!(read(text).unwrap().to_string(), text);
        assert!(read(r#"{"digits in text": "184467440737095516160", "x": 1e300}"#).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn parse_never_panics_on_bytes(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = parse(&body, DuplicateKeys::Refuse);
        }

        #[test]
        fn parse_never_panics_on_text(text in "[\\[\\]{}:,\"0-9eE.+\\-\\\\a ]{0,80}") {
            if let Ok(value) = parse(text.as_bytes(), DuplicateKeys::Last) {
                proptest::prop_assert_eq!(value, serde_json::from_str::<Value>(&text).unwrap());
            }
        }
    }
}
