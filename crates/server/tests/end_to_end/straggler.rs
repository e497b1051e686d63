//! A call that was given up and is applied late must not leave old data behind.

use serde_json::{Value, json};
use sluice_simulator::faults::{CallKind, Millis, Scripted};
use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::{FLOW, QUEUES, World, lead_of, until};

const WORKER: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
retry: { strategy: exponential, base_delay: 20ms, multiplier: 2, jitter: full, max_delay: 200ms, max_attempts: 30, on_exhausted: "dlq:leads-dlq" }
run:
  - name: upsert
    run: salesforce.upsert
    destination: slow-crm
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.contact_external_id }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.company }}" }
"#;

const DESTINATION: &str = r#"
destinations:
  slow-crm:
    type: salesforce
    instance_url: {crm}
    auth: { client_id: sim-client, client_secret: "${secrets.CRM_SECRET}" }
    timeout: 300ms
    straggler_horizon: 6s
    breaker: { failures_in_a_row: 1000, calls_min: 1000 }
"#;

/// A late write is applied this long after it was sent: after its time-out and within the horizon.
const LATE_MS: u64 = 3_000;
/// On a busy machine the late write may be applied before the newer one is made; then there is nothing to notice.
const ROUNDS: usize = 6;

fn lead(id: &str, person: &str, company: &str) -> Value {
    let mut lead = lead_of(id, person);
    lead["company"] = json!(company);
    lead
}

fn company(world: &World, person: &str) -> Value {
    let id = json!(format!("website:{person}"));
    let records = world.crm.records("Lead");
    let record = records.iter().find(|record| record.fields.get("External_Lead_Id__c") == Some(&id));
    record.map_or(Value::Null, |record| record.fields["Company"].clone())
}

async fn world() -> World {
    World::start_with(&[("flow.yml", FLOW), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("slow.yml", DESTINATION)])
        .await
}

fn outcomes(job: &Value) -> Vec<String> {
    let made = job["attempts_made"].as_array().unwrap().iter();
    made.map(|made| made["outcome"].as_str().unwrap().to_owned()).collect()
}

/// The first write of a person is applied late, and a newer one is made meanwhile. Answers with the newer job.
async fn late_and_newer_write(world: &World, person: &str) -> String {
    let late = Scripted::first(1, Fault::Latency(Millis::fixed(LATE_MS))).only(CallKind::Write);
    world.crm.set_faults(FaultPlan::scripted([late])).unwrap();
    let older = world.post(&lead(&format!("{person}-1"), person, "Old Inc")).await.event();
    let newer = world.post(&lead(&format!("{person}-2"), person, "New Inc")).await.event();
    world.settled(&older).await;
    let jobs = world.settled(&newer).await;
    assert_eq!(jobs[0]["state"], "succeeded", "{jobs:?}");
    jobs[0]["id"].as_str().unwrap().to_owned()
}

/// The newer job once its write was compared with the record.
async fn compared(world: &World, job: &str) -> Value {
    until(|| async {
        let job = world.job(job).await;
        let read = outcomes(&job).iter().any(|outcome| outcome == "present" || outcome == "absent");
        (read && job["state"] == "succeeded").then_some(job)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_straggler_that_overwrites_newer_data_is_noticed_and_the_newest_write_is_made_again() {
    let world = world().await;
    for round in 0..ROUNDS {
        let person = format!("ada{round}");
        let newer = late_and_newer_write(&world, &person).await;
        let job = compared(&world, &newer).await;
        assert_eq!(company(&world, &person), "New Inc", "{job}");
        if outcomes(&job) == ["done", "present"] {
            continue;
        }
        assert_eq!(outcomes(&job), ["done", "absent", "done"], "{job}");
        assert_eq!(job["effects"][0]["state"], "applied");
        return;
    }
    panic!("the late write was applied before the newer one in every round");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_straggler_is_looked_for_also_after_a_restart() {
    let mut world = world().await;
    let newer = late_and_newer_write(&world, "grace").await;
    world.stop_node().await;
    world.start_node().await;
    compared(&world, &newer).await;
    assert_eq!(company(&world, "grace"), "New Inc");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_as_it_was_written_is_not_written_again() {
    let world = world().await;
    let held = Scripted::first(1, Fault::TimeoutAfter { hold_ms: 600 }).only(CallKind::Write);
    world.crm.set_faults(FaultPlan::scripted([held])).unwrap();
    let event = world.post(&lead("once", "ada", "Only Inc")).await.event();
    let id = world.settled(&event).await[0]["id"].as_str().unwrap().to_owned();
    let job = compared(&world, &id).await;
    assert_eq!(outcomes(&job), ["unsure", "done", "present"], "{job}");
    assert_eq!(company(&world, "ada"), "Only Inc");
}
