//! Every class of effects, batched where calls can share a request and single, at destinations that lose calls: applied then
//! cut, cut before they are applied, applied then answered with 500, each at 20 %, while the node is killed. The destinations
//! hold what was sent exactly once; a blind effect never more than once.
//!
//! `scripts/effect-matrix` runs it with 5,000 leads.

#![allow(clippy::unwrap_used)]

#[path = "cli/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_simulator::faults::{CallKind, Weighted};
use sluice_simulator::postgres::Relay;
use sluice_simulator::sink::KeyPolicy;
use sluice_simulator::{
    Fault, FaultPlan, Hubspot, HubspotSettings, Postgres, Salesforce, SalesforceSettings, Sink, SinkSettings,
};
use support::{Up, Workplace};
use tempfile::TempDir;

/// Leads without `SLUICE_MATRIX_LEADS`.
const LEADS: usize = 200;
const KILLS: usize = 5;
/// Destinations whose calls share requests. They are paused until this kill, so that jobs wait for them, and have one call at
/// once, so that the jobs of a lost call gather again.
const BATCHED: [&str; 2] = ["destination:natural-batched", "destination:natural-hubspot-batched"];
const RESUMED_AT: u64 = 4;
/// Leads for each call of a batched form, at the least, lost calls included.
const BATCH_MIN: usize = 4;
const SETTLED_MAX: Duration = Duration::from_secs(3_600);

/// The workers, each with a class and a form.
const WORKERS: [&str; 10] = [
    "natural-single",
    "natural-batched",
    "natural-hubspot-single",
    "natural-hubspot-batched",
    "keyed",
    "verifiable",
    "verifiable-upsert",
    "verifiable-file",
    "transactional",
    "blind",
];

const FLOW: &str = r#"
version: 1
name: leads
source: forms
triggers:
  - http:
      path: /in/leads
      verify: { scheme: bearer, secret: "${secrets.FORMS_TOKEN}" }
      idempotency: { key_from: body.id, ttl: 30d }
event:
  type: lead
  id: body.id
  identity: { external_id: body.id }
steps:
  - { name: enqueue, queue: { name: leads } }
queues:
  - { name: leads, visibility_timeout: 60s, retention: 4d }
  - { name: leads-dlq, retention: 30d }
"#;

/// The step of each worker.
fn step(worker: &str) -> &'static str {
    match worker {
        "natural-single" | "natural-batched" => {
            "run: salesforce.upsert, with: { object: Lead, external_id_field: External_Lead_Id__c, external_id: '{{ event.external_id }}', fields: { LastName: '{{ event.external_id }}', Company: Matrix } }"
        }
        // By `email` a record is created first and updated after a conflict: two calls for each, which share none.
        "natural-hubspot-single" => {
            "run: hubspot.upsert, with: { object: contacts, id_property: email, id: '{{ event.external_id }}@example.com', properties: { lastname: '{{ event.external_id }}' } }"
        }
        "natural-hubspot-batched" => {
            "run: hubspot.upsert, with: { object: contacts, id_property: external_lead_id, id: '{{ event.external_id }}', properties: { lastname: '{{ event.external_id }}' } }"
        }
        "keyed" => {
            "run: http.request, with: { url: /orders, json: { lead: '{{ event.external_id }}' }, idempotency_header: Idempotency-Key }"
        }
        "verifiable" => {
            "run: http.request, with: { method: PUT, class: verifiable, url: '/resource/{{ event.external_id }}', json: { lead: '{{ event.external_id }}' }, verify: { url: '/resource/{{ event.external_id }}' } }"
        }
        "verifiable-upsert" => {
            "run: http.upsert, with: { identity: '{{ event.external_id }}', find: { url: '/resource/{{ event.external_id }}', id: /lead }, create: { method: PUT, url: '/resource/{{ event.external_id }}', json: { lead: '{{ event.external_id }}' }, id: /lead } }"
        }
        "verifiable-file" => "run: file.append, with: { record: { lead: '{{ event.external_id }}' } }",
        "transactional" => {
            "run: postgres.upsert, with: { table: leads, key: [id], values: { id: '{{ event.external_id }}' } }"
        }
        _ => "run: http.request, with: { url: /mails, json: { lead: '{{ event.external_id }}' } }",
    }
}

fn faults(seed: u64) -> FaultPlan {
    let random = [Fault::DropAfter, Fault::DropBefore, Fault::ErrorAfter];
    FaultPlan {
        seed,
        percent: 60.0,
        calls: vec![CallKind::Write],
        random: random.into_iter().map(|fault| Weighted { weight: 1, fault }).collect(),
        ..FaultPlan::none()
    }
}

/// The destinations of the workers.
struct World {
    salesforce: [Salesforce; 2],
    hubspot: [Hubspot; 2],
    keyed: Sink,
    verifiable: Sink,
    upsert: Sink,
    blind: Sink,
    lines: TempDir,
    postgres: Postgres,
    relay: Relay,
}

impl World {
    async fn start() -> World {
        let salesforce = |seed| SalesforceSettings { faults: faults(seed), ..SalesforceSettings::default() };
        let hubspot = |seed| HubspotSettings {
            faults: faults(seed),
            ten_second_calls_max: None,
            daily_calls_max: u64::MAX,
            ..HubspotSettings::default()
        };
        let sink = |seed, keys| SinkSettings { faults: faults(seed), keys, ..SinkSettings::default() };
        let postgres = Postgres::start().unwrap();
        let relay = postgres.relay().unwrap();
        create_table(&postgres).await;
        relay.lose_commits(20, 40);
        World {
            salesforce: [1, 2].map(|seed| Salesforce::start(salesforce(seed)).unwrap()),
            hubspot: [3, 4].map(|seed| Hubspot::start(hubspot(seed)).unwrap()),
            keyed: Sink::start(sink(5, KeyPolicy::Honour)).unwrap(),
            verifiable: Sink::start(sink(6, KeyPolicy::Count)).unwrap(),
            upsert: Sink::start(sink(7, KeyPolicy::Count)).unwrap(),
            blind: Sink::start(sink(8, KeyPolicy::Count)).unwrap(),
            lines: TempDir::new().unwrap(),
            postgres,
            relay,
        }
    }

    fn destinations(&self) -> String {
        let breaker = "breaker: { failures_in_a_row: 100000, calls_min: 100000 }";
        let crm = |name: &str, at: usize, more: &str| {
            let url = self.salesforce[at].url();
            let auth = "auth: { client_id: sim-client, client_secret: '${secrets.CRM_SECRET}' }";
            format!(
                "  {name}: {{ type: salesforce, instance_url: '{url}', {auth}, straggler_horizon: 0s, {breaker}{more} }}\n"
            )
        };
        let hub = |name: &str, at: usize, more: &str| {
            let url = self.hubspot[at].url();
            format!(
                "  {name}: {{ type: hubspot, base_url: '{url}', auth: {{ token: '${{secrets.HUB}}' }}, {breaker}{more} }}\n"
            )
        };
        let http = |name: &str, sink: &Sink| {
            let url = sink.url();
            format!("  {name}: {{ type: http, base_url: '{url}', timeout: 2s, straggler_horizon: 1s, {breaker} }}\n")
        };
        [
            "destinations:\n".to_owned(),
            crm("natural-single", 0, ", batch_max: 1"),
            crm("natural-batched", 1, ", concurrency: 1"),
            hub("natural-hubspot-single", 0, ", batch_max: 1"),
            hub("natural-hubspot-batched", 1, ", concurrency: 1"),
            http("keyed", &self.keyed),
            http("verifiable", &self.verifiable),
            http("verifiable-upsert", &self.upsert),
            http("blind", &self.blind),
            format!("  verifiable-file: {{ type: file, path: '{}' }}\n", self.lines_path().display()),
            format!("  transactional: {{ type: postgres, url: '${{secrets.DB_URL}}', concurrency: 8, {breaker} }}\n"),
        ]
        .concat()
    }

    fn lines_path(&self) -> PathBuf {
        self.lines.path().join("leads.ndjson")
    }

    fn workplace(&self) -> Workplace {
        let workplace = Workplace { directory: TempDir::new().unwrap() };
        workplace.write("flow.yml", FLOW);
        workplace.write("destinations.yml", &self.destinations());
        for worker in WORKERS {
            let retry = "{ strategy: exponential, base_delay: 10ms, max_delay: 200ms, max_attempts: 100, max_attempts_conflict: 100, on_exhausted: 'dlq:leads-dlq' }";
            let step = step(worker);
            let text = format!(
                "version: 1\nname: {worker}\nconsumes: {{ queue: leads }}\nconcurrency: 16\nretry: {retry}\nrun:\n  - {{ name: write, destination: {worker}, {step} }}\n"
            );
            workplace.write(&format!("{worker}.yml"), &text);
        }
        let (port, relay) = (format!(":{}/", self.postgres.port()), format!(":{}/", self.relay.port()));
        let database = self.postgres.url("postgres").replace(&port, &relay);
        let secrets = [
            ("FORMS_TOKEN", "forms"),
            ("CRM_SECRET", "sim-secret"),
            ("HUB", "pat-sim-hubspot"),
            ("DB_URL", &*database),
        ];
        for (name, secret) in secrets {
            workplace.write(&format!("secrets/{name}"), secret);
        }
        workplace
    }

    /// Number of effects that each destination holds of each lead, by worker.
    async fn held(&self) -> BTreeMap<&'static str, BTreeMap<String, u64>> {
        let mut held = BTreeMap::new();
        for (worker, crm) in ["natural-single", "natural-batched"].into_iter().zip(&self.salesforce) {
            let ids = crm.external_ids("Lead", "External_Lead_Id__c");
            held.insert(worker, ids.into_iter().map(|(id, counts)| (id, counts.live())).collect());
        }
        let ids = [("natural-hubspot-single", "email"), ("natural-hubspot-batched", "external_lead_id")];
        for ((worker, property), hub) in ids.into_iter().zip(&self.hubspot) {
            let ids = hub.external_ids("contacts", property).into_iter();
            held.insert(worker, ids.map(|(id, counts)| (id.replace("@example.com", ""), counts.live())).collect());
        }
        let sinks = [
            ("keyed", &self.keyed),
            ("verifiable", &self.verifiable),
            ("verifiable-upsert", &self.upsert),
            ("blind", &self.blind),
        ];
        for (worker, sink) in sinks {
            let keys = sink.keys().into_iter().filter(|(_, counts)| counts.applied > 0);
            held.insert(worker, keys.map(|(key, counts)| (key, counts.applied)).collect());
        }
        held.insert("verifiable-file", lines(&self.lines_path()));
        held.insert("transactional", applied_rows(&self.postgres).await);
        held
    }
}

/// Lines of each lead. Every line is whole: a kill cuts none off.
fn lines(path: &Path) -> BTreeMap<String, u64> {
    let mut held = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        *held.entry(line["record"]["lead"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    held
}

async fn client(postgres: &Postgres) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&postgres.url("postgres"), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A table whose every write is counted.
async fn create_table(postgres: &Postgres) {
    let client = client(postgres).await;
    let script = "
        CREATE TABLE leads (id text PRIMARY KEY);
        CREATE TABLE written (id text);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO written VALUES (NEW.id); RETURN NEW; END';
        CREATE TRIGGER note AFTER INSERT OR UPDATE ON leads FOR EACH ROW EXECUTE FUNCTION note();
    ";
    client.batch_execute(script).await.unwrap();
}

async fn applied_rows(postgres: &Postgres) -> BTreeMap<String, u64> {
    let rows = client(postgres).await.query("SELECT id, count(*) FROM written GROUP BY id", &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), u64::try_from(row.get::<_, i64>(1)).unwrap())).collect()
}

fn start(workplace: &Workplace, intake: &str) -> Up {
    let arguments = ["up", "--intake", intake, "--admin", "127.0.0.1:0", "--watch", "false"];
    workplace.start(workplace.command(&arguments), &[])
}

/// Posts every lead until it is accepted: the node may be down.
async fn post_all(url: String, leads: usize) {
    let client = reqwest::Client::new();
    for lead in 0..leads {
        let lead = json!({ "id": format!("lead-{lead}") });
        while !client.post(&url).bearer_auth("forms").json(&lead).send().await.is_ok_and(|a| a.status().is_success()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn jobs(workplace: &Workplace) -> Value {
    workplace.json(&["status", "--json"])["jobs"].clone()
}

fn finished(jobs: &Value) -> u64 {
    ["succeeded", "unknown", "dead", "noop"].iter().filter_map(|state| jobs.get(state)?.as_u64()).sum()
}

async fn wait_for(workplace: &Workplace, wanted: u64) -> Value {
    let give_up = Instant::now() + SETTLED_MAX;
    loop {
        let jobs = jobs(workplace);
        if finished(&jobs) >= wanted {
            return jobs;
        }
        assert!(Instant::now() < give_up, "waited too long: {jobs}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_calls_and_crashes_leave_every_effect_once() {
    let leads = std::env::var("SLUICE_MATRIX_LEADS").map_or(LEADS, |text| text.parse().unwrap());
    let world = World::start().await;
    let workplace = world.workplace();
    workplace.run(&["check", "--strict"]).ok();
    let intake = format!("127.0.0.1:{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
    let total = (leads * WORKERS.len()) as u64;
    let started = Instant::now();
    let mut node = start(&workplace, &intake);
    // Calls share a request where several jobs wait.
    for target in BATCHED {
        workplace.run(&["pause", target, "--reason", "a backlog is wanted"]).ok();
    }
    let mut posting = Some(tokio::spawn(post_all(format!("http://{intake}/in/leads"), leads)));
    for kill in 1..=KILLS as u64 {
        if let Some(posting) = posting.take_if(|_| kill == RESUMED_AT) {
            posting.await.unwrap();
            for target in BATCHED {
                workplace.run(&["resume", target]).ok();
            }
        }
        wait_for(&workplace, total * kill / (KILLS as u64 + 1)).await;
        node.kill();
        node = start(&workplace, &intake);
    }
    let jobs = wait_for(&workplace, total).await;
    node.stop();
    println!("{leads} leads, {KILLS} kills, {:.0?}; jobs: {jobs}", started.elapsed());
    let held = world.held().await;
    let mut problems = vec![];
    for worker in WORKERS {
        let counts = &held[worker];
        let (one, more) = (counts.values().filter(|n| **n == 1).count(), counts.values().filter(|n| **n > 1).count());
        println!("{worker:<24} {one:>6} of {leads} once, {more} more than once");
        let is_exact = worker == "blind" || one == leads;
        if more > 0 || !is_exact {
            problems.push(worker);
        }
    }
    println!("calls: {}", calls(&world));
    for batched in [world.salesforce[1].truth().calls.received, world.hubspot[1].truth().calls.received] {
        assert!(batched as usize * BATCH_MIN <= leads, "{batched} batched calls for {leads} leads");
    }
    assert!(problems.is_empty(), "not exactly once: {problems:?}");
    assert_eq!(jobs.get("dead"), None, "{jobs}");
    let unknown = jobs["unknown"].as_u64().unwrap_or(0);
    assert!(unknown > 0 && unknown <= leads as u64, "only blind effects are left to an operator: {jobs}");
}

/// Calls that each form used, in their order.
fn calls(world: &World) -> String {
    let [single, batched] = [0, 1].map(|at: usize| world.salesforce[at].truth().calls.received);
    let [hub_single, hub_batched] = [0, 1].map(|at: usize| world.hubspot[at].truth().calls.received);
    format!("salesforce {single} single, {batched} batched; hubspot {hub_single} single, {hub_batched} batched")
}
