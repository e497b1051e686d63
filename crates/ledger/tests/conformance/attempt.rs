//! An attempt is written down before it is made and after it has ended, and an old one changes nothing.

use std::sync::Arc;

use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_domain::time::Time;
use sluice_ledger::{AttemptKind, Begin, BeginResult, ChargeResult, EffectSettlement, Recheck, Settlement};

use crate::driver::{Driver, Fixture, at, begin, effect_key, failure, open, settlement};
use crate::fixtures::alone;

pub(crate) async fn a_begin_writes_the_intent_and_counts_the_try<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    assert_eq!(fixture.begin(job.id, 1).await, BeginResult::Go);
    let begun = fixture.read(job.id).await;
    assert_eq!((begun.state, begun.attempts_total, begun.updated_at), (JobState::Running, 1, at(1)));
    let effect = fixture.ledger.effects(job.id).await.unwrap().remove(0);
    assert_eq!((effect.state, effect.attempts, effect.key), (EffectState::Intent, 1, effect_key(job.id)));
    assert_eq!((effect.step, effect.step_id.as_str()), (0, "create"));
    assert_eq!((effect.action.as_str(), effect.destination.as_str()), ("http.post", "crm"));
    assert_eq!((effect.first_at, effect.last_at), (at(1), at(1)));
}

pub(crate) async fn tries_are_counted_over_retries<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    for n in 1..=3 {
        fixture.attempt(job.id, n, JobState::Retrying).await;
    }
    assert_eq!(fixture.read(job.id).await.attempts_total, 3);
    let effect = fixture.ledger.effects(job.id).await.unwrap().remove(0);
    assert_eq!((effect.attempts, effect.first_at, effect.last_at), (3, at(1), Time(at(3).0 + 100)));
}

pub(crate) async fn a_try_can_be_begun_once<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    assert_eq!(fixture.begin(job.id, 2).await, BeginResult::Stale, "the first try has not been made");
    assert_eq!(fixture.begin(job.id, 1).await, BeginResult::Go);
    assert_eq!(fixture.begin(job.id, 1).await, BeginResult::Stale);
    assert_eq!(fixture.ledger.effects(job.id).await.unwrap()[0].attempts, 1);
    assert_eq!(fixture.read(job.id).await.attempts_total, 1);
}

pub(crate) async fn a_finished_job_is_not_begun<D: Driver>() {
    let fixture = open::<D>();
    for state in [JobState::Succeeded, JobState::Noop, JobState::Dead, JobState::Unknown] {
        let job = fixture.job_that_is(state.as_str(), state).await;
        assert_eq!(fixture.begin(job.id, 2).await, BeginResult::Stale, "{state}");
        assert_eq!(fixture.read(job.id).await, job);
    }
}

pub(crate) async fn an_applied_effect_is_not_begun_again<D: Driver>() {
    let fixture = open::<D>();
    for (key, end) in [("a", EffectState::Applied), ("b", EffectState::Skipped)] {
        let job = fixture.job(key).await;
        fixture.begin(job.id, 1).await;
        let mut advance = settlement(job.id, 1, JobState::Queued);
        advance.effect = Some(EffectSettlement {
            key: effect_key(job.id),
            step: 0,
            state: end,
            result: None,
            absent_reads: 0,
            reads: 0,
            late_until: None,
        });
        assert!(fixture.settle_with(advance).await);
        assert_eq!(fixture.begin(job.id, 2).await, BeginResult::AlreadyApplied);
        let effect = fixture.ledger.effects(job.id).await.unwrap().remove(0);
        assert_eq!((effect.state, effect.attempts), (end, 1));
        let job = fixture.read(job.id).await;
        assert_eq!((job.state, job.attempts_total), (JobState::Queued, 1), "nothing was begun");
        assert!(!fixture.begin_and_settle(job.id, 2, JobState::Succeeded).await, "nor with its settlement");
    }
}

pub(crate) async fn a_begin_that_nobody_waits_for_comes_before_its_settlement<D: Driver>() {
    let fixture = open::<D>();
    let mut jobs = Vec::new();
    for n in 0..50 {
        jobs.push(fixture.job(&format!("key {n}")).await.id);
    }
    for job in &jobs {
        fixture.ledger.begin_without_waiting(begin(*job, 1)).await.unwrap();
        let settled = fixture.ledger.settle(alone(settlement(*job, 1, JobState::Succeeded))).await.unwrap();
        assert_eq!(settled, ChargeResult::Settled);
    }
    for job in jobs {
        assert_eq!(fixture.effect_state(job).await, EffectState::Applied);
    }
}

pub(crate) async fn an_attempt_written_at_once_is_the_same_as_one_written_in_two<D: Driver>() {
    let fixture = open::<D>();
    for state in [JobState::Succeeded, JobState::Retrying, JobState::Dead] {
        let (two, one) = (fixture.job(&format!("two {state}")).await.id, fixture.job(&format!("one {state}")).await.id);
        for n in 1..=2 {
            let live = n == 1 || state != JobState::Succeeded;
            fixture.begin(two, n).await;
            let settled = fixture.settle(two, n, state).await;
            let at_once = fixture.begin_and_settle(one, n, state).await;
            assert_eq!(settled, at_once, "{state}, try {n}");
            assert_eq!(settled, live && (n == 1 || state.is_live()), "{state}, try {n}");
        }
        let (a, b) = (fixture.read(two).await, fixture.read(one).await);
        assert_eq!(
            (a.state, a.attempts_total, a.attempts, a.finished_at),
            (b.state, b.attempts_total, b.attempts, b.finished_at)
        );
        assert_eq!((a.step, a.due_at, a.failure, a.result), (b.step, b.due_at, b.failure, b.result));
        let (a, b) = (fixture.ledger.effects(two).await.unwrap(), fixture.ledger.effects(one).await.unwrap());
        let shown = |effects: &[sluice_ledger::EffectRecord]| {
            let shown = effects.iter().map(|it| (it.state, it.attempts, it.first_at, it.last_at, it.result.clone()));
            shown.collect::<Vec<_>>()
        };
        assert_eq!(shown(&a), shown(&b), "{state}");
        let (a, b) = (fixture.ledger.attempts(two).await.unwrap(), fixture.ledger.attempts(one).await.unwrap());
        assert_eq!(a.len(), b.len(), "{state}");
    }
    let job = fixture.job("late").await.id;
    assert!(!fixture.begin_and_settle(job, 2, JobState::Succeeded).await);
    assert!(!fixture.begin_and_settle(job, 0, JobState::Succeeded).await);
    assert_eq!(fixture.read(job).await.state, JobState::Queued, "nothing was written");
}

pub(crate) async fn every_state_can_be_settled_and_reads_back<D: Driver>() {
    let fixture = open::<D>();
    for state in JobState::ALL.into_iter().filter(|state| !matches!(state, JobState::Running | JobState::Dropped)) {
        let job = fixture.job(state.as_str()).await;
        fixture.begin(job.id, 1).await;
        let settlement = settlement(job.id, 1, state);
        assert!(fixture.settle_with(settlement.clone()).await);
        let settled = fixture.read(job.id).await;
        let next = settlement.next;
        assert_eq!((settled.state, settled.step, settled.attempts), (state, next.step, next.attempts));
        assert_eq!((settled.due_at, settled.verifying), (next.due_at, next.verifying));
        assert_eq!((&settled.failure, &settled.result), (&next.failure, &next.result));
        assert_eq!((settled.dead_letter_queue, settled.updated_at), (next.dead_letter_queue, settlement.at));
        assert_eq!(settled.finished_at, (!state.is_live()).then_some(settlement.at), "{state}");
        assert_eq!(Some(fixture.effect_state(job.id).await), settlement.effect.map(|effect| effect.state));
    }
}

pub(crate) async fn attempts_are_recorded_in_their_order<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    fixture.attempt(job.id, 1, JobState::Waiting).await;
    let mut read_back = settlement(job.id, 1, JobState::Retrying);
    read_back.attempt.as_mut().unwrap().kind = AttemptKind::Read;
    assert!(fixture.settle_with(read_back).await);
    fixture.attempt(job.id, 2, JobState::Succeeded).await;
    let attempts = fixture.ledger.attempts(job.id).await.unwrap();
    let seen: Vec<_> = attempts.iter().map(|attempt| (attempt.n, attempt.kind, attempt.outcome.as_str())).collect();
    assert_eq!(
        seen,
        [(1, AttemptKind::Call, "retry"), (1, AttemptKind::Read, "retry"), (2, AttemptKind::Call, "done")]
    );
    assert_eq!((attempts[0].started_at, attempts[0].ended_at), (at(1), Time(at(1).0 + 100)));
    assert_eq!((&attempts[0].failure, &attempts[2].failure), (&Some(failure()), &None));
    assert_eq!(attempts[0].step, "create");
}

pub(crate) async fn a_job_can_be_settled_without_a_try<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    let settlement = Settlement { effect: None, attempt: None, ..settlement(job.id, 0, JobState::Dead) };
    assert!(fixture.settle_with(settlement).await);
    assert_eq!(fixture.read(job.id).await.state, JobState::Dead);
    assert!(fixture.ledger.attempts(job.id).await.unwrap().is_empty());
    assert!(fixture.ledger.effects(job.id).await.unwrap().is_empty());
}

pub(crate) async fn a_settlement_of_an_older_try_writes_nothing<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    fixture.attempt(job.id, 1, JobState::Retrying).await;
    assert_eq!(fixture.begin(job.id, 2).await, BeginResult::Go);
    let before = (fixture.read(job.id).await, fixture.ledger.effects(job.id).await.unwrap());
    assert!(!fixture.settle(job.id, 1, JobState::Succeeded).await);
    assert!(!fixture.settle(job.id, 3, JobState::Succeeded).await);
    assert_eq!((fixture.read(job.id).await, fixture.ledger.effects(job.id).await.unwrap()), before);
    assert_eq!(fixture.ledger.attempts(job.id).await.unwrap().len(), 1);
}

pub(crate) async fn a_finished_job_is_not_settled_again<D: Driver>() {
    let fixture = open::<D>();
    for state in [JobState::Succeeded, JobState::Noop, JobState::Dead, JobState::Unknown] {
        let job = fixture.job_that_is(state.as_str(), state).await;
        assert!(!fixture.settle(job.id, 1, JobState::Retrying).await);
        assert_eq!(fixture.read(job.id).await, job);
        assert_eq!(fixture.ledger.attempts(job.id).await.unwrap().len(), 1);
    }
    assert!(!fixture.settle(sluice_domain::job::JobId(999), 1, JobState::Dead).await, "no such job");
}

pub(crate) async fn applied_stays_applied<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    fixture.begin(job.id, 1).await;
    let mut applied = settlement(job.id, 1, JobState::Waiting);
    let result = Some(Arc::new(serde_json::json!({ "id": "003" })));
    applied.effect = Some(EffectSettlement {
        key: effect_key(job.id),
        step: 0,
        state: EffectState::Applied,
        result: result.clone(),
        absent_reads: 0,
        reads: 0,
        late_until: None,
    });
    assert!(fixture.settle_with(applied).await);
    for state in [JobState::Retrying, JobState::Unknown] {
        fixture.settle(job.id, 1, state).await;
        let effect = fixture.ledger.effects(job.id).await.unwrap().remove(0);
        assert_eq!((effect.state, &effect.result), (EffectState::Applied, &result));
    }
}

pub(crate) async fn reads_are_counted_until_the_next_try<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    fixture.begin(job.id, 1).await;
    let mut unseen = settlement(job.id, 1, JobState::Waiting);
    unseen.next.verifying = true;
    unseen.effect = Some(EffectSettlement {
        key: effect_key(job.id),
        step: 0,
        state: EffectState::Unknown,
        result: None,
        absent_reads: 1,
        reads: 2,
        late_until: None,
    });
    assert!(fixture.settle_with(unseen).await);
    let effect = fixture.ledger.effects(job.id).await.unwrap().remove(0);
    assert_eq!((effect.absent_reads, effect.reads), (1, 2));
    assert!(fixture.read(job.id).await.verifying);
    fixture.begin(job.id, 2).await;
    let effect = fixture.ledger.effects(job.id).await.unwrap().remove(0);
    assert_eq!((effect.state, effect.absent_reads, effect.reads), (EffectState::Intent, 0, 0));
}

/// A newer revision may put a step in front: what was done keeps its key, whatever place its step has now.
pub(crate) async fn an_effect_is_known_by_its_key_when_its_step_has_another_place<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job_that_is("a", JobState::Succeeded).await;
    let replay = sluice_ledger::Replay {
        jobs: vec![job.id],
        actor: "ann".into(),
        reason: "a new step".into(),
        revision: Some("r2".into()),
        at: at(2),
    };
    assert_eq!(fixture.ledger.replay(replay).await.unwrap().len(), 1);
    let greet = Begin { key: sluice_domain::job::EffectKey([200; 16]), step_id: "greet".into(), ..begin(job.id, 2) };
    assert_eq!(fixture.begin_with(greet).await, BeginResult::Go, "nobody has been greeted yet");
    let at_the_first_step = fixture.ledger.effects(job.id).await.unwrap();
    assert_eq!(
        (at_the_first_step[0].step, at_the_first_step[0].step_id.as_str()),
        (0, "greet"),
        "the one begun last is first"
    );
    let mut greeted = settlement(job.id, 2, JobState::Queued);
    let effect = greeted.effect.as_mut().unwrap();
    (effect.key, effect.state) = (sluice_domain::job::EffectKey([200; 16]), EffectState::NotApplied);
    assert!(fixture.settle_with(greeted).await);
    let create = Begin { step: 1, ..begin(job.id, 3) };
    assert_eq!(fixture.begin_with(create).await, BeginResult::AlreadyApplied);
    let effects = fixture.ledger.effects(job.id).await.unwrap();
    let seen: Vec<_> = effects.iter().map(|effect| (effect.step, effect.step_id.as_str(), effect.state)).collect();
    assert_eq!(seen, [(0, "greet", EffectState::NotApplied), (1, "create", EffectState::Applied)]);
}

/// An attempt at the write of a new job of the one entity that there is.
async fn written<D: Driver>(fixture: &Fixture<D>, key: &str, late_until: Option<Time>, state: JobState) -> JobId {
    let job = fixture.job(key).await.id;
    write_again(fixture, job, 1, late_until, state).await;
    job
}

async fn write_again<D: Driver>(fixture: &Fixture<D>, job: JobId, n: u32, late_until: Option<Time>, state: JobState) {
    let begin = Begin { class: EffectClass::Natural, ..begin(job, n) };
    assert_eq!(fixture.begin_with(begin).await, BeginResult::Go);
    let mut settlement = settlement(job, n, state);
    let effect = settlement.effect.as_mut().unwrap();
    effect.late_until = late_until;
    if late_until.is_some() {
        effect.state = EffectState::Unknown;
    }
    assert!(fixture.settle_with(settlement).await);
}

pub(crate) async fn the_last_confirmed_write_of_a_lane_is_rechecked_once_its_straggler_is_due<D: Driver>() {
    let fixture = open::<D>();
    assert_eq!(fixture.ledger.next_straggler().await.unwrap(), None);
    let unsure = written(&fixture, "first", Some(at(100)), JobState::Retrying).await;
    assert_eq!(fixture.ledger.next_straggler().await.unwrap(), Some(at(100)));
    write_again(&fixture, unsure, 2, None, JobState::Succeeded).await;
    let newest = written(&fixture, "second", None, JobState::Succeeded).await;
    let fixture = fixture.reopen().await;
    let recheck = |second| Recheck { at: at(7), due_at: at(second), jobs_max: 10 };
    assert_eq!(fixture.ledger.recheck(recheck(99)).await.unwrap(), [], "not due");
    let due = fixture.ledger.recheck(recheck(100)).await.unwrap();
    assert_eq!(due.iter().map(|(job, _)| *job).collect::<Vec<_>>(), [newest]);
    let job = fixture.read(newest).await;
    assert_eq!((job.state, job.step, job.due_at, job.finished_at), (JobState::Queued, 0, at(100), None));
    assert_eq!(fixture.ledger.effects(job.id).await.unwrap()[0].state, EffectState::Rechecking);
    assert_eq!(fixture.read(unsure).await.state, JobState::Succeeded);
    assert_eq!(
        fixture.ledger.recheck(recheck(300)).await.unwrap(),
        [],
        "while it is compared, it is not compared again"
    );
    let mut settlement = settlement(newest, 1, JobState::Succeeded);
    settlement.attempt.as_mut().unwrap().kind = AttemptKind::Read;
    assert!(fixture.settle_with(settlement).await);
    assert_eq!(fixture.effect_state(newest).await, EffectState::Applied);
    assert_eq!(fixture.ledger.next_straggler().await.unwrap(), None, "once");
}

pub(crate) async fn a_write_that_is_confirmed_while_an_older_one_is_compared_supersedes_it<D: Driver>() {
    let fixture = open::<D>();
    let older = written(&fixture, "older", Some(at(100)), JobState::Retrying).await;
    write_again(&fixture, older, 2, None, JobState::Succeeded).await;
    let recheck = |second| Recheck { at: at(7), due_at: at(second), jobs_max: 10 };
    assert_eq!(fixture.ledger.recheck(recheck(100)).await.unwrap().len(), 1);
    let newer = written(&fixture, "newer", None, JobState::Succeeded).await;
    assert_eq!(fixture.effect_state(older).await, EffectState::Applied, "the older one is not written again");
    let due = fixture.ledger.recheck(recheck(101)).await.unwrap();
    assert_eq!(due.iter().map(|(job, _)| *job).collect::<Vec<_>>(), [newer], "the newer one is compared instead");
}

pub(crate) async fn a_lane_whose_job_still_runs_is_rechecked_later_and_one_whose_write_failed_is_not<D: Driver>() {
    let fixture = open::<D>();
    let live = written(&fixture, "live", Some(at(100)), JobState::Retrying).await;
    let recheck = |second| Recheck { at: at(7), due_at: at(second), jobs_max: 10 };
    assert_eq!(fixture.ledger.recheck(recheck(200)).await.unwrap(), []);
    let later = fixture.ledger.next_straggler().await.unwrap().unwrap();
    assert!(later > at(200), "{later}");
    write_again(&fixture, live, 2, None, JobState::Dead).await;
    assert_eq!(fixture.ledger.recheck(recheck(300)).await.unwrap(), []);
    assert_eq!(fixture.ledger.next_straggler().await.unwrap(), None);
}

pub(crate) async fn a_confirmed_write_of_a_dead_job_is_rechecked_once_it_is_replayed<D: Driver>() {
    let fixture = open::<D>();
    let job = written(&fixture, "first", Some(at(100)), JobState::Retrying).await;
    let begin = Begin { class: EffectClass::Natural, ..begin(job, 2) };
    assert_eq!(fixture.begin_with(begin).await, BeginResult::Go);
    // The write is confirmed, and a later step fails for good.
    let mut confirmed = settlement(job, 2, JobState::Dead);
    confirmed.effect.as_mut().unwrap().state = EffectState::Applied;
    assert!(fixture.settle_with(confirmed).await);
    let recheck = |second| Recheck { at: at(7), due_at: at(second), jobs_max: 10 };
    assert_eq!(fixture.ledger.recheck(recheck(200)).await.unwrap(), []);
    let later = fixture.ledger.next_straggler().await.unwrap();
    assert!(later.is_some_and(|later| later > at(200)), "{later:?}");
    let (actor, reason) = ("ann".into(), "fixed".into());
    let replay = sluice_ledger::Replay { jobs: vec![job], actor, reason, revision: None, at: at(8) };
    fixture.ledger.replay(replay).await.unwrap();
    let finished = Settlement { effect: None, attempt: None, ..settlement(job, 2, JobState::Succeeded) };
    assert!(fixture.settle_with(finished).await);
    let due = fixture.ledger.recheck(recheck(1_000)).await.unwrap();
    assert_eq!(due.iter().map(|(job, _)| *job).collect::<Vec<_>>(), [job]);
}
