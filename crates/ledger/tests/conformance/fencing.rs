//! A write of an owner that the job no longer belongs to is refused.

use sluice_domain::job::{EffectState, JobState, Term};
use sluice_domain::worker::LaneOrder;
use sluice_ledger::{
    AttemptKind, Begin, BeginResult, CappedBeginResult, ChargeResult, Fence, Replay, Resolution, Resolve, Settle,
    Settlement,
};

use crate::driver::{Driver, Fixture, at, begin, open, settlement};
use crate::fixtures::{alone, fence};

const STALE: CappedBeginResult = CappedBeginResult::Begun(BeginResult::Stale);

/// The attempt was under way when its process ended.
fn interrupted(settlement: Settlement, fence: Fence) -> Settlement {
    let mut settlement = Settlement { fence, ..settlement };
    if let (Some(effect), Some(attempt)) = (&mut settlement.effect, &mut settlement.attempt) {
        (effect.state, attempt.outcome) = (EffectState::Unknown, "interrupted");
    }
    settlement
}

async fn settle<D: Driver>(fixture: &Fixture<D>, settlement: Settlement) -> ChargeResult {
    fixture.ledger.settle(alone(settlement)).await.unwrap()
}

pub(crate) async fn a_settlement_of_a_try_that_a_newer_owner_settled_as_interrupted_is_refused<D: Driver>() {
    let fixture = open::<D>();
    for next in [JobState::Retrying, JobState::Waiting, JobState::Queued] {
        let job = fixture.job(next.as_str()).await.id;
        let old = Begin { fence: fence(1, 0), ..begin(job, 1) };
        fixture.ledger.begin(old, vec![]).await.unwrap();
        let recovery = interrupted(settlement(job, 1, next), fence(2, 1));
        assert_eq!(settle(&fixture, recovery.clone()).await, ChargeResult::Settled);
        let recovered = (fixture.read(job).await, fixture.ledger.effects(job).await.unwrap());
        assert_eq!(recovered.0.term, Term(2));
        let late = Settlement { fence: fence(1, 1), ..settlement(job, 1, JobState::Succeeded) };
        assert_eq!(settle(&fixture, late.clone()).await, ChargeResult::Stale);
        let late_with_begin = Settle { begin: Some(begin(job, 1)), ..alone(late) };
        assert_eq!(fixture.ledger.settle(late_with_begin).await.unwrap(), ChargeResult::Stale);
        assert_eq!(settle(&fixture, recovery).await, ChargeResult::Stale, "a second recovery is refused too");
        assert_eq!((fixture.read(job).await, fixture.ledger.effects(job).await.unwrap()), recovered);
        assert_eq!(fixture.ledger.attempts(job).await.unwrap().len(), 1);
    }
}

pub(crate) async fn a_settlement_before_the_recovery_makes_the_recovery_stale<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await.id;
    fixture.ledger.begin(begin(job, 1), vec![]).await.unwrap();
    assert_eq!(settle(&fixture, settlement(job, 1, JobState::Retrying)).await, ChargeResult::Settled);
    let recovery = interrupted(settlement(job, 1, JobState::Retrying), fence(2, 1));
    assert_eq!(settle(&fixture, recovery).await, ChargeResult::Stale);
}

pub(crate) async fn a_begin_needs_the_expected_term_and_a_job_that_is_not_running<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await.id;
    let begin_as = async |n, owner, expected| {
        let begin = Begin { fence: fence(owner, expected), ..begin(job, n) };
        fixture.ledger.begin(begin, vec![]).await.unwrap()
    };
    assert_eq!(begin_as(1, 2, 1).await, STALE, "nobody has written the job yet");
    assert_eq!(begin_as(1, 2, 0).await, CappedBeginResult::Begun(BeginResult::Go));
    assert_eq!(begin_as(2, 2, 2).await, STALE, "it is running");
    let retry = Settlement { fence: fence(2, 2), ..settlement(job, 1, JobState::Retrying) };
    assert_eq!(settle(&fixture, retry).await, ChargeResult::Settled);
    assert_eq!(begin_as(2, 1, 1).await, STALE, "an older owner");
    assert_eq!(begin_as(2, 3, 2).await, CappedBeginResult::Begun(BeginResult::Go));
    assert_eq!(fixture.read(job).await.term, Term(3));
}

pub(crate) async fn a_settlement_without_a_call_needs_a_job_that_is_not_running<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await.id;
    fixture.ledger.begin(begin(job, 1), vec![]).await.unwrap();
    let pass = Settlement { effect: None, attempt: None, ..settlement(job, 1, JobState::Waiting) };
    assert_eq!(settle(&fixture, pass.clone()).await, ChargeResult::Stale, "its own attempt is under way");
    let mut read_back = settlement(job, 1, JobState::Waiting);
    read_back.attempt.as_mut().unwrap().kind = AttemptKind::Read;
    assert_eq!(settle(&fixture, read_back.clone()).await, ChargeResult::Stale);
    assert_eq!(settle(&fixture, settlement(job, 1, JobState::Waiting)).await, ChargeResult::Settled);
    assert_eq!(settle(&fixture, settlement(job, 1, JobState::Waiting)).await, ChargeResult::Stale, "it is not running");
    assert_eq!(settle(&fixture, read_back).await, ChargeResult::Settled);
    let older = Settlement { fence: fence(1, 0), ..pass.clone() };
    assert_eq!(settle(&fixture, older).await, ChargeResult::Stale);
    assert_eq!(settle(&fixture, pass).await, ChargeResult::Settled);
}

/// The process may end between the begin and the record of its effect in older ledgers: nothing is there to be settled.
pub(crate) async fn a_newer_owner_settles_an_interrupted_job_that_has_no_intent<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await.id;
    fixture.ledger.begin(begin(job, 1), vec![]).await.unwrap();
    let retry =
        Settlement { effect: None, attempt: None, fence: fence(2, 1), ..settlement(job, 1, JobState::Retrying) };
    assert_eq!(settle(&fixture, retry).await, ChargeResult::Settled);
    assert_eq!(settle(&fixture, settlement(job, 1, JobState::Succeeded)).await, ChargeResult::Stale);
}

pub(crate) async fn a_replay_keeps_the_term_and_the_destination_unless_the_step_changes<D: Driver>() {
    let fixture = open::<D>();
    let parked = async |key: &str, state| {
        let job = fixture.job(key).await.id;
        fixture.begin(job, 1).await;
        let mut ended = settlement(job, 1, state);
        (ended.next.destination, ended.next.order) = ("crm".into(), LaneOrder::None);
        assert!(fixture.settle_with(ended).await);
        job
    };
    let route = async |job| {
        let job = fixture.read(job).await;
        assert_eq!(job.term, fixture.ledger.term());
        (job.destination.to_string(), job.order)
    };
    let kept = ("crm".to_owned(), LaneOrder::None);
    let reset = (String::new(), LaneOrder::Fifo);
    for (key, revision, expected) in [("a", None, &kept), ("b", Some("r1"), &kept), ("c", Some("r2"), &reset)] {
        let job = parked(key, JobState::Dead).await;
        let revision = revision.map(Into::into);
        let replay = Replay { jobs: vec![job], actor: "ann".into(), reason: "fixed".into(), revision, at: at(50) };
        fixture.ledger.replay(replay).await.unwrap();
        assert_eq!(route(job).await, *expected, "{key}");
    }
    for (key, resolution, expected) in [("d", Resolution::NotHappened, &kept), ("e", Resolution::Happened, &reset)] {
        let job = parked(key, JobState::Unknown).await;
        let resolve = Resolve { job, resolution, actor: "ann".into(), reason: "looked".into(), at: at(50) };
        fixture.ledger.resolve(resolve).await.unwrap();
        assert_eq!(route(job).await, *expected, "{key}");
    }
}
