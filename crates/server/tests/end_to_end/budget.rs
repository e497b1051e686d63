//! Budgets of calls: jobs wait when none are left, over restarts too; replays leave the reserve to live traffic.

use serde_json::{Value, json};

use crate::fixture::{FLOW, QUEUES, World, lead, until};

const TO_PARTNER: &str = r#"
version: 1
name: to-partner
consumes: { queue: leads }
retry: { strategy: fixed, base_delay: 20ms, max_attempts: 3, on_exhausted: "dlq:leads-dlq" }
run:
  - name: put
    run: http.request
    destination: partner
    with: { url: "/leads/{{ event.contact_external_id }}", method: PUT, json: { name: "{{ event.last_name }}" } }
"#;

async fn world_with(budget: &str) -> World {
    let partner = format!("destinations: {{ partner: {{ type: http, base_url: '{{sink}}', budget: {budget} }} }}\n");
    let files =
        [("flow.yml", FLOW), ("worker.yml", TO_PARTNER), ("queues.yml", QUEUES), ("partner.yml", partner.as_str())];
    World::start_with(&files).await
}

fn calls(world: &World) -> usize {
    world.sink.requests().len()
}

async fn send(world: &World, names: std::ops::Range<usize>) -> Vec<String> {
    let mut events = Vec::new();
    for n in names {
        let mut lead = lead(&format!("lead-{n}"));
        lead["person"] = format!("person-{n}").into();
        events.push(world.post(&lead).await.event());
    }
    events
}

/// The jobs of these events, as the API shows them.
async fn jobs(world: &World, events: &[String]) -> Vec<Value> {
    let mut jobs = Vec::new();
    for event in events {
        let event = world.get(&format!("/api/v1/events/{event}")).await;
        jobs.push(world.job(event["jobs"][0]["id"].as_str().unwrap()).await);
    }
    jobs
}

fn count(jobs: &[Value], is: impl Fn(&Value) -> bool) -> usize {
    jobs.iter().filter(|job| is(job)).count()
}

fn waits_for_budget(job: &Value) -> bool {
    job["waiting_for"]["reason"] == "budget"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_up_budget_makes_jobs_wait_over_restarts_and_fires_an_alert() {
    let mut world = world_with("{ calls: 6, window: 24h, reserve: 0 }").await;
    let events = send(&world, 0..9).await;
    let settled = until(|| async {
        let jobs = jobs(&world, &events).await;
        let is_settled = count(&jobs, |job| job["state"] == "succeeded") == 6 && count(&jobs, waits_for_budget) == 3;
        is_settled.then_some(jobs)
    })
    .await;
    assert_eq!(calls(&world), 6);
    assert_eq!(count(&settled, |job| job["state"] == "queued"), 3, "nothing is a dead letter: {settled:?}");
    let waiting = settled.iter().find(|job| waits_for_budget(job)).unwrap();
    assert!(waiting["waiting_for"]["until"].is_string(), "{waiting}");
    let budget = world.get("/api/v1/destinations/partner").await["gate"]["budget"].clone();
    assert_eq!((&budget["used"], &budget["left"], &budget["limit"]), (&json!(6), &json!(0), &json!(6)), "{budget}");
    assert!(budget["runs_out_at"].is_string() && budget["resets_at"].is_string(), "{budget}");
    let status = world.get("/api/v1/status").await;
    let warnings = status["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|warning| warning["code"] == "budget"), "{status}");
    let metrics = world.page("/metrics").await;
    assert!(metrics.contains("sluice_destination_budget_left{destination=\"partner\"} 0"), "{metrics}");
    let alert = until(|| async {
        let alerts = world.get("/api/v1/alerts").await;
        alerts.as_array().unwrap().iter().find(|alert| alert["alert"] == "call-limit").cloned()
    })
    .await;
    assert_eq!(alert["subject"], "partner", "{alert}");
    assert!(alert["detail"].as_str().unwrap().starts_with("6 of 6 daily calls of destination:partner"), "{alert}");

    world.stop_node().await;
    world.start_node().await;
    let jobs = until(|| async {
        let jobs = jobs(&world, &events).await;
        (count(&jobs, waits_for_budget) == 3).then_some(jobs)
    })
    .await;
    assert_eq!((calls(&world), count(&jobs, |job| job["state"] == "succeeded")), (6, 6));
    let budget = world.get("/api/v1/destinations/partner").await["gate"]["budget"].clone();
    assert_eq!((&budget["used"], &budget["left"]), (&json!(6), &json!(0)), "{budget}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_wait_for_the_reserve_and_live_traffic_uses_it() {
    let world = world_with("{ calls: 10, window: 24h, reserve: 50 }").await;
    let first = send(&world, 0..4).await;
    for event in &first {
        world.settled(event).await;
    }
    assert_eq!(calls(&world), 4);
    let order = json!({ "ids": first, "reason": "again", "actor": "ann", "reapply": ["natural", "keyed"] });
    let answer = world.act("/api/v1/replays", order).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    until(|| async {
        let jobs = jobs(&world, &first).await;
        let waits = count(&jobs, |job| job["state"] == "waiting" && waits_for_budget(job));
        (waits == 3 && count(&jobs, |job| job["state"] == "succeeded") == 1).then_some(())
    })
    .await;
    assert_eq!(calls(&world), 5, "one call was above the reserve");
    let live = send(&world, 10..15).await;
    for event in &live {
        assert_eq!(world.settled(event).await[0]["state"], "succeeded");
    }
    assert_eq!(calls(&world), 10);
    let budget = world.get("/api/v1/destinations/partner").await["gate"]["budget"].clone();
    assert_eq!((&budget["left"], &budget["left_for_replays"], &budget["reserve"]), (&json!(0), &json!(0), &json!(5)));
}
