//! Objects, Amazon SES, push messages and files: the same promises as of every other connector.

use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors};
use sluice_domain::action::Action;
use sluice_domain::destination::{
    AwsCredentials, DestinationKind, FileDestination, S3Destination, SesDestination, WebPushDestination,
};
use sluice_domain::outcome::{Outcome, Readback};
use sluice_simulator::faults::{CallKind, Moment, RetryAfter, Scripted};
use sluice_simulator::sink::Provider;
use sluice_simulator::{Fault, FaultPlan, Sink, SinkSettings};

use crate::{PATIENT, SHORT, brief, call, connectors};

const PUBLIC: &str = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8";
const BROWSER: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";

fn credentials() -> AwsCredentials {
    AwsCredentials {
        access_key_id: "AKIDEXAMPLE".into(),
        secret_access_key: "hunter2-secret".into(),
        session_token: Some("hunter2-session".into()),
    }
}

fn kind(provider: Provider, url: &str) -> DestinationKind {
    match provider {
        Provider::S3 => DestinationKind::S3(S3Destination {
            endpoint: Some(url.to_owned()),
            region: "eu-central-1".into(),
            bucket: "leads".into(),
            prefix: Some("archive/".into()),
            credentials: credentials(),
        }),
        Provider::Ses => DestinationKind::Ses(SesDestination {
            region: "eu-central-1".into(),
            base_url: Some(url.to_owned()),
            credentials: credentials(),
            from: "Shop <shop@example.com>".into(),
            configuration_set: None,
        }),
        Provider::WebPush => DestinationKind::WebPush(WebPushDestination {
            public_key: PUBLIC.into(),
            private_key: "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw".into(),
            subject: "mailto:ops@example.com".into(),
            allow_private_addresses: true,
        }),
    }
}

fn subscription(endpoint: &str) -> Value {
    json!({"endpoint": endpoint, "keys": {"p256dh": BROWSER, "auth": "BTBZMqHH6r4Tts7J_aSIgg"}})
}

fn effect(provider: Provider, url: &str) -> (Action, Value) {
    match provider {
        Provider::S3 => (Action::S3Put, json!({"key": "a b/é.json", "json": {"name": "Lovelace"}})),
        Provider::Ses => (Action::SesSend, json!({"to": ["ada@example.com"], "subject": "Hello", "text": "Lovelace"})),
        Provider::WebPush => {
            (Action::WebPushSend, json!({"subscription": subscription(&format!("{url}/push/1")), "text": "Lovelace"}))
        }
    }
}

fn start(provider: Provider, faults: FaultPlan) -> (Sink, Connectors) {
    let sink = Sink::start(SinkSettings { provider: Some(provider), faults, ..SinkSettings::default() }).unwrap();
    let connectors = connectors([("there", kind(provider, &sink.url()))]);
    (sink, connectors)
}

#[tokio::test]
async fn every_fault_has_its_outcome_and_nothing_is_sent_twice() {
    let table = [
        (Fault::TimeoutAfter { hold_ms: 60_000 }, "unsure retryable timeout", "unsure retryable timeout", 1),
        (Fault::DropBefore, "unsure retryable reset", "unsure retryable reset", 0),
        (Fault::DropAfter, "unsure retryable reset", "unsure retryable reset", 1),
        (Fault::CutResponse, "unsure retryable truncated", "unsure retryable truncated", 1),
        (Fault::ErrorAfter, "unsure retryable http-500", "retry retryable http-500", 1),
        (
            Fault::Gateway { status: 502, moment: Moment::AfterApplying },
            "unsure retryable http-502",
            "retry retryable http-502",
            1,
        ),
        (Fault::ServerUnavailable, "retry retryable http-503", "retry retryable http-503", 0),
        (Fault::InvalidSession, "reject auth http-401", "reject auth http-401", 0),
        (
            Fault::TooManyRequests { retry_after: RetryAfter::Absent },
            "wait retryable http-429",
            "wait retryable http-429",
            0,
        ),
        (Fault::RedirectLoop, "reject permanent http-302", "reject permanent http-302", 0),
    ];
    for provider in Provider::ALL {
        for (fault, blind, natural, applied) in &table {
            let faults = FaultPlan::scripted([Scripted::first(1, fault.clone())]);
            let (sink, connectors) = start(provider, faults);
            let (action, with) = effect(provider, &sink.url());
            let timeout = if blind.ends_with("timeout") { SHORT } else { PATIENT };
            let outcome = connectors.call(call(action, &with, timeout)).await;
            let expected = match (provider, fault) {
                (Provider::S3, _) => natural,
                // The endpoint is that of a browser: its refusal does not pause the destination.
                (Provider::WebPush, Fault::InvalidSession) => &"reject permanent http-401",
                _ => blind,
            };
            assert_eq!(brief(&outcome), *expected, "{provider:?} {fault:?} {outcome:?}");
            let truth = sink.wait_until(|truth| truth.requests > 0 && truth.applied == *applied).await;
            assert_eq!(truth.requests, 1, "{provider:?} {fault:?}: sent exactly once");
        }
    }
}

#[tokio::test]
async fn no_secret_and_no_personal_data_is_shown() {
    for provider in Provider::ALL {
        let faults = FaultPlan::scripted([Scripted::first(1, Fault::Reply { code: 400 })]);
        let (sink, connectors) = start(provider, faults);
        let (action, with) = effect(provider, &sink.url());
        let outcome = connectors.call(call(action, &with, PATIENT)).await;
        let preview = connectors.preview(&call(action, &with, PATIENT)).unwrap();
        let headers = format!("{:?}", preview.headers);
        let shown = format!("{outcome:?} {connectors:?} {headers}");
        assert_eq!(outcome.as_str(), "reject", "{provider:?} {outcome:?}");
        for secret in ["hunter2", "yfWPiYE", "Lovelace"] {
            assert!(!shown.contains(secret), "{provider:?}: {secret} in {shown}");
        }
    }
}

#[tokio::test]
async fn object_is_stored_once_and_a_repeat_finds_its_own_write() {
    let faults = FaultPlan::scripted([Scripted::first(1, Fault::DropAfter).only(CallKind::Write)]);
    let (sink, connectors) = start(Provider::S3, faults);
    let (action, with) = effect(Provider::S3, &sink.url());
    assert_eq!(brief(&connectors.call(call(action, &with, PATIENT)).await), "unsure retryable reset");
    let again = connectors.call(call(action, &with, PATIENT)).await;
    let Outcome::Done { result } = &again else { panic!("{again:?}") };
    assert_eq!(result["created"], false, "the lost answer was of a stored object: {result}");
    let path = "/leads/archive/a%20b/%C3%A9.json";
    assert_eq!(result["url"], format!("{}{path}", sink.url()));
    assert_eq!(sink.resource(path).as_deref(), Some(&br#"{"name":"Lovelace"}"#[..]));

    let other = json!({"key": "a b/é.json", "json": {"name": "Bob"}});
    let outcome = connectors.call(call(action, &other, PATIENT)).await;
    assert_eq!(brief(&outcome), "reject identity PreconditionFailed", "another content is not overwritten");
    let replace = json!({"key": "a b/é.json", "json": {"name": "Bob"}, "overwrite": true});
    assert_eq!(brief(&connectors.call(call(action, &replace, PATIENT)).await), "done");
    assert_eq!(sink.truth().resources, 1);
}

#[tokio::test]
async fn refused_recipients_and_ended_subscriptions_are_dead_letters() {
    let (_sink, connectors) = start(Provider::Ses, FaultPlan::none());
    let with = json!({"to": ["a@bounce.example"], "subject": "Hello", "text": "Hi"});
    let outcome = connectors.call(call(Action::SesSend, &with, PATIENT)).await;
    assert_eq!(brief(&outcome), "reject permanent MessageRejected");
    let none = json!({"to": [], "subject": "Hello", "text": "Hi"});
    assert_eq!(brief(&connectors.call(call(Action::SesSend, &none, PATIENT)).await), "reject identity no-identity");

    let (sink, connectors) = start(Provider::WebPush, FaultPlan::none());
    let with = json!({"subscription": subscription(&format!("{}/gone/1", sink.url())), "text": "Hi"});
    let outcome = connectors.call(call(Action::WebPushSend, &with, PATIENT)).await;
    assert_eq!(brief(&outcome), "reject identity 106");
    assert!(outcome.failure().unwrap().message.contains("the subscription is gone"), "{outcome:?}");
}

#[tokio::test]
async fn endpoint_of_a_subscription_cannot_reach_private_addresses() {
    let DestinationKind::WebPush(push) = kind(Provider::WebPush, "") else { unreachable!() };
    let push = WebPushDestination { allow_private_addresses: false, ..push };
    let connectors = connectors([("there", DestinationKind::WebPush(push))]);
    for endpoint in
        ["https://127.0.0.1:9/push", "https://[::1]/push", "https://10.0.0.1/push", "https://localhost/push"]
    {
        let with = json!({"subscription": subscription(endpoint), "text": "Hi"});
        let outcome = connectors.call(call(Action::WebPushSend, &with, PATIENT)).await;
        assert_eq!(brief(&outcome), "reject permanent address-refused", "{endpoint}");
    }
}

#[tokio::test]
async fn lines_are_appended_and_found_by_their_keys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leads.ndjson");
    let connectors = connectors([("there", DestinationKind::File(FileDestination { path: path.clone() }))]);
    let record = json!({"record": {"name": "Ada\nLovelace", "n": 7}});
    let one = |effect_key| Call { effect_key, ..call(Action::FileAppend, &record, PATIENT) };
    assert_eq!(connectors.read_back(one("k-1")).await, Readback::Absent, "there is no file yet");
    assert_eq!(brief(&connectors.call(one("k-1")).await), "done");
    assert!(matches!(connectors.read_back(one("k-1")).await, Readback::Present(_)));
    assert_eq!(connectors.read_back(one("k-10")).await, Readback::Absent);

    // Many jobs at once, some of them in batches.
    let keys: Vec<String> = (0..60).map(|n| format!("b-{n}")).collect();
    let batch: Vec<Call<'_>> = keys[..20].iter().map(|key| one(key.as_str())).collect();
    let (batched, singles) = tokio::join!(connectors.call_batch(&batch), async {
        let mut outcomes = vec![];
        for key in &keys[20..] {
            outcomes.push(connectors.call(one(key.as_str())).await);
        }
        outcomes
    });
    assert!(batched.iter().chain(&singles).all(|outcome| outcome.as_str() == "done"), "{batched:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 61);
    assert!(lines.iter().all(|line| line["record"] == record["record"]), "{text}");
    for key in &keys {
        assert_eq!(lines.iter().filter(|line| line["effect_key"] == **key).count(), 1, "{key}");
    }

    let missing = json!({});
    let outcome = connectors.call(call(Action::FileAppend, &missing, PATIENT)).await;
    assert_eq!(brief(&outcome), "reject mapping invalid-parameter");
}

#[tokio::test]
async fn directory_that_does_not_exist_is_waited_for() {
    let path = std::path::PathBuf::from("/nowhere/at/all/leads.ndjson");
    let connectors = connectors([("there", DestinationKind::File(FileDestination { path }))]);
    let with = json!({"record": 1});
    let outcome = connectors.call(call(Action::FileAppend, &with, PATIENT)).await;
    assert_eq!(brief(&outcome), "retry retryable io");
    assert!(outcome.failure().unwrap().message.ends_with("Nothing was written."), "{outcome:?}");
}
