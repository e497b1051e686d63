//! Stopping, starting again, and what is found then.

use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::{World, lead, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_stop_gives_back_what_waits_and_the_next_start_does_it() {
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
async fn an_attempt_that_outlives_the_patience_is_settled_by_the_next_start() {
    let mut world = World::start().await;
    world.crm.set_faults(FaultPlan::always(Fault::TimeoutAfter { hold_ms: 60_000 })).unwrap();
    let event = world.post(&lead("slow")).await.event();
    until(|| async { (world.crm.truth().calls.applied > 0).then_some(()) }).await;
    if let Some(node) = world.node.take() {
        node.stop(std::time::Duration::from_millis(1)).await;
    }
    world.crm.set_faults(FaultPlan::none()).unwrap();
    world.start_node().await;
    let jobs = world.settled(&event).await;
    let job = world.job(jobs[0]["id"].as_str().unwrap()).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert!(job["tries"].as_u64().unwrap() >= 2, "the interrupted attempt is counted: {job}");
    assert_eq!(world.crm.truth().object("Lead").created, 1);
}
