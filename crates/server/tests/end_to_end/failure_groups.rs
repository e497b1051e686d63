//! Dead letters are grouped by why they died, and operators say what they do about it.

use serde_json::{Value, json};

use crate::fixture::{World, lead, until};

/// The CRM rejects a last name that is too long.
async fn dead_letter(world: &World, name: &str) -> String {
    let mut long = lead(name);
    long["last_name"] = json!("L".repeat(200));
    let event = world.post(&long).await.event();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "dead", "{jobs:?}");
    event
}

async fn groups(world: &World, query: &str) -> Vec<Value> {
    world.get(&format!("/api/v1/dead-letters/groups{query}")).await["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn resolved_failure_group_opens_again_with_the_next_dead_letter() {
    let mut world = World::start().await;
    let first = dead_letter(&world, "ada").await;
    let found = groups(&world, "").await;
    let group = &found[0];
    assert_eq!((found.len(), &group["code"], &group["state"]), (1, &json!("STRING_TOO_LONG"), &json!("open")));
    assert!(group["message"].as_str().unwrap().len() > 3 && !group.to_string().contains("ada@example.com"), "{group}");
    let path = format!("/api/v1/dead-letters/groups/{}", group["id"].as_str().unwrap());
    let mark = async |act: &str, reason: &str| {
        world.act(&format!("{path}/{act}"), json!({ "reason": reason, "actor": "ann" })).await
    };
    assert_eq!(mark("acknowledge", " ").await.status, 400, "a reason is needed");
    assert_eq!(mark("acknowledge", "on it").await.body["state"], "acknowledged");
    dead_letter(&world, "bob").await;
    let group = world.get(&path).await;
    assert_eq!((&group["state"], &group["count"], &group["actor"]), (&json!("acknowledged"), &json!(2), &json!("ann")));
    let resolved = mark("resolve", "the mapping cuts it now").await;
    assert_eq!((resolved.status, &resolved.body["reason"]), (200, &json!("the mapping cuts it now")));
    let refused = mark("acknowledge", "again").await;
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("group-state")));
    world.stop_node().await;
    world.start_node().await;
    assert_eq!(world.get(&path).await["state"], "resolved");
    assert!(world.page("/metrics").await.contains(r#"sluice_failure_groups{state="resolved"} 1"#));
    // A replay that fails again is a dead letter of the group too.
    let replayed = world.act("/api/v1/replays", json!({ "ids": [first], "reason": "try it", "actor": "ann" })).await;
    assert_eq!(replayed.status, 200, "{}", replayed.body);
    let group = until(|| async { Some(world.get(&path).await).filter(|group| group["state"] == "open") }).await;
    assert_eq!((&group["count"], &group["total"]), (&json!(2), &json!(3)), "{group}");
    assert!(group.get("actor").is_none(), "the ledger opened it: {group}");
    let audit = world.get("/api/v1/audit").await;
    let acts: Vec<&str> =
        audit["items"].as_array().unwrap().iter().filter_map(|line| line["action"].as_str()).collect();
    assert!(acts.contains(&"acknowledge") && acts.contains(&"resolve"), "{acts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_groups_are_filtered_and_unknown_ones_are_refused() {
    let world = World::start().await;
    let event = dead_letter(&world, "ada").await;
    assert_eq!(groups(&world, "?worker=to-crm&code=STRING_TOO_LONG&state=open").await.len(), 1);
    assert!(groups(&world, "?worker=other").await.is_empty());
    assert!(groups(&world, "?state=resolved").await.is_empty());
    let dropped = world.act("/api/v1/dead-letters/drop", json!({ "ids": [event], "reason": "spam" })).await;
    assert_eq!(dropped.status, 200, "{}", dropped.body);
    assert!(groups(&world, "").await.is_empty());
    let empty = groups(&world, "?empty=true").await;
    assert_eq!((&empty[0]["count"], &empty[0]["total"], &empty[0]["message"]), (&json!(0), &json!(1), &json!("")));
    for (path, status) in [
        ("/api/v1/dead-letters/groups/group_99", 404),
        ("/api/v1/dead-letters/groups/nonsense", 400),
        ("/api/v1/dead-letters/groups?state=lost", 400),
        ("/api/v1/dead-letters/groups?after=x", 400),
        ("/api/v1/dead-letters/groups?unheard=of", 400),
    ] {
        let request = world.client.get(format!("{}{path}", world.admin));
        let response = request.bearer_auth(world.token()).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path}");
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert_eq!(kind, "application/problem+json", "{path}");
    }
}
