//! `http.request` against the simulated sink.

use serde_json::json;
use sluice_connectors::Call;
use sluice_domain::outcome::{Outcome, Readback};
use sluice_simulator::faults::{Moment, RetryAfter, Scripted};
use sluice_simulator::{Fault, FaultPlan, Sink, SinkSettings};

use crate::raw::{RawServer, unused_address};
use crate::{PATIENT, SHORT, brief, request, to_http};

fn sink(fault: Fault) -> Sink {
    Sink::start(SinkSettings { faults: FaultPlan::scripted([Scripted::first(1, fault)]), ..SinkSettings::default() })
        .unwrap()
}

#[tokio::test]
async fn request_arrives_with_all_its_parts() {
    let sink = Sink::start(SinkSettings::default()).unwrap();
    let connectors = to_http(&sink.url());
    let with = json!({"url": "/hook", "query": {"q": "a b"}, "headers": {"X-A": "1"}, "json": {"name": "Ö"}});
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let call = Call { traceparent: Some(traceparent), ..request(&with, PATIENT) };
    let outcome = connectors.call(call).await;
    assert!(matches!(&outcome, Outcome::Done { result } if result["status"] == 200), "{outcome:?}");
    let received = &sink.requests()[0];
    assert_eq!((received.method.as_str(), received.target.as_str()), ("POST", "/hook?q=a%20b"));
    assert_eq!(received.body, r#"{"name":"Ö"}"#);
    let header = |name: &str| received.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    assert_eq!(header("idempotency-key"), Some("effect-1"));
    assert_eq!(header("traceparent"), Some(traceparent));
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("content-length"), Some("13"));
    assert_eq!(header("transfer-encoding"), None);
    assert_eq!(header("x-a"), Some("1"));
}

#[tokio::test]
async fn every_fault_of_the_sink_has_its_outcome() {
    let hold = 60_000;
    let table = [
        (Fault::TimeoutBefore { hold_ms: hold }, "unsure retryable timeout", 0),
        (Fault::TimeoutAfter { hold_ms: hold }, "unsure retryable timeout", 1),
        (Fault::DropBefore, "unsure retryable reset", 0),
        (Fault::DropAfter, "unsure retryable reset", 1),
        (Fault::CutResponse, "unsure retryable truncated", 1),
        (Fault::ErrorBefore, "unsure retryable http-500", 0),
        (Fault::ErrorAfter, "unsure retryable http-500", 1),
        (Fault::Gateway { status: 502, moment: Moment::AfterApplying }, "unsure retryable http-502", 1),
        (Fault::Gateway { status: 504, moment: Moment::BeforeApplying }, "unsure retryable http-504", 0),
        (Fault::ServerUnavailable, "retry retryable http-503", 0),
        (Fault::LockRow, "retry conflict http-423", 0),
        (Fault::DuplicateValue, "retry conflict http-409", 0),
        (Fault::InvalidSession, "reject auth http-401", 0),
        (Fault::RequestLimitExceeded, "reject auth http-403", 0),
        (Fault::TooManyRequests { retry_after: RetryAfter::Absent }, "wait retryable http-429", 0),
        (Fault::RedirectLoop, "reject permanent http-302", 0),
        (Fault::HugeBody { bytes: 1 << 30 }, "done", 1),
        (Fault::GarbageBody { moment: Moment::AfterApplying }, "done", 1),
    ];
    let with = json!({"url": "/hook", "json": {"a": 1}});
    for (fault, expected, applied) in table {
        let sink = sink(fault.clone());
        let connectors = to_http(&sink.url());
        let timeout = if expected.ends_with("timeout") { SHORT } else { PATIENT };
        let outcome = connectors.call(request(&with, timeout)).await;
        assert_eq!(brief(&outcome), expected, "{fault:?} {outcome:?}");
        let truth = sink.truth();
        assert_eq!((truth.requests, truth.applied), (1, applied), "{fault:?}: sent exactly once");
    }
}

#[tokio::test]
async fn retry_after_is_passed_on() {
    let table = [
        (RetryAfter::Seconds(7), Some(7..=7)),
        (RetryAfter::HttpDate(90), Some(85..=91)),
        (RetryAfter::Absent, None),
        (RetryAfter::Absurd, Some(100_000..=u64::from(u32::MAX))),
    ];
    let with = json!({"url": "/hook", "json": {}});
    for (retry_after, expected) in table {
        let sink = sink(Fault::TooManyRequests { retry_after });
        let Outcome::Wait { after, .. } = to_http(&sink.url()).call(request(&with, PATIENT)).await else {
            panic!("{retry_after:?} is not a wait")
        };
        let seconds = after.map(|after| after.as_secs());
        assert_eq!(seconds.is_some(), expected.is_some(), "{retry_after:?}");
        assert!(expected.is_none_or(|range| range.contains(&seconds.unwrap())), "{retry_after:?} {seconds:?}");
    }
}

#[tokio::test]
async fn every_attempt_sends_the_same_key() {
    let plan = FaultPlan::scripted([Scripted::first(1, Fault::DropAfter), Scripted::first(1, Fault::ErrorBefore)]);
    let sink = Sink::start(SinkSettings {
        faults: plan,
        keys: sluice_simulator::sink::KeyPolicy::Honour,
        ..SinkSettings::default()
    })
    .unwrap();
    let connectors = to_http(&sink.url());
    let with = json!({"url": "/hook", "idempotency_header": "Idempotency-Key", "json": {"a": 1}});
    let mut outcomes = Vec::new();
    for attempt in 1..=3 {
        outcomes.push(brief(&connectors.call(Call { attempt, ..request(&with, PATIENT) }).await));
    }
    assert_eq!(outcomes.last().unwrap(), "done", "{outcomes:?}");
    let keys = sink.keys();
    assert_eq!(keys.len(), 1);
    assert_eq!((keys["effect-1"].requests, keys["effect-1"].applied), (3, 1));
    let bodies: Vec<String> = sink.requests().into_iter().map(|received| received.body).collect();
    assert!(bodies.iter().all(|body| body == &bodies[0]));
}

#[tokio::test]
async fn verify_distinguishes_present_absent_and_unreadable() {
    let sink = Sink::start(SinkSettings::default()).unwrap();
    let present = RawServer::responding("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    let absent = RawServer::responding("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
    let broken = RawServer::responding("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n").await;
    let refused = format!("http://{}", unused_address().await);
    let read = async |base: &str| {
        let with = json!({"url": "/hook", "json": {}, "verify": {"url": "/seen/1", "headers": {"X-A": "1"}}});
        to_http(base).read_back(request(&with, PATIENT)).await
    };
    assert!(matches!(read(&present.url()).await, Readback::Present(value) if value["body"] == json!({})));
    assert_eq!(read(&absent.url()).await, Readback::Absent);
    assert!(matches!(read(&broken.url()).await, Readback::Unreadable(failure) if failure.code == "http-500"));
    assert!(matches!(read(&refused).await, Readback::Unreadable(failure) if failure.code == "connect"));
    let none = to_http(&sink.url()).read_back(request(&json!({"url": "/x"}), PATIENT)).await;
    assert!(matches!(none, Readback::Unreadable(failure) if failure.code == "no-verify"));
}

#[tokio::test]
async fn invalid_calls_are_rejected_without_a_request() {
    let sink = Sink::start(SinkSettings::default()).unwrap();
    let connectors = to_http(&sink.url());
    let mapping = connectors.call(request(&json!({"method": "GET"}), PATIENT)).await;
    assert_eq!(brief(&mapping), "reject mapping invalid-parameter");
    let with = json!({"url": "/"});
    let missing = connectors.call(Call { destination: "nowhere", ..request(&with, PATIENT) }).await;
    assert_eq!(brief(&missing), "reject mapping no-destination");
    let wrong = connectors.call(crate::call(sluice_domain::action::Action::SalesforceUpsert, &with, PATIENT)).await;
    assert_eq!(brief(&wrong), "reject mapping wrong-destination");
    assert_eq!(sink.truth().requests, 0);
}

#[tokio::test]
async fn sixty_four_concurrent_calls_succeed() {
    let sink = Sink::start(SinkSettings::default()).unwrap();
    let connectors = to_http(&sink.url());
    for _ in 0..3 {
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let connectors = connectors.clone();
            calls.spawn(async move {
                let with = json!({"url": "/hook", "json": {"a": 1}});
                brief(&connectors.call(request(&with, PATIENT)).await)
            });
        }
        assert!(calls.join_all().await.iter().all(|outcome| outcome == "done"));
    }
    assert_eq!(sink.truth().applied, 192);
}
