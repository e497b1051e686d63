//! What an operator sees and does.

use serde_json::json;
use sluice_server::run::{Node, StartError};

use crate::fixture::{World, lead, until};

#[tokio::test(flavor = "multi_thread")]
async fn personal_data_is_masked_unless_revealed() {
    let world = World::start().await;
    let event = world.post(&lead("ada")).await.event();
    world.settled(&event).await;
    let masked = world.get(&format!("/api/v1/events/{event}")).await;
    assert!(!masked.to_string().contains("ada@example.com"), "{masked}");
    assert!(masked.to_string().contains("a***@example.com"), "{masked}");
    let revealed = world.reveal(&event, "test").await;
    assert_eq!(revealed["raw"]["email"], "ada@example.com");
    assert_eq!(revealed["normalized"]["identity"]["email"], "ada@example.com");
    let audit = world.get("/api/v1/audit").await["items"][0].clone();
    assert_eq!(
        (audit["actor"].as_str(), audit["action"].as_str(), audit["object"].as_str()),
        (Some("ann"), Some("reveal"), Some(event.as_str()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_configuration_never_replaces_a_working_one() {
    let world = World::start().await;
    let path = world.config_path("worker.yml");
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, good.replace("salesforce.upsert", "salesforce.upsrt")).unwrap();
    let refused = world.act("/api/v1/reload", json!({})).await;
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body["detail"].as_str().unwrap().contains("did you mean"), "{}", refused.body);
    let event = world.post(&lead("still")).await.event();
    assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    std::fs::write(&path, good.replace("concurrency: 16", "concurrency: 4")).unwrap();
    let taken = world.act("/api/v1/reload", json!({})).await;
    assert_eq!((taken.status, taken.body["changed"].as_bool()), (200, Some(true)), "{}", taken.body);
    let event = world.post(&lead("after")).await.event();
    assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    let revision = world.get(&format!("/api/v1/events/{event}")).await["revision"].clone();
    assert_eq!(revision, taken.body["revision"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_keeps_the_mapping_that_it_was_accepted_under() {
    let world = World::start().await;
    world.act("/api/v1/pause", json!({ "target": "destination:crm", "reason": "maintenance", "actor": "ann" })).await;
    let event = world.post(&lead("early")).await.event();
    let path = world.config_path("worker.yml");
    let worker = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, worker.replace("LastName: \"{{ event.last_name }}\"", "LastName: Changed")).unwrap();
    world.act("/api/v1/reload", json!({})).await;
    world.act("/api/v1/resume", json!({ "target": "destination:crm" })).await;
    world.settled(&event).await;
    assert_eq!(world.crm.records("Lead")[0].fields["LastName"], "Lovelace");
    let later = world.post(&lead("late")).await.event();
    world.settled(&later).await;
    let names: Vec<_> = world.crm.records("Lead").iter().map(|record| record.fields["LastName"].clone()).collect();
    assert!(names.contains(&json!("Changed")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_survives_a_restart_and_a_paused_source_gets_retry_after() {
    let mut world = World::start().await;
    let unknown = world.act("/api/v1/pause", json!({ "target": "destination:crn", "reason": "x" })).await;
    assert!(unknown.body["detail"].as_str().unwrap().contains("did you mean `crm`"), "{}", unknown.body);
    world.act("/api/v1/pause", json!({ "target": "destination:crm", "reason": "maintenance", "actor": "ann" })).await;
    let event = world.post(&lead("waits")).await.event();
    world.stop_node().await;
    world.start_node().await;
    let destination = world
        .get("/api/v1/destinations")
        .await
        .as_array()
        .unwrap()
        .iter()
        .find(|d| d["name"] == "crm")
        .unwrap()
        .clone();
    assert_eq!(destination["gate"]["paused"], "operator", "{destination}");
    let job = world.get("/api/v1/jobs").await["items"][0].clone();
    assert_eq!(
        (job["state"].as_str(), job["waiting_for"]["message"].as_str()),
        (Some("queued"), Some("destination:crm is paused by ann: maintenance")),
        "{job}"
    );
    assert_eq!(world.crm.truth().object("Lead").records, 0);
    world.act("/api/v1/resume", json!({ "target": "destination:crm" })).await;
    assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    world.act("/api/v1/pause", json!({ "target": "source:website", "reason": "they are testing" })).await;
    let turned_away = world.post(&lead("away")).await;
    assert_eq!((turned_away.status, turned_away.body["code"].as_str()), (503, Some("source-paused")));
    assert!(turned_away.headers.contains_key("retry-after"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_admin_listener_is_loopback_only() {
    let world = World::start().await;
    let mut settings = world.settings();
    settings.data = world.config_path("elsewhere");
    settings.admin = "0.0.0.0:0".parse().unwrap();
    assert!(matches!(Node::start(settings.clone()).await, Err(StartError::AdminOpen(_))));
    settings.admin_settings.token = Some("a-long-enough-token".into());
    let node = Node::start(settings).await.unwrap();
    let url = format!("http://127.0.0.1:{}/api/v1/status", node.admin.port());
    let status = |token: Option<&str>| {
        let request = world.client.get(&url);
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        async { request.send().await.unwrap().status().as_u16() }
    };
    assert_eq!(status(None).await, 401);
    assert_eq!(status(Some("a-wrong-token-here")).await, 401);
    assert_eq!(status(Some("a-long-enough-token")).await, 200);
    let foreign = world.client.get(format!("{}/api/v1/status", world.admin)).header("sec-fetch-site", "cross-site");
    assert_eq!(foreign.send().await.unwrap().status().as_u16(), 403);
    node.stop(std::time::Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_contain_no_personal_data() {
    let world = World::start().await;
    let event = world.post(&lead("ada")).await.event();
    world.post(&lead("ada")).await;
    world.settled(&event).await;
    let page = until(|| async {
        let page = world.page("/metrics").await;
        page.contains(r#"sluice_jobs_finished_total{worker="to-crm",state="succeeded",replay="no"} 1"#).then_some(page)
    })
    .await;
    for line in [
        r#"sluice_intake_requests_total{source="website",outcome="accepted"} 1"#,
        r#"sluice_duplicates_total{source="website"} 1"#,
        r#"sluice_attempts_total{destination="crm",outcome="done"} 1"#,
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    assert!(!page.contains("example.com"));
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(
            world.client.get(format!("{}{path}", world.admin)).send().await.unwrap().status().as_u16(),
            200,
            "{path}"
        );
    }
}
