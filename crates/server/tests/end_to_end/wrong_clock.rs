//! A clock that is wrong deletes nothing, and an operator says when it is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use sluice_domain::ledger_clock::Steady;
use sluice_domain::time::Time;
use sluice_ledger::Inspector;
use sluice_server::clock::Clock;
use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::{World, lead, until};

const DAY_MS: i64 = 86_400_000;

/// Clocks of a machine that a test sets.
#[derive(Clone, Default)]
struct Machine {
    offset_ms: Arc<AtomicI64>,
    boot: Arc<AtomicU64>,
    readings: Arc<AtomicU64>,
}

impl Machine {
    fn clock(&self) -> Clock {
        let (wall, steady, started) = (self.clone(), self.clone(), std::time::Instant::now());
        let wall = Arc::new(move || {
            wall.readings.fetch_add(1, Ordering::Relaxed);
            Time(Time::from(jiff::Timestamp::now()).0 + wall.offset_ms.load(Ordering::Relaxed))
        });
        let up = Duration::from_secs(86_400);
        let steady =
            Arc::new(move |_| Steady { boot: steady.boot.load(Ordering::Relaxed), elapsed: up + started.elapsed() });
        Clock::with_sources(wall, steady)
    }

    fn set(&self, days: i64) {
        self.offset_ms.store(days * DAY_MS, Ordering::Relaxed);
    }

    /// Several rounds of maintenance: nothing else reads the clock of an idle node as often.
    async fn rounds(&self) {
        let from = self.readings.load(Ordering::Relaxed);
        until(|| async { (self.readings.load(Ordering::Relaxed) > from + 60).then_some(()) }).await;
    }
}

async fn warning(world: &World) -> Option<String> {
    let clock = world.get("/api/v1/clock").await;
    clock["warning"].as_str().map(str::to_owned)
}

/// Three finished events and one dead letter, under a clock that the test sets.
async fn world_with_events(machine: &Machine) -> (World, Vec<String>) {
    let mut world = World::start().await;
    world.stop_node().await;
    world.start_node_with_clock(machine.clock(), Duration::from_millis(5)).await;
    let mut events = Vec::new();
    for name in ["a", "b", "c"] {
        let event = world.post(&lead(name)).await.event();
        assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
        events.push(event);
    }
    world.crm.set_faults(FaultPlan::always(Fault::Reply { code: 400 })).unwrap();
    let dead = world.post(&lead("dead")).await.event();
    assert_eq!(world.settled(&dead).await[0]["state"], "dead");
    world.crm.set_faults(FaultPlan::none()).unwrap();
    events.push(dead);
    (world, events)
}

async fn count(world: &World) -> u64 {
    world.get("/api/v1/status").await["events"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_120_days_ahead_erases_nothing_until_it_is_accepted() {
    let machine = Machine::default();
    let (mut world, events) = world_with_events(&machine).await;
    assert_eq!(warning(&world).await, None);
    machine.set(120);
    machine.rounds().await;
    let warned = warning(&world).await.unwrap();
    assert!(warned.contains("120d ahead of the ledger's time") && warned.contains("sluice clock accept"), "{warned}");
    let status = world.get("/api/v1/status").await;
    assert!(status.to_string().contains("ahead of the ledger's time"), "{status}");
    assert_eq!(count(&world).await, 4, "nothing was pruned");
    assert_eq!(world.job_state(&events[3]).await, "dead", "the dead letter was not dropped");
    assert_eq!(world.post(&lead("a")).await.event(), events[0], "the key is known");

    machine.set(0);
    until(|| async { warning(&world).await.is_none().then_some(()) }).await;
    machine.rounds().await;
    assert_eq!(count(&world).await, 4);
    let nothing = world.act("/api/v1/clock/accept", json!({ "reason": "?" })).await;
    assert_eq!((nothing.status, &nothing.body["code"]), (409, &json!("clock-in-step")));

    machine.set(120);
    until(|| async { warning(&world).await.is_some().then_some(()) }).await;
    let unexplained = world.act("/api/v1/clock/accept", json!({ "reason": " " })).await;
    assert_eq!(unexplained.status, 400);
    let accepted = world.act("/api/v1/clock/accept", json!({ "reason": "it really is March", "actor": "ann" })).await;
    assert_eq!((accepted.status, &accepted.body["state"]), (200, &json!("in-step")), "{}", accepted.body);
    until(|| async { (count(&world).await == 0).then_some(()) }).await;
    let audit = world.get("/api/v1/audit").await.to_string();
    assert!(audit.contains("clock accept") && audit.contains("it really is March"), "{audit}");
    world.stop_node().await;

    let inspector = Inspector::open(&world.config_path(".sluice")).unwrap();
    let verified = inspector.verify(|_, _| {}).unwrap();
    assert_eq!(verified.broken, []);
    assert_eq!((verified.pruned["event"], verified.pruned["job"], verified.pruned["dead_letter"]), (4, 4, 1));
    let lines = inspector.balance(Time(0)).unwrap();
    assert_eq!(lines.iter().map(|line| (line.pruned, line.remainder)).collect::<Vec<_>>(), [(4, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_loses_no_event_and_takes_in_new_ones() {
    let machine = Machine::default();
    let (mut world, events) = world_with_events(&machine).await;
    machine.set(-120);
    machine.rounds().await;
    assert!(warning(&world).await.unwrap().contains("behind the ledger's time"));
    let meanwhile = world.post(&lead("meanwhile")).await.event();
    assert_eq!(world.settled(&meanwhile).await[0]["state"], "succeeded");
    world.stop_node().await;
    machine.set(0);
    world.start_node_with_clock(machine.clock(), Duration::from_millis(5)).await;
    machine.rounds().await;
    assert_eq!((warning(&world).await, count(&world).await), (None, 5), "nothing accepted meanwhile counts as old");
    assert_eq!(world.post(&lead("meanwhile")).await.event(), meanwhile);
    assert_eq!(world.post(&lead("b")).await.event(), events[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_was_off_for_a_month_waits_for_one_command() {
    let machine = Machine::default();
    let (mut world, _) = world_with_events(&machine).await;
    world.stop_node().await;
    machine.boot.store(1, Ordering::Relaxed);
    machine.set(45);
    world.start_node_with_clock(machine.clock(), Duration::from_millis(5)).await;
    machine.rounds().await;
    assert!(warning(&world).await.unwrap().contains("45d ahead"));
    let before = world.get("/api/v1/clock").await;
    assert_eq!((&before["state"], &before["pruned"]), (&json!("wall-ahead"), &json!({})), "{before}");
    world.act("/api/v1/clock/accept", json!({ "reason": "the machine was off" })).await;
    let pruned = until(|| async {
        let pruned = world.get("/api/v1/clock").await["pruned"].clone();
        (pruned["body"] == 4).then_some(pruned)
    });
    assert_eq!(pruned.await["event"], json!(null), "bodies are kept for 30 days, events for 90");
    assert_eq!(count(&world).await, 4);
    world.stop_node().await;
    world.start_node_with_clock(machine.clock(), Duration::from_millis(5)).await;
    assert_eq!(warning(&world).await, None, "it was accepted for good");
}
