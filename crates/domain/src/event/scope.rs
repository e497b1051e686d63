//! What expressions see as `event`.

use serde_json::{Map, Value};

use super::{Audit, Event};

/// Values in an event that is kept at hand. It bounds the memory that it takes beyond its texts, and stays below the depth to
/// which JSON is read.
const CACHEABLE_VALUES_MAX: usize = 100;

impl Event {
    /// What expressions see as `event`: the fields of the shape, and the members of identity and attributes
    /// directly, where no field of the shape has that name.
    pub fn to_scope(&self) -> Value {
        self.clone().into_scope()
    }

    /// The same of an event that is not needed otherwise.
    pub fn into_scope(self) -> Value {
        let Audit { received_at, raw_event_ref, mapping_version } = self.audit;
        let audit = [
            ("received_at", Value::String(received_at.to_string())),
            ("raw_event_ref", Value::String(raw_event_ref)),
            ("mapping_version", Value::String(mapping_version)),
        ];
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
            ("audit", Some(Value::Object(audit.map(named).into_iter().collect()))),
        ];
        let mut event = Map::with_capacity(fields.len() + members);
        event.extend(fields.into_iter().filter_map(|(name, value)| Some(named((name, value?)))));
        flattened(event)
    }

    /// The same from an event's JSON text. `raw_event_ref` is where its request is found.
    pub fn scope_of_text(text: &str, raw_event_ref: String) -> Result<Value, serde_json::Error> {
        let mut event: Value = serde_json::from_str(text)?;
        if let Some(audit) = event.get_mut("audit").and_then(Value::as_object_mut) {
            audit.insert("raw_event_ref".to_owned(), Value::String(raw_event_ref));
        }
        Ok(match event {
            Value::Object(event) => flattened(event),
            other => other,
        })
    }

    /// The event as it is read again from its JSON text, to be kept at hand instead. `None` if it is too large for that.
    pub fn into_cacheable(self) -> Option<Event> {
        let mut left = CACHEABLE_VALUES_MAX;
        let mut values = self.identity.values().chain(self.attributes.values()).chain(self.routing.values());
        values.all(|value| fits(value, &mut left)).then_some(self)
    }
}

fn named((name, value): (&str, Value)) -> (String, Value) {
    (name.to_owned(), value)
}

/// Identity and attributes are seen at the top too, where nothing else has their names.
fn flattened(mut event: Map<String, Value>) -> Value {
    let members = |name: &str| event.get(name).and_then(Value::as_object);
    let (identity, attributes) = (members("identity"), members("attributes"));
    let mut shown = Vec::with_capacity(identity.map_or(0, Map::len) + attributes.map_or(0, Map::len));
    for (name, value) in [identity, attributes].into_iter().flatten().flatten() {
        if !event.contains_key(name) {
            shown.push((name.clone(), value.clone()));
        }
    }
    for (name, value) in shown {
        event.entry(name).or_insert(value);
    }
    Value::Object(event)
}

/// Whether no more values lie in this one than are left.
fn fits(value: &Value, left: &mut usize) -> bool {
    let Some(fewer) = left.checked_sub(1) else { return false };
    *left = fewer;
    match value {
        Value::Array(items) => items.iter().all(|item| fits(item, left)),
        Value::Object(members) => members.values().all(|member| fits(member, left)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
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

    /// Some of the names are those of fields of the shape.
    fn section() -> impl Strategy<Value = Map<String, Value>> {
        let name = prop_oneof!["[a-z]{1,2}", "(occurred_at|routing|audit|identity|event_id|email)", ".{0,4}"];
        vec((name, value()), 0..5).prop_map(|members| members.into_iter().collect())
    }

    fn event() -> impl Strategy<Value = Event> {
        let time = || (0..4_000_000_000_000i64).prop_map(Time);
        let texts = (".{0,8}", ".{0,8}", ".{0,8}", ".{0,8}", ".{0,8}", ".{0,8}", ".{0,8}");
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
                audit: Audit { received_at, raw_event_ref: texts.5, mapping_version: texts.6 },
            },
        )
    }

    /// What is seen, down to the order of names and the last bit of each number.
    fn told(seen: &Value) -> String {
        format!("{seen} {seen:?}")
    }

    proptest! {
        #[test]
        fn an_event_at_hand_is_seen_as_its_text_would_be(event in event()) {
            let text = serde_json::to_string(&event).unwrap();
            let read = Event::scope_of_text(&text, event.audit.raw_event_ref.clone()).unwrap();
            if let Some(at_hand) = event.into_cacheable() {
                let seen = at_hand.into_scope();
                prop_assert_eq!(told(&seen), told(&read));
                prop_assert_eq!(seen, read);
            }
        }

        #[test]
        fn a_fraction_at_hand_is_the_one_that_is_read(number in any::<f64>()) {
            let value = Value::from(number);
            let read: Value = serde_json::from_str(&value.to_string()).unwrap();
            prop_assert_eq!(value, read);
        }
    }

    #[test]
    fn a_large_event_is_not_kept_at_hand() {
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
            audit: Audit { received_at: Time(0), raw_event_ref: String::new(), mapping_version: String::new() },
        };
        assert!(of(CACHEABLE_VALUES_MAX).into_cacheable().is_some());
        assert!(of(CACHEABLE_VALUES_MAX + 1).into_cacheable().is_none());
    }
}
