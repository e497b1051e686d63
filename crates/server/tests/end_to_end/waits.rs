//! Operators are told what is wrong and why jobs do not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};
use sluice_server::clock::Clock;
use sluice_server::run::Node;

use crate::fixture::{FLOW, QUEUES, World, lead, lead_of, until};
use crate::guard_fixture::{Shop, cart};

/// A destination where nothing listens, and a breaker that stays open for long.
const DEAD_END: &str = r#"
destinations:
  dead-end:
    type: http
    base_url: http://127.0.0.1:1
    breaker: { failures_in_a_row: {failures}, calls_min: 10000, open_first: 1h, open_max: 1h }
"#;

const TO_DEAD_END: &str = r#"
version: 1
name: to-dead-end
consumes: { queue: leads }
retry: { strategy: exponential, base_delay: 2h, multiplier: 1, jitter: none, max_delay: 2h, max_attempts: 9, on_exhausted: "dlq:leads-dlq" }
run:
  - name: post
    run: http.request
    destination: dead-end
    with: { url: /leads, method: PUT, json: { name: "{{ event.last_name }}" } }
"#;

async fn world_with_a_dead_end(failures_until_open: u32) -> World {
    let destination = DEAD_END.replace("{failures}", &failures_until_open.to_string());
    World::start_with(&[
        ("flow.yml", FLOW),
        ("worker.yml", TO_DEAD_END),
        ("queues.yml", QUEUES),
        ("dead-end.yml", &destination),
    ])
    .await
}

/// The only job of an event, once it is in this state.
async fn job_that_is(world: &World, event: &str, state: &str) -> Value {
    until(|| async {
        let event = world.get(&format!("/api/v1/events/{event}")).await;
        let job = world.job(event["jobs"][0]["id"].as_str().unwrap()).await;
        (job["state"] == state).then_some(job)
    })
    .await
}

fn warning<'a>(status: &'a Value, code: &str) -> Option<&'a Value> {
    status["warnings"].as_array().unwrap().iter().find(|warning| warning["code"] == code)
}

fn waiting<'a>(status: &'a Value, reason: &str) -> Option<&'a Value> {
    status["waiting"].as_array().unwrap().iter().find(|waiting| waiting["reason"] == reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn status_names_a_pause_and_the_jobs_that_wait_for_it() {
    let world = World::start().await;
    let pause = json!({ "target": "destination:crm", "reason": "maintenance", "actor": "ann" });
    world.act("/api/v1/pause", pause).await;
    let event = world.post(&lead("waits")).await.event();
    let job = job_that_is(&world, &event, "queued").await;
    assert_eq!(job["waiting_for"]["reason"], "destination-paused", "{job}");
    assert_eq!(job["waiting_for"]["message"], "destination:crm is paused by ann: maintenance");
    let status = world.get("/api/v1/status").await;
    let paused = waiting(&status, "destination-paused").unwrap();
    assert_eq!((&paused["jobs"], &paused["target"]), (&json!(1), &json!("destination:crm")), "{status}");
    world.act("/api/v1/resume", json!({ "target": "destination:crm" })).await;
    world.settled(&event).await;
    let status = world.get("/api/v1/status").await;
    assert_eq!((&status["waiting"], &status["warnings"]), (&json!([]), &json!([])), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_is_named_as_the_reason() {
    let world = World::start().await;
    world.act("/api/v1/pause", json!({ "target": "queue:leads", "reason": "audit", "actor": "ann" })).await;
    let event = world.post(&lead("waits")).await.event();
    let job = job_that_is(&world, &event, "queued").await;
    assert_eq!(job["waiting_for"]["target"], "queue:leads", "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_is_a_warning_and_the_reason_of_its_jobs() {
    let world = world_with_a_dead_end(1).await;
    let first = world.post(&lead("first")).await.event();
    let job = job_that_is(&world, &first, "retrying").await;
    assert_eq!(job["waiting_for"]["reason"], "breaker", "{job}");
    assert!(job["waiting_for"]["until"].is_string() && job["failure"].is_object(), "{job}");
    let second = world.post(&lead("second")).await.event();
    let job = job_that_is(&world, &second, "queued").await;
    assert_eq!(job["waiting_for"]["message"], "the circuit breaker of destination:dead-end is open", "{job}");
    let status = world.get("/api/v1/status").await;
    let open = warning(&status, "breaker-open").unwrap();
    assert!(open["message"].as_str().unwrap().contains("destination:dead-end is open"), "{open}");
    assert!(open["action"].as_str().unwrap().contains("Check the destination"), "{open}");
    assert_eq!(waiting(&status, "breaker").unwrap()["jobs"], 2, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_behind_another_in_its_lane_says_so_and_a_stuck_lane_is_a_warning() {
    let mut world = world_with_a_dead_end(1_000).await;
    world.stop_node().await;
    let ahead_ms = Arc::new(AtomicI64::new(0));
    let read = ahead_ms.clone();
    let wall = move || {
        let now: sluice_domain::time::Time = jiff::Timestamp::now().into();
        sluice_domain::time::Time(now.0 + read.load(Ordering::SeqCst))
    };
    let node = Node::start_with_clock(world.settings(), Clock::with_wall(Arc::new(wall))).await.unwrap();
    (world.intake, world.admin) = (format!("http://{}", node.intake), format!("http://{}", node.admin));
    world.node = Some(node);
    let first = world.post(&lead_of("one", "ada")).await.event();
    let head = job_that_is(&world, &first, "retrying").await;
    assert_eq!(head["waiting_for"]["reason"], "retry", "{head}");
    let second = world.post(&lead_of("two", "ada")).await.event();
    let job = job_that_is(&world, &second, "queued").await;
    assert_eq!((&job["waiting_for"]["reason"], &job["waiting_for"]["target"]), (&json!("lane"), &head["id"]), "{job}");
    let status = world.get("/api/v1/status").await;
    assert!(warning(&status, "lane-stuck").is_none(), "not before it has waited for a minute: {status}");
    ahead_ms.store(120_000, Ordering::SeqCst);
    let status = world.get("/api/v1/status").await;
    let stuck = warning(&status, "lane-stuck").unwrap()["message"].as_str().unwrap();
    assert!(stuck.contains(head["id"].as_str().unwrap()) && stuck.contains("1 job"), "{stuck}");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_configuration_on_disk_is_a_warning_while_the_old_one_runs() {
    let world = World::start().await;
    let good = std::fs::read_to_string(world.config_path("worker.yml")).unwrap();
    std::fs::write(world.config_path("worker.yml"), good.replace("salesforce.upsert", "salesforce.upsret")).unwrap();
    let status = world.get("/api/v1/status").await;
    let broken = warning(&status, "config-broken").unwrap();
    assert!(broken["message"].as_str().unwrap().contains("worker.yml"), "{broken}");
    assert!(broken["action"].as_str().unwrap().contains("sluice check"), "{broken}");
    std::fs::write(world.config_path("worker.yml"), good.replace("concurrency: 16", "concurrency: 15")).unwrap();
    let status = world.get("/api/v1/status").await;
    assert!(warning(&status, "config-broken").is_none() && warning(&status, "config-not-active").is_some(), "{status}");
    world.act("/api/v1/reload", json!({})).await;
    assert_eq!(world.get("/api/v1/status").await["warnings"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_an_approval_shows_no_failure() {
    let worker = "name: cart-recovery\nconsumes: carts\nrun:\n  - name: approve\n    run: approval.request\n    with: { title: Send it? }\n  \
        - name: send\n    run: messaging.send_template\n    with: { template: cart, to: \"{{ event.email }}\", vars: { offer: ten } }\n";
    let shop = Shop::open(worker, &[]).await;
    let event = shop.world.post(&cart("c1", "ada")).await.event();
    let job = job_that_is(&shop.world, &event, "waiting").await;
    assert!(job["failure"].is_null(), "waiting is no failure: {job}");
    assert_eq!(job["waiting_for"]["reason"], "approval", "{job}");
    assert!(job["waiting_for"]["message"].as_str().unwrap().contains("apr_"), "{job}");
    let status = shop.world.get("/api/v1/status").await;
    assert_eq!(waiting(&status, "approval").unwrap()["jobs"], 1, "{status}");
}
