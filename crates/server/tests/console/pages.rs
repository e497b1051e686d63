//! Every page, and the acts that they offer.

use serde_json::{Value, json};
use sluice_server::console::PAGES;

use crate::fixture::{FLOW, QUEUES, World, lead, until};
use crate::visitor::Visitor;

const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>\u{202e}\u{0007}\"'";

/// A worker that gives up after the first attempt.
pub(crate) const PICKY: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
retry: { strategy: exponential, base_delay: 20ms, multiplier: 2, jitter: full, max_delay: 50ms, max_attempts: 1, on_exhausted: "dlq:leads-dlq" }
run:
  - name: upsert
    run: salesforce.upsert
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.contact_external_id }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.company }}", Email: "{{ event.email }}" }
"#;

/// A node with one dead letter: the CRM rejects a last name that is too long.
pub(crate) async fn with_dead_letter() -> (World, String) {
    let world = World::start_with(&[("flow.yml", FLOW), ("worker.yml", PICKY), ("queues.yml", QUEUES)]).await;
    let mut long = lead("ada");
    long["last_name"] = json!("L".repeat(200));
    let event = world.post(&long).await.event();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "dead", "{jobs:?}");
    (world, event)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_shown_under_a_strict_policy() {
    let (world, event) = with_dead_letter().await;
    let visitor = Visitor::signed_in(&world, None).await;
    let job = world.get(&format!("/api/v1/events/{event}")).await["jobs"][0]["id"].as_str().unwrap().to_owned();
    let revision = world.get("/api/v1/status").await["revision"].as_str().unwrap().to_owned();
    let more = [
        format!("/events/{event}"),
        format!("/jobs/{job}"),
        "/sources/website".to_owned(),
        "/destinations/crm".to_owned(),
        "/?window=7d".to_owned(),
        "/sources/website?window=90d".to_owned(),
        "/destinations/crm?window=24h".to_owned(),
        "/balance?days=30&account=all".to_owned(),
        format!("/configuration/{revision}"),
    ];
    for path in PAGES.iter().map(|(path, ..)| (*path).to_owned()).chain(more) {
        let seen = visitor.get(&path).await;
        assert_eq!(seen.status, 200, "{path}: {}", seen.html);
        assert!(seen.policy.starts_with("default-src 'none'; script-src 'self'"), "{path}: {}", seen.policy);
        assert!(!seen.html.contains("style=\"") && !seen.html.contains("ada@example.com"), "{path}");
        assert!(seen.html.contains("<h1>") && seen.html.contains("aria-label=\"Pages\""), "{path}");
    }
    for name in ["/events/evt_00000000000000000000000000", "/jobs/job_999", "/replays/replay_99"] {
        let seen = visitor.get(name).await;
        assert!(seen.status == 404 && seen.html.contains("not-found"), "{name}: {}", seen.status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_is_planned_and_replayed_with_a_reason() {
    let (world, event) = with_dead_letter().await;
    let visitor = Visitor::signed_in(&world, None).await;
    let list = visitor.get("/dead-letters").await;
    assert!(list.html.contains("STRING_TOO_LONG"), "{}", list.html);
    let job = list.html.split("name=\"id\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let sheet = visitor.send("/sheets/replay?scope=all", &[("state", "dead")]).await;
    assert!(sheet.html.contains("Replay 1 jobs") && sheet.html.contains("May fail again"), "{}", sheet.html);
    let refused = visitor.send("/replays", &[("id", &job)]).await;
    assert!(refused.status == 400 && refused.html.contains("a replay needs a reason"), "{}", refused.html);
    let (until_time, state) = (sheet.value_of("until"), sheet.value_of("state"));
    let form = [("state", state.as_str()), ("until", until_time.as_str()), ("reason", "looked at it")];
    let started = visitor.send("/replays", &form).await;
    assert!(started.status == 303 && started.location.starts_with("/replays/replay_"), "{}", started.html);
    let page = visitor.get(&started.location).await;
    assert!(page.html.contains("looked at it"), "{}", page.html);
    world.settled(&event).await;
    let replays = world.get("/api/v1/replays").await;
    let replay = &replays["items"][0];
    assert_eq!((&replay["replayed"], &replay["actor"]), (&json!(1), &json!("admin")), "{replays}");
}

#[tokio::test(flavor = "multi_thread")]
async fn event_is_edited_on_its_page_after_its_differences_were_shown() {
    let (world, event) = with_dead_letter().await;
    let visitor = Visitor::signed_in(&world, None).await;
    let page = visitor.get(&format!("/events/{event}")).await;
    assert!(page.html.contains(&format!("action=\"/events/{event}/edit\"")), "{}", page.html);
    let path = format!("/events/{event}/edit");
    let form = [("path1", "attributes.last_name"), ("value1", "<b>King</b>"), ("reason", "too long")];
    let sheet = visitor.send(&path, &form).await;
    assert!(sheet.status == 200 && sheet.html.contains("attributes.last_name"), "{}", sheet.html);
    assert!(!sheet.html.contains("<b>King</b>") && sheet.html.contains("Edit and replay"), "{}", sheet.html);
    assert_eq!(sheet.value_of("base"), "0");
    let mut confirmed = form.to_vec();
    confirmed.push(("base", "0"));
    let done = visitor.send(&format!("{path}/confirm"), &confirmed).await;
    assert_eq!((done.status, done.location.as_str()), (303, format!("/events/{event}").as_str()), "{}", done.html);
    let jobs = world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "succeeded", "{jobs:?}");
    let again = visitor.send(&format!("{path}/confirm"), &confirmed).await;
    assert_eq!(again.status, 409, "the form of an older revision is refused: {}", again.html);
    let page = visitor.get(&format!("/events/{event}")).await;
    assert!(page.html.contains("1, current") && page.html.contains("too long"), "{}", page.html);
    let without = visitor.send(&path, &[("value1", "x"), ("reason", "x")]).await;
    assert_eq!(without.status, 400, "{}", without.html);
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_group_is_acknowledged_and_resolved_on_its_page() {
    let (world, _) = with_dead_letter().await;
    let visitor = Visitor::signed_in(&world, None).await;
    let page = visitor.get("/dead-letters").await;
    assert!(page.html.contains("action=\"/dead-letters/groups/group_1/acknowledge\""), "{}", page.html);
    let without = visitor.send("/dead-letters/groups/group_1/acknowledge", &[("reason", " ")]).await;
    assert_eq!(without.status, 400, "{}", without.html);
    let done = visitor.send("/dead-letters/groups/group_1/acknowledge", &[("reason", "on <b>it</b>")]).await;
    assert_eq!((done.status, done.location.as_str()), (303, "/dead-letters"), "{}", done.html);
    let page = visitor.get("/dead-letters").await;
    assert!(page.html.contains("acknowledged by admin") && !page.html.contains("<b>it</b>"), "{}", page.html);
    assert_eq!(visitor.send("/dead-letters/groups/group_1/resolve", &[("reason", "fixed")]).await.status, 303);
    assert_eq!(visitor.send("/dead-letters/groups/group_1/acknowledge", &[("reason", "x")]).await.status, 409);
    assert_eq!(visitor.send("/dead-letters/groups/group_1/forget", &[("reason", "x")]).await.status, 400);
    assert_eq!(world.get("/api/v1/dead-letters/groups/group_1").await["state"], "resolved");
}

#[tokio::test(flavor = "multi_thread")]
async fn drop_needs_the_exact_count() {
    let (world, _) = with_dead_letter().await;
    let visitor = Visitor::signed_in(&world, None).await;
    let sheet = visitor.send("/sheets/drop?scope=all", &[("state", "dead")]).await;
    let (until_time, planned) = (sheet.value_of("until"), sheet.value_of("planned"));
    assert_eq!(planned, "1");
    let form = |count: &'static str| {
        [
            ("state", "dead".to_owned()),
            ("until", until_time.clone()),
            ("planned", planned.clone()),
            ("count", count.to_owned()),
            ("reason", "spam".to_owned()),
        ]
    };
    let send = async |count: &'static str| {
        let form = form(count);
        let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        visitor.send("/dead-letters/drop", &form).await.status
    };
    assert_eq!(send("2").await, 400);
    assert_eq!(world.get("/api/v1/status").await["jobs"]["dead"], 1);
    assert_eq!(send("1").await, 303);
    assert_eq!(world.get("/api/v1/status").await["jobs"]["dropped"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn search_finds_a_person_without_writing_them_into_an_address() {
    let world = World::start().await;
    let event = world.post(&lead("ada")).await.event();
    world.settled(&event).await;
    let visitor = Visitor::signed_in(&world, None).await;
    let found = visitor.send("/search", &[("q", "ada@example.com")]).await;
    assert!(
        found.status == 200 && found.html.contains(&event) && !found.html.contains("ada@example.com"),
        "{}",
        found.html
    );
    assert_eq!(visitor.send("/search", &[("q", &event)]).await.location, format!("/events/{event}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn reveal_shows_personal_data_once_and_is_recorded() {
    let world = World::start().await;
    let event = world.post(&lead("ada")).await.event();
    world.settled(&event).await;
    let visitor = Visitor::signed_in(&world, None).await;
    let path = format!("/events/{event}/reveal");
    assert_eq!(visitor.send(&path, &[("reason", " ")]).await.status, 400);
    let seen = visitor.send(&path, &[("reason", "the customer asked")]).await;
    assert!(seen.html.contains("ada@example.com"), "{}", seen.html);
    assert!(!visitor.get(&format!("/events/{event}")).await.html.contains("ada@example.com"));
    let entry = world.get("/api/v1/audit").await["items"][0].clone();
    assert_eq!((&entry["action"], &entry["detail"]), (&json!("reveal"), &json!("the customer asked")));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_strings_stay_text_in_their_own_cell() {
    let world = World::start().await;
    let mut hostile = lead("ada");
    hostile["last_name"] = json!(HOSTILE);
    hostile["company"] = json!("x".repeat(5_000));
    let event = world.post(&hostile).await.event();
    world.settled(&event).await;
    let visitor = Visitor::signed_in(&world, None).await;
    let reason = format!("why {HOSTILE}");
    visitor.send("/pause", &[("target", "destination:crm"), ("reason", &reason)]).await;
    let revealed = visitor.send(&format!("/events/{event}/reveal"), &[("reason", &reason)]).await;
    let mut pages = vec![revealed];
    for path in ["/", "/audit", "/events", "/destinations", &format!("/events/{event}")] {
        pages.push(visitor.get(path).await);
    }
    pages.push(visitor.get("/events?source=%3Cscript%3Ealert(1)%3C%2Fscript%3E").await);
    for seen in pages {
        assert_eq!(seen.status, 200);
        assert!(!seen.html.contains("<script>alert") && !seen.html.contains("<img"), "{}", seen.html);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_reports_a_change_and_ends_when_the_node_stops() {
    let mut world = World::start().await;
    let visitor = Visitor::signed_in(&world, None).await;
    let request = world.client.get(format!("{}/api/v1/stream", world.admin)).header("cookie", &visitor.cookie);
    let mut response = request.send().await.unwrap();
    let hello = response.chunk().await.unwrap().unwrap();
    assert!(hello.starts_with(b"retry: "), "{hello:?}");
    world.act("/api/v1/pause", json!({ "target": "destination:crm", "reason": "x" })).await;
    let mut text = String::new();
    while !text.contains("event: control") {
        text.push_str(&String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap()));
    }
    world.stop_node().await;
    while let Ok(Some(_)) = response.chunk().await {}
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_the_maximum_are_refused() {
    let world = World::start().await;
    let open = async || {
        world.client.get(format!("{}/api/v1/stream", world.admin)).bearer_auth(world.token()).send().await.unwrap()
    };
    let mut streams = vec![];
    for _ in 0..64 {
        let response = open().await;
        assert_eq!(response.status(), 200);
        streams.push(response);
    }
    let refused = open().await;
    assert_eq!(refused.status(), 503);
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["code"], "too-many-streams");
    streams.clear();
    until(|| async { (open().await.status() == 200).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_is_exported_as_csv_and_as_lines() {
    let world = World::start().await;
    for id in ["ada", "bob"] {
        let event = world.post(&lead(id)).await.event();
        world.settled(&event).await;
    }
    let get = async |path: &str, accept: &str| {
        let request = world.client.get(format!("{}{path}", world.admin)).bearer_auth(world.token());
        request.header("accept", accept).send().await.unwrap()
    };
    let csv = get("/api/v1/events?limit=1", "text/csv").await;
    assert!(csv.headers()["sluice-next"].to_str().unwrap().starts_with("evt_"));
    let text = csv.text().await.unwrap();
    assert!(text.starts_with("id,source,flow,") && text.lines().count() == 2, "{text}");
    let lines = get("/api/v1/events", "application/x-ndjson").await.text().await.unwrap();
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(get("/api/v1/status", "text/csv").await.status(), 406);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_command_with_an_idempotency_key_is_done_once() {
    let world = World::start().await;
    let send = async |name: &str| {
        let request = world.client.post(format!("{}/api/v1/tokens", world.admin)).bearer_auth(world.token());
        let order = json!({ "name": name, "role": "viewer" });
        request.header("idempotency-key", "once").json(&order).send().await.unwrap()
    };
    assert_eq!(send("ci").await.status(), 200);
    let second = send("ci").await;
    assert_eq!(second.status(), 409);
    let problem: Value = second.json().await.unwrap();
    assert_eq!(problem["code"], "response-not-kept", "a secret is shown once: {problem}");
    assert_eq!(send("other").await.status(), 422);
    assert_eq!(world.get("/api/v1/tokens").await.as_array().unwrap().len(), 1);
}
