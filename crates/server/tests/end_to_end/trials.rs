//! A new configuration on stored requests: what would differ, and that nothing is touched.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::{FLOW, QUEUES, World, lead, lead_of, until};

/// The files of the node, with some of them changed.
pub(crate) fn files(world: &World, changed: &[(&str, &str)]) -> BTreeMap<String, String> {
    let names = ["flow.yml", "worker.yml", "queues.yml", "destinations.yml", "contacts.yml"];
    let text = |name: &&str| Some((name.to_string(), std::fs::read_to_string(world.config_path(name)).ok()?));
    let mut files: BTreeMap<String, String> = names.iter().filter_map(text).collect();
    for (name, text) in changed {
        files.insert((*name).to_owned(), (*text).to_owned());
    }
    files
}

async fn trial(world: &World, changed: &[(&str, &str)]) -> Value {
    let order = json!({ "files": files(world, changed), "window": "7d" });
    let started = world.act("/api/v1/trials", order).await;
    assert_eq!(started.status, 200, "{}", started.body);
    let path = format!("/api/v1/trials/{}", started.body["id"]);
    let ended = until(|| async {
        let trial = world.get(&path).await;
        (trial["state"] != "running").then_some(trial)
    })
    .await;
    assert_eq!(ended["state"], "done", "{ended}");
    ended["report"].clone()
}

/// Everything that an operator can read.
async fn everything(world: &World) -> Vec<Value> {
    let paths = ["events?limit=500", "jobs?limit=500", "audit?limit=500", "contacts", "totals", "revisions", "sources"];
    let mut all = Vec::new();
    for path in paths {
        all.push(world.get(&format!("/api/v1/{path}")).await);
    }
    all
}

fn row<'a>(report: &'a Value, table: &str, is: impl Fn(&Value) -> bool) -> &'a Value {
    let rows = report[table].as_array().unwrap();
    rows.iter().find(|row| is(row)).unwrap_or_else(|| panic!("no such row: {report:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_shows_what_a_new_key_mapping_and_routing_would_do_and_touches_nothing() {
    let world = World::start().await;
    let mut events = Vec::new();
    for (id, person) in [("1", "ada"), ("2", "ada"), ("3", "bob"), ("4", "eve")] {
        let mut lead = lead_of(id, person);
        if id == "4" {
            lead["company"] = Value::Null;
        }
        events.push(world.post(&lead).await.event());
    }
    for event in &events {
        world.settled(event).await;
    }
    let before = everything(&world).await;
    let flow = FLOW
        .replace("key_from: body.id", "key_from: body.person")
        .replace("last_name: body.last_name", "last_name: \"{{ body.last_name | upper }}\"")
        .replace("required: [attributes.last_name]", "required: [attributes.company]")
        .replace("queue: { name: leads }", "queue: { name: leads }\n    if: body.person == 'ada'");
    let report = trial(&world, &[("flow.yml", &flow)]).await;
    assert_eq!((&report["events"], &report["different"]), (&json!(4), &json!(4)), "{report:#}");
    let collapsed = row(&report, "outcomes", |row| row["after"] == "duplicate");
    assert_eq!((&collapsed["before"], &collapsed["events"]), (&json!("accepted"), &json!(1)));
    assert_eq!(collapsed["samples"][0]["event"], events[1]);
    assert_eq!(collapsed["samples"][0]["after"], format!("a duplicate of {}", events[0]));
    let refused = row(&report, "outcomes", |row| row["after"] == "refused: field-missing");
    assert_eq!((&refused["events"], &refused["samples"][0]["event"]), (&json!(1), &json!(events[3])));
    assert_eq!(report["jobs"], json!([{ "flow": "website-leads", "worker": "to-crm", "more": 0, "fewer": 3 }]));
    let field = row(&report, "fields", |row| row["field"] == "attributes.last_name");
    assert_eq!((&field["events"], &field["contacts"]), (&json!(2), &json!(2)), "{report:#}");
    assert_eq!(field["samples"][0]["after"], "AAAAAAAA", "a name is shown as its form only");
    let write = row(&report, "writes", |row| row["field"] == "LastName");
    assert_eq!((&write["worker"], &write["step"], &write["events"]), (&json!("to-crm"), &json!("upsert"), &json!(1)));
    let text = report.to_string();
    assert!(!text.contains("Lovelace") && !text.contains("@example.com"), "{text}");
    assert_eq!(everything(&world).await, before, "nothing was written");
    let same = trial(&world, &[("flow.yml", &format!("{FLOW}\n# a comment\n"))]).await;
    assert_eq!((&same["events"], &same["different"]), (&json!(4), &json!(0)), "{same:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_dropped_for_its_key_comes_apart_under_another_key() {
    let world = World::start().await;
    let first = world.post(&lead_of("1", "ada")).await.event();
    let clash = world.post(&lead_of("1", "bob")).await;
    assert_eq!(clash.event(), first);
    world.settled(&first).await;
    let flow = FLOW.replace("key_from: body.id", "key_from: [body.id, body.person]");
    let report = trial(&world, &[("flow.yml", &flow)]).await;
    let apart = row(&report, "outcomes", |row| row["before"] == "duplicate");
    assert_eq!((&apart["after"], &apart["events"]), (&json!("accepted"), &json!(1)), "{report:#}");
    assert_eq!((&report["events"], &report["other_keys"]), (&json!(2), &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn contacts_that_join_and_merged_values_that_change_are_counted() {
    let contacts = "contacts:\n  identifiers: [{field: contact_external_id}]\n";
    let worker = std::include_str!("trial_worker.yml");
    let files = [("flow.yml", FLOW), ("worker.yml", worker), ("queues.yml", QUEUES), ("contacts.yml", contacts)];
    let world = World::start_with(&files).await;
    for (id, person, company, day) in [("1", "ada", "New", 15), ("2", "ada", "Old", 14), ("3", "bob", "Other", 13)] {
        let mut lead = lead_of(id, person);
        lead["email"] = json!("shared@example.com");
        lead["company"] = json!(company);
        lead["created_at"] = json!(format!("2026-11-{day}T12:00:00Z"));
        let event = world.post(&lead).await.event();
        world.settled(&event).await;
    }
    let before = everything(&world).await;
    let by_email = contacts.replace("contact_external_id", "email");
    let joined = trial(&world, &[("contacts.yml", &by_email)]).await;
    let counts = &joined["contacts"];
    assert_eq!(
        (&counts["before"], &counts["after"], &counts["joined"], &counts["split"]),
        (&json!(2), &json!(1), &json!(1), &json!(0)),
        "{joined:#}"
    );
    // Bob's record gets the newer company of the contact that it now belongs to.
    let write = row(&joined, "writes", |row| row["field"] == "Company");
    assert_eq!(write["events"], 1, "{joined:#}");
    // Without the sender's time, the last that arrived wins.
    let flow = FLOW.replace("  occurred_at: body.created_at\n", "");
    let timeless = trial(&world, &[("flow.yml", &flow)]).await;
    let fields = timeless["contacts"]["fields"].as_array().unwrap();
    assert_eq!(
        (&fields[0]["field"], &fields[0]["contacts"]),
        (&json!("attributes.company"), &json!(1)),
        "{timeless:#}"
    );
    assert_eq!(everything(&world).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_whose_request_is_past_its_retention_are_counted() {
    let mut world = World::start().await;
    world.settled(&world.post(&lead("1")).await.event()).await;
    world.stop_node().await;
    let mut settings = world.settings();
    settings.keep.bodies = Duration::ZERO;
    settings.keep.interval = Duration::from_millis(20);
    let node = sluice_server::run::Node::start(settings).await.unwrap();
    world.admin = format!("http://{}", node.admin);
    world.node = Some(node);
    let flow = FLOW.replace("company: body.company", "company: body.firm");
    let report = until(|| async {
        let report = trial(&world, &[("flow.yml", &flow)]).await;
        (report["bodies_removed"] == 1).then_some(report)
    })
    .await;
    assert_eq!(report["events"], 0, "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_needs_an_operator_a_window_and_files_that_compile() {
    let world = World::start().await;
    world.settled(&world.post(&lead("1")).await.event()).await;
    let order = |window: &str, flow: &str| json!({ "files": files(&world, &[("flow.yml", flow)]), "window": window });
    let wrong = world.act("/api/v1/trials", order("soon", FLOW)).await;
    assert_eq!((wrong.status, &wrong.body["code"]), (400, &json!("invalid")), "{}", wrong.body);
    let broken = world.act("/api/v1/trials", order("7d", &FLOW.replace("key_from", "key_form"))).await;
    assert_eq!(broken.status, 422, "{}", broken.body);
    let unknown = world.act("/api/v1/trials/77/cancel", json!({})).await;
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    let token = world.act("/api/v1/tokens", json!({ "name": "reader", "role": "viewer" })).await;
    let secret = token.body["secret"].as_str().unwrap_or_else(|| panic!("{}", token.body)).to_owned();
    let request = world.client.post(format!("{}/api/v1/trials", world.admin)).bearer_auth(secret);
    let answer = request.header("content-type", "application/json").body(order("7d", FLOW).to_string()).send().await;
    assert_eq!(answer.unwrap().status().as_u16(), 403);
}

/// A world with enough stored requests that a trial takes a while.
async fn long_history() -> World {
    let world = World::start().await;
    world.act("/api/v1/pause", json!({ "target": "worker:to-crm", "reason": "only requests are needed" })).await;
    for some in (0..2_000).collect::<Vec<u32>>().chunks(50) {
        let leads: Vec<Value> = some.iter().map(|n| lead(&n.to_string())).collect();
        let sent = futures_util::future::join_all(leads.iter().map(|lead| world.post(lead))).await;
        assert!(sent.iter().all(|answer| answer.status == 202));
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_can_be_cancelled_and_a_second_one_waits_for_the_first() {
    let world = long_history().await;
    let flow = FLOW.replace("last_name: body.last_name", "last_name: \"{{ body.last_name | upper }}\"");
    let order = || json!({ "files": files(&world, &[("flow.yml", &flow)]), "window": "7d" });
    let ended = async |id: &Value| {
        let path = format!("/api/v1/trials/{id}");
        until(|| async {
            let trial = world.get(&path).await;
            (trial["state"] != "running").then_some(trial)
        })
        .await
    };
    // A trial that has ended before the next request arrives shows nothing: another one is started.
    until(|| async {
        let first = world.act("/api/v1/trials", order()).await;
        assert_eq!(first.status, 200, "{}", first.body);
        let second = world.act("/api/v1/trials", order()).await;
        let id = if second.status == 200 { &second.body["id"] } else { &first.body["id"] };
        let found = (second.status == 409).then(|| assert_eq!(second.body["code"], "trial-running"));
        assert_eq!(ended(id).await["state"], "done");
        found
    })
    .await;
    let before = everything(&world).await;
    until(|| async {
        let first = world.act("/api/v1/trials", order()).await;
        assert_eq!(first.status, 200, "{}", first.body);
        let cancelled = world.act(&format!("/api/v1/trials/{}/cancel", first.body["id"]), json!({})).await;
        assert_eq!(cancelled.status, 200, "{}", cancelled.body);
        let trial = ended(&first.body["id"]).await;
        (trial["state"] == "cancelled").then(|| assert!(trial["report"].is_null(), "{trial}"))
    })
    .await;
    assert_eq!(everything(&world).await, before, "nothing was written");
    // The next one runs to its end.
    assert_eq!(trial(&world, &[("flow.yml", &flow)]).await["events"], 2_000);
}
