//! One call for several jobs.

use std::time::Duration;

use super::test_world::{LIMITS, World, configured, job, name, of, with_batches};
use super::{AfterRun, Input, PauseTarget, PendingJob};
use crate::destination::{BreakerSettings, GateSettings};
use crate::job::JobId;
use crate::settle::DestinationHealth;
use crate::time::Time;
use crate::unit;
use crate::worker::LaneOrder;

const CRM: &str = "crm";

/// A world whose calls are looked at one by one.
struct Calls(World);

impl Calls {
    fn new(configured: Input) -> Calls {
        let mut calls = Calls(World::new(LIMITS, 1, vec![]));
        calls.step(0, with_batches(configured, 5));
        calls
    }

    /// The jobs of each call that starts.
    fn step(&mut self, now: i64, input: Input) -> Vec<Vec<i64>> {
        self.0.now = now;
        self.0.step(input);
        std::mem::take(&mut self.0.calls)
    }

    fn accept(&mut self, jobs: Vec<PendingJob>) -> Vec<Vec<i64>> {
        self.0.accept(jobs);
        std::mem::take(&mut self.0.calls)
    }

    /// Jobs that wait while the destination is paused, and run when it is resumed.
    fn accept_paused(&mut self, jobs: Vec<PendingJob>) -> Vec<Vec<i64>> {
        let target = PauseTarget::Destination(name(CRM));
        self.step(0, Input::Pause(target.clone()));
        assert_eq!(self.accept(jobs), Vec::<Vec<i64>>::new());
        self.step(0, Input::Resume(target))
    }

    fn end(&mut self, now: i64, id: i64, health: Option<DestinationHealth>, after: AfterRun) -> Vec<Vec<i64>> {
        match &after {
            AfterRun::Finished => drop(self.0.ledger.live.remove(&JobId(id))),
            AfterRun::Live(job) => drop(self.0.ledger.live.insert(job.id, job.clone())),
            AfterRun::Moved(_) | AfterRun::Released { .. } => {}
        }
        self.step(now, Input::Settled { job: JobId(id), health, took: None, after })
    }

    fn done(&mut self, id: i64) -> Vec<Vec<i64>> {
        self.end(0, id, Some(DestinationHealth::Healthy), AfterRun::Finished)
    }

    fn in_flight(&self) -> (u32, u32) {
        let view = self.0.scheduler.view(Time(0));
        let backlog = view.backlogs.iter().find(|backlog| backlog.worker == "w" && backlog.destination == CRM);
        (view.gates[CRM].in_flight, backlog.map_or(0, |backlog| backlog.running))
    }
}

fn jobs(ids: std::ops::RangeInclusive<i64>) -> Vec<PendingJob> {
    ids.map(|id| job(id, id as u64)).collect()
}

fn one_call(gate: GateSettings) -> Input {
    Input::Configured { workers: vec![(name("w"), 1)], destinations: vec![(name(CRM), gate)], batches: vec![] }
}

#[test]
fn lone_job_runs_at_once_and_waits_for_no_other() {
    let mut calls = Calls::new(configured(8));
    assert_eq!(calls.accept(jobs(1..=1)), [vec![1]]);
    assert_eq!(calls.accept(jobs(2..=2)), [vec![2]]);
}

#[test]
fn jobs_that_wait_share_one_call_and_one_slot() {
    let mut calls = Calls::new(configured(1));
    assert_eq!(calls.accept_paused(jobs(1..=7)), [vec![1, 2, 3, 4, 5]]);
    assert_eq!(calls.in_flight(), (1, 5));
    for id in 1..=4 {
        assert_eq!(calls.done(id), Vec::<Vec<i64>>::new(), "the slot is free when the last one has ended");
    }
    assert_eq!(calls.in_flight(), (1, 1));
    assert_eq!(calls.done(5), [vec![6, 7]]);
}

#[test]
fn call_for_several_jobs_takes_one_token_of_the_rate() {
    let gate = GateSettings { rate: unit::rate("1/s").ok(), burst: 1, ..GateSettings::default() };
    let mut calls = Calls::new(Input::Configured {
        workers: vec![(name("w"), 9)],
        destinations: vec![(name(CRM), gate)],
        batches: vec![],
    });
    assert_eq!(calls.accept_paused(jobs(1..=12)), [vec![1, 2, 3, 4, 5]]);
    assert_eq!(calls.step(999, Input::Tick), Vec::<Vec<i64>>::new());
    assert_eq!(calls.step(1_000, Input::Tick), [vec![6, 7, 8, 9, 10]]);
    assert_eq!(calls.step(2_000, Input::Tick), [vec![11, 12]]);
}

#[test]
fn jobs_of_one_lane_do_not_share_a_call() {
    let mut calls = Calls::new(configured(1));
    let lanes = vec![job(1, 7), job(2, 7), job(3, 8), PendingJob { order: LaneOrder::None, ..job(4, 8) }];
    assert_eq!(calls.accept_paused(lanes), [vec![1, 3, 4]]);
    calls.done(1);
    calls.done(3);
    assert_eq!(calls.done(4), [vec![2]]);
}

#[test]
fn jobs_of_another_worker_have_calls_of_their_own() {
    let mut calls = Calls::new(configured(9));
    let mut mixed = jobs(1..=2);
    mixed.extend([of("v", job(3, 3)), of("v", job(4, 4))]);
    let mut started = calls.accept_paused(mixed);
    started.sort();
    assert_eq!(started, [vec![1, 2], vec![3], vec![4]]);
}

#[test]
fn lane_is_released_as_soon_as_its_own_job_is_durable() {
    let mut calls = Calls::new(configured(2));
    assert_eq!(calls.accept_paused(vec![job(1, 1), job(2, 2), job(3, 1)]), [vec![1, 2]]);
    assert_eq!(calls.done(1), [vec![3]], "job 2 of the same call is still under way");
}

#[test]
fn rejected_credentials_close_the_gate_before_the_other_jobs_of_the_call_have_ended() {
    let mut calls = Calls::new(configured(2));
    assert_eq!(calls.accept_paused(vec![job(1, 1), job(2, 2), job(3, 1)]), [vec![1, 2]]);
    let none = Vec::<Vec<i64>>::new();
    assert_eq!(calls.end(0, 1, Some(DestinationHealth::Unauthorized), AfterRun::Finished), none, "job 3 would die too");
    let spared = AfterRun::Live(PendingJob { due: Time(0), ..job(2, 2) });
    assert_eq!(calls.end(0, 2, Some(DestinationHealth::Throttled { after: None }), spared), none);
    assert_eq!(calls.step(120_000, Input::Tick), none, "an operator resumes it");
}

#[test]
fn released_job_keeps_its_turn() {
    let mut calls = Calls::new(configured(1));
    assert_eq!(calls.accept_paused(jobs(1..=7)), [vec![1, 2, 3, 4, 5]]);
    for id in 2..=5 {
        calls.end(0, id, None, AfterRun::Released { alone: id == 2 });
    }
    assert_eq!(calls.done(1), [vec![2]], "it can share no call");
    assert_eq!(calls.done(2), [vec![3, 4, 5, 6, 7]]);
}

#[test]
fn job_whose_batch_was_rejected_or_that_is_read_back_runs_alone() {
    let mut calls = Calls::new(configured(1));
    let alone = |id| PendingJob { alone: true, ..job(id, id as u64) };
    assert_eq!(calls.accept_paused(vec![job(1, 1), alone(2), job(3, 3)]), [vec![1]]);
    assert_eq!(calls.done(1), [vec![2]]);
    assert_eq!(calls.done(2), [vec![3]]);
}

#[test]
fn one_call_is_one_failure_for_the_breaker_and_a_probe_carries_one_job() {
    let breaker = BreakerSettings { failures_in_a_row: 2, open_first: Duration::from_secs(1), ..Default::default() };
    let mut calls = Calls::new(one_call(GateSettings { breaker, ..GateSettings::default() }));
    assert_eq!(calls.accept_paused(jobs(1..=9)), [vec![1, 2, 3, 4, 5]]);
    let failing = Some(DestinationHealth::Failing);
    let again = |id: i64| AfterRun::Live(PendingJob { due: Time(500), ..job(id, id as u64) });
    for id in 1..=4 {
        calls.end(1, id, failing, again(id));
    }
    assert_eq!(calls.end(1, 5, failing, again(5)), [vec![6, 7, 8, 9]], "five failures of one call are one");
    for id in 6..=9 {
        assert_eq!(calls.end(2, id, failing, again(id)), Vec::<Vec<i64>>::new());
    }
    assert_eq!(calls.step(2_000, Input::Tick).len(), 1);
    assert_eq!(calls.in_flight(), (1, 1));
}

#[test]
fn call_that_was_right_for_one_job_says_that_the_destination_works() {
    use DestinationHealth::{Failing, Healthy, Overloaded, Silent, Throttled, Unauthorized};
    let of_call = |one, other| DestinationHealth::of_call(Some(one), Some(other));
    assert_eq!(of_call(Failing, Healthy), Some(Healthy));
    assert_eq!(of_call(Silent, Failing), Some(Failing));
    assert_eq!(of_call(Failing, Overloaded), Some(Overloaded));
    assert_eq!(of_call(Healthy, Throttled { after: None }), Some(Throttled { after: None }));
    assert_eq!(of_call(Unauthorized, Throttled { after: None }), Some(Unauthorized));
    assert_eq!(DestinationHealth::of_call(None, None), None);
}
