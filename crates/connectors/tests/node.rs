//! HTTP client for a node: errors that it distinguishes, and credentials that it does not print.

#![allow(clippy::unwrap_used)]

use sluice_connectors::node_client::{NodeClient, NodeError, RawRequest};
use sluice_domain::verify::SecretValue;
use sluice_simulator::faults::Moment;
use sluice_simulator::{Fault, FaultPlan, Sink, SinkSettings};

fn sink(faults: FaultPlan) -> Sink {
    Sink::start(SinkSettings { faults, ..SinkSettings::default() }).unwrap()
}

#[tokio::test]
async fn requests_carry_the_token() {
    let sink = sink(FaultPlan::none());
    let token = SecretValue::from("admin-token-4711");
    let client = NodeClient::new(&format!("{}/", sink.url()), Some(&token)).unwrap();
    assert!(!format!("{client:?}").contains("4711"), "{client:?}");
    client.get("/api/v1/jobs", &[("state", "dead,unknown".into()), ("code", "a b&c".into())]).await.unwrap();
    client.post("/api/v1/pause", &serde_json::json!({"target": "source:x"})).await.unwrap();
    let received = sink.requests();
    assert_eq!(received[0].target, "/api/v1/jobs?state=dead%2Cunknown&code=a+b%26c");
    assert_eq!((received[1].method.as_str(), received[1].body.as_str()), ("POST", r#"{"target":"source:x"}"#));
    for request in received {
        assert!(request.headers.contains(&("authorization".into(), "Bearer admin-token-4711".into())), "{request:?}");
    }
}

#[tokio::test]
async fn unreachable_unknown_server_and_error_response_are_distinguished() {
    let sink = sink(FaultPlan::always(Fault::ErrorBefore));
    let client = NodeClient::new(&sink.url(), None).unwrap();
    let refused = client.get("/x", &[]).await.unwrap_err();
    assert!(matches!(refused, NodeError::Refused { status: 500, .. }), "{refused:?}");
    sink.set_faults(FaultPlan::always(Fault::GarbageBody { moment: Moment::BeforeApplying })).unwrap();
    let unknown = client.get("/x", &[]).await.unwrap_err();
    assert!(matches!(unknown, NodeError::NotANode { .. }), "{unknown:?}");
    sink.refuse_connections().unwrap();
    let unreachable = client.get("/x", &[]).await.unwrap_err();
    assert!(matches!(unreachable, NodeError::Unreachable { .. }), "{unreachable:?}");
    for address in ["localhost:8081", "ftp://x", "nonsense", ""] {
        let error = NodeClient::new(address, None).unwrap_err();
        assert!(matches!(error, NodeError::Address { .. }), "{address}: {error:?}");
    }
}

#[tokio::test]
async fn raw_request_arrives_unchanged_and_debug_output_omits_its_headers() {
    let sink = sink(FaultPlan::none());
    let request = |headers| RawRequest { method: "POST", url: "", headers, body: b"{\"a\": 1}".to_vec() };
    let headers = vec![("x-signature".to_owned(), SecretValue::from("sha256=4711"))];
    assert!(!format!("{:?}", request(headers.clone())).contains("4711"));
    let url = format!("{}/in/website", sink.url());
    let response = NodeClient::send(RawRequest { url: &url, ..request(headers) }).await.unwrap();
    assert_eq!((response.status, response.body.as_slice()), (200, &b"{\"ok\":true}"[..]));
    let received = &sink.requests()[0];
    assert_eq!((received.target.as_str(), received.body.as_str()), ("/in/website", "{\"a\": 1}"));
    assert!(received.headers.contains(&("x-signature".into(), "sha256=4711".into())), "{received:?}");
    let bad = vec![("no name".to_owned(), SecretValue::from("x"))];
    let error = NodeClient::send(RawRequest { url: &url, ..request(bad) }).await.unwrap_err();
    assert!(matches!(error, NodeError::Request(_)), "{error:?}");
}
