//! Learned shapes of payloads are kept with the last event that was looked at, and departures are accepted by operators.

use serde_json::{Value, json};
use sluice_domain::drift::{ByNameAlone, LEARNED_AFTER, PayloadSample, Shape};
use sluice_ledger::{AcceptDrift, KeepShapes, ShapeRecord};

use crate::driver::{Driver, at, open};

fn learn(shape: &mut Shape, payload: &Value, times: u64) {
    for _ in 0..times {
        shape.learn(PayloadSample { payload, at: at(1), personal: &ByNameAlone });
    }
}

/// A learned shape with one open notice about `utm`.
fn drifting() -> Shape {
    let mut shape = Shape::default();
    learn(&mut shape, &json!({"id": 1}), LEARNED_AFTER);
    learn(&mut shape, &json!({"id": 1, "utm": "x"}), 1);
    shape
}

fn record(source: &str, event_type: &str, version: u64, shape: Shape) -> ShapeRecord {
    ShapeRecord { source: source.into(), event_type: event_type.into(), version, shape }
}

fn accept(source: &str, event_type: Option<&str>, path: Option<&str>) -> AcceptDrift {
    AcceptDrift {
        source: source.into(),
        event_type: event_type.map(str::to_owned),
        path: path.map(str::to_owned),
        actor: "ann".into(),
        reason: "agreed".into(),
        at: at(2),
    }
}

pub(crate) async fn shapes_are_kept_with_the_last_event_that_was_looked_at<D: Driver>() {
    let fixture = open::<D>();
    assert_eq!(fixture.ledger.payloads_seen().await.unwrap(), None);
    let first = KeepShapes { after: None, seen: 7, shapes: vec![record("website", "lead", 0, drifting())] };
    assert!(fixture.ledger.keep_shapes(first.clone()).await.unwrap());
    assert!(!fixture.ledger.keep_shapes(first).await.unwrap(), "a repeat changes nothing");
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.ledger.payloads_seen().await.unwrap(), Some(7));
    assert_eq!(fixture.ledger.shapes(None).await.unwrap(), [record("website", "lead", 1, drifting())]);
    let stale = KeepShapes { after: Some(7), seen: 9, shapes: vec![record("website", "lead", 0, drifting())] };
    assert!(!fixture.ledger.keep_shapes(stale).await.unwrap());
    let shapes = vec![record("shop", "order", 0, Shape::default()), record("website", "lead", 1, Shape::default())];
    assert!(fixture.ledger.keep_shapes(KeepShapes { after: Some(7), seen: 9, shapes }).await.unwrap());
    let seen: Vec<(String, u64)> =
        fixture.ledger.shapes(None).await.unwrap().into_iter().map(|record| (record.source, record.version)).collect();
    assert_eq!(seen, [("shop".to_owned(), 1), ("website".to_owned(), 2)]);
    assert_eq!(fixture.ledger.shapes(Some("shop".into())).await.unwrap().len(), 1);
}

pub(crate) async fn an_accepted_departure_is_the_new_normal_and_in_the_audit_trail<D: Driver>() {
    let fixture = open::<D>();
    let shapes = vec![record("website", "lead", 0, drifting()), record("website", "order", 0, drifting())];
    assert!(fixture.ledger.keep_shapes(KeepShapes { after: None, seen: 1, shapes }).await.unwrap());
    assert_eq!(fixture.ledger.drifting_sources().await.unwrap(), [("website".to_owned(), 2)]);
    for nothing in
        [accept("shop", None, None), accept("website", Some("other"), None), accept("website", None, Some("id"))]
    {
        assert_eq!(fixture.ledger.accept_drift(nothing).await.unwrap(), 0);
    }
    let page = sluice_ledger::Page { after: None, limit: 10 };
    assert_eq!(fixture.ledger.audit_trail(page).await.unwrap().len(), 0);
    assert_eq!(fixture.ledger.accept_drift(accept("website", Some("lead"), Some("utm"))).await.unwrap(), 1);
    assert_eq!(fixture.ledger.drifting_sources().await.unwrap(), [("website".to_owned(), 1)]);
    let stale = KeepShapes { after: Some(1), seen: 2, shapes: vec![record("website", "lead", 1, drifting())] };
    assert!(!fixture.ledger.keep_shapes(stale).await.unwrap(), "what was learned before is learned again");
    assert_eq!(fixture.ledger.accept_drift(accept("website", None, None)).await.unwrap(), 1);
    assert_eq!(fixture.ledger.accept_drift(accept("website", None, None)).await.unwrap(), 0);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.ledger.drifting_sources().await.unwrap(), []);
    let audit = fixture.ledger.audit_trail(page).await.unwrap();
    let line = |n: usize| {
        (audit[n].actor.as_str(), audit[n].action.as_str(), audit[n].object.as_str(), audit[n].detail.as_str())
    };
    assert_eq!(audit.len(), 2);
    assert_eq!(line(1), ("ann", "accept", "shape:website:lead:utm", "agreed"));
    assert_eq!(line(0), ("ann", "accept", "shape:website", "agreed"));
}
