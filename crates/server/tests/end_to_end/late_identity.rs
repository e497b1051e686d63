//! Events without an identity: quarantined, and released when a later event or an operator says whose they are.

use serde_json::{Value, json};

use crate::fixture::{QUEUES, World};

const FLOW: &str = r#"
version: 1
name: website-leads
source: website
triggers:
  - http:
      path: /in/website
      verify: { scheme: hmac, header: X-Signature, algorithm: sha256, encoding: hex, prefix: "sha256=", secret: "${secrets.WEBSITE_SECRET}" }
      idempotency: { key_from: body.id, ttl: 30d }
event:
  type: lead.created
  id: body.id
  occurred_at: body.created_at
  mapping_version: "3"
  require_identity: true
  identity: { external_id: body.person, email: "{{ body.email | lower | trim }}" }
  attributes: { last_name: body.last_name, company: body.company, session_id: body.session }
steps:
  - name: enqueue
    queue: { name: leads }
"#;

const WORKER: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
concurrency: 16
retry: { strategy: exponential, base_delay: 20ms, max_delay: 200ms, max_attempts: 30, on_exhausted: "dlq:leads-dlq" }
run:
  - name: upsert
    run: salesforce.upsert
    order: latest
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.email }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.company }}", Email: "{{ event.email }}" }
  - name: note
    run: http.request
    destination: sink
    with: { url: "/notes", idempotency_header: Idempotency-Key, json: { note: "{{ event.last_name }} of {{ event.email }}" } }
"#;

const CONTACTS: &str = "
contacts:
  identifiers: [{field: external_id}, {field: email}]
  correlate: [{field: session_id}]
";

async fn start(contacts: &str) -> World {
    let files = [("flow.yml", FLOW), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("contacts.yml", contacts)];
    World::start_with(&files).await
}

fn lead(id: &str, name: &str, created_at: &str) -> Value {
    json!({ "id": id, "last_name": name, "company": "Analytical", "session": "s-17", "created_at": created_at })
}

fn with_email(lead: Value, email: &str) -> Value {
    let mut lead = lead;
    lead["email"] = json!(email);
    lead
}

/// The only job of an event that has ended.
async fn ended(world: &World, event: &str) -> Value {
    let jobs = world.settled(event).await;
    world.job(jobs[0]["id"].as_str().unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_identity_waits_for_a_later_one_and_both_are_one_record() {
    let world = start(CONTACTS).await;
    let anonymous = world.post(&lead("1", "Byron", "2026-11-14T12:00:00Z")).await.event();
    let job = ended(&world, &anonymous).await;
    assert_eq!((&job["state"], &job["failure"]["code"]), (&json!("dead"), &json!("identity-missing")));
    assert_eq!(world.crm.truth().object("Lead").records, 0, "nothing is created");
    let shown = world.get(&format!("/api/v1/events/{anonymous}")).await;
    assert!(shown["waits_for_identity_until"].is_string(), "{shown}");

    let later = with_email(lead("2", "King", "2026-11-15T12:00:00Z"), "Ada@Example.com");
    let identified = world.post(&later).await.event();
    assert_eq!(world.post(&later).await.event(), identified, "the later event arrives twice");
    assert_eq!(ended(&world, &identified).await["state"], "succeeded");
    let released = ended(&world, &anonymous).await;
    assert_eq!(released["state"], "succeeded", "{released}");
    let leads = world.crm.truth().object("Lead");
    assert_eq!((leads.records, leads.created), (1, 1), "both events are applied to one record");
    let mut notes: Vec<String> = world.sink.requests().into_iter().map(|request| request.body).collect();
    notes.sort();
    let note = |name: &str| json!({ "note": format!("{name} of ada@example.com") }).to_string();
    assert_eq!(notes, [note("Byron"), note("King")], "each event has its own effects, once, with the identity");
    let contact = world.get("/api/v1/contacts/ada%40example.com").await;
    let field = contact["fields"].as_array().unwrap().iter().find(|field| field["name"] == "attributes.last_name");
    let values: Vec<&Value> =
        field.unwrap()["values"].as_array().unwrap().iter().map(|value| &value["value"]).collect();
    assert_eq!(values, ["King", "Byron"], "the older event overwrites nothing");
    assert_eq!(contact["identified_later"][0]["event"], json!(anonymous));

    let shown = world.get(&format!("/api/v1/events/{anonymous}")).await;
    let view = &shown["identified"];
    assert_eq!((&view["contact"], &view["by"]), (&contact["id"], &json!(identified)), "{shown}");
    assert_eq!((&view["fields"], &view["mapping_version"]), (&json!(["email"]), &json!("3")));
    assert!(shown["raw"]["email"].is_null(), "the request is kept as it was sent");
    let trace = world.get("/api/v1/trace?about=ada%40example.com").await;
    let kinds = |kind: &str| trace["entries"].as_array().unwrap().iter().filter(|entry| entry["kind"] == kind).count();
    assert_eq!((kinds("event"), kinds("identity"), kinds("audit")), (2, 1, 1), "{trace}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_identifies_an_event_once() {
    let world = start(CONTACTS).await;
    let anonymous = world.post(&lead("1", "Byron", "2026-11-14T12:00:00Z")).await.event();
    ended(&world, &anonymous).await;
    let path = format!("/api/v1/events/{anonymous}/identify");
    let identify = |identity: Value| json!({ "identity": identity, "reason": "she called" });
    let refused = world.act(&path, identify(json!({ "email": "nobody" }))).await;
    assert_eq!((refused.status, &refused.body["code"]), (400, &json!("invalid")), "{:?}", refused.body);
    assert_eq!(world.act(&path, identify(json!({}))).await.status, 400);
    assert_eq!(world.act(&path, json!({ "identity": { "email": "a@b.c" }, "reason": " " })).await.status, 400);
    let done = world.act(&path, identify(json!({ "email": " Ada@example.com" }))).await;
    assert_eq!((done.status, &done.body["identified"]["reason"]), (200, &json!("she called")), "{:?}", done.body);
    assert_eq!(ended(&world, &anonymous).await["state"], "succeeded");
    let again = world.act(&path, identify(json!({ "email": "ada@example.com" }))).await;
    assert_eq!((again.status, &again.body["code"]), (409, &json!("not-quarantined")));
    // The link is used up: a later event of the session is an event like any other.
    let later = world.post(&with_email(lead("2", "King", "2026-11-15T12:00:00Z"), "bob@example.com")).await.event();
    assert_eq!(ended(&world, &later).await["state"], "succeeded");
    assert_eq!(world.crm.truth().object("Lead").records, 2);
    let audit = world.get("/api/v1/audit").await.to_string();
    assert!(audit.contains("identify") && !audit.contains("example.com"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicting_identifiers_are_quarantined_if_the_rule_says_so() {
    let world = start(&format!("{CONTACTS}  on_conflict: quarantine\n")).await;
    let person = |id: &str, person: Option<&str>, email: &str| {
        let mut lead = with_email(lead(id, "King", "2026-11-15T12:00:00Z"), email);
        lead["person"] = json!(person);
        lead
    };
    let ada = world.post(&person("1", Some("p-1"), "ada@example.com")).await.event();
    assert_eq!(ended(&world, &ada).await["state"], "succeeded");
    // One email, two external ids.
    let other = world.post(&person("2", Some("p-2"), "ada@example.com")).await.event();
    let job = ended(&world, &other).await;
    assert_eq!((&job["state"], &job["failure"]["code"]), (&json!("dead"), &json!("identity-conflict")), "{job}");
    assert_eq!(world.crm.truth().object("Lead").records, 1);
    let conflicting = world.get("/api/v1/contacts?conflicts=true").await;
    assert_eq!(conflicting["items"][0]["conflicts"][0]["kind"], "external_id of website");
    let order = json!({ "identity": { "email": "ada@example.com" }, "reason": "the shop changed its ids" });
    let done = world.act(&format!("/api/v1/events/{other}/identify"), order).await;
    assert_eq!((done.status, &done.body["identified"]["contact"]), (200, &json!("con_1")), "{:?}", done.body);
    assert_eq!(ended(&world, &other).await["state"], "succeeded");
    assert_eq!(world.crm.truth().object("Lead").records, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_with_another_mapping_keeps_the_identity_that_was_supplied() {
    let worker = WORKER.replace("{{ event.last_name }} of", "{{ event.title }} of");
    let files = [("flow.yml", FLOW), ("worker.yml", &*worker), ("queues.yml", QUEUES), ("contacts.yml", CONTACTS)];
    let world = World::start_with(&files).await;
    let mut anonymous = lead("1", "Byron", "2026-11-14T12:00:00Z");
    anonymous["title"] = json!("Countess");
    let event = world.post(&anonymous).await.event();
    ended(&world, &event).await;
    let identify = json!({ "identity": { "email": "ada@example.com" }, "reason": "she called" });
    assert_eq!(world.act(&format!("/api/v1/events/{event}/identify"), identify).await.status, 200);
    let job = ended(&world, &event).await;
    assert_eq!(job["state"], "dead", "the title is not mapped: {job}");
    let mapped = FLOW.replace("company: body.company", "company: body.company, title: body.title");
    std::fs::write(world.config_path("flow.yml"), mapped).unwrap();
    assert_eq!(world.act("/api/v1/reload", json!({})).await.status, 200);
    let replay = json!({ "ids": [job["id"]], "reason": "the title is mapped now", "latest_config": true });
    assert!(world.act("/api/v1/replays", replay).await.status < 300);
    let job = ended(&world, &event).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let notes: Vec<String> = world.sink.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(notes, [json!({ "note": "Countess of ada@example.com" }).to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quarantined_event_that_is_replayed_overwrites_nothing_newer() {
    let flow = FLOW.replace("      idempotency:", "      dedup: { on_clash: quarantine }\n      idempotency:");
    let files = [("flow.yml", &*flow), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("contacts.yml", CONTACTS)];
    let world = World::start_with(&files).await;
    let newer = with_email(lead("1", "King", "2026-11-15T12:00:00Z"), "ada@example.com");
    let first = world.post(&newer).await.event();
    assert_eq!(ended(&world, &first).await["state"], "succeeded");
    let older = with_email(lead("1", "Byron", "2026-11-14T12:00:00Z"), "ada@example.com");
    let clash = world.post(&older).await.event();
    let job = ended(&world, &clash).await;
    assert_eq!((&job["state"], &job["failure"]["code"]), (&json!("dead"), &json!("key-clash")), "{job}");
    let replay = json!({ "ids": [job["id"]], "reason": "both are right" });
    assert!(world.act("/api/v1/replays", replay).await.status < 300);
    let job = ended(&world, &clash).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let leads = world.crm.records("Lead");
    assert_eq!((leads.len(), &leads[0].fields["LastName"]), (1, &json!("King")), "the newer value stays");
    let contact = world.get("/api/v1/contacts/ada%40example.com").await;
    assert_eq!(contact["identified_later"][0]["event"], json!(clash), "{contact}");
}
