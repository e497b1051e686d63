use super::*;
use serde_json::json;

fn scope(body: Value) -> Scope {
    let mut scope = Scope::new();
    scope.set("body", body);
    scope.set("headers", json!({"idempotency-key": " \"k-1\" "}));
    scope
}

fn part(source: &str) -> KeyPart {
    KeyPart::Value(Expression::parse(source).unwrap())
}

fn parts(sources: &[&str]) -> KeyStrategy {
    KeyStrategy::Parts(sources.iter().map(|source| part(source)).collect())
}

fn find(strategies: &[KeyStrategy], body: Value) -> Result<DerivedKey, KeyProblem> {
    let mut mapping = EventMapping::plain("lead");
    mapping.source_event_id = Some(Template::Expression(Expression::parse("body.id").unwrap()));
    derive(strategies, &scope(body), KeyContext { source: "shop", mapping: &mapping })
}

#[test]
fn first_applicable_strategy_gives_the_key() {
    let strategies = [parts(&["body.id", "body.op"]), KeyStrategy::Header("idempotency-key".into())];
    assert_eq!(find(&strategies, json!({"id": 5, "op": "up"})).unwrap().text, "5|up");
    let second = find(&strategies, json!({"id": 5})).unwrap();
    let explained = second.explain(&strategies);
    assert_eq!((second.text.as_str(), explained.strategy.as_str()), ("k-1", "header:idempotency-key"));
    assert_eq!(
        (second.rank, explained.skipped.as_slice()),
        (1, &["body.id + body.op: body.op has no value".to_owned()][..])
    );
    let none = find(&strategies[..1], json!({})).unwrap_err();
    assert_eq!(none.to_string(), "no idempotency key: body.id + body.op has no value in this request");
}

#[test]
fn parts_are_joined_without_ambiguity() {
    let strategy = [parts(&["body.a", "body.b"])];
    let key = |a, b| find(&strategy, json!({"a": a, "b": b})).unwrap().text;
    assert_ne!(key("x|y", "z"), key("x", "y|z"));
}

#[test]
fn explanation_lists_the_parts_of_a_key() {
    let strategy = [KeyStrategy::Parts(vec![
        KeyPart::Source,
        KeyPart::EventType,
        KeyPart::EventId,
        part("email_hash(body.email)"),
    ])];
    let key = find(&strategy, json!({"id": "e-9", "email": " Ada@X.org "})).unwrap();
    let hash = PseudonymKey::public().digested(&normalize::email_hash("ada@x.org"));
    assert_eq!(key.text, format!("shop|lead|e-9|{hash}"));
    let explained = key.explain(&strategy);
    let shown: Vec<_> = explained.parts.iter().map(|part| (part.part.as_str(), part.value.as_str())).collect();
    assert_eq!(
        shown,
        [("source", "shop"), ("event_type", "lead"), ("event_id", "e-9"), ("email_hash(body.email)", hash.as_str())]
    );
    assert!(!key.by_content && key.adjacent.is_empty());
}

#[test]
fn personal_data_enters_a_key_as_a_digest() {
    let key = |source: &str| {
        find(&[parts(&[source])], json!({"email": "Ada@X.org", "phone": "+1 415 555 0123", "id": 14155550123u64}))
    };
    let pseudonyms = PseudonymKey::public();
    assert_eq!(key("body.email").unwrap().text, pseudonyms.email("ada@x.org"));
    assert_eq!(key("body.email | lower").unwrap().text, pseudonyms.email("ada@x.org"));
    assert_eq!(key("body.phone").unwrap().text, pseudonyms.phone("+14155550123"));
    let mixed = key("sha256(body.email) ~ '-' ~ body.id").unwrap().text;
    assert!(!mixed.contains(&normalize::sha256("Ada@X.org")), "{mixed}");
    assert_eq!(key("body.id").unwrap().text, "14155550123", "an id of as many digits as a phone number stays readable");
}

fn bucket_key(at: &str) -> DerivedKey {
    let at_field = Expression::parse("body.at").unwrap();
    let strategy =
        KeyStrategy::Bucket { parts: vec![part("body.cart")], at: at_field, width: Duration::from_secs(300) };
    find(&[strategy], json!({"cart": "c1", "at": at})).unwrap()
}

/// True if the second event is recognised by the first one's key or by a key adjacent to its own.
fn is_duplicate(first: &str, second: &str) -> bool {
    let (first, second) = (bucket_key(first), bucket_key(second));
    first.text == second.text || second.adjacent.contains(&first.text)
}

#[test]
fn events_across_a_bucket_edge_are_duplicates_and_events_ten_minutes_apart_are_not() {
    assert_eq!(bucket_key("2026-03-20T22:44:58Z").text, "c1|2026-03-20T22:40:00Z/5m");
    assert!(is_duplicate("2026-03-20T22:44:58Z", "2026-03-20T22:45:03Z"));
    assert!(is_duplicate("2026-03-20T22:45:03Z", "2026-03-20T22:44:58Z"), "in either order");
    assert!(!is_duplicate("2026-03-20T22:44:58Z", "2026-03-20T22:54:58Z"));
    let time = |seconds: i64| jiff::Timestamp::from_second(1_774_000_000 + seconds).unwrap().to_string();
    for start in (0..300).step_by(7) {
        for gap in (0..1_200).step_by(11) {
            for one in [is_duplicate(&time(start), &time(start + gap)), is_duplicate(&time(start + gap), &time(start))]
            {
                assert!(one || gap > 150, "{start} {gap}: events within half a bucket are duplicates");
                assert!(!one || gap < 450, "{start} {gap}: events one and a half buckets apart are distinct");
            }
        }
    }
}

#[test]
fn bucket_needs_a_time_set_by_the_sender() {
    let at = Expression::parse("body.at").unwrap();
    let strategy = KeyStrategy::Bucket { parts: vec![part("body.cart")], at, width: Duration::from_secs(300) };
    assert!(find(std::slice::from_ref(&strategy), json!({"cart": 1})).is_err());
    assert!(find(&[strategy], json!({"cart": 1, "at": "soon"})).is_err());
}

#[test]
fn part_that_is_missing_null_or_blank_has_no_value() {
    let strategy = [parts(&["body.a", "body.b"])];
    for b in [Value::Null, json!(""), json!(" \t"), json!([]), json!({})] {
        assert!(find(&strategy, json!({"a": 1, "b": b})).is_err(), "{b}");
    }
    assert_eq!(find(&strategy, json!({"a": 1, "b": 0})).unwrap().text, "1|0");
}

#[test]
fn fingerprint_after_parts_keeps_types_apart() {
    let strategy = [KeyStrategy::Fingerprint { parts: vec![part("body.type")], volatile: vec![] }];
    let key = find(&strategy, json!({"type": "a"})).unwrap();
    assert!(key.text.starts_with("a|") && key.by_content, "{key:?}");
    assert!(find(&strategy, json!({"id": 5})).is_err());
}

#[test]
fn headers_of_a_strategy_are_known() {
    let mut mapping = EventMapping::plain("lead");
    mapping.source_event_id = Some(Template::parse_text("{{ headers['X-Id'] | lower }}").unwrap());
    mapping.event_type = Template::parse_text("{{ headers.X-Topic }}").unwrap();
    let strategy = KeyStrategy::Parts(vec![KeyPart::EventType, KeyPart::EventId, part("request.headers.X-Shop")]);
    let names = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(names(strategy.identifying_headers(&mapping)), "x-id x-shop");
    assert_eq!(names(strategy.headers(&mapping)), "x-id x-shop x-topic");
    assert_eq!(names(KeyStrategy::Header("idempotency-key".into()).headers(&mapping)), "idempotency-key");
}
