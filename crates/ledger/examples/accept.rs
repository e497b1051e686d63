//! Accepts a number of events, to count what one costs: instructions under callgrind, pages of the log by its own output.
//!
//! `accept EVENTS SENDERS PERSONS`: each of the senders accepts one event at a time; the events are about as many persons in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_domain::key::KeyDigest;
use sluice_domain::run::StepRoute;
use sluice_domain::time::Time;
use sluice_domain::worker::LaneOrder;
use sluice_ledger::{EventBody, Ledger, LedgerOptions, NewEvent, NewJob};

#[allow(dead_code, clippy::unwrap_used)]
#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

const HEADERS: &str =
    r#"{"host":"127.0.0.1","user-agent":"sluice-harness","content-type":"application/json","content-length":"512"}"#;

/// An event as the intake of the benchmarks prepares it.
fn lead(number: u64, persons: u64) -> NewEvent {
    let key_text = format!("evt_{number:012}");
    let raw = format!(
        r#"{{"event_id":"{key_text}","lead_id":"L-{number:012}","occurred_at":"2026-03-01T00:00:00Z","email":"lead-{}@example.com","first_name":"Ada","last_name":"Lovelace","company":"Analytical Engines","note":"{}"}}"#,
        number % persons,
        "x".repeat(280)
    );
    let normalized = format!(
        r#"{{"schema_version":"1.0","event_type":"lead.created","event_id":"{key_text}","idempotency_key":"{key_text}","source":"website","occurred_at":"2026-03-01T00:00:00Z","identity":{{"contact_external_id":"{key_text}","email":"lead-{}@example.com"}},"attributes":{{"first_name":"Ada","last_name":"Lovelace","company":"Analytical Engines"}},"audit":{{"received_at":"2026-03-01T00:00:00.000Z","raw_payload_ref":"evt_0123456789abcdefghijklmnop"}}}}"#,
        number % persons
    );
    let route = StepRoute { destination: "sink".into(), order: LaneOrder::Fifo };
    NewEvent {
        key: KeyDigest::new("default", "website-leads", &key_text),
        flow: "website-leads".into(),
        entity: number,
        occurred_at: Some(fixtures::START),
        revision: "0123456789abcdef".into(),
        trace: format!("{number:016x}{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        fingerprint: u128::from(number).to_le_bytes(),
        body: Arc::new(EventBody {
            headers: HEADERS.into(),
            raw: raw.into_bytes(),
            normalized,
            ..EventBody::default()
        }),
        jobs: vec![NewJob::new("lead-to-sink", "leads").routed(route)],
        contact: Some(KeyDigest::new("default", "contact", &(number % persons).to_string())),
        key_text,
        ..fixtures::event("lead")
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let mut next = |default: u64| arguments.next().unwrap_or(default);
    let (events, senders, persons) = (next(20_000), next(64), next(64).max(1));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock: sluice_ledger::ClockFn = Arc::new(|| Time(fixtures::START.0));
    let options = LedgerOptions::quiet(clock).with_root_key(fixtures::root_key());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let ledger = Ledger::open(directory.path(), options).expect("a ledger");
        let next = Arc::new(AtomicU64::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..senders {
            let (ledger, next) = (ledger.clone(), next.clone());
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= events {
                        return;
                    }
                    ledger.accept(lead(number, persons)).await.expect("an acceptance");
                }
            });
        }
        while tasks.join_next().await.is_some() {}
        let stats = ledger.stats();
        let batches = stats.batches.load(Ordering::Relaxed);
        let operations = stats.operations.load(Ordering::Relaxed);
        println!("{operations} events in {batches} commits, {:.1} each", operations as f64 / batches.max(1) as f64);
        let log = std::fs::metadata(directory.path().join("ledger.db-wal")).map_or(0, |log| log.len());
        println!("{} bytes of log per event, if it was not reset", log / operations.max(1));
        ledger.close().await;
    });
}
