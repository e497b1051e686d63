//! One call for the leads that wait: exact for each of them, whatever becomes of the call.

use serde_json::{Value, json};
use sluice_simulator::faults::{CallKind, Scripted};
use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::{FLOW, QUEUES, World, lead};

const LEADS: usize = 50;

const WORKER: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
concurrency: 1
retry: { strategy: exponential, base_delay: 20ms, multiplier: 2, jitter: full, max_delay: 200ms, max_attempts: 30, max_attempts_conflict: 20, on_exhausted: "dlq:leads-dlq" }
run:
  - name: upsert
    run: salesforce.upsert
    destination: DESTINATION
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.contact_external_id }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.company }}", Email: "{{ event.email }}" }
"#;

const DESTINATIONS: &str = r#"
destinations:
  many:
    type: salesforce
    instance_url: {crm}
    auth: { client_id: sim-client, client_secret: "${secrets.CRM_SECRET}" }
    breaker: { failures_in_a_row: 1000, calls_min: 1000 }
  single:
    type: salesforce
    instance_url: {crm}
    auth: { client_id: sim-client, client_secret: "${secrets.CRM_SECRET}" }
    breaker: { failures_in_a_row: 1000, calls_min: 1000 }
    batch_max: 1
"#;

async fn world(destination: &str) -> World {
    let worker = WORKER.replace("DESTINATION", destination);
    World::start_with(&[
        ("flow.yml", FLOW),
        ("worker.yml", &worker),
        ("queues.yml", QUEUES),
        ("crms.yml", DESTINATIONS),
    ])
    .await
}

/// Lets leads wait, sends them on and returns the state of each.
async fn deliver(world: &World, destination: &str, leads: &[Value]) -> Vec<Value> {
    let target = format!("destination:{destination}");
    world.act("/api/v1/pause", json!({ "target": target, "reason": "test" })).await;
    let mut events = vec![];
    for lead in leads {
        events.push(world.post(lead).await.event());
    }
    world.act("/api/v1/resume", json!({ "target": target })).await;
    let mut jobs = vec![];
    for event in events {
        jobs.extend(world.settled(&event).await);
    }
    jobs
}

fn leads() -> Vec<Value> {
    (0..LEADS).map(|n| lead(&format!("p{n}"))).collect()
}

fn states(jobs: &[Value]) -> Vec<&str> {
    jobs.iter().map(|job| job["state"].as_str().unwrap()).collect()
}

/// Every person has one record, written by one create.
fn assert_each_once(world: &World, leads: usize) {
    assert_eq!(world.crm.records("Lead").len(), leads);
    let ids = world.crm.external_ids("Lead", "External_Lead_Id__c");
    assert_eq!(ids.len(), leads);
    assert!(ids.values().all(|counts| counts.created == 1), "{ids:?}");
}

#[tokio::test]
async fn leads_that_wait_need_few_calls() {
    let world = world("many").await;
    let jobs = deliver(&world, "many", &leads()).await;
    assert_eq!(states(&jobs), ["succeeded"; LEADS]);
    assert_each_once(&world, LEADS);
    let calls = world.crm.truth().calls.received;
    assert!(calls <= 5, "{calls} calls for {LEADS} leads");
    let job = world.job(jobs[0]["id"].as_str().unwrap()).await;
    assert_eq!(job["attempts_made"].as_array().map(Vec::len), Some(1), "{job}");
}

#[tokio::test]
async fn batch_max_of_one_gives_every_lead_a_call() {
    let world = world("single").await;
    let jobs = deliver(&world, "single", &leads()).await;
    assert_eq!(states(&jobs), ["succeeded"; LEADS]);
    assert_eq!(world.crm.truth().calls.received, LEADS as u64);
}

#[tokio::test]
async fn one_bad_record_becomes_a_dead_letter_alone() {
    let world = world("many").await;
    let mut leads = leads();
    leads[7]["email"] = json!("not an address");
    let jobs = deliver(&world, "many", &leads).await;
    let mut expected = ["succeeded"; LEADS];
    expected[7] = "dead";
    assert_eq!(states(&jobs), expected);
    let job = world.job(jobs[7]["id"].as_str().unwrap()).await;
    assert_eq!(job["failure"]["code"], "INVALID_EMAIL_ADDRESS", "{job}");
    assert_each_once(&world, LEADS - 1);
}

#[tokio::test]
async fn lost_answer_of_a_batch_loses_and_doubles_no_lead() {
    for fault in [Fault::DropAfter, Fault::DropBefore, Fault::ErrorAfter] {
        let world = world("many").await;
        let plan = FaultPlan::scripted([Scripted::first(2, fault.clone()).only(CallKind::Write)]);
        world.crm.set_faults(plan).unwrap();
        let jobs = deliver(&world, "many", &leads()).await;
        assert_eq!(states(&jobs), ["succeeded"; LEADS], "{fault:?}");
        assert_each_once(&world, LEADS);
    }
}
