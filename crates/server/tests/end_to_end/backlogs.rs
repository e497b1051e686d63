//! Jobs that cannot run, more of them than memory holds, delay no job of the same worker that can.

use serde_json::json;
use sluice_domain::schedule::Limits;

use crate::fixture::{World, lead, until};

const LIMITS: Limits = Limits { jobs: 32, lane_jobs: 8, load_jobs: 16, in_flight: 32 };
/// Jobs that cannot run.
const STUCK: usize = 100;
/// Jobs that can.
const FREE: usize = 50;

/// Leads of company `A` take the step `a`, all others the step `b`.
fn worker(step_a: &str) -> String {
    format!(
        "version: 1\nname: two-ways\nconsumes: {{ queue: leads }}\nconcurrency: 4\n\
         retry: {{ strategy: fixed, base_delay: 1h, max_attempts: 3 }}\nrun:\n  \
         {step_a}  \
         - {{ name: b, if: 'event.company == \"B\"', run: http.request, destination: sink, with: {{ url: /b, method: PUT }} }}\n"
    )
}

const TO_OTHER: &str = "- { name: a, if: 'event.company == \"A\"', run: http.request, destination: other, with: { url: /a, method: PUT } }\n";

/// A node with little memory, and a second HTTP destination with these settings.
async fn world(step_a: &str, other: &str) -> World {
    let destination = format!("destinations:\n  other: {{ type: http, base_url: '{other}\n");
    let mut world = World::start_with(&[
        ("flow.yml", crate::fixture::FLOW),
        ("worker.yml", &worker(step_a)),
        ("queues.yml", crate::fixture::QUEUES),
        ("other.yml", &destination),
    ])
    .await;
    world.stop_node().await;
    world.limits = LIMITS;
    world.start_node().await;
    world
}

async fn post(world: &World, company: &str, count: usize) {
    for n in 0..count {
        let mut lead = lead(&format!("{company}-{n}"));
        lead["company"] = json!(company);
        world.post(&lead).await.event();
    }
}

fn calls(world: &World, path: &str) -> u64 {
    world.sink.paths().get(&format!("PUT {path}")).copied().unwrap_or(0)
}

/// Jobs for `b` run to their end although all jobs for `a`, which were there before, cannot run.
async fn assert_only_b_runs(world: &World) {
    post(world, "A", STUCK).await;
    post(world, "B", FREE).await;
    until(|| async { (calls(world, "/b") == FREE as u64).then_some(()) }).await;
    let status = world.get("/api/v1/status").await;
    assert!(status["jobs_in_memory"].as_u64().unwrap() <= LIMITS.jobs as u64, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_destination_delays_no_other() {
    let world = world(TO_OTHER, "{sink}' }").await;
    world.act("/api/v1/pause", json!({ "target": "destination:other", "reason": "maintenance" })).await;
    assert_only_b_runs(&world).await;
    assert_eq!(calls(&world, "/a"), 0);
    world.act("/api/v1/resume", json!({ "target": "destination:other" })).await;
    until(|| async { (calls(&world, "/a") == STUCK as u64).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_delays_no_other_destination() {
    let closed_port = "http://127.0.0.1:9', breaker: { failures_in_a_row: 1, open_first: 1h, open_max: 1h } }";
    assert_only_b_runs(&world(TO_OTHER, closed_port).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_back_offs_delay_no_other_destination() {
    let closed_port =
        "http://127.0.0.1:9', breaker: { failures_in_a_row: 100000, failure_percent: 100, calls_min: 100000 } }";
    assert_only_b_runs(&world(TO_OTHER, closed_port).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_delays_no_other_destination() {
    let world = world(TO_OTHER, "{sink}', rate: 1/min }").await;
    assert_only_b_runs(&world).await;
    assert!(calls(&world, "/a") <= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_delay_no_other_job() {
    let step =
        "- { name: a, if: 'event.company == \"A\"', run: approval.request, with: { title: Send?, summary: A lead } }\n";
    let world = world(step, "{sink}' }").await;
    assert_only_b_runs(&world).await;
}
