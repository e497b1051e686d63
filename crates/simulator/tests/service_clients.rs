//! Unmodified clients of Twilio, Segment, SendGrid and Postmark succeed and fail against the simulators as they do against the
//! services; Klaviyo and PagerDuty are asked over HTTP.
//!
//! The clients are installed once into `target/vendor-clients/services`.

mod support;

use std::process::Command;

use data_encoding::BASE64;
use serde_json::{Value, json};
use sluice_simulator::{Fault, FaultPlan, Service, ServiceKind, ServiceSettings};
use support::{Client, vendor};

fn start(kind: ServiceKind) -> Service {
    Service::start(ServiceSettings::new(kind)).expect("the service starts")
}

fn effects(service: &Service) -> Vec<(String, String)> {
    service.effects().into_iter().map(|effect| (effect.kind, effect.key)).collect()
}

fn pair(kind: &str, key: &str) -> (String, String) {
    (kind.to_owned(), key.to_owned())
}

#[test]
fn vendor_clients_behave_as_against_the_services() {
    let scripts = vendor::scripts().join("services");
    let folder = vendor::node("services", &scripts.join("package.json"));
    let services = [ServiceKind::Twilio, ServiceKind::Segment, ServiceKind::Sendgrid, ServiceKind::Postmark].map(start);
    let [twilio, segment, sendgrid, postmark] = &services;
    let mut command = Command::new("node");
    command.arg(scripts.join("clients.mjs")).current_dir(folder).env("TWILIO_ACCOUNT", ServiceKind::ACCOUNT);
    for (name, service, kind) in [
        ("TWILIO", twilio, ServiceKind::Twilio),
        ("SEGMENT", segment, ServiceKind::Segment),
        ("SENDGRID", sendgrid, ServiceKind::Sendgrid),
        ("POSTMARK", postmark, ServiceKind::Postmark),
    ] {
        command.env(format!("{name}_URL"), service.url()).env(format!("{name}_TOKEN"), kind.credential());
    }
    let results = vendor::results("the clients", &mut command);
    check_twilio(&results["twilio"]);
    assert_eq!(twilio.truth().keys_applied_again, 1, "two equal messages are two messages");
    assert_eq!(results["segment"], json!({"problems": []}));
    assert_eq!(effects(segment), [pair("track", "m-1"), pair("identify", "m-2")], "a messageId counts once");
    let sent = json!({"status": 202, "id": "string", "refused": 400, "wrong_token": 401});
    assert_eq!(results["sendgrid"], sent);
    assert_eq!(effects(sendgrid), [pair("mail", "k-1")]);
    check_postmark(&results["postmark"]);
    assert_eq!(effects(postmark), [pair("mail", "k-1"), pair("mail", "k-1")]);
}

fn check_twilio(results: &Value) {
    assert_eq!((&results["status"], &results["sid"], &results["two"]), (&json!("queued"), &json!(true), &json!(true)));
    assert_eq!((&results["found"], &results["read"]), (&json!(["Hello", "Hello"]), &json!("+14155550123")));
    for (name, code, status) in [
        ("invalid", 21211, 400),
        ("opted_out", 21610, 400),
        ("no_body", 21602, 400),
        ("wrong_token", 20003, 401),
        ("absent", 20404, 404),
    ] {
        let failure = &results[name];
        assert_eq!((&failure["code"], &failure["status"]), (&json!(code), &json!(status)), "{name}: {failure}");
    }
}

fn check_postmark(results: &Value) {
    assert_eq!((&results["sent"], &results["batch"]), (&json!([0, "OK"]), &json!([0, 300])));
    assert_eq!((&results["found"], &results["metadata"]), (&json!(2), &json!({"effect_key": "k-1"})));
    for (name, code, status) in [("inactive", 406, 422), ("wrong_token", 10, 401)] {
        let failure = &results[name];
        assert_eq!((&failure["code"], &failure["status"]), (&json!(code), &json!(status)), "{name}: {failure}");
    }
}

/// Posts JSON.
async fn post(client: &Client, path: &str, body: &Value) -> (u16, Value) {
    let answer = client.json("POST", path, body.clone()).await;
    (answer.status, answer.json())
}

#[tokio::test]
async fn klaviyo_updates_a_profile_and_knows_an_event_by_its_id() {
    let service = start(ServiceKind::Klaviyo);
    let bare = Client::new(service.address());
    let key = format!("Klaviyo-API-Key {}", ServiceKind::Klaviyo.credential());
    let client = bare.clone().with("Authorization", &key).with("revision", "2026-07-15");
    let profile = |name: &str| json!({"data": {"type": "profile", "attributes": {"email": "ada@example.com", "first_name": name}}});
    assert_eq!(post(&client, "/api/profile-import", &profile("Ada")).await.0, 201);
    assert_eq!(post(&client, "/api/profile-import", &profile("Ada L.")).await.0, 200);
    let (status, body) = post(&client, "/api/profiles", &profile("Ada")).await;
    assert_eq!((status, &body["errors"][0]["code"]), (409, &json!("duplicate_profile")));
    assert_eq!(body["errors"][0]["meta"]["duplicate_profile_id"], service.effects()[0].id);
    let event = json!({"data": {"type": "event", "attributes": {
        "metric": {"data": {"attributes": {"name": "Ordered"}}},
        "profile": {"data": {"attributes": {"email": "ada@example.com"}}}, "unique_id": "k-1"}}});
    for _ in 0..2 {
        assert_eq!(post(&client, "/api/events", &event).await.0, 202);
    }
    assert_eq!(effects(&service), [pair("profile", "ada@example.com"), pair("event", "k-1")]);
    assert_eq!(service.effects()[0].fields["first_name"], "Ada L.");
    assert_eq!(post(&bare, "/api/events", &event).await.0, 401);
}

#[tokio::test]
async fn pagerduty_opens_one_alert_for_a_key_until_it_is_resolved() {
    let service = start(ServiceKind::Pagerduty);
    let client = Client::new(service.address());
    let event = |action: &str| {
        json!({
            "routing_key": ServiceKind::Pagerduty.credential(), "event_action": action, "dedup_key": "a",
            "payload": {"summary": "down", "source": "crm", "severity": "error"},
        })
    };
    for (action, status, alerts) in
        [("trigger", 202, 1), ("trigger", 202, 1), ("resolve", 202, 1), ("trigger", 202, 2), ("close", 400, 2)]
    {
        assert_eq!(post(&client, "/v2/enqueue", &event(action)).await.0, status, "{action}");
        assert_eq!(service.truth().effects, alerts, "{action}");
    }
    assert_eq!(effects(&service), [pair("alert", "a"), pair("alert", "a")]);
}

#[tokio::test]
async fn faults_lose_answers_of_applied_and_of_unapplied_calls() {
    let service = start(ServiceKind::Segment);
    let credential = BASE64.encode(format!("{}:", ServiceKind::Segment.credential()).as_bytes());
    let client = Client::new(service.address()).with("Authorization", &format!("Basic {credential}"));
    for (id, fault) in [("applied", Fault::DropAfter), ("lost", Fault::DropBefore)] {
        service.set_faults(FaultPlan::always(fault)).expect("a plan");
        let body = json!({"messageId": id, "userId": "u"}).to_string();
        assert!(client.send("POST", "/v1/track", body.as_bytes()).await.is_err());
    }
    let truth = service.truth();
    assert_eq!((truth.effects, truth.unseen), (1, 1));
    assert_eq!(effects(&service), [pair("track", "applied")]);
}
