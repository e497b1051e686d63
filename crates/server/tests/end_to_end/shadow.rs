//! A configuration runs beside the active one on real traffic, and nothing of it has an effect.

use serde_json::{Value, json};

use crate::fixture::{FLOW, World, lead, until};
use crate::trials::files;

async fn start_shadow(world: &World, flow: &str) -> Value {
    let order = json!({ "files": files(world, &[("flow.yml", flow)]), "reason": "new mapping", "actor": "ann" });
    let started = world.act("/api/v1/shadow", order).await;
    assert_eq!(started.status, 200, "{}", started.body);
    started.body
}

/// The shadow once it has compared this many requests.
async fn compared(world: &World, events: u64) -> Value {
    until(|| async {
        let shadow = world.get("/api/v1/shadow").await;
        (shadow["report"]["events"].as_u64() >= Some(events)).then_some(shadow)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_is_compared_on_traffic_without_effects_and_promoted_by_applying_it() {
    let mut world = World::start().await;
    assert_eq!(world.get("/api/v1/shadow").await["code"], "not-found");
    world.settled(&world.post(&lead("before")).await.event()).await;
    let flow = FLOW
        .replace("last_name: body.last_name", "last_name: \"{{ body.last_name | upper }}\"")
        .replace("required: [attributes.last_name]", "required: [attributes.company]");
    assert_eq!(start_shadow(&world, &flow).await["verdict"], "waiting");
    for id in ["1", "2"] {
        let event = world.post(&lead(id)).await.event();
        assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    }
    let mut without = lead("3");
    without["company"] = Value::Null;
    world.settled(&world.post(&without).await.event()).await;
    let first = compared(&world, 3).await;
    assert_eq!((&first["verdict"], &first["report"]["events"]), (&json!("different"), &json!(3)), "{first:#}");
    let fields = &first["report"]["fields"][0];
    assert_eq!((&fields["field"], &fields["events"]), (&json!("attributes.last_name"), &json!(2)), "{first:#}");
    assert_eq!(fields["samples"][0]["after"], "AAAAAAAA");
    assert_eq!(first["report"]["outcomes"][0]["after"], "refused: field-missing");
    assert_eq!(first["report"]["writes"][0]["field"], "LastName");
    for record in world.crm.records("Lead") {
        assert_eq!(record.fields["LastName"], "Lovelace", "the shadow wrote nothing");
    }
    // It continues over a restart, and each request counts once.
    world.stop_node().await;
    world.start_node().await;
    world.settled(&world.post(&lead("4")).await.event()).await;
    let second = compared(&world, 4).await;
    assert_eq!(second["report"]["fields"][0]["events"], 3, "{second:#}");
    assert_eq!(second["report"]["fields"][0]["samples"].as_array().unwrap().len(), 3);

    let files = files(&world, &[("flow.yml", &flow)]);
    let plan = world.act("/api/v1/plan", json!({ "files": &files })).await.body["plan"].clone();
    let applied = world.act("/api/v1/apply", json!({ "files": &files, "plan": plan, "reason": "as shown" })).await;
    assert_eq!(applied.status, 200, "{}", applied.body);
    assert_eq!(world.get("/api/v1/shadow").await["verdict"], "promoted");
    let stopped = world.act("/api/v1/shadow/stop", json!({ "reason": "promoted", "actor": "ann" })).await;
    assert_eq!(stopped.status, 200, "{}", stopped.body);
    let actions: Vec<Value> = world.get("/api/v1/audit").await["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["action"].clone())
        .collect();
    assert!(actions.contains(&json!("shadow")) && actions.contains(&json!("stop shadow")), "{actions:?}");
    assert_eq!(world.act("/api/v1/shadow/stop", json!({})).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_does_not_compile_is_refused_and_a_failing_one_leaves_events_alone() {
    let world = World::start().await;
    let order = |flow: &str| json!({ "files": files(&world, &[("flow.yml", flow)]), "reason": "x" });
    let broken = world.act("/api/v1/shadow", order(&FLOW.replace("key_from", "key_form"))).await;
    assert_eq!(broken.status, 422, "{}", broken.body);
    let same = world.act("/api/v1/shadow", order(FLOW)).await;
    assert_eq!((same.status, &same.body["code"]), (409, &json!("same-revision")), "{}", same.body);
    // A mapping that fails for every request.
    start_shadow(&world, &FLOW.replace("occurred_at: body.created_at", "occurred_at: body.company")).await;
    let event = world.post(&lead("1")).await.event();
    assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    let shadow = compared(&world, 1).await;
    assert_eq!(shadow["report"]["outcomes"][0]["after"], "refused: field-invalid", "{shadow:#}");
}
