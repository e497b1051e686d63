//! Workers that are bound to a type of event or to the clock, and what can be paused.

use serde_json::{Value, json};

use crate::fixture::{Answer, World, lead, until};

const FLOW_WITHOUT_STEPS: &str = r#"
version: 1
name: shop
triggers:
  - http: { path: /in/shop, verify: none, idempotency: { key_from: body.id } }
event: { type: "cart.{{ body.what }}", id: body.id, identity: { email: body.email } }
"#;

const PLAYBOOK: &str = r#"
name: recover
on: cart.abandoned
steps:
  - { id: send, run: http.request, destination: sink, with: { url: /send, idempotency_header: Idempotency-Key, json: { to: {{ event.email }} } } }
"#;

async fn post(world: &World, body: Value) -> Answer {
    let request = world.client.post(format!("{}/in/shop", world.intake)).json(&body);
    Answer::of(request.send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_playbook_gets_every_event_of_its_type_and_no_other() {
    let world = World::start_with(&[("flow.yml", FLOW_WITHOUT_STEPS), ("playbook.yml", PLAYBOOK)]).await;
    let event = post(&world, json!({ "id": 1, "what": "abandoned", "email": "a@example.com" })).await.event();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs.len(), 1);
    assert_eq!((jobs[0]["worker"].as_str(), jobs[0]["state"].as_str()), (Some("recover"), Some("succeeded")));
    let other = post(&world, json!({ "id": 2, "what": "paid", "email": "a@example.com" })).await.event();
    assert!(world.settled(&other).await.is_empty());
    assert_eq!(world.sink.truth().applied, 1);
}

const EVERY_SECOND: &str = r#"
version: 1
name: clockwork
schedule: { cron: "* * * * * *" }
run:
  - { name: tick, run: http.request, destination: sink, with: { url: /tick, idempotency_header: Idempotency-Key, json: { slot: "{{ event.slot }}" } } }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_fires_each_moment_once_and_a_restart_makes_up_for_the_newest_alone() {
    let mut world =
        World::start_with(&[("flow.yml", FLOW_WITHOUT_STEPS), ("playbook.yml", PLAYBOOK), ("clock.yml", EVERY_SECOND)])
            .await;
    until(|| async { (world.sink.truth().applied >= 2).then_some(()) }).await;
    world.stop_node().await;
    let before = world.sink.truth().applied;
    world.start_node().await;
    until(|| async { (world.sink.truth().applied >= before + 2).then_some(()) }).await;
    let mut slots: Vec<String> = world.sink.requests().into_iter().map(|got| got.body).collect();
    let all = slots.len();
    slots.sort();
    slots.dedup();
    assert_eq!(slots.len(), all, "no moment twice: {slots:?}");
    world.act("/api/v1/pause", json!({ "target": "playbook:clockwork", "reason": "enough" })).await;
    let pauses = world.get("/api/v1/pauses").await;
    assert!(pauses.to_string().contains("worker:clockwork"), "{pauses}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_and_paused_replays_stay_paused_over_a_restart() {
    let mut world = World::start().await;
    world.act("/api/v1/pause", json!({ "target": "queue:leads", "reason": "maintenance" })).await;
    world.act("/api/v1/pause", json!({ "target": "replays", "reason": "incident" })).await;
    let event = world.post(&lead("q")).await.event();
    world.stop_node().await;
    world.start_node().await;
    assert_eq!(world.crm.truth().object("Lead").records, 0);
    let refused = world.act("/api/v1/replays", json!({ "ids": [event], "reason": "again" })).await;
    assert!(refused.status == 400 && refused.body.to_string().contains("replays have been paused"), "{}", refused.body);
    world.act("/api/v1/resume", json!({ "target": "queue:leads" })).await;
    assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    world.act("/api/v1/resume", json!({ "target": "replays" })).await;
    let replayed = world.act("/api/v1/replays", json!({ "ids": [event], "reason": "again" })).await;
    assert_eq!(replayed.body["changed"], 1, "{}", replayed.body);
}

const FLOW_OF_LISTS: &str = r#"
version: 1
name: shop
triggers:
  - http: { path: /in/shop, verify: none, idempotency: { key_from: body.id }, body: { events: carts } }
event: { type: cart.abandoned, id: body.id, identity: { email: body.email } }
"#;

const QUICK_PLAYBOOK: &str = r#"
name: recover
on: cart.abandoned
concurrency: 64
steps:
  - { id: send, run: http.request, destination: sink, with: { url: /send, idempotency_header: Idempotency-Key, json: { cart: {{ event.id }} } } }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn backlog_longer_than_memory_is_completed_while_new_jobs_arrive() {
    let world = World::start_with(&[("flow.yml", FLOW_OF_LISTS), ("playbook.yml", QUICK_PLAYBOOK)]).await;
    world.act("/api/v1/pause", json!({ "target": "playbook:recover", "reason": "a long night" })).await;
    let send = async |first: usize, count: usize| {
        let cart = |id: usize| json!({ "id": id, "email": format!("{id}@example.com") });
        let carts: Vec<Value> = (first..first + count).map(cart).collect();
        assert_eq!(post(&world, json!({ "carts": carts })).await.status, 202);
    };
    // Beyond 8,192 nobody is told of them.
    for slice in 0..9 {
        send(slice * 1_000, 1_000).await;
    }
    world.act("/api/v1/resume", json!({ "target": "playbook:recover" })).await;
    for (slice, done) in (0..).zip((1_000..10_000).step_by(1_000)) {
        until(|| async { (world.sink.truth().applied >= done).then_some(()) }).await;
        send(9_000 + slice * 100, 100).await;
    }
    until(|| async { (world.sink.truth().applied >= 9_900).then_some(()) }).await;
    assert_eq!(world.sink.truth().applied, 9_900);
}
