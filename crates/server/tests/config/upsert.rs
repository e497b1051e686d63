//! `http.upsert` and `upsert:` of a connector: what is read, and what `check` says about a mistake.

use std::time::Duration;

use sluice_domain::action::Action;
use sluice_domain::outcome::EffectClass;
use sluice_server::config::{Files, compile};

use crate::editor;

const REST: &str = "
name: in
triggers: [{http: {path: /in, verify: none, idempotency: {key_from: body.id}}}]
event: {type: lead, identity: {email: body.email}}
steps: [{queue: jobs}]
queues: [jobs]
---
destinations:
  crm: {type: http, base_url: 'https://crm.example', straggler_horizon: 0s}
---
name: w
consumes: jobs
run:
  - name: party
    run: http.upsert
    destination: crm
    with:
";

const GOOD: &str = "
identity: '{{ event.email }}'
find: {url: '/people/{{ event.email }}', id: /id}
create: {url: /people, json: {email: '{{ event.email }}'}, id: /id}
update: {url: '/people/{id}', json: {ids: [null]}, id_at: /ids/0}
error_at: /error
";

fn files(with: &str) -> Files {
    let with: String = with.lines().filter(|line| !line.is_empty()).map(|line| format!("      {line}\n")).collect();
    Files::from_texts(vec![("all.yml", format!("{REST}{with}"))])
}

/// Codes and messages of what is wrong, but for what these fragments of a configuration lack.
fn problems(files: &Files) -> String {
    let compiled = compile(files, &editor::AnySecret);
    let own = compiled.problems.iter().filter(|problem| !["open-to-everybody", "no-flows"].contains(&problem.code));
    own.map(|problem| format!("{}: {}", problem.code, problem.message)).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_upsert_is_verifiable_and_a_horizon_of_zero_is_kept() {
    let files = files(GOOD);
    let config = editor::valid((compile(&files, &editor::AnySecret), files));
    let step = &config.workers["w"].steps[0];
    assert_eq!((step.action, step.class), (Action::HttpUpsert, EffectClass::Verifiable));
    assert_eq!(config.destinations["crm"].straggler_horizon, Some(Duration::ZERO));
}

#[test]
fn mistakes_of_an_upsert_are_reported() {
    let table = [
        ("identity: '{{ event.email }}'", "", "missing-parameter: http.upsert needs the parameter `identity`"),
        (", id: /id}\ncreate", "}\ncreate", "missing-parameter: `find` needs `id`"),
        ("create: {url: /people, ", "create: {", "missing-parameter: `create` needs `url`"),
        ("id: /id}\ncreate", "id: id}\ncreate", "wrong-type: `id` must be a JSON pointer"),
        ("error_at: /error", "error_at: error", "wrong-type: `error_at` must be a JSON pointer"),
        ("id_at: /ids/0", "id_at: /ids/7", "bad-value: the body of `update` has no place `/ids/7`"),
        ("id_at: /ids/0", "id_at: ids", "wrong-type: `id_at` must be a JSON pointer, or a list of them"),
        (
            "update: {url: '/people/{id}', json: {ids: [null]}, id_at: /ids/0}",
            "update: {url: /people, json: {a: 1}}",
            "missing-parameter: `update` does not name its record",
        ),
        ("find: {url", "find: {method: HEAD, url", "wrong-type: `find.method` must be GET, POST, PUT, PATCH, DELETE"),
        ("find: {url", "find: {ulr: a, url", "unknown-parameter: `find` has no key `ulr`"),
        ("json: {email", "text: a, json: {email", "exclusive-keys: a request has one body: `json`, `form` or `text`"),
        ("error_at: /error", "retry_on: busy", "unused-key: `retry_on` is not used without `error_at`"),
    ];
    assert_eq!(problems(&files(GOOD)), "");
    for (old, new, expected) in table {
        assert_eq!(GOOD.matches(old).count(), 1, "{old}");
        let found = problems(&files(&GOOD.replace(old, new)));
        assert!(found.contains(expected), "{new}: {found}");
    }
}

const CONNECTOR: &str = "
connector: x-crm
about: A CRM.
base_url: https://crm.example
actions:
  x-crm.party:
    about: Writes a party.
    parameters: {email: {required: true, about: Address.}}
    effect: verifiable
    because: It is looked for.
    request: {url: /parties, json: {email: '{{ with.email }}'}}
    upsert:
      identity: '{{ with.email }}'
      find: {request: {method: GET, url: /parties}, records: response.body.parties, id: record.id}
      id: response.body.id
      update: {method: PATCH, url: '/parties/{{ record.id }}'}
";

#[test]
fn mistakes_of_the_upsert_of_a_connector_are_reported() {
    let problems = |text: String| problems(&Files::from_texts(vec![("all.yml", text)]));
    let table = [
        ("effect: verifiable", "effect: natural", "contradiction: an action with `upsert` is verifiable"),
        ("    upsert:", "    result: {a: b}\n    upsert:", "unused-key: `result` is not used with `upsert`"),
        ("id: response.body.id", "id: record.id", "`record`"),
        ("identity: '{{ with.email }}'", "identity: '{{ with.mail }}'", "unknown-name"),
        ("records: response.body.parties, ", "", "missing-key"),
    ];
    assert_eq!(problems(CONNECTOR.to_owned()), "");
    for (old, new, expected) in table {
        assert_eq!(CONNECTOR.matches(old).count(), 1, "{old}");
        let found = problems(CONNECTOR.replace(old, new));
        assert!(found.contains(expected), "{new}: {found}");
    }
}
