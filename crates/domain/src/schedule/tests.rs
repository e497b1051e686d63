use std::collections::BTreeSet;
use std::time::Duration;

use super::test_world::{LIMITS, World, job, name, of, to};
use super::*;
use crate::settle::DestinationHealth;

fn world(concurrency: u32) -> World {
    World::new(Limits::default(), concurrency, vec![])
}

/// The backlogs of `w` to both destinations are loaded.
fn loaded_world(concurrency: u32) -> World {
    let mut world = world(concurrency);
    world.accept(vec![job(1, 1), to("ads", job(2, 2))]);
    world.drain();
    world
}

fn pause(destination: &str) -> Input {
    Input::Pause(PauseTarget::Destination(name(destination)))
}

fn resume(destination: &str) -> Input {
    Input::Resume(PauseTarget::Destination(name(destination)))
}

#[test]
fn one_entity_runs_one_at_a_time_and_in_order() {
    let mut world = world(8);
    assert_eq!(world.accept(vec![job(1, 7), job(2, 7), job(3, 9)]), [1, 3]);
    assert!(world.done(3).is_empty());
    assert_eq!(world.done(1), [2]);
}

#[test]
fn a_failed_job_keeps_the_head_of_its_lane() {
    let mut world = world(8);
    world.accept(vec![job(1, 7), job(2, 7)]);
    assert!(world.live(DestinationHealth::Failing, PendingJob { due: Time(500), ..job(1, 7) }).is_empty());
    assert_eq!(world.wake, Some(Time(500)));
    assert_eq!(world.tick(), [1]);
    assert_eq!(world.done(1), [2]);
}

fn due_now(id: i64) -> Input {
    Input::DueNow { job: JobId(id), worker: name("w") }
}

#[test]
fn a_job_whose_wait_ends_while_it_is_settled_runs_at_once() {
    let mut world = loaded_world(8);
    world.accept(vec![job(11, 7)]);
    world.step(due_now(11));
    world.ledger.live.insert(JobId(11), PendingJob { due: Time(0), ..job(11, 7) });
    let waits = AfterRun::Live(PendingJob { due: Time(500), ..job(11, 7) });
    assert_eq!(world.end(11, DestinationHealth::Silent, waits), [11]);
}

/// The notice of an ended wait can arrive when the job has run since and waits anew.
#[test]
fn an_old_notice_does_not_end_a_new_wait() {
    let mut world = loaded_world(8);
    world.accept(vec![job(11, 7)]);
    world.step(due_now(11));
    assert!(world.live(DestinationHealth::Silent, PendingJob { due: Time(500), ..job(11, 7) }).is_empty());
    assert_eq!(world.wake, Some(Time(500)));
}

#[test]
fn one_destination_down_never_delays_another() {
    let mut world = world(100);
    world.step(pause("crm"));
    let mut jobs: Vec<PendingJob> = (1..=50).map(|id| job(id, id as u64)).collect();
    jobs.extend((51..=54).map(|id| to("ads", job(id, id as u64))));
    assert_eq!(world.accept(jobs), [51, 52, 53, 54]);
    world.now = 1;
    assert_eq!(world.step(resume("crm")), [1, 2, 3, 4], "the concurrency of a new gate");
}

#[test]
fn the_concurrency_of_a_worker_applies_to_each_destination() {
    let mut world = loaded_world(2);
    let mut jobs: Vec<PendingJob> = (11..=15).map(|id| job(id, id as u64)).collect();
    jobs.extend((21..=25).map(|id| to("ads", job(id, id as u64))));
    assert_eq!(world.accept(jobs).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([11, 12, 21, 22]));
    assert_eq!(world.done(11), [13]);
    assert_eq!(world.done(21), [23]);
}

#[test]
fn internal_steps_of_one_worker_do_not_delay_another() {
    let mut world = world(8);
    world.accept(vec![to("", job(1, 7)), of("v", to("", job(2, 7)))]);
    assert_eq!(world.running, [JobId(1), JobId(2)], "the same entity, but other lanes");
    let waiting = PendingJob { due: Time(10_000_000), ..to("", job(1, 7)) };
    world.live(DestinationHealth::Silent, waiting);
    world.done(2);
    assert_eq!(world.accept(vec![to("", job(3, 7)), of("v", to("", job(4, 7)))]), [4]);
}

#[test]
fn internal_steps_pass_no_gate() {
    let mut world = world(100);
    let jobs = (1..=50).map(|id| to("", job(id, id as u64))).collect();
    assert_eq!(world.accept(jobs).len(), 50);
    assert!(!world.scheduler.view(Time(0)).gates.contains_key(""));
}

#[test]
fn new_jobs_are_not_announced_while_others_wait_in_the_ledger() {
    let mut world = World::new(LIMITS, 1, vec![]);
    let (worker, crm) = (name("w"), name("crm"));
    assert!(!world.scheduler.defers_new(&worker, &crm), "an unknown backlog defers nothing");
    world.accept((1..=LIMITS.jobs as i64).map(|id| job(id, id as u64)).collect());
    world.accept(vec![job(1_000, 1)]);
    assert!(world.scheduler.defers_new(&worker, &crm));
    assert!(!world.scheduler.defers_new(&worker, &name("ads")));
    assert_eq!(world.scheduler.deferring_new().collect::<Vec<_>>(), [(&worker, &crm)]);
    // The scheduler does not hear of this one.
    world.ledger.live.insert(JobId(1_001), job(1_001, 2));
    assert_eq!(world.drain().last(), Some(&1_001));
    assert!(!world.scheduler.defers_new(&worker, &crm));
}

#[test]
fn jobs_whose_notice_was_dropped_are_loaded() {
    let mut world = loaded_world(8);
    world.ledger.live.insert(JobId(5), job(5, 5));
    let missed = Input::Missed { worker: name("w"), destination: name("crm"), first: JobId(5) };
    assert_eq!(world.step(missed), [5]);
}

#[test]
fn one_noisy_entity_does_not_fill_the_window() {
    let mut world = World::new(Limits::default(), 64, vec![]);
    let last = LANE_JOBS_MAX as i64 * 3;
    world.accept((1..=last).map(|id| job(id, 7)).collect());
    assert_eq!(world.accept(vec![job(last + 1, 8)]), [last + 1], "another entity runs at once");
    world.done(last + 1);
    let order = world.drain();
    assert_eq!(order, (1..=last).collect::<Vec<_>>());
}

#[test]
fn a_step_to_another_destination_changes_lanes() {
    let mut world = loaded_world(8);
    assert_eq!(world.accept(vec![job(11, 7), job(12, 7)]), [11]);
    let moved = world.live(DestinationHealth::Healthy, to("ads", job(11, 7)));
    assert_eq!(moved.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([11, 12]));
}

#[test]
fn a_job_handed_to_another_destination_runs_there_without_a_write() {
    let mut world = loaded_world(8);
    world.accept(vec![to("", job(11, 7))]);
    assert_eq!(world.end(11, DestinationHealth::Silent, AfterRun::Moved(job(11, 7))), [11]);
    assert_eq!(*world.ledger.live[&JobId(11)].destination, *"", "the ledger still has its old route");
    world.done(11);
    assert_eq!(world.scheduler.view(Time(0)).jobs_in_memory, 0);
}

#[test]
fn a_job_handed_to_a_paused_destination_leaves_memory_with_its_route_written() {
    let mut world = loaded_world(8);
    world.step(pause("crm"));
    world.accept(vec![to("", job(11, 7))]);
    assert!(world.end(11, DestinationHealth::Silent, AfterRun::Moved(job(11, 7))).is_empty());
    assert_eq!(*world.ledger.live[&JobId(11)].destination, *"crm");
    assert!(!world.scheduler.holds(JobId(11)));
    assert_eq!(world.step(resume("crm")), [11]);
}

#[test]
fn an_older_due_job_goes_before_younger_jobs_of_its_lane() {
    let mut world = world(1);
    world.accept(vec![job(1, 1), job(5, 7), job(6, 7)]);
    assert_eq!(world.running, [JobId(1)]);
    // Replayed while the others wait.
    world.ledger.live.insert(JobId(3), job(3, 7));
    world.step(Input::Requeued { worker: name("w"), first: JobId(3) });
    assert_eq!(world.drain(), [1, 3, 5, 6]);
}

#[test]
fn an_older_job_waits_while_one_of_its_lane_runs() {
    let mut world = world(8);
    world.accept(vec![job(5, 7), job(6, 7)]);
    world.ledger.live.insert(JobId(3), job(3, 7));
    assert!(world.step(Input::Requeued { worker: name("w"), first: JobId(3) }).is_empty());
    assert_eq!(world.done(5), [3]);
    assert_eq!(world.done(3), [6]);
}

#[test]
fn an_interrupted_job_is_settled_while_its_destination_is_paused() {
    let mut jobs: Vec<PendingJob> = (1..=200).map(|id| job(id, id as u64)).collect();
    jobs[149].interrupted = true;
    let mut world = World::new(LIMITS, 8, vec![]);
    world.step(pause("crm"));
    world.ledger.live = jobs.into_iter().map(|job| (job.id, job)).collect();
    let found = world.ledger.backlogs();
    assert_eq!(world.step(Input::BacklogsFound(found)), [150], "and no other");
    assert!(world.most_in_memory <= 1);
    assert!(world.live(DestinationHealth::Silent, PendingJob { due: Time(100_000), ..job(150, 150) }).is_empty());
    world.step(resume("crm"));
    assert_eq!(world.drain().len(), 200);
}

#[test]
fn an_interrupted_job_is_settled_before_others_of_its_lane_run() {
    let mut world = World::new(LIMITS, 8, vec![job(1, 7), PendingJob { interrupted: true, ..job(2, 7) }]);
    assert_eq!(world.running, [JobId(2)]);
    assert_eq!(world.live(DestinationHealth::Silent, PendingJob { due: Time(5), ..job(2, 7) }), [1]);
    assert_eq!(world.drain(), [1, 2]);
}

#[test]
fn a_lost_run_is_read_again_and_keeps_its_lane() {
    let mut world = world(8);
    world.accept(vec![job(1, 7), job(2, 7)]);
    world.running.clear();
    assert!(world.step(Input::RunLost(JobId(1))).is_empty());
    assert_eq!(world.scheduler.in_flight(), 0);
    world.ledger.live.insert(JobId(1), PendingJob { interrupted: true, ..job(1, 7) });
    world.step(pause("crm"));
    assert_eq!(world.tick(), [1], "it is settled as interrupted");
    assert_eq!(world.now, RETRY_DELAY.as_millis() as i64);
    world.step(resume("crm"));
    assert_eq!(world.done(1), [2]);
}

#[test]
fn a_failed_load_is_repeated_after_a_delay() {
    let mut scheduler = Scheduler::new(Random::seeded(1));
    let mut step = |now, input| {
        let mut actions = Vec::new();
        scheduler.step(Time(now), input, &mut actions);
        actions
    };
    assert_eq!(step(0, Input::Tick), [SchedulerAction::FindBacklogs]);
    assert_eq!(step(0, Input::FindFailed), [SchedulerAction::WakeAt(Time(500))]);
    assert_eq!(step(500, Input::Tick), [SchedulerAction::FindBacklogs]);
    let found = step(500, Input::BacklogsFound(vec![(name("w"), name("crm"))]));
    assert!(matches!(found[..], [SchedulerAction::Load(_)]), "{found:?}");
    let failed = step(600, Input::LoadFailed { worker: name("w"), destination: name("crm") });
    assert_eq!(failed, [SchedulerAction::WakeAt(Time(1_100))]);
    assert!(matches!(step(1_100, Input::Tick)[..], [SchedulerAction::Load(_)]));
}

#[test]
fn a_worker_that_is_paused_holds_no_lane_of_another() {
    let mut world = world(1);
    world.accept(vec![job(1, 1)]);
    world.accept(vec![job(2, 7), of("v", job(3, 7))]);
    assert_eq!(world.running, [JobId(1)], "the second waits for a slot of `w`, the third for the second");
    assert_eq!(world.step(Input::Pause(PauseTarget::Worker(name("w")))), [3]);
    world.done(1);
    world.done(3);
    assert_eq!(world.step(Input::Resume(PauseTarget::Worker(name("w")))), [2]);
}

#[test]
fn a_job_that_ends_after_its_worker_was_paused_holds_no_lane_of_another() {
    let mut world = world(1);
    world.accept(vec![job(1, 7), of("v", job(2, 7))]);
    assert!(world.step(Input::Pause(PauseTarget::Worker(name("w")))).is_empty(), "the first still runs");
    assert_eq!(world.live(DestinationHealth::Failing, PendingJob { due: Time(5), ..job(1, 7) }), [2]);
    world.done(2);
    world.step(Input::Resume(PauseTarget::Worker(name("w"))));
    assert_eq!(world.drain(), [1]);
}

#[test]
fn a_destination_that_was_unauthorized_before_a_restart_gets_one_probe_when_it_is_resumed() {
    let mut world = world(8);
    world.step(Input::PauseUnauthorized(name("crm")));
    assert!(world.accept((1..=5).map(|id| job(id, id as u64)).collect()).is_empty());
    let paused = |world: &World| world.scheduler.view(Time(world.now)).gates["crm"].paused.clone();
    assert_eq!(paused(&world), Some(PauseReason::Auth));
    assert_eq!(world.step(resume("crm")), [1]);
}

#[test]
fn a_job_that_moves_and_is_deferred_promotes_the_job_of_another_worker_behind_it() {
    let mut world = loaded_world(1);
    assert_eq!(world.accept(vec![to("", job(15, 7))]), [15]);
    assert_eq!(world.accept(vec![job(19, 9)]), [19], "the only slot of `w`");
    assert!(world.accept(vec![job(20, 7)]).is_empty());
    assert!(world.accept(vec![of("v", job(21, 7))]).is_empty(), "it waits behind the one before");
    let later = Time(world.now + 3_600_000);
    assert_eq!(world.live(DestinationHealth::Silent, PendingJob { due: later, ..job(15, 7) }), [21]);
}

#[test]
fn a_requeued_job_is_found_in_a_backlog_that_was_unknown() {
    let mut world = world(8);
    world.ledger.live.insert(JobId(3), to("ads", job(3, 3)));
    assert_eq!(world.step(Input::Requeued { worker: name("w"), first: JobId(3) }), [3]);
}

#[test]
fn the_view_says_why_nothing_runs() {
    let mut world = loaded_world(2);
    world.accept((11..=13).map(|id| job(id, id as u64)).collect());
    let waits_for = |world: &World| {
        let view = world.scheduler.view(Time(world.now));
        let crm = view.backlogs.iter().find(|backlog| backlog.destination == "crm").unwrap().clone();
        (crm.jobs_in_memory, crm.running, crm.waits_for)
    };
    assert_eq!(waits_for(&world), (3, 2, Some(WaitsFor::WorkerSlot)));
    world.done(11);
    world.step(pause("crm"));
    world.done(12);
    assert_eq!(waits_for(&world), (1, 1, None), "the last one runs");
    world.accept(vec![job(14, 14)]);
    assert_eq!(waits_for(&world), (1, 1, Some(WaitsFor::Destination)));
    world.step(resume("crm"));
    world.live(DestinationHealth::Failing, PendingJob { due: Time(20_000), ..job(13, 13) });
    world.done(14);
    assert_eq!(waits_for(&world), (1, 0, Some(WaitsFor::Due)));
}

#[test]
fn the_reason_why_one_job_does_not_run_is_known() {
    let mut world = loaded_world(2);
    world.accept(vec![job(11, 7), job(12, 7), job(13, 8), job(14, 9)]);
    let wait = |world: &World, job: &PendingJob| world.scheduler.wait_of(Time(world.now), job);
    let reason = |waits_for, until, behind| Some(JobWait { waits_for, until, behind });
    assert_eq!(wait(&world, &job(11, 7)), None, "it runs");
    assert_eq!(wait(&world, &job(12, 7)), reason(WaitsFor::Lane, None, Some(JobId(11))));
    assert_eq!(wait(&world, &job(14, 9)), reason(WaitsFor::WorkerSlot, None, None));
    let later = Time(world.now + 3_600_000);
    let deferred = PendingJob { due: later, ..job(20, 20) };
    assert_eq!(wait(&world, &deferred), reason(WaitsFor::Due, Some(later), None), "it is not in memory");
    world.step(pause("crm"));
    for waiting in [job(12, 7), job(14, 9), deferred.clone()] {
        assert_eq!(wait(&world, &waiting), reason(WaitsFor::Destination, None, None));
    }
    world.step(resume("crm"));
    world.step(Input::Pause(PauseTarget::Worker(name("w"))));
    assert_eq!(wait(&world, &deferred), reason(WaitsFor::Worker, None, None));
}

#[test]
fn errors_do_not_reduce_concurrency_and_overload_does() {
    let concurrency = |health| {
        let mut gate = Gate::new(GateSettings { concurrency_max: 32, ..GateSettings::default() });
        let mut random = Random::seeded(1);
        for call in 0..20_000 {
            gate.start(Time(call));
            let health = if random.chance(0.27) { health } else { DestinationHealth::Healthy };
            gate.finish(Time(call), Time(call), (health, Some(Duration::from_millis(20))), &mut random);
        }
        gate.view(Time(20_000)).concurrency
    };
    assert_eq!(concurrency(DestinationHealth::Failing), 32);
    assert!(concurrency(DestinationHealth::Overloaded) < 12);
}
