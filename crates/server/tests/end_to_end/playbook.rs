//! Steps that stay inside, and the marks that keep an effect from happening twice.

use serde_json::{Value, json};

use crate::fixture::{World, lead_of};

const MARKED: &str = r#"
version: 1
name: to-sink
consumes: { queue: leads }
retry: { base_delay: 10ms, max_delay: 50ms, max_attempts: 5 }
run:
  - id: compute-dedup
    run: utils.compute_dedup_key
    with: { fields: [contact_external_id, occurred_at], bucket_minutes: 5 }
  - id: check-and-set
    run: store.setnx
    with: { key: {{ steps.compute-dedup.output.key }}, ttl_seconds: 2700 }
  - id: send
    if: {{ steps.check-and-set.output.set == true }}
    run: http.request
    destination: sink
    with: { url: /send, json: { to: "{{ event.email }}", key: "{{ steps.compute-dedup.output.key }}" } }
"#;

fn at(id: &str, person: &str, moment: &str) -> Value {
    let mut lead = lead_of(id, person);
    lead["created_at"] = json!(moment);
    lead
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_two_events_with_equal_content_is_sent() {
    let world = World::start_with_worker(MARKED).await;
    let moments = [("a", "2026-11-15T12:01:00Z"), ("b", "2026-11-15T12:04:59Z"), ("c", "2026-11-15T12:05:01Z")];
    let mut owner = String::new();
    for (id, moment) in moments {
        let event = world.post(&at(id, "ada", moment)).await.event();
        let job = world.settled(&event).await.remove(0);
        let detail = world.job(job["id"].as_str().unwrap()).await;
        if id == "a" {
            assert_eq!(job["state"], "succeeded", "{detail}");
            owner = event;
        } else {
            assert_eq!(job["state"], "noop", "{detail}");
            assert_eq!(detail["result"]["check-and-set"], json!({ "set": false, "owner_event": owner }));
        }
    }
    assert_eq!(world.sink.truth().requests, 1, "c lies in the next stretch, just behind the edge");
    let other = world.post(&at("d", "grace", "2026-11-15T12:01:00Z")).await.event();
    assert_eq!(world.settled(&other).await[0]["state"], "succeeded");
    let later = world.post(&at("e", "ada", "2026-11-15T12:21:00Z")).await.event();
    assert_eq!(world.settled(&later).await[0]["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_field_is_named_in_the_dead_letter() {
    let worker = MARKED.replace("contact_external_id", "basket_id");
    let world = World::start_with_worker(&worker).await;
    let event = world.post(&lead_of("a", "ada")).await.event();
    let job = world.settled(&event).await.remove(0);
    let detail = world.job(job["id"].as_str().unwrap()).await;
    assert_eq!((job["state"].as_str(), detail["failure"]["code"].as_str()), (Some("dead"), Some("dedup-key")));
    assert!(detail["failure"]["message"].as_str().unwrap().contains("`basket_id`"), "{detail}");
}
