//! Exports and imports: what leaves a node masked or revealed, and what comes in through a flow.

use std::path::{Path, PathBuf};

use clap::Parser;
use serde_json::{Value, json};
use sluice_server::cli::NodeCommand;

use crate::fixture::{Answer, FLOW, QUEUES, World, lead, until};

pub(crate) const CONTACTS: &str = "
contacts:
  identifiers: [{field: contact_external_id}, {field: email}]
";

pub(crate) const WORKER: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
concurrency: 16
retry: { strategy: exponential, base_delay: 20ms, max_delay: 200ms, max_attempts: 30 }
run:
  - name: upsert
    run: salesforce.upsert
    order: latest
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.contact_external_id }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.company }}", Email: "{{ event.email }}" }
"#;

pub(crate) async fn start() -> World {
    let files = [("flow.yml", FLOW), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("contacts.yml", CONTACTS)];
    World::start_with(&files).await
}

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: NodeCommand,
}

/// Runs a command against the node of a world. Returns its exit code and its message.
pub(crate) async fn run(world: &World, words: &[&str]) -> (u8, String) {
    let token = world.settings().data.join("admin.token").display().to_string();
    let node = ["--url", &world.admin, "--admin-token-file", &token];
    let words: Vec<String> = ["sluice"].iter().chain(words).chain(&node).map(|word| (*word).to_owned()).collect();
    let command = Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{error}")).command;
    let ended = tokio::task::spawn_blocking(move || command.run()).await.unwrap();
    ended.map_or_else(|error| (error.code, error.message), |()| (0, String::new()))
}

pub(crate) fn file(world: &World, name: &str, content: &str) -> String {
    let path = world.directory.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

pub(crate) fn rows(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) async fn export(world: &World, what: &str, name: &str, more: &[&str]) -> String {
    let path: PathBuf = world.directory.path().join(name);
    let path = path.display().to_string();
    let mut words = vec!["export", what, "--output", &path];
    words.extend(more);
    assert_eq!(run(world, &words).await, (0, String::new()));
    path
}

pub(crate) const REVEAL: [&str; 3] = ["--reveal", "--reason", "move"];

async fn audit(world: &World, actions: &[&str]) -> Vec<(String, String)> {
    let trail = world.get("/api/v1/audit?limit=500").await;
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    let entries = trail["items"].as_array().unwrap().iter().rev();
    entries
        .map(|entry| (text(entry, "action"), text(entry, "detail")))
        .filter(|(action, _)| actions.contains(&action.as_str()))
        .collect()
}

/// Waits until no job is left to run.
pub(crate) async fn settled(world: &World) {
    until(|| async {
        let jobs = world.get("/api/v1/status").await["jobs"].clone();
        let live = ["queued", "running", "retrying", "waiting"];
        live.iter().all(|state| jobs[state].as_u64().unwrap_or(0) == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_masked_unless_it_is_revealed_with_a_reason() {
    let world = start().await;
    for n in 0..3 {
        world.post(&lead(&format!("={n}"))).await.event();
    }
    settled(&world).await;
    let masked = rows(&export(&world, "events", "masked.ndjson", &[]).await);
    assert_eq!((masked.len(), &masked[0]["payload"]["id"]), (3, &json!("=2")));
    assert!(!masked.iter().any(|row| row.to_string().contains("0@example.com")), "{masked:?}");
    assert!(audit(&world, &["export", "export ended"]).await.is_empty());
    let revealed = rows(&export(&world, "events", "revealed.ndjson", &REVEAL).await);
    assert_eq!((&revealed[0]["payload"]["email"], &revealed[0]["masked"]), (&json!("=2@example.com"), &json!(false)));
    let entries = audit(&world, &["export", "export ended"]).await;
    let wanted = [("export", "move"), ("export ended", "3 rows, all")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(entries, wanted);
    let refused = world.act("/api/v1/exports/events", json!({ "reason": " " })).await;
    assert_eq!((refused.status, &refused.body["code"]), (400, &json!("invalid")));
    let unknown = world.act("/api/v1/exports/events", json!({ "reason": "x", "filter": { "sorce": "a" } })).await;
    assert_eq!(unknown.body["code"], "body-invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_with_personal_data_needs_the_permission() {
    let world = start().await;
    let token = world.act("/api/v1/tokens", json!({ "name": "t", "role": "operator" })).await;
    let secret = token.body["secret"].as_str().unwrap_or_else(|| panic!("{}", token.body)).to_owned();
    for (what, body) in [("events", json!({ "reason": "x" })), ("contacts", json!({ "reason": "x" }))] {
        let url = format!("{}/api/v1/exports/{what}", world.admin);
        let answer = world.client.post(&url).bearer_auth(&secret).json(&body).send().await.unwrap();
        let answer = Answer::of(answer).await;
        assert_eq!((answer.status, &answer.body["code"]), (403, &json!("forbidden")), "{}", answer.body);
        assert_eq!(world.client.get(&url).bearer_auth(&secret).send().await.unwrap().status(), 200);
    }
    let token = world.act("/api/v1/tokens", json!({ "name": "v", "role": "viewer" })).await;
    let viewer = token.body["secret"].as_str().unwrap().to_owned();
    let order = json!({ "flow": "website-leads", "content": "a", "file": "a", "rows": 1, "reason": "x" });
    for (path, order) in [("imports", order), ("imports/check", json!({ "flow": "website-leads", "rows": [] }))] {
        let request = world.client.post(format!("{}/api/v1/{path}", world.admin)).bearer_auth(&viewer).json(&order);
        assert_eq!(request.send().await.unwrap().status(), 403, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_have_filters_and_tables() {
    let world = start().await;
    for n in 0..3 {
        world.post(&lead(&format!("={n}"))).await.event();
    }
    settled(&world).await;
    let none = export(&world, "events", "none.csv", &["--source", "shop"]).await;
    let header = std::fs::read_to_string(&none).unwrap();
    assert!(header.starts_with("sluice_export,event,seq,flow,") && header.lines().count() == 1, "{header}");
    assert!(rows(&export(&world, "events", "none.ndjson", &["--flow", "other"]).await).is_empty());
    assert_eq!(rows(&export(&world, "events", "some.ndjson", &["--flow", "website-leads"]).await).len(), 3);
    let none = export(&world, "events", "none.ndjson", &["--until", "2026-01-01T00:00:00Z"]).await;
    assert_eq!(std::fs::read_to_string(&none).unwrap(), "");
    let all = export(&world, "events", "all.csv", &["--since", "1h", "--type", "lead.created"]).await;
    let table = std::fs::read_to_string(&all).unwrap();
    assert_eq!(table.lines().count(), 4);
    let contacts = export(&world, "contacts", "contacts.csv", &REVEAL).await;
    let table = std::fs::read_to_string(&contacts).unwrap();
    assert!(table.lines().next().unwrap().contains("fields,identity.contact_external_id,identity.email"), "{table}");
    assert!(table.contains(",'=2@example.com,"), "{table}");
    assert!(rows(&export(&world, "dead-letters", "dead.ndjson", &["--destination", "crm"]).await).is_empty());
    let (code, message) = run(&world, &["export", "events", "--state", "ded", "--output", &all]).await;
    assert!(code == 2 && message.contains("did you mean `dead`?"), "{message}");
    assert_eq!(std::fs::read_to_string(&all).unwrap().lines().count(), 4, "a failed export replaces nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_exported_with_their_failure_and_payload() {
    let world = start().await;
    let mut long = lead("1");
    long["last_name"] = json!("x".repeat(300));
    world.post(&long).await.event();
    settled(&world).await;
    let dead = rows(&export(&world, "dead-letters", "dead.ndjson", &REVEAL).await);
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((&dead[0]["worker"], &dead[0]["payload"]["id"]), (&json!("to-crm"), &json!("1")));
    assert_eq!(dead[0]["code"], "STRING_TOO_LONG", "{}", dead[0]);
    let code = ["--code", "STRING_TOO_LONG", "--destination", "crm"];
    assert_eq!(rows(&export(&world, "dead-letters", "some.ndjson", &code).await).len(), 1);
    assert!(rows(&export(&world, "dead-letters", "none.ndjson", &["--worker", "other"]).await).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_imported_as_it_is_and_doubles_nothing() {
    let old = start().await;
    for n in 0..5 {
        old.post(&lead(&format!("={n}"))).await.event();
    }
    settled(&old).await;
    let (lines, table) =
        (export(&old, "events", "a.ndjson", &REVEAL).await, export(&old, "events", "a.csv", &REVEAL).await);
    let world = start().await;
    let import = ["import", &lines, "--flow", "website-leads", "--reason", "move", "--yes"];
    assert_eq!(run(&world, &import).await, (0, String::new()));
    settled(&world).await;
    assert_eq!(world.crm.truth().object("Lead").created, 5);
    let list = world.get("/api/v1/imports").await;
    let first = &list["items"][0];
    assert_eq!((&first["state"], &first["accepted"], &first["refused"]), (&json!("done"), &json!(5), &json!(0)));
    assert_eq!(run(&world, &import).await, (0, String::new()), "the same file again");
    let import = ["import", &table, "--flow", "website-leads", "--reason", "again", "--yes"];
    assert_eq!(run(&world, &import).await, (0, String::new()));
    let list = world.get("/api/v1/imports").await;
    assert_eq!((list["items"].as_array().unwrap().len(), &list["items"][0]["duplicates"]), (2, &json!(5)));
    let again = rows(&export(&world, "events", "b.ndjson", &REVEAL).await);
    let event =
        |row: &Value| [row["key"].clone(), row["payload"].clone(), row["occurred_at"].clone(), row["type"].clone()];
    let sorted = |rows: &[Value]| {
        let mut events: Vec<String> = rows.iter().map(|row| format!("{:?}", event(row))).collect();
        events.sort();
        events
    };
    assert_eq!(sorted(&again), sorted(&rows(&lines)));
    let detail = world.get(&format!("/api/v1/events/{}", again[0]["event"].as_str().unwrap())).await;
    assert_eq!(detail["verified_by"], json!(format!("import:{}", first["id"].as_str().unwrap())));
    let entries = audit(&world, &["import", "import ended"]).await;
    assert_eq!(entries[0], ("import".to_owned(), "move; 5 rows of a.ndjson through website-leads".to_owned()));
    assert_eq!(entries[1].1, "5 accepted, 0 duplicates, 0 quarantined, 0 refused");
}

fn row(line: u64, id: &str) -> Value {
    json!({ "line": line, "payload": lead(id), "occurrence": 1 })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_import_continues_behind_its_last_row() {
    let mut world = start().await;
    let order =
        json!({ "flow": "website-leads", "content": "abc", "file": "a.ndjson", "rows": 6, "reason": "history" });
    let started = world.act("/api/v1/imports", order.clone()).await;
    let id = started.body["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/imports/{id}/rows");
    let batch = |after: u64, last: bool| json!({ "after": after, "rows": [row(after + 1, &format!("a{after}")), row(after + 2, &format!("b{after}"))], "last": last });
    let first = world.act(&path, batch(0, false)).await;
    assert_eq!((&first.body["taken"], &first.body["import"]["position"]), (&json!(true), &json!(2)), "{}", first.body);
    let again = world.act(&path, batch(0, false)).await;
    assert_eq!((&again.body["taken"], &again.body["import"]["accepted"]), (&json!(false), &json!(2)));
    world.stop_node().await;
    world.start_node().await;
    let known = world.act("/api/v1/imports", order.clone()).await;
    assert_eq!((&known.body["id"], &known.body["position"]), (&json!(id), &json!(2)));
    assert_eq!(world.act(&path, batch(4, false)).await.body["taken"], json!(false), "rows are not left out");
    let cancel = json!({ "reason": "wrong file" });
    let cancelled = world.act(&format!("/api/v1/imports/{id}/cancel"), cancel.clone()).await;
    assert_eq!(cancelled.body["state"], "cancelled");
    assert_eq!(world.act(&path, batch(2, false)).await.body["taken"], json!(false));
    assert_eq!(world.act("/api/v1/imports", order).await.body["state"], "running");
    assert_eq!(world.act(&path, batch(2, false)).await.body["taken"], json!(true));
    let many = json!({ "after": 4, "rows": [], "unreadable": u64::MAX });
    assert_eq!(world.act(&path, many).await.body["code"], "invalid");
    let last = world.act(&path, batch(4, true)).await;
    assert_eq!((&last.body["import"]["state"], &last.body["import"]["accepted"]), (&json!("done"), &json!(6)));
    assert_eq!(world.act(&format!("/api/v1/imports/{id}/cancel"), cancel).await.body["code"], "import-finished");
    settled(&world).await;
    assert_eq!(world.crm.truth().object("Lead").created, 6);
    let unknown = json!({ "flow": "websit-leads", "content": "abc", "file": "a", "rows": 1, "reason": "x" });
    let unknown = world.act("/api/v1/imports", unknown).await;
    assert!(unknown.status == 404 && unknown.body["detail"].to_string().contains("did you mean `website-leads`?"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_wrong_are_reported_and_do_not_stop_the_rest() {
    let world = start().await;
    let mut nameless = lead("2");
    nameless["last_name"] = Value::Null;
    let masked = json!({ "sluice_export": "event/1", "flow": "website-leads", "masked": true, "payload": lead("3") });
    let content = format!("{}\n{{\"id\":\n{nameless}\n{masked}\n{}\n", lead("1"), lead("1"));
    let path = file(&world, "leads.ndjson", &content);
    let (code, _) = run(&world, &["import", &path, "--flow", "website-leads", "--dry-run", "--json"]).await;
    assert_eq!(code, 1);
    assert_eq!(world.get("/api/v1/imports").await["items"], json!([]), "a dry run writes nothing");
    let import = ["import", &path, "--flow", "website-leads", "--reason", "history"];
    let (code, message) = run(&world, &import).await;
    assert!(code == 2 && message.contains("use --yes"), "{message}");
    let (code, message) = run(&world, &[&import[..], &["--yes"]].concat()).await;
    assert_eq!((code, message.as_str()), (1, ""));
    let rejects = rows(&format!("{path}.rejects.ndjson"));
    let found: Vec<_> = rejects.iter().map(|reject| (&reject["line"], &reject["column"], &reject["code"])).collect();
    assert_eq!(
        found,
        [
            (&json!(2), &json!("6"), &json!("json-invalid")),
            (&json!(3), &Value::Null, &json!("field-missing")),
            (&json!(4), &json!("masked"), &json!("row-masked")),
        ]
    );
    assert_eq!(rejects[1]["row"], json!(nameless.to_string()));
    let import = world.get("/api/v1/imports").await["items"][0].clone();
    let counts = ["rows", "position", "accepted", "duplicates", "refused"].map(|name| import[name].as_u64().unwrap());
    assert_eq!(counts, [5, 5, 1, 1, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_an_id_are_told_apart_by_their_number_and_found_again() {
    let flow = FLOW.replace("  id: body.id\n", "");
    let files =
        [("flow.yml", flow.as_str()), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("contacts.yml", CONTACTS)];
    let world = World::start_with(&files).await;
    let mut anonymous = lead("1");
    anonymous.as_object_mut().unwrap().remove("id");
    let mut other = anonymous.clone();
    other["person"] = json!("other");
    let first = file(&world, "a.ndjson", &format!("{anonymous}\n{anonymous}\n{other}\n"));
    let second = file(&world, "b.ndjson", &format!("{other}\n{anonymous}\n{anonymous}\n{anonymous}\n"));
    for path in [&first, &second] {
        assert_eq!(run(&world, &["import", path, "--flow", "website-leads", "--reason", "x", "--yes"]).await.0, 0);
    }
    let list = world.get("/api/v1/imports").await;
    let counts = |n: usize| (list["items"][n]["accepted"].clone(), list["items"][n]["duplicates"].clone());
    assert_eq!((counts(1), counts(0)), ((json!(3), json!(0)), (json!(1), json!(3))));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_waits_while_jobs_wait_and_while_its_source_is_paused() {
    let world = start().await;
    world.act("/api/v1/pause", json!({ "target": "source:website", "reason": "spam" })).await;
    let path = file(&world, "a.ndjson", &format!("{}\n", lead("1")));
    let import = ["import", &path, "--flow", "website-leads", "--reason", "history", "--yes"];
    let (code, message) = run(&world, &import).await;
    assert!(code == 1 && message.contains("is paused") && message.contains("Run the same command again"), "{message}");
    world.act("/api/v1/resume", json!({ "target": "source:website", "reason": "over" })).await;
    assert_eq!(run(&world, &import).await.0, 0);
    settled(&world).await;
    world.act("/api/v1/pause", json!({ "target": "destination:crm", "reason": "down" })).await;
    let order = json!({ "flow": "website-leads", "content": "x", "file": "x", "rows": 2_000, "reason": "history" });
    let id = world.act("/api/v1/imports", order).await.body["id"].as_str().unwrap().to_owned();
    let mut position = 0;
    let waits = loop {
        let rows: Vec<Value> = (1..=250).map(|n| row(position + n, &format!("p{}", position + n))).collect();
        let answer = world.act(&format!("/api/v1/imports/{id}/rows"), json!({ "after": position, "rows": rows })).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        if answer.body["taken"] == json!(false) {
            break answer.body["wait_ms"].as_u64().unwrap();
        }
        position = answer.body["import"]["position"].as_u64().unwrap();
    };
    assert!(waits > 0 && position == 1_000, "{position}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_row_counts_and_not_that_of_the_import() {
    let world = start().await;
    world.post(&json!({ "id": "live", "person": "ada", "email": "ada@example.com", "last_name": "King", "company": "New", "created_at": "2026-11-10T00:00:00Z" })).await.event();
    settled(&world).await;
    let table = "id,person,email,last_name,company,created_at\n1,ada,ada@example.com,Byron,Old,2026-11-01T00:00:00Z\n";
    let path = file(&world, "a.csv", table);
    assert_eq!(run(&world, &["import", &path, "--flow", "website-leads", "--reason", "history", "--yes"]).await.0, 0);
    settled(&world).await;
    let leads = world.crm.records("Lead");
    assert_eq!(leads.len(), 1);
    let text = format!("{:?}", leads[0]);
    assert!(text.contains("King") && !text.contains("Byron"), "{text}");
    assert!(Path::new(&path).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_that_reads_headers_gets_them_from_the_command_or_the_export() {
    let flow = FLOW.replace("type: lead.created", "type: \"{{ headers['x-topic'] }}\"");
    let files =
        [("flow.yml", flow.as_str()), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("contacts.yml", CONTACTS)];
    let world = World::start_with(&files).await;
    let path = file(&world, "a.ndjson", &format!("{}\n", lead("1")));
    let import = ["import", &path, "--flow", "website-leads", "--reason", "history", "--yes"];
    assert_eq!(run(&world, &import).await.0, 1, "the type is missing");
    let with_header = [&import[..], &["--header", "X-Topic: lead.updated"]].concat();
    assert_eq!(run(&world, &with_header).await.0, 0, "other headers are another import");
    assert_eq!(world.get("/api/v1/events").await["items"][0]["event_type"], "lead.updated");
    let exported = export(&world, "events", "b.ndjson", &REVEAL).await;
    let other = World::start_with(&files).await;
    assert_eq!(run(&other, &["import", &exported, "--flow", "website-leads", "--reason", "move", "--yes"]).await.0, 0);
    assert_eq!(other.get("/api/v1/events").await["items"][0]["event_type"], "lead.updated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_a_time_replaces_nothing_newer() {
    let world = start().await;
    let event = world.post(&lead("1")).await.event();
    world.settled(&event).await;
    let mut row = json!({ "id": "old", "person": "1", "email": "1@example.com", "last_name": "Byron" });
    let path = file(&world, "old.ndjson", &row.to_string());
    let words = ["import", &path, "--flow", "website-leads", "--reason", "history", "--yes"];
    assert_eq!(run(&world, &words).await, (0, String::new()));
    settled(&world).await;
    let leads = world.crm.records("Lead");
    assert_eq!((leads.len(), &leads[0].fields["LastName"]), (1, &json!("Lovelace")));
    // A row with a time is as new as it says.
    (row["id"], row["last_name"], row["created_at"]) = (json!("new"), json!("King"), json!("2026-11-16T12:00:00Z"));
    let path = file(&world, "new.ndjson", &row.to_string());
    let words = ["import", &path, "--flow", "website-leads", "--reason", "history", "--yes"];
    assert_eq!(run(&world, &words).await, (0, String::new()));
    settled(&world).await;
    assert_eq!(world.crm.records("Lead")[0].fields["LastName"], "King");
}
