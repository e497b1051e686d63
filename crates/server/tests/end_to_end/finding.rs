//! Events are found by what an operator knows of them.

use serde_json::{Value, json};

use crate::fixture::{Answer, World, lead, lead_of};

async fn found(world: &World, query: &str) -> Vec<String> {
    let list = world.get(&format!("/api/v1/events?{query}")).await;
    let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
    items.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
}

async fn problem(world: &World, path: &str) -> Answer {
    Answer::of(world.client.get(format!("{}{path}", world.admin)).bearer_auth(world.token()).send().await.unwrap())
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_key_by_contact_and_by_status() {
    let world = World::start().await;
    let first = world.post(&lead_of("lead-1", "ada")).await.event();
    let second = world.post(&lead_of("lead-2", "ada")).await.event();
    let other = world.post(&lead("lead-3")).await.event();
    for event in [&first, &second, &other] {
        world.settled(event).await;
    }
    let key = world.get(&format!("/api/v1/events/{first}")).await["idempotency_key"].as_str().unwrap().to_owned();
    assert_eq!(found(&world, &format!("key={key}")).await, [first.as_str()]);
    assert_eq!(found(&world, "contact=ADA@example.com").await, [second.clone(), first.clone()], "newest first");
    assert_eq!(found(&world, "contact=ada@example.com&limit=1").await, [second.as_str()]);
    let next = world.get("/api/v1/events?contact=ada@example.com&limit=1").await["next"].clone();
    let rest = found(&world, &format!("contact=ada@example.com&after={}", next.as_str().unwrap())).await;
    assert_eq!(rest, [first.as_str()]);
    assert!(found(&world, "contact=somebody@example.com").await.is_empty());
    assert_eq!(found(&world, "state=done&since=1h").await.len(), 3);
    assert!(found(&world, "state=dead").await.is_empty());
    assert!(found(&world, "since=2999-01-01T00:00:00Z").await.is_empty());

    let shown: Value = world.get(&format!("/api/v1/events/{key}")).await;
    assert_eq!(shown["id"], json!(first), "an event is shown by its key: {shown}");
    let unknown = problem(&world, "/api/v1/events/no-such-key").await;
    assert_eq!((unknown.status, &unknown.body["code"]), (404, &json!("not-found")), "{}", unknown.body);
    let typo = problem(&world, "/api/v1/events?state=ded").await;
    assert!(typo.body["detail"].as_str().unwrap().contains("did you mean `dead`"), "{}", typo.body);
    for empty in ["/api/v1/events?key=", "/api/v1/events?contact=%20"] {
        assert_eq!(problem(&world, empty).await.status, 400, "an empty value does not mean everything: {empty}");
    }
}
