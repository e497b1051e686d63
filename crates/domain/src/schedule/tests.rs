use std::collections::HashSet;
use std::time::Duration;

use super::*;

fn name(text: &str) -> Arc<str> {
    Arc::from(text)
}

fn pending(id: i64, entity: u64) -> PendingJob {
    PendingJob {
        id: JobId(id),
        worker: name("w"),
        destination: name("crm"),
        order: LaneOrder::Fifo,
        entity,
        due: Time(0),
    }
}

fn scheduler(concurrency: u32) -> Scheduler {
    let mut scheduler = Scheduler::new(Random::seeded(1));
    let gate = GateSettings { concurrency_max: 1_000, ..GateSettings::default() };
    let mut actions = Vec::new();
    scheduler.step(
        Time(0),
        Input::Configured {
            workers: vec![(name("w"), concurrency), (name("v"), concurrency)],
            destinations: vec![(name("crm"), gate.clone()), (name("ads"), gate)],
        },
        &mut actions,
    );
    for worker in ["w", "v"] {
        scheduler.step(Time(0), Input::Loaded { worker: name(worker), jobs: vec![], more: false }, &mut actions);
    }
    scheduler
}

fn step(scheduler: &mut Scheduler, now: i64, input: Input) -> (Vec<JobId>, Vec<SchedulerAction>) {
    let mut actions = Vec::new();
    scheduler.step(Time(now), input, &mut actions);
    let runs = actions
        .iter()
        .filter_map(|action| if let SchedulerAction::Run(id) = action { Some(*id) } else { None })
        .collect();
    (runs, actions)
}

fn done(id: i64) -> Input {
    Input::Settled { job: JobId(id), verdict: Some(DestinationHealth::Healthy), again: None }
}

#[test]
fn one_entity_runs_one_at_a_time_and_in_order() {
    let mut scheduler = scheduler(8);
    let (runs, _) = step(&mut scheduler, 0, Input::Accepted(vec![pending(1, 7), pending(2, 7), pending(3, 9)]));
    assert_eq!(runs, [JobId(1), JobId(3)]);
    assert_eq!(step(&mut scheduler, 1, done(3)).0, []);
    assert_eq!(step(&mut scheduler, 1, done(1)).0, [JobId(2)]);
}

#[test]
fn a_failed_job_keeps_the_head_of_its_lane() {
    let mut scheduler = scheduler(8);
    step(&mut scheduler, 0, Input::Accepted(vec![pending(1, 7), pending(2, 7)]));
    let again = PendingJob { due: Time(500), ..pending(1, 7) };
    let (runs, actions) = step(
        &mut scheduler,
        1,
        Input::Settled { job: JobId(1), verdict: Some(DestinationHealth::Failing), again: Some(again) },
    );
    assert_eq!(runs, []);
    assert!(actions.contains(&SchedulerAction::WakeAt(Time(500))));
    assert_eq!(step(&mut scheduler, 499, Input::Tick).0, []);
    assert_eq!(step(&mut scheduler, 500, Input::Tick).0, [JobId(1)]);
}

#[test]
fn one_destination_down_never_delays_another() {
    let mut scheduler = scheduler(100);
    step(&mut scheduler, 0, Input::Pause(PauseTarget::Destination(name("crm"))));
    let mut jobs: Vec<PendingJob> = (1..=50).map(|id| pending(id, id as u64)).collect();
    jobs.extend((51..=54).map(|id| PendingJob {
        destination: name("ads"),
        worker: name("v"),
        ..pending(id, id as u64)
    }));
    let (runs, _) = step(&mut scheduler, 0, Input::Accepted(jobs));
    assert_eq!(runs, [51, 52, 53, 54].map(JobId));
    let (runs, _) = step(&mut scheduler, 1, Input::Resume(PauseTarget::Destination(name("crm"))));
    assert_eq!(runs.len(), 4, "the window of a fresh gate");
}

#[test]
fn a_workers_concurrency_is_its_limit() {
    let mut scheduler = scheduler(2);
    let (runs, _) = step(&mut scheduler, 0, Input::Accepted((1..=5).map(|id| pending(id, id as u64)).collect()));
    assert_eq!(runs.len(), 2);
    assert_eq!(step(&mut scheduler, 1, done(1)).0, [JobId(3)]);
}

#[test]
fn a_backlog_stays_in_the_ledger_beyond_the_window() {
    let mut scheduler = scheduler(1);
    let all: Vec<PendingJob> = (1..=WINDOW_JOBS_MAX as i64 + 10).map(|id| pending(id, id as u64)).collect();
    step(&mut scheduler, 0, Input::Accepted(all));
    assert_eq!(scheduler.view(Time(0)).jobs_in_memory, WINDOW_JOBS_MAX);
    let mut asked = None;
    let mut id = 1;
    while asked.is_none() {
        let (_, actions) = step(&mut scheduler, id, done(id));
        asked = actions.iter().find_map(|action| {
            if let SchedulerAction::Load { after, limit, .. } = action { Some((*after, *limit)) } else { None }
        });
        id += 1;
    }
    let (after, limit) = asked.unwrap();
    assert_eq!(after, JobId(WINDOW_JOBS_MAX as i64));
    assert!(limit >= WINDOW_JOBS_MAX / 2);
}

#[test]
fn a_scheduler_that_is_behind_need_not_hear_of_fresh_jobs() {
    let mut scheduler = scheduler(1);
    let worker = name("w");
    let last = WINDOW_JOBS_MAX as i64;
    assert!(!scheduler.defers_new(&worker) && !scheduler.defers_new(&name("nobody")));
    step(&mut scheduler, 0, Input::Accepted((1..=last).map(|id| pending(id, id as u64)).collect()));
    assert!(!scheduler.defers_new(&worker), "the window is full, and nothing says yet that the ledger has more");
    step(&mut scheduler, 0, Input::Accepted(vec![pending(last + 1, 1)]));
    assert!(scheduler.defers_new(&worker));
    // Another is accepted, of which it never hears.
    let load = (1..).find_map(|id| {
        let (_, actions) = step(&mut scheduler, id, done(id));
        actions.into_iter().find(|action| matches!(action, SchedulerAction::Load { .. }))
    });
    assert!(matches!(load, Some(SchedulerAction::Load { after: JobId(after), .. }) if after == last), "{load:?}");
    assert!(!scheduler.defers_new(&worker), "what comes while a load runs must be heard of");
    let both = vec![pending(last + 1, 1), pending(last + 2, 2)];
    step(&mut scheduler, 0, Input::Loaded { worker: worker.clone(), jobs: both, more: false });
    assert!(scheduler.holds(JobId(last + 2)) && !scheduler.defers_new(&worker));
}

#[test]
fn a_job_accepted_while_loading_is_not_lost() {
    let mut scheduler = Scheduler::new(Random::seeded(1));
    let (_, actions) =
        step(&mut scheduler, 0, Input::Configured { workers: vec![(name("w"), 4)], destinations: vec![] });
    assert!(matches!(actions[0], SchedulerAction::Load { after: JobId(0), .. }));
    assert_eq!(step(&mut scheduler, 0, Input::Accepted(vec![pending(5, 5)])).0, []);
    let (_, actions) =
        step(&mut scheduler, 0, Input::Loaded { worker: name("w"), jobs: vec![pending(4, 4)], more: false });
    assert!(actions.contains(&SchedulerAction::Run(JobId(4))));
    assert!(
        actions.iter().any(|action| matches!(action, SchedulerAction::Load { after: JobId(4), .. })),
        "{actions:?}"
    );
}

#[test]
fn one_noisy_entity_does_not_fill_the_window() {
    let mut scheduler = scheduler(64);
    let noisy = (1..=LANE_JOBS_MAX as i64 * 3).map(|id| pending(id, 7)).collect();
    step(&mut scheduler, 0, Input::Accepted(noisy));
    let next = LANE_JOBS_MAX as i64 * 3 + 1;
    let (runs, _) = step(&mut scheduler, 0, Input::Accepted(vec![pending(next, 8)]));
    assert_eq!(runs, [JobId(next)], "another entity runs at once");
    let mut order = vec![1];
    let mut now = 1;
    while order.len() < LANE_JOBS_MAX * 3 {
        let (runs, actions) = step(&mut scheduler, now, done(*order.last().unwrap()));
        order.extend(runs.iter().map(|id| id.0));
        for action in actions {
            if let SchedulerAction::Load { after, limit, .. } = action {
                let jobs: Vec<PendingJob> = (after.0 + 1..=LANE_JOBS_MAX as i64 * 3)
                    .filter(|id| !order.contains(id) || order.last() == Some(id))
                    .take(limit)
                    .map(|id| pending(id, 7))
                    .collect();
                let more = jobs.len() == limit;
                let (runs, _) = step(&mut scheduler, now, Input::Loaded { worker: name("w"), jobs, more });
                order.extend(runs.iter().map(|id| id.0));
            }
        }
        now += 1;
        assert!(now < 10 * LANE_JOBS_MAX as i64, "it must come to an end; {} of them ran", order.len());
    }
    assert!(order.is_sorted(), "and its own jobs keep their order");
}

#[test]
fn a_step_to_another_destination_changes_lanes() {
    let mut scheduler = scheduler(8);
    step(&mut scheduler, 0, Input::Accepted(vec![pending(1, 7), pending(2, 7)]));
    let again = PendingJob { destination: name("ads"), ..pending(1, 7) };
    let (runs, _) = step(
        &mut scheduler,
        1,
        Input::Settled { job: JobId(1), verdict: Some(DestinationHealth::Healthy), again: Some(again) },
    );
    assert_eq!(runs.into_iter().collect::<HashSet<_>>(), HashSet::from([JobId(1), JobId(2)]));
}

#[test]
fn a_revived_job_behind_the_cursor_is_looked_for() {
    let mut scheduler = scheduler(8);
    step(&mut scheduler, 0, Input::Accepted(vec![pending(1, 1), pending(2, 2)]));
    step(&mut scheduler, 1, done(1));
    step(&mut scheduler, 1, done(2));
    let (_, actions) = step(&mut scheduler, 2, Input::Requeued { worker: name("w"), first: JobId(1) });
    assert!(
        actions.iter().any(|action| matches!(action, SchedulerAction::Load { after: JobId(0), .. })),
        "{actions:?}"
    );
}

/// A model of the world around the scheduler: a ledger of live jobs, and attempts that end at random.
mod model {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn every_job_runs_to_its_end_in_order_and_one_at_a_time(seed: u64, jobs in 1usize..400, entities in 1u64..40, concurrency in 1u32..20) {
            let mut random = Random::seeded(seed);
            let mut scheduler = Scheduler::new(Random::seeded(seed ^ 1));
            let entity_of: Vec<u64> = (0..=jobs).map(|_| random.below(entities)).collect();
            let job = |id: i64| pending(id, entity_of[id as usize]);
            let (mut accepted, mut finished, mut attempts) = (0i64, Vec::new(), std::collections::HashMap::<i64, u32>::new());
            let mut running: Vec<i64> = Vec::new();
            let mut now = 0i64;
            let mut queue = VecDeque::from([Input::Configured { workers: vec![(name("w"), concurrency)], destinations: vec![] }]);
            let mut wake = None;
            let mut idle = 0;
            while finished.len() < jobs {
                let input = queue.pop_front().unwrap_or_else(|| match random.below(4) {
                    0 if accepted < jobs as i64 => {
                        let upto = (accepted + 1 + random.below(20) as i64).min(jobs as i64);
                        let batch = (accepted + 1..=upto).map(job).collect();
                        accepted = upto;
                        Input::Accepted(batch)
                    }
                    1 | 2 if !running.is_empty() => {
                        let id = running.swap_remove(random.below(running.len() as u64) as usize);
                        let failed = random.chance(0.3);
                        let due = Time(now + random.below(50) as i64);
                        if !failed { finished.push(id); }
                        Input::Settled {
                            job: JobId(id),
                            verdict: Some(if failed { DestinationHealth::Failing } else { DestinationHealth::Healthy }),
                            again: failed.then(|| PendingJob { due, ..job(id) }),
                        }
                    }
                    _ => {
                        now = wake.map_or(now + 1, |at: Time| at.0.max(now + 1));
                        Input::Tick
                    }
                });
                let mut actions = Vec::new();
                scheduler.step(Time(now), input, &mut actions);
                wake = None;
                idle += 1;
                for action in actions {
                    match action {
                        SchedulerAction::Run(id) => {
                            idle = 0;
                            *attempts.entry(id.0).or_default() += 1;
                            let entity = entity_of[id.0 as usize];
                            prop_assert!(running.iter().all(|other| entity_of[*other as usize] != entity), "two at once for {}", entity);
                            prop_assert!(
                                (1..id.0).all(|before| entity_of[before as usize] != entity || finished.contains(&before)),
                                "{} ran before an earlier job of its entity", id.0
                            );
                            running.push(id.0);
                            prop_assert!(running.len() <= concurrency as usize);
                        }
                        SchedulerAction::Load { after, limit, .. } => {
                            let jobs: Vec<PendingJob> = (after.0 + 1..=accepted).filter(|id| !finished.contains(id)).take(limit).map(job).collect();
                            let more = jobs.len() == limit;
                            queue.push_back(Input::Loaded { worker: name("w"), jobs, more });
                        }
                        SchedulerAction::WakeAt(at) => wake = Some(at),
                        SchedulerAction::Gate(..) => {}
                    }
                }
                prop_assert!(idle < 100_000, "stuck with {} of {} finished", finished.len(), jobs);
            }
            prop_assert_eq!(finished.iter().collect::<HashSet<_>>().len(), jobs);
            prop_assert_eq!(scheduler.view(Time(now)).in_flight, 0);
        }
    }

    #[test]
    fn time_in_a_test_is_a_number() {
        assert_eq!(Time(5) + Duration::from_millis(5), Time(10));
    }
}
