//! Numbers of jobs are kept, and the oldest ones are known.

use std::time::Duration;

use sluice_domain::job::JobState;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;
use sluice_domain::wait::WaitReason;
use sluice_ledger::{DropJobs, JobTotal, OldestJobs, Prune, Replay};

use crate::driver::{Driver, Fixture, at, open, settlement};
use crate::fixtures::{DAY, START};

async fn totals<D: Driver>(fixture: &Fixture<D>) -> Vec<(String, JobState, Option<String>, u64)> {
    let totals = fixture.ledger.job_totals().await.unwrap();
    let shown = |total: JobTotal| {
        assert_eq!(&*total.worker, "crm");
        let queue = total.dead_letter_queue.map(|queue| queue.to_string());
        (total.destination.to_string(), total.state, queue, total.count)
    };
    totals.into_iter().map(shown).collect()
}

pub(crate) async fn totals_follow_every_change_of_a_job<D: Driver>() {
    let fixture = open::<D>();
    assert!(totals(&fixture).await.is_empty());
    let jobs = [fixture.job("a").await.id, fixture.job("b").await.id, fixture.job("c").await.id];
    let row = |destination: &str, state, queue: Option<&str>, count| {
        (destination.to_owned(), state, queue.map(str::to_owned), count)
    };
    assert_eq!(totals(&fixture).await, [row("", JobState::Queued, None, 3)]);
    fixture.begin(jobs[0], 1).await;
    assert_eq!(totals(&fixture).await, [row("", JobState::Queued, None, 2), row("", JobState::Running, None, 1)]);
    fixture.settle(jobs[0], 1, JobState::Retrying).await;
    let retrying = row("crm", JobState::Retrying, None, 1);
    assert_eq!(totals(&fixture).await, [row("", JobState::Queued, None, 2), retrying.clone()]);
    fixture.attempt(jobs[1], 1, JobState::Dead).await;
    fixture.attempt(jobs[2], 1, JobState::Succeeded).await;
    let succeeded = row("", JobState::Succeeded, None, 1);
    let dead = row("", JobState::Dead, Some("leads-dead"), 1);
    assert_eq!(totals(&fixture).await, [succeeded.clone(), dead, retrying.clone()]);
    let fixture = fixture.reopen().await;
    let (actor, reason) = ("ann".to_owned(), "fixed".to_owned());
    let replay = Replay {
        jobs: jobs.to_vec(),
        actor: actor.clone(),
        reason: reason.clone(),
        revision: Some("r2".into()),
        at: at(50),
    };
    fixture.ledger.replay(replay).await.unwrap();
    assert_eq!(totals(&fixture).await, [row("", JobState::Queued, None, 2), retrying.clone()]);
    fixture.attempt(jobs[1], 2, JobState::Dead).await;
    fixture.ledger.drop_jobs(DropJobs { jobs: jobs.to_vec(), actor, reason, at: at(60) }).await.unwrap();
    let dropped = row("", JobState::Dropped, Some("leads-dead"), 1);
    assert_eq!(totals(&fixture).await, [row("", JobState::Queued, None, 1), dropped, retrying.clone()]);
    let now = fixture.clock.advance(365 * DAY);
    let prune = Prune { bodies_before: now, events_before: now, rows_max: 100, at: now };
    fixture.ledger.prune(prune).await.unwrap();
    assert_eq!(totals(&fixture).await, [row("", JobState::Queued, None, 1), retrying]);
    assert_eq!(fixture.ledger.event_count().await.unwrap(), 2);
}

pub(crate) async fn the_oldest_live_job_and_dead_letter_are_known<D: Driver>() {
    let fixture = open::<D>();
    assert_eq!(fixture.ledger.oldest_jobs().await.unwrap(), OldestJobs::default());
    let first = fixture.job("first").await.id;
    let second_at = fixture.clock.advance(1000);
    let second = fixture.job("second").await.id;
    fixture.clock.advance(1000);
    fixture.job("third").await;
    let live = async |fixture: &Fixture<D>| fixture.ledger.oldest_jobs().await.unwrap().live;
    assert_eq!(live(&fixture).await, [("crm".into(), START)]);
    fixture.attempt(first, 1, JobState::Retrying).await;
    assert_eq!(live(&fixture).await, [("crm".into(), START)], "a retrying job counts");
    fixture.attempt(first, 2, JobState::Dead).await;
    assert_eq!(live(&fixture).await, [("crm".into(), second_at)]);
    fixture.attempt(second, 1, JobState::Dead).await;
    let died = |n: u32| Time(at(n).0 + 100);
    let oldest = async |fixture: &Fixture<D>| fixture.ledger.oldest_jobs().await.unwrap().dead_letters;
    assert_eq!(oldest(&fixture).await, [(Some("leads-dead".into()), died(1))]);
    let drop = DropJobs { jobs: vec![second], actor: "ann".into(), reason: "spam".into(), at: at(60) };
    fixture.ledger.drop_jobs(drop).await.unwrap();
    assert_eq!(oldest(&fixture).await, [(Some("leads-dead".into()), died(2))]);
}

pub(crate) async fn a_dead_letter_that_was_replayed_in_vain_does_not_hide_an_older_one<D: Driver>() {
    let fixture = open::<D>();
    let (first, second) = (fixture.job("first").await.id, fixture.job("second").await.id);
    fixture.attempt(first, 1, JobState::Dead).await;
    fixture.attempt(second, 1, JobState::Retrying).await;
    fixture.attempt(second, 2, JobState::Dead).await;
    let (actor, reason) = ("ann".to_owned(), "to see".to_owned());
    let replay = Replay { jobs: vec![first], actor, reason, revision: None, at: at(50) };
    fixture.ledger.replay(replay).await.unwrap();
    fixture.attempt(first, 2, JobState::Retrying).await;
    fixture.attempt(first, 3, JobState::Dead).await;
    let oldest = fixture.ledger.oldest_jobs().await.unwrap().dead_letters;
    assert_eq!(oldest, [(Some("leads-dead".into()), Time(at(2).0 + 100))]);
}

pub(crate) async fn a_replayed_job_is_not_as_old_as_its_event<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.job("first").await.id;
    fixture.attempt(first, 1, JobState::Dead).await;
    let second_at = fixture.clock.advance(DAY);
    fixture.job("second").await;
    let (actor, reason) = ("ann".to_owned(), "mended".to_owned());
    let replay = Replay { jobs: vec![first], actor, reason, revision: None, at: second_at + Duration::from_secs(9) };
    fixture.ledger.replay(replay).await.unwrap();
    let live = fixture.ledger.oldest_jobs().await.unwrap().live;
    assert_eq!(live, [("crm".into(), second_at)], "the queue is not a day behind");
}

pub(crate) async fn waiting_jobs_are_counted_by_what_they_wait_for<D: Driver>() {
    let fixture = open::<D>();
    let mut jobs = Vec::new();
    for (key, code) in [("a", "approval"), ("b", "approval"), ("c", "policy-wait"), ("d", "429")] {
        let job = fixture.job(key).await.id;
        fixture.begin(job, 1).await;
        let mut waiting = settlement(job, 1, JobState::Waiting);
        waiting.next.failure = Some(Failure::new(FailureClass::Retryable, code, ""));
        assert!(fixture.settle_with(waiting).await);
        jobs.push(job);
    }
    let waits = async |fixture: &Fixture<D>| {
        let totals = fixture.ledger.job_totals().await.unwrap();
        totals.into_iter().map(|total| (total.state, total.wait, total.count)).collect::<Vec<_>>()
    };
    let waiting = |wait, count| (JobState::Waiting, Some(wait), count);
    let all = [waiting(WaitReason::Approval, 2), waiting(WaitReason::Policy, 1), waiting(WaitReason::Throttled, 1)];
    assert_eq!(waits(&fixture).await, all);
    let fixture = fixture.reopen().await;
    assert_eq!(waits(&fixture).await, all);
    for job in &jobs {
        fixture.begin(*job, 2).await;
    }
    assert_eq!(waits(&fixture).await, [(JobState::Running, None, 4)]);
    for job in jobs {
        fixture.settle(job, 2, JobState::Retrying).await;
    }
    assert_eq!(waits(&fixture).await, [(JobState::Retrying, None, 4)]);
}
