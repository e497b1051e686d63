//! The value of `event` in expressions.

use serde_json::{Map, Value};

use super::{Audit, Event, EventId};
use crate::contact::ContactState;

/// Maximum number of JSON values in an event that is cached in decoded form. Bounds its memory beyond its texts, and stays
/// below the nesting limit of the JSON reader.
const CACHEABLE_VALUES_MAX: usize = 100;

impl Event {
    /// The value of `event` in expressions: the event's fields, plus the members of identity and attributes at the top
    /// level unless a field has the same name.
    pub fn to_scope(&self) -> Value {
        self.clone().into_scope()
    }

    /// Same as [`Event::to_scope`] without a copy.
    pub(crate) fn into_scope(self) -> Value {
        let Audit { received_at, raw_event_ref, normalized_event_ref, mapping_version, warnings } = self.audit;
        let warnings = serde_json::to_value(warnings).ok().filter(|warnings| *warnings != Value::Array(vec![]));
        let audit = [
            ("received_at", Value::String(received_at.to_string())),
            ("raw_event_ref", Value::String(raw_event_ref)),
            ("normalized_event_ref", Value::String(normalized_event_ref)),
            ("mapping_version", Value::String(mapping_version)),
        ];
        let audit = audit.into_iter().chain(warnings.map(|warnings| ("warnings", warnings)));
        let members = self.identity.len() + self.attributes.len();
        let fields = [
            ("schema_version", Some(Value::String(self.schema_version))),
            ("event_id", Some(Value::String(self.event_id))),
            ("event_type", Some(Value::String(self.event_type))),
            ("source", Some(Value::String(self.source))),
            ("occurred_at", self.occurred_at.map(|at| Value::String(at.to_string()))),
            ("idempotency_key", Some(Value::String(self.idempotency_key))),
            ("identity", Some(Value::Object(self.identity))),
            ("attributes", Some(Value::Object(self.attributes))),
            ("routing", Some(self.routing).filter(|routing| !routing.is_empty()).map(Value::Object)),
            ("audit", Some(Value::Object(audit.map(owned_name).collect()))),
        ];
        let mut event = Map::with_capacity(fields.len() + members);
        event.extend(fields.into_iter().filter_map(|(name, value)| Some(owned_name((name, value?)))));
        flatten(event)
    }

    /// Same as [`Event::to_scope`] from the JSON text of the event with this id.
    pub(crate) fn scope_of_text(text: &str, id: EventId) -> Result<Value, serde_json::Error> {
        let mut event: Value = serde_json::from_str(text)?;
        if let Some(members) = event.get_mut("audit").and_then(Value::as_object_mut) {
            let mut audit = Audit::default();
            audit.locate(id);
            members.insert("raw_event_ref".to_owned(), Value::String(audit.raw_event_ref));
            members.insert("normalized_event_ref".to_owned(), Value::String(audit.normalized_event_ref));
        }
        Ok(match event {
            Value::Object(event) => flatten(event),
            other => other,
        })
    }

    /// The value of `event` in expressions with the merged state of its contact: each field has the value that won, and fields
    /// that other events have set are there too.
    pub fn merged_scope(scope: &Value, state: &ContactState) -> Value {
        let mut event = Map::new();
        for name in BASE_FIELDS {
            event.extend(scope.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        for (field, registers) in state.fields() {
            let Some(((section, name), winner)) = field.split_once('.').zip(registers.first()) else { continue };
            if let Some(members) = event.get_mut(section).and_then(Value::as_object_mut) {
                members.insert(name.to_owned(), winner.value.clone());
            }
        }
        flatten(event)
    }

    /// The event, if it may be cached in decoded form instead of being parsed from its JSON text; `None` if it is too large.
    pub fn into_cacheable(self) -> Option<Event> {
        let mut budget = CACHEABLE_VALUES_MAX;
        let mut values = self.identity.values().chain(self.attributes.values()).chain(self.routing.values());
        values.all(|value| fits(value, &mut budget)).then_some(self)
    }

    /// Whether the value of `event` in expressions may be cached.
    pub fn is_cacheable(scope: &Value) -> bool {
        // Members of identity and attributes occur twice in it.
        fits(scope, &mut (2 * CACHEABLE_VALUES_MAX))
    }
}

/// Fields of an event.
const BASE_FIELDS: [&str; 10] = [
    "schema_version",
    "event_id",
    "event_type",
    "source",
    "occurred_at",
    "idempotency_key",
    "identity",
    "attributes",
    "routing",
    "audit",
];

fn owned_name((name, value): (&str, Value)) -> (String, Value) {
    (name.to_owned(), value)
}

/// Adds the members of identity and attributes at the top level, unless the name is taken.
fn flatten(mut event: Map<String, Value>) -> Value {
    let members = |name: &str| event.get(name).and_then(Value::as_object);
    let (identity, attributes) = (members("identity"), members("attributes"));
    let mut added = Vec::with_capacity(identity.map_or(0, Map::len) + attributes.map_or(0, Map::len));
    for (name, value) in [identity, attributes].into_iter().flatten().flatten() {
        if !event.contains_key(name) {
            added.push((name.clone(), value.clone()));
        }
    }
    for (name, value) in added {
        event.entry(name).or_insert(value);
    }
    Value::Object(event)
}

/// Charges each nested value to `budget`; false if it is exhausted.
fn fits(value: &Value, budget: &mut usize) -> bool {
    let Some(remaining) = budget.checked_sub(1) else { return false };
    *budget = remaining;
    match value {
        Value::Array(items) => items.iter().all(|item| fits(item, budget)),
        Value::Object(members) => members.values().all(|member| fits(member, budget)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LossCode, MappingWarning};
    use super::*;
    use crate::time::Time;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (-1e6..1e6).prop_map(|number: f64| Value::from((number * 100.0).round() / 100.0)),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                vec(("[a-zä\"\\\\]{0,3}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Some names equal those of event fields.
    fn section() -> impl Strategy<Value = Map<String, Value>> {
        let name = prop_oneof!["[a-z]{1,2}", "(occurred_at|routing|audit|identity|event_id|email)", ".{0,4}"];
        vec((name, value()), 0..5).prop_map(|members| members.into_iter().collect())
    }

    fn event() -> impl Strategy<Value = Event> {
        let time = || (0..4_000_000_000_000i64).prop_map(Time);
        let texts = (".{0,8}", ".{0,8}", ".{0,8}", ".{0,8}", ".{0,8}", ".{0,8}");
        (texts, proptest::option::of(time()), time(), section(), section(), section()).prop_map(
            |(texts, occurred_at, received_at, identity, attributes, routing)| Event {
                schema_version: texts.0,
                event_id: texts.1,
                event_type: texts.2,
                source: texts.3,
                occurred_at,
                idempotency_key: texts.4,
                identity,
                attributes,
                routing,
                audit: located(Audit {
                    received_at,
                    mapping_version: texts.5,
                    warnings: warnings(),
                    ..Audit::default()
                }),
            },
        )
    }

    fn warnings() -> Vec<MappingWarning> {
        vec![MappingWarning { field: "attributes.size".into(), code: LossCode::NotANumber }]
    }

    const ID: EventId = EventId([7; 16]);

    fn located(mut audit: Audit) -> Audit {
        audit.locate(ID);
        audit
    }

    /// Exact form: order of names and each bit of a number.
    fn exact(scope: &Value) -> String {
        format!("{scope} {scope:?}")
    }

    proptest! {
        #[test]
        fn cached_event_gives_the_same_scope_as_its_text(event in event()) {
            let text = serde_json::to_string(&event).unwrap();
            let read = Event::scope_of_text(&text, ID).unwrap();
            if let Some(cacheable) = event.into_cacheable() {
                let scope = cacheable.into_scope();
                prop_assert_eq!(exact(&scope), exact(&read));
                prop_assert_eq!(scope, read);
            }
        }

        #[test]
        fn number_survives_its_text_form(number in any::<f64>()) {
            let value = Value::from(number);
            let read: Value = serde_json::from_str(&value.to_string()).unwrap();
            prop_assert_eq!(value, read);
        }
    }

    #[test]
    fn merged_scope_has_the_winning_values_everywhere() {
        use crate::contact::{Observation, ObservedValue};
        let scope = flatten(
            serde_json::from_str(
                r#"{"event_type":"t","identity":{"email":"b@x"},"attributes":{"name":"Old","kept":1},"audit":{}}"#,
            )
            .unwrap(),
        );
        let value = |field: &str, value: &str| ObservedValue {
            field: field.to_owned(),
            value: Value::from(value),
            trust: 1,
            guarded: false,
        };
        let values =
            vec![value("identity.email", "a@x"), value("attributes.name", "New"), value("attributes.city", "Rome")];
        let mut state = ContactState::default();
        state.observe(&Observation { values, ..Observation::default() }, 1);
        let merged = Event::merged_scope(&scope, &state);
        for (path, expected) in [("/email", "a@x"), ("/identity/email", "a@x"), ("/name", "New"), ("/city", "Rome")] {
            assert_eq!(merged.pointer(path), Some(&Value::from(expected)), "{path}");
        }
        assert_eq!((&merged["kept"], &merged["event_type"]), (&Value::from(1), &Value::from("t")));
    }

    #[test]
    fn large_event_is_not_cacheable() {
        let of = |count: usize| Event {
            schema_version: String::new(),
            event_id: String::new(),
            event_type: String::new(),
            source: String::new(),
            occurred_at: None,
            idempotency_key: String::new(),
            identity: Map::new(),
            attributes: Map::from_iter([("items".to_owned(), Value::from(vec![0; count - 1]))]),
            routing: Map::new(),
            audit: Audit::default(),
        };
        assert!(of(CACHEABLE_VALUES_MAX).into_cacheable().is_some());
        assert!(of(CACHEABLE_VALUES_MAX + 1).into_cacheable().is_none());
    }
}
