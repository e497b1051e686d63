//! The `contacts:` section: which fields identify a contact, and how far sources are trusted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::identity::Identifier;
use super::late_identity::CorrelationRule;
use super::{Observation, ObservedValue, VALUE_BYTES_MAX};
use crate::event::{Event, scalar};
use crate::key::{KeyDigest, TENANT};
use crate::normalize;

/// Trust of a source that is not named.
pub const TRUST_DEFAULT: u8 = 50;
pub const TRUST_MAX: u8 = 100;

/// How events become contacts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContactRules {
    /// In the order of precedence.
    pub identifiers: Vec<IdentifierRule>,
    /// Trust of every source that is not named.
    pub trust: u8,
    pub sources: BTreeMap<String, SourceTrust>,
    /// Identity fields that a newer value may replace.
    pub replaceable: BTreeSet<String>,
    /// Fields that link an event without an identity with a later one of its source.
    pub correlate: Vec<CorrelationRule>,
    pub on_conflict: OnConflict,
}

/// What becomes of an event whose identifiers belong to several contacts, or contradict the one that they belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// The first identifier decides; the others are kept apart.
    #[default]
    First,
    /// The event is quarantined until an operator has decided.
    Quarantine,
}

/// An identity field that identifies a contact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifierRule {
    /// Name of the identity field.
    pub field: String,
    /// The same value from two sources means the same contact. Always so for email addresses and phone numbers.
    pub shared: bool,
}

/// How far a source is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceTrust {
    pub trust: Option<u8>,
    /// By the name of the field.
    pub fields: BTreeMap<String, u8>,
}

/// What the value of an identity field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdentifierKind {
    Email,
    Phone,
    Id,
}

impl IdentifierRule {
    pub fn new(field: &str) -> IdentifierRule {
        IdentifierRule { field: field.to_owned(), shared: false }
    }

    fn kind(&self) -> IdentifierKind {
        match self.field.as_str() {
            "email" => IdentifierKind::Email,
            "phone" | "phone_e164" => IdentifierKind::Phone,
            _ => IdentifierKind::Id,
        }
    }

    /// The kind as it is stored and shown. An id counts for its source, unless it is shared.
    fn kind_name(&self, source: &str) -> String {
        match self.kind() {
            IdentifierKind::Email => "email".to_owned(),
            IdentifierKind::Phone => "phone".to_owned(),
            IdentifierKind::Id if self.shared => self.field.clone(),
            IdentifierKind::Id => format!("{} of {source}", self.field),
        }
    }

    /// The identifier of this text. `None` for a phone number without country code: another person may have it elsewhere.
    pub fn identifier(&self, source: &str, text: &str) -> Option<Identifier> {
        let value = self.normalized(text)?;
        let kind = self.kind_name(source);
        let digest = KeyDigest::new(TENANT, &format!("identifier:{kind}"), &value);
        Some(Identifier { kind, digest, single: self.kind() == IdentifierKind::Id })
    }

    /// The identifier of a value as an event has it. True and false identify no one.
    pub(super) fn identifier_of(&self, source: &str, value: &Value) -> Option<Identifier> {
        let text = scalar(value).filter(|_| !value.is_boolean())?;
        self.identifier(source, &text)
    }

    /// The text in the form that is compared. `None` if it identifies no one: everybody who has no value may have the same text, such as
    /// `undefined`, `+1` or the customer number 0 of guests.
    pub(super) fn normalized(&self, text: &str) -> Option<String> {
        let text = text.trim();
        if is_placeholder(text) {
            return None;
        }
        match self.kind() {
            IdentifierKind::Email => Some(normalize::email(text)).filter(|email| is_address(email)),
            IdentifierKind::Phone => normalize::international(text),
            IdentifierKind::Id => Some(text.to_owned()),
        }
    }

    /// What a usable value looks like, behind a message.
    pub(super) fn hint(&self) -> &'static str {
        match self.kind() {
            IdentifierKind::Email => ": an address has an @",
            IdentifierKind::Phone => ": a number begins with + and the country code",
            IdentifierKind::Id => ": it is blank, zero, or a word for no value",
        }
    }
}

impl ContactRules {
    /// What an event says about its contact. Its identifiers are empty if it identifies none.
    pub fn observe(&self, event: &Event) -> Observation {
        let mut identifiers: Vec<Identifier> = Vec::with_capacity(self.identifiers.len());
        for rule in &self.identifiers {
            let value = event.identity.get(&rule.field);
            if let Some(identifier) = value.and_then(|value| rule.identifier_of(&event.source, value))
                && !identifiers.iter().any(|other| other.digest == identifier.digest)
            {
                identifiers.push(identifier);
            }
        }
        let mut values = Vec::with_capacity(event.identity.len() + event.attributes.len());
        for (section, members) in [("identity", &event.identity), ("attributes", &event.attributes)] {
            values.extend(self.values(section, members, &event.source));
        }
        Observation {
            identifiers,
            values,
            source: Arc::from(event.source.as_str()),
            occurred_at: event.occurred_at,
            received_at: event.audit.received_at,
            on_conflict: self.on_conflict,
            correlation: self.correlation(event),
        }
    }

    fn values<'a>(
        &'a self,
        section: &'a str,
        members: &'a Map<String, Value>,
        source: &'a str,
    ) -> impl Iterator<Item = ObservedValue> + 'a {
        // The first value of a guarded field stays: one that identifies no one would keep the real one out.
        let is_usable = move |name: &str, value: &Value| {
            let rule = self.identifiers.iter().find(|rule| section == "identity" && rule.field == name);
            rule.is_none_or(|rule| rule.identifier_of(source, value).is_some())
        };
        let said = members.iter().filter(move |(name, value)| says_something(value) && is_usable(name, value));
        said.map(move |(name, value)| ObservedValue {
            field: format!("{section}.{name}"),
            value: value.clone(),
            trust: self.trust(source, name),
            guarded: section == "identity" && !self.replaceable.contains(name),
        })
    }

    /// Trust of a source for a field.
    pub fn trust(&self, source: &str, field: &str) -> u8 {
        let of_source = self.sources.get(source);
        let of_field = of_source.and_then(|of_source| of_source.fields.get(field).copied());
        of_field.or_else(|| of_source.and_then(|of_source| of_source.trust)).unwrap_or(self.trust)
    }

    /// Every identifier that a text may be: an address, a number or an id of one of the sources.
    pub fn identifiers_named<'a>(&self, text: &str, sources: impl IntoIterator<Item = &'a str>) -> Vec<Identifier> {
        let mut identifiers: Vec<Identifier> = Vec::new();
        for source in sources {
            for identifier in self.identifiers.iter().filter_map(|rule| rule.identifier(source, text)) {
                if !identifiers.contains(&identifier) {
                    identifiers.push(identifier);
                }
            }
        }
        identifiers
    }
}

/// What senders put where they have no value.
const PLACEHOLDERS: [&str; 7] = ["null", "none", "undefined", "unknown", "nan", "n/a", "[object object]"];

/// Whether a text stands for no value: blank, zeros such as a nil UUID, or a word for nothing.
pub(super) fn is_placeholder(text: &str) -> bool {
    let is_zero = text.chars().all(|c| matches!(c, '0' | '-' | '.' | ' '));
    is_zero || PLACEHOLDERS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn is_address(email: &str) -> bool {
    email.rsplit_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty())
}

/// Null and blank text say nothing about a field; a value that is too long is not merged.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty() && text.len() <= VALUE_BYTES_MAX,
        Value::Array(_) | Value::Object(_) => value.to_string().len() <= VALUE_BYTES_MAX,
        Value::Bool(_) | Value::Number(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Audit;
    use crate::time::Time;
    use serde_json::json;

    fn event(source: &str, identity: Value) -> Event {
        let members = |value: Value| value.as_object().cloned().unwrap_or_default();
        Event {
            schema_version: "1.0".to_owned(),
            event_id: "x".to_owned(),
            event_type: "lead.created".to_owned(),
            source: source.to_owned(),
            occurred_at: None,
            idempotency_key: "k".to_owned(),
            identity: members(identity),
            attributes: members(json!({"first_name": "Ada", "last_name": " ", "age": null, "long": "x".repeat(5_000)})),
            routing: Map::new(),
            audit: Audit { received_at: Time(5), ..Audit::default() },
        }
    }

    fn rules() -> ContactRules {
        ContactRules {
            identifiers: ["external_id", "email", "phone_e164", "phone"].map(IdentifierRule::new).to_vec(),
            trust: TRUST_DEFAULT,
            ..ContactRules::default()
        }
    }

    #[test]
    fn identifiers_are_normalized_and_ids_count_for_their_source() {
        let of = |source: &str, identity| rules().observe(&event(source, identity)).identifiers;
        let a = of("shop", json!({"external_id": 7, "email": " Ada@X.org", "phone": "+1 (415) 555-0123"}));
        let b = of("forms", json!({"external_id": "7", "email": "ada@x.org", "phone_e164": "+14155550123"}));
        assert_eq!((a.len(), b.len()), (3, 3));
        assert_ne!(a[0], b[0], "two sources count their ids apart");
        assert_eq!((&a[1], &a[2]), (&b[1], &b[2]));
        assert!(a[0].single && !a[1].single);
        let shared = IdentifierRule { shared: true, ..IdentifierRule::new("external_id") };
        assert_eq!(shared.identifier("shop", "7"), shared.identifier("forms", "7"));
        assert_eq!(of("shop", json!({"phone": "555-0123", "email": "nobody", "external_id": " "})), []);
        assert_eq!(of("shop", json!({"phone": "+14155550123", "phone_e164": "+14155550123"})).len(), 1);
    }

    #[test]
    fn values_that_everybody_without_one_has_identify_no_one() {
        let of = |field: &str, value: Value| {
            let observation = rules().observe(&event("shop", json!({ field: value })));
            let values = observation.values.iter().filter(|value| value.field.starts_with("identity.")).count();
            (observation.identifiers.len(), values)
        };
        for value in [json!(0), json!("0"), json!("null"), json!("Undefined"), json!("N/A"), json!(false), json!("-")] {
            assert_eq!(of("external_id", value.clone()), (0, 0), "{value}");
        }
        for value in ["@", "ada@", "@x.org", "n/a"] {
            assert_eq!(of("email", json!(value)), (0, 0), "{value}");
        }
        for value in ["+", "+1", "+49 ", "+1 000 000 0000", "555-0123"] {
            assert_eq!(of("phone", json!(value)), (0, 0), "{value}");
        }
        assert_eq!(of("external_id", json!("a0")), (1, 1));
        assert_eq!(of("plan", json!("none")), (0, 1), "not an identifier");
        let phone = |text: &str| rules().observe(&event("shop", json!({ "phone": text }))).identifiers;
        assert_ne!(phone("+1 415 555 0123 x7"), phone("+1 415 555 0123 x8"), "two people at one switchboard");
    }

    #[test]
    fn values_that_say_nothing_are_left_out() {
        let observation = rules().observe(&event("shop", json!({"email": "ada@x.org"})));
        let names: Vec<&str> = observation.values.iter().map(|value| value.field.as_str()).collect();
        assert_eq!(names, ["identity.email", "attributes.first_name"]);
        assert!(observation.values[0].guarded && !observation.values[1].guarded);
    }

    #[test]
    fn trust_is_that_of_the_field_then_the_source() {
        let mut rules = rules();
        let fields = BTreeMap::from([("phone".to_owned(), 10)]);
        rules.sources.insert("ads".to_owned(), SourceTrust { trust: Some(30), fields });
        assert_eq!((rules.trust("ads", "phone"), rules.trust("ads", "x"), rules.trust("shop", "x")), (10, 30, 50));
    }

    #[test]
    fn a_text_is_looked_up_as_every_identifier_that_it_may_be() {
        let named = rules().identifiers_named("Ada@x.org", ["shop", "forms"]);
        let kinds: Vec<&str> = named.iter().map(|identifier| identifier.kind.as_str()).collect();
        assert_eq!(kinds, ["external_id of shop", "email", "external_id of forms"]);
    }
}
