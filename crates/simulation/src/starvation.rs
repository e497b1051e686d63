//! A cause for which jobs cannot run, with more such jobs than memory holds: every job that can run is finished in bounded
//! time, and the others once the cause has ended.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sluice_domain::destination::{BreakerSettings, GateSettings};
use sluice_domain::record::JobRecord;
use sluice_domain::retry::{Delay, Jitter, RetryPhase, RetryPolicy};
use sluice_domain::template::Template;
use sluice_domain::unit;
use sluice_domain::worker::Worker;

use super::operators::{OperatorAction, Stop};
use super::plan::{CRM, MAIL, PAY, WAREHOUSE, WORKER_NAMES, asks_about};
use super::world::Simulation;
use super::{Options, Profile};

const EVENTS: u32 = 4_000;
const SEEDS: u64 = 12;
/// Gap between two events: all of them arrive while the cause lasts.
const GAP_MS: u64 = 40;
const HOUR_MS: i64 = 3_600_000;
/// Everything that can run is finished this long after the start.
const BOUND_MS: i64 = 30 * 60_000;

/// Jobs that the cause may hold up.
type IsHeld = fn(&JobRecord) -> bool;

/// Worlds with a window of 24 jobs in which nothing goes wrong but the cause.
fn worlds() -> impl Iterator<Item = (u64, Simulation)> {
    (1..=SEEDS).map(|n| {
        let seed = 3 * n;
        let mut world = Simulation::new(Options { seed, events: EVENTS, profile: Profile::Calm }, false);
        world.senders.set_gap(GAP_MS);
        set_expiry(&mut world, "2s");
        // A budget that is used up holds jobs of its own.
        world.plan.budget = None;
        world.plan.revisions.iter_mut().flat_map(|revision| &mut revision.gates).for_each(|gate| gate.budget = None);
        (seed, world)
    })
}

/// The same, hours before the quiet ones.
fn worlds_by_day() -> impl Iterator<Item = (u64, Simulation)> {
    worlds().map(|(seed, mut world)| {
        world.start_later(6 * HOUR_MS);
        (seed, world)
    })
}

/// Plays the world until the bound: what is left is held by the cause, and more than fits into memory.
fn assert_only_held_jobs_are_left(seed: u64, world: &mut Simulation, is_held: IsHeld) {
    let until = world.now + BOUND_MS;
    world.play_until(until);
    assert!(world.checker.broken.is_none(), "seed {seed}: {:?}", world.checker.broken);
    let live: Vec<&JobRecord> = world.store.jobs().filter(|job| job.state.is_live()).collect();
    let starved: Vec<String> = live.iter().filter(|job| !is_held(job)).map(|job| brief(job)).collect();
    assert!(starved.is_empty(), "seed {seed}: {} jobs wait that could run:\n{}", starved.len(), starved.join("\n"));
    assert!(live.len() > 24, "seed {seed}: the cause holds {} jobs", live.len());
}

/// The cause has ended: everything is finished.
fn assert_everything_ends(seed: u64, world: &mut Simulation) {
    world.play_until(world.now + 24 * HOUR_MS);
    assert!(world.checker.broken.is_none(), "seed {seed}: {:?}", world.checker.broken);
    let live: Vec<String> = world.store.jobs().filter(|job| job.state.is_live()).map(brief).collect();
    assert!(live.is_empty(), "seed {seed}: {} jobs are left:\n{}", live.len(), live.join("\n"));
}

fn brief(job: &JobRecord) -> String {
    let JobRecord { id, worker, destination, entity, state, due_at, .. } = job;
    format!("{id} of {worker} about {entity} to `{destination}`: {state:?}, due at {due_at}")
}

/// Sets how long an approval is waited for.
fn set_expiry(world: &mut Simulation, expires: &str) {
    let asks = json!({ "title": "may it?", "expires": expires, "default": "approve" });
    change_worker(world, "notify", |worker| {
        let ask = worker.steps.iter_mut().find(|step| &*step.id == "ask").expect("a step of the worker");
        ask.with = Template::Literal(asks);
    });
}

fn change_worker(world: &mut Simulation, name: &str, change: impl FnOnce(&mut Worker)) {
    let config = Arc::make_mut(&mut world.plan.revisions[0].run.config);
    let worker = config.workers.get_mut(name).expect("a simulated worker");
    change(Arc::make_mut(worker));
}

#[test]
fn paused_destination() {
    for (seed, mut world) in worlds_by_day() {
        world.begin();
        world.act(OperatorAction::Pause(Stop::Destination(PAY)), vec![]);
        assert_only_held_jobs_are_left(seed, &mut world, |job| &*job.destination == "pay");
        world.act(OperatorAction::Resume(Stop::Destination(PAY)), vec![]);
        assert_everything_ends(seed, &mut world);
    }
}

#[test]
fn paused_worker() {
    for (seed, mut world) in worlds_by_day() {
        world.begin();
        let contacts = Stop::Worker(0);
        world.play_until(world.now + 5_000);
        world.act(OperatorAction::Pause(contacts), vec![]);
        assert_only_held_jobs_are_left(seed, &mut world, |job| &*job.worker == "contacts");
        world.act(OperatorAction::Resume(contacts), vec![]);
        assert_everything_ends(seed, &mut world);
    }
}

#[test]
fn open_breaker() {
    for (seed, mut world) in worlds_by_day() {
        let breaker = BreakerSettings {
            open_first: Duration::from_secs(3_600),
            open_max: Duration::from_secs(3_600),
            failures_in_a_row: 3,
            ..BreakerSettings::default()
        };
        world.plan.revisions[0].gates[CRM].breaker = breaker;
        world.destinations.0[CRM].down_until = world.now + BOUND_MS;
        world.begin();
        assert_only_held_jobs_are_left(seed, &mut world, |job| &*job.destination == "crm");
        assert_everything_ends(seed, &mut world);
    }
}

#[test]
fn quiet_hours() {
    // Worlds begin an hour before the quiet hours end. `preferences` evaluates the policy in an internal step.
    for (seed, mut world) in worlds() {
        world.begin();
        let is_held = |job: &JobRecord| &*job.destination == "mail" || &*job.worker == "preferences";
        assert_only_held_jobs_are_left(seed, &mut world, is_held);
        assert_everything_ends(seed, &mut world);
    }
}

#[test]
fn approval() {
    for (seed, mut world) in worlds_by_day() {
        set_expiry(&mut world, "2h");
        world.begin();
        let is_held = |job: &JobRecord| &*job.worker == "notify" && asks_about(job.entity);
        assert_only_held_jobs_are_left(seed, &mut world, is_held);
        assert_everything_ends(seed, &mut world);
    }
}

#[test]
fn long_back_off() {
    for (seed, mut world) in worlds_by_day() {
        let delay = Delay::Fixed { delay: Duration::from_secs(7_200) };
        let retry = RetryPolicy {
            phases: vec![RetryPhase { retries: u32::MAX, delay }],
            jitter: Jitter::Equal,
            budget: None,
            ..RetryPolicy::standard()
        };
        for name in WORKER_NAMES {
            change_worker(&mut world, name, |worker| worker.retry = retry.clone());
        }
        let breaker =
            BreakerSettings { failures_in_a_row: u32::MAX, calls_min: u32::MAX, ..BreakerSettings::default() };
        world.plan.revisions[0].gates[WAREHOUSE].breaker = breaker;
        world.destinations.0[WAREHOUSE].down_until = world.now + BOUND_MS;
        world.begin();
        assert_only_held_jobs_are_left(seed, &mut world, |job| &*job.destination == "warehouse");
        assert_everything_ends(seed, &mut world);
    }
}

#[test]
fn rate_limit() {
    for (seed, mut world) in worlds_by_day() {
        let rate = unit::rate("2/min").ok();
        let gate = GateSettings { rate, burst: 1, ..world.plan.revisions[0].gates[MAIL].clone() };
        world.plan.revisions[0].gates[MAIL] = gate;
        world.begin();
        assert_only_held_jobs_are_left(seed, &mut world, |job| &*job.destination == "mail");
        assert_everything_ends(seed, &mut world);
    }
}
