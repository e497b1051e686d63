//! The speed-to-lead clock: a person is told once when the response to an event is at risk, and the first path continues.

use serde_json::{Value, json};
use sluice_simulator::{Fault, FaultPlan, Slack, SlackSettings};

use crate::fixture::{FLOW, QUEUES, World, lead, until};
use crate::transfer::{file, run};

const WORKER: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
retry: { base_delay: 20ms, max_delay: 100ms, max_attempts: 1000, on_exhausted: "dlq:leads-dlq" }
run:
  - name: upsert
    run: salesforce.upsert
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.contact_external_id }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.company }}" }
"#;

async fn world(slack: &Slack, rule: &str) -> World {
    let chat = format!(
        "destinations:\n  chat: {{ type: slack, token: \"${{secrets.SLACK_TOKEN}}\", base_url: \"{}\", timeout: 2s }}\n\
         alerts:\n  rules: [{{ alert: breaker-open, enabled: false }}]\n  notify: [{{ name: sales, destination: chat, channel: C0SIMULATOR, alerts: [response-late] }}]\n",
        slack.api_url()
    );
    let flow = format!("{FLOW}\nrespond_within: {rule}\n");
    let files =
        [("flow.yml", flow.as_str()), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("chat.yml", chat.as_str())];
    World::start_with_secrets(&files, &[("SLACK_TOKEN", "xoxb-simulator")]).await
}

/// A lead that occurred now.
fn fresh(id: &str) -> Value {
    let mut lead = lead(id);
    lead["created_at"] = json!(jiff::Timestamp::now().to_string());
    lead
}

fn texts(slack: &Slack) -> Vec<String> {
    slack.messages().into_iter().map(|message| message.text).collect()
}

async fn counters(world: &World) -> Vec<(String, u64)> {
    let totals = world.get("/api/v1/totals").await;
    let of = |total: &Value| {
        (total["measure"] == "responses")
            .then(|| (total["labels"]["result"].as_str().unwrap().to_owned(), total["total"].as_u64().unwrap()))
    };
    totals.as_array().unwrap().iter().filter_map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn person_is_told_once_over_a_restart_and_the_first_path_continues() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let mut world = world(&slack, "{ time: 2s, warn_before: 1900ms, until: to-crm.upsert, notify: [sales] }").await;
    world.crm.set_faults(FaultPlan::always(Fault::Reply { code: 503 })).unwrap();
    let event = world.post(&fresh("ada")).await.event();
    until(|| async { (!slack.messages().is_empty()).then_some(()) }).await;
    let said = texts(&slack)[0].clone();
    assert!(said.starts_with("No response yet to an event of website-leads: "), "{said}");
    assert!(said.contains(&format!("sluice events show {event}")), "{said}");
    assert!(said.contains("email: a***@example.com") && !said.contains("ada@"), "the lead is masked: {said}");
    until(|| async {
        let open = world.get("/api/v1/responses").await;
        (open["items"][0]["state"] == "late").then_some(())
    })
    .await;
    let status = world.get("/api/v1/status").await;
    assert_eq!(status["responses"], json!([{ "flow": "website-leads", "state": "late", "count": 1 }]));
    let page = world.page("/metrics").await;
    assert!(page.contains(r#"sluice_responses_open{flow="website-leads",state="late"} 1"#), "{page}");
    world.stop_node().await;
    world.start_node().await;
    // The alert is sent through the channel too.
    until(|| async { texts(&slack).iter().any(|text| text.contains("response-late")).then_some(()) }).await;
    world.crm.set_faults(FaultPlan::none()).unwrap();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "succeeded");
    until(|| async { world.get("/api/v1/responses").await["items"].as_array().unwrap().is_empty().then_some(()) })
        .await;
    assert_eq!(counters(&world).await, [("escalated".to_owned(), 1), ("missed".to_owned(), 1)]);
    let told = texts(&slack).iter().filter(|text| text.starts_with("No response yet")).count();
    assert_eq!(told, 1, "{:?}", texts(&slack));
}

#[tokio::test(flavor = "multi_thread")]
async fn answered_event_tells_nobody_and_an_old_one_has_no_clock() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    // The clock is looked at 20 seconds after the event: long enough for any machine to answer it.
    let rule = "{ time: 10m, warn_before: 580s, from: occurred_at, notify: [sales] }";
    let world = world(&slack, rule).await;
    // The lead of the fixture is from another day.
    let old = world.post(&lead("grace")).await.event();
    world.settled(&old).await;
    let event = world.post(&fresh("ada")).await.event();
    world.settled(&event).await;
    until(|| async { (counters(&world).await == [("met".to_owned(), 1)]).then_some(()) }).await;
    assert!(world.get("/api/v1/responses").await["items"].as_array().unwrap().is_empty());
    assert!(texts(&slack).iter().all(|text| !text.starts_with("No response yet")), "{:?}", texts(&slack));
    // A replay of an answered event starts no clock.
    let replayed = world.act("/api/v1/replays", json!({ "ids": [event], "reason": "again" })).await;
    assert!(replayed.status < 300, "{}", replayed.body);
    assert!(world.get("/api/v1/responses").await["items"].as_array().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn event_whose_deadline_is_over_when_it_comes_is_told_at_once() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let world =
        world(&slack, "{ time: 1m, from: occurred_at, notify: [sales], show: [last_name, email], mask: false }").await;
    world.crm.set_faults(FaultPlan::always(Fault::Reply { code: 503 })).unwrap();
    let mut late = fresh("ada");
    late["created_at"] = json!((jiff::Timestamp::now() - jiff::SignedDuration::from_mins(5)).to_string());
    world.post(&late).await.event();
    until(|| async { (!slack.messages().is_empty()).then_some(()) }).await;
    let said = texts(&slack)[0].clone();
    assert!(said.contains("the deadline was 4m") || said.contains("the deadline was 5m"), "{said}");
    assert!(said.contains("last_name: Lovelace, email: ada@example.com"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_of_an_import_without_a_time_starts_no_clock() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let world = world(&slack, "{ time: 1h, notify: [sales] }").await;
    world.crm.set_faults(FaultPlan::always(Fault::Reply { code: 503 })).unwrap();
    let timeless = |id: &str| {
        let mut lead = lead(id);
        lead.as_object_mut().unwrap().remove("created_at");
        lead
    };
    let path = file(&world, "rows.ndjson", &format!("{}\n", timeless("ada")));
    let words = ["import", &path, "--flow", "website-leads", "--reason", "history", "--yes"];
    assert_eq!(run(&world, &words).await, (0, String::new()));
    assert_eq!(world.get("/api/v1/events").await["items"].as_array().unwrap().len(), 1);
    assert!(world.get("/api/v1/responses").await["items"].as_array().unwrap().is_empty());
    world.post(&timeless("grace")).await.event();
    assert_eq!(world.get("/api/v1/responses").await["items"].as_array().unwrap().len(), 1, "a request starts one");
}

#[tokio::test(flavor = "multi_thread")]
async fn lead_that_contains_marks_of_slack_mentions_nobody() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let rule = "{ time: 1m, from: occurred_at, notify: [sales], show: [last_name], mask: false }";
    let world = world(&slack, rule).await;
    world.crm.set_faults(FaultPlan::always(Fault::Reply { code: 503 })).unwrap();
    let mut late = fresh("ada");
    late["created_at"] = json!((jiff::Timestamp::now() - jiff::SignedDuration::from_mins(5)).to_string());
    late["last_name"] = json!("<!channel> <https://evil.example|R&D>");
    world.post(&late).await.event();
    until(|| async { (!slack.messages().is_empty()).then_some(()) }).await;
    let said = texts(&slack)[0].clone();
    assert!(said.contains("last_name: &lt;!channel&gt; &lt;https://evil.example|R&amp;D&gt;"), "{said}");
}
