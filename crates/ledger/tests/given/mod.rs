//! What the tests of the ledger hand in.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sluice_domain::key::KeyDigest;
use sluice_domain::time::Time;
use sluice_ledger::{Clock, EventBody, NewEvent, NewJob};

/// 2026-03-01T00:00:00Z: when every test begins.
pub const START: Time = Time(1_772_323_200_000);
pub const DAY: i64 = 24 * 60 * 60 * 1000;

/// A clock that stands still until it is moved.
#[derive(Clone)]
pub struct StillClock(Arc<AtomicI64>);

impl StillClock {
    pub fn new() -> StillClock {
        StillClock(Arc::new(AtomicI64::new(START.0)))
    }

    pub fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }

    pub fn advance(&self, millis: i64) -> Time {
        Time(self.0.fetch_add(millis, Ordering::SeqCst) + millis)
    }

    pub fn for_ledger(&self) -> Clock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

/// An event with one job for the worker `crm`. Its key is remembered for thirty days.
pub fn event(key: &str) -> NewEvent {
    NewEvent {
        key: KeyDigest::new("tenant", "leads", key),
        key_text: key.to_owned(),
        expires_at: Time(START.0 + 30 * DAY),
        flow: "leads".into(),
        source: "website".into(),
        event_type: "lead.created".into(),
        entity: 7,
        received_at: START,
        occurred_at: None,
        verified_by: Some("primary".into()),
        revision: "r1".into(),
        trace: format!("trace of {key}"),
        fingerprint: [1; 16],
        body: Arc::new(EventBody {
            headers: "{}".into(),
            raw: format!("raw {key}").into_bytes(),
            normalized: format!("{{\"key\":\"{key}\"}}"),
        }),
        jobs: vec![NewJob { worker: "crm".into(), queue: "default".into() }],
    }
}
