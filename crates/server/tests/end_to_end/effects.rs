//! What reaches the destination, and how often.

use std::collections::BTreeMap;

use sluice_simulator::faults::{CallKind, Scripted};
use sluice_simulator::{Everything, Fault, FaultPlan};

use crate::fixture::{World, lead, lead_of, until};

fn http_worker(with: &str) -> String {
    format!(
        "version: 1\nname: to-sink\nconsumes: {{ queue: leads }}\nretry: {{ base_delay: 10ms, max_delay: 50ms, max_attempts: 5 }}\nrun:\n  - name: send\n    run: http.request\n    destination: sink\n    with: {with}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_lead_is_one_record_although_the_crm_fails_in_every_way() {
    let world = World::start().await;
    let plan = Everything { percent: 30.0, hold_ms: 400, retry_after_seconds: 0, ..Everything::default() }.plan();
    world.crm.set_faults(plan).unwrap();
    let mut events = Vec::new();
    for n in 0..60 {
        events.push(world.post(&lead(&format!("lead-{n}"))).await.event());
    }
    for event in &events {
        world.settled(event).await;
    }
    // What a redirect or a login page made a dead letter waits there; once the CRM is well, a replay does it.
    world.crm.set_faults(FaultPlan::none()).unwrap();
    let dead = serde_json::json!({ "filter": { "states": ["dead"] }, "reason": "the CRM is well again" });
    world.act("/api/v1/replays", dead).await;
    for event in &events {
        let jobs = world.settled(event).await;
        assert_eq!(jobs[0]["state"], "succeeded", "{}", world.job(jobs[0]["id"].as_str().unwrap()).await);
    }
    let truth = world.crm.truth();
    let leads = truth.object("Lead");
    assert_eq!((leads.records, leads.created_again), (60, 0), "{truth:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_response_creates_no_second_record() {
    let world = World::start().await;
    let lost = FaultPlan::scripted([Scripted::for_key("website:a", Fault::DropAfter).times(2)]);
    world.crm.set_faults(lost).unwrap();
    let event = world.post(&lead("a")).await.event();
    let jobs = world.settled(&event).await;
    let job = world.job(jobs[0]["id"].as_str().unwrap()).await;
    assert_eq!(job["state"], "succeeded");
    assert_eq!(job["attempts_total"], 3);
    let outcomes: Vec<&str> =
        job["attempts_made"].as_array().unwrap().iter().map(|a| a["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["unsure", "unsure", "done"]);
    assert_eq!(world.crm.truth().object("Lead").records, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_rejected_by_the_crm_dies_with_the_reason_and_can_be_replayed() {
    let world = World::start().await;
    let mut bad = lead("bad");
    bad["last_name"] = "x".repeat(200).into();
    let event = world.post(&bad).await.event();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "dead");
    let id = jobs[0]["id"].as_str().unwrap().to_owned();
    let dead = world.get("/api/v1/dead-letters").await["items"][0].clone();
    for (field, expected) in [
        ("id", id.as_str()),
        ("event_id", &event),
        ("idempotency_key", "bad"),
        ("source", "website"),
        ("event_type", "lead.created"),
        ("dead_letter_queue", "leads-dlq"),
    ] {
        assert_eq!(dead[field], expected, "{dead}");
    }
    assert_eq!(
        (dead["failure"]["class"].as_str(), dead["failure"]["code"].as_str()),
        (Some("permanent"), Some("STRING_TOO_LONG")),
        "{dead}"
    );
    assert_eq!(dead["attempts"], 1, "a refusal is not tried again");
    for field in ["first_received_at", "updated_at", "trace"] {
        assert!(dead[field].is_string(), "{field} in {dead}");
    }
    let nothing = world.act("/api/v1/replays", serde_json::json!({ "ids": [&id], "reason": " " })).await;
    assert_eq!(nothing.status, 400, "{}", nothing.body);
    let replayed = world
        .act(
            "/api/v1/replays",
            serde_json::json!({ "ids": [&id], "reason": "the field is longer now", "actor": "ann" }),
        )
        .await;
    assert_eq!(replayed.body["changed"], 1, "{}", replayed.body);
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "dead", "it is still too long");
    assert_eq!(world.job(&id).await["replays"], 1);
    let audit = world.get("/api/v1/audit").await.to_string();
    assert!(audit.contains("ann") && audit.contains("the field is longer now"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replaying_what_succeeded_changes_nothing_at_the_destination() {
    let world = World::start().await;
    let event = world.post(&lead("once")).await.event();
    world.settled(&event).await;
    for _ in 0..2 {
        let acted = world.act("/api/v1/replays", serde_json::json!({ "ids": [&event], "reason": "to see" })).await;
        assert_eq!(acted.body["changed"], 1, "{}", acted.body);
        let jobs = world.settled(&event).await;
        assert_eq!(jobs[0]["state"], "succeeded");
    }
    assert_eq!(world.crm.writes().len(), 1, "an applied effect is not sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_refused_login_pauses_the_destination_and_no_second_job_dies() {
    let world = World::start().await;
    world.crm.set_faults(FaultPlan::scripted([Scripted::first(1_000, Fault::InvalidSession)])).unwrap();
    let mut events = vec![world.post(&lead("a0")).await.event()];
    world.settled(&events[0]).await;
    for n in 1..10 {
        events.push(world.post(&lead(&format!("a{n}"))).await.event());
    }
    let states = |list: &serde_json::Value| {
        let mut counts = BTreeMap::<String, u32>::new();
        for job in list["items"].as_array().unwrap() {
            *counts.entry(job["state"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        counts
    };
    let jobs = states(&world.get("/api/v1/jobs").await);
    assert_eq!(jobs.get("dead"), Some(&1), "{jobs:?}");
    assert_eq!(jobs.get("queued"), Some(&9), "{jobs:?}");
    let pauses = world.get("/api/v1/pauses").await;
    assert_eq!(pauses[0]["target"], "destination:crm", "{pauses}");
    world.crm.set_faults(FaultPlan::none()).unwrap();
    world.act("/api/v1/resume", serde_json::json!({ "target": "destination:crm", "actor": "ann" })).await;
    for event in &events[1..] {
        assert_eq!(world.settled(event).await[0]["state"], "succeeded");
    }
    world
        .act("/api/v1/replays", serde_json::json!({ "filter": { "states": ["dead"] }, "reason": "credentials mended" }))
        .await;
    assert_eq!(world.settled(&events[0]).await[0]["state"], "succeeded");
    assert_eq!(world.crm.truth().object("Lead").records, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_keeps_a_destination_unauthorized_and_its_resume_sends_one_probe() {
    let mut world = World::start().await;
    world.crm.set_faults(FaultPlan::scripted([Scripted::first(1_000, Fault::InvalidSession)])).unwrap();
    let first = world.post(&lead("a0")).await.event();
    world.settled(&first).await;
    for n in 1..10 {
        world.post(&lead(&format!("a{n}"))).await.event();
    }
    until(|| async { (!world.get("/api/v1/pauses").await.as_array().unwrap().is_empty()).then_some(()) }).await;
    let warnings = async |world: &World| {
        let status = world.get("/api/v1/status").await;
        status["warnings"].as_array().unwrap().iter().filter(|warning| warning["code"] == "unauthorized").count()
    };
    assert_eq!(warnings(&world).await, 1);
    world.stop_node().await;
    world.start_node().await;
    assert_eq!(warnings(&world).await, 1, "the credentials are as wrong as before");
    world.act("/api/v1/resume", serde_json::json!({ "target": "destination:crm", "actor": "ann" })).await;
    until(|| async { (!world.get("/api/v1/pauses").await.as_array().unwrap().is_empty()).then_some(()) }).await;
    let dead = world.get("/api/v1/jobs?state=dead").await;
    assert_eq!(dead["items"].as_array().unwrap().len(), 2, "one probe: {dead}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyed_effect_is_sent_with_one_key_on_every_attempt() {
    let world =
        World::start_with_worker(&http_worker("{ url: /orders, idempotency_header: Idempotency-Key, json: { n: 1 } }"))
            .await;
    world.sink.set_faults(FaultPlan::scripted([Scripted::first(2, Fault::DropAfter)])).unwrap();
    let event = world.post(&lead("k")).await.event();
    assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    let keys = world.sink.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(keys.values().next().unwrap().requests, 3, "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn blind_effect_with_an_unknown_outcome_waits_for_an_operator() {
    let world = World::start_with_worker(&http_worker("{ url: /notify, json: { n: 1 } }")).await;
    world.sink.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::DropAfter)])).unwrap();
    let event = world.post(&lead("b")).await.event();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "unknown");
    let id = jobs[0]["id"].as_str().unwrap();
    let left = world.act("/api/v1/replays", serde_json::json!({ "ids": [id], "reason": "again" })).await;
    assert_eq!(
        (left.body["changed"].as_u64(), left.body["skipped"].as_array().map(Vec::len)),
        (Some(0), Some(1)),
        "{}",
        left.body
    );
    assert_eq!(world.sink.truth().requests, 1, "nobody sent it again");
    let resolved = world
        .act(
            &format!("/api/v1/jobs/{id}/resolve"),
            serde_json::json!({ "resolution": "happened", "reason": "it is in their log" }),
        )
        .await;
    assert_eq!(resolved.status, 200, "{}", resolved.body);
    world.settled(&event).await;
    assert_eq!(world.sink.truth().requests, 1);
    assert!(matches!(world.job(id).await["state"].as_str(), Some("succeeded" | "noop")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verifiable_effect_is_read_back_before_it_is_sent_again() {
    let with = "{ method: POST, class: verifiable, url: \"/resource/{{ body.id }}\", json: { n: 1 }, verify: { url: \"/resource/{{ body.id }}\" } }";
    let world = World::start_with_worker(&http_worker(with).replace("method: POST", "method: PUT")).await;
    world.sink.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::DropAfter).only(CallKind::Write)])).unwrap();
    let event = world.post(&lead("v1")).await.event();
    let jobs = world.settled(&event).await;
    let job = world.job(jobs[0]["id"].as_str().unwrap()).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let made: Vec<(&str, &str)> = job["attempts_made"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| (a["kind"].as_str().unwrap(), a["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!(made, [("call", "unsure"), ("read", "present")], "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_one_entity_keep_their_order() {
    let world = World::start().await;
    let plan = Everything { percent: 30.0, hold_ms: 400, retry_after_seconds: 0, ..Everything::default() }.plan();
    world.crm.set_faults(plan).unwrap();
    let mut last = String::new();
    for n in 0..12 {
        let mut update = lead_of(&format!("u{n}"), "ada");
        update["company"] = format!("Company {n:02}").into();
        last = world.post(&update).await.event();
    }
    world.settled(&last).await;
    let record = &world.crm.records("Lead")[0];
    assert_eq!(record.fields["Company"], "Company 11", "{record:?}");
    assert_eq!(world.crm.truth().object("Lead").records, 1);
}
