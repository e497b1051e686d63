//! The whole path with declared connectors: the answer of the provider is lost after the effect was applied, and the class of
//! the effect decides what happens.

use serde_json::{Value, json};
use sluice_server::config::{ExpectedAnswer, shipped_tests};
use sluice_server::recorded_answers::{base_path, routes};
use sluice_simulator::faults::{CallKind, Scripted};
use sluice_simulator::sink::{RecordedReply, SinkRoute};
use sluice_simulator::{Fault, FaultPlan, Sink, SinkSettings};

use crate::fixture::{World, lead};

const FLOW: &str = r#"
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
  identity: { email: "{{ body.email | lower | trim }}" }
  attributes: { last_name: body.last_name }
steps:
  - name: enqueue
    queue: { name: leads }
queues:
  - { name: leads, visibility_timeout: 20s }
"#;

fn reply(answer: ExpectedAnswer) -> RecordedReply {
    let body = match answer.body {
        Value::Null => String::new(),
        Value::String(text) => text,
        body => body.to_string(),
    };
    RecordedReply { status: answer.status, headers: answer.headers, body }
}

/// The provider of a shipped connector, which applies the first write and loses its answer.
fn provider(name: &str) -> (Sink, String) {
    let tests = shipped_tests().0.into_iter().find(|tests| tests.connector.definition.name == name).unwrap();
    let routes = routes(&tests)
        .into_iter()
        .map(|route| SinkRoute {
            method: route.method,
            path: route.path,
            reply: reply(route.answer),
            absent: route.absent.map(reply),
            batch: None,
        })
        .collect();
    let faults = FaultPlan::scripted([Scripted::first(1, Fault::DropAfter).only(CallKind::Write)]);
    let sink = Sink::start(SinkSettings { routes, faults, ..SinkSettings::default() }).unwrap();
    let base_url = format!("{}{}", sink.url(), base_path(tests.connector));
    (sink, base_url)
}

pub(crate) async fn world(step: &str, destination: &str, more: &[(&str, &str)]) -> World {
    world_with_secret(step, destination, more, "provider-secret").await
}

/// A world whose destination `provider` has this credential as `PROVIDER`.
pub(crate) async fn world_with_secret(step: &str, destination: &str, more: &[(&str, &str)], secret: &str) -> World {
    let worker = format!(
        "version: 1\nname: lead-effects\nconsumes: {{ queue: leads }}\nretry: {{ base_delay: 10ms, max_delay: 50ms, max_attempts: 5 }}\nrun:\n  - name: effect\n{step}"
    );
    let destinations = format!("destinations:\n  provider: {{ timeout: 2s, {destination} }}\n");
    let mut files = vec![("flow.yml", FLOW), ("worker.yml", worker.as_str()), ("provider.yml", &destinations)];
    files.extend_from_slice(more);
    World::start_with_secrets(&files, &[("PROVIDER", secret)]).await
}

/// Posts a lead and gives back its only job once that is settled.
pub(crate) async fn settled(world: &World, id: &str) -> Value {
    let event = world.post(&lead(id)).await.event();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    world.job(jobs[0]["id"].as_str().unwrap()).await
}

pub(crate) fn outcomes(job: &Value) -> Vec<&str> {
    job["attempts_made"].as_array().unwrap().iter().map(|made| made["outcome"].as_str().unwrap()).collect()
}

fn bodies(sink: &Sink) -> Vec<Value> {
    sink.requests().iter().filter_map(|request| serde_json::from_str(&request.body).ok()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn keyed_effect_with_a_lost_answer_is_sent_again_under_the_same_key() {
    let (sink, base_url) = provider("segment");
    let destination = format!("type: segment, write_key: '${{secrets.PROVIDER}}', base_url: '{base_url}'");
    let step = "    run: analytics.track\n    with: { event: Signed Up, user_id: '{{ event.email }}' }\n";
    let world = world(step, &destination, &[]).await;
    let job = settled(&world, "k1").await;
    assert_eq!((&job["state"], outcomes(&job)), (&json!("succeeded"), vec!["unsure", "done"]), "{job}");
    let sent = bodies(&sink);
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert_eq!(sent[0], sent[1]);
    assert!(sent[0]["messageId"].as_str().is_some_and(|id| id.len() > 16), "{sent:?}");
    assert_eq!(sent[0]["userId"], "k1@example.com");
}

#[tokio::test(flavor = "multi_thread")]
async fn verifiable_effect_with_a_lost_answer_is_read_back_and_not_sent_again() {
    let (sink, base_url) = provider("twilio");
    let destination = format!(
        "type: twilio, account_sid: AC1, auth_token: '${{secrets.PROVIDER}}', from: '+15005550006', base_url: '{base_url}'"
    );
    let step = "    run: twilio.sms\n    with: { to: '+14155550123', body: Your code is 1234 }\n";
    let world = world(step, &destination, &[]).await;
    let job = settled(&world, "v1").await;
    assert_eq!((&job["state"], outcomes(&job)), (&json!("succeeded"), vec!["unsure", "present"]), "{job}");
    assert_eq!(sink.truth().applied, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn template_sent_by_a_mail_service_waits_for_an_operator_if_its_answer_is_lost() {
    let (sink, base_url) = provider("postmark");
    let destination = format!(
        "type: postmark, server_token: '${{secrets.PROVIDER}}', from: Shop <shop@example.com>, base_url: '{base_url}'"
    );
    let step =
        "    run: messaging.send_template\n    with: { channel: email, template: welcome, to: '{{ event.email }}' }\n";
    let templates =
        [("templates/welcome.subject", "Welcome\n"), ("templates/welcome.txt", "Hello {{ event.last_name }}\n")];
    let world = world(step, &destination, &templates).await;
    let job = settled(&world, "b1").await;
    assert_eq!((&job["state"], outcomes(&job)), (&json!("unknown"), vec!["unsure"]), "{job}");
    // The fault is over: the next mail goes out.
    let job = settled(&world, "b2").await;
    assert_eq!((&job["state"], outcomes(&job)), (&json!("succeeded"), vec!["done"]), "{job}");
    let sent = bodies(&sink);
    assert_eq!((sent.len(), sink.truth().applied), (2, 2), "{sent:?}");
    assert_eq!((&sent[0]["To"], &sent[0]["Subject"]), (&json!("b1@example.com"), &json!("Welcome")));
}

const OWN: &str = "
connector: x-loyalty
about: Loyalty points.
destination:
  token: {type: secret, required: true, about: Token.}
base_url: https://loyalty.invalid/api
auth: {bearer: '{{ destination.token }}'}
actions:
  x-loyalty.grant:
    about: Grants points to a member.
    effect: natural
    because: The grant has an id of its own.
    parameters:
      member: {required: true, about: Member.}
      points: {type: number, required: true, about: Points.}
    request:
      method: PUT
      url: '/resource/{{ effect.key }}'
      json: {member: '{{ with.member }}', points: '{{ with.points }}'}
    result: {member: '{{ with.member }}'}
";

#[tokio::test(flavor = "multi_thread")]
async fn connector_of_the_configuration_needs_no_rebuild() {
    let destination = "type: x-loyalty, token: '${secrets.PROVIDER}', base_url: '{sink}'";
    let step = "    run: x-loyalty.grant\n    with: { member: '{{ event.email }}', points: 10 }\n";
    let world = world(step, destination, &[("loyalty.yml", OWN)]).await;
    let lost = Scripted::first(1, Fault::DropAfter).only(CallKind::Write);
    world.sink.set_faults(FaultPlan::scripted([lost])).unwrap();
    let job = settled(&world, "n1").await;
    assert_eq!((&job["state"], outcomes(&job)), (&json!("succeeded"), vec!["unsure", "done"]), "{job}");
    let sent = world.sink.requests();
    let authorization = |request: &sluice_simulator::sink::ReceivedRequest| {
        request.headers.iter().any(|(name, value)| name == "authorization" && value == "Bearer provider-secret")
    };
    assert!(sent.len() == 2 && sent.iter().all(authorization), "{sent:?}");
    assert_eq!(world.sink.truth().resources, 1);
}
