//! Stopping, starting again, and what is found then.

use sluice_simulator::{Fault, FaultPlan};

use serde_json::json;

use crate::fixture::{World, lead, until};

#[tokio::test(flavor = "multi_thread")]
async fn graceful_stop_releases_waiting_jobs_and_the_next_start_runs_them() {
    let mut world = World::start().await;
    world.crm.refuse_connections().unwrap();
    let mut events = Vec::new();
    for n in 0..20 {
        events.push(world.post(&lead(&format!("s{n}"))).await.event());
    }
    world.stop_node().await;
    world.crm.accept_connections().unwrap();
    world.start_node().await;
    for event in &events {
        assert_eq!(world.settled(event).await[0]["state"], "succeeded");
    }
    assert_eq!(world.crm.truth().object("Lead").records, 20);
    let repeat = world.post(&lead("s3")).await;
    assert_eq!(repeat.event(), events[3], "the key outlives the process");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_outlives_the_shutdown_timeout_is_settled_by_the_next_start() {
    let mut world = World::start().await;
    world.crm.set_faults(FaultPlan::always(Fault::TimeoutAfter { hold_ms: 60_000 })).unwrap();
    let event = world.post(&lead("slow")).await.event();
    until(|| async { (world.crm.truth().calls.applied > 0).then_some(()) }).await;
    // Written down meanwhile: it takes longer than a moment.
    let path = format!("/api/v1/events/{event}");
    until(|| async { (world.get(&path).await["jobs"][0]["state"] == "running").then_some(()) }).await;
    if let Some(node) = world.node.take() {
        node.stop(std::time::Duration::from_millis(1)).await;
    }
    world.crm.set_faults(FaultPlan::none()).unwrap();
    world.start_node().await;
    let jobs = world.settled(&event).await;
    let job = world.job(jobs[0]["id"].as_str().unwrap()).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert!(job["attempts_total"].as_u64().unwrap() >= 2, "the interrupted attempt is counted: {job}");
    assert_eq!(world.crm.truth().object("Lead").created, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_paused_before_a_restart_runs_after_it_is_resumed() {
    let mut world = World::start().await;
    world.act("/api/v1/pause", json!({ "target": "worker:to-crm", "reason": "maintenance" })).await;
    let before = world.post(&lead("before")).await.event();
    world.stop_node().await;
    world.start_node().await;
    let after = world.post(&lead("after")).await.event();
    assert_eq!(world.crm.truth().object("Lead").records, 0);
    world.act("/api/v1/resume", json!({ "target": "worker:to-crm" })).await;
    for event in [before, after] {
        assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    }
}

/// The ledger does not write down which steps were passed over; an attempt at a later one must be found all the same.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_effect_after_a_skipped_step_is_not_sent_again() {
    let worker = "version: 1\nname: to-sink\nconsumes: { queue: leads }\nrun:\n  \
        - { name: first, if: 'event.last_name == \"Nobody\"', run: http.request, destination: sink, with: { url: /first } }\n  \
        - { name: second, run: http.request, destination: sink, with: { url: /notify, json: { n: 1 } } }\n";
    let mut world = World::start_with_worker(worker).await;
    world.sink.set_faults(FaultPlan::always(Fault::TimeoutAfter { hold_ms: 60_000 })).unwrap();
    let event = world.post(&lead("blind")).await.event();
    until(|| async { (world.sink.truth().requests > 0).then_some(()) }).await;
    if let Some(node) = world.node.take() {
        node.stop(std::time::Duration::from_millis(1)).await;
    }
    world.sink.set_faults(FaultPlan::none()).unwrap();
    world.start_node().await;
    assert_eq!(world.settled(&event).await[0]["state"], "unknown");
    assert_eq!(world.sink.truth().requests, 1, "nobody sent it again");
}
