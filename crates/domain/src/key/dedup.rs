//! A key that a step of a worker makes of an event: the same parts, escapes and time buckets as in the key of a request.

use std::time::Duration;

use serde_json::Value;

use super::KEY_BYTES_MAX;
use super::strategy::{Found, bucket_label, bucket_starts, is_phone};
use crate::event::{read_time, scalar};
use crate::normalize;
use crate::template::{Expression, Scope};
use crate::time::Time;

/// The key of an event, and those under which the same event may already be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupKey {
    /// As a person can read it. Holds no personal data but as a digest.
    pub text: String,
    /// The same in the neighbouring stretch of time.
    pub adjacent: Vec<String>,
}

/// Why there is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DedupProblem {
    /// A field is not there.
    #[error("the field `{0}` is neither in the event nor in the body")]
    Missing(String),
    /// A field has a list or a map for a value.
    #[error("the field `{0}` is a list or a map, and a key is made of single values")]
    NotAScalar(String),
    /// A field should be a moment.
    #[error("the field `{field}` should be a moment, and `{value}` is none")]
    NotATime {
        /// Its name.
        field: String,
        /// What it says.
        value: String,
    },
    /// There is nothing to cut into buckets.
    #[error("none of the fields is a moment, so nothing can be cut into time buckets; add one, such as occurred_at")]
    NoTimeField,
    /// A key over this length is a mistake.
    #[error("the key has {0} bytes; {KEY_BYTES_MAX} are allowed")]
    TooLong(usize),
}

/// Whether a field of this name is a moment.
pub fn is_time_field(field: &str) -> bool {
    let name = field.rsplit('.').next().unwrap_or(field).to_ascii_lowercase();
    name == "timestamp" || name.ends_with("_at")
}

enum Part {
    Text(String),
    Time(Time),
}

/// Makes the key of these fields. Only what the sender said counts, never when it arrived: two deliveries of one event
/// must have one key.
pub fn dedup(scope: &Scope, fields: &[String], width: Option<Duration>) -> Result<DedupKey, DedupProblem> {
    let parts = fields.iter().map(|field| part(scope, field)).collect::<Result<Vec<_>, _>>()?;
    let moments = parts.iter().filter(|part| matches!(part, Part::Time(_))).count();
    if width.is_some() && moments == 0 {
        return Err(DedupProblem::NoTimeField);
    }
    let text = compose(&parts, width, None);
    let adjacent = match width {
        Some(_) => (0..moments).map(|moved| compose(&parts, width, Some(moved))).collect(),
        None => vec![],
    };
    match text.len() {
        length if length > KEY_BYTES_MAX => Err(DedupProblem::TooLong(length)),
        _ => Ok(DedupKey { text, adjacent }),
    }
}

/// Joins the parts; the moment in the place `moved` among them lies in the neighbouring stretch.
fn compose(parts: &[Part], width: Option<Duration>, moved: Option<usize>) -> String {
    let mut found = Found::default();
    let mut place = 0;
    for part in parts {
        match (part, width) {
            (Part::Text(text), _) => found.push(text.clone()),
            (Part::Time(moment), None) => found.push(moment.to_string()),
            (Part::Time(moment), Some(width)) => {
                let (own, neighbour) = bucket_starts(*moment, width);
                found.push(bucket_label(if moved == Some(place) { neighbour } else { own }, width));
                place += 1;
            }
        }
    }
    found.text
}

fn part(scope: &Scope, field: &str) -> Result<Part, DedupProblem> {
    let value = find(scope, field).ok_or_else(|| DedupProblem::Missing(field.to_owned()))?;
    if is_time_field(field) {
        return read_time(&value).map(Part::Time).ok_or_else(|| DedupProblem::NotATime {
            field: field.to_owned(),
            value: scalar(&value).unwrap_or_else(|| "a list or a map".to_owned()),
        });
    }
    if let Some(moment) = value.as_str().filter(|text| text.contains('T')).and_then(Time::parse) {
        return Ok(Part::Time(moment));
    }
    let text = scalar(&value).ok_or_else(|| DedupProblem::NotAScalar(field.to_owned()))?;
    Ok(Part::Text(if normalize::is_email(&text) {
        normalize::email_hash(&text)
    } else if is_phone(field) {
        normalize::phone_hash(&text, None)
    } else {
        text
    }))
}

/// The value of a field: in the event's identity, its attributes, the event itself, then in the body.
fn find(scope: &Scope, field: &str) -> Option<Value> {
    let there = |value: &&Value| !value.is_null() && value.as_str() != Some("");
    let event = scope.get("event");
    let inside = |part: &str| event.and_then(|event| event.get(part)).and_then(|part| part.get(field)).filter(there);
    let plain = inside("identity")
        .or_else(|| inside("attributes"))
        .or_else(|| event.and_then(|event| event.get(field)).filter(there))
        .or_else(|| scope.get("body").and_then(|body| body.get(field)).filter(there));
    if let Some(value) = plain {
        return Some(value.clone());
    }
    let by_path = || Expression::parse(field).ok()?.evaluate(scope).ok()?.filter(|value| there(&value));
    // The sender's own word for when it happened, under whatever name the flow found it.
    let occurred = || event.and_then(|event| event.get("occurred_at")).filter(|_| is_time_field(field)).cloned();
    match field.contains(['.', '[']) {
        true => by_path(),
        false => occurred(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FIVE: Option<Duration> = Some(Duration::from_secs(300));

    fn scope(at: &str) -> Scope {
        let mut scope = Scope::new();
        scope.set(
            "event",
            json!({"identity": {"customer_id": 17}, "attributes": {"email": "Ada@Example.com"}, "occurred_at": at}),
        );
        scope.set("body", json!({"store_id": "s|1", "timestamp": at, "cart": {"id": "c1"}, "lines": []}));
        scope
    }

    fn key(at: &str) -> DedupKey {
        let fields = ["customer_id", "store_id", "timestamp"].map(str::to_owned);
        dedup(&scope(at), &fields, FIVE).unwrap()
    }

    #[test]
    fn one_stretch_of_time_is_one_key_and_its_edge_is_near() {
        let before = key("2026-11-13T22:42:10Z");
        assert_eq!(before.text, key("2026-11-13T22:44:59Z").text);
        assert_eq!(before.text, "17|s\\|1|2026-11-13T22:40:00Z/5m");
        let (late, next) = (key("2026-11-13T22:44:50Z"), key("2026-11-13T22:45:10Z"));
        assert_ne!(late.text, next.text);
        assert!(late.adjacent.contains(&next.text) && next.adjacent.contains(&late.text));
    }

    #[test]
    fn a_person_stands_in_a_key_as_a_digest() {
        let of = |field: &str| dedup(&scope("2026-11-13T22:42:10Z"), &[field.to_owned()], None).unwrap().text;
        assert_eq!(of("email"), normalize::email_hash("ada@example.com"));
        assert_eq!(of("body.cart.id"), "c1");
    }

    #[test]
    fn what_is_missing_is_named() {
        let of = |field: &str| dedup(&scope("x"), &[field.to_owned()], FIVE).unwrap_err().to_string();
        assert!(of("basket_id").contains("`basket_id`"));
        assert!(of("lines").contains("list"));
        assert!(of("timestamp").contains("moment"));
        assert!(of("customer_id").contains("none of the fields"));
    }

    #[test]
    fn without_a_field_of_its_name_a_moment_is_when_it_happened() {
        let key = dedup(&scope("2026-11-13T22:42:10Z"), &["created_at".to_owned()], FIVE).unwrap();
        assert_eq!(key.text, "2026-11-13T22:40:00Z/5m");
    }
}
