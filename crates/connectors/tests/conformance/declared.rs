//! Actions of a declared connector against the simulated sink, and against a provider whose tokens expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use sluice_connectors::Connectors;
use sluice_domain::action::Action;
use sluice_domain::connector::{
    ActionDefinition, Connector, ConnectorAuth, DeclaredDestination, DefinedType, DestinationKey, ErrorFields,
    FailureAction, FailureRule, Grant, KeyType, OAuth, ParameterDefinition, ReadBackRule, StatusRange, Success,
    register,
};
use sluice_domain::destination::DestinationKind;
use sluice_domain::outcome::{EffectClass, FailureClass, Outcome, Readback};
use sluice_domain::template::{Expression, Template};
use sluice_simulator::faults::{Moment, RetryAfter, Scripted};
use sluice_simulator::{Fault, FaultPlan, Sink, SinkSettings};
use tokio::io::AsyncWriteExt;

use crate::raw::{RawServer, read_request};
use crate::{PATIENT, SHORT, brief, call, connectors};

pub(crate) fn text(text: &str) -> Template {
    Template::parse_text(text).unwrap()
}

pub(crate) fn request(method: &str, url: &str, json: Option<Template>) -> Template {
    let mut parts = vec![("method".to_owned(), text(method)), ("url".to_owned(), text(url).into_url())];
    parts.extend(json.map(|json| ("json".to_owned(), json)));
    Template::Map(parts)
}

pub(crate) fn action(class: EffectClass) -> ActionDefinition {
    let body = Template::Map(vec![("name".to_owned(), text("{{ with.name }}"))]);
    ActionDefinition {
        name: format!("x-notes.{}", class.as_str()),
        about: "Writes a note.".to_owned(),
        parameters: vec![ParameterDefinition {
            name: "name".to_owned(),
            value_type: DefinedType::Text,
            required: true,
            about: "Name.".to_owned(),
        }],
        any_of: vec![],
        class,
        because: "Of this test.".to_owned(),
        is_mail: false,
        request: request("PUT", "/resource/{{ effect.key }}", Some(body)),
        success: Success { statuses: vec![StatusRange { first: 200, last: 299 }], condition: None },
        result: Some(Template::Map(vec![("status".to_owned(), text("{{ response.status }}"))])),
        read_back: (class == EffectClass::Verifiable).then(|| ReadBackRule {
            request: request("GET", "/resource/{{ effect.key }}", None),
            found: Expression::parse("response.body.name == with.name").unwrap(),
            result: None,
        }),
        batch: None,
        upsert: None,
    }
}

pub(crate) fn rule(status: u16, action: FailureAction) -> FailureRule {
    FailureRule {
        call: Default::default(),
        statuses: vec![StatusRange::one(status)],
        codes: vec![],
        contains: None,
        action,
        advice: "of this test".to_owned(),
    }
}

pub(crate) fn connector(name: &str, auth: ConnectorAuth, failures: Vec<FailureRule>) -> Connector {
    let classes = [EffectClass::Natural, EffectClass::Keyed, EffectClass::Verifiable, EffectClass::Blind];
    Connector {
        name: name.to_owned(),
        about: "Notes.".to_owned(),
        keys: vec![DestinationKey {
            name: "token".to_owned(),
            key_type: KeyType::Secret,
            required: true,
            default: None,
            about: "Token.".to_owned(),
        }],
        base_url: Some(text("https://notes.invalid")),
        headers: vec![],
        auth,
        error: ErrorFields::default(),
        wait_from: vec![],
        failures,
        actions: classes.into_iter().map(action).collect(),
        source: name.to_owned(),
    }
}

pub(crate) fn bearer() -> ConnectorAuth {
    ConnectorAuth::Bearer(text("{{ destination.token }}"))
}

/// Connectors with one declared destination, named `there`, and its action of this class.
fn to_declared(connector: Connector, base_url: &str, class: EffectClass) -> (Connectors, Action) {
    let connector = register(connector).unwrap();
    let values = vec![("token".to_owned(), "hunter2-token".into())];
    let kind =
        DestinationKind::Declared(DeclaredDestination { connector, base_url: Some(base_url.to_owned()), values });
    let action = connector.actions().find(|action| action.definition().class == class).unwrap();
    (connectors([("there", kind)]), Action::Declared(action))
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
        (Fault::LockRow, "retry conflict http-423", "retry conflict http-423", 0),
        (Fault::DuplicateValue, "reject permanent http-409", "reject permanent http-409", 0),
        (Fault::InvalidSession, "reject auth http-401", "reject auth http-401", 0),
        (
            Fault::TooManyRequests { retry_after: RetryAfter::Absent },
            "wait retryable http-429",
            "wait retryable http-429",
            0,
        ),
        (Fault::RedirectLoop, "reject permanent http-302", "reject permanent http-302", 0),
    ];
    let with = json!({"name": "Ada"});
    for (fault, other, natural, applied) in table {
        for class in [EffectClass::Natural, EffectClass::Keyed, EffectClass::Verifiable, EffectClass::Blind] {
            let faults = FaultPlan::scripted([Scripted::first(1, fault.clone())]);
            let sink = Sink::start(SinkSettings { faults, ..SinkSettings::default() }).unwrap();
            let rules = vec![rule(409, FailureAction::Reject(FailureClass::Permanent))];
            let (connectors, action) = to_declared(connector("x-faults", bearer(), rules), &sink.url(), class);
            let timeout = if other.ends_with("timeout") { SHORT } else { PATIENT };
            let outcome = connectors.call(call(action, &with, timeout)).await;
            let expected = if class == EffectClass::Natural { natural } else { other };
            assert_eq!(brief(&outcome), expected, "{fault:?} {class:?} {outcome:?}");
            assert_eq!((sink.truth().requests, sink.truth().applied), (1, applied), "{fault:?}: sent exactly once");
        }
    }
}

#[tokio::test]
async fn read_back_finds_an_applied_effect_and_no_other() {
    let sink = Sink::start(SinkSettings::default()).unwrap();
    let (connectors, action) = to_declared(connector("x-read", bearer(), vec![]), &sink.url(), EffectClass::Verifiable);
    let (ada, bob) = (json!({"name": "Ada"}), json!({"name": "Bob"}));
    assert_eq!(connectors.read_back(call(action, &ada, PATIENT)).await, Readback::Absent);
    let outcome = connectors.call(call(action, &ada, PATIENT)).await;
    assert!(matches!(&outcome, Outcome::Done { result } if result["status"] == 201), "{outcome:?}");
    assert!(matches!(connectors.read_back(call(action, &ada, PATIENT)).await, Readback::Present(_)));
    assert_eq!(connectors.read_back(call(action, &bob, PATIENT)).await, Readback::Absent);
}

#[tokio::test]
async fn job_that_waits_while_its_connector_is_changed_is_sent_as_it_was_accepted() {
    let sink = Sink::start(SinkSettings::default()).unwrap();
    let (_, accepted) = to_declared(connector("x-changed", bearer(), vec![]), &sink.url(), EffectClass::Verifiable);
    let changed = Connector {
        source: "x-changed, corrected".to_owned(),
        actions: vec![action(EffectClass::Natural)],
        ..connector("x-changed", bearer(), vec![])
    };
    let (connectors, _) = to_declared(changed, &sink.url(), EffectClass::Natural);
    let with = json!({"name": "Ada"});
    assert_eq!(brief(&connectors.call(call(accepted, &with, PATIENT)).await), "done");
    assert!(matches!(connectors.read_back(call(accepted, &with, PATIENT)).await, Readback::Present(_)));
    let (_, other) = to_declared(connector("x-other", bearer(), vec![]), &sink.url(), EffectClass::Natural);
    let outcome = connectors.call(call(other, &with, PATIENT)).await;
    assert_eq!(brief(&outcome), "reject mapping wrong-destination");
}

#[tokio::test]
async fn value_that_the_event_lacks_sends_nothing() {
    let sink = Sink::start(SinkSettings::default()).unwrap();
    let (connectors, action) = to_declared(connector("x-lacks", bearer(), vec![]), &sink.url(), EffectClass::Blind);
    for with in [json!({}), json!({"name": null}), json!({"name": " "})] {
        let outcome = connectors.call(call(action, &with, PATIENT)).await;
        assert_eq!(brief(&outcome), "reject identity no-value");
    }
    let outcome = connectors.call(call(action, &json!({"name": ["Ada"]}), PATIENT)).await;
    assert_eq!(brief(&outcome), "reject mapping invalid-parameter");
    assert_eq!(sink.truth().requests, 0);
}

#[tokio::test]
async fn secret_that_the_provider_quotes_is_masked() {
    let echo = RawServer::start(|mut stream| async move {
        let request = read_request(&mut stream).await;
        let body = format!("no: {}", request.replace("\r\n", " "));
        let response = format!("HTTP/1.1 400 No\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let _ = stream.write_all(response.as_bytes()).await;
    })
    .await;
    let (connectors, action) = to_declared(connector("x-echo", bearer(), vec![]), &echo.url(), EffectClass::Blind);
    let with = json!({"name": "Lovelace"});
    let outcome = connectors.call(call(action, &with, PATIENT)).await;
    let message = &outcome.failure().unwrap().message;
    assert!(!message.contains("hunter2-token") && !message.contains("Lovelace"), "{message}");
    let preview = connectors.preview(&call(action, &with, PATIENT)).unwrap();
    assert!(!format!("{preview:?} {connectors:?}").contains("hunter2-token"), "{preview:?}");
}

#[tokio::test]
async fn refused_token_is_fetched_again_once() {
    // Tokens are numbered; the provider refuses every token below the second one.
    let tokens = Arc::new(AtomicUsize::new(0));
    let issued = tokens.clone();
    let server = RawServer::start(move |mut stream| {
        let issued = issued.clone();
        async move {
            let request = read_request(&mut stream).await;
            let (status, body): (&str, Value) = if request.starts_with("POST /token") {
                assert!(request.ends_with("grant_type=client_credentials&client_secret=hunter2-token"), "{request}");
                ("200 OK", json!({"access_token": format!("t{}", issued.fetch_add(1, Ordering::SeqCst) + 1)}))
            } else if request.contains("authorization: Bearer t2") {
                ("200 OK", json!({}))
            } else {
                ("401 No", json!({}))
            };
            let body = body.to_string();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    })
    .await;
    let oauth = OAuth {
        grant: Grant::ClientCredentials,
        token_url: text(&format!("{}/token", server.url())),
        form: vec![("client_secret".to_owned(), text("{{ destination.token }}"))],
        scheme: "Bearer".to_owned(),
        assertion: None,
    };
    let declared = connector("x-oauth", ConnectorAuth::OAuth(Box::new(oauth)), vec![rule(401, FailureAction::Refresh)]);
    let (connectors, action) = to_declared(declared, &server.url(), EffectClass::Natural);
    let with = json!({"name": "Ada"});
    assert_eq!(brief(&connectors.call(call(action, &with, PATIENT)).await), "done");
    assert_eq!(tokens.load(Ordering::SeqCst), 2);
    assert_eq!(brief(&connectors.call(call(action, &with, PATIENT)).await), "done");
    assert_eq!(tokens.load(Ordering::SeqCst), 2, "the token is cached");
}
