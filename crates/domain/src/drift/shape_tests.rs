//! What is noticed, what is kept, and that both are bounded.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{ByNameAlone, PersonalPaths, SHAPES_MAX, Shapes, TYPES_MAX};
use super::*;

fn sample(payload: &Value, at: i64) -> PayloadSample<'_> {
    PayloadSample { payload, at: Time(at), personal: &ByNameAlone }
}

fn learned(payload: &Value, times: u64) -> Shape {
    let mut shape = Shape::default();
    for n in 0..times {
        assert_eq!(shape.learn(sample(payload, n as i64)).notices, []);
    }
    shape
}

fn lead() -> Value {
    json!({"id": 1, "email": "ada@example.com", "plan": "pro", "customer": {"age": 7}, "items": [{"sku": "a"}]})
}

/// Learns a payload this many times and returns what was noticed.
fn notices(shape: &mut Shape, payload: &Value, times: u32) -> Vec<String> {
    (0..times).flat_map(|_| shape.learn(sample(payload, 1_000)).notices).map(|notice| notice.to_string()).collect()
}

#[test]
fn a_new_field_is_noticed_once_and_with_it_what_is_inside() {
    let mut shape = learned(&lead(), LEARNED_AFTER);
    let mut payload = lead();
    payload["utm"] = json!({"source": "x", "medium": "y"});
    payload["phone"] = json!("+14155550123");
    assert_eq!(notices(&mut shape, &payload, 3), ["phone has appeared", "utm has appeared"]);
    let examples: Vec<&str> = shape.notices.iter().map(|notice| notice.example.as_str()).collect();
    assert_eq!(examples, ["+99999999999", "{source: x, medium: y}"]);
    assert_eq!(shape.accept(Some("utm")), 1);
    assert!(!shape.fields["utm.source"].is_new && shape.fields["phone"].is_new);
    assert_eq!((shape.accept(None), shape.notices.len()), (1, 0));
    assert_eq!(notices(&mut shape, &payload, 3), [""; 0]);
}

#[test]
fn a_shape_that_is_not_learned_yet_notices_nothing() {
    let mut shape = learned(&lead(), LEARNED_AFTER - 1);
    assert_eq!(notices(&mut shape, &json!({"id": "text", "other": 1}), 1), [""; 0]);
    assert!(!shape.fields["other"].is_new);
}

#[test]
fn a_field_that_is_gone_is_noticed_once_and_its_return_closes_the_notice() {
    let mut shape = learned(&lead(), LEARNED_AFTER);
    let mut payload = lead();
    payload.as_object_mut().unwrap().remove("customer");
    assert_eq!(notices(&mut shape, &payload, ABSENT_MIN - 1), [""; 0]);
    assert_eq!(notices(&mut shape, &payload, 50), ["customer is gone; 100 % of the requests had it"]);
    let back = shape.learn(sample(&lead(), 2_000));
    assert!(back.notices.is_empty() && back.is_urgent);
    assert_eq!(shape.notices, []);
    assert_eq!(notices(&mut shape, &payload, 60), ["customer is gone; 56 % of the requests had it"]);
    shape.accept(Some("customer"));
    assert!(!shape.fields.contains_key("customer") && !shape.fields.contains_key("customer.age"));
}

#[test]
fn null_is_the_absence_of_a_value_and_rare_fields_do_not_vanish() {
    let mut shape = Shape::default();
    for n in 0..200 {
        let payload = if n % 50 == 0 { json!({"id": 1, "rare": 1}) } else { json!({"id": 1, "rare": null}) };
        shape.learn(sample(&payload, n));
    }
    assert_eq!(notices(&mut shape, &json!({"id": 1}), 2_000), [""; 0]);
    assert_eq!(shape.fields["rare"].types.to_string(), "number");
}

#[test]
fn a_field_of_another_type_is_noticed_once_for_each_type() {
    let mut shape = learned(&lead(), LEARNED_AFTER);
    let retyped =
        json!({"id": "1-a", "email": "ada@example.com", "plan": "pro", "customer": {"age": 7}, "items": [{"sku": 4}]});
    assert_eq!(notices(&mut shape, &retyped, 3), ["id was number and is text", "items[].sku was text and is number"]);
    assert_eq!(notices(&mut shape, &lead(), 3), [""; 0], "both types come and go");
    assert_eq!(shape.accept(Some("id")), 1);
    assert_eq!(shape.fields["id"].types.to_string(), "text or number");
    assert_eq!(notices(&mut shape, &json!({"id": true}), 1)[0], "id was text or number and is flag");
}

#[test]
fn text_that_becomes_an_object_is_one_notice() {
    let mut shape = learned(&lead(), LEARNED_AFTER);
    let mut payload = lead();
    payload["plan"] = json!({"name": "pro", "seats": [4]});
    assert_eq!(notices(&mut shape, &payload, 2), ["plan was text and is object"]);
    assert_eq!(shape.accept(None), 1);
    assert!(shape.fields.values().all(|field| !field.is_new));
    assert_eq!(notices(&mut shape, &payload, 2), [""; 0]);
}

#[test]
fn notices_that_are_not_decided_become_the_new_normal() {
    let mut shape = learned(&lead(), LEARNED_AFTER);
    let mut payload = lead();
    payload["utm"] = json!("x");
    notices(&mut shape, &payload, 1);
    let week = NOTICE_AGE_MAX.as_millis() as i64;
    shape.learn(sample(&payload, 999 + week));
    assert_eq!(shape.notices.len(), 1);
    assert!(shape.learn(sample(&payload, 1_000 + week)).is_urgent);
    assert_eq!((shape.notices.len(), shape.fields["utm"].is_new), (0, false));
}

#[test]
fn typical_values_are_few_short_frequent_and_not_those_of_a_person() {
    let mut shape = Shape::default();
    let plans = ["pro", "free", "team"];
    for n in 0..200 {
        let payload = json!({
            "plan": plans[n % 3], "first_name": "Ada", "owner": "ada@example.com", "code": format!("c{n}"), "tel_nr": "555 0123",
            "note": "x", "flag": true, "field_7": "Ada", "once": if n == 60 { "secret word" } else { "usual" },
        });
        #[derive(Debug)]
        struct Mapped;
        impl PersonalPaths for Mapped {
            fn is_personal(&self, path: &str) -> bool {
                path == "field_7"
            }
        }
        shape.learn(PayloadSample { payload: &payload, at: Time(0), personal: &Mapped });
    }
    let typical = |path: &str| shape.fields[path].typical_values().join(" ");
    assert_eq!((typical("plan").as_str(), typical("once").as_str()), ("free pro team", "usual"));
    for personal in ["first_name", "owner", "code", "tel_nr", "note", "field_7"] {
        assert_eq!(typical(personal), "", "{personal}");
    }
    let stored = serde_json::to_string(&shape).unwrap();
    assert!(!stored.contains("Ada") && !stored.contains("ada@") && !stored.contains("secret word"), "{stored}");
}

#[test]
fn names_that_are_data_become_a_map() {
    let mut shape = Shape::default();
    let mut raised = 0;
    for n in 0..400 {
        let payload = json!({"id": 1, "by_day": { format!("day-{n}"): {"count": n} }});
        raised += shape.learn(sample(&payload, n)).notices.len();
    }
    assert!(shape.maps.contains("by_day"));
    assert!(shape.fields.contains_key("by_day.*.count"), "{:?}", shape.fields.keys());
    assert_eq!((shape.fields.len(), raised), (4, 0));
}

#[test]
fn types_and_sources_are_bounded() {
    let mut shapes = Shapes::default();
    let payload = json!({"a": 1});
    let learn = |shapes: &mut Shapes, source: &str, kind: usize| {
        shapes.learn(source, &format!("type-{kind}"), sample(&payload, 0)).is_some()
    };
    assert_eq!((0..100).filter(|kind| learn(&mut shapes, "a", *kind)).count(), TYPES_MAX);
    assert!(learn(&mut shapes, "a", 0) && learn(&mut shapes, "b", 0));
    assert!((0..300).any(|n| !learn(&mut shapes, &format!("s{n}"), 0)));
    assert_eq!(shapes.shapes.len(), SHAPES_MAX);
}

/// Payloads of a sender that may send anything.
fn payload() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,6}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-e]", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        ]
    })
}

fn sorted(notices: Vec<Notice>) -> Vec<String> {
    let mut texts: Vec<String> = notices.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

proptest! {
    #[test]
    fn any_traffic_is_bounded_and_each_departure_is_noticed_once(payloads in vec(payload(), 1..250)) {
        let mut shape = Shape::default();
        let mut all = Vec::new();
        for (n, payload) in payloads.iter().enumerate() {
            all.extend(shape.learn(sample(payload, n as i64)).notices);
            prop_assert!(shape.fields.len() <= PATHS_MAX && shape.notices.len() <= NOTICES_MAX);
        }
        let appeared = |notice: &&Notice| notice.kind == NoticeKind::Appeared;
        let mut paths: Vec<&String> = all.iter().filter(appeared).map(|notice| &notice.path).collect();
        paths.sort();
        let before = paths.len();
        paths.dedup();
        prop_assert_eq!(before, paths.len());
    }

    #[test]
    fn a_restart_at_any_time_changes_nothing(payloads in vec(payload(), 100..160), at in 0..160usize) {
        let (mut whole, mut restarted) = (Shape::default(), Shape::default());
        for (n, payload) in payloads.iter().enumerate() {
            if n == at {
                restarted = serde_json::from_str(&serde_json::to_string(&restarted).unwrap()).unwrap();
            }
            prop_assert_eq!(whole.learn(sample(payload, n as i64)), restarted.learn(sample(payload, n as i64)));
        }
        prop_assert_eq!(whole, restarted);
    }

    #[test]
    fn the_order_of_arrival_does_not_decide_what_has_appeared_or_changed_its_type(
        payloads in vec(payload(), 1..20),
        seed in any::<u64>(),
    ) {
        let base = json!({"a": 1, "b": "x", "c": {"d": true}});
        let mut shuffled = payloads.clone();
        let mut random = crate::random::Random::seeded(seed);
        for n in (1..shuffled.len()).rev() {
            shuffled.swap(n, (random.next_u64() % (n as u64 + 1)) as usize);
        }
        let noticed = |payloads: &[Value]| {
            let mut shape = learned(&base, LEARNED_AFTER);
            payloads.iter().for_each(|payload| drop(shape.learn(sample(payload, 0))));
            let kept = shape.fields.keys().cloned().collect::<Vec<_>>();
            (kept, shape.fields.iter().map(|(path, field)| (path.clone(), field.types.union(field.noticed))).collect::<Vec<_>>())
        };
        prop_assert_eq!(noticed(&payloads), noticed(&shuffled));
    }
}

#[test]
fn the_order_of_arrival_does_not_decide_the_notices_of_top_fields() {
    let payloads = [json!({"a": "1", "x": 1}), json!({"a": 1, "y": {"z": 1}}), json!({"a": true, "x": "t"})];
    let noticed = |order: [usize; 3]| {
        let mut shape = learned(&json!({"a": 1}), LEARNED_AFTER);
        sorted(order.iter().flat_map(|n| shape.learn(sample(&payloads[*n], 0)).notices).collect())
    };
    let expected = noticed([0, 1, 2]);
    assert_eq!(expected.len(), 4, "{expected:?}");
    for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        assert_eq!(noticed(order), expected);
    }
}
