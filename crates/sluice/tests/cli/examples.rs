//! Every example does what its README says, against simulators that repeat, throttle and lose answers.

use std::path::{Path, PathBuf};

use crate::support::{Up, Workplace};
use serde_json::Value;
use sluice_simulator::faults::{CallKind, Millis, RetryAfter, Scripted};
use sluice_simulator::sink::KeyPolicy;
use sluice_simulator::{
    Fault, FaultPlan, Hubspot, HubspotSettings, Postgres, Salesforce, SalesforceSettings, Sink, SinkSettings, Smtp,
    SmtpSettings,
};
use tempfile::TempDir;

pub(crate) fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// An example in a directory of its own, with the addresses of the simulators in it.
pub(crate) struct Stage {
    pub workplace: Workplace,
    pub payloads: PathBuf,
}

impl Stage {
    pub(crate) fn new(name: &str, replacements: &[(&str, &str)]) -> Stage {
        let directory = TempDir::new().unwrap();
        copy(&example(name).join("config"), directory.path(), replacements);
        Stage { workplace: Workplace { directory }, payloads: example(name).join("payloads") }
    }

    pub(crate) fn up(&self) -> Up {
        self.workplace.run(&["check", "--strict"]).ok();
        self.workplace.up(&[])
    }

    /// What the senders were answered.
    pub(crate) fn send(&self, flow: &str, payload: &str, more: &[&str]) -> Vec<Value> {
        let file = self.payloads.join(payload);
        let order = ["send", flow, file.to_str().unwrap(), "--json"];
        let sent = self.workplace.run(&[&order[..], more].concat()).ok();
        let answers: Value = serde_json::from_str(&sent.stdout).unwrap();
        match answers {
            Value::Array(answers) => answers,
            one => vec![one],
        }
    }

    fn jobs(&self) -> Vec<Value> {
        self.workplace.json(&["jobs", "--limit", "100", "--json"])["items"].as_array().unwrap().clone()
    }

    /// The jobs of a worker by their states, in words.
    fn states(&self, worker: &str) -> Vec<String> {
        let mut states: Vec<String> = self
            .jobs()
            .iter()
            .filter(|job| job["worker"] == worker)
            .map(|job| job["state"].as_str().unwrap().to_owned())
            .collect();
        states.sort();
        states
    }
}

fn copy(from: &Path, to: &Path, replacements: &[(&str, &str)]) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target, replacements);
        } else {
            let mut text = std::fs::read_to_string(entry.path()).unwrap();
            for (old, new) in replacements {
                text = text.replace(old, new);
            }
            std::fs::write(target, text).unwrap();
        }
    }
}

pub(crate) const CRM: &str = "http://127.0.0.1:8090";
pub(crate) const SINK: &str = "http://127.0.0.1:8091";

pub(crate) fn crm(faults: impl IntoIterator<Item = Scripted>) -> Salesforce {
    let faults = FaultPlan::scripted(faults);
    Salesforce::start(SalesforceSettings { faults, ..SalesforceSettings::default() }).unwrap()
}

pub(crate) fn sink(faults: impl IntoIterator<Item = Scripted>) -> Sink {
    let faults = FaultPlan::scripted(faults);
    Sink::start(SinkSettings { faults, keys: KeyPolicy::Honour, ..SinkSettings::default() }).unwrap()
}

/// How often each effect of the sink has happened. Reads have none.
fn applied(sink: &Sink) -> Vec<u64> {
    sink.keys().values().map(|counts| counts.applied).filter(|applied| *applied > 0).collect()
}

pub(crate) fn repeats(answers: &[Value]) -> usize {
    answers.iter().filter(|answer| answer["duplicate"] == Value::Bool(true)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn lead_routing() {
    // The CRM applies the first write and loses the answer; then it fails once more.
    let crm = crm([
        Scripted::first(1, Fault::DropAfter).only(CallKind::Write),
        Scripted::first(1, Fault::ErrorBefore).only(CallKind::Write),
    ]);
    let sink = sink([]);
    let city = reqwest::Client::new().put(format!("{}/resource/192.0.2.7", sink.url())).body(r#"{"city":"Oslo"}"#);
    city.send().await.unwrap().error_for_status().unwrap();
    let lost = Scripted::first(1, Fault::DropAfter).only(CallKind::Write);
    sink.set_faults(FaultPlan::scripted([lost])).unwrap();
    let stage = Stage::new("lead-routing", &[(CRM, &crm.url()), (SINK, &sink.url())]);
    let _node = stage.up();

    // The vendor presses the button five times.
    let answers = stage.send("partner-leads", "lead.json", &["--times", "5"]);
    assert!(answers.iter().all(|answer| answer["status"] == 202), "{answers:?}");
    assert_eq!(repeats(&answers), 4);
    stage.workplace.until_settled();
    let leads = crm.truth().object("Lead");
    assert_eq!((leads.created, leads.created_again), (1, 0));
    let record = &crm.records("Lead")[0];
    assert_eq!((&record.fields["City"], &record.fields["Email"]), (&"Oslo".into(), &"grace@example.com".into()));
    assert_eq!(applied(&sink), [1], "one lead, counted once");

    // What nobody needs is not kept.
    let event = stage.workplace.json(&["events", "--json"])["items"][0]["id"].as_str().unwrap().to_owned();
    let shown = stage.workplace.run(&["events", "show", &event, "--reveal", "--reason", "a test", "--json"]).ok();
    assert!(shown.stdout.contains("Hopper") && !shown.stdout.contains("not ours to keep"), "{shown}");

    // A payload of another shape is refused; one that the CRM refuses is set aside, and its other job is done.
    let file = stage.payloads.join("no-company.json");
    let refused = stage.workplace.run(&["send", "partner-leads", file.to_str().unwrap()]);
    assert!(refused.code == 1 && refused.to_string().contains("schema-mismatch"), "{refused}");
    stage.send("partner-leads", "too-long.json", &[]);
    stage.workplace.until_settled();
    assert_eq!(stage.states("lead-to-crm"), ["dead", "succeeded"]);
    assert_eq!(stage.states("lead-to-analytics"), ["succeeded", "succeeded"]);

    // The cause is mended, seen first, and the dead letter is replayed with the newest steps.
    let path = stage.workplace.path().join("crm.yml");
    let mended = std::fs::read_to_string(&path).unwrap().replace("{{ event.last_name }}", "{{ event.last_name[:80] }}");
    std::fs::write(&path, mended).unwrap();
    assert_eq!(stage.workplace.run(&["plan"]).code, 4);
    stage.workplace.run(&["reload"]).ok();
    let filter = ["--filter", "worker=lead-to-crm", "--latest-config", "--yes", "--reason", "names are cut now"];
    stage.workplace.run(&[&["replay"][..], &filter].concat()).ok();
    stage.workplace.until_settled();
    assert_eq!(stage.states("lead-to-crm"), ["succeeded", "succeeded"]);
    let leads = crm.truth().object("Lead");
    assert_eq!((leads.records, leads.created_again), (2, 0));
}

#[test]
fn webhook_to_crm() {
    let crm = crm([
        Scripted::first(1, Fault::TooManyRequests { retry_after: RetryAfter::Seconds(1) }).only(CallKind::Write),
        Scripted::first(1, Fault::DropAfter).only(CallKind::Write),
    ]);
    let stage = Stage::new("webhook-to-crm", &[(CRM, &crm.url())]);
    let _node = stage.up();

    // The CRM is away while the sender delivers, three times.
    crm.refuse_connections().unwrap();
    let answers = stage.send("form-submissions", "form.json", &["--times", "3"]);
    assert!(answers.iter().all(|answer| answer["status"] == 202) && repeats(&answers) == 2, "{answers:?}");
    crm.accept_connections().unwrap();
    stage.workplace.until_settled();
    assert_eq!(stage.states("contact-upsert"), ["succeeded"]);

    // Details arrive later: for a contact that is there, and for one that is not.
    for payload in ["form-details.json", "form-details-of-nobody.json"] {
        stage.send("form-submissions", payload, &[]);
        stage.workplace.until_settled();
    }
    assert_eq!(stage.states("contact-details"), ["noop", "succeeded"]);

    // A sender without ids repeats itself.
    let answers = stage.send("chat-leads", "chat.json", &["--times", "2"]);
    assert_eq!(repeats(&answers), 1);
    stage.workplace.until_settled();

    let contacts = crm.truth().object("Contact");
    assert_eq!((contacts.records, contacts.created_again), (2, 0));
    let mary = crm.records("Contact").into_iter().find(|record| record.fields["External_Id__c"] == "forms:12345");
    assert_eq!(mary.unwrap().fields["Title"], "Director");
}

#[test]
fn hubspot_leads() {
    // The first create is applied and its answer is lost; then a record is locked, and the account is throttled.
    let faults = FaultPlan::scripted([
        Scripted::first(1, Fault::DropAfter).only(CallKind::Write).after(1),
        Scripted::first(1, Fault::TooManyRequests { retry_after: RetryAfter::Seconds(1) }).only(CallKind::Write),
    ]);
    let hubspot = Hubspot::start(HubspotSettings { faults, ..HubspotSettings::default() }).unwrap();
    let stage = Stage::new("hubspot-leads", &[("http://127.0.0.1:8093", &hubspot.url())]);
    let _node = stage.up();

    let answers = stage.send("hubspot-leads", "lead.json", &["--times", "3"]);
    assert!(answers.iter().all(|answer| answer["status"] == 202) && repeats(&answers) == 2, "{answers:?}");
    stage.workplace.until_settled();
    stage.send("hubspot-leads", "same-person.json", &[]);
    stage.send("hubspot-leads", "bad-email.json", &[]);
    stage.workplace.until_settled();
    assert_eq!(stage.states("lead-to-hubspot"), ["dead", "succeeded", "succeeded"]);

    let truth = hubspot.truth();
    for object in ["contacts", "companies"] {
        let records = truth.object(object);
        assert_eq!((records.records, records.created_again), (1, 0), "{object}");
    }
    let contact = &hubspot.records("contacts")[0];
    assert_eq!(contact.properties["firstname"], "Katherine G.");
    assert_eq!(contact.associations.len(), 1);

    let rules = stage.workplace.json(&["destinations", "show", "hubspot", "--json"]);
    let first = &rules["failure_rules"][0];
    assert_eq!((&first["own"], &first["status"], &first["action"]), (&true.into(), &"477".into(), &"wait 5m".into()));
    assert_eq!(rules["calls_today"]["limit"], 10_000_000);
    let shown = stage.workplace.run(&["destinations", "show", "hubspot", "--rules"]).ok();
    assert!(shown.stdout.contains("TEN_SECONDLY_ROLLING") && shown.stdout.contains("wait 5m"), "{shown}");
}

#[test]
fn lead_capture() {
    let crm = crm([]);
    let sink = sink([Scripted::first(1, Fault::DropAfter).only(CallKind::Write)]);
    let stage = Stage::new("lead-capture", &[(CRM, &crm.url()), (SINK, &sink.url())]);
    let _node = stage.up();
    let first = stage.send("captured-leads", "first.json", &[]);
    // Other times, another session, another order of members; then under an id that it did not have before.
    let again = stage.send("captured-leads", "again.json", &[]);
    let with_id = stage.send("captured-leads", "again.json", &["--header", "X-Webhook-Event-Id: w-9"]);
    assert_eq!((repeats(&first), repeats(&again), repeats(&with_id)), (0, 1, 1));
    // The same person on another form is something else.
    assert_eq!(repeats(&stage.send("captured-leads", "other-form.json", &[])), 0);
    stage.workplace.until_settled();
    let leads = crm.truth().object("Lead");
    assert_eq!((leads.records, leads.created_again), (1, 0));
    assert_eq!(applied(&sink), [1, 1], "one for each form, whatever was delivered");
}

#[tokio::test(flavor = "multi_thread")]
async fn contact_intake() {
    let postgres = Postgres::start().unwrap();
    let (client, connection) = tokio_postgres::connect(&postgres.url("postgres"), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute(&std::fs::read_to_string(example("contact-intake").join("schema.sql")).unwrap())
        .await
        .unwrap();
    let address = postgres.url("postgres");
    let stage = Stage::new("contact-intake", &[("postgres://postgres@127.0.0.1:5432/postgres", &address)]);
    let _node = stage.up();

    let key = ["--header", "Idempotency-Key: 5f1d"];
    let first = stage.send("contact-intake", "contact.json", &key);
    stage.workplace.until_settled();
    let second = stage.send("contact-intake", "contact.json", &key);
    assert_eq!((repeats(&first), repeats(&second)), (0, 1));
    // The repeat is answered with what became of the first: the number of the row.
    let row = client.query_one("SELECT id, first_name, last_name FROM contacts", &[]).await.unwrap();
    let (id, first_name, last_name): (i64, String, String) = (row.get(0), row.get(1), row.get(2));
    assert_eq!((first_name.as_str(), last_name.as_str()), ("Ada Augusta", "Lovelace"));
    assert_eq!(second[0]["body"]["result"], serde_json::json!({ "contact_id": id }), "{second:?}");

    // What can never work is not tried again.
    stage.send("contact-intake", "no-name.json", &["--header", "Idempotency-Key: 77aa"]);
    stage.workplace.until_settled();
    assert_eq!(stage.states("contact-upsert"), ["dead", "succeeded"]);
    let dead = stage.jobs().into_iter().find(|job| job["state"] == "dead").unwrap();
    assert_eq!(dead["attempts"], 1, "{dead}");
    // The script is mended, and the dead letter is replayed.
    let script = stage.workplace.path().join("lib/tidy.mjs");
    let mended = std::fs::read_to_string(&script).unwrap().replace(r"/\d/.test(word)", "false");
    std::fs::write(&script, mended).unwrap();
    stage.workplace.run(&["replay", dead["id"].as_str().unwrap(), "--reason", "robots have names too"]).ok();
    stage.workplace.until_settled();
    let rows: i64 = client.query_one("SELECT count(*) FROM contacts", &[]).await.unwrap().get(0);
    assert_eq!(rows, 2);
}

#[test]
fn cart_recovery() {
    // The partner throttles, is slow, and loses an answer after it has made the code.
    let sink = sink([
        Scripted::first(2, Fault::TooManyRequests { retry_after: RetryAfter::Seconds(1) }),
        Scripted::first(1, Fault::DropAfter),
        Scripted::first(1, Fault::Latency(Millis::fixed(800))),
    ]);
    let mail = Smtp::start(SmtpSettings::default()).unwrap();
    let port = format!("port: {}", mail.address().port());
    let stage = Stage::new("cart-recovery", &[(SINK, &sink.url()), ("port: 1025", &port)]);
    let _node = stage.up();
    let first = stage.send("abandoned-carts", "cart.json", &["--times", "3"]);
    // The shop says it again eighty seconds later, as a delivery of its own.
    let again = stage.send("abandoned-carts", "cart-again.json", &["--times", "2"]);
    assert_eq!((repeats(&first), repeats(&again)), (2, 2));
    stage.send("abandoned-carts", "no-consent.json", &[]);
    stage.workplace.until_settled();

    assert_eq!(applied(&sink), [1], "one code");
    let messages = mail.messages();
    assert_eq!(messages.len(), 1, "one mail");
    assert_eq!(messages[0].to, ["ida@example.com"]);
    let made: Value = serde_json::from_str(&sink.requests()[0].body).unwrap();
    assert!(messages[0].body.contains(made["code"].as_str().unwrap()), "the mail has the code that was made");
    assert_eq!(stage.states("cart-recovery"), ["succeeded"], "who did not agree gets nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn own_connector() {
    // The API applies the first grant and loses the answer.
    let sink = sink([Scripted::first(1, Fault::DropAfter).only(CallKind::Write)]);
    let stage = Stage::new("own-connector", &[(SINK, &sink.url())]);
    let directory = stage.workplace.directory.path().to_str().unwrap().to_owned();
    let tested = stage.workplace.run(&["connectors", "test", &directory]).ok();
    assert_eq!(tested.stdout.trim(), "x-loyalty: ok (1 case, 4 answers)");
    let shown = stage.workplace.json(&["connectors", "show", "x-loyalty", "--config", &directory, "--json"]);
    assert_eq!(shown["actions"][0]["effect"], "natural", "{shown}");
    let _node = stage.up();

    let answers = stage.send("orders", "order.json", &["--times", "5"]);
    assert_eq!((answers.len(), repeats(&answers)), (5, 4), "{answers:?}");
    let truth = sink.wait_until(|truth| truth.settled >= 2).await;
    assert_eq!((truth.requests, truth.resources), (2, 1), "one grant, sent twice: {truth:?}");
}
