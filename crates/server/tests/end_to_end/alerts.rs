//! An alert reaches a person once, through a playbook like any other effect.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_simulator::{Fault, FaultPlan, Slack, SlackSettings};

use crate::fixture::{FLOW, QUEUES, World, lead, until};

const WORKER: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
retry: { base_delay: 20ms, max_delay: 100ms, max_attempts: 100, on_exhausted: "dlq:leads-dlq" }
run:
  - name: upsert
    run: salesforce.upsert
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.contact_external_id }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.company }}" }
"#;

const PLAYBOOK: &str = r#"
version: 1
name: tell-operators
on: alert.changed
run:
  - id: post
    run: slack.post
    destination: chat
    with: { channel: C0SIMULATOR, text: "{{ event.state }} {{ event.alert }} {{ event.subject }}: {{ event.detail }}" }
"#;

async fn world(slack: &Slack) -> World {
    let chat = format!(
        "destinations:\n  chat: {{ type: slack, token: \"${{secrets.SLACK_TOKEN}}\", base_url: \"{}\", timeout: 2s }}\n",
        slack.api_url()
    );
    let files = [
        ("flow.yml", FLOW),
        ("worker.yml", WORKER),
        ("queues.yml", QUEUES),
        ("playbook.yml", PLAYBOOK),
        ("chat.yml", chat.as_str()),
    ];
    World::start_with_secrets(&files, &[("SLACK_TOKEN", "xoxb-simulator")]).await
}

async fn alerts(world: &World) -> Vec<Value> {
    world.get("/api/v1/alerts").await.as_array().unwrap().clone()
}

fn texts(slack: &Slack) -> Vec<String> {
    slack.messages().into_iter().map(|message| message.text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_destination_is_told_once_and_stays_known_over_a_restart() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let mut world = world(&slack).await;
    world.crm.set_faults(FaultPlan::always(Fault::Reply { code: 503 })).unwrap();
    for name in ["a", "b", "c", "d"] {
        world.post(&lead(name)).await.event();
    }
    until(|| async { (!slack.messages().is_empty()).then_some(()) }).await;
    let said = "firing breaker-open crm: the circuit breaker of destination:crm is open: its calls keep failing";
    assert_eq!(texts(&slack), [said]);
    let listed = alerts(&world).await;
    let breaker = listed.iter().find(|alert| alert["alert"] == "breaker-open").unwrap();
    assert_eq!((&breaker["state"], &breaker["severity"]), (&json!("firing"), &json!("critical")), "{breaker}");
    assert_eq!(breaker["runbook"], "docs/runbooks/breaker-open.md");
    let page = world.page("/metrics").await;
    let firing = r#"sluice_alerts_firing{alert="breaker-open",severity="critical",subject="crm"} 1"#;
    assert!(page.contains(firing), "{page}");
    let order = json!({ "alert": "breaker-open", "subject": "crm", "reason": "known", "actor": "ann" });
    assert_eq!(world.act("/api/v1/alerts/acknowledge", order).await.status, 200);
    world.stop_node().await;
    world.start_node().await;
    let listed = alerts(&world).await;
    let breaker = listed.iter().find(|alert| alert["alert"] == "breaker-open").unwrap();
    assert_eq!((&breaker["state"], &breaker["acknowledged_by"]), (&json!("firing"), &json!("ann")), "{breaker}");
    assert_eq!(texts(&slack), [said], "a change is told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_notice_goes_the_same_way() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let world = world(&slack).await;
    let sent = world.act("/api/v1/alerts/test", json!({ "actor": "ann" })).await;
    assert_eq!((sent.status, &sent.body["playbooks"]), (200, &json!(["tell-operators"])), "{}", sent.body);
    until(|| async { (!slack.messages().is_empty()).then_some(()) }).await;
    assert!(texts(&slack)[0].starts_with("test breaker-open test: a test of the notification"), "{:?}", texts(&slack));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_cannot_be_made_says_why() {
    let world = World::start().await;
    for (path, order, status, part) in [
        ("acknowledge", json!({ "alert": "nothing" }), 400, "use one of dead-letters, queue-age"),
        ("acknowledge", json!({ "alert": "disk-full" }), 404, "no alert disk-full about the node"),
        ("snooze", json!({ "alert": "disk-full" }), 400, "needs a duration"),
        ("test", json!({}), 409, "on: alert.changed"),
    ] {
        let answer = world.act(&format!("/api/v1/alerts/{path}"), order).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.body["detail"].as_str().unwrap().contains(part), "{}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_is_seen_as_an_alert_while_it_is_full_and_told_once_there_is_room() {
    const FIRING: &str = r#"sluice_alerts_firing{alert="disk-full",severity="critical",subject=""} 1"#;
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let mut world = world(&slack).await;
    world.stop_node().await;
    // The reserve file of the ledger leads to a full device, and does so again whenever the node has removed it.
    let (reserve, is_over) = (world.settings().data.join("ballast"), Arc::new(AtomicBool::new(false)));
    let (path, over) = (reserve.clone(), is_over.clone());
    let keep_full = std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            let _ = symlink("/dev/full", &path);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    loop {
        std::fs::remove_file(&reserve).unwrap();
        let _ = symlink("/dev/full", &reserve);
        world.start_node().await;
        let is_seen = until(|| async {
            if world.page("/metrics").await.contains(FIRING) {
                return Some(true);
            }
            // The node was faster than the thread.
            reserve.symlink_metadata().is_ok_and(|found| found.is_file()).then_some(false)
        });
        if is_seen.await {
            break;
        }
        world.stop_node().await;
    }
    assert_eq!(world.post(&lead("ada")).await.status, 503, "it is full");
    is_over.store(true, Ordering::Relaxed);
    keep_full.join().unwrap();
    until(|| async { texts(&slack).iter().any(|text| text.starts_with("firing disk-full")).then_some(()) }).await;
}
