//! Events without an identity whose workers begin with a lookup: it supplies the identity and releases the event.

use serde_json::{Value, json};
use sluice_simulator::faults::{CallKind, Scripted};
use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::{QUEUES, World, until};

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
  mapping_version: "3"
  identity: { email: "{{ body.email | lower | trim }}" }
  attributes: { last_name: body.last_name, visitor: body.visitor, session_id: body.session }
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
  - name: person
    run: enrich.http
    destination: people
    with: { url: "/resource/{{ event.visitor }}", fields: { email: email, city: city }, timeout: 10s, cache: 0s, negative_cache: 0s }
    identity: { email: "{{ steps.person.output.email }}" }
  - name: upsert
    run: salesforce.upsert
    order: latest
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.email }}"
      fields: { LastName: "{{ event.last_name }}", Company: Analytical, Email: "{{ event.email }}", City: "{{ steps.person.output.city }}" }
"#;

/// Another worker of the same queue, without a lookup.
const NOTES: &str = r#"
version: 1
name: notes
consumes: { queue: leads }
run:
  - name: note
    run: http.request
    destination: sink
    with: { url: "/notes", idempotency_header: Idempotency-Key, json: { note: "{{ event.last_name }} of {{ event.email }}" } }
"#;

const CONTACTS: &str = "
contacts:
  identifiers: [{field: email}]
  correlate: [{field: session_id}]
destinations:
  people: { type: http, base_url: {sink}, timeout: 10s }
";

async fn start() -> World {
    let files = [
        ("flow.yml", FLOW),
        ("worker.yml", WORKER),
        ("notes.yml", NOTES),
        ("queues.yml", QUEUES),
        ("contacts.yml", CONTACTS),
    ];
    World::start_with(&files).await
}

async fn write_person(world: &World, visitor: &str, email: &str) {
    let body = json!({ "email": email, "city": "Oslo" }).to_string();
    let put = world.client.put(format!("{}/resource/{visitor}", world.sink.url())).body(body);
    put.header("content-type", "application/json").send().await.unwrap().error_for_status().unwrap();
}

fn lead(id: &str, visitor: &str) -> Value {
    json!({ "id": id, "last_name": "Byron", "visitor": visitor, "session": "s-17" })
}

fn lookups(world: &World) -> usize {
    world.sink.requests().iter().filter(|request| request.method == "GET").count()
}

fn notes(world: &World) -> Vec<String> {
    world.sink.requests().into_iter().filter(|request| request.method == "POST").map(|request| request.body).collect()
}

async fn shown(world: &World, event: &str) -> Value {
    world.get(&format!("/api/v1/events/{event}")).await
}

/// The event once it is identified and all its jobs have ended well.
async fn released(world: &World, event: &str) -> Value {
    until(|| async {
        let shown = shown(world, event).await;
        let is_done = |job: &Value| matches!(job["state"].as_str(), Some("succeeded" | "noop"));
        let done = shown["jobs"].as_array().unwrap().iter().all(is_done);
        (done && shown["identified"].is_object()).then_some(shown)
    })
    .await
}

/// The event once its lookups were made so often.
async fn looked_up(world: &World, event: &str, tries: u64) -> Value {
    until(|| async {
        let shown = shown(world, event).await;
        (shown["identity_lookup"]["tries"] == tries).then_some(shown)
    })
    .await
}

async fn releases(world: &World, by: &str) -> bool {
    world.page("/metrics").await.contains(&format!("sluice_identity_releases_total{{by=\"{by}\"}} 1"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_identifies_a_quarantined_event_and_is_made_once() {
    let world = start().await;
    write_person(&world, "v-7", "Ada@Example.com").await;
    let accepted = world.post(&lead("1", "v-7")).await;
    assert_eq!(accepted.body["status"], "quarantined", "{}", accepted.body);
    let event = accepted.event();
    let view = released(&world, &event).await;
    let identified = &view["identified"];
    assert_eq!((&identified["how"], &identified["by"]), (&json!("enrichment"), &json!("to-crm.person")), "{view}");
    assert_eq!((&identified["fields"], &view["identity_lookup"]), (&json!(["email"]), &Value::Null), "{view}");
    assert!(view["raw"]["email"].is_null(), "the request is kept as it was sent");
    assert_eq!(lookups(&world), 1, "the released job finds what was looked up");
    let records = world.crm.records("Lead");
    assert_eq!(records.len(), 1);
    let fields = &records[0].fields;
    assert_eq!((&fields["Email"], &fields["City"]), (&json!("ada@example.com"), &json!("Oslo")));
    assert_eq!(notes(&world), [json!({ "note": "Byron of ada@example.com" }).to_string()], "every job is released");
    assert!(releases(&world, "enrichment").await);
    let contact = world.get("/api/v1/contacts/ada%40example.com").await;
    assert_eq!(contact["identified_later"][0]["event"], json!(event));
    let trace = world.get("/api/v1/trace?about=ada%40example.com").await;
    let entry = |kind: &str| {
        let entries = trace["entries"].as_array().unwrap();
        entries.iter().find(|entry| entry["kind"] == kind).unwrap_or_else(|| panic!("{trace}"))["what"].clone()
    };
    assert_eq!(
        entry("identity"),
        format!("identified as {} by the lookup to-crm.person", contact["id"].as_str().unwrap())
    );
    assert_eq!(entry("lookup"), "person (enrich.http): found");
    let audit = world.get("/api/v1/audit").await.to_string();
    assert!(audit.contains("by the lookup `person`") && !audit.contains("example.com"), "{audit}");
    // A known person joins, and a replay looks nothing up.
    write_person(&world, "v-8", "ada@example.com").await;
    let second = released(&world, &world.post(&lead("2", "v-8")).await.event()).await;
    assert_eq!(second["identified"]["contact"], contact["id"]);
    assert_eq!((lookups(&world), world.crm.records("Lead").len()), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_no_lookup_knows_stays_quarantined_until_a_later_event_identifies_it() {
    let world = start().await;
    let event = world.post(&lead("1", "nobody")).await.event();
    let view = looked_up(&world, &event, 1).await;
    let lookup = &view["identity_lookup"];
    assert_eq!((&lookup["last"], &lookup["next_at"]), (&json!("absent"), &Value::Null), "it is not made again: {view}");
    assert_eq!(view["jobs"][0]["state"], "dead");
    // A value that identifies nobody releases nothing either.
    write_person(&world, "v-9", "nobody").await;
    let unusable = world.post(&json!({ "id": "2", "last_name": "X", "visitor": "v-9" })).await.event();
    assert_eq!(looked_up(&world, &unusable, 1).await["identity_lookup"]["last"], "identity-unusable");
    assert!(notes(&world).is_empty() && world.crm.records("Lead").is_empty(), "nothing is created for nobody");
    let mut later = lead("3", "nobody");
    later["email"] = json!("ada@example.com");
    world.settled(&world.post(&later).await.event()).await;
    let view = released(&world, &event).await;
    assert_eq!(view["identified"]["how"], "event", "{view}");
    assert!(releases(&world, "event").await);
    assert_eq!(world.crm.records("Lead").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_lookup_is_made_again_also_after_a_restart() {
    let mut world = start().await;
    write_person(&world, "v-7", "ada@example.com").await;
    world.sink.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::ErrorBefore).only(CallKind::Read)])).unwrap();
    let event = world.post(&lead("1", "v-7")).await.event();
    let view = looked_up(&world, &event, 1).await;
    assert_eq!(view["identity_lookup"]["last"], "lookup-failed", "{view}");
    assert!(view["identity_lookup"]["next_at"].is_string(), "{view}");
    let trace = world.get(&format!("/api/v1/trace?about={event}")).await.to_string();
    assert!(trace.contains("ended once with lookup-failed"), "{trace}");
    world.stop_node().await;
    world.start_node().await;
    released(&world, &event).await;
    assert_eq!((lookups(&world), notes(&world).len()), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_ends_during_a_lookup_loses_nothing_and_releases_once() {
    let mut world = start().await;
    write_person(&world, "v-7", "ada@example.com").await;
    let before = world.sink.requests().len();
    world.sink.set_faults(FaultPlan::always(Fault::TimeoutBefore { hold_ms: 300_000 })).unwrap();
    let event = world.post(&lead("1", "v-7")).await.event();
    until(|| async { (world.sink.requests().len() > before || lookups(&world) > 0).then_some(()) }).await;
    world.stop_node().await;
    world.sink.set_faults(FaultPlan::none()).unwrap();
    world.start_node().await;
    let view = released(&world, &event).await;
    assert_eq!(view["identified"]["how"], "enrichment", "{view}");
    assert_eq!(notes(&world).len(), 1);
    world.stop_node().await;
    world.start_node().await;
    let view = released(&world, &event).await;
    let job = world.job(view["jobs"][0]["id"].as_str().unwrap()).await;
    assert_eq!(job["replays"], 1, "released once: {job}");
    assert_eq!(world.crm.records("Lead").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_who_is_faster_than_the_lookup_decides() {
    let world = start().await;
    world.act("/api/v1/pause", json!({ "target": "destination:people", "reason": "maintenance" })).await;
    let event = world.post(&lead("1", "v-7")).await.event();
    assert_eq!(looked_up(&world, &event, 1).await["identity_lookup"]["last"], "lookup-skipped");
    let order = json!({ "identity": { "email": "bob@example.com" }, "reason": "he called" });
    let done = world.act(&format!("/api/v1/events/{event}/identify"), order).await;
    assert_eq!(done.status, 200, "{}", done.body);
    let view = released(&world, &event).await;
    assert_eq!((&view["identified"]["how"], lookups(&world)), (&json!("operator"), 0), "{view}");
    assert!(releases(&world, "operator").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_of_an_event_are_shown_one_by_one() {
    let world = start().await;
    let mut lead = lead("1", "v-7");
    lead["email"] = json!("ada@example.com");
    let event = world.post(&lead).await.event();
    assert!(shown(&world, &event).await.get("duplicates").is_none());
    assert_eq!(world.post(&lead).await.event(), event);
    lead["last_name"] = json!("King");
    assert_eq!(world.post(&lead).await.event(), event, "another content under the same key");
    lead["last_name"] = json!("Byron");
    for _ in 0..10 {
        world.post(&lead).await;
    }
    let duplicates = &shown(&world, &event).await["duplicates"];
    let recent = duplicates["recent"].as_array().unwrap();
    assert_eq!((&duplicates["count"], recent.len()), (&json!(12), 8), "{duplicates}");
    assert!(
        recent.iter().all(|repeat| repeat["differs"] == "nothing" && repeat["trace"].as_str().unwrap().len() == 32)
    );
    let trace = world.get("/api/v1/trace?about=ada%40example.com").await;
    let repeats: Vec<&str> = trace["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["kind"] == "duplicate")
        .map(|entry| entry["what"].as_str().unwrap())
        .collect();
    assert_eq!((repeats.len(), repeats[0]), (9, "the first of 4 earlier repeats"), "{trace}");
    assert!(repeats[1].starts_with("repeated: same key and content; trace "), "{trace}");
}
