//! The event: an accepted, normalized request.

mod field;
mod mapping;
mod scope;
mod status;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::digest::DigestContext;
use crate::key::{KeyDigest, TENANT};
use crate::mutant::Mutant;
use crate::normalize;
use crate::path::{self, Path, Segment};
use crate::time::Time;
pub use field::{Converted, FieldForm, FieldMapping, LossCode, MappingWarning, Selection, is_time_format};
pub use mapping::{EventMapping, EventOrigin, MappingProblem};
pub use status::EventStatus;

/// Identifies an event in API responses, pages and logs.
///
/// Derived from the idempotency key, so that every node that accepts the same request gives it the same id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub [u8; 16]);

/// Crockford's alphabet in lower case, without padding: no characters that are confused when read.
pub(crate) static BASE32: std::sync::LazyLock<data_encoding::Encoding> = std::sync::LazyLock::new(|| {
    let mut spec = data_encoding::Specification::new();
    spec.symbols.push_str("0123456789abcdefghjkmnpqrstvwxyz");
    spec.translate.from.push_str("ABCDEFGHJKMNPQRSTVWXYZ");
    spec.translate.to.push_str("abcdefghjkmnpqrstvwxyz");
    spec.check_trailing_bits = false;
    spec.encoding().expect("the alphabet has 32 different symbols")
});

/// Generation of the next event under a key, after the expired one of this generation, if any.
pub fn next_generation(expired: Option<u32>) -> u32 {
    expired.map_or(0, |last| last + u32::from(!Mutant::GenerationReused.is_on()))
}

impl EventId {
    /// Id of the event that owns this key. A key that is reused after its expiry has another generation, and so another
    /// id.
    pub fn new(key: KeyDigest, generation: u32) -> EventId {
        if generation == 0 {
            return EventId(key.0);
        }
        static CONTEXT: DigestContext = DigestContext::new("sluice event id of a later generation");
        EventId(CONTEXT.of(|hasher| {
            hasher.update(&key.0).update(&generation.to_le_bytes());
        }))
    }

    /// Characters of a shortened id after `evt_`. They hold the first 64 bits, by which the ledger finds an event.
    pub const SHORT_CHARACTERS: usize = 13;

    /// Shortened form of the text of an id; any other text as it is.
    pub fn shortened(text: &str) -> &str {
        if EventId::parse(text).is_none() {
            return text;
        }
        text.get(..4 + EventId::SHORT_CHARACTERS).unwrap_or(text)
    }

    /// Parses a shortened id, or a longer part of an id: the smallest id that begins with it.
    pub fn parse_shortened(text: &str) -> Option<EventId> {
        let text = text.trim();
        let length = text.strip_prefix("evt_")?.len();
        if !(EventId::SHORT_CHARACTERS..=EventId::CHARACTERS).contains(&length) {
            return None;
        }
        EventId::parse(&format!("{text:0<width$}", width = 4 + EventId::CHARACTERS))
    }

    /// Characters after `evt_`.
    const CHARACTERS: usize = 26;

    /// Parses `evt_…`.
    pub fn parse(text: &str) -> Option<EventId> {
        let bytes = BASE32.decode(text.trim().strip_prefix("evt_")?.as_bytes()).ok()?;
        bytes.try_into().ok().map(EventId)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("evt_")?;
        f.write_str(BASE32.encode_mut_str(&self.0, &mut [0; EventId::CHARACTERS]))
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for EventId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An accepted request in the common form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Version of the event's form, set by the flow.
    pub schema_version: String,
    /// `source:id` with the source's own id, or with the idempotency key if the source sends none.
    pub event_id: String,
    /// Such as `lead.created`.
    pub event_type: String,
    pub source: String,
    /// Time of the event as given by the source.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub occurred_at: Option<Time>,
    pub idempotency_key: String,
    /// Person or thing that the event is about.
    pub identity: Map<String, Value>,
    pub attributes: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty", default)]
    pub routing: Map<String, Value>,
    pub audit: Audit,
}

/// Origin of an event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Time of arrival of the request.
    pub received_at: Time,
    /// Locates the stored request.
    pub raw_event_ref: String,
    /// Locates this event as it is stored. Missing in events of older releases.
    #[serde(default)]
    pub normalized_event_ref: String,
    /// Version of the mapping that produced this event.
    pub mapping_version: String,
    /// Fields whose conversion lost something.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub warnings: Vec<MappingWarning>,
}

impl Audit {
    /// Points to the event with this id. The id is not known before the event is stored.
    pub fn locate(&mut self, id: EventId) {
        let id = id.to_string();
        self.raw_event_ref = ["ledger://events/", &id, "/raw"].concat();
        self.normalized_event_ref = ["ledger://events/", &id, "/normalized"].concat();
    }
}

/// Identity fields that name the person whose data an event holds, in their order, each with the name of its digest.
const CONTACT_KINDS: [(&str, &str); 5] = [
    ("email", "contact:email"),
    ("phone_e164", "contact:phone"),
    ("phone", "contact:phone"),
    ("contact_external_id", "contact:contact_external_id"),
    ("external_id", "contact:external_id"),
];

fn contact_digest(kind: &str, value: &str) -> KeyDigest {
    KeyDigest::new(TENANT, kind, &normalize::email(value))
}

impl Event {
    /// True if the path, as expressions see it, has a value that is neither null nor blank text.
    pub fn has(&self, path: &Path) -> bool {
        let has_value = |value: Option<&Value>| match value {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.trim().is_empty(),
            Some(_) => true,
        };
        let within = |members: &Map<String, Value>, path: &[Segment]| match path {
            [Segment::Key(name), rest @ ..] => has_value(members.get(name).and_then(|member| path::find(rest, member))),
            _ => true,
        };
        let Some((root, rest)) = path.split_root() else { return true };
        match root {
            "identity" => within(&self.identity, rest),
            "attributes" => within(&self.attributes, rest),
            "routing" => within(&self.routing, rest),
            // Fields of the event itself, in the form that expressions see.
            "schema_version" | "event_id" | "event_type" | "source" | "occurred_at" | "idempotency_key" | "audit" => {
                has_value(path.find(&self.to_scope()))
            }
            _ if self.identity.contains_key(root) => within(&self.identity, &path.0),
            _ => within(&self.attributes, &path.0),
        }
    }

    /// Digest that identifies the person whose data this is: of the email address, else of the phone number, else of the
    /// source's id of the person.
    pub fn contact(&self) -> Option<KeyDigest> {
        CONTACT_KINDS.into_iter().find_map(|(name, kind)| {
            let value = self.identity.get(name).and_then(scalar).filter(|value| !value.trim().is_empty())?;
            Some(contact_digest(kind, &value))
        })
    }

    /// Every digest that [`Event::contact`] may have for this text: it may be an address, a number or an id.
    pub fn contacts_named(text: &str) -> Vec<KeyDigest> {
        if text.trim().is_empty() {
            return vec![];
        }
        let mut digests: Vec<KeyDigest> = CONTACT_KINDS.iter().map(|(_, kind)| contact_digest(kind, text)).collect();
        digests.dedup();
        digests
    }

    /// True if any identity field has a value.
    pub fn has_identity(&self) -> bool {
        self.identity.values().any(|value| scalar(value).is_some_and(|text| !text.trim().is_empty()))
    }

    /// Digest of the entity: the first identity field with a value, or the idempotency key. Lanes keep order per entity.
    pub fn entity(&self) -> u64 {
        let value = |name: &'static str| {
            let text = self.identity.get(name).and_then(scalar).filter(|text| !text.trim().is_empty())?;
            Some((name, text))
        };
        let identity =
            ["contact_external_id", "external_id", "email", "phone_e164", "phone"].into_iter().find_map(value);
        let (kind, value) = identity.unwrap_or_else(|| ("key", self.idempotency_key.clone()));
        static CONTEXT: DigestContext = DigestContext::new("sluice entity");
        u64::from_le_bytes(CONTEXT.of(|hasher| {
            hasher.update(kind.as_bytes()).update(&[0]).update(value.trim().to_lowercase().as_bytes());
        }))
    }
}

/// A non-empty scalar as text; `None` for null, lists and objects.
pub fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// Same as [`scalar`] without a copy.
pub(crate) fn into_scalar(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text).filter(|text| !text.is_empty()),
        other => scalar(&other),
    }
}

/// Parses a time: RFC 3339 text, a date and time without offset (as UTC), or a Unix time in seconds or milliseconds.
pub(crate) fn read_time(value: &Value) -> Option<Time> {
    match value {
        Value::String(text) => Time::parse(text)
            .or_else(|| {
                let local: jiff::civil::DateTime = text.parse().ok()?;
                Time::parse(&format!("{local}Z"))
            })
            .or_else(|| read_unix(text.parse().ok()?)),
        Value::Number(number) => read_unix(number.as_f64()?),
        _ => None,
    }
}

/// Seconds up to the year 5138, milliseconds from 1973 to 9999: the ranges do not overlap.
fn read_unix(number: f64) -> Option<Time> {
    let ms = if number < 1e11 { number * 1e3 } else { number };
    (number >= 0.0 && ms <= Time::MAX_DATE.0 as f64).then_some(Time(ms as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Path;
    use crate::template::{Scope, Template};
    use serde_json::json;

    fn template(text: &str) -> Template {
        Template::parse_text(text).unwrap()
    }

    fn mapping() -> EventMapping {
        EventMapping {
            event_type: template("lead.created"),
            source_event_id: Some(template("{{ body.id }}")),
            occurred_at: Some(template("{{ body.at }}")),
            identity: vec![
                ("contact_external_id".into(), template("facebook_leads:lead:{{ body.id }}").into()),
                ("email".into(), template("{{ body.email | lower | trim }}").into()),
            ],
            attributes: Some(vec![
                ("first_name".into(), template("{{ body.first }}").into()),
                ("gone".into(), template("{{ body.gone }}").into()),
            ]),
            routing: vec![("crm".into(), template("salesforce").into())],
            required: vec![("identity.email".into(), Path::parse("identity.email").unwrap())],
            ..EventMapping::plain("lead.created")
        }
    }

    fn apply(body: Value) -> Result<Event, MappingProblem> {
        let mut scope = Scope::new();
        scope.set("body", body);
        let id = EventId::new(KeyDigest([7; 16]), 0);
        mapping()
            .apply(&scope, EventOrigin { source: "facebook_leads", idempotency_key: "k", id, received_at: Time(1_000) })
    }

    #[test]
    fn mapping_fills_every_field() {
        let event =
            apply(json!({"id": 987, "at": "2026-03-22T12:34:56Z", "email": " Ada@Example.com ", "first": "Alex"}))
                .unwrap();
        assert_eq!(event.event_id, "facebook_leads:987");
        assert_eq!(event.occurred_at, Time::parse("2026-03-22T12:34:56Z"));
        assert_eq!(event.identity["email"], "ada@example.com");
        assert_eq!(event.identity["contact_external_id"], "facebook_leads:lead:987");
        assert_eq!(event.attributes, json!({"first_name": "Alex"}).as_object().unwrap().clone());
        assert_eq!(event.to_scope()["email"], "ada@example.com");
        let back: Event = serde_json::from_value(serde_json::to_value(&event).unwrap()).unwrap();
        assert_eq!(back, event);
    }

    #[test]
    fn missing_required_fields_are_named() {
        let problem = apply(json!({"id": 1, "at": 1774182896, "email": " "})).unwrap_err();
        assert_eq!(problem.to_string(), "missing required fields: identity.email");
        assert!(
            apply(json!({"id": 1, "at": "yesterday", "email": "a@b.c"})).unwrap_err().to_string().contains("yesterday")
        );
    }

    #[test]
    fn ids_round_trip_and_differ_by_generation() {
        let key = KeyDigest([9; 16]);
        let id = EventId::new(key, 0);
        assert_eq!(EventId::parse(&id.to_string()), Some(id));
        assert_eq!(EventId::parse(&id.to_string().to_uppercase().replace("EVT_", "evt_")), Some(id));
        assert_ne!(EventId::new(key, 1), id);
        assert_eq!(EventId::parse("evt_short"), None);
    }

    #[test]
    fn events_with_the_same_numeric_id_are_in_one_lane() {
        let event = |id: Value, key: &str| Event {
            identity: Map::from_iter([("external_id".to_owned(), id)]),
            idempotency_key: key.to_owned(),
            ..apply(json!({"id": 1, "email": "ada@example.com"})).unwrap()
        };
        assert_eq!(event(json!(7), "a").entity(), event(json!(7), "b").entity());
        assert_eq!(event(json!(7), "a").entity(), event(json!("7"), "b").entity());
        assert_ne!(event(json!(7), "a").entity(), event(json!(8), "a").entity());
        let with_email = |id: &str| {
            let mut event = event(json!(id), id);
            event.identity.insert("email".to_owned(), json!("ada@example.com"));
            event
        };
        assert_eq!(with_email("").entity(), with_email(" ").entity(), "a blank id is none");
    }

    #[test]
    fn entity_ignores_case() {
        let a = apply(json!({"id": 1, "email": "ada@example.com"})).unwrap();
        let b = apply(json!({"id": 1, "email": "ADA@example.com", "first": "x"})).unwrap();
        let c = apply(json!({"id": 2, "email": "ada@example.com"})).unwrap();
        assert_eq!(a.entity(), b.entity());
        assert_ne!(a.entity(), c.entity());
    }
}
