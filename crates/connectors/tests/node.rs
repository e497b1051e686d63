//! The client that the command line speaks to a node through: what it tells apart, and what it keeps to itself.

#![allow(clippy::unwrap_used)]

use sluice_connectors::node_client::{NodeClient, NodeError, Posting};
use sluice_domain::verify::SecretValue;
use sluice_simulator::faults::Moment;
use sluice_simulator::{Fault, FaultPlan, Sink, SinkSettings};

fn sink(faults: FaultPlan) -> Sink {
    Sink::start(SinkSettings { faults, ..SinkSettings::default() }).unwrap()
}

#[tokio::test]
async fn questions_and_orders_carry_the_token() {
    let sink = sink(FaultPlan::none());
    let token = SecretValue::from("admin-token-4711");
    let client = NodeClient::new(&format!("{}/", sink.url()), Some(&token)).unwrap();
    assert!(!format!("{client:?}").contains("4711"), "{client:?}");
    client.get("/api/v1/jobs", &[("state", "dead,unknown".into()), ("code", "a b&c".into())]).await.unwrap();
    client.post("/api/v1/pause", &serde_json::json!({"target": "source:x"})).await.unwrap();
    let seen = sink.requests();
    assert_eq!(seen[0].target, "/api/v1/jobs?state=dead%2Cunknown&code=a+b%26c");
    assert_eq!((seen[1].method.as_str(), seen[1].body.as_str()), ("POST", r#"{"target":"source:x"}"#));
    for request in seen {
        assert!(request.headers.contains(&("authorization".into(), "Bearer admin-token-4711".into())), "{request:?}");
    }
}

#[tokio::test]
async fn nobody_a_stranger_and_a_refusal_are_told_apart() {
    let sink = sink(FaultPlan::always(Fault::ErrorBefore));
    let client = NodeClient::new(&sink.url(), None).unwrap();
    let refused = client.get("/x", &[]).await.unwrap_err();
    assert!(matches!(refused, NodeError::Refused { status: 500, .. }), "{refused:?}");
    sink.set_faults(FaultPlan::always(Fault::GarbageBody { moment: Moment::BeforeApplying })).unwrap();
    let stranger = client.get("/x", &[]).await.unwrap_err();
    assert!(matches!(stranger, NodeError::NotANode { .. }), "{stranger:?}");
    sink.refuse_connections().unwrap();
    let nobody = client.get("/x", &[]).await.unwrap_err();
    assert!(matches!(nobody, NodeError::Unreachable { .. }), "{nobody:?}");
    for address in ["localhost:8081", "ftp://x", "nonsense", ""] {
        let error = NodeClient::new(address, None).unwrap_err();
        assert!(matches!(error, NodeError::Address { .. }), "{address}: {error:?}");
    }
}

#[tokio::test]
async fn a_posting_arrives_as_it_is_and_its_headers_are_not_printed() {
    let sink = sink(FaultPlan::none());
    let posting = |headers| Posting { method: "POST", url: "", headers, body: b"{\"a\": 1}".to_vec() };
    let headers = vec![("x-signature".to_owned(), SecretValue::from("sha256=4711"))];
    assert!(!format!("{:?}", posting(headers.clone())).contains("4711"));
    let url = format!("{}/in/website", sink.url());
    let answer = NodeClient::send(Posting { url: &url, ..posting(headers) }).await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"{\"ok\":true}"[..]));
    let seen = &sink.requests()[0];
    assert_eq!((seen.target.as_str(), seen.body.as_str()), ("/in/website", "{\"a\": 1}"));
    assert!(seen.headers.contains(&("x-signature".into(), "sha256=4711".into())), "{seen:?}");
    let bad = vec![("no name".to_owned(), SecretValue::from("x"))];
    let error = NodeClient::send(Posting { url: &url, ..posting(bad) }).await.unwrap_err();
    assert!(matches!(error, NodeError::Request(_)), "{error:?}");
}
