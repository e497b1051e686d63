//! Deduplication key that a worker step computes from an event, with the parts, escapes and time buckets of request keys.

use std::time::Duration;

use serde_json::Value;

use super::KEY_BYTES_MAX;
use super::strategy::{KeyBuilder, bucket_label, bucket_starts, is_phone};
use crate::event::{read_time, scalar};
use crate::normalize;
use crate::template::{Expression, Scope, is_present};
use crate::time::Time;

/// Deduplication key of an event, with the adjacent keys under which a duplicate may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupKey {
    /// Readable form. Personal data appears as a digest only.
    pub text: String,
    /// The same key with one time moved to the adjacent bucket, one entry per time field.
    pub adjacent: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DedupProblem {
    #[error("field `{0}` is missing in the event and in the body")]
    Missing(String),
    #[error("field `{0}` is a list or a map; a key needs scalar fields")]
    NotAScalar(String),
    #[error("field `{field}` must be a time, but is `{value}`")]
    NotATime { field: String, value: String },
    #[error("no field is a time, and a bucket needs one; add a time field such as occurred_at")]
    NoTimeField,
    #[error("the key has {0} bytes; the maximum is {KEY_BYTES_MAX}")]
    TooLong(usize),
}

/// True if a field of this name holds a time: `timestamp`, or any name that ends in `_at`.
pub fn is_time_field(field: &str) -> bool {
    let name = field.rsplit('.').next().unwrap_or(field).to_ascii_lowercase();
    name == "timestamp" || name.ends_with("_at")
}

enum Part {
    Text(String),
    Time(Time),
}

/// Computes the key of these fields. Uses only values set by the sender, never the time of arrival: two deliveries of one
/// event must get the same key.
pub fn dedup(scope: &Scope, fields: &[String], width: Option<Duration>) -> Result<DedupKey, DedupProblem> {
    let parts = fields.iter().map(|field| part(scope, field)).collect::<Result<Vec<_>, _>>()?;
    let times = parts.iter().filter(|part| matches!(part, Part::Time(_))).count();
    if width.is_some() && times == 0 {
        return Err(DedupProblem::NoTimeField);
    }
    let text = compose(&parts, width, None);
    let adjacent = match width {
        Some(_) => (0..times).map(|moved| compose(&parts, width, Some(moved))).collect(),
        None => vec![],
    };
    match text.len() {
        length if length > KEY_BYTES_MAX => Err(DedupProblem::TooLong(length)),
        _ => Ok(DedupKey { text, adjacent }),
    }
}

/// Joins the parts. The time with index `moved` among the times is placed in its adjacent bucket.
fn compose(parts: &[Part], width: Option<Duration>, moved: Option<usize>) -> String {
    let mut found = KeyBuilder::default();
    let mut time_index = 0;
    for part in parts {
        match (part, width) {
            (Part::Text(text), _) => found.push(text.clone()),
            (Part::Time(time), None) => found.push(time.to_string()),
            (Part::Time(time), Some(width)) => {
                let (own, adjacent) = bucket_starts(*time, width);
                found.push(bucket_label(if moved == Some(time_index) { adjacent } else { own }, width));
                time_index += 1;
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
    if let Some(time) = value.as_str().filter(|text| text.contains('T')).and_then(Time::parse) {
        return Ok(Part::Time(time));
    }
    let text = scalar(&value).ok_or_else(|| DedupProblem::NotAScalar(field.to_owned()))?;
    Ok(Part::Text(if normalize::is_email(&text) {
        scope.pseudonyms().email(&text)
    } else if is_phone(field) {
        scope.pseudonyms().phone(&text)
    } else {
        text
    }))
}

/// Looks a field up in the event's identity, its attributes, the event itself, then the body.
fn find(scope: &Scope, field: &str) -> Option<Value> {
    let is_set = |value: &&Value| is_present(value);
    let event = scope.get("event");
    let section = |part: &str| event.and_then(|event| event.get(part)).and_then(|part| part.get(field)).filter(is_set);
    let plain = section("identity")
        .or_else(|| section("attributes"))
        .or_else(|| event.and_then(|event| event.get(field)).filter(is_set))
        .or_else(|| scope.get("body").and_then(|body| body.get(field)).filter(is_set));
    if let Some(value) = plain {
        return Some(value.clone());
    }
    let by_path = || Expression::parse(field).ok()?.evaluate(scope).ok()?.filter(|value| is_set(&value));
    // The flow may map the sender's time from a field of any name.
    let occurred = || event.and_then(|event| event.get("occurred_at")).filter(|_| is_time_field(field)).cloned();
    match field.contains(['.', '[']) {
        true => by_path(),
        false => occurred(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pseudonym::PseudonymKey;
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
    fn times_in_one_bucket_share_a_key_and_neighbours_across_an_edge_are_adjacent() {
        let before = key("2026-11-13T22:42:10Z");
        assert_eq!(before.text, key("2026-11-13T22:44:59Z").text);
        assert_eq!(before.text, "17|s\\|1|2026-11-13T22:40:00Z/5m");
        let (late, next) = (key("2026-11-13T22:44:50Z"), key("2026-11-13T22:45:10Z"));
        assert_ne!(late.text, next.text);
        assert!(late.adjacent.contains(&next.text) && next.adjacent.contains(&late.text));
    }

    #[test]
    fn personal_data_enters_a_key_as_a_digest() {
        let of = |field: &str| dedup(&scope("2026-11-13T22:42:10Z"), &[field.to_owned()], None).unwrap().text;
        assert_eq!(of("email"), PseudonymKey::public().email("ada@example.com"));
        assert_eq!(of("body.cart.id"), "c1");
    }

    #[test]
    fn problems_name_the_field() {
        let of = |field: &str| dedup(&scope("x"), &[field.to_owned()], FIVE).unwrap_err().to_string();
        assert!(of("basket_id").contains("`basket_id`"));
        assert!(of("lines").contains("list"));
        assert!(of("timestamp").contains("must be a time"));
        assert!(of("customer_id").contains("no field is a time"));
    }

    #[test]
    fn absent_time_field_falls_back_to_occurred_at() {
        let key = dedup(&scope("2026-11-13T22:42:10Z"), &["created_at".to_owned()], FIVE).unwrap();
        assert_eq!(key.text, "2026-11-13T22:40:00Z/5m");
    }
}
