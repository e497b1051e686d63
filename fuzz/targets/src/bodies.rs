//! Targets for request bodies: JSON, forms, content encodings, and the keys derived from them.

use std::sync::LazyLock;

use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use sluice_domain::flow::DuplicateKeys;
use sluice_domain::import::{ImportRow, formula_escaped, formula_unescaped};
use sluice_domain::key::fingerprint;
use sluice_domain::payload;
use sluice_domain::time::Time;
use sluice_server::config::{Files, compile};
use sluice_server::intake::{RequestMeta, prepare_all};
use sluice_server::revisions::LoadedRevision;

use crate::texts::Secrets;
use crate::{choice, line};

/// Serialized JSON parses to the same value, and the fingerprint does not depend on the order of members.
pub(crate) fn json(input: &[u8]) {
    let _ = payload::parse_json(input, DuplicateKeys::Last);
    let Ok(value) = payload::parse_json(input, DuplicateKeys::Refuse) else { return };
    let written = value.to_string();
    let reparsed = payload::parse_json(written.as_bytes(), DuplicateKeys::Refuse).expect("serialized JSON parses");
    assert_eq!(reparsed, value, "{written}");
    assert_eq!(fingerprint(&value, &[]), fingerprint(&reversed(&value), &[]), "{written}");
    for lists in [vec![], vec!["entry".to_owned()], vec!["entry".to_owned(), "changes".to_owned()]] {
        if let Ok(events) = payload::split(value.clone(), &lists) {
            assert!(events.len() <= payload::EVENTS_MAX);
        }
    }
}

/// A row is read or refused with a code; a cell that is written is read back.
pub(crate) fn import_row(input: &[u8]) {
    if let Ok(value) = payload::parse_json(input, DuplicateKeys::Refuse)
        && let Err(problem) = ImportRow::read(value, "leads", Some("at"))
    {
        assert!(!problem.code().is_empty() && problem.column().is_some(), "{problem}");
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    assert_eq!(formula_unescaped(&formula_escaped(text)), text);
    let cells: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(',')).collect();
    if let Ok(value) = ImportRow::from_cells(cells) {
        let _ = ImportRow::read(value, "leads", None);
    }
}

/// The value with the members of every object in reverse order.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members.iter().rev().map(|(name, value)| (name.clone(), reversed(value))).collect::<Map<_, _>>(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(reversed).collect()),
        other => other.clone(),
    }
}

/// A form parses to an object or a list, or is rejected.
pub(crate) fn form(input: &[u8]) {
    if let Ok(value) = payload::parse_form(input, DuplicateKeys::Refuse) {
        assert!(value.is_object() || value.is_array());
    }
}

/// The first line is the content type; the values are never longer than the body.
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

static REVISION: LazyLock<LoadedRevision> = LazyLock::new(|| {
    let mut compiled = compile(&Files::from_texts([("a.yml", FLOWS)]), &Secrets);
    let config = compiled.config.take().unwrap_or_else(|| panic!("{:?}", compiled.problems));
    LoadedRevision::new(config, compiled.secrets).expect("there are no destinations")
});

fn prepare(flow: usize, headers: &HeaderMap, body: &[u8]) {
    let revision = &*REVISION;
    let flow = revision.config.flows.values().nth(flow % revision.config.flows.len()).expect("there are flows");
    let meta = RequestMeta { received_at: Time(1_790_000_000_000), trace: "0", ..RequestMeta::default() };
    let first = prepare_all(revision, flow, headers, body, meta);
    let again = prepare_all(revision, flow, headers, body, meta);
    match (first, again) {
        (Ok(first), Ok(again)) => {
            for (one, other) in first.iter().zip(&again) {
                assert_eq!(
                    (one.new.key, one.new.fingerprint),
                    (other.new.key, other.new.fingerprint),
                    "not deterministic"
                );
                assert!(!one.key.text.is_empty());
            }
        }
        (Err(first), Err(again)) => {
            assert_eq!(first, again);
            assert!((400..500).contains(&first.status.as_u16()), "{first:?}");
        }
        (first, again) => panic!("not deterministic: {first:?}, then {again:?}"),
    }
}

/// The first byte selects the declared content encoding and type.
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

/// The first byte selects the flow, the first line is a header, the rest is the body.
pub(crate) fn key(input: &[u8]) {
    let (chosen, rest) = choice(input);
    let (header, body) = line(rest);
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    if let Ok(value) = HeaderValue::from_bytes(header) {
        headers.insert(HeaderName::from_static("x-id"), value);
    }
    prepare(chosen, &headers, body);
}
