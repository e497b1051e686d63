//! Logs, messages, previews and `Debug` output contain no secrets.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors};
use sluice_domain::action::Action;
use sluice_domain::destination::{DestinationKind, HttpAuth, HttpDestination, SalesforceAuth};
use tokio::io::AsyncWriteExt;
use tracing_subscriber::layer::SubscriberExt;

use crate::raw::{RawServer, read_request};
use crate::{PATIENT, client_credentials, connectors, http_at, request, salesforce_at};

const SECRETS: [&str; 6] =
    ["hunter2-bearer", "hunter2-header", "hunter2-password", "hunter2-client", "hunter2-token", "hunter2-step"];

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Responds with an error that quotes the request, including its credentials.
async fn echo(status: u16) -> RawServer {
    RawServer::start(move |mut stream| async move {
        let request = read_request(&mut stream).await;
        let body = format!("no: {}", request.replace("\r\n", " "));
        let response = format!("HTTP/1.1 {status} No\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let _ = stream.write_all(response.as_bytes()).await;
    })
    .await
}

fn all_destinations(url: &str) -> Connectors {
    let bearer = HttpDestination {
        auth: HttpAuth::Bearer("hunter2-bearer".into()),
        headers: vec![("X-Secret".into(), "hunter2-header".into())],
        ..http_at(url)
    };
    let basic = HttpDestination {
        auth: HttpAuth::Basic { user: "ann".into(), password: "hunter2-password".into() },
        ..http_at(url)
    };
    let token = SalesforceAuth::Token("hunter2-token".into());
    connectors([
        ("bearer", DestinationKind::Http(bearer)),
        ("basic", DestinationKind::Http(basic)),
        ("client", DestinationKind::Salesforce(salesforce_at(url, client_credentials("hunter2-client")))),
        ("token", DestinationKind::Salesforce(salesforce_at(url, token))),
    ])
}

fn calls<'a>(http: &'a Value, salesforce: &'a Value) -> [Call<'a>; 4] {
    let request = request(http, PATIENT);
    let upsert = crate::call(Action::SalesforceUpsert, salesforce, PATIENT);
    [
        Call { destination: "bearer", ..request },
        Call { destination: "basic", ..request },
        Call { destination: "client", ..upsert },
        Call { destination: "token", ..upsert },
    ]
}

fn assert_no_secrets(text: &str) {
    let basic = "YW5uOmh1bnRlcjItcGFzc3dvcmQ="; // ann:hunter2-password
    for secret in SECRETS.into_iter().chain([basic]) {
        assert!(!text.contains(secret), "{secret} is in: {text}");
    }
}

#[tokio::test]
async fn quoted_credentials_are_redacted() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || written.clone()));
    let guard = tracing::subscriber::set_default(subscriber);

    let http = json!({
        "url": "/x", "json": {"a": 1}, "headers": {"X-Api-Key": "hunter2-step"}, "verify": {"url": "/y"},
    });
    let salesforce = json!({"object": "Lead", "external_id_field": "E__c", "external_id": "a", "fields": {}});
    for status in [400, 401, 409, 429, 500, 503] {
        // A call site first hit by a test without a subscriber is cached as disabled.
        tracing::callsite::rebuild_interest_cache();
        let server = echo(status).await;
        let connectors = all_destinations(&server.url());
        assert_no_secrets(&format!("{connectors:?} {connectors:#?}"));
        for call in calls(&http, &salesforce) {
            let outcome = connectors.call(call).await;
            let failure = outcome.failure().expect("every status here is a failure");
            assert!(failure.message.contains("no: "), "the response is quoted: {}", failure.message);
            assert_no_secrets(&format!("{outcome:?} {} {call:?}", serde_json::to_string(&outcome).unwrap()));
            assert_no_secrets(&format!("{:?}", connectors.read_back(call).await));
            let preview = connectors.preview(&call).unwrap();
            assert_no_secrets(&format!("{preview:?} {}", serde_json::to_string(&preview).unwrap()));
        }
    }
    drop(guard);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("response received"), "the log is captured: {log}");
    assert_no_secrets(&log);
}

#[tokio::test]
async fn values_that_a_destination_quotes_in_its_error_are_masked() {
    let server = echo(400).await;
    let connectors = all_destinations(&server.url());
    let http = json!({ "url": "/x", "json": { "person": { "name": "Grace Hopper", "note": "a\nb \"c\"" } } });
    let outcome = connectors.call(Call { destination: "bearer", ..request(&http, PATIENT) }).await;
    let message = &outcome.failure().unwrap().message;
    assert!(message.contains("person") && message.contains("***"), "{message}");
    assert!(!message.contains("Grace") && !message.contains("Hopper") && !message.contains("a\\nb"), "{message}");
}

#[test]
fn preview_masks_secrets() {
    let connectors = all_destinations("https://api.example.com");
    let http = json!({"url": "/x?a=1", "method": "PUT", "json": {"a": 1}, "headers": {"X-Api-Key": "hunter2-step"}});
    let salesforce = json!({"object": "Lead", "external_id_field": "E__c", "external_id": "a b", "fields": {"Name": "x", "E__c": "a b"}});
    let [bearer, basic, client, _] = calls(&http, &salesforce).map(|call| connectors.preview(&call).unwrap());
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    assert_eq!((bearer.method.as_str(), bearer.url.as_str()), ("PUT", "https://api.example.com/x?a=1"));
    assert_eq!(bearer.body, json!({"a": 1}));
    assert_eq!(
        bearer.headers,
        pairs(&[
            ("authorization", "Bearer ***"),
            ("content-type", "application/json"),
            ("idempotency-key", "effect-1"),
            ("x-api-key", "***"),
            ("x-secret", "***"),
        ])
    );
    assert!(basic.headers.contains(&("authorization".to_owned(), "Basic ***".to_owned())));
    assert_eq!(client.url, "https://api.example.com/services/data/v60.0/sobjects/Lead/E__c/a%20b");
    assert_eq!(client.body, json!({"Name": "x"}));
    assert_eq!(
        client.headers,
        pairs(&[("accept", "application/json"), ("authorization", "Bearer ***"), ("content-type", "application/json")])
    );
    let wrong = json!({"json": 1});
    let failure = connectors.preview(&Call { destination: "bearer", ..request(&wrong, PATIENT) }).unwrap_err();
    assert!(failure.message.contains("`with.url`"), "{failure:?}");
}
