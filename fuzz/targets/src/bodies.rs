//! What senders post: JSON, forms, encodings, and the keys that are found in it.

use std::sync::LazyLock;

use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use sluice_domain::flow::DuplicateKeys;
use sluice_domain::key::fingerprint;
use sluice_domain::payload;
use sluice_domain::time::Time;
use sluice_server::config::{Files, compile};
use sluice_server::intake::{RequestMeta, prepare_all};
use sluice_server::revisions::LoadedRevision;

use crate::texts::Secrets;
use crate::{choice, line};

/// What is read once is read again from what it is written as, and the order of members is no part of a content.
pub(crate) fn json(input: &[u8]) {
    let _ = payload::parse_json(input, DuplicateKeys::Last);
    let Ok(value) = payload::parse_json(input, DuplicateKeys::Refuse) else { return };
    let written = value.to_string();
    let again = payload::parse_json(written.as_bytes(), DuplicateKeys::Refuse).expect("what was written is JSON");
    assert_eq!(again, value, "{written}");
    assert_eq!(fingerprint(&value, &[]), fingerprint(&turned(&value), &[]), "{written}");
    for lists in [vec![], vec!["entry".to_owned()], vec!["entry".to_owned(), "changes".to_owned()]] {
        if let Ok(events) = payload::split(value.clone(), &lists) {
            assert!(events.len() <= payload::EVENTS_MAX);
        }
    }
}

/// The same with the members of every object in the opposite order.
fn turned(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members.iter().rev().map(|(name, value)| (name.clone(), turned(value))).collect::<Map<_, _>>(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(turned).collect()),
        other => other.clone(),
    }
}

/// A form is an object or refused.
pub(crate) fn form(input: &[u8]) {
    if let Ok(value) = payload::parse_form(input, DuplicateKeys::Refuse) {
        assert!(value.is_object() || value.is_array());
    }
}

/// The first line is the content type.
pub(crate) fn multipart(input: &[u8]) {
    let (content_type, body) = line(input);
    let content_type = String::from_utf8_lossy(content_type);
    if let Ok(pairs) = payload::multipart_pairs(body, &content_type) {
        assert!(pairs.iter().map(|(_, value)| value.len()).sum::<usize>() <= body.len());
    }
    let _ = payload::parse_multipart(body, &content_type, DuplicateKeys::Refuse);
}

const FLOWS: &str = r#"
name: fields
triggers: [{ http: { path: /a, body_max: 4KiB, idempotency: { key_from: [body.id, body.email] } } }]
event: { type: body.type, identity: { email: "{{ body.email | lower | trim }}" }, attributes: [name, "a.b"] }
steps: [{ queue: leads, if: body.id }]
---
name: content
triggers: [{ http: { path: /b, body_max: 4KiB, idempotency: { key_from: { fingerprint: { volatile: [sent_at] } } }} }]
drop: [secret]
event: { type: lead, occurred_at: body.at }
steps: [{ queue: leads }]
---
name: fallback
triggers: [{ http: { path: /c, body_max: 4KiB, idempotency: { key_from: [header:X-Id] } } }]
event: { type: lead, id: body.id, identity: { phone: "{{ body.phone }}", email: "{{ body.email | normalize_email }}" } }
steps: [{ queue: leads }]
---
name: batch
triggers: [{ http: { path: /d, body_max: 4KiB, body: { events: [] }, idempotency: { key_from: body.id } } }]
event: { type: lead, attributes: [name], required: [attributes.name] }
steps: [{ queue: leads }]
---
queues: [leads]
"#;

static LIVE: LazyLock<LoadedRevision> = LazyLock::new(|| {
    let mut compiled = compile(&Files::from_texts([("a.yml", FLOWS)]), &Secrets);
    let config = compiled.config.take().unwrap_or_else(|| panic!("{:?}", compiled.problems));
    LoadedRevision::new(config, compiled.secrets).expect("there are no destinations")
});

fn prepare(flow: usize, headers: &HeaderMap, body: &[u8]) {
    let live = &*LIVE;
    let flow = live.config.flows.values().nth(flow % live.config.flows.len()).expect("there are flows");
    let arrival = RequestMeta { received_at: Time(1_790_000_000_000), verified_by: None, trace: "0" };
    let first = prepare_all(live, flow, headers, body, arrival);
    let again = prepare_all(live, flow, headers, body, arrival);
    match (first, again) {
        (Ok(first), Ok(again)) => {
            for (one, other) in first.iter().zip(&again) {
                assert_eq!(
                    (one.new.key, one.new.fingerprint),
                    (other.new.key, other.new.fingerprint),
                    "the same twice"
                );
                assert!(!one.key.text.is_empty());
            }
        }
        (Err(first), Err(again)) => {
            assert_eq!(first, again);
            assert!((400..500).contains(&first.status.as_u16()), "{first:?}");
        }
        (first, again) => panic!("{first:?} and then {again:?}"),
    }
}

/// The first byte chooses how the body is said to be encoded.
pub(crate) fn encoding(input: &[u8]) {
    const ENCODINGS: [&str; 6] = ["gzip", "deflate", "br", "zstd", "identity", "gzip, br"];
    const TYPES: [&str; 5] = [
        "application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin1",
        "",
    ];
    let (chosen, body) = choice(input);
    let headers = HeaderMap::from_iter([
        (CONTENT_ENCODING, HeaderValue::from_static(ENCODINGS[chosen % ENCODINGS.len()])),
        (CONTENT_TYPE, HeaderValue::from_static(TYPES[chosen / 8 % TYPES.len()])),
    ]);
    prepare(chosen / 64, &headers, body);
}

/// The first byte chooses the flow, the first line is a header, the rest the body.
pub(crate) fn key(input: &[u8]) {
    let (chosen, rest) = choice(input);
    let (header, body) = line(rest);
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    if let Ok(value) = HeaderValue::from_bytes(header) {
        headers.insert(HeaderName::from_static("x-id"), value);
    }
    prepare(chosen, &headers, body);
}
