//! Personal data and secrets go through every path, and are found in no log line, metric, span, error or list.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::{Value, json};
use sluice_server::cli::log::{Format, Masking};
use sluice_simulator::Collector;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{QUEUES, SECRET, World, sign, until};

/// What must be found nowhere. The texts occur in no other test: the log is that of the process.
const HIDDEN: [&str; 9] = [
    "zerelda.quibble@private-mail.example",
    "zerelda.quibble",
    "4155550199",
    "Quibbleworth",
    "742 Evergreen Hollow",
    "tok_live_51Hsecretvalue",
    SECRET,
    "sim-secret",
    "key-of-private-traces",
];

const FLOW: &str = r#"
version: 1
name: personal
source: personal-website
triggers:
  - http:
      path: /in/personal
      verify: { scheme: hmac, header: X-Signature, algorithm: sha256, encoding: hex, prefix: "sha256=", secret: "${secrets.WEBSITE_SECRET}" }
      idempotency: { key_from: body.id, ttl: 30d }
      dedup: { on_clash: drop }
event:
  type: lead.created
  id: body.id
  identity: { email: "{{ body.email | lower }}", phone: body.phone }
  attributes:
    last_name: body.last_name
    address: body.address
    score: { from: body.score, as: number }
  required: [attributes.last_name]
  schema: { type: object, required: [id], properties: { id: { type: string, maxLength: 60 }, last_name: {}, email: {}, phone: {}, address: {}, score: {} } }
steps:
  - name: enqueue
    if: "{{ body.score - 1 >= 0 }}"
    queue: leads
"#;

const WORKER: &str = r#"
name: to-partner
consumes: leads
retry: { strategy: exponential, base_delay: 10ms, max_delay: 10ms, max_attempts: 2, on_exhausted: "dlq:leads-dlq" }
run:
  - name: call
    run: http.request
    destination: partner
    with:
      method: POST
      url: /people
      json: { email: "{{ event.email }}", phone: "{{ event.phone }}", name: "{{ event.last_name }}", address: "{{ event.address }}" }
  - name: record
    run: salesforce.upsert
    destination: crm
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.email }}"
      fields: { LastName: "{{ event.last_name }}", Company: "{{ event.address }}", Email: "{{ event.email }}" }
"#;

/// Log lines of the process, as they are written.
#[derive(Clone)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn captured() -> Captured {
    static LOG: OnceLock<Captured> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let log = Captured(Arc::default());
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_env_filter("sluice_server=debug,sluice_connectors=debug,sluice_ledger=debug")
            .with_writer(Masking(move || writer.clone(), Format::Json));
        subscriber.try_init().unwrap();
        log
    });
    log.clone()
}

/// A partner that answers 422 to the first requests, and quotes them.
async fn quoting_partner(refusals: usize) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for n in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 16 * 1024];
            let mut length = 0;
            loop {
                length += stream.read(&mut request[length..]).await.unwrap();
                let text = String::from_utf8_lossy(&request[..length]).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let wanted = head.lines().find_map(|line| {
                    line.to_lowercase().strip_prefix("content-length: ").map(|n| n.parse::<usize>().unwrap())
                });
                if body.len() >= wanted.unwrap_or(0) {
                    let status = if n < refusals { "422 Unprocessable Content" } else { "200 OK" };
                    let quoted = format!("cannot store {body}");
                    let answer = format!(
                        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{quoted}",
                        quoted.len()
                    );
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    break;
                }
            }
        }
    });
    url
}

fn person(id: &str) -> Value {
    json!({
        "id": id, "email": HIDDEN[0], "phone": "+1 415 555 0199", "last_name": HIDDEN[3], "address": HIDDEN[4], "score": 1
    })
}

async fn post(world: &World, body: &Value, signature: Option<String>) -> (u16, String) {
    let body = body.to_string();
    let request = world
        .client
        .post(format!("{}/in/personal?token={}", world.intake, HIDDEN[5]))
        .header("content-type", "application/json")
        .bearer_auth(HIDDEN[5])
        .header("x-signature", signature.unwrap_or_else(|| sign(body.as_bytes())))
        .body(body);
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

fn event_of(answer: &(u16, String)) -> String {
    assert_eq!(answer.0, 202, "{}", answer.1);
    serde_json::from_str::<Value>(&answer.1).unwrap()["event_id"].as_str().unwrap().to_owned()
}

/// The hidden values in a text, with where they were found.
fn found(place: &str, text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| HIDDEN.iter().any(|hidden| line.contains(hidden)));
    lines.map(|line| format!("{place}: {line}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn personal_data_and_secrets_are_found_in_no_log_metric_span_error_or_list() {
    let log = captured();
    let collector = Collector::start().await.unwrap();
    let partner = quoting_partner(1).await;
    let more = format!(
        "destinations:\n  partner: {{ type: http, base_url: '{partner}', timeout: 5s }}\ntraces: {{ endpoint: '{}', sample_percent: 100, headers: {{ X-Api-Key: '${{secrets.TRACES_KEY}}' }} }}\n",
        collector.url()
    );
    let files = [("flow.yml", FLOW), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("more.yml", &more)];
    let world = World::start_with_secrets(&files, &[("TRACES_KEY", HIDDEN[8])]).await;
    let mut errors = Vec::new();

    // The partner refuses the first one and quotes it; the CRM rejects the second one, whose name is too long.
    let refused = event_of(&post(&world, &person("refused"), None).await);
    assert_eq!(world.settled(&refused).await[0]["state"], "dead");
    let mut long = person("long");
    long["last_name"] = HIDDEN[3].repeat(20).into();
    let long = event_of(&post(&world, &long, None).await);
    assert_eq!(world.settled(&long).await[0]["state"], "dead");
    let good = event_of(&post(&world, &person("good"), None).await);
    assert_eq!(world.settled(&good).await[0]["state"], "succeeded");
    // A duplicate, a clash, a wrong signature, a value that cannot be mapped, a schema mismatch, an unknown field, no JSON.
    event_of(&post(&world, &person("good"), None).await);
    let mut clash = person("good");
    clash["address"] = "another address".into();
    event_of(&post(&world, &clash, None).await);
    errors.push(post(&world, &person("forged"), Some("sha256=00".to_owned())).await);
    let mut unmapped = person("unmapped");
    unmapped["score"] = HIDDEN[3].into();
    errors.push(post(&world, &unmapped, None).await);
    let mut missing = person("missing");
    missing.as_object_mut().unwrap().remove("last_name");
    errors.push(post(&world, &missing, None).await);
    errors.push(post(&world, &person(&HIDDEN[0].repeat(3)), None).await);
    let mut unknown = person("unknown");
    unknown[HIDDEN[0]] = HIDDEN[3].into();
    event_of(&post(&world, &unknown, None).await);
    errors.push(post(&world, &Value::String(HIDDEN[3].to_owned()), None).await);
    assert!(errors.iter().all(|(status, _)| (400..500).contains(status)), "{errors:?}");
    let replay = json!({ "filter": { "states": ["dead"] }, "reason": "the partner is fixed" });
    assert_eq!(world.act("/api/v1/replays", replay).await.status, 200);
    until(|| async { (world.job_state(&refused).await == "succeeded").then_some(()) }).await;
    until(|| async { (collector.spans().iter().filter(|span| span.kind == "CONSUMER").count() >= 5).then_some(()) })
        .await;

    let mut leaks = Vec::new();
    for (status, text) in &errors {
        // The sender gets its own values back in an error; other values and secrets not.
        leaks.extend(found(&format!("error {status}"), text).into_iter().filter(|line| !line.contains(HIDDEN[3])));
    }
    for path in [
        "status",
        "events",
        "jobs",
        "dead-letters",
        "dead-letters/top",
        "replays",
        "sources",
        "sources/personal-website",
        "destinations",
        "destinations/partner",
        "workers",
        "audit",
        "alerts",
        "totals",
        "pauses",
        "approvals",
        "revisions",
        "series?measure=attempts&by=destination,outcome&since=1h",
        "north-stars",
        "contacts",
        "clashes",
    ] {
        leaks.extend(found(path, &world.page(&format!("/api/v1/{path}")).await));
    }
    leaks.extend(found("metrics", &world.page("/metrics").await));
    leaks.extend(found("spans", &format!("{:#?}", collector.spans())));
    let lines = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    leaks.extend(found("log", &lines));
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));

    for stage in ["accepted", "duplicate", "refused", "started", "called", "settled", "dead-letter", "replayed"] {
        let of_stage = lines.lines().find(|line| {
            line.contains(&format!("\"stage\":\"{stage}\""))
                && (stage == "replayed" || line.contains("personal-website"))
        });
        let line: Value = serde_json::from_str(of_stage.unwrap_or_else(|| panic!("no line of `{stage}`"))).unwrap();
        let fields: &[&str] = match stage {
            "refused" => &["source", "status", "code", "trace"],
            "replayed" => &["job", "worker", "replay", "status"],
            _ => &["event", "key", "source", "status", "trace"],
        };
        assert!(fields.iter().all(|name| !line[name].is_null()), "{stage}: {line}");
    }
}
