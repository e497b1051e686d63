//! Channels of `alerts.notify`: Slack, mail, signed webhook, PagerDuty and Opsgenie, through the same effects as any other.

use serde_json::{Value, json};
use sluice_domain::verify::{Request, Scheme, Secret, Verifier, VerifierSettings, verify};
use sluice_server::config::shipped_tests;
use sluice_server::recorded_answers::{base_path, routes};
use sluice_simulator::sink::{ReceivedRequest, RecordedReply, SinkRoute};
use sluice_simulator::{Fault, FaultPlan, Sink, SinkSettings, Slack, SlackSettings, Smtp, SmtpSettings};

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

const SIGNING: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The provider of a shipped connector, with its recorded answers.
fn provider(name: &str) -> (Sink, String) {
    let tests = shipped_tests().0.into_iter().find(|tests| tests.connector.definition.name == name).unwrap();
    let reply = |answer: sluice_server::config::ExpectedAnswer| RecordedReply {
        status: answer.status,
        headers: answer.headers,
        body: if answer.body.is_null() { String::new() } else { answer.body.to_string() },
    };
    let routes = routes(&tests)
        .into_iter()
        .map(|route| SinkRoute {
            method: route.method,
            path: route.path,
            reply: reply(route.answer),
            absent: None,
            batch: None,
        })
        .collect();
    let sink = Sink::start(SinkSettings { routes, ..SinkSettings::default() }).unwrap();
    let base = format!("{}{}", sink.url(), base_path(tests.connector));
    (sink, base)
}

struct Channels {
    slack: Slack,
    smtp: Smtp,
    pager: Sink,
    genie: Sink,
    world: World,
}

/// A node with every ready channel. `more` are further keys of `alerts:`.
async fn channels(more: &str) -> Channels {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let smtp = Smtp::start(SmtpSettings::default()).unwrap();
    let (pager, pager_url) = provider("pagerduty");
    let (genie, genie_url) = provider("opsgenie");
    let alerts = format!(
        r#"
destinations:
  chat: {{ type: slack, token: "${{secrets.SLACK_TOKEN}}", base_url: "{}", timeout: 2s }}
  mail: {{ type: smtp, host: 127.0.0.1, port: {}, tls: none, from: "Sluice <sluice@example.com>", timeout: 2s }}
  hooks: {{ type: http, base_url: "{{sink}}", signing_secret: "${{secrets.SIGNING}}", timeout: 2s }}
  pager: {{ type: pagerduty, routing_key: "${{secrets.PAGER}}", base_url: "{pager_url}", timeout: 2s }}
  genie: {{ type: opsgenie, api_key: "${{secrets.GENIE}}", base_url: "{genie_url}", timeout: 2s }}
alerts:
  console_url: https://sluice.example
  notify:
    - {{ name: team, destination: chat, channel: C0SIMULATOR }}
    - {{ name: mails, destination: mail, to: ops@example.com, severity: warning }}
    - {{ name: webhook, destination: hooks, url: /alerts }}
    - {{ name: on-call, destination: pager, severity: critical }}
    - {{ name: genie, destination: genie, severity: critical }}
{more}
"#,
        slack.api_url(),
        smtp.address().port()
    );
    let files = [("flow.yml", FLOW), ("worker.yml", WORKER), ("queues.yml", QUEUES), ("alerts.yml", alerts.as_str())];
    let secrets =
        [("SLACK_TOKEN", "xoxb-simulator"), ("SIGNING", SIGNING), ("PAGER", "pd-key-123"), ("GENIE", "og-key-123")];
    let world = World::start_with_secrets(&files, &secrets).await;
    Channels { slack, smtp, pager, genie, world }
}

fn bodies(sink: &Sink) -> Vec<Value> {
    sink.requests().iter().map(|request| serde_json::from_str(&request.body).unwrap()).collect()
}

fn verify_signature(request: &ReceivedRequest) {
    let secret = Secret::new("own", SIGNING);
    let verifier = Verifier::new(VerifierSettings::new(Scheme::StandardWebhooks, vec![secret])).unwrap();
    let headers: Vec<(&str, &str)> =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let signed = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("webhook-timestamp")).unwrap().1;
    let at = jiff::Timestamp::from_second(signed.parse().unwrap()).unwrap();
    let received =
        Request { method: "POST", path_and_query: &request.target, headers: &headers, body: request.body.as_bytes() };
    verify(&verifier, &received, at).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn test_notice_goes_through_every_channel() {
    let channels = channels("").await;
    let world = &channels.world;
    let sent = world.act("/api/v1/alerts/test", json!({ "actor": "ann" })).await;
    let all = ["alert-genie", "alert-mails", "alert-on-call", "alert-team", "alert-webhook"];
    assert_eq!((sent.status, &sent.body["playbooks"]), (200, &json!(all)), "{}", sent.body);
    until(|| async {
        let counts = [
            channels.slack.messages().len(),
            channels.smtp.messages().len(),
            world.sink.requests().len(),
            channels.pager.requests().len() / 2,
            channels.genie.requests().len() / 2,
        ];
        counts.iter().all(|count| *count == 1).then_some(())
    })
    .await;
    let text = channels.slack.messages()[0].text.clone();
    let first = "TEST critical alert breaker-open about test: a test of the notification; nothing is wrong.";
    assert_eq!(text.lines().next(), Some(first));
    assert!(text.contains("Runbook: docs/runbooks/breaker-open.md\nConsole: https://sluice.example/console"), "{text}");
    let mail = channels.smtp.messages().remove(0);
    assert!(mail.header("subject").unwrap().starts_with("TEST breaker-open test: a test"), "{mail:?}");
    let request = world.sink.requests().remove(0);
    assert_eq!(request.target, "/alerts");
    verify_signature(&request);
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!((&body["state"], &body["alert"]), (&json!("test"), &json!("breaker-open")), "{body}");
    let actions: Vec<Value> = bodies(&channels.pager).iter().map(|body| body["event_action"].clone()).collect();
    assert_eq!(actions, ["trigger", "resolve"], "a test leaves no incident behind");
    let paths: Vec<String> = channels.genie.requests().iter().map(|request| request.target.clone()).collect();
    assert!(paths[0].ends_with("/alerts") && paths[1].contains("/close?identifierType=alias"), "{paths:?}");
    // One channel alone.
    let sent = world.act("/api/v1/alerts/test", json!({ "actor": "ann", "channel": "team" })).await;
    assert_eq!((sent.status, &sent.body["playbooks"]), (200, &json!(["alert-team"])), "{}", sent.body);
    let unknown = world.act("/api/v1/alerts/test", json!({ "channel": "nobody" })).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.body["detail"].as_str().unwrap().contains("there are genie, mails, on-call, team, webhook"));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_failures_are_one_notice_and_one_recovery_and_are_routed_by_severity() {
    let rules = "  rules:\n    - { alert: destination-failing, enabled: false }\n    - { alert: queue-age, age: 1h }\n";
    let channels = channels(rules).await;
    let world = &channels.world;
    world.crm.set_faults(FaultPlan::always(Fault::Reply { code: 503 })).unwrap();
    let mut events = Vec::new();
    for n in 0..50 {
        events.push(world.post(&lead(&format!("lead-{n}"))).await.event());
    }
    until(|| async { (!channels.slack.messages().is_empty()).then_some(()) }).await;
    world.crm.set_faults(FaultPlan::none()).unwrap();
    for event in &events {
        world.settled(event).await;
    }
    // The notice of the recovery comes a minute after the end.
    until(|| async { (channels.slack.messages().len() > 1 && channels.pager.requests().len() > 1).then_some(()) })
        .await;
    let said: Vec<String> = channels.slack.messages().into_iter().map(|message| message.text).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("FIRING critical alert breaker-open about crm: "), "{}", said[0]);
    assert!(said[1].starts_with("RECOVERED critical alert breaker-open about crm: "), "{}", said[1]);
    let pages: Vec<(Value, Value)> =
        bodies(&channels.pager).iter().map(|body| (body["event_action"].clone(), body["dedup_key"].clone())).collect();
    let key = json!("sluice:breaker-open:crm");
    assert_eq!(pages, [(json!("trigger"), key.clone()), (json!("resolve"), key)]);
    assert!(channels.smtp.messages().is_empty(), "the mail channel takes warnings only");
    // From the first failed call to the delivered notice, by the node's own record.
    let stars = until(|| async {
        let stars = world.get("/api/v1/north-stars").await;
        stars.get("time_to_first_signal_p95_seconds").is_some().then_some(stars)
    })
    .await;
    println!("time to first signal: {} s", stars["time_to_first_signal_p95_seconds"]);
    assert!(stars["time_to_first_signal_p95_seconds"].as_f64().unwrap() < 60.0, "{stars}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_failures_of_one_kind_are_one_notice_and_one_recovery() {
    const LEADS: usize = 10_000;
    let rules = "  rules:\n    - { alert: dead-letters, age: 1s }\n    - { alert: queue-age, age: 1h }\n    - { alert: destination-failing, enabled: false }\n";
    let Channels { slack, smtp, world, .. } = &channels(rules).await;
    let refusal = Fault::Reply { code: 400 };
    world.crm.set_faults(FaultPlan::always(refusal)).unwrap();
    let senders = (0..32).map(|sender| async move {
        for n in (sender..LEADS).step_by(32) {
            world.post(&lead(&format!("lead-{n}"))).await.event();
        }
    });
    futures_util::future::join_all(senders).await;
    let dead = async || {
        let counts = world.get("/api/v1/status").await;
        counts["jobs"]["dead"].as_u64().unwrap_or(0)
    };
    for wanted in [LEADS as u64 / 2, LEADS as u64] {
        // Each half has the time that `until` allows.
        until(|| async { (dead().await >= wanted).then_some(()) }).await;
    }
    until(|| async { (!slack.messages().is_empty()).then_some(()) }).await;
    world.crm.set_faults(FaultPlan::none()).unwrap();
    let order = json!({ "filter": { "states": ["dead"] }, "reason": "the CRM takes leads again" });
    assert_eq!(world.act("/api/v1/replays", order).await.status, 200);
    for wanted in [LEADS as u64 / 2, 0] {
        until(|| async { (dead().await <= wanted).then_some(()) }).await;
    }
    until(|| async { (slack.messages().len() > 1).then_some(()) }).await;
    let said: Vec<String> = slack.messages().into_iter().map(|message| message.text).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("FIRING "), "{}", said[0]);
    assert!(said[1].starts_with("RECOVERED "), "{}", said[1]);
    until(|| async { (smtp.messages().len() > 1).then_some(()) }).await;
    let subjects: Vec<String> =
        smtp.messages().iter().map(|mail| mail.header("subject").unwrap_or_default().to_owned()).collect();
    assert_eq!(subjects.len(), 2, "{subjects:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_listed_with_the_values_that_apply() {
    let rules = "  rules:\n    - { alert: queue-age, age: 5m, severity: critical }\n    - { alert: queue-age, subject: to-crm, enabled: false }\n";
    let channels = channels(rules).await;
    let listed = channels.world.get("/api/v1/alerts/rules").await;
    let ages: Vec<&Value> = listed.as_array().unwrap().iter().filter(|rule| rule["alert"] == "queue-age").collect();
    assert_eq!(ages.len(), 2, "{listed}");
    assert_eq!((&ages[0]["age"], &ages[0]["severity"]), (&json!("5m"), &json!("critical")));
    assert_eq!((&ages[1]["subject"], &ages[1]["enabled"]), (&json!("to-crm"), &json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn digest_is_sent_once_over_restarts_with_the_commands_to_act() {
    let mut channels = channels("").await;
    channels.world.crm.set_faults(FaultPlan::always(Fault::Reply { code: 400 })).unwrap();
    let event = channels.world.post(&lead("ada")).await.event();
    let jobs = channels.world.settled(&event).await;
    assert_eq!(jobs[0]["state"], "dead", "{jobs:?}");
    channels.world.stop_node().await;
    let path = channels.world.config_path("alerts.yml");
    let alerts = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{alerts}\n  digest: {{ at: '00:00', notify: [team] }}\n")).unwrap();
    channels.world.start_node().await;
    let digests = |channels: &Channels| {
        let texts = channels.slack.messages().into_iter().map(|message| message.text);
        texts.filter(|text| text.starts_with("Dead letters on ")).collect::<Vec<_>>()
    };
    until(|| async { (!digests(&channels).is_empty()).then_some(()) }).await;
    let said = digests(&channels).remove(0);
    assert!(said.contains(": 1.\n1 permanent "), "{said}");
    assert!(said.contains("sluice replay --filter code="), "{said}");
    channels.world.stop_node().await;
    channels.world.start_node().await;
    // A notice that follows shows that the node has looked again.
    channels.world.act("/api/v1/alerts/test", json!({ "channel": "team" })).await;
    until(|| async { channels.slack.messages().iter().any(|sent| sent.text.starts_with("TEST")).then_some(()) }).await;
    let mut days: Vec<String> = digests(&channels).iter().map(|text| text.chars().take(26).collect()).collect();
    let sent = days.len();
    days.dedup();
    assert_eq!(days.len(), sent, "one for each day that the test touches: {days:?}");
    assert!(channels.smtp.messages().is_empty(), "the other channel was not named");
}
