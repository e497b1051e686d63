//! The answer of a load may be older than what memory knows.

use super::backlog::{BacklogPage, BacklogQuery};
use super::test_world::{configured, job, name, of, to};
use super::*;
use crate::settle::DestinationHealth;

const LIMITS: Limits = Limits { jobs: 16, lane_jobs: 2, load_jobs: 8, in_flight: 8 };

/// A scheduler whose loads are answered by the test.
struct Manual {
    scheduler: Scheduler,
    loads: Vec<BacklogQuery>,
}

impl Manual {
    fn step_at(&mut self, now: i64, input: Input) -> Vec<i64> {
        let mut actions = Vec::new();
        self.scheduler.step(Time(now), input, &mut actions);
        let mut runs = Vec::new();
        for action in actions {
            match action {
                SchedulerAction::Run(jobs) => runs.extend(jobs.iter().map(|id| id.0)),
                SchedulerAction::Load(query) => self.loads.push(query),
                _ => {}
            }
        }
        runs
    }

    fn step(&mut self, input: Input) -> Vec<i64> {
        self.step_at(0, input)
    }

    /// Answers the oldest load of this worker with these queued jobs.
    fn answer(&mut self, worker: &str, jobs: Vec<PendingJob>) -> Vec<i64> {
        let place = self.loads.iter().position(|query| *query.worker == *worker).expect("a load is under way");
        let query = self.loads.remove(place);
        let looked_until = jobs.last().map_or(query.after, |job| job.id);
        let page = BacklogPage { queued: jobs, looked_until, ..BacklogPage::default() };
        self.step(Input::Loaded { query, page })
    }

    /// `after` of the loads under way.
    fn asked(&self) -> Vec<(&str, i64)> {
        self.loads.iter().map(|query| (&*query.worker, query.after.0)).collect()
    }

    fn done(&mut self, id: i64) -> Vec<i64> {
        self.end(id, AfterRun::Finished)
    }

    fn end(&mut self, id: i64, after: AfterRun) -> Vec<i64> {
        self.step(Input::Settled { job: JobId(id), health: Some(DestinationHealth::Healthy), took: None, after })
    }

    fn requeued(&mut self, first: i64) -> Vec<i64> {
        self.step(Input::Requeued { worker: name("w"), first: JobId(first) })
    }
}

/// Two workers without jobs, that share a destination.
fn manual() -> Manual {
    let mut manual = Manual { scheduler: Scheduler::with_limits(Random::seeded(1), LIMITS), loads: vec![] };
    manual.step(configured(8));
    manual.step(Input::BacklogsFound(vec![(name("w"), name("crm")), (name("v"), name("crm"))]));
    manual.answer("w", vec![]);
    manual.answer("v", vec![]);
    assert_eq!(manual.asked(), []);
    manual
}

#[test]
fn a_job_accepted_during_a_load_is_not_lost() {
    let mut manual = manual();
    manual.requeued(4);
    assert_eq!(manual.asked(), [("w", 0)]);
    assert!(manual.step(Input::Accepted(vec![job(5, 5)])).is_empty());
    assert_eq!(manual.answer("w", vec![job(4, 4)]), [4]);
    assert_eq!(manual.asked(), [("w", 4)]);
}

#[test]
fn a_lane_filled_by_one_worker_is_loaded_again_for_the_other() {
    let mut manual = manual();
    manual.step(Input::Accepted(vec![job(1, 7), job(2, 7), of("v", job(3, 7))]));
    assert!(!manual.scheduler.holds(JobId(3)), "there is no room in the lane");
    manual.done(1);
    manual.done(2);
    assert_eq!(manual.asked(), [("v", 2)]);
}

#[test]
fn a_load_that_ends_after_its_worker_was_paused_holds_no_lane_of_another() {
    let mut manual = manual();
    manual.requeued(4);
    manual.step(Input::Pause(PauseTarget::Worker(name("w"))));
    assert!(manual.answer("w", vec![job(4, 7)]).is_empty());
    assert_eq!(manual.step(Input::Accepted(vec![of("v", job(5, 7))])), [5]);
    manual.step(Input::Resume(PauseTarget::Worker(name("w"))));
    assert_eq!(manual.asked(), [("w", 0)], "it is loaded again");
}

#[test]
fn a_job_requeued_during_a_load_is_loaded_after_it() {
    let mut manual = manual();
    manual.requeued(5);
    manual.requeued(2);
    assert_eq!(manual.asked(), [("w", 0)]);
    assert!(manual.answer("w", vec![job(5, 7)]).is_empty(), "older jobs come first");
    assert_eq!(manual.asked(), [("w", 1)]);
    assert_eq!(manual.answer("w", vec![job(2, 7), job(5, 7)]), [2]);
}

#[test]
fn a_finished_job_does_not_run_again_because_a_load_still_shows_it() {
    let mut manual = manual();
    manual.step(Input::Accepted(vec![job(1, 7)]));
    manual.requeued(1);
    manual.scheduler.jobs.get_mut(&JobId(1)).unwrap().requeued = false;
    manual.done(1);
    assert!(manual.answer("w", vec![job(1, 7)]).is_empty());
    assert_eq!(manual.asked(), [("w", 0)], "it is read once more instead");
    assert!(manual.answer("w", vec![]).is_empty());
    assert_eq!(manual.asked(), []);
}

#[test]
fn a_moved_job_does_not_run_again_because_a_load_still_shows_it() {
    let mut manual = manual();
    manual.step(Input::BacklogsFound(vec![(name("w"), name(""))]));
    assert_eq!(manual.answer("w", vec![to("", job(1, 7))]), [1]);
    assert_eq!(
        manual.end(1, AfterRun::Moved(job(1, 7))),
        [1],
        "it runs at its destination, which the ledger does not know"
    );
    manual.step(Input::Missed { worker: name("w"), destination: name(""), first: JobId(1) });
    assert_eq!(manual.asked(), [("w", 0)]);
    manual.done(1);
    assert!(manual.answer("w", vec![to("", job(1, 7))]).is_empty());
    assert!(!manual.scheduler.holds(JobId(1)));
}

#[test]
fn a_job_requeued_before_its_end_is_reported_is_loaded() {
    let mut manual = manual();
    manual.step(Input::Accepted(vec![job(1, 7)]));
    manual.requeued(1);
    manual.answer("w", vec![job(1, 7)]);
    assert_eq!(manual.asked(), []);
    manual.done(1);
    assert_eq!(manual.asked(), [("w", 0)]);
    assert_eq!(manual.answer("w", vec![job(1, 7)]), [1]);
}

#[test]
fn jobs_of_a_full_lane_are_not_overtaken_by_the_next_load() {
    let mut manual = manual();
    manual.step(Input::Accepted(vec![of("v", job(1, 7)), of("v", job(2, 7)), job(3, 7)]));
    assert!(!manual.scheduler.holds(JobId(3)));
    manual.requeued(5);
    // There is room for one while the third is in the ledger.
    manual.scheduler.limits.lane_jobs = 3;
    assert!(manual.answer("w", vec![job(5, 7)]).is_empty());
    assert!(!manual.scheduler.holds(JobId(5)));
}

#[test]
fn a_moved_job_does_not_overtake_jobs_in_the_ledger() {
    let mut manual = manual();
    manual.step(Input::BacklogsFound(vec![(name("w"), name("ads"))]));
    manual.answer("w", vec![]);
    manual.step(Input::Accepted((1..=3).map(|id| to("ads", job(id, 7))).collect()));
    assert!(!manual.scheduler.holds(JobId(3)), "there is no room in the lane");
    manual.step(Input::Accepted(vec![job(4, 7)]));
    manual.end(4, AfterRun::Live(to("ads", job(4, 7))));
    assert!(!manual.scheduler.holds(JobId(4)), "it is loaded behind the third");
    assert!(manual.answer("w", vec![to("ads", job(4, 7))]).is_empty());
    manual.done(1);
    manual.done(2);
    assert_eq!(manual.asked(), [("w", 2)]);
    assert_eq!(manual.answer("w", vec![to("ads", job(3, 7)), to("ads", job(4, 7))]), [3]);
}

#[test]
fn a_job_behind_one_that_is_deferred_during_a_load_stays_in_the_ledger() {
    let mut manual = manual();
    manual.step(Input::Accepted(vec![job(1, 7)]));
    manual.requeued(5);
    assert_eq!(manual.asked(), [("w", 1)]);
    let deferred = PendingJob { due: Time(100_000), ..job(1, 7) };
    manual.end(1, AfterRun::Live(deferred.clone()));
    assert!(!manual.scheduler.holds(JobId(1)));
    // The answer was read before.
    assert_eq!(manual.answer("w", vec![job(5, 7), job(6, 8)]), [6]);
    assert!(!manual.scheduler.holds(JobId(5)));
    // The first job is due: the others of its lane are looked for from there.
    manual.step_at(100_000, Input::Tick);
    let query = manual.loads.pop().expect("the due job is loaded");
    let page = BacklogPage { due: vec![deferred], looked_until: query.after, ..BacklogPage::default() };
    assert_eq!(manual.step_at(100_000, Input::Loaded { query, page }), [1]);
    assert!(manual.asked().contains(&("w", 1)), "{:?}", manual.asked());
}

#[test]
fn a_job_that_becomes_due_during_a_load_is_loaded_after_it() {
    let mut manual = manual();
    manual.step(Input::Accepted(vec![job(1, 7)]));
    manual.end(1, AfterRun::Live(PendingJob { due: Time(100_000), ..job(1, 7) }));
    manual.requeued(5);
    manual.step(Input::DueNow { job: JobId(1), worker: name("w") });
    let query = manual.loads.pop().unwrap();
    let page = BacklogPage { next_due: Some(Time(100_000)), ..BacklogPage::default() };
    manual.step(Input::Loaded { query, page });
    assert_eq!(manual.loads.len(), 1, "the answer was read before");
}
