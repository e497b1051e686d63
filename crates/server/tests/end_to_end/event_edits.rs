//! An event is edited as a new revision, and its jobs run again with it.

use serde_json::{Value, json};

use crate::fixture::{Answer, FLOW, QUEUES, World, lead, until};

/// Posts a lead whose last name the CRM rejects.
async fn dead(world: &World, name: &str) -> String {
    let mut long = lead(name);
    long["last_name"] = json!("L".repeat(200));
    let event = world.post(&long).await.event();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "dead", "{jobs:?}");
    event
}

async fn edit(world: &World, event: &str, mut order: Value) -> Answer {
    order["actor"] = json!("ann");
    if order.get("reason").is_none() {
        order["reason"] = json!("too long");
    }
    world.act(&format!("/api/v1/events/{event}/revisions"), order).await
}

async fn revisions(world: &World, event: &str) -> Vec<Value> {
    world.get(&format!("/api/v1/events/{event}/revisions")).await.as_array().unwrap().clone()
}

async fn effects(world: &World, event: &str) -> Vec<(String, String)> {
    let job = world.get(&format!("/api/v1/events/{event}")).await["jobs"][0]["id"].as_str().unwrap().to_owned();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let effects = world.job(&job).await["effects"].as_array().unwrap().clone();
    effects.iter().map(|effect| (text(&effect["step"]), text(&effect["state"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_is_edited_and_succeeds() {
    let mut world = World::start().await;
    let event = dead(&world, "ada").await;
    let set = json!({ "attributes.last_name": "Lovelace" });
    let planned = edit(&world, &event, json!({ "set": set, "dry_run": true })).await;
    assert_eq!((planned.status, &planned.body["revision"]), (200, &json!(1)), "{}", planned.body);
    assert_eq!(planned.body["changes"][0]["path"], "attributes.last_name");
    assert_eq!(revisions(&world, &event).await.len(), 1, "a dry run changes nothing");
    let done = edit(&world, &event, json!({ "set": set, "base": 0 })).await;
    assert_eq!((done.status, done.body["jobs"].as_array().unwrap().len()), (200, 1), "{}", done.body);
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "succeeded", "{jobs:?}");
    assert_eq!(world.crm.records("Lead")[0].fields["LastName"], "Lovelace");
    let keys = effects(&world, &event).await;
    assert!(keys.contains(&("upsert".into(), "abandoned".into())), "{keys:?}");
    assert!(keys.contains(&("upsert@2".into(), "applied".into())), "{keys:?}");
    let detail = world.get(&format!("/api/v1/events/{event}")).await;
    assert_eq!(detail["normalized"]["attributes"]["last_name"], "Lovelace");
    assert_eq!(detail["raw"]["last_name"].as_str().unwrap().len(), 200, "the request stays as it was sent");
    let audit = world.get("/api/v1/audit?action=edit").await["items"][0].clone();
    assert_eq!((&audit["actor"], &audit["object"]), (&json!("ann"), &json!(event)));
    assert!(!audit.to_string().contains("Lovelace"), "values are not in the audit trail: {audit}");
    world.stop_node().await;
    world.start_node().await;
    let again = world.act("/api/v1/replays", json!({ "ids": [event], "reason": "again", "latest_config": true })).await;
    assert_eq!(again.status, 200, "{}", again.body);
    world.settled(&event).await;
    assert_eq!(
        world.crm.records("Lead")[0].fields["LastName"],
        "Lovelace",
        "the edit counts under every configuration"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn original_is_replayed_by_restoring_it() {
    let world = World::start().await;
    let event = world.post(&lead("ada")).await.event();
    world.settled(&event).await;
    let first = edit(&world, &event, json!({ "set": { "attributes.last_name": "King" } })).await;
    assert_eq!(first.status, 200, "{}", first.body);
    world.settled(&event).await;
    assert_eq!(world.crm.records("Lead")[0].fields["LastName"], "King", "an upsert is written again");
    let back = edit(&world, &event, json!({ "restore": 0, "reason": "it was right" })).await;
    assert_eq!((back.status, &back.body["revision"]), (200, &json!(2)), "{}", back.body);
    world.settled(&event).await;
    assert_eq!(world.crm.records("Lead")[0].fields["LastName"], "Lovelace");
    let list = revisions(&world, &event).await;
    let shown: Vec<(u64, bool)> =
        list.iter().map(|revision| (revision["n"].as_u64().unwrap(), revision["current"].as_bool().unwrap())).collect();
    assert_eq!(shown, [(0, false), (1, false), (2, true)]);
    assert_eq!(list[2]["reason"], "it was right");
    let nothing = edit(&world, &event, json!({ "restore": 2 })).await;
    assert_eq!(nothing.status, 400, "{}", nothing.body);
    assert_eq!(edit(&world, &event, json!({ "restore": 9 })).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_that_cannot_be_made_are_refused_with_a_reason() {
    let world = World::start().await;
    let event = dead(&world, "ada").await;
    for (order, code) in [
        (json!({ "set": { "attributes.city": "Bern" }, "reason": " " }), "invalid"),
        (json!({ "set": { "source": "other" } }), "invalid"),
        (json!({ "set": { "idempotency_key": "x" } }), "invalid"),
        (json!({ "set": {} }), "invalid"),
        (json!({ "event": { "audit": {} } }), "invalid"),
        (json!({ "set": { "identity.email": "a***@example.com" } }), "invalid"),
        (json!({ "set": { "attributes.city": "Bern" }, "reapply": ["all"] }), "invalid"),
        (json!({ "set": { "attributes.city": "Bern" }, "base": 7 }), "revision-outdated"),
        (json!({ "nonsense": 1 }), "body-invalid"),
    ] {
        let refused = edit(&world, &event, order.clone()).await;
        assert!(refused.status >= 400 && refused.body["code"] == code, "{order}: {}", refused.body);
    }
    assert_eq!(revisions(&world, &event).await.len(), 1);
    world.act("/api/v1/pause", json!({ "target": "destination:crm", "reason": "maintenance" })).await;
    let waiting = world.post(&lead("bob")).await.event();
    let busy = edit(&world, &waiting, json!({ "set": { "attributes.city": "Bern" } })).await;
    assert_eq!((busy.status, &busy.body["code"]), (409, &json!("event-busy")), "{}", busy.body);
    let planned = edit(&world, &waiting, json!({ "set": { "attributes.city": "Bern" }, "dry_run": true })).await;
    assert_eq!(planned.status, 409, "a dry run says so too: {}", planned.body);
    let unknown = edit(&world, "evt_00000000000000000000000000", json!({ "set": { "attributes.city": "Bern" } })).await;
    assert_eq!(unknown.status, 404, "{}", unknown.body);
}

const CONTACTS: &str = "
contacts:
  identifiers: [{ field: contact_external_id }, { field: email }]
  sources:
    - { source: website, trust: 50 }
";

#[tokio::test(flavor = "multi_thread")]
async fn edited_identity_belongs_to_the_other_contact() {
    let files = [("flow.yml", FLOW), ("worker.yml", TOLD), ("queues.yml", QUEUES), ("contacts.yml", CONTACTS)];
    let world = World::start_with(&files).await;
    let right = world.post(&lead("ada")).await.event();
    world.settled(&right).await;
    let mut typo = lead("ada-2");
    typo["person"] = json!("somebody-else");
    let wrong = world.post(&typo).await.event();
    world.settled(&wrong).await;
    let of_ada = async || world.get("/api/v1/trace?about=ada%40example.com").await.to_string();
    let before = of_ada().await;
    assert!(before.contains(&right) && !before.contains(&wrong), "{before}");
    let original = world.reveal(&right, "the right identity").await["normalized"]["identity"].clone();
    let done = edit(&world, &wrong, json!({ "event": { "identity": original } })).await;
    assert_eq!(done.status, 200, "{}", done.body);
    world.settled(&wrong).await;
    let after = of_ada().await;
    assert!(after.contains(&right) && after.contains(&wrong), "{after}");
    until(|| async { (world.sink.requests().len() == 2).then_some(()) }).await;
}

/// A worker that posts once for each event: a keyed effect, which an edit does not repeat.
const TOLD: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
run:
  - name: tell
    run: http.request
    destination: sink
    with: { url: /told, idempotency_header: Idempotency-Key, json: { name: "{{ event.last_name }}" } }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn effect_that_was_sent_is_not_sent_again_unless_its_class_is_asked_for() {
    let world = World::start_with(&[("flow.yml", FLOW), ("worker.yml", TOLD), ("queues.yml", QUEUES)]).await;
    let event = world.post(&lead("ada")).await.event();
    world.settled(&event).await;
    let sent = || world.sink.requests().len();
    assert_eq!(sent(), 1);
    let first = edit(&world, &event, json!({ "set": { "attributes.last_name": "King" } })).await;
    assert_eq!(first.status, 200, "{}", first.body);
    assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    assert_eq!(sent(), 1, "it was sent before");
    let detail = world.get(&format!("/api/v1/events/{event}")).await;
    let class = world.job(detail["jobs"][0]["id"].as_str().unwrap()).await["effects"][0]["class"].clone();
    let order = json!({ "set": { "attributes.last_name": "Byron" }, "reapply": [class] });
    assert_eq!(edit(&world, &event, order).await.status, 200);
    until(|| async { (sent() == 2).then_some(()) }).await;
    let keys = effects(&world, &event).await;
    assert!(keys.contains(&("tell@2".into(), "applied".into())), "another effect with another key: {keys:?}");
}
