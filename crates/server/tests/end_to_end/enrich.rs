//! Enrichment in the worker: found values reach the CRM, and nothing that goes wrong stops a lead.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_simulator::faults::{CallKind, Scripted};
use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::{Answer, QUEUES, World, sign, until};
use crate::geo_database;

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
  identity: { contact_external_id: "website:{{ body.id }}", email: "{{ body.email }}" }
  attributes:
    last_name: body.last_name
    ip: body.ip
    phone: { from: body.phone, as: phone, region: US }
steps:
  - name: enqueue
    queue: { name: leads }
"#;

const WORKER: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
concurrency: 16
retry: { strategy: exponential, base_delay: 20ms, max_delay: 200ms, max_attempts: 30 }
run:
  - name: geo
    run: enrich.geoip
    with: { ip: "{{ event.ip }}", database: geo/city.mmdb }
  - name: company
    run: enrich.company
    with: { free_mail: [mailbox.example] }
  - name: profile
    run: enrich.http
    destination: profiles
    with: { url: "/resource/{{ event.email }}", fields: { title: job.title }, timeout: 10s }
  - name: upsert
    run: salesforce.upsert
    destination: crm
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.contact_external_id }}"
      fields:
        LastName: "{{ event.last_name }}"
        Email: "{{ event.email }}"
        Phone: "{{ event.phone }}"
        City: "{{ steps.geo.output.city }}"
        Country: "{{ steps.geo.output.country }}"
        Company: "{{ steps.company.output.name | default('unknown') }}"
        Title: "{{ steps.profile.output.title }}"
"#;

const PROFILES: &str = "
destinations:
  profiles:
    type: http
    base_url: {sink}
    timeout: 2s
    breaker: { open_first: 1s, open_max: 2s }
";

async fn start() -> World {
    let files = [("flow.yml", FLOW), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("profiles.yml", PROFILES)];
    World::start_with(&files).await
}

fn write_database(world: &World, city: &str) {
    let directory = world.config_path("geo");
    std::fs::create_dir_all(&directory).unwrap();
    let entry = geo_database::city("NO", "Vestland", city, "Europe/Oslo");
    geo_database::write(&directory.join("city.mmdb"), &[("203.0.113.0/24", entry)]);
}

async fn write_profile(world: &World, email: &str, title: &str) {
    let body = json!({ "job": { "title": title, "salary": 1 } }).to_string();
    let put = world.client.put(format!("{}/resource/{email}", world.sink.url())).body(body);
    put.header("content-type", "application/json").send().await.unwrap().error_for_status().unwrap();
}

fn lead(id: &str, email: &str) -> Value {
    json!({ "id": id, "email": email, "last_name": "Lovelace", "ip": "203.0.113.7", "phone": "(415) 555-0123" })
}

/// Posts a lead, waits until it is in the CRM, and answers with its record.
async fn record_of(world: &World, lead: &Value) -> Value {
    let event = world.post(lead).await.event();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "succeeded", "{}", world.job(jobs[0]["id"].as_str().unwrap()).await);
    let id = format!("website:{}", lead["id"].as_str().unwrap());
    let record = world.crm.records("Lead").into_iter().find(|record| record.fields["External_Lead_Id__c"] == *id);
    serde_json::to_value(record.unwrap().fields).unwrap()
}

/// Warnings of the source, as `sources show` has them.
async fn warnings(world: &World) -> Vec<(String, u64)> {
    let source = world.get("/api/v1/sources/website").await;
    let warning = |warning: &Value| {
        let name = format!("{} {}", warning["field"].as_str().unwrap(), warning["code"].as_str().unwrap());
        (name, warning["count"].as_u64().unwrap())
    };
    source["mapping_warnings"].as_array().unwrap().iter().map(warning).collect()
}

fn lookups(world: &World) -> u64 {
    world.sink.requests().iter().filter(|request| request.method == "GET").count() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_found_reaches_the_crm() {
    let world = start().await;
    write_database(&world, "Bergen");
    write_profile(&world, "ada@analytical-engines.example", "Countess").await;
    let record = record_of(&world, &lead("1", "ada@analytical-engines.example")).await;
    assert_eq!(
        [&record["City"], &record["Country"], &record["Company"], &record["Title"]],
        ["Bergen", "NO", "Analytical Engines", "Countess"]
    );
    // No company behind a mailbox provider, no profile and an address that is not in the database: nothing is missing.
    let mut other = lead("2", "ada@mailbox.example");
    other["ip"] = json!("198.51.100.1");
    let record = record_of(&world, &other).await;
    assert_eq!(
        [&record["City"], &record["Company"], &record["Title"]],
        [&json!(null), &json!("unknown"), &json!(null)]
    );
    assert_eq!(warnings(&world).await, []);
    let metrics = world.page("/metrics").await;
    assert!(metrics.contains("sluice_lookups_total{action=\"enrich.http\",result=\"found\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_lookup_is_a_warning_on_the_event_and_never_stops_the_lead() {
    let world = start().await;
    // No database, and a destination that fails.
    world.sink.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::ErrorBefore).only(CallKind::Read)])).unwrap();
    let event = world.post(&lead("1", "ada@analytical.example")).await.event();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "succeeded");
    let shown = world.get(&format!("/api/v1/events/{event}")).await;
    let job = jobs[0]["id"].clone();
    assert_eq!(
        shown["warnings"],
        json!([
            { "field": "steps.geo", "code": "database-unreadable", "job": job },
            { "field": "steps.profile", "code": "lookup-failed", "job": job },
        ])
    );
    // A paused one is not asked.
    world.act("/api/v1/pause", json!({ "target": "destination:profiles", "reason": "maintenance" })).await;
    let asked = lookups(&world);
    record_of(&world, &lead("2", "ada@analytical.example")).await;
    assert_eq!(lookups(&world), asked);
    // What is no address is said to be none.
    let mut wrong = lead("3", "ada@analytical.example");
    wrong["ip"] = json!("the office");
    record_of(&world, &wrong).await;
    let expected = [
        ("steps.geo database-unreadable", 2),
        ("steps.geo not-an-address", 1),
        ("steps.profile lookup-failed", 1),
        ("steps.profile lookup-skipped", 2),
    ];
    assert_eq!(warnings(&world).await, expected.map(|(name, count)| (name.to_owned(), count)));
}

#[tokio::test(flavor = "multi_thread")]
async fn lookup_without_an_answer_ends_with_its_deadline() {
    let worker = WORKER.replace("timeout: 10s", "timeout: 300ms");
    let files = [("flow.yml", FLOW), ("worker.yml", &*worker), ("queues.yml", QUEUES), ("profiles.yml", PROFILES)];
    let world = World::start_with(&files).await;
    write_database(&world, "Bergen");
    world.sink.set_faults(FaultPlan::always(Fault::TimeoutBefore { hold_ms: 300_000 })).unwrap();
    record_of(&world, &lead("1", "ada@analytical.example")).await;
    assert_eq!(warnings(&world).await, [("steps.profile lookup-timed-out".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_asked_for_once_and_so_is_an_absence() {
    let world = start().await;
    write_database(&world, "Bergen");
    write_profile(&world, "ada@analytical.example", "Countess").await;
    for id in ["1", "2", "3"] {
        assert_eq!(record_of(&world, &lead(id, "ada@analytical.example")).await["Title"], "Countess");
    }
    assert_eq!(lookups(&world), 1);
    for id in ["4", "5"] {
        assert_eq!(record_of(&world, &lead(id, "nobody@analytical.example")).await.get("Title"), None);
    }
    assert_eq!(lookups(&world), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_destination_is_left_alone_and_leads_still_arrive() {
    let world = start().await;
    write_database(&world, "Bergen");
    world.sink.set_faults(FaultPlan::always(Fault::ErrorBefore)).unwrap();
    let mut skipped = 0;
    for n in 0.. {
        record_of(&world, &lead(&n.to_string(), &format!("person{n}@analytical.example"))).await;
        let counted = warnings(&world).await;
        skipped =
            counted.iter().find(|(name, _)| name == "steps.profile lookup-skipped").map_or(0, |(_, count)| *count);
        if skipped > 0 {
            break;
        }
        assert!(n < 100, "the breaker must open");
    }
    assert!(skipped > 0);
    world.sink.set_faults(FaultPlan::none()).unwrap();
    write_profile(&world, "ada@analytical.example", "Countess").await;
    let mut n = 1000;
    until(|| {
        n += 1;
        let lead = lead(&n.to_string(), "ada@analytical.example");
        let world = &world;
        async move { (record_of(world, &lead).await["Title"] == "Countess").then_some(()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_database_is_read_again_and_a_damaged_one_is_not_used() {
    let world = start().await;
    write_database(&world, "Bergen");
    assert_eq!(record_of(&world, &lead("1", "ada@analytical.example")).await["City"], "Bergen");
    let mut n = 1;
    let mut until_city = async |expected: Value| {
        until(|| {
            n += 1;
            let lead = lead(&n.to_string(), "ada@analytical.example");
            let (world, expected) = (&world, expected.clone());
            async move { (record_of(world, &lead).await["City"] == expected).then_some(()) }
        })
        .await;
    };
    write_database(&world, "Stavanger");
    until_city(json!("Stavanger")).await;
    // A file that is no database: the one in memory stays in use.
    std::fs::write(world.config_path("geo/city.mmdb"), b"half a download").unwrap();
    let damaged_at = Instant::now();
    while damaged_at.elapsed() < Duration::from_millis(1_500) {
        until_city(json!("Stavanger")).await;
    }
    // A file that is gone is not used any more.
    std::fs::remove_file(world.config_path("geo/city.mmdb")).unwrap();
    until_city(Value::Null).await;
    write_database(&world, "Tromsø");
    until_city(json!("Tromsø")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_keeps_what_was_found_over_a_restart() {
    let mut world = start().await;
    write_database(&world, "Bergen");
    write_profile(&world, "ada@analytical.example", "Countess").await;
    world.act("/api/v1/pause", json!({ "target": "destination:crm", "reason": "maintenance" })).await;
    let event = world.post(&lead("1", "ada@analytical.example")).await.event();
    let job = world.get(&format!("/api/v1/events/{event}")).await["jobs"][0]["id"].as_str().unwrap().to_owned();
    until(|| async { (world.job(&job).await["effects"].as_array().unwrap().len() == 3).then_some(()) }).await;
    world.stop_node().await;
    // What would be found now is something else.
    write_database(&world, "Stavanger");
    write_profile(&world, "ada@analytical.example", "Programmer").await;
    let asked = lookups(&world);
    world.start_node().await;
    world.act("/api/v1/resume", json!({ "target": "destination:crm", "reason": "done" })).await;
    world.settled(&event).await;
    let record = &world.crm.records("Lead")[0].fields;
    assert_eq!((&record["City"], &record["Title"]), (&json!("Bergen"), &json!("Countess")));
    assert_eq!(lookups(&world), asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn phone_number_that_cannot_be_read_is_a_warning_and_the_lead_arrives() {
    let world = start().await;
    write_database(&world, "Bergen");
    let mut bad = lead("1", "ada@mailbox.example");
    bad["phone"] = json!("ask my secretary");
    assert_eq!(record_of(&world, &bad).await["Phone"], "ask my secretary", "a worker may still correct it");
    assert_eq!(record_of(&world, &lead("2", "ada@mailbox.example")).await["Phone"], "+14155550123");
    assert_eq!(warnings(&world).await, [("attributes.phone not-a-phone".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_the_caller_can_be_looked_up_and_not_forged() {
    let flow = FLOW.replace("ip: body.ip", "ip: \"{{ headers['sluice-client-address'] }}\"");
    let files = [("flow.yml", &*flow), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("profiles.yml", PROFILES)];
    let world = World::start_with(&files).await;
    std::fs::create_dir_all(world.config_path("geo")).unwrap();
    let entries = ["127.0.0.0/8", "203.0.113.0/24"].map(|network| (network, geo_database::city("NO", "", network, "")));
    geo_database::write(&world.config_path("geo/city.mmdb"), &entries);
    let body = lead("1", "ada@mailbox.example").to_string().into_bytes();
    let request = world.client.post(format!("{}/in/website", world.intake)).header("x-signature", sign(&body));
    let request = request.header("content-type", "application/json").header("sluice-client-address", "203.0.113.7");
    let event = Answer::of(request.body(body).send().await.unwrap()).await.event();
    world.settled(&event).await;
    assert_eq!(world.crm.records("Lead")[0].fields["City"], "127.0.0.0/8");
}
