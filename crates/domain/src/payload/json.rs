//! Strict JSON parser.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::{PayloadProblem, text};
use crate::flow::DuplicateKeys;

/// Maximum nesting. Senders use less than ten levels; the limit protects the stack.
pub const DEPTH_MAX: usize = 64;

/// A decimal number with at most so many digits is the same number after it was read and written.
const DIGITS_EXACT: usize = 15;

/// Initial capacity of the outermost object.
const MEMBERS_CAPACITY: usize = 24;

/// Parses an object or a list. Numbers stay exact; integers beyond 64 bits and decimals with too many digits are rejected
/// instead of rounded.
pub fn parse(body: &[u8], duplicate_keys: DuplicateKeys) -> Result<Value, PayloadProblem> {
    let text = text(body)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_ascii().is_empty() {
        return Err(PayloadProblem::Empty);
    }
    let context = ParseContext { duplicate_keys, problem: RefCell::new(None), floats: Cell::new(false) };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Seed { context: &context, depth: 0 }.deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value)).map_err(|error| {
        context.problem.take().unwrap_or_else(|| match error.to_string() {
            message if message.contains("recursion limit") => PayloadProblem::TooDeep,
            message => PayloadProblem::Json(message),
        })
    })?;
    if context.floats.get()
        && let Some(problem) = rounded_number(text)
    {
        return Err(problem);
    }
    match value {
        Value::Object(_) | Value::Array(_) => Ok(value),
        _ => Err(PayloadProblem::NotAnObject),
    }
}

struct ParseContext {
    duplicate_keys: DuplicateKeys,
    problem: RefCell<Option<PayloadProblem>>,
    /// A number was read as a float. The text is searched for rounded ones afterwards.
    floats: Cell<bool>,
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
        self.context.floats.set(true);
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

/// The first number outside of strings that was rounded.
fn rounded_number(text: &str) -> Option<PayloadProblem> {
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
                if let Some(problem) = rounding(&text[start..at]) {
                    return Some(problem);
                }
            }
            _ => at += 1,
        }
    }
    None
}

fn rounding(token: &str) -> Option<PayloadProblem> {
    let shown = || token.chars().take(40).collect();
    if token.strip_prefix('-').unwrap_or(token).bytes().all(|byte| byte.is_ascii_digit()) {
        let fits = token.parse::<i64>().is_ok() || token.parse::<u64>().is_ok();
        return (!fits).then(|| PayloadProblem::NumberTooLarge(shown()));
    }
    let written = Decimal::parse(token)?;
    // Small exponents, where floats do not lose digits.
    if written.digits.len() <= DIGITS_EXACT && written.exponent.abs() < 290 {
        return None;
    }
    let kept = Decimal::parse(&format!("{:e}", token.parse::<f64>().ok()?))?;
    (kept != written).then(|| PayloadProblem::NumberTooPrecise(shown()))
}

/// A decimal number, normalized: `digits` × 10^`exponent`, without zeros at either end.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Reads the magnitude; the sign is never lost.
    fn parse(token: &str) -> Option<Decimal> {
        let token = token.strip_prefix('-').unwrap_or(token);
        let (mantissa, exponent) = match token.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (token, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_end_matches('0');
        if digits.is_empty() {
            return Some(Decimal { digits: String::new(), exponent: 0 });
        }
        let dropped = i64::try_from(all.len() - digits.len()).ok()?;
        let exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?.checked_add(dropped)?;
        Some(Decimal { digits: digits.trim_start_matches('0').to_owned(), exponent })
    }
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
            ("{\"n\":12345678901234567.89}", "number-too-precise"),
            ("{\"n\":0.1000000000000000000001}", "number-too-precise"),
            ("{\"a\":1.5,\"n\":-0.3333333333333333333333}", "number-too-precise"),
            ("{\"n\":12345678901234567890.0}", "number-too-precise"),
            ("{\"n\":1e-400}", "number-too-precise"),
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

    #[test]
    fn decimals_stay_exact() {
        let text = r#"{"a":19.99,"b":0.1,"c":-52.52000659999999,"d":123456789012345.67,"e":1.7976931348623157e+308,"f":5e-324}"#;
        assert_eq!(read(text).unwrap().to_string(), text);
        for same in
            ["19.990000000000000000000", "0.00000000000000000000000019", "1E5", "0.0", "-0.0e7", "100000000000000000.0"]
        {
            assert!(read(&format!("[{same}]")).is_ok(), "{same}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parse_never_panics_on_bytes(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = parse(&body, DuplicateKeys::Refuse);
        }

        #[test]
        fn number_is_kept_or_refused(token in "-?(0|[1-9][0-9]{0,22})(\\.[0-9]{1,22})?([eE][+-]?[0-9]{1,2})?") {
            if let Ok(value) = read(&format!("[{token}]")) {
                let shown = value[0].to_string();
                let same = |text: &str| Decimal::parse(text);
                proptest::prop_assert_eq!(same(&shown), same(&token), "{}", shown);
            }
        }

        #[test]
        fn parse_never_panics_on_text(text in "[\\[\\]{}:,\"0-9eE.+\\-\\\\a ]{0,80}") {
            if let Ok(value) = parse(text.as_bytes(), DuplicateKeys::Last) {
                proptest::prop_assert_eq!(value, serde_json::from_str::<Value>(&text).unwrap());
            }
        }
    }
}
