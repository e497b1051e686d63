//! A node on ports of its own, with a simulated CRM and a sink behind it.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::schedule::Limits;
use sluice_server::clock::Clock;
use sluice_server::intake;
use sluice_server::maintain;
use sluice_server::operate;
use sluice_server::run::{Node, NodeSettings};
use sluice_simulator::{Salesforce, SalesforceSettings, Sink, SinkSettings};

pub(crate) const SECRET: &str = "end-to-end-secret";

/// A node and everything around it.
pub(crate) struct World {
    pub directory: tempfile::TempDir,
    pub crm: Salesforce,
    pub sink: Sink,
    pub client: reqwest::Client,
    pub node: Option<Node>,
    pub intake: String,
    pub admin: String,
    pub limits: Limits,
    /// Time for the head and the body of a request. Long, so that a busy machine fails no test.
    pub request_timeout: Duration,
}

pub(crate) const FLOW: &str = r#"
version: 1
name: website-leads
source: website
triggers:
  - http:
      path: /in/website
      verify: { scheme: hmac, header: X-Signature, algorithm: sha256, encoding: hex, prefix: "sha256=", secret: "${secrets.WEBSITE_SECRET}" }
      idempotency: { key_from: body.id, ttl: 30d }
      body_max: 8KiB
event:
  type: lead.created
  id: body.id
  occurred_at: body.created_at
  identity: { contact_external_id: "website:{{ body.person }}", email: "{{ body.email | lower | trim }}" }
  attributes: { last_name: body.last_name, company: body.company }
  required: [attributes.last_name]
steps:
  - name: enqueue
    queue: { name: leads }
responses:
  result: { lead_id: to-crm.id }
"#;

const WORKER: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
concurrency: 16
retry: { strategy: exponential, base_delay: 20ms, multiplier: 2, jitter: full, max_delay: 200ms, max_attempts: 30, max_attempts_conflict: 20, retry_after_cap: 100ms, on_exhausted: "dlq:leads-dlq" }
run:
  - name: upsert
    run: salesforce.upsert
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.contact_external_id }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.company }}", Email: "{{ event.email }}" }
"#;

pub(crate) const QUEUES: &str = r#"
queues:
  - { name: leads, visibility_timeout: 5s, retention: 4d }
  - { name: leads-dlq, retention: 7d }
"#;

impl World {
    /// The usual configuration.
    pub(crate) async fn start() -> World {
        World::start_with(&[("flow.yml", FLOW), ("worker.yml", WORKER), ("queues.yml", QUEUES)]).await
    }

    /// The usual flow and queues, with another worker.
    pub(crate) async fn start_with_worker(worker: &str) -> World {
        World::start_with(&[("flow.yml", FLOW), ("worker.yml", worker), ("queues.yml", QUEUES)]).await
    }

    /// `{crm}` and `{sink}` in the files stand for the addresses of the simulators.
    pub(crate) async fn start_with(files: &[(&str, &str)]) -> World {
        World::start_with_secrets(files, &[]).await
    }

    /// The same, with more secrets.
    pub(crate) async fn start_with_secrets(files: &[(&str, &str)], more: &[(&str, &str)]) -> World {
        let directory = tempfile::tempdir().unwrap();
        let crm = Salesforce::start(SalesforceSettings::default()).unwrap();
        let sink = Sink::start(SinkSettings::default()).unwrap();
        let secrets = directory.path().join("secrets");
        std::fs::create_dir(&secrets).unwrap();
        std::fs::write(secrets.join("WEBSITE_SECRET"), SECRET).unwrap();
        std::fs::write(secrets.join("CRM_SECRET"), "sim-secret").unwrap();
        for (name, value) in more {
            std::fs::write(secrets.join(name), value).unwrap();
        }
        let destinations = r#"
destinations:
  crm:
    type: salesforce
    instance_url: {crm}
    auth: { client_id: sim-client, client_secret: "${secrets.CRM_SECRET}" }
    timeout: 2s
    concurrency: 16
    breaker: { open_first: 50ms, open_max: 200ms }
  sink:
    type: http
    base_url: {sink}
    timeout: 2s
    breaker: { open_first: 50ms, open_max: 200ms }
"#;
        for (name, text) in files.iter().chain(&[("destinations.yml", destinations)]) {
            let text = text.replace("{crm}", &crm.url()).replace("{sink}", &sink.url());
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let (intake, admin, limits) = (String::new(), String::new(), Limits::default());
        let request_timeout = Duration::from_secs(60);
        let mut world = World { directory, crm, sink, client, node: None, intake, admin, limits, request_timeout };
        world.start_node().await;
        world
    }

    pub(crate) fn settings(&self) -> NodeSettings {
        NodeSettings {
            config: self.directory.path().to_owned(),
            data: self.directory.path().join(".sluice"),
            intake: "127.0.0.1:0".parse().unwrap(),
            admin: "127.0.0.1:0".parse().unwrap(),
            admin_settings: operate::AdminSettings {
                body_timeout: self.request_timeout,
                head_timeout: self.request_timeout,
                ..Default::default()
            },
            intake_settings: intake::IntakeSettings {
                body_timeout: self.request_timeout,
                head_timeout: self.request_timeout,
                ..Default::default()
            },
            keep: maintain::RetentionSettings::default(),
            scheduler: self.limits,
            trace_environment: sluice_server::config::TraceEnvironment::default(),
        }
    }

    pub(crate) async fn start_node(&mut self) {
        let node = Node::start(self.settings()).await.unwrap_or_else(|error| match error {
            sluice_server::run::StartError::Config(compiled, files) => panic!(
                "{}",
                sluice_server::config::render_all(&compiled.problems, &files, sluice_server::config::Colours::None)
            ),
            other => panic!("{other}"),
        });
        self.intake = format!("http://{}", node.intake);
        self.admin = format!("http://{}", node.admin);
        self.node = Some(node);
    }

    /// Restarts the node with a short time for requests.
    pub(crate) async fn restart_impatient(&mut self) {
        self.stop_node().await;
        self.request_timeout = Duration::from_secs(2);
        self.start_node().await;
    }

    /// Starts the node under another clock, with a round of maintenance per interval.
    pub(crate) async fn start_node_with_clock(&mut self, clock: Clock, interval: Duration) {
        let mut settings = self.settings();
        settings.keep.interval = interval;
        let node = Node::start_with_clock(settings, clock).await.unwrap();
        self.intake = format!("http://{}", node.intake);
        self.admin = format!("http://{}", node.admin);
        self.node = Some(node);
    }

    /// The state of the only job of an event.
    pub(crate) async fn job_state(&self, event: &str) -> String {
        let event = self.get(&format!("/api/v1/events/{event}")).await;
        event["jobs"][0]["state"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn stop_node(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop(Duration::from_secs(5)).await;
        }
    }

    pub(crate) fn config_path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// Posts a signed lead and answers with status, headers and body.
    pub(crate) async fn post(&self, lead: &Value) -> Answer {
        self.post_bytes(lead.to_string().into_bytes()).await
    }

    pub(crate) async fn post_bytes(&self, body: Vec<u8>) -> Answer {
        let signature = sign(&body);
        let request = self
            .client
            .post(format!("{}/in/website", self.intake))
            .header("content-type", "application/json")
            .header("x-signature", signature)
            .body(body);
        Answer::of(request.send().await.unwrap()).await
    }

    /// Admin token of the node.
    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.settings().data.join("admin.token")).unwrap().trim().to_owned()
    }

    /// Text of a page of the admin listener.
    pub(crate) async fn page(&self, path: &str) -> String {
        let request = self.client.get(format!("{}{path}", self.admin)).bearer_auth(self.token());
        request.send().await.unwrap().text().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.page(path).await).unwrap()
    }

    pub(crate) async fn act(&self, path: &str, body: Value) -> Answer {
        let request = self
            .client
            .post(format!("{}{path}", self.admin))
            .bearer_auth(self.token())
            .header("content-type", "application/json")
            .body(body.to_string());
        Answer::of(request.send().await.unwrap()).await
    }

    /// An event with its personal data, revealed by ann.
    pub(crate) async fn reveal(&self, event: &str, reason: &str) -> Value {
        let answer =
            self.act(&format!("/api/v1/events/{event}/reveal"), json!({ "actor": "ann", "reason": reason })).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    }

    /// The event's jobs once none of them is alive any more.
    pub(crate) async fn settled(&self, event: &str) -> Vec<Value> {
        until(|| async {
            let event = self.get(&format!("/api/v1/events/{event}")).await;
            let jobs = event["jobs"].as_array().unwrap().clone();
            let live =
                |job: &Value| matches!(job["state"].as_str(), Some("queued" | "running" | "retrying" | "waiting"));
            (!jobs.iter().any(live)).then_some(jobs)
        })
        .await
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/jobs/{id}")).await
    }
}

/// Asks again and again, giving way in between, until there is an answer.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(mut ask: impl FnMut() -> F) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "it did not come to pass within 2 minutes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    pub(crate) async fn of(response: reqwest::Response) -> Answer {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        Answer { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
    }

    pub(crate) fn event(&self) -> String {
        assert_eq!(self.status, 202, "{}", self.body);
        self.body["event_id"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn sign(body: &[u8]) -> String {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = aws_lc_rs::hmac::sign(&key, body);
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

pub(crate) fn lead(id: &str) -> Value {
    lead_of(id, id)
}

pub(crate) fn lead_of(id: &str, person: &str) -> Value {
    json!({
        "id": id, "person": person, "email": format!("{person}@example.com"), "last_name": "Lovelace", "company": "Analytical",
        "created_at": "2026-11-15T12:00:00Z"
    })
}
