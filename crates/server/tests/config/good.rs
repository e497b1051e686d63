//! Configurations that mean something, and what they mean.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use sluice_domain::action::Action;
use sluice_domain::config::Config;
use sluice_domain::destination::{DestinationKind, HttpAuth, SalesforceAuth};
use sluice_domain::event::{EventId, EventOrigin};
use sluice_domain::key::{self, KeyContext, KeyDigest};
use sluice_domain::outcome::EffectClass;
use sluice_domain::retry::{Delay, Jitter};
use sluice_domain::template::{Scope, Secrets};
use sluice_domain::time::Time;
use sluice_domain::verify::{Scheme, SecretValue};
use sluice_domain::worker::LaneOrder;
use sluice_server::config::{Compiled, Files, SecretSource, compile};

use crate::editor;

/// Knows these secrets.
#[derive(Debug)]
struct Known(BTreeMap<&'static str, &'static str>);

impl SecretSource for Known {
    fn lookup(&self, name: &str) -> io::Result<Option<SecretValue>> {
        Ok(self.0.get(name).map(|value| SecretValue::from(*value)))
    }

    fn describe(&self, name: &str) -> String {
        format!("set SLUICE_SECRET_{name}")
    }
}

fn compiled(files: &[(&str, &str)]) -> Compiled {
    let secrets = Known(BTreeMap::from([
        ("STRIPE", "whsec_test"),
        ("OLD", "old-secret"),
        ("SF_ID", "consumer"),
        ("SF_SECRET", "hunter2"),
        ("API_TOKEN", "t0ken"),
    ]));
    let files = Files::from_texts(files.iter().copied());
    let compiled = compile(&files, &secrets);
    if compiled.config.is_some() {
        editor::accepts(&files);
    }
    compiled
}

fn config(files: &[(&str, &str)]) -> Config {
    let compiled = compiled(files);
    let errors: Vec<_> =
        compiled.problems.iter().map(|problem| format!("{} {}", problem.place(), problem.message)).collect();
    compiled.config.unwrap_or_else(|| panic!("{errors:#?}"))
}

const QUEUES: (&str, &str) = (
    "queues.yml",
    "queues:\n  - name: people\n    visibility_timeout: 60s\n    retention: 4d\n  - name: people-dead\n    retention: 7d\n",
);

const FLOW: (&str, &str) = (
    "flows/people.yml",
    "\
version: 1
name: people-intake
source: signup_form
triggers:
  - http:
      path: /in/people
      method: post
      verify: {scheme: stripe, secrets: [${secrets.STRIPE}, {value: ${secrets.OLD}, not_after: 2030-01-01T00:00:00Z}]}
      idempotency:
        key_from: header:Idempotency-Key
        store: kv:people-keys
        ttl: 5d
      rate_limit: 100/s
      body_max: 64KiB
event:
  schema_version: 2
  type: {{ body.kind }}.created
  id: body.id
  identity:
    email: {{ body.email | lower }}
  attributes: [first_name, company.name]
  routing: {crm: salesforce}
  required: [identity.email]
steps:
  - name: enqueue
    if: {{ event.email != '' }}
    queue:
      name: people
      body_from: request.body
      key_from: header:Idempotency-Key
responses:
  deduplicated_from: idempotency
  success_from: step:enqueue
",
);

const WORKER: (&str, &str) = (
    "workers/people.yml",
    "\
version: 1
name: people-upsert
consumes:
  queue: people
concurrency: 3
retry:
  strategy: exponential
  base_delay: 1s
  multiplier: 3
  jitter: equal
  max_delay: 90s
  max_attempts: 5
  on_exhausted: dlq:people-dead
run:
  - id: look-up
    run: http.request
    with:
      method: GET
      url: /people/{{ event.email }}
      destination: directory
  - id: upsert
    if: {{ steps.look-up.output.status == 200 }}
    uses: salesforce.upsert
    order: none
    with:
      object: Contact
      external_id_field: Ext__c
      external_id: {{ event.event_id }}
      fields:
        Email: {{ event.email }}
        Score__c: 7
        Source__c: ${secrets.API_TOKEN}
    retry: {max_attempts: 2}
  - id: notify
    run: http.request
    with: {url: https://elsewhere.example/hook, json: {id: {{ steps.upsert.output.id }}}}
",
);

const DESTINATIONS: (&str, &str) = (
    "destinations.json",
    "{\n\t\"destinations\": {\n\t\t\"crm\": {\"type\": \"salesforce\", \"instance_url\": \"https://acme.my.salesforce.com/\", \"api_version\": \"61.0\",\n\t\t\t\"auth\": {\"client_id\": \"${secrets.SF_ID}\", \"client_secret\": \"${secrets.SF_SECRET}\"}, \"rate\": \"20/s\", \"burst\": 5},\n\t\t\"directory\": {\"type\": \"http\", \"base_url\": \"http://127.0.0.1:9000/api\", \"timeout\": \"5s\",\n\t\t\t\"headers\": {\"X-Team\": \"growth\", \"Authorization\": \"Token ${secrets.API_TOKEN}\"}}\n\t}\n}\n",
);

#[test]
fn directory_of_flow_worker_queues_and_destinations_is_compiled() {
    let compiled = compiled(&[QUEUES, FLOW, WORKER, DESTINATIONS]);
    assert_eq!(compiled.problems, vec![]);
    assert_eq!(compiled.secrets.names().collect::<Vec<_>>(), ["API_TOKEN"]);
    assert_eq!(compiled.secrets.secret("API_TOKEN").unwrap().expose(), "t0ken");
    let config = compiled.config.unwrap();

    let flow = &config.flows["people-intake"];
    assert_eq!((flow.source.as_str(), flow.path.as_str(), flow.method.as_str()), ("signup_form", "/in/people", "POST"));
    assert_eq!(flow.verify.as_ref().unwrap().scheme(), Scheme::Stripe);
    assert_eq!(flow.body_bytes_max, 65_536);
    assert_eq!(flow.idempotency.ttl, Duration::from_secs(5 * 86_400));
    assert_eq!(flow.rate_limit.unwrap().burst, 100);
    assert_eq!(flow.enqueue.len(), 1);
    assert_eq!(flow.enqueue[0].queue, "people");
    assert!(flow.enqueue[0].body_from.is_none());
    assert_eq!(flow.enqueue[0].condition.as_ref().unwrap().source(), "event.email != ''");

    let mut scope = Scope::new();
    scope.set("headers", serde_json::json!({"idempotency-key": "k-1"}));
    let body = serde_json::json!({"kind": "lead", "id": 5, "email": "Ada@X.org", "first_name": "Ada", "company": {"name": "ACME"}});
    scope.set("body", body);
    assert_eq!(
        key::derive(&flow.idempotency.strategies, &scope, KeyContext { source: &flow.source, mapping: &flow.event })
            .unwrap()
            .text,
        "k-1"
    );
    let id = EventId::new(KeyDigest([1; 16]), 0);
    let origin = EventOrigin { source: &flow.source, idempotency_key: "k-1", id, received_at: Time(0) };
    let event = flow.event.apply(&scope, origin).unwrap();
    assert_eq!((event.event_type.as_str(), event.event_id.as_str()), ("lead.created", "signup_form:5"));
    assert_eq!((event.schema_version.as_str(), event.identity["email"].as_str()), ("2", Some("ada@x.org")));
    assert_eq!(
        serde_json::to_value(&event.attributes).unwrap(),
        serde_json::json!({"first_name": "Ada", "name": "ACME"})
    );

    let worker = &config.workers["people-upsert"];
    assert_eq!((worker.queue.as_str(), worker.concurrency), ("people", 3));
    assert_eq!((worker.retry.max_attempts, worker.retry.jitter), (5, Jitter::Equal));
    assert_eq!((1..=6).map(|n| worker.retry.ceiling(n).as_secs()).collect::<Vec<_>>(), [1, 3, 9, 27, 81, 90]);
    let [look_up, upsert, notify] = worker.steps.as_slice() else { panic!("three steps") };
    assert_eq!(
        (&*look_up.destination, look_up.class, look_up.order),
        ("directory", EffectClass::Natural, LaneOrder::Fifo)
    );
    assert_eq!((&*upsert.destination, upsert.action, upsert.order), ("crm", Action::SalesforceUpsert, LaneOrder::None));
    let own = upsert.retry.as_ref().unwrap();
    assert_eq!((own.max_attempts, own.max_attempts_conflict, own.jitter), (2, 2, Jitter::Equal));
    assert_eq!(own.dead_letter_queue.as_deref(), Some("people-dead"));
    assert_eq!((&*notify.destination, notify.class), ("http", EffectClass::Blind));
    assert!(
        matches!(&look_up.with, sluice_domain::template::Template::Map(entries) if entries.iter().all(|(name, _)| name != "destination"))
    );

    let people = &config.queues["people"];
    assert_eq!(
        (people.visibility_timeout, people.dead_letter_queue.as_deref()),
        (Duration::from_secs(60), Some("people-dead"))
    );
    assert_eq!(config.queues.len(), 2);

    let DestinationKind::Salesforce(crm) = &config.destinations["crm"].kind else { panic!("crm is a salesforce") };
    assert_eq!((crm.instance_url.as_str(), crm.api_version.as_str()), ("https://acme.my.salesforce.com", "v61.0"));
    assert!(
        matches!(&crm.auth, SalesforceAuth::ClientCredentials { client_id, client_secret } if client_id == "consumer" && client_secret.expose() == "hunter2")
    );
    assert_eq!(config.destinations["crm"].gate.burst, 5);
    let DestinationKind::Http(directory) = &config.destinations["directory"].kind else {
        panic!("directory is an http")
    };
    assert_eq!(directory.headers[1].1.expose(), "Token t0ken");
    assert!(matches!(directory.auth, HttpAuth::None));
    assert!(config.destinations.contains_key("http"));
    assert!(!format!("{config:?}").contains("hunter2"));
}

const SMALL: &str = "\
name: in
triggers: [{http: {path: /in, verify: none, idempotency: {key_from: body.id}}}]
steps: [{queue: jobs}]
queues: [jobs]
---
name: out
consumes: jobs
steps: [{name: call, run: http.request, with: {url: http://localhost/x, method: PUT, json: {{ body }}}}]
";

#[test]
fn minimal_configuration_has_a_dead_letter_queue() {
    let compiled = compiled(&[("all.yml", SMALL)]);
    let codes: Vec<&str> = compiled.problems.iter().map(|problem| problem.code).collect();
    assert_eq!(codes, ["open-to-everybody"], "it is allowed to believe everybody, and said every time");
    let config = compiled.config.unwrap();
    let worker = &config.workers["out"];
    assert_eq!(worker.retry.dead_letter_queue.as_deref(), Some("jobs-dlq"));
    assert_eq!(config.queues["jobs"].dead_letter_queue.as_deref(), Some("jobs-dlq"));
    assert_eq!(config.queues["jobs-dlq"].retention, Duration::from_secs(30 * 86_400));
    assert_eq!((worker.concurrency, worker.retry.max_attempts), (8, 7));
    assert_eq!(config.flows["in"].verify.as_ref().unwrap().scheme(), Scheme::None);
    assert_eq!(config.flows["in"].idempotency.ttl, Duration::from_secs(30 * 86_400));
}

#[test]
fn a_change_of_one_byte_is_another_revision() {
    let one = config(&[("all.yml", SMALL)]).revision;
    assert_eq!(one, config(&[("all.yml", SMALL)]).revision);
    assert_ne!(one, config(&[("all.yml", &SMALL.replace("/x", "/y"))]).revision);
}

#[test]
fn every_further_trigger_is_a_flow_of_its_own() {
    let text = SMALL.replace(
        "triggers: [{http: {path: /in, verify: none, idempotency: {key_from: body.id}}}]",
        "triggers:\n  - http: {path: /in, verify: none, idempotency: {key_from: body.id}}\n  - http: {path: /too, verify: none, idempotency: {key_from: fingerprint}, rate_limit: {rate: 5/min, burst: 9}}",
    );
    let config = config(&[("all.yml", &text)]);
    assert_eq!(config.flows.keys().collect::<Vec<_>>(), ["in", "in#2"]);
    assert_eq!(config.flows["in#2"].path, "/too");
    assert_eq!(config.flows["in#2"].name, "in#2");
    assert_eq!(config.flows["in#2"].source, "in");
    assert_eq!(config.flows["in#2"].rate_limit.unwrap().burst, 9);
}

fn key_of(key_from: &str, body: serde_json::Value) -> Result<String, String> {
    let text = SMALL.replace("key_from: body.id", &format!("key_from: {key_from}"));
    let config = config(&[("all.yml", &text)]);
    let mut scope = Scope::new();
    scope.set("body", body);
    scope.set("headers", serde_json::json!({"x-id": "h"}));
    let flow = &config.flows["in"];
    key::derive(&flow.idempotency.strategies, &scope, KeyContext { source: &flow.source, mapping: &flow.event })
        .map(|key| key.text)
        .map_err(|problem| problem.to_string())
}

#[test]
fn a_key_can_be_written_in_every_form() {
    let body = || serde_json::json!({"id": 7, "op": "up", "sent": 1});
    assert_eq!(key_of("body.id", body()).unwrap(), "7");
    assert_eq!(key_of("{{ body.id }}", body()).unwrap(), "7");
    assert_eq!(key_of("[body.id, header:X-Id, '\"crm\"']", body()).unwrap(), "7|h|crm");
    assert_eq!(key_of("'{{ body.id }}:{{ body.op }}'", body()).unwrap(), "7|up");
    assert_eq!(key_of("lead-{{ body.id }}", body()).unwrap(), "lead|7");
    assert_eq!(key_of("{first_of: [body.none, header:X-Id]}", body()).unwrap(), "h");
    assert!(key_of("'{{ body.id }}:{{ body.none }}'", body()).is_err());
    let volatile = "{fingerprint: {volatile: [sent]}}";
    let resent = serde_json::json!({"id": 7, "op": "up", "sent": 2});
    assert_eq!(key_of(volatile, body()).unwrap(), key_of(volatile, resent.clone()).unwrap());
    assert_ne!(key_of("fingerprint", body()).unwrap(), key_of("fingerprint", resent).unwrap());
    assert_eq!(key_of("{first_of: [body.none, fingerprint]}", body()).unwrap(), key_of("fingerprint", body()).unwrap());
}

fn retry_of(retry: &str) -> sluice_domain::retry::RetryPolicy {
    let text = SMALL.replace("consumes: jobs\n", &format!("consumes: jobs\nretry: {retry}\n"));
    config(&[("all.yml", &text)]).workers["out"].retry.clone()
}

#[test]
fn retry_policies_are_read_in_every_strategy() {
    let small = retry_of("{strategy: exponential, base_ms: 500, max_attempts: 3, jitter: full}");
    assert_eq!(small.ceiling(2), Duration::from_secs(1));
    assert_eq!((small.max_attempts, small.max_attempts_conflict), (3, 3));
    let fixed = retry_of("{strategy: fixed, base_delay: 10s}");
    assert_eq!(fixed.phases[0].delay, Delay::Fixed { delay: Duration::from_secs(10) });
    let phased = retry_of(
        "{strategy: phased, max_attempts: 20, retry_after_cap: 10m, phases: [{attempts: 3, delay: immediate}, {attempts: 2, delay: 1s}, {attempts: 9, exponential: {base: 2s, max: 60s}}]}",
    );
    assert_eq!(
        (1..=12).map(|n| phased.ceiling(n).as_secs()).collect::<Vec<_>>(),
        [0, 0, 0, 1, 1, 2, 4, 8, 16, 32, 60, 60]
    );
    assert_eq!(phased.retry_after_cap, Duration::from_secs(600));
}

#[test]
fn anchors_aliases_and_merges_are_expanded() {
    let text = "\
queues:
  jobs: &kept {retention: 2d}
  more: {<<: *kept, visibility_timeout: 45s}
---
name: in
triggers: [{http: {path: /in, verify: none, idempotency: {key_from: body.id}}}]
steps: [{queue: jobs}, {queue: more}]
---
name: a
consumes: jobs
run: [{name: call, run: http.request, with: {url: http://localhost, method: PUT}}]
---
name: b
consumes: more
run: [{name: call, run: http.request, with: {url: http://localhost, method: PUT}}]
";
    let config = config(&[("all.yml", text)]);
    assert_eq!(config.queues["more"].retention, Duration::from_secs(2 * 86_400));
    assert_eq!(config.queues["more"].visibility_timeout, Duration::from_secs(45));
}

#[test]
fn own_hmac_and_token_schemes_can_be_described() {
    for verify in [
        "{scheme: hmac, secret: ${secrets.OLD}, header: X-Sig, signed: '{timestamp}.{body}', timestamp: {header: X-Time, unit: milliseconds}, encoding: base64, tolerance: 2m}",
        "{scheme: hmac, secret: ${secrets.OLD}, header: Sig, list: {signature_key: v1}, timestamp: {field: t}, signed: '{timestamp}.{body}'}",
        "{scheme: token, secret: ${secrets.OLD}, header: X-Token}",
        "{scheme: basic, secret: ${secrets.OLD}, user: hook}",
        "{scheme: hubspot, secret: ${secrets.OLD}, version: v3, public_url: https://hooks.example/in}",
    ] {
        let text = SMALL.replace("verify: none", &format!("verify: {verify}"));
        let config = config(&[("all.yml", &text)]);
        assert!(config.flows["in"].verify.is_some(), "{verify}");
    }
}

#[test]
fn answers_of_a_form_are_selected_and_converted() {
    let flow = "\
version: 1
name: answers
triggers: [{http: {path: /in/answers}}]
event:
  identity:
    email: {from: body.answers, where: {field.ref: mail}, take: email, as: email}
    phone_e164: {from: body.phone, as: phone}
  attributes:
    size: {from: body.answers, where: {field.ref: size}, take: [number, text], as: integer, default: 1}
    due: {from: body.due, as: date, format: '%d.%m.%Y'}
    plan: {from: body.plan, default: free}
steps: [{queue: people}]
";
    let files = Files::from_texts([("flow.yml", flow), QUEUES]);
    let compiled = compile(&files, &Known(BTreeMap::new()));
    let config = compiled.config.unwrap_or_else(|| panic!("{:?}", compiled.problems));
    let mut scope = Scope::new();
    let answers = serde_json::json!([
        {"field": {"ref": "mail"}, "email": " Ada@X.org"},
        {"field": {"ref": "size"}, "text": "about ten"},
    ]);
    scope.set("body", serde_json::json!({"answers": answers, "phone": "later", "due": "22.03.2026"}));
    let id = EventId::new(KeyDigest([1; 16]), 0);
    let origin = EventOrigin { source: "answers", idempotency_key: "k-1", id, received_at: Time(0) };
    let event = config.flows["answers"].event.apply(&scope, origin).unwrap();
    assert_eq!(serde_json::to_value(&event.identity).unwrap(), serde_json::json!({"email": "ada@x.org"}));
    assert_eq!(
        serde_json::to_value(&event.attributes).unwrap(),
        serde_json::json!({"size": 1, "due": "2026-03-22", "plan": "free"})
    );
    assert_eq!(
        serde_json::to_value(&event.audit.warnings).unwrap(),
        serde_json::json!([
            {"field": "attributes.size", "code": "not-a-number"},
            {"field": "identity.phone_e164", "code": "not-a-phone"},
        ])
    );
}
