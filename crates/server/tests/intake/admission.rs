//! Shapes, trimming, identity.

use serde_json::json;

use crate::bodies::{QUEUES, post_json, raw};
use crate::fixture::World;

const SCHEMA: &str = r#"{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "age": {"type": "integer"}}}"#;

const FLOW: &str = "name: shaped\ntriggers: [{ http: { path: /in, idempotency: { key_from: body.id } } }]\ndrop: [ssn, people.ip, headers.x-internal]\nevent: { type: lead, schema: schemas/lead.json, identity: { email: \"{{ body.email | normalize_email }}\" }, attributes: { age: body.age } }\nsteps: [{ queue: leads }]\n";

const WORKER: &str = "name: to-crm\nconsumes: leads\nrun: [{ name: upsert, run: salesforce.upsert, with: { object: Lead, external_id_field: External_Lead_Id__c, external_id: \"{{ event.event_id }}\", fields: { LastName: \"{{ event.last_name }}\", Company: c } } }]\n";

async fn start(flow: &str) -> World {
    let directory = [("flow.yml", flow), ("queues.yml", QUEUES), ("worker.yml", WORKER), ("lead.schema.json", SCHEMA)];
    World::start_with(&directory.map(|(name, text)| (name, text))).await
}

fn flow() -> String {
    FLOW.replace("schemas/lead.json", "lead.schema.json")
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_that_violates_its_schema_is_rejected_or_quarantined() {
    let world = start(&flow()).await;
    let wrong = post_json(&world, "/in", &json!({"id": "1", "age": "ada@example.com", "email": "a@b.c"})).await;
    assert_eq!((wrong.status, wrong.body["code"].as_str()), (400, Some("schema-mismatch")), "{}", wrong.body);
    let detail = wrong.body["detail"].as_str().unwrap();
    assert!(detail.contains("/age") && detail.contains("1.0") && !detail.contains("ada@"), "{detail}");

    let kept = start(&flow().replace("type: lead,", "type: lead, on_mismatch: quarantine,")).await;
    let answer = post_json(&kept, "/in", &json!({"id": "1", "age": "x", "email": "a@b.c"})).await;
    assert_eq!((answer.status, answer.body["status"].as_str()), (202, Some("quarantined")), "{}", answer.body);
    let jobs = kept.settled(answer.body["event_id"].as_str().unwrap()).await;
    assert_eq!(jobs[0]["state"], "dead", "{jobs:?}");
    assert_eq!(kept.crm.writes().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_fields_are_never_stored() {
    let world = start(&flow()).await;
    let body =
        json!({"id": "1", "ssn": "078-05-1120", "people": [{"n": 1, "ip": "10.0.0.1"}], "email": "a@b.c", "extra": 1});
    let request = world
        .client
        .post(format!("{}/in", world.intake))
        .header("x-internal", "zone-7")
        .header("authorization", "Bearer shh");
    let answer = crate::fixture::Answer::of(request.body(body.to_string()).send().await.unwrap()).await;
    let event = answer.event();
    assert_eq!(raw(&world, &event).await, json!({"id": "1", "people": [{"n": 1}], "email": "a@b.c", "extra": 1}));
    let shown = world.reveal(&event, "test").await.to_string();
    for gone in ["078-05-1120", "10.0.0.1", "zone-7", "shh"] {
        assert!(!shown.contains(gone), "{gone}: {shown}");
    }
    // Neither the schema nor the mapping uses `extra`; payloads are looked at after their commit.
    crate::fixture::until(|| async {
        world.page("/metrics").await.contains("sluice_unknown_fields_total{source=\"shaped\"} 1").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_without_identity_is_quarantined() {
    let world = start(&flow()).await;
    let answer = post_json(&world, "/in", &json!({"id": "1", "email": "  "})).await;
    assert_eq!(
        (answer.body["status"].as_str(), answer.body["reason"].as_str()),
        (Some("quarantined"), Some("identity-missing")),
        "{}",
        answer.body
    );
    let jobs = world.settled(answer.body["event_id"].as_str().unwrap()).await;
    let job = world.job(jobs[0]["id"].as_str().unwrap()).await;
    assert_eq!((job["state"].as_str(), job["failure"]["class"].as_str()), (Some("dead"), Some("identity")), "{job}");
    assert_eq!(world.crm.writes().len(), 0, "nothing was created for nobody");
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_with_the_latest_configuration_maps_the_request_again() {
    let world = start(&flow()).await;
    let event = post_json(&world, "/in", &json!({"id": "1", "email": "a@b.c", "surname": "Lovelace"})).await.event();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "dead", "last_name is not mapped: {jobs:?}");
    let path = world.config_path("flow.yml");
    std::fs::write(&path, flow().replace("age: body.age", "age: body.age, last_name: body.surname")).unwrap();
    assert_eq!(world.act("/api/v1/reload", json!({})).await.status, 200);
    let job = jobs[0]["id"].as_str().unwrap();
    let replay = json!({"ids": [job], "reason": "last_name is mapped now", "latest_config": true, "actor": "ann"});
    let replayed = world.act("/api/v1/replays", replay).await;
    assert!(replayed.status < 300, "{} {}", replayed.status, replayed.body);
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "succeeded", "{jobs:?}");
    assert_eq!(world.crm.records("Lead")[0].fields["LastName"], "Lovelace");
}
