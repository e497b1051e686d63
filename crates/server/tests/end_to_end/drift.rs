//! Shapes of payloads are learned from accepted requests, and departures from them are noticed once.

use serde_json::{Value, json};

use crate::fixture::{World, lead, until};

async fn shape(world: &World) -> Value {
    world.get("/api/v1/sources/website/shape").await[0].clone()
}

fn field<'a>(shape: &'a Value, path: &str) -> &'a Value {
    let fields = shape["fields"].as_array().unwrap();
    fields.iter().find(|field| field["path"] == path).unwrap_or_else(|| panic!("no field {path}: {shape:#}"))
}

/// The shape once it has been learned from this many requests.
async fn learned(world: &World, samples: u64) -> Value {
    until(|| async {
        let shape = shape(world).await;
        (shape["samples"].as_u64() >= Some(samples)).then_some(shape)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_payloads_are_noticed_once_survive_a_restart_and_are_accepted_by_an_operator() {
    let mut world = World::start().await;
    for n in 0..110 {
        let mut lead = lead(&format!("lead-{n}"));
        lead["plan"] = json!(if n % 2 == 0 { "pro" } else { "free" });
        world.post(&lead).await.event();
    }
    // What was learned is written when the node stops.
    world.stop_node().await;
    world.start_node().await;
    let before = learned(&world, 1).await;
    assert_eq!(before["notices"], json!([]), "{before:#}");
    let mut changed = lead("lead-200");
    changed["company"] = json!(["Analytical"]);
    changed["utm_term"] = json!("autumn");
    for n in 200..203 {
        changed["id"] = json!(format!("lead-{n}"));
        world.post(&changed).await.event();
    }
    let drifted = until(|| async {
        let shape = shape(&world).await;
        (shape["notices"].as_array().map(Vec::len) == Some(2)).then_some(shape)
    })
    .await;
    let texts: Vec<&str> = drifted["notices"].as_array().unwrap().iter().filter_map(|n| n["text"].as_str()).collect();
    assert_eq!(texts, ["company was text and is list", "utm_term has appeared"], "{drifted:#}");
    assert_eq!(drifted["notices"][0]["example"], "[Analytical]");
    let plan = field(&drifted, "plan");
    assert_eq!((&plan["types"], &plan["values"]), (&json!("text"), &json!(["free", "pro"])), "{drifted:#}");
    assert_eq!((&field(&drifted, "plan")["used"], &field(&drifted, "email")["used"]), (&json!(false), &json!(true)));
    let text = drifted.to_string();
    assert!(!text.contains("Lovelace") && !text.contains("example.com"), "{text}");

    let alert = until(|| async {
        let alerts = world.get("/api/v1/alerts").await;
        let is_it = |alert: &&Value| alert["alert"] == "payload-drift" && alert["state"] == "firing";
        alerts.as_array().unwrap().iter().find(is_it).cloned()
    })
    .await;
    assert_eq!((&alert["subject"], &alert["runbook"]), (&json!("website"), &json!("docs/runbooks/payload-drift.md")));

    let accept = |order: Value| world.act("/api/v1/sources/website/shape/accept", order);
    let unexplained = accept(json!({ "field": "utm_term" })).await;
    assert_eq!(unexplained.status, 400, "{}", unexplained.body);
    let unknown = accept(json!({ "field": "utm", "reason": "x" })).await;
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    let accepted = accept(json!({ "field": "utm_term", "reason": "new form", "actor": "ann" })).await;
    assert_eq!(
        (accepted.status, &accepted.body[0]["notices"][0]["kind"]),
        (200, &json!("retyped")),
        "{}",
        accepted.body
    );
    let audit = world.get("/api/v1/audit").await["items"][0].clone();
    assert_eq!(
        (&audit["actor"], &audit["action"], &audit["object"], &audit["detail"]),
        (&json!("ann"), &json!("accept"), &json!("shape:website:utm_term"), &json!("new form"))
    );
    // Requests after that are no departure, over a restart too.
    world.stop_node().await;
    world.start_node().await;
    changed["id"] = json!("lead-300");
    world.post(&changed).await;
    world.stop_node().await;
    world.start_node().await;
    assert_eq!(shape(&world).await["notices"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn shapes_of_an_unknown_source_are_not_found() {
    let world = World::start().await;
    assert_eq!(world.get("/api/v1/sources/nobody/shape").await["code"], "not-found");
    assert_eq!(world.get("/api/v1/sources/website/shape").await, json!([]));
}
