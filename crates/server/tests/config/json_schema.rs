//! The JSON Schema for editors: it accepts a configuration with every key of the language and rejects typical mistakes.

use std::collections::BTreeSet;
use std::io;

use serde_json::Value;
use sluice_domain::verify::SecretValue;
use sluice_server::config::{Files, SecretSource, Severity, compile, documents, editor_schema, shipped};

use crate::editor;

const WHOLE: &str = include_str!("editor/whole.yml");

/// A secret source whose values are valid as a URL, as a user with a password and as a key;
/// `WHSEC` is one of Standard Webhooks.
#[derive(Debug)]
struct Fitting;

impl SecretSource for Fitting {
    fn lookup(&self, name: &str) -> io::Result<Option<SecretValue>> {
        Ok(Some(match name {
            "WHSEC" => SecretValue::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
            name => SecretValue::from(format!("https://{name}.example")),
        }))
    }

    fn describe(&self, name: &str) -> String {
        format!("set SLUICE_SECRET_{name}")
    }
}

fn whole() -> Vec<Value> {
    documents_of(&Files::from_texts([("whole.yml", WHOLE)]))
}

fn files(documents: &[Value]) -> Files {
    let documents = documents.iter().enumerate().map(|(n, document)| (format!("{n}.json"), document.to_string()));
    let others = [
        ("templates/thanks.subject", "Thanks\n"),
        ("templates/thanks.txt", "{{ vars.offer }}\n"),
        ("templates/thanks_short.subject", "Thanks\n"),
        ("templates/thanks_short.txt", "Thanks\n"),
        ("lists/gone.txt", "eve@example.com\n"),
    ];
    Files::from_texts(documents.chain(others.map(|(path, text)| (path.to_owned(), text.to_owned()))))
}

#[test]
fn configuration_with_every_key_is_valid() {
    let documents = whole();
    let compiled = compile(&files(&documents), &Fitting);
    let errors: Vec<_> = compiled.problems.iter().filter(|problem| problem.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    editor::accepts(&files(&documents));
    let mut used = BTreeSet::new();
    documents.iter().for_each(|document| names(document, &mut used));
    // The keys of connectors that ship are in their recorded answers.
    let is_shipped = |title: &str| {
        shipped().iter().any(|connector| {
            let actions = connector.actions.iter().map(|action| format!("with-{}", action.spec.name));
            title == format!("destination-{}", connector.definition.name)
                || actions.into_iter().any(|name| name == title)
        })
    };
    for (title, definition) in editor_schema()["definitions"].as_object().unwrap() {
        if is_shipped(title) {
            continue;
        }
        for name in definition["properties"].as_object().into_iter().flat_map(|members| members.keys()) {
            // A valid `signing_key` is a public key, which the secrets of this test are not.
            let is_excluded = name == "signing_key";
            assert!(is_excluded || used.contains(name), "`{name}` of {title} is missing in editor/whole.yml");
        }
    }
}

fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            found.insert(name.clone());
            names(value, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| names(item, found)),
        _ => {}
    }
}

fn documents_of(files: &Files) -> Vec<Value> {
    documents(files).into_iter().map(|(_, document)| document.unwrap()).collect()
}

/// A flow, a worker and sections; each mistake replaces one of its lines.
const GOOD: &str = "\
name: orders
triggers: [{ http: { path: /orders, verify: { scheme: stripe, secret: '${secrets.STRIPE}' }, body_max: 64KiB } }]
event: { type: order.placed }
steps: [{ queue: orders }]
---
name: to-crm
consumes: orders
retry: { max_attempts: 5, strategy: fixed, base_delay: 30s }
run: [{ name: send, run: http.request, destination: crm, with: { method: PUT, url: /orders } }]
---
queues: { orders: { retention: 7d } }
destinations: { crm: { type: http, base_url: 'https://crm.example', rate: 100/s } }
";

#[test]
fn typical_mistakes_are_rejected() {
    editor::accepts(&Files::from_texts([("good.yml", GOOD)]));
    for (part, mistake) in [
        ("path: /orders, ", ""),
        ("path: /orders", "path: orders"),
        ("scheme: stripe", "scheme: strype"),
        ("'${secrets.STRIPE}'", "whsec_plain"),
        ("body_max: 64KiB", "body_max: large"),
        ("body_max: 64KiB", "body_maximum: 64KiB"),
        ("steps: [{ queue: orders }]", "steps: []"),
        ("max_attempts: 5", "max_attempts: many"),
        ("max_attempts: 5", "max_attempts: -1"),
        ("strategy: fixed", "strategy: sometimes"),
        ("base_delay: 30s", "base_delay: soon"),
        ("run: http.request", "run: http.requests"),
        ("method: PUT", "methods: PUT"),
        ("type: http,", "type: htp,"),
        ("type: http,", ""),
        ("base_url: 'https://crm.example'", "base_url: crm.example"),
        ("rate: 100/s", "rate: fast"),
        ("retention: 7d", "retention: [7d]"),
    ] {
        assert!(GOOD.contains(part), "{part}");
        let files = Files::from_texts([("bad.yml", GOOD.replacen(part, mistake, 1))]);
        assert!(!editor::violations(&files).is_empty(), "the schema accepts `{mistake}` in place of `{part}`");
    }
}
