//! What an error means is a table, for every type of destination; rules of the destination come first.

use serde_json::json;
use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::{FLOW, QUEUES, World, lead};

const TO_PARTNER: &str = r#"
version: 1
name: to-partner
consumes: { queue: leads }
retry: { strategy: fixed, base_delay: 20ms, max_attempts: 3, on_exhausted: "dlq:leads-dlq" }
run:
  - name: put
    run: http.request
    destination: partner
    with: { url: /leads, method: PUT, json: { name: "{{ event.last_name }}" } }
"#;

const PARTNER: &str = r#"
destinations:
  partner:
    type: http
    base_url: '{sink}'
    failure_rules:
      - { status: 418, action: reject, class: mapping, advice: the partner makes tea }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn rule_of_an_http_destination_comes_before_those_of_its_connector() {
    let files = [("flow.yml", FLOW), ("worker.yml", TO_PARTNER), ("queues.yml", QUEUES), ("partner.yml", PARTNER)];
    let world = World::start_with(&files).await;
    world.sink.set_faults(FaultPlan::always(Fault::Reply { code: 418 })).unwrap();
    let event = world.post(&lead("a")).await.event();
    let job = world.settled(&event).await[0].clone();
    let job = world.job(job["id"].as_str().unwrap()).await;
    assert_eq!((&job["state"], &job["failure"]["class"]), (&json!("dead"), &json!("mapping")), "{job}");
    assert!(job["failure"]["message"].as_str().unwrap().contains("the partner makes tea"), "{job}");
    let rules = world.get("/api/v1/destinations/partner").await["failure_rules"].clone();
    let rules = rules.as_array().unwrap();
    let first = (&rules[0]["from"], &rules[0]["status"], &rules[0]["action"]);
    assert_eq!(first, (&json!("configuration"), &json!("418"), &json!("reject mapping")));
    assert!(rules[1..].iter().all(|rule| rule["from"] == "connector"), "{rules:?}");
    for unruled in ["sink", "crm"] {
        let rules = world.get(&format!("/api/v1/destinations/{unruled}")).await["failure_rules"].clone();
        assert!(rules.as_array().unwrap().len() > 5, "{unruled}: {rules}");
    }
}
