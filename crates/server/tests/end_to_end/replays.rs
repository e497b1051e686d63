//! Replays: previewed, paced, durable, and applied again only on purpose.

use serde_json::{Value, json};

use crate::fixture::{World, lead, until};

/// A lead that the CRM rejects for good.
fn too_long(id: &str) -> Value {
    let mut lead = lead(id);
    lead["last_name"] = "x".repeat(200).into();
    lead
}

/// Accepts leads that become dead letters.
async fn dead_letters(world: &World, count: usize) -> Vec<String> {
    let mut events = Vec::new();
    for n in 0..count {
        events.push(world.post(&too_long(&format!("dead-{n}"))).await.event());
    }
    for event in &events {
        assert_eq!(world.settled(event).await[0]["state"], "dead");
    }
    events
}

async fn replay_when(world: &World, id: &str, is: impl Fn(&Value) -> bool) -> Value {
    let path = format!("/api/v1/replays/{id}");
    until(|| async {
        let replay = world.get(&path).await;
        is(&replay).then_some(replay)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_says_what_a_replay_would_do_and_changes_nothing() {
    let world = World::start().await;
    let done = world.post(&lead("done")).await.event();
    world.settled(&done).await;
    dead_letters(&world, 1).await;
    let dry_run = async |more: Value| {
        let mut order = json!({ "filter": { "states": ["succeeded", "dead"] }, "reason": "to see", "dry_run": true });
        order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = world.act("/api/v1/replays", order).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    };
    let numbers = |answer: &Value| {
        let preview = &answer["preview"];
        ["noops", "writes", "updates", "sends", "fails", "at_risk", "calls"].map(|name| preview[name].as_u64().unwrap())
    };
    let plain = dry_run(json!({ "rate": "1/s" })).await;
    assert_eq!(numbers(&plain), [1, 1, 0, 0, 0, 1, 1], "the applied one is a no-op: {plain}");
    assert_eq!((&plain["preview"]["seconds"], &plain["changed"]), (&json!(2), &json!(2)), "{plain}");
    assert_eq!(plain["preview"]["destinations"], json!([{ "destination": "crm", "calls": 1 }]));
    let again = dry_run(json!({ "reapply": ["natural"] })).await;
    assert_eq!(numbers(&again), [0, 2, 1, 0, 0, 0, 2], "{again}");
    let path = world.config_path("worker.yml");
    let worker = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, worker.replace("name: to-crm", "name: to-crm-2")).unwrap();
    assert_eq!(world.act("/api/v1/reload", json!({ "allow_stranded": true })).await.status, 200);
    let lost = dry_run(json!({ "latest_config": true })).await;
    assert_eq!(numbers(&lost), [0, 0, 0, 0, 2, 0, 0], "{lost}");
    assert_eq!(lost["preview"]["failures"][0]["code"], "worker-lost", "{lost}");
    assert_eq!(world.get("/api/v1/replays").await["items"], json!([]), "a dry run leaves no replay");
    assert_eq!(world.crm.writes().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_continues_behind_the_job_that_it_is_given() {
    let world = World::start().await;
    dead_letters(&world, 3).await;
    let order = |after: Option<String>| json!({ "filter": { "states": ["dead"] }, "reason": "to see", "dry_run": true, "after": after });
    let all = world.act("/api/v1/replays", order(None)).await.body;
    assert_eq!((&all["matched"], &all["preview"]["next"]), (&json!(3), &Value::Null), "{all}");
    let first = world.get("/api/v1/jobs?state=dead").await["items"].as_array().unwrap().iter().map(job_number).min();
    let rest = world.act("/api/v1/replays", order(first.map(|job| format!("job_{job}")))).await.body;
    assert_eq!((&rest["matched"], &rest["preview"]["examined"]), (&json!(2), &json!(2)), "{rest}");
    let wrong = world.act("/api/v1/replays", order(Some("evt_1".to_owned()))).await;
    assert_eq!(wrong.status, 400, "{}", wrong.body);
}

fn job_number(job: &Value) -> i64 {
    job["id"].as_str().unwrap().strip_prefix("job_").unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_mapping_that_was_applied_is_applied_again_only_on_purpose() {
    let world = World::start().await;
    let path = world.config_path("worker.yml");
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, good.replace("LastName: \"{{ event.last_name }}\"", "LastName: Wrong")).unwrap();
    world.act("/api/v1/reload", json!({})).await;
    let event = world.post(&lead("ada")).await.event();
    world.settled(&event).await;
    std::fs::write(&path, &good).unwrap();
    world.act("/api/v1/reload", json!({})).await;
    let name = || world.crm.records("Lead")[0].fields["LastName"].clone();
    let replay = async |more: Value| {
        let mut order = json!({ "ids": [&event], "reason": "wrong mapping", "actor": "ann", "latest_config": true });
        order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = world.act("/api/v1/replays", order).await;
        assert_eq!(answer.body["changed"], 1, "{}", answer.body);
        assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    };
    replay(json!({})).await;
    assert_eq!(name(), "Wrong", "an applied effect is not sent again");
    replay(json!({ "reapply": ["blind"] })).await;
    assert_eq!(name(), "Wrong", "nor is one of another class");
    replay(json!({ "reapply": ["natural", "transactional"] })).await;
    assert_eq!(name(), "Lovelace");
    assert_eq!((world.crm.records("Lead").len(), world.crm.writes().len()), (1, 2), "one record, written twice");
    let job = world.job(world.settled(&event).await[0]["id"].as_str().unwrap()).await;
    let effects: Vec<(&str, &str)> = job["effects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|effect| (effect["step"].as_str().unwrap(), effect["state"].as_str().unwrap()))
        .collect();
    assert!(effects.contains(&("upsert", "superseded")) && effects.contains(&("upsert@2", "applied")), "{effects:?}");
    replay(json!({})).await;
    assert_eq!(world.crm.writes().len(), 2, "a plain replay after that finds it applied");
    let audit = world.get("/api/v1/audit").await.to_string();
    assert!(audit.contains("wrong mapping; applies again: natural, transactional"), "{audit}");
    let bad = world.act("/api/v1/replays", json!({ "ids": [&event], "reason": "x", "reapply": ["naturel"] })).await;
    assert_eq!(bad.status, 400, "{}", bad.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_keeps_its_rate_and_its_place_over_a_restart_and_can_be_stopped() {
    let mut world = World::start().await;
    dead_letters(&world, 6).await;
    let order =
        json!({ "filter": { "states": ["dead"] }, "reason": "fixed", "actor": "ann", "rate": "1/h", "batch": 1 });
    let started = world.act("/api/v1/replays", order).await;
    let id = started.body["replay"]["id"].as_str().unwrap_or_else(|| panic!("{}", started.body)).to_owned();
    let first = replay_when(&world, &id, |replay| replay["replayed"] == 1).await;
    assert_eq!((&first["state"], &first["remaining"]), (&json!("running"), &json!(5)), "{first}");
    world.stop_node().await;
    world.start_node().await;
    let after = world.get(&format!("/api/v1/replays/{id}")).await;
    assert_eq!((&after["state"], &after["replayed"]), (&json!("running"), &json!(1)), "{after}");
    let control = async |verb: &str| {
        let order = json!({ "reason": "looks wrong", "actor": "ann" });
        world.act(&format!("/api/v1/replays/{id}/{verb}"), order).await
    };
    assert_eq!(control("pause").await.body["state"], "paused");
    assert_eq!(control("resume").await.body["state"], "running");
    assert_eq!(control("cancel").await.body["state"], "cancelled");
    let refused = control("resume").await;
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("replay-finished")), "{}", refused.body);
    let silent = world.act(&format!("/api/v1/replays/{id}/cancel"), json!({ "reason": " " })).await;
    assert_eq!(silent.status, 400, "it needs a reason");

    let order = json!({ "filter": { "states": ["dead"] }, "reason": "fixed", "rate": "1000/s", "batch": 2 });
    let fast = world.act("/api/v1/replays", order).await.body["replay"]["id"].as_str().unwrap().to_owned();
    let done = replay_when(&world, &fast, |replay| replay["state"] == "done").await;
    assert_eq!((&done["replayed"], &done["skipped"]), (&json!(6), &json!(0)), "each job once: {done}");
    let list = world.get("/api/v1/replays").await;
    assert_eq!((&list["items"][0]["id"], &list["items"][1]["state"]), (&json!(fast), &json!("cancelled")), "{list}");
}
