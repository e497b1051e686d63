//! A crash at every step of a playbook that sets a mark and then sends.
//!
//! The process is stopped with the job accepted, the ledger is taken to exactly one point between two writes, and the next
//! start has to go on from there.

use std::sync::Arc;

use serde_json::json;
use sluice_domain::job::{EffectKey, EffectState, JobId};
use sluice_domain::key::{KeyDigest, TENANT};
use sluice_domain::outcome::EffectClass;
use sluice_domain::time::Time;
use sluice_ledger::{Begin, BeginResult, CappedBeginResult, Fence, JobRecord, Ledger, LedgerOptions, Mark, StepResult};
use sluice_server::root_key;

use crate::fixture::{World, lead_of};

const PLAYBOOK: &str = r#"
version: 1
name: to-sink
consumes: { queue: leads }
retry: { base_delay: 10ms, max_delay: 50ms, max_attempts: 5 }
run:
  - { id: key, run: utils.compute_dedup_key, with: { fields: [contact_external_id] } }
  - { id: mark, run: store.setnx, with: { key: "{{ steps.key.output.key }}", ttl: 45m } }
  - id: send
    if: steps.mark.output.set
    run: http.request
    destination: sink
    with: CLASS
"#;

const KEYED: &str = "{ url: /send, idempotency_header: Idempotency-Key, json: {} }";
const BLIND: &str = "{ url: /send, json: {} }";

/// Where the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Accepted,
    MarkSet,
    IntentWritten,
}

async fn at_point(world: &World, job: &JobRecord, event: sluice_domain::event::EventId, point: Point) {
    let clock: sluice_ledger::ClockFn = Arc::new(|| Time::from(jiff::Timestamp::now()));
    let data = world.settings().data;
    let options = LedgerOptions::quiet(clock.clone()).with_root_key(root_key::find(&data).unwrap());
    let ledger = Ledger::open(&data, options).unwrap();
    let key = |step: &str| EffectKey::new(event, "to-sink", step);
    let fence = Fence { owner: ledger.term(), expected: job.term };
    if point != Point::Accepted {
        let result = StepResult {
            fence,
            job: job.id,
            n: 0,
            step: 1,
            step_id: "mark".into(),
            key: key("mark"),
            action: "store.setnx",
            state: EffectState::Applied,
            result: json!(null),
            warning: None,
            at: clock(),
        };
        let mark = Mark {
            store: "default".into(),
            key: KeyDigest::new(TENANT, "mark:default", "website:ada"),
            adjacent: vec![],
            event,
            expires_at: Time(clock().0 + 2_700_000),
            result,
        };
        assert!(ledger.set_mark(mark).await.unwrap().unwrap().set);
    }
    if point == Point::IntentWritten {
        let class = if world.config_path("keyed").exists() { EffectClass::Keyed } else { EffectClass::Blind };
        let begin = Begin {
            identity: None,
            fence,
            job: job.id,
            n: 1,
            step: 2,
            step_id: "send".into(),
            key: key("send"),
            class,
            action: "http.request",
            destination: "sink".into(),
            at: clock(),
        };
        assert_eq!(ledger.begin(begin, vec![]).await.unwrap(), CappedBeginResult::Begun(BeginResult::Go));
    }
    ledger.close().await;
}

async fn crash_at(with: &str, point: Point) -> (String, String, u64) {
    let mut world = World::start_with_worker(&PLAYBOOK.replace("CLASS", with)).await;
    if with == KEYED {
        std::fs::write(world.config_path("keyed"), "").unwrap();
    }
    world.act("/api/v1/pause", json!({ "target": "worker:to-sink", "reason": "to stop here" })).await;
    let event = world.post(&lead_of("a", "ada")).await.event();
    let id = world.get(&format!("/api/v1/events/{event}")).await["jobs"][0]["id"].as_str().unwrap().to_owned();
    world.stop_node().await;
    let record = record(&world, JobId::parse(&id).unwrap()).await;
    at_point(&world, &record, sluice_domain::event::EventId::parse(&event).unwrap(), point).await;
    world.start_node().await;
    world.act("/api/v1/resume", json!({ "target": "worker:to-sink" })).await;
    let first = world.settled(&event).await[0]["state"].as_str().unwrap().to_owned();
    // Another event about the same finds the mark set, wherever the crash was.
    let repeat = world.post(&lead_of("b", "ada")).await.event();
    let second = world.settled(&repeat).await[0]["state"].as_str().unwrap().to_owned();
    (first, second, world.sink.truth().applied)
}

async fn record(world: &World, id: JobId) -> JobRecord {
    let clock: sluice_ledger::ClockFn = Arc::new(|| Time::from(jiff::Timestamp::now()));
    let data = world.settings().data;
    let options = LedgerOptions::quiet(clock).with_root_key(root_key::find(&data).unwrap());
    let ledger = Ledger::open(&data, options).unwrap();
    let job = ledger.job(id).await.unwrap().unwrap();
    ledger.close().await;
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_process_dies_a_keyed_effect_happens_once() {
    for point in [Point::Accepted, Point::MarkSet, Point::IntentWritten] {
        let (first, second, applied) = crash_at(KEYED, point).await;
        assert_eq!((first.as_str(), second.as_str(), applied), ("succeeded", "noop", 1), "{point:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_process_dies_a_blind_effect_is_never_sent_twice() {
    for (point, state, sent) in [(Point::MarkSet, "succeeded", 1), (Point::IntentWritten, "unknown", 0)] {
        let (first, second, applied) = crash_at(BLIND, point).await;
        assert_eq!((first.as_str(), second.as_str(), applied), (state, "noop", sent), "{point:?}");
    }
}
