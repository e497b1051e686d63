//! Steps that stay inside: what they came to is kept, and a mark has one owner.

use std::collections::HashMap;

use serde_json::{Value, json};
use sluice_domain::event::{EventId, LossCode, MappingWarning};
use sluice_domain::job::{EffectKey, EffectState, JobState, Term};
use sluice_domain::key::KeyDigest;
use sluice_domain::random::Random;
use sluice_domain::time::Time;
use sluice_ledger::{DropJobs, Fence, JobRecord, Mark, Marked, Prune, Pruned, StepResult, StepWarning};

use crate::driver::{Driver, Fixture, at, open};

const HOUR: i64 = 3_600_000;

fn note(job: &JobRecord, n: u32, result: Value) -> StepResult {
    let mut key = [9; 16];
    key[..8].copy_from_slice(&job.id.0.to_be_bytes());
    StepResult {
        job: job.id,
        n,
        fence: Fence { owner: Term(1), expected: job.term },
        step: 0,
        step_id: "check".into(),
        key: EffectKey(key),
        action: "store.setnx",
        state: EffectState::Applied,
        result,
        warning: None,
        at: at(0),
    }
}

fn digest(key: &str) -> KeyDigest {
    KeyDigest::new("tenant", "mark:default", key)
}

fn mark(job: &JobRecord, key: &str, near: &[&str]) -> Mark {
    Mark {
        result: note(job, job.attempts_total, Value::Null),
        store: "default".into(),
        key: digest(key),
        adjacent: near.iter().map(|key| digest(key)).collect(),
        event: EventId([u8::try_from(job.id.0 % 251).unwrap(); 16]),
        expires_at: Time(at(0).0 + HOUR),
    }
}

async fn set<D: Driver>(fixture: &Fixture<D>, mark: Mark) -> bool {
    fixture.ledger.set_mark(mark).await.unwrap().unwrap().set
}

pub(crate) async fn a_note_is_kept_as_it_was_first_made<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    let first = fixture.ledger.record_step(note(&job, 0, json!({ "n": 1 }))).await.unwrap();
    let second = fixture.ledger.record_step(note(&job, 0, json!({ "n": 2 }))).await.unwrap();
    assert_eq!((first, second), (Some(json!({ "n": 1 })), Some(json!({ "n": 1 }))));
    let fixture = fixture.reopen().await;
    let effects = fixture.ledger.effects(job.id).await.unwrap();
    assert_eq!((effects.len(), effects[0].state), (1, EffectState::Applied));
    assert_eq!((effects[0].result.as_deref(), effects[0].step_id.as_str()), (Some(&json!({ "n": 1 })), "check"));
    assert_eq!(fixture.read(job.id).await.state, JobState::Queued, "the job goes on as it stood");
}

pub(crate) async fn warning_of_a_step_is_counted_once_for_its_source<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    let warning = MappingWarning { field: "steps.geo".into(), code: LossCode::LookupTimedOut };
    let failed = |n: u32| {
        let warning = Some(Box::new(StepWarning { source: "website".into(), warning: warning.clone() }));
        StepResult { warning, ..note(&job, n, json!({ "found": false })) }
    };
    let counted = async |fixture: &Fixture<D>| {
        let counts = fixture.ledger.mapping_warnings("website".into()).await.unwrap();
        counts.into_iter().map(|count| (count.warning, count.count)).collect::<Vec<_>>()
    };
    assert_eq!(fixture.ledger.record_step(failed(7)).await.unwrap(), None, "a stale run counts nothing");
    assert_eq!(counted(&fixture).await, []);
    for _ in 0..2 {
        assert_eq!(fixture.ledger.record_step(failed(0)).await.unwrap(), Some(json!({ "found": false })));
    }
    assert_eq!(counted(&fixture).await, [(warning.clone(), 1)]);
    let fixture = fixture.reopen().await;
    assert_eq!(counted(&fixture).await, [(warning, 1)]);
}

pub(crate) async fn a_run_that_the_job_has_left_behind_notes_nothing<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await;
    fixture.attempt(job.id, 1, JobState::Retrying).await;
    assert_eq!(fixture.ledger.record_step(note(&job, 0, json!(1))).await.unwrap(), None);
    assert_eq!(fixture.ledger.set_mark(mark(&job, "k", &[])).await.unwrap(), None);
    let done = fixture.job_that_is("b", JobState::Succeeded).await;
    assert_eq!(fixture.ledger.set_mark(mark(&done, "k", &[])).await.unwrap(), None);
    let other = fixture.job("c").await;
    assert!(set(&fixture, mark(&other, "k", &[])).await, "nobody has set it");
}

pub(crate) async fn a_mark_is_its_owners_in_every_run_and_nobody_elses<D: Driver>() {
    let fixture = open::<D>();
    let (one, two) = (fixture.job("a").await, fixture.job("b").await);
    assert!(set(&fixture, mark(&one, "k", &[])).await);
    assert!(set(&fixture, mark(&one, "k", &[])).await, "a second run of the owner");
    let other = fixture.ledger.set_mark(mark(&two, "k", &[])).await.unwrap();
    let owner = EventId([u8::try_from(one.id.0).unwrap(); 16]);
    assert_eq!(other, Some(Marked { set: false, owner: Some(owner) }));
    let fixture = fixture.reopen().await;
    assert!(!set(&fixture, mark(&two, "k", &[])).await, "over a restart");
    assert!(set(&fixture, mark(&one, "k", &[])).await);
    assert!(set(&fixture, mark(&two, "another", &[])).await);
    let result = fixture.ledger.effects(two.id).await.unwrap().remove(0).result;
    assert_eq!(result, Some(json!({ "set": true }).into()), "what it came to last is what is kept");
}

pub(crate) async fn a_mark_beside_the_edge_of_a_bucket_counts<D: Driver>() {
    let fixture = open::<D>();
    let (one, two) = (fixture.job("a").await, fixture.job("b").await);
    assert!(set(&fixture, mark(&one, "22:40", &["22:45"])).await);
    assert!(!set(&fixture, mark(&two, "22:45", &["22:40"])).await);
}

pub(crate) async fn a_mark_of_another_store_is_another_mark<D: Driver>() {
    let fixture = open::<D>();
    let (one, two) = (fixture.job("a").await, fixture.job("b").await);
    assert!(set(&fixture, mark(&one, "k", &[])).await);
    assert!(set(&fixture, Mark { store: "codes".into(), ..mark(&two, "k", &[]) }).await);
}

pub(crate) async fn an_expired_mark_is_free_and_is_pruned<D: Driver>() {
    let fixture = open::<D>();
    let (one, two) = (fixture.job("a").await, fixture.job("b").await);
    assert!(set(&fixture, mark(&one, "k", &[])).await);
    assert!(set(&fixture, mark(&one, "old", &[])).await);
    let later = |mut mark: Mark| {
        (mark.result.at, mark.expires_at) = (mark.expires_at, Time(mark.expires_at.0 + HOUR));
        mark
    };
    assert!(set(&fixture, later(mark(&two, "k", &[]))).await);
    let back = fixture.ledger.set_mark(later(mark(&one, "k", &[]))).await.unwrap().unwrap();
    assert!(!back.set, "the owner came too late, and another has it");
    let prune = Prune { bodies_before: Time(0), events_before: Time(0), rows_max: 10, at: Time(at(0).0 + HOUR) };
    assert_eq!(
        fixture.ledger.prune(prune.clone()).await.unwrap(),
        Pruned { rows: 1, more: false },
        "the one that expired"
    );
    assert_eq!(fixture.ledger.prune(prune).await.unwrap(), Pruned { rows: 0, more: false });
}

pub(crate) async fn a_dropped_job_releases_its_marks<D: Driver>() {
    let fixture = open::<D>();
    let (one, two) = (fixture.job("a").await, fixture.job("b").await);
    assert!(set(&fixture, mark(&one, "k", &[])).await);
    fixture.attempt(one.id, 1, JobState::Dead).await;
    assert!(!set(&fixture, mark(&two, "k", &[])).await, "a dead letter may be replayed, and keeps its mark");
    let drop = DropJobs { jobs: vec![one.id], actor: "ann".into(), reason: "poison".into(), at: at(9) };
    fixture.ledger.drop_jobs(drop).await.unwrap();
    assert!(set(&fixture, mark(&two, "k", &[])).await);
}

/// Whoever asks, in whatever order, at whatever time, over restarts: a mark has one owner, and only that one is told so.
pub(crate) async fn any_order_of_marks_does_what_a_plain_model_does<D: Driver>() {
    for seed in 0..4 {
        let mut random = Random::seeded(seed);
        let mut fixture = open::<D>();
        let mut jobs = Vec::new();
        for n in 0..6 {
            jobs.push(fixture.job(&format!("job {n}")).await);
        }
        let keys = ["a", "b", "c"];
        let mut owners = HashMap::<&str, (usize, Time)>::new();
        let mut now = at(0);
        for _ in 0..120 {
            let (who, key) = (random.below(6) as usize, keys[random.below(3) as usize]);
            match random.below(12) {
                0 => now = Time(now.0 + HOUR / 3),
                1 => fixture = fixture.reopen().await,
                2 => {
                    // Dropped, and another job takes its place.
                    fixture.attempt(jobs[who].id, 1, JobState::Dead).await;
                    let drop = DropJobs { jobs: vec![jobs[who].id], actor: "ann".into(), reason: "x".into(), at: now };
                    fixture.ledger.drop_jobs(drop).await.unwrap();
                    owners.retain(|_, (owner, _)| *owner != who);
                    jobs[who] = fixture.job(&format!("another {seed} {}", random.next_u64())).await;
                }
                _ => {
                    let mut asked = mark(&jobs[who], key, &[]);
                    // Each job has a mark of its own for each key.
                    asked.result.key.0[15] = key.as_bytes()[0];
                    (asked.result.at, asked.expires_at) = (now, Time(now.0 + HOUR));
                    let set = set(&fixture, asked).await;
                    let owner = owners.get(key).filter(|(_, until)| *until > now).map(|(owner, _)| *owner);
                    assert_eq!(set, owner.is_none_or(|owner| owner == who), "seed {seed}, {key}: {owners:?}");
                    if owner.is_none() {
                        owners.insert(key, (who, Time(now.0 + HOUR)));
                    }
                }
            }
        }
    }
}
