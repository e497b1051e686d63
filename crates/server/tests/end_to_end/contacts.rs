//! One person, one record: several sources, older events that arrive late, and what an operator sees.

use serde_json::{Value, json};

use crate::fixture::{FLOW, QUEUES, World};

const CONTACTS: &str = "
contacts:
  identifiers: [{field: email}]
  sources:
    - {source: website, trust: 50}
";

const WORKER: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
concurrency: 16
retry: { strategy: exponential, base_delay: 20ms, max_delay: 200ms, max_attempts: 30 }
run:
  - name: upsert
    run: salesforce.upsert
    order: latest
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.email }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.company }}", Email: "{{ event.email }}" }
"#;

async fn start() -> World {
    let files = [("flow.yml", FLOW), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("contacts.yml", CONTACTS)];
    World::start_with(&files).await
}

fn lead(id: &str, name: &str, company: &str, created_at: &str) -> Value {
    json!({ "id": id, "person": id, "email": "Ada@Example.com", "last_name": name, "company": company, "created_at": created_at })
}

/// The state and the result of the only job of an event.
async fn ended(world: &World, event: &str) -> (String, Value) {
    let jobs = world.settled(event).await;
    let job = world.job(jobs[0]["id"].as_str().unwrap()).await;
    (job["state"].as_str().unwrap().to_owned(), job["result"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_event_that_arrives_late_overwrites_nothing() {
    let world = start().await;
    let newer = world.post(&lead("1", "King", "Lovelace Ltd", "2026-11-15T12:00:00Z")).await.event();
    assert_eq!(ended(&world, &newer).await.0, "succeeded");
    let older = world.post(&lead("2", "Byron", "Analytical", "2026-11-14T12:00:00Z")).await.event();
    let (state, result) = ended(&world, &older).await;
    assert_eq!((state.as_str(), &result["noop"]), ("noop", &json!("unchanged")), "{result}");
    let leads = world.crm.truth().object("Lead");
    assert_eq!((leads.records, leads.created, leads.updated), (1, 1, 0));
    let contact = world.get("/api/v1/contacts/ada%40example.com").await;
    let field = contact["fields"].as_array().unwrap().iter().find(|field| field["name"] == "attributes.last_name");
    let values = field.unwrap()["values"].as_array().unwrap().clone();
    assert_eq!((&values[0]["value"], &values[1]["value"]), (&json!("King"), &json!("Byron")));
    assert_eq!((&values[0]["lost"], &values[1]["lost"]), (&Value::Null, &json!("older")));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_waited_are_written_once() {
    let world = start().await;
    world.act("/api/v1/pause", json!({ "target": "destination:crm", "reason": "maintenance" })).await;
    let mut events = Vec::new();
    for n in 0..5 {
        let at = format!("2026-11-15T12:00:0{n}Z");
        events.push(world.post(&lead(&n.to_string(), &format!("Name {n}"), "Analytical", &at)).await.event());
    }
    world.act("/api/v1/resume", json!({ "target": "destination:crm", "reason": "done" })).await;
    let mut states = Vec::new();
    for event in &events {
        let (state, result) = ended(&world, event).await;
        states.push(if state == "noop" { result["noop"].as_str().unwrap().to_owned() } else { state });
    }
    assert_eq!(states, ["succeeded", "coalesced", "coalesced", "coalesced", "coalesced"]);
    let leads = world.crm.truth().object("Lead");
    assert_eq!((leads.records, leads.created, leads.updated), (1, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn contacts_are_merged_split_and_traced() {
    let world = start().await;
    let ada = world.post(&lead("1", "King", "Lovelace Ltd", "2026-11-15T12:00:00Z")).await.event();
    let mut other = lead("2", "Byron", "Analytical", "2026-11-16T12:00:00Z");
    other["email"] = json!("augusta@example.com");
    let augusta = world.post(&other).await.event();
    for event in [&ada, &augusta] {
        assert_eq!(ended(&world, event).await.0, "succeeded");
    }
    let list = world.get("/api/v1/contacts").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let merge = json!({ "into": "con_1", "reason": "the same person" });
    let merged = world.act("/api/v1/contacts/con_2/merge", merge.clone()).await;
    assert_eq!((merged.status, &merged.body["members"]), (200, &json!(["con_2"])));
    assert_eq!(world.act("/api/v1/contacts/con_2/merge", merge).await.body["code"], "contact-merged");
    let trace = world.get("/api/v1/trace?about=augusta%40example.com").await;
    assert_eq!(trace["contact"]["id"], "con_1");
    let entries = trace["entries"].as_array().unwrap();
    let count = |kind: &str| entries.iter().filter(|entry| entry["kind"] == kind).count();
    assert_eq!((count("event"), count("job"), count("attempt"), count("effect"), count("audit")), (2, 2, 2, 2, 1));
    let shown = world.get(&format!("/api/v1/events/{ada}")).await;
    let record = entries.iter().find(|entry| entry["kind"] == "effect").map(|entry| entry["id"].as_str().unwrap());
    let effects = world.get(&format!("/api/v1/jobs/{}", record.unwrap())).await;
    let record = effects["effects"][0]["result"]["id"].as_str().unwrap().to_owned();
    let by_record = world.get(&format!("/api/v1/trace?about={record}")).await;
    assert_eq!(by_record["entries"][0]["kind"], "event", "{by_record}");
    let by_trace = world.get(&format!("/api/v1/trace?about={}", shown["trace"].as_str().unwrap())).await;
    assert_eq!(by_trace["entries"][0]["id"], ada, "{by_trace}");
    assert_eq!(count("field"), 8, "{entries:?}");
    let split = world.act("/api/v1/contacts/con_2/split", json!({ "reason": "two persons" })).await;
    assert_eq!((split.status, &split.body["merged_into"]), (200, &Value::Null));
    assert_eq!(world.act("/api/v1/contacts/con_9/split", json!({ "reason": "x" })).await.status, 404);
    assert_eq!(world.get("/api/v1/contacts/none%40example.com").await["code"], "not-found");
    assert_eq!(world.get(&format!("/api/v1/trace?about={ada}")).await["entries"][0]["kind"], "event");
}
