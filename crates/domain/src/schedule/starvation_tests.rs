//! A cause for which jobs cannot run, with more such jobs than memory holds: other jobs of the same worker are not delayed.

use super::test_world::{LIMITS, World, job, name, of, to};
use super::*;
use crate::destination::BreakerSettings;
use crate::settle::DestinationHealth;
use crate::unit;

/// More jobs than fit into memory.
const MANY: i64 = 4 * LIMITS.jobs as i64;

/// Many jobs of `w` to `crm`, then as many to `ads`, each of another entity.
fn both() -> Vec<PendingJob> {
    let crm = (1..=MANY).map(|id| job(id, id as u64));
    crm.chain((MANY + 1..=2 * MANY).map(|id| to("ads", job(id, id as u64)))).collect()
}

fn is_to_ads(id: i64) -> bool {
    id > MANY && id <= 2 * MANY
}

fn restart_with(input: Input, jobs: Vec<PendingJob>) -> World {
    let mut world = World::new(LIMITS, 4, vec![]);
    world.step(input);
    world.ledger.live = jobs.into_iter().map(|job| (job.id, job)).collect();
    let found = world.ledger.backlogs();
    world.step(Input::BacklogsFound(found));
    world
}

/// Every job to `ads` runs, and none to `crm`; memory stays bounded.
fn assert_only_ads_runs(world: &mut World) {
    let ran = world.drain();
    assert_eq!(ran.len() as i64, MANY, "{ran:?}");
    assert!(ran.iter().all(|id| is_to_ads(*id)));
    assert!(world.most_in_memory <= LIMITS.jobs);
}

#[test]
fn paused_destination() {
    let mut world = restart_with(Input::Pause(PauseTarget::Destination(name("crm"))), both());
    assert_only_ads_runs(&mut world);
    world.step(Input::Resume(PauseTarget::Destination(name("crm"))));
    assert_eq!(world.drain().len() as i64, MANY);
    assert!(world.most_in_memory <= LIMITS.jobs);
}

#[test]
fn destination_paused_while_its_jobs_fill_the_memory() {
    let mut world = World::new(LIMITS, 1, vec![]);
    world.accept((1..=MANY).map(|id| job(id, id as u64)).collect());
    world.step(Input::Pause(PauseTarget::Destination(name("crm"))));
    world.done(1);
    world.accept((MANY + 1..=2 * MANY).map(|id| to("ads", job(id, id as u64))).collect());
    assert_only_ads_runs(&mut world);
}

#[test]
fn paused_worker() {
    let jobs = both().into_iter().map(|job| if is_to_ads(job.id.0) { of("v", to("crm", job)) } else { job });
    let mut world = restart_with(Input::Pause(PauseTarget::Worker(name("w"))), jobs.collect());
    assert_only_ads_runs(&mut world);
}

#[test]
fn open_breaker() {
    let breaker = BreakerSettings { open_first: Duration::from_secs(300), failures_in_a_row: 1, ..Default::default() };
    let gate = GateSettings { breaker, ..GateSettings::default() };
    let configured =
        Input::Configured { workers: vec![(name("w"), 1)], destinations: vec![(name("crm"), gate)], batches: vec![] };
    let mut world = restart_with(configured, (1..=MANY).map(|id| job(id, id as u64)).collect());
    world.live(DestinationHealth::Failing, PendingJob { due: Time(1), ..job(1, 1) });
    world.accept((MANY + 1..=2 * MANY).map(|id| to("ads", job(id, id as u64))).collect());
    let mut ads = 0;
    while world.now < 300_000 && ads < MANY {
        let id = world.running.first().map(|id| id.0);
        let runs = match id {
            Some(id) => world.done(id),
            None => world.tick(),
        };
        assert!(runs.iter().all(|id| is_to_ads(*id)), "{runs:?} at {}", world.now);
        ads += id.is_some_and(is_to_ads) as i64;
    }
    assert_eq!((ads, world.now), (MANY, 0), "no time passes");
    assert!(world.most_in_memory <= LIMITS.jobs);
    assert_eq!(world.drain().len() as i64, MANY, "and the others run once the breaker closes");
}

#[test]
fn retry_after_beyond_the_horizon() {
    let mut world = World::new(LIMITS, 1, (1..=MANY).map(|id| job(id, id as u64)).collect());
    let after = Some(Duration::from_secs(3_600));
    world.live(DestinationHealth::Throttled { after }, PendingJob { due: Time(1), ..job(1, 1) });
    let ads = (MANY + 1..=2 * MANY).map(|id| to("ads", job(id, id as u64))).collect();
    world.accept(ads);
    while let Some(id) = world.running.first() {
        let id = id.0;
        assert!(is_to_ads(id));
        world.done(id);
    }
    assert!(world.ledger.live.len() as i64 == MANY && world.now == 0);
    assert_eq!(world.drain().len() as i64, MANY);
}

#[test]
fn last_job_of_a_destination_runs_after_its_retry_after_although_nothing_else_happens() {
    let mut world = World::new(LIMITS, 1, vec![job(1, 1)]);
    let after = Duration::from_secs(3_600);
    let waiting = PendingJob { due: Time(0) + after, ..job(1, 1) };
    world.live(DestinationHealth::Throttled { after: Some(after) }, waiting);
    assert_eq!((world.drain(), world.now >= 3_600_000), (vec![1], true));
}

/// Quiet hours and approvals: every run of a job to `crm` ends in a long wait.
fn assert_deferred_jobs_starve_nobody(destination: &str) {
    let crm = (1..=MANY).map(|id| to(destination, job(id, id as u64)));
    let mut world =
        World::new(LIMITS, 4, crm.chain((MANY + 1..=2 * MANY).map(|id| to("ads", job(id, id as u64)))).collect());
    let morning = Time(8 * 3_600_000);
    let mut ads = 0;
    while let Some(id) = world.running.first().copied() {
        if is_to_ads(id.0) {
            ads += 1;
            world.done(id.0);
        } else {
            let waiting = PendingJob { due: morning, ..to(destination, job(id.0, id.0 as u64)) };
            world.live(DestinationHealth::Silent, waiting);
        }
    }
    assert_eq!((ads, world.now), (MANY, 0));
    assert_eq!(world.scheduler.view(Time(0)).jobs_in_memory, 0, "deferred jobs do not stay in memory");
    let loads = world.loads;
    world.accept(vec![to(destination, job(9_000, 9_000))]);
    assert_eq!(world.running, [JobId(9_000)], "another entity is not blocked");
    assert!(world.accept(vec![to(destination, job(9_001, 1))]).is_empty(), "it stays behind the first of its entity");
    world.done(9_000);
    let ran = world.drain();
    assert_eq!(ran.len() as i64, MANY + 1, "all run in the morning");
    assert!(ran.iter().position(|id| *id == 1) < ran.iter().position(|id| *id == 9_001));
    assert!(world.most_in_memory <= LIMITS.jobs && world.loads - loads < 200, "{} loads", world.loads - loads);
}

#[test]
fn quiet_hours() {
    assert_deferred_jobs_starve_nobody("crm");
}

#[test]
fn approvals() {
    assert_deferred_jobs_starve_nobody("");
}

/// Every second job is retried later, after this time and a little more.
fn assert_back_offs_starve_nobody(delay_ms: i64) {
    let mut world = World::new(LIMITS, 4, (1..=2 * MANY).map(|id| job(id, id as u64)).collect());
    let mut healthy = 0;
    while let Some(id) = world.running.first().copied() {
        if id.0 % 2 == 0 {
            healthy += 1;
            world.done(id.0);
        } else {
            let due = Time(delay_ms + id.0 * 10);
            world.live(DestinationHealth::Silent, PendingJob { due, ..job(id.0, id.0 as u64) });
        }
    }
    assert_eq!((healthy, world.now), (MANY, 0));
    assert_eq!(world.drain().len() as i64, MANY);
    assert!(world.most_in_memory <= LIMITS.jobs);
}

#[test]
fn long_back_offs_at_the_same_destination() {
    assert_back_offs_starve_nobody(60_000);
}

/// They are due soon enough to stay in memory, if there is room.
#[test]
fn short_back_offs_at_the_same_destination() {
    assert_back_offs_starve_nobody(10_000);
}

#[test]
fn short_back_offs_of_one_lane_with_jobs_behind_them() {
    let mut world = World::new(LIMITS, 4, (1..=2 * MANY).map(|id| job(id, (id % 8) as u64)).collect());
    let mut retried = std::collections::BTreeSet::new();
    let mut order = Vec::new();
    while !world.ledger.live.is_empty() {
        let Some(id) = world.running.first().copied() else {
            world.tick();
            continue;
        };
        if id.0 % 3 == 0 && retried.insert(id) {
            let due = Time(world.now + 5_000);
            world.live(DestinationHealth::Silent, PendingJob { due, ..job(id.0, (id.0 % 8) as u64) });
        } else {
            order.push(id.0);
            world.done(id.0);
        }
    }
    for lane in 0..8 {
        let of_lane: Vec<i64> = order.iter().copied().filter(|id| id % 8 == lane).collect();
        assert!(of_lane.is_sorted(), "{of_lane:?}");
    }
    assert!(world.most_in_memory <= LIMITS.jobs);
}

#[test]
fn rate_limit() {
    let gate = GateSettings { rate: Some(unit::rate("1/s").unwrap()), ..GateSettings::default() };
    let configured =
        Input::Configured { workers: vec![(name("w"), 4)], destinations: vec![(name("crm"), gate)], batches: vec![] };
    let mut world = restart_with(configured, (1..=MANY).map(|id| job(id, id as u64)).collect());
    world.accept((MANY + 1..=2 * MANY).map(|id| to("ads", job(id, id as u64))).collect());
    let mut ads = 0;
    while let Some(id) = world.running.first().map(|id| id.0) {
        ads += is_to_ads(id) as i64;
        world.done(id);
    }
    assert_eq!((ads, world.now), (MANY, 0));
    assert!(world.most_in_memory <= LIMITS.jobs);
    assert_eq!(world.drain().len() as i64, MANY - 1);
}

#[test]
fn backlogs_of_many_destinations_share_the_memory_fairly() {
    let destinations: Vec<String> = (0..8).map(|n| format!("d{n}")).collect();
    let mut jobs = Vec::new();
    for (n, destination) in destinations.iter().enumerate() {
        jobs.extend((1..=MANY).map(|id| to(destination, job(n as i64 * MANY + id, id as u64))));
    }
    let mut world = World::new(LIMITS, 2, jobs);
    let in_memory = |world: &World| {
        let view = world.scheduler.view(Time(0));
        view.backlogs.iter().map(|backlog| backlog.jobs_in_memory).collect::<Vec<_>>()
    };
    let first = in_memory(&world);
    assert!(first.iter().all(|jobs| *jobs >= 2 && *jobs <= LIMITS.jobs), "{first:?}");
    let ran = world.drain();
    assert_eq!(ran.len() as i64, 8 * MANY);
    assert!(world.most_in_memory <= LIMITS.jobs);
    // Every destination is served from the start.
    let early: std::collections::BTreeSet<i64> = ran.iter().take(64).map(|id| (id - 1) / MANY).collect();
    assert_eq!(early.len(), 8);
}

#[test]
fn a_skipped_step_does_not_wait_at_its_destination() {
    // Steps "a if … → crm, b if … → ads": the route of a job whose condition for `a` is false is `ads`.
    let mut world = World::new(LIMITS, 4, vec![]);
    world.step(Input::Pause(PauseTarget::Destination(name("crm"))));
    assert_eq!(world.accept(vec![to("ads", job(1, 1))]), [1]);
    // A condition that only the run can evaluate: the job starts with internal steps and is handed to `ads`.
    assert_eq!(world.accept(vec![to("", job(2, 2))]), [2]);
    assert_eq!(world.end(2, DestinationHealth::Silent, AfterRun::Moved(to("ads", job(2, 2)))), [2]);
}
