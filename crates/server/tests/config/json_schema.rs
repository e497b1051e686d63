//! One configuration with every key of the language, and every small mistake in it: what `check` refuses, the schema for
//! editors refuses too, and nothing else.

use std::collections::BTreeSet;
use std::io;

use serde_json::{Value, json};
use sluice_domain::verify::SecretValue;
use sluice_server::config::{Files, SecretSource, Severity, compile, documents, editor_schema};

use crate::editor;

const WHOLE: &str = include_str!("editor/whole.yml");

/// Knows every secret, and each is good for everything: a URL, a user with a password, a key.
#[derive(Debug)]
struct Fitting;

impl SecretSource for Fitting {
    fn lookup(&self, name: &str) -> io::Result<Option<SecretValue>> {
        Ok(Some(SecretValue::from(format!("https://{name}.example"))))
    }

    fn describe(&self, name: &str) -> String {
        format!("set SLUICE_SECRET_{name}")
    }
}

/// What one document cannot show, by the code of the problem.
const OUTSIDE: &[(&str, &str)] = &[
    ("ambiguous-destination", editor::NAMES),
    ("duplicate-name", editor::ITEMS),
    ("duplicate-path", editor::ITEMS),
    ("no-destination", editor::NAMES),
    ("no-flows", editor::NAMES),
    ("no-signing-secret", editor::NAMES),
    ("not-a-dead-letter-queue", editor::NAMES),
    ("unknown-destination", editor::NAMES),
    ("unknown-file", editor::NAMES),
    ("unknown-list", editor::NAMES),
    ("unknown-policy", editor::NAMES),
    ("unknown-queue", editor::NAMES),
    ("unknown-template", editor::NAMES),
    ("wrong-destination", editor::NAMES),
    ("template-needs-var", editor::MESSAGES),
    ("bad-expression", editor::EXPRESSIONS),
    ("unknown-name", editor::EXPRESSIONS),
    ("unknown-step", editor::EXPRESSIONS),
    ("contradiction", editor::TWO_VALUES),
    ("never-filled", editor::TWO_VALUES),
    // Of `slack:` in a question: which keys it needs goes by the destination.
    ("missing-slack", editor::NAMES),
];

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
fn the_whole_configuration_is_good_and_has_every_key() {
    let documents = whole();
    let compiled = compile(&files(&documents), &Fitting);
    let errors: Vec<_> = compiled.problems.iter().filter(|problem| problem.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    editor::accepts(&files(&documents));
    let mut used = BTreeSet::new();
    documents.iter().for_each(|document| names(document, &mut used));
    for (title, definition) in editor_schema()["definitions"].as_object().unwrap() {
        for name in definition["properties"].as_object().into_iter().flat_map(|members| members.keys()) {
            // It would have to be the other half of a public key.
            let is_kept_out = name == "signing_key";
            assert!(is_kept_out || used.contains(name), "`{name}` of {title} stands nowhere in editor/whole.yml");
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

#[test]
fn every_small_mistake_in_a_flow() {
    hold(whole().iter().filter(|document| document.get("triggers").is_some()));
}

#[test]
fn every_small_mistake_in_a_worker() {
    let works = |document: &&Value| document.get("run").or(document.get("steps")).is_some();
    hold(whole().iter().filter(works).filter(|document| document.get("triggers").is_none()));
}

#[test]
fn every_small_mistake_in_sections() {
    hold(whole().iter().filter(|document| document.get("name").is_none()));
}

/// What the documents of the configuration name, in short: a small document is looked at much faster than all of them.
const OTHERS: &str = "\
queues: {orders: {dead_letter_queue: orders-dlq}, big-orders: , orders-dlq: }
destinations:
  directory: {type: http, base_url: 'https://directory.example'}
  crm: {type: salesforce, instance_url: 'https://acme.my.salesforce.com', auth: {token: '${secrets.CRM}'}}
  db: {type: postgres, url: '${secrets.DB}'}
  mail: {type: smtp, host: mail.example, from: shop@example.com}
  chat: {type: slack, token: '${secrets.SLACK}', signing_secret: '${secrets.SIGNING}'}
  hook: {type: slack, webhook_url: '${secrets.HOOK}'}
policies: {marketing: {rules: [{daily: 1}]}, careful: {rules: [{daily: 1}]}}
";

const SMALL: &str = "\
name: small-flow
triggers: {http: {path: /small}}
event: {type: order.placed}
---
name: small-playbook
on: order.placed
run: [{name: tell, run: script, command: ls}]
";

/// Makes every mistake in these documents, one at a time.
fn hold<'d>(documents: impl Iterator<Item = &'d Value>) {
    let read = |text: &str| documents_of(&Files::from_texts([("a.yml", text)]));
    let (small, others) = (read(SMALL), read(OTHERS));
    let (mut wrong, mut count, mut seen) = (vec![], 0, BTreeSet::new());
    for unit in documents.flat_map(units) {
        let mut all = vec![Value::Null];
        all.extend(small.iter().cloned());
        if unit.get("name").is_some() {
            all.extend(others.iter().cloned());
        }
        for (what, mutant) in mutants(&unit, &mut seen) {
            all[0] = mutant;
            count += 1;
            let compiled = compile(&files(&all), &Fitting);
            let errors = compiled.problems.iter().filter(|problem| problem.severity == Severity::Error);
            let codes: BTreeSet<&str> = errors
                .map(|problem| match problem.message.starts_with("`slack` needs") {
                    true => "missing-slack",
                    false => problem.code,
                })
                .collect();
            let is_outside = |code: &&str| OUTSIDE.iter().any(|(outside, _)| outside == code);
            let visible: Vec<&str> = codes.iter().copied().filter(|code| !is_outside(code)).collect();
            let said = editor::refuses(&all[0]);
            let foreign = compiled.problems.iter().any(|problem| problem.code == "not-ours");
            if !visible.is_empty() && said.is_empty() {
                wrong.push(format!("the schema accepts {what}, which `check` refuses: {visible:?}"));
            } else if codes.is_empty() && !foreign && !said.is_empty() {
                wrong.push(format!("the schema refuses {what}, which `check` accepts: {said:?}"));
            }
        }
    }
    assert!(count > 500, "only {count} mistakes were made");
    assert!(wrong.is_empty(), "{} of {count} differ\n{}", wrong.len(), wrong.join("\n"));
}

fn documents_of(files: &Files) -> Vec<Value> {
    documents(files).into_iter().map(|(_, document)| document.unwrap()).collect()
}

/// The parts of a document that can stand alone: one trigger, one step, one queue, destination or policy.
fn units(document: &Value) -> Vec<Value> {
    let members = document.as_object().unwrap();
    let with = |key: &str, value: Value| {
        let mut unit = match members.contains_key("name") {
            true => members.clone(),
            false => serde_json::Map::new(),
        };
        unit.insert(key.to_owned(), value);
        Value::Object(unit)
    };
    let mut found = vec![];
    for key in ["triggers", "run", "queues", "destinations", "policies"] {
        match members.get(key) {
            Some(Value::Array(items)) => found.extend(items.iter().map(|item| with(key, json!([item])))),
            Some(Value::Object(items)) => {
                found.extend(items.iter().map(|(name, item)| with(key, json!({ name: item }))));
            }
            _ => {}
        }
    }
    if found.is_empty() { vec![document.clone()] } else { found }
}

/// Every document that differs from this one in one place that was not seen before with the same content.
fn mutants(document: &Value, seen: &mut BTreeSet<String>) -> Vec<(String, Value)> {
    let mut pointers = vec![];
    collect(document, String::new(), &mut pointers);
    let mut found = vec![];
    for pointer in pointers {
        let here = document.pointer(&pointer).unwrap();
        let mut values: Vec<Value> = wrong_values().into_iter().chain([json!([here]), json!({ "a": here })]).collect();
        let keys: String = pointer.chars().filter(|c| !c.is_ascii_digit()).collect();
        if !seen.insert(format!("{keys} {here}")) {
            continue;
        }
        if let Value::Object(members) = here {
            for name in members.keys() {
                let mut less = members.clone();
                let value = less.shift_remove(name).unwrap();
                values.push(Value::Object(less.clone()));
                less.insert(format!("{name}x"), value);
                values.push(Value::Object(less));
            }
            let mut more = members.clone();
            more.insert("zzz".into(), json!(1));
            values.push(Value::Object(more));
        }
        if let Value::Array(items) = here {
            values.push(Value::Array(items.iter().chain(&items[..1]).cloned().collect()));
        }
        // A document of nothing at all is none.
        for value in values.into_iter().filter(|value| value != here && !(pointer.is_empty() && value.is_null())) {
            let mut copy = document.clone();
            let what = format!("{pointer} = {value:.200}");
            *copy.pointer_mut(&pointer).unwrap() = value;
            found.push((what, copy));
        }
    }
    found
}

fn wrong_values() -> Vec<Value> {
    let texts = ["", " ", "no such thing", "nosuchthing", "0s", "5000d", "{{ event.x }}", "{{ event.x", "${secrets.A}"];
    let others = [json!(null), json!([]), json!({}), json!(0), json!(-1), json!(1.5), json!(100_000_000), json!(true)];
    texts.into_iter().map(Value::from).chain(others).collect()
}

/// The place of every value, as a JSON Pointer.
fn collect(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| collect(value, format!("{at}/{name}"), found));
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(n, item)| collect(item, format!("{at}/{n}"), found)),
        _ => {}
    }
    found.push(at);
}
