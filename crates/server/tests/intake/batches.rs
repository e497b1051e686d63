//! One request, many events.

use serde_json::json;

use crate::bodies::{QUEUES, post_json, raw};
use crate::fixture::World;

const FLOW: &str = "name: batch\ntriggers: [{ http: { path: /in, body: { events: [] }, idempotency: { key_from: body.id } } }]\nevent: { type: body.type, required: [attributes.name], attributes: [name] }\nsteps: [{ queue: leads }]\n";

async fn start(flow: &str) -> World {
    let worker = "name: to-sink\nconsumes: leads\nrun: [{ name: send, run: http.request, destination: sink, with: { url: /in, method: PUT, json: \"{{ body }}\" } }]\n";
    World::start_with(&[("flow.yml", flow), ("queues.yml", QUEUES), ("worker.yml", worker)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_of_a_request_has_its_own_key_and_response() {
    let world = start(FLOW).await;
    let event = |id: u32| json!({"id": id, "type": "lead", "name": format!("n{id}")});
    let first = post_json(&world, "/in", &json!([event(1), event(2)])).await;
    assert_eq!((first.status, first.body["status"].as_str()), (202, Some("accepted")), "{}", first.body);
    let keys: Vec<_> =
        first.body["events"].as_array().unwrap().iter().map(|event| event["idempotency_key"].clone()).collect();
    assert_eq!(keys, [json!("1"), json!("2")]);
    let second = post_json(&world, "/in", &json!([event(2), event(3), event(3)])).await;
    let statuses: Vec<_> =
        second.body["events"].as_array().unwrap().iter().map(|event| event["status"].clone()).collect();
    assert_eq!(statuses, [json!("duplicate"), json!("accepted"), json!("duplicate")], "{}", second.body);
    assert!(!second.headers.contains_key("idempotent-replayed"));
    assert_eq!(post_json(&world, "/in", &json!([event(1)])).await.headers["idempotent-replayed"], "true");
    assert_eq!(world.get("/api/v1/events").await["items"].as_array().unwrap().len(), 3);
    let id = first.body["events"][1]["event_id"].as_str().unwrap();
    assert_eq!(raw(&world, id).await, event(2), "each keeps its own part of the request");
    assert_eq!(post_json(&world, "/in", &json!([])).await.body, json!({"status": "accepted", "events": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_event_is_quarantined_and_does_not_delay_the_others() {
    let world = start(FLOW).await;
    let batch =
        json!([{"id": 1, "type": "lead", "name": "a"}, {"id": 2, "type": "lead"}, {"type": "lead", "name": "c"}, 17]);
    let answer = post_json(&world, "/in", &batch).await;
    let seen: Vec<_> = answer.body["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["status"].as_str().unwrap(), event["reason"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(
        seen,
        [
            ("accepted", ""),
            ("quarantined", "field-missing"),
            ("quarantined", "idempotency-key-missing"),
            ("quarantined", "idempotency-key-missing")
        ],
        "{}",
        answer.body
    );
    let bad = answer.body["events"][1]["event_id"].as_str().unwrap();
    let jobs = world.settled(bad).await;
    assert_eq!(jobs[0]["state"], "dead", "{jobs:?}");
    let job = world.job(jobs[0]["id"].as_str().unwrap()).await;
    assert!(job["failure"].to_string().contains("attributes.name"), "{job}");
    let again = post_json(&world, "/in", &batch).await;
    assert_eq!(again.headers["idempotent-replayed"], "true", "a repeat of the whole makes nothing new: {}", again.body);

    let strict = start(&FLOW.replace("required:", "on_mismatch: reject, required:")).await;
    let refused = post_json(&strict, "/in", &batch).await;
    assert_eq!((refused.status, refused.body["code"].as_str()), (422, Some("field-missing")), "{}", refused.body);
    assert_eq!(strict.get("/api/v1/events").await["items"], json!([]), "all or nothing");
}
