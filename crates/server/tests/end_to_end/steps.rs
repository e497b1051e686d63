//! Lists, failures that do not stop a job, and effects that are taken back.

use serde_json::{Value, json};
use sluice_simulator::faults::Scripted;
use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::{World, lead, lead_of};

fn worker(retry: &str, steps: &str) -> String {
    format!(
        "version: 1\nname: to-sink\nconsumes: {{ queue: leads }}\nretry: {{ base_delay: 10ms, max_delay: 50ms, {retry} }}\nrun:\n{steps}"
    )
}

fn basket(id: &str, items: &[&str]) -> Value {
    let mut lead = lead(id);
    lead["items"] = items.iter().map(|sku| json!({ "sku": sku })).collect();
    lead
}

async fn only_job(world: &World, event: &str) -> Value {
    let jobs = world.settled(event).await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    world.job(jobs[0]["id"].as_str().unwrap()).await
}

async fn replay(world: &World, event: &str) {
    let answer = world.act("/api/v1/replays", json!({ "ids": [event], "reason": "mended" })).await;
    assert_eq!(answer.body["changed"], 1, "{}", answer.body);
}

/// What reached the sink, as `METHOD /path body`.
fn sent(world: &World) -> Vec<String> {
    world.sink.requests().iter().map(|got| format!("{} {} {}", got.method, got.target, got.body)).collect()
}

const ITEMS: &str = r#"
  - name: order
    foreach: "{{ body.items }}"
    if: item.sku != "skip"
    run: http.request
    destination: sink
    with: { url: /order, idempotency_header: Idempotency-Key, json: { sku: "{{ item.sku }}", n: "{{ index }}" } }
  - name: tell
    run: http.request
    destination: sink
    with: { method: PUT, url: /tell, json: { statuses: "{{ steps.order.output | length }}" } }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn each_item_is_an_effect_and_a_second_run_continues_at_the_first_unfinished_item() {
    let world = World::start_with_worker(&worker("max_attempts: 2", ITEMS)).await;
    world.sink.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::Reply { code: 422 }).after(1)])).unwrap();
    let event = world.post(&basket("b1", &["a", "skip", "b", "c"])).await.event();
    let job = only_job(&world, &event).await;
    assert_eq!(job["state"], "dead", "{job}");
    assert_eq!(sent(&world).len(), 2, "a, and b which was refused: {:?}", sent(&world));
    replay(&world, &event).await;
    let job = only_job(&world, &event).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let orders: Vec<String> = sent(&world).into_iter().filter(|line| line.contains("/order")).collect();
    let of = |sku: &str| orders.iter().filter(|line| line.contains(&format!("\"{sku}\""))).count();
    assert_eq!((of("a"), of("b"), of("c"), of("skip")), (1, 2, 1, 0), "{orders:?}");
    let keys = world.sink.keys();
    assert!(keys.len() == 4 && keys.values().all(|key| key.applied == 1), "three items and the last step: {keys:?}");
    assert_eq!(sent(&world).last().unwrap(), "PUT /tell {\"statuses\":4}");
    let effects: Vec<&str> =
        job["effects"].as_array().unwrap().iter().map(|effect| effect["step"].as_str().unwrap_or_default()).collect();
    assert!(effects.contains(&"order[0]") && effects.contains(&"order[3]"), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_that_is_too_long_or_missing_is_reported() {
    let world = World::start_with_worker(&worker("max_attempts: 2", ITEMS)).await;
    let mut no_list = lead("n");
    no_list["items"] = json!("many");
    let job = only_job(&world, &world.post(&no_list).await.event()).await;
    assert_eq!(job["failure"]["code"], "foreach", "{job}");
    let empty = only_job(&world, &world.post(&lead("e")).await.event()).await;
    assert_eq!(empty["state"], "succeeded", "no items, and the step behind them is done: {empty}");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_continues_after_a_failed_step_and_later_steps_see_the_failure() {
    let steps = r#"
  - { name: extra, on_error: continue, run: http.request, destination: sink, with: { url: /extra, json: {} } }
  - { name: bad, on_error: continue, run: http.request, destination: sink, with: { url: "/x/{{ body.nothing }}" } }
  - name: main
    run: http.request
    destination: sink
    with: { method: PUT, url: /main, json: { status: "{{ steps.extra.output.error.status }}", why: "{{ steps.bad.output.error.code }}" } }
"#;
    let world = World::start_with_worker(&worker("max_attempts: 2", steps)).await;
    world.sink.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::Reply { code: 422 })])).unwrap();
    let job = only_job(&world, &world.post(&lead("a")).await.event()).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(sent(&world).last().unwrap(), "PUT /main {\"status\":422,\"why\":\"with\"}");
}

const UNDONE: &str = r#"
  - name: reserve
    run: http.request
    destination: sink
    with: { url: /reserve, idempotency_header: Idempotency-Key, json: { who: "{{ event.email }}" } }
    undo: { run: http.request, destination: sink, with: { method: DELETE, url: "/reserve/{{ body.id }}" } }
  - name: note
    run: http.request
    destination: sink
    with: { method: PUT, url: /note }
  - name: charge
    run: http.request
    destination: sink
    with: { url: /charge, idempotency_header: Idempotency-Key, json: {} }
    undo: { run: http.request, destination: sink, with: { method: DELETE, url: /charge } }
  - name: ship
    run: http.request
    destination: sink
    with: { url: /ship, idempotency_header: Idempotency-Key, json: {} }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn failed_later_step_undoes_earlier_ones_in_reverse_and_a_replay_repeats_them() {
    let mut world = World::start_with_worker(&worker("max_attempts: 3", UNDONE)).await;
    // The fourth request is refused; an undo fails once, and is tried again.
    world
        .sink
        .set_faults(FaultPlan::scripted([
            Scripted::first(1, Fault::Reply { code: 422 }).after(3),
            Scripted::first(1, Fault::ErrorBefore).after(4),
        ]))
        .unwrap();
    let event = world.post(&lead("u1")).await.event();
    let job = only_job(&world, &event).await;
    assert_eq!(job["state"], "dead", "{job}");
    let message = job["failure"]["message"].as_str().unwrap();
    assert!(message.ends_with("; undone: charge, reserve"), "{message}");
    assert_eq!(job["failure"]["status"], 422, "what it died of stays: {job}");
    let paths = |world: &World| -> Vec<String> {
        world.sink.requests().iter().map(|got| format!("{} {}", got.method, got.target)).collect()
    };
    assert_eq!(
        paths(&world),
        [
            "POST /reserve",
            "PUT /note",
            "POST /charge",
            "POST /ship",
            "DELETE /charge",
            "DELETE /reserve/u1",
            "DELETE /reserve/u1"
        ]
    );
    world.sink.set_faults(FaultPlan::none()).unwrap();
    world.stop_node().await;
    world.start_node().await;
    replay(&world, &event).await;
    let job = only_job(&world, &event).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(paths(&world)[7..], ["POST /reserve", "POST /charge", "POST /ship"], "the note was never undone");
    let requests = world.sink.requests();
    let keys_of = |path: &str| -> Vec<&str> {
        let got = requests.iter().filter(|got| got.method == "POST" && got.target == path);
        let headers = got.flat_map(|got| &got.headers);
        headers.filter(|(name, _)| name.eq_ignore_ascii_case("idempotency-key")).map(|(_, key)| key.as_str()).collect()
    };
    let (reserve, ship) = (keys_of("/reserve"), keys_of("/ship"));
    assert_ne!(reserve[0], reserve[1], "what was undone is done again under another key");
    assert_eq!(ship[0], ship[1], "what never happened keeps its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn step_may_opt_out_of_undo() {
    let steps = UNDONE.replace("  - name: ship\n", "  - name: ship\n    on_error: dead\n");
    let world = World::start_with_worker(&worker("max_attempts: 2", &steps)).await;
    world.sink.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::Reply { code: 422 }).after(3)])).unwrap();
    let job = only_job(&world, &world.post(&lead("u2")).await.event()).await;
    assert_eq!((job["state"].as_str(), world.sink.truth().requests), (Some("dead"), 4), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_budget_of_a_contact_is_not_exceeded_or_refilled_by_a_restart() {
    let step = "  - { name: send, run: http.request, destination: sink, with: { method: PUT, url: /x } }\n";
    let mut world = World::start_with_worker(&worker("max_attempts: 20, budget_per_contact: 2", step)).await;
    world.sink.set_faults(FaultPlan::always(Fault::ErrorBefore)).unwrap();
    let first = only_job(&world, &world.post(&lead_of("a", "ada")).await.event()).await;
    assert_eq!((first["state"].as_str(), first["failure"]["code"].as_str()), (Some("dead"), Some("retry-budget")));
    assert_eq!(world.sink.truth().requests, 3, "the first attempt and two retries");
    world.stop_node().await;
    world.start_node().await;
    let second = only_job(&world, &world.post(&lead_of("b", "ada")).await.event()).await;
    assert_eq!(
        (second["attempts_total"].as_u64(), second["failure"]["code"].as_str()),
        (Some(1), Some("retry-budget"))
    );
    let other = only_job(&world, &world.post(&lead_of("c", "grace")).await.event()).await;
    assert_eq!(other["attempts_total"], 3, "another contact has a budget of its own: {other}");
    let metrics = world.page("/metrics").await;
    assert!(metrics.contains("sluice_retry_budget_exhausted_total{worker=\"to-sink\"} 2"), "{metrics}");
}
