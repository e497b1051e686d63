//! What a load brings may be older than what memory knows. Each of these was found by simulation.

use super::*;

const LIMITS: Limits = Limits { window_jobs: 8, lane_jobs: 2, in_flight: 8 };

fn name(text: &str) -> Arc<str> {
    Arc::from(text)
}

fn pending(id: i64) -> PendingJob {
    let order = LaneOrder::Fifo;
    PendingJob { id: JobId(id), worker: name("w"), destination: name("crm"), order, entity: 7, due: Time(0) }
}

fn of(worker: &str, id: i64) -> PendingJob {
    PendingJob { worker: name(worker), ..pending(id) }
}

fn step(scheduler: &mut Scheduler, input: Input) -> (Vec<i64>, Vec<(String, i64)>) {
    let mut actions = Vec::new();
    scheduler.step(Time(0), input, &mut actions);
    let runs =
        actions.iter().filter_map(|action| if let SchedulerAction::Run(id) = action { Some(id.0) } else { None });
    let loads = actions.iter().filter_map(|action| match action {
        SchedulerAction::Load { worker, after, .. } => Some((worker.to_string(), after.0)),
        _ => None,
    });
    (runs.collect(), loads.collect())
}

fn loaded(worker: &str, ids: &[i64]) -> Input {
    Input::Loaded { worker: name(worker), jobs: ids.iter().map(|id| of(worker, *id)).collect(), more: false }
}

fn ended(id: i64) -> Input {
    Input::Settled { job: JobId(id), verdict: Some(DestinationHealth::Healthy), again: None }
}

/// Two workers with nothing to do, whose jobs share a destination.
fn scheduler() -> Scheduler {
    let mut scheduler = Scheduler::with_limits(Random::seeded(1), LIMITS);
    step(&mut scheduler, Input::Configured { workers: vec![(name("w"), 8), (name("v"), 8)], destinations: vec![] });
    step(&mut scheduler, loaded("w", &[]));
    step(&mut scheduler, loaded("v", &[]));
    scheduler
}

#[test]
fn a_lane_filled_by_one_worker_is_opened_again_for_the_other() {
    let mut scheduler = scheduler();
    step(&mut scheduler, Input::Accepted(vec![of("w", 1), of("w", 2), of("v", 3)]));
    assert!(!scheduler.holds(JobId(3)), "there was no room in the lane");
    step(&mut scheduler, ended(1));
    let (_, loads) = step(&mut scheduler, ended(2));
    assert!(loads.contains(&("v".into(), 2)), "{loads:?}");
}

#[test]
fn a_job_that_came_back_to_life_during_a_load_is_looked_for_after_it() {
    let mut scheduler = scheduler();
    assert_eq!(step(&mut scheduler, Input::Requeued { worker: name("w"), first: JobId(5) }).1, [("w".into(), 0)]);
    assert_eq!(step(&mut scheduler, Input::Requeued { worker: name("w"), first: JobId(2) }).1, []);
    let (runs, loads) = step(&mut scheduler, loaded("w", &[5]));
    assert_eq!((runs, loads), (vec![], vec![("w".into(), 1)]), "what stands before it comes first");
    assert_eq!(step(&mut scheduler, loaded("w", &[2, 5])).0, [2]);
}

#[test]
fn a_finished_job_is_not_run_again_because_a_load_still_shows_it() {
    let mut scheduler = scheduler();
    step(&mut scheduler, Input::Accepted(vec![pending(1)]));
    step(&mut scheduler, Input::Requeued { worker: name("w"), first: JobId(1) });
    step(&mut scheduler, ended(1));
    let (runs, loads) = step(&mut scheduler, loaded("w", &[1]));
    assert_eq!((runs, loads), (vec![], vec![("w".into(), 0)]), "it is read once more instead");
    assert_eq!(step(&mut scheduler, loaded("w", &[])), (vec![], vec![]));
}

#[test]
fn a_job_that_was_replayed_before_its_end_was_heard_of_is_looked_for() {
    let mut scheduler = scheduler();
    step(&mut scheduler, Input::Accepted(vec![pending(1)]));
    step(&mut scheduler, Input::Requeued { worker: name("w"), first: JobId(1) });
    step(&mut scheduler, loaded("w", &[1]));
    let (_, loads) = step(&mut scheduler, ended(1));
    assert_eq!(loads, [("w".into(), 0)]);
    assert_eq!(step(&mut scheduler, loaded("w", &[1])).0, [1]);
}

#[test]
fn those_that_a_full_lane_left_in_the_ledger_are_not_overtaken_by_the_next_load() {
    let mut scheduler = Scheduler::with_limits(Random::seeded(1), Limits { lane_jobs: 3, ..LIMITS });
    let workers = vec![(name("w"), 8), (name("v"), 8)];
    step(&mut scheduler, Input::Configured { workers, destinations: vec![] });
    step(&mut scheduler, loaded("v", &[1, 2]));
    let jobs = vec![of("w", 3), of("w", 4)];
    let (_, loads) = step(&mut scheduler, Input::Loaded { worker: name("w"), jobs, more: true });
    assert_eq!(loads, [("w".into(), 4)]);
    // Room for one, while the fourth still lies in the ledger.
    step(&mut scheduler, ended(1));
    step(&mut scheduler, loaded("w", &[5]));
    assert!(!scheduler.holds(JobId(5)));
}

#[test]
fn a_job_on_its_way_to_another_lane_does_not_overtake_those_left_in_the_ledger() {
    let mut scheduler = scheduler();
    let at_the_second_step = |id| PendingJob { destination: name("ads"), ..pending(id) };
    step(&mut scheduler, Input::Accepted([1, 2, 3].map(at_the_second_step).to_vec()));
    assert!(!scheduler.holds(JobId(3)), "there was no room in the lane");
    step(&mut scheduler, Input::Accepted(vec![pending(4)]));
    let again = Some(at_the_second_step(4));
    step(&mut scheduler, Input::Settled { job: JobId(4), verdict: Some(DestinationHealth::Healthy), again });
    assert!(!scheduler.holds(JobId(4)), "it is read again behind the third");
    step(&mut scheduler, ended(1));
    let (_, loads) = step(&mut scheduler, ended(2));
    assert_eq!(loads, [("w".into(), 2)]);
    let jobs = vec![at_the_second_step(3), at_the_second_step(4)];
    assert_eq!(step(&mut scheduler, Input::Loaded { worker: name("w"), jobs, more: false }).0, [3]);
}
