//! Retries that count against the budget of a contact, and since when a schedule holds.

use sluice_domain::job::JobState;
use sluice_domain::time::Time;
use sluice_ledger::{ChargeResult, JobUpdate, Prune, Pruned, RetryCharge, Schedule, Settle};

use crate::driver::{Driver, Fixture, at, open, settlement};
use crate::fixtures::alone;

const HOUR: i64 = 3_600_000;

/// One attempt that wants to be retried.
async fn retry<D: Driver>(fixture: &Fixture<D>, job: sluice_domain::job::JobId, n: u32, retries: u32) -> ChargeResult {
    fixture.begin(job, n).await;
    let wanted = settlement(job, n, JobState::Retrying);
    let otherwise = JobUpdate { state: JobState::Dead, ..settlement(job, n, JobState::Dead).next };
    let draw = RetryCharge { retries, until: Time(wanted.at.0 + HOUR), otherwise };
    fixture.settle_all(Settle { charge: Some(draw), ..alone(wanted) }).await
}

pub(crate) async fn retries_of_one_entity_are_counted_over_its_jobs_and_over_restarts<D: Driver>() {
    let fixture = open::<D>();
    let (one, two) = (fixture.job("a").await, fixture.job("b").await);
    assert_eq!(retry(&fixture, one.id, 1, 2).await, ChargeResult::Settled);
    assert_eq!(fixture.read(one.id).await.state, JobState::Retrying);
    assert_eq!(retry(&fixture, two.id, 1, 2).await, ChargeResult::Settled);
    let fixture = fixture.reopen().await;
    assert_eq!(retry(&fixture, one.id, 2, 2).await, ChargeResult::Exhausted);
    assert_eq!(fixture.read(one.id).await.state, JobState::Dead, "the other way is written");
    let mut other = crate::fixtures::event("c");
    other.entity = 99;
    let other = fixture.accept_event(other).await;
    let other = fixture.jobs_of(&other).await.remove(0);
    assert_eq!(retry(&fixture, other.id, 1, 2).await, ChargeResult::Settled, "another entity has its own");
}

pub(crate) async fn a_retry_counts_for_a_while<D: Driver>() {
    let fixture = open::<D>();
    let (one, two) = (fixture.job("a").await, fixture.job("b").await);
    assert_eq!(retry(&fixture, one.id, 1, 1).await, ChargeResult::Settled);
    let later = |at: Time| Time(at.0 + HOUR + 200);
    fixture.begin(two.id, 1).await;
    let mut wanted = settlement(two.id, 1, JobState::Retrying);
    wanted.at = later(wanted.at);
    let draw = RetryCharge { retries: 1, until: later(wanted.at), otherwise: wanted.next.clone() };
    assert_eq!(fixture.settle_all(Settle { charge: Some(draw), ..alone(wanted) }).await, ChargeResult::Settled);
    let prune = Prune { bodies_before: Time(0), events_before: Time(0), rows_max: 10, at: later(at(1)) };
    assert_eq!(
        fixture.ledger.prune(prune).await.unwrap(),
        Pruned { rows: 1, more: false },
        "the one that counts no more"
    );
}

pub(crate) async fn a_retry_of_an_older_try_is_refused_and_not_counted<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    fixture.attempt(job.id, 1, JobState::Retrying).await;
    assert_eq!(fixture.begin(job.id, 2).await, sluice_ledger::BeginResult::Go);
    let old = settlement(job.id, 1, JobState::Retrying);
    let draw = RetryCharge { retries: 1, until: Time(at(9).0 + HOUR), otherwise: old.next.clone() };
    assert_eq!(fixture.settle_all(Settle { charge: Some(draw), ..alone(old) }).await, ChargeResult::Stale);
    let new = settlement(job.id, 2, JobState::Retrying);
    let draw = RetryCharge { retries: 1, until: Time(at(9).0 + HOUR), otherwise: new.next.clone() };
    assert_eq!(fixture.settle_all(Settle { charge: Some(draw), ..alone(new) }).await, ChargeResult::Settled);
}

pub(crate) async fn a_schedule_holds_since_it_was_first_seen<D: Driver>() {
    let fixture = open::<D>();
    let since = async |fixture: &Fixture<D>, rule: &str, at: Time| {
        fixture.ledger.schedule(Schedule { worker: "replay".into(), rule: rule.into(), at }).await.unwrap()
    };
    assert_eq!(since(&fixture, "*/10", at(1)).await, at(1));
    assert_eq!(since(&fixture, "*/10", at(2)).await, at(1));
    let fixture = fixture.reopen().await;
    assert_eq!(since(&fixture, "*/10", at(3)).await, at(1));
    assert_eq!(since(&fixture, "*/5", at(4)).await, at(4), "another rule begins anew");
    assert_eq!(since(&fixture, "*/5", at(5)).await, at(4));
}
