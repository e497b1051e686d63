//! The sink over real sockets.

mod support;

use sluice_simulator::faults::Scripted;
use sluice_simulator::sink::{KeyCounts, KeyPolicy, SinkTruth};
use sluice_simulator::{Fault, FaultPlan, Sink, SinkSettings};
use support::{Client, RequestError, soon};

fn sink(settings: SinkSettings) -> (Sink, Client) {
    let sink = Sink::start(settings).expect("the sink starts");
    let client = Client::new(sink.address());
    (sink, client)
}

#[tokio::test]
async fn every_request_is_accepted_and_counted() {
    let (sink, client) = sink(SinkSettings::default());
    for _ in 0..3 {
        let response = client.clone().with("X-Trace", "t1").send("POST", "/hook?a=1", b"{\"n\":1}").await.unwrap();
        assert_eq!((response.status, response.body.as_slice()), (200, b"{\"ok\":true}".as_slice()));
    }
    assert_eq!(client.get("/hook").await.status, 200);
    assert_eq!(sink.paths(), [("GET /hook".to_owned(), 1), ("POST /hook".to_owned(), 3)].into());
    let request = &sink.requests()[0];
    assert_eq!((request.target.as_str(), request.body.as_str()), ("/hook?a=1", "{\"n\":1}"));
    assert!(request.headers.contains(&("x-trace".to_owned(), "t1".to_owned())));
    let truth = sink.truth();
    assert_eq!((truth.requests, truth.settled, truth.applied), (4, 4, 3));
    let over_http: SinkTruth = serde_json::from_slice(&client.get("/sim/truth").await.body).unwrap();
    assert_eq!(over_http, truth);
}

#[tokio::test]
async fn resource_is_stored_read_back_and_deleted() {
    let (sink, client) = sink(SinkSettings { resources_max: 1, ..SinkSettings::default() });
    assert_eq!(client.get("/resource/a%2Fb").await.status, 404);
    assert_eq!(client.send("PUT", "/resource/a%2Fb", b"one").await.unwrap().status, 201);
    assert_eq!(client.send("PUT", "/resource/a%2Fb", b"two").await.unwrap().status, 200);
    assert_eq!(client.get("/resource/a%2Fb").await.body, b"two");
    assert_eq!(sink.resource("a/b").as_deref(), Some(b"two".as_slice()));
    assert_eq!(client.send("POST", "/resource/a%2Fb", b"three").await.unwrap().status, 409);
    assert_eq!(client.send("PUT", "/resource/c", b"").await.unwrap().status, 507);
    assert_eq!(client.send("DELETE", "/resource/a%2Fb", b"").await.unwrap().status, 204);
    assert_eq!(client.send("DELETE", "/resource/a%2Fb", b"").await.unwrap().status, 404);
    assert_eq!(client.send("POST", "/resource/c", b"x").await.unwrap().status, 201);
    assert_eq!((sink.truth().applied, sink.truth().refused), (4, 4));
}

#[tokio::test]
async fn honoured_key_is_applied_once_even_if_the_first_response_is_lost() {
    let faults = FaultPlan::scripted([Scripted::for_key("k", Fault::DropAfter).times(1)]);
    let (sink, client) = sink(SinkSettings { keys: KeyPolicy::Honour, faults, ..SinkSettings::default() });
    let keyed = client.with("Idempotency-Key", "\"k\"");
    assert_eq!(keyed.send("POST", "/resource/r", b"body").await.unwrap_err(), RequestError::NoResponse);
    let duplicate = keyed.clone().with("Idempotency-Key", "k").send("POST", "/resource/r", b"body").await.unwrap();
    assert_eq!(duplicate.status, 201);
    assert_eq!(keyed.send("POST", "/resource/r", b"other").await.unwrap().status, 422);
    assert_eq!(keyed.send("POST", "/resource/elsewhere", b"body").await.unwrap().status, 422);
    assert_eq!(sink.keys(), [("k".to_owned(), KeyCounts { requests: 4, applied: 1 })].into());
    let truth = sink.truth();
    assert_eq!((truth.applied, truth.applied_unseen, truth.replayed, truth.keys_applied_again), (1, 1, 1, 0));
}

#[tokio::test]
async fn ignored_key_counts_the_duplicate_effect() {
    let (sink, client) = sink(SinkSettings::default());
    for _ in 0..2 {
        client.clone().with("Idempotency-Key", "k").send("POST", "/charge", b"1").await.unwrap();
    }
    assert_eq!(sink.truth().keys_applied_again, 1);
    sink.reset();
    assert_eq!(sink.truth(), SinkTruth::default());
}

#[tokio::test]
async fn counting_sink_records_no_keys_paths_or_requests() {
    let count_only = || SinkSettings { remembered_max: 0, requests_kept_max: 0, ..SinkSettings::default() };
    let (sink, client) = sink(count_only());
    for number in 0..10 {
        let client = client.clone().with("Idempotency-Key", &number.to_string());
        client.send("POST", &format!("/{number}"), b"x").await.unwrap();
    }
    assert_eq!((sink.truth().requests, sink.truth().applied, sink.truth().keys), (10, 10, 0));
    assert!(sink.keys().is_empty() && sink.paths().is_empty() && sink.requests().is_empty());
    let honour = SinkSettings { keys: KeyPolicy::Honour, ..count_only() };
    assert_eq!(Sink::start(honour).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}

#[tokio::test]
async fn fault_plans_apply_to_the_sink() {
    for (fault, status, applied) in [
        (Fault::LockRow, 423, 0),
        (Fault::DuplicateValue, 409, 0),
        (Fault::InvalidSession, 401, 0),
        (Fault::ServerUnavailable, 503, 0),
        (Fault::ErrorAfter, 500, 1),
    ] {
        let (sink, client) = sink(SinkSettings { faults: FaultPlan::always(fault.clone()), ..Default::default() });
        assert_eq!(client.send("POST", "/x", b"x").await.unwrap().status, status, "{fault:?}");
        let truth = soon(sink.wait_until(|truth| truth.settled == 1)).await;
        assert_eq!((truth.applied, truth.refused), (applied, 1 - applied), "{fault:?}");
    }
}

#[tokio::test]
async fn body_over_the_limit_is_rejected() {
    let (sink, client) = sink(SinkSettings { body_bytes_max: 10, ..SinkSettings::default() });
    assert_eq!(client.send("POST", "/x", b"01234567890").await.unwrap().status, 413);
    assert_eq!(client.send("POST", "/x", b"0123456789").await.unwrap().status, 200);
    assert_eq!(sink.truth().applied, 1);
}
