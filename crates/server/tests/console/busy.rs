//! A node with something on every page: requests of every kind, persons, dead letters, approvals, an alert, a pause, a pending change.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::history::measure::Measure;
use sluice_domain::history::recorder::Point;
use sluice_domain::history::{Gauge, Histogram, Labels, Step, Value as Measured};
use sluice_domain::time::Time;
use sluice_ledger::{Ledger, LedgerOptions, RecordHistory};
use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::{QUEUES, World, until};

const FLOWS: &str = r#"
version: 1
name: website-leads
source: website
triggers:
  - http:
      path: /in/website
      verify: { scheme: hmac, header: X-Signature, algorithm: sha256, encoding: hex, prefix: "sha256=", secret: "${secrets.WEBSITE_SECRET}" }
      idempotency: { key_from: body.id, ttl: 30d }
event:
  type: lead.created
  id: body.id
  occurred_at: body.created_at
  require_identity: true
  identity: { external_id: body.person, email: "{{ body.email | lower | trim }}" }
  attributes: { last_name: body.last_name, company: body.company, session_id: body.session }
steps:
  - name: enqueue
    queue: { name: leads }
respond_within: { time: 2h, until: write-note.note }
"#;

const WORKER: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
concurrency: 16
retry: { strategy: exponential, base_delay: 20ms, max_delay: 50ms, max_attempts: 1, on_exhausted: "dlq:leads-dlq" }
run:
  - name: upsert
    run: salesforce.upsert
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.email }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.company }}", Email: "{{ event.email }}" }
"#;

const NOTES: &str = r#"
version: 1
name: write-note
consumes: { queue: leads }
retry: { base_delay: 200ms, max_delay: 500ms, max_attempts: 1000 }
run:
  - name: note
    run: http.request
    destination: sink
    with: { url: "/notes", idempotency_header: Idempotency-Key, json: { note: "{{ event.last_name }}" } }
"#;

const OFFER: &str = r#"
version: 1
name: offer
consumes: { queue: leads }
run:
  - name: approve
    run: approval.request
    with: { title: "Send an offer to {{ event.last_name }}?", summary: "{{ event.company }}" }
  - name: send
    run: salesforce.upsert
    with:
      object: Offer
      external_id_field: External_Id__c
      external_id: "{{ event.email }}"
      fields: { Name: "{{ event.last_name }}" }
"#;

const CONTACTS: &str = "
contacts:
  identifiers: [{field: external_id}, {field: email}]
  sources: [{source: website, trust: 50}]
";

/// Approvals that wait: one of each person, since later jobs of a person wait for the earlier ones.
const ASKED: usize = 15;

pub(crate) struct Busy {
    pub world: World,
    /// An event whose upsert the CRM rejected.
    pub dead: String,
    /// A job of it.
    pub job: String,
    /// The contact of ada.
    pub person: String,
}

pub(crate) fn request(id: &str, person: &str, name: &str, created_at: &str) -> Value {
    json!({
        "id": id, "person": person, "email": format!("{person}@example.com"), "last_name": name, "company": "Analytical Engines",
        "created_at": created_at
    })
}

/// Minutes of the past, as if the node had run for an hour.
async fn write_past(world: &World) {
    let data = world.settings().data;
    let clock = || Time::from(jiff::Timestamp::now());
    let root_key = sluice_server::root_key::find(&data).unwrap();
    let ledger = Ledger::open(&data, LedgerOptions::quiet(Arc::new(clock)).with_root_key(root_key)).unwrap();
    let now = Step::Minute.start(clock());
    for n in (2..58).rev() {
        // A wave with a dent.
        let wave = (n % 16_u64).abs_diff(8);
        let count = 20 + 6 * wave - if (20..26).contains(&n) { 15 } else { 0 };
        let mut histogram = Histogram::default();
        (0..count).for_each(|k| histogram.observe(Duration::from_millis(40 + 30 * wave + k * 4)));
        let bad = if (20..28).contains(&n) { 6 + n % 4 } else { 0 };
        let point =
            |measure, first: &str, second: &str, value| Point { measure, labels: Labels::new(first, second), value };
        let counter = |measure, first: &str, second: &str, count| point(measure, first, second, Measured::Count(count));
        let points = vec![
            counter(Measure::Accepted, "website", "", count),
            counter(Measure::Duplicates, "website", "", count / 7),
            counter(Measure::Refused, "website", "signature-invalid", n % 5 / 4),
            counter(Measure::Effects, "crm", "natural", count - bad.min(count)),
            counter(Measure::Jobs, "to-crm", "succeeded", count - bad.min(count)),
            counter(Measure::Jobs, "to-crm", "dead", bad),
            counter(Measure::Attempts, "crm", "done", count - bad.min(count)),
            counter(Measure::Attempts, "crm", "retry", bad * 2),
            counter(Measure::Attempts, "crm", "reject", bad),
            point(Measure::EffectSeconds, "crm", "", Measured::Histogram(histogram.clone())),
            point(Measure::CallSeconds, "crm", "", Measured::Histogram(histogram.clone())),
            point(Measure::QueueSeconds, "to-crm", "", Measured::Histogram(histogram)),
            point(Measure::JobsLive, "to-crm", "queued", Measured::Gauge(Gauge { last: wave, max: wave + 2 })),
            point(Measure::DeadLetters, "leads-dlq", "", Measured::Gauge(Gauge { last: bad, max: bad })),
        ];
        let minute = now - Duration::from_secs(n * 60);
        let record = RecordHistory { term: ledger.term(), minute, points, expire_at: None };
        assert!(ledger.record_history(record).await.unwrap());
    }
    ledger.close().await;
}

impl Busy {
    pub(crate) async fn start() -> Busy {
        let files = [
            ("flow.yml", FLOWS),
            ("worker.yml", WORKER),
            ("notes.yml", NOTES),
            ("offer.yml", OFFER),
            ("queues.yml", QUEUES),
            ("contacts.yml", CONTACTS),
        ];
        let mut world = World::start_with(&files).await;
        world.sink.set_faults(FaultPlan::always(Fault::Reply { code: 503 })).unwrap();
        for (n, name) in ["Lovelace", "King", "Byron"].into_iter().enumerate() {
            let created_at = format!("2026-11-15T12:00:0{}Z", 3 - n);
            world.post(&request(&format!("ada-{n}"), "ada", name, &created_at)).await.event();
        }
        for n in 0..12 {
            let lead = request(&format!("lead-{n}"), &format!("person{n}"), "Hopper", "2026-11-15T12:00:00Z");
            world.post(&lead).await.event();
            if n % 3 == 0 {
                assert_eq!(world.post(&lead).await.status, 202, "a duplicate");
            }
        }
        // Its response clock runs: the sink has not answered.
        let now = jiff::Timestamp::now().to_string();
        world.post(&request("fresh", "fay", "Borg", &now)).await.event();
        let unsigned = world.client.post(format!("{}/in/website", world.intake)).body("{}");
        assert_eq!(unsigned.send().await.unwrap().status(), 401);
        let long = request("long", "grace", &"L".repeat(200), "2026-11-15T12:00:00Z");
        let dead = world.post(&long).await.event();
        let mut nameless = request("nameless", "", "Nobody", "2026-11-15T12:00:00Z");
        nameless["email"] = json!("");
        world.post(&nameless).await.event();
        let job = until(|| async {
            let event = world.get(&format!("/api/v1/events/{dead}")).await;
            let jobs = event["jobs"].as_array().unwrap().clone();
            let dead = jobs.iter().find(|job| job["worker"] == "to-crm" && job["state"] == "dead");
            dead.map(|job| job["id"].as_str().unwrap().to_owned())
        })
        .await;
        until(|| async {
            let alerts = world.get("/api/v1/alerts").await;
            alerts.as_array().unwrap().iter().any(|alert| alert["state"] == "firing").then_some(())
        })
        .await;
        let asked = async || world.get("/api/v1/approvals").await["items"].as_array().unwrap().len();
        until(|| async { (asked().await >= ASKED).then_some(()) }).await;
        world.act("/api/v1/pause", json!({ "target": "destination:sink", "reason": "they move house" })).await;
        let suppress = json!({ "add": ["bob@example.com"], "reason": "asked us to stop" });
        assert_eq!(world.act("/api/v1/suppressions", suppress).await.status, 200);
        // What a node observed itself in the open minute is written when it stops.
        world.stop_node().await;
        write_past(&world).await;
        world.start_node().await;
        let more = WORKER.replace("max_attempts: 1,", "max_attempts: 3,");
        std::fs::write(world.config_path("worker.yml"), more).unwrap();
        let person = world.get("/api/v1/contacts/ada%40example.com").await["id"].as_str().unwrap().to_owned();
        Busy { world, dead, job, person }
    }

    /// Every page with something on it.
    pub(crate) async fn pages(&self) -> Vec<(String, String)> {
        let page = |name: &str, path: String| (name.to_owned(), path);
        let lists = sluice_server::console::PAGES.iter().map(|(path, ..)| match *path {
            "/" => page("overview", "/".into()),
            path => page(&path[1..], path.to_owned()),
        });
        let revisions = self.world.get("/api/v1/revisions").await;
        let revision = revisions["items"][0]["revision"].as_str().unwrap().to_owned();
        let single = [
            page("event", format!("/events/{}", self.dead)),
            page("job", format!("/jobs/{}", self.job)),
            page("person", format!("/people/{}", self.person)),
            page("source", "/sources/website".into()),
            page("destination", "/destinations/crm".into()),
            page("revision", format!("/configuration/{revision}")),
        ];
        lists.chain(single).collect()
    }
}
