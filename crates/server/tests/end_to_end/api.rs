//! What the admin API offers beside the lists of events and jobs: keys of commands, accounts, the pending plan, the audit trail.

use serde_json::{Value, json};

use crate::fixture::{Answer, World, lead};

/// A command with an idempotency key.
async fn command(world: &World, key: &str, path: &str, body: &Value) -> Answer {
    let request = world.client.post(format!("{}{path}", world.admin)).bearer_auth(world.token());
    let request = request.header("idempotency-key", key).header("content-type", "application/json");
    Answer::of(request.body(body.to_string()).send().await.unwrap()).await
}

async fn audited(world: &World, query: &str) -> Vec<Value> {
    world.get(&format!("/api/v1/audit{query}")).await["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn command_with_a_key_is_done_once_over_a_restart() {
    let mut world = World::start().await;
    let pause = json!({ "target": "destination:crm", "reason": "maintenance", "actor": "ann" });
    let first = command(&world, "k-1", "/api/v1/pause", &pause).await;
    assert_eq!(first.status, 200, "{}", first.body);
    assert!(!first.headers.contains_key("idempotent-replayed"));
    world.stop_node().await;
    world.start_node().await;
    let again = command(&world, "k-1", "/api/v1/pause", &pause).await;
    assert_eq!((again.status, &again.body), (200, &first.body));
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(audited(&world, "?action=pause").await.len(), 1, "it was done once");
    let other = json!({ "target": "destination:sink", "reason": "maintenance", "actor": "ann" });
    let refused = command(&world, "k-1", "/api/v1/pause", &other).await;
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("idempotency-key-reused")));
    let elsewhere = command(&world, "k-1", "/api/v1/resume", &pause).await;
    assert_eq!(elsewhere.status, 422, "{}", elsewhere.body);
    let invalid = command(&world, &"k".repeat(256), "/api/v1/pause", &pause).await;
    assert_eq!((invalid.status, &invalid.body["code"]), (400, &json!("idempotency-key-invalid")));
}

#[tokio::test(flavor = "multi_thread")]
async fn response_with_a_secret_is_not_kept_and_a_revealed_one_is_read_again() {
    let world = World::start().await;
    let token = json!({ "name": "ci", "role": "viewer", "actor": "ann" });
    let made = command(&world, "t-1", "/api/v1/tokens", &token).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let again = command(&world, "t-1", "/api/v1/tokens", &token).await;
    assert_eq!((again.status, &again.body["code"]), (409, &json!("response-not-kept")), "{}", again.body);
    assert_eq!(world.get("/api/v1/tokens").await.as_array().unwrap().len(), 1);
    let event = world.post(&lead("ada")).await.event();
    let reveal = json!({ "reason": "a call", "actor": "ann" });
    for _ in 0..2 {
        let seen = command(&world, "r-1", &format!("/api/v1/events/{event}/reveal"), &reveal).await;
        assert_eq!((seen.status, &seen.body["raw"]["email"]), (200, &json!("ada@example.com")), "{}", seen.body);
    }
    assert_eq!(audited(&world, "?action=reveal").await.len(), 2, "each look is audited");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_command_keeps_its_response_too() {
    let world = World::start().await;
    let pause = json!({ "target": "destination:crn", "reason": "x" });
    let first = command(&world, "k-1", "/api/v1/pause", &pause).await;
    let again = command(&world, "k-1", "/api/v1/pause", &pause).await;
    assert_eq!((first.status, again.status, &again.body), (404, 404, &first.body));
    assert_eq!(again.headers["content-type"], "application/problem+json");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_trail_is_filtered_by_actor_action_object_and_time() {
    let world = World::start().await;
    for (actor, target) in [("ann", "destination:crm"), ("bob", "destination:sink"), ("ann", "worker:to-crm")] {
        world.act("/api/v1/pause", json!({ "target": target, "reason": "x", "actor": actor })).await;
    }
    world.act("/api/v1/resume", json!({ "target": "worker:to-crm", "actor": "ann" })).await;
    assert_eq!(audited(&world, "?actor=ann").await.len(), 3);
    assert_eq!(audited(&world, "?actor=ann&action=pause").await.len(), 2);
    assert_eq!(audited(&world, "?object=destination:").await.len(), 2);
    assert_eq!(audited(&world, "?action=pause&since=1h").await.len(), 3);
    assert!(audited(&world, "?action=pause&until=1h").await.is_empty());
    let page = world.get("/api/v1/audit?actor=ann&limit=1").await;
    let next = page["next"].as_str().unwrap();
    assert_eq!(audited(&world, &format!("?actor=ann&after={next}")).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_queues_and_balance_account_for_everything() {
    let world = World::start().await;
    let event = world.post(&lead("ada")).await.event();
    world.post(&lead("ada")).await;
    world.settled(&event).await;
    let mut long = lead("bob");
    long["last_name"] = json!("L".repeat(200));
    let dead = world.post(&long).await.event();
    world.settled(&dead).await;
    let flows = world.get("/api/v1/flows").await;
    assert_eq!((&flows[0]["name"], &flows[0]["route"]), (&json!("website-leads"), &json!("POST /in/website")));
    assert_eq!((&flows[0]["queues"], &flows[0]["workers"]), (&json!(["leads"]), &json!(["to-crm"])));
    let queues = world.get("/api/v1/queues").await;
    let queue = |name: &str| queues.as_array().unwrap().iter().find(|queue| queue["name"] == name).unwrap().clone();
    assert_eq!((&queue("leads")["live"], &queue("leads-dlq")["dead_letters"]), (&json!(0), &json!(1)), "{queues}");
    assert_eq!(queue("leads")["workers"], json!(["to-crm"]));
    let balance = world.get("/api/v1/balance?since=1d").await;
    let row = balance["rows"].as_array().unwrap().last().unwrap();
    let counts = ["accepted", "duplicates", "done", "dead", "waiting", "remainder"].map(|name| row[name].clone());
    assert_eq!(counts, [json!(2), json!(1), json!(1), json!(1), json!(0), json!(0)], "{balance}");
    assert!(balance.get("next").is_none(), "{balance}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_not_active_are_a_pending_plan() {
    let world = World::start().await;
    let none = world.get("/api/v1/plan").await;
    assert_eq!((&none["pending"], none.get("plan")), (&json!(false), None), "{none}");
    let path = world.config_path("worker.yml");
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, good.replace("concurrency: 16", "concurrency: 4")).unwrap();
    let pending = world.get("/api/v1/plan").await;
    assert_eq!((&pending["pending"], pending.get("problem")), (&json!(true), None), "{pending}");
    assert!(pending["plan"]["changes"].to_string().contains("concurrency"), "{pending}");
    std::fs::write(&path, good.replace("salesforce.upsert", "salesforce.upsrt")).unwrap();
    let broken = world.get("/api/v1/plan").await;
    assert!(broken["problem"].as_str().unwrap().contains("did you mean"), "{broken}");
    assert!(broken.get("plan").is_none() && broken["pending"] == true, "{broken}");
}

#[tokio::test(flavor = "multi_thread")]
async fn suppressed_contacts_are_listed_page_by_page() {
    let world = World::start().await;
    for name in ["ada", "bob", "eve"] {
        let order = json!({ "add": [format!("{name}@example.com")], "reason": "asked", "actor": "ann" });
        let done = world.act("/api/v1/suppressions", order).await;
        assert_eq!(done.status, 200, "{}", done.body);
    }
    let first = world.get("/api/v1/suppressions?limit=2").await;
    assert_eq!(
        (first["items"].as_array().unwrap().len(), &first["items"][0]["contact"]),
        (2, &json!("e***@example.com"))
    );
    let next = first["next"].as_str().unwrap();
    let rest = world.get(&format!("/api/v1/suppressions?limit=2&after={next}")).await;
    assert_eq!((&rest["items"][0]["contact"], rest.get("next")), (&json!("a***@example.com"), None), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_method_and_unknown_route_are_problems() {
    let world = World::start().await;
    for (path, status) in [("/api/v1/flows", 405), ("/api/v1/nonsense", 404)] {
        let request = world.client.delete(format!("{}{path}", world.admin)).bearer_auth(world.token());
        let answer = Answer::of(request.send().await.unwrap()).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert_eq!(answer.headers["content-type"], "application/problem+json", "{path}");
    }
}
