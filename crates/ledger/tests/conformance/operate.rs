//! What a person can do to jobs: replay, resolve, drop. Everything is in the audit trail.

use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_ledger::{Begin, BeginResult, DropJobs, PinnedRecord, Replay, Resolution, Resolve, Settlement};

use crate::driver::{Driver, Fixture, at, begin, effect_key, open, settlement};

fn replay(jobs: &[JobId]) -> Replay {
    Replay { jobs: jobs.to_vec(), actor: "ann".into(), reason: "fixed".into(), revision: None, at: at(50) }
}

fn resolve(job: JobId, verdict: Resolution) -> Resolve {
    Resolve { job, resolution: verdict, actor: "ann".into(), reason: "looked".into(), at: at(50) }
}

fn drop_jobs(jobs: &[JobId]) -> DropJobs {
    DropJobs { jobs: jobs.to_vec(), actor: "ann".into(), reason: "spam".into(), at: at(50) }
}

/// One job in every state that a settlement can lead to.
async fn jobs_in_every_state<D: Driver>(fixture: &Fixture<D>) -> Vec<(JobState, JobId)> {
    let mut jobs = vec![(JobState::Queued, fixture.job("queued").await.id)];
    let running = fixture.job("running").await.id;
    fixture.begin(running, 1).await;
    jobs.push((JobState::Running, running));
    for state in &JobState::ALL[2..8] {
        jobs.push((*state, fixture.job_that_is(state.as_str(), *state).await.id));
    }
    jobs
}

pub(crate) async fn only_finished_and_dead_jobs_are_replayed<D: Driver>() {
    let fixture = open::<D>();
    let jobs = jobs_in_every_state(&fixture).await;
    let all: Vec<JobId> = jobs.iter().map(|(_, id)| *id).collect();
    let replayed = fixture.ledger.replay(replay(&all)).await.unwrap();
    let expected: Vec<JobId> = jobs
        .iter()
        .filter(|(state, _)| matches!(state, JobState::Succeeded | JobState::Noop | JobState::Dead))
        .map(|(_, id)| *id)
        .collect();
    assert_eq!(replayed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), expected);
    assert!(replayed.iter().all(|(_, worker)| &**worker == "crm"));
    for (state, id) in jobs {
        let job = fixture.read(id).await;
        assert_eq!(job.state, if expected.contains(&id) { JobState::Queued } else { state });
        assert_eq!(job.replays, u32::from(expected.contains(&id)));
    }
}

pub(crate) async fn jobs_are_counted_by_what_they_need_of_a_configuration<D: Driver>() {
    let fixture = open::<D>();
    jobs_in_every_state(&fixture).await;
    let dead = fixture.job_that_is("moved", JobState::Dead).await.id;
    fixture.ledger.replay(Replay { revision: Some("r2".into()), ..replay(&[dead]) }).await.unwrap();
    let mut pinned = fixture.ledger.pinned().await.unwrap();
    pinned.sort();
    let record = |revision: &str, dead: Option<&str>, live, parked| PinnedRecord {
        revision: revision.into(),
        worker: "crm".into(),
        queue: "default".into(),
        dead_letter_queue: dead.map(str::to_owned),
        live,
        parked,
    };
    let unknown = record("r1", None, 0, 1);
    assert_eq!(
        pinned,
        [unknown, record("r1", None, 4, 0), record("r1", Some("leads-dead"), 0, 1), record("r2", None, 1, 0)]
    );
}

pub(crate) async fn a_replayed_job_starts_over_and_remembers_its_tries<D: Driver>() {
    let fixture = open::<D>();
    let dead = fixture.job_that_is("a", JobState::Dead).await;
    fixture.ledger.replay(replay(&[dead.id])).await.unwrap();
    let job = fixture.read(dead.id).await;
    assert_eq!((job.state, job.attempts, job.attempts_total, job.replays), (JobState::Queued, 0, 1, 1));
    assert_eq!((job.due_at, job.updated_at, job.finished_at), (at(50), at(50), None));
    assert_eq!((job.failure, job.dead_letter_queue), (None, None));
    assert_eq!(&*job.revision, "r1");
    assert_eq!(fixture.ledger.attempts(dead.id).await.unwrap().len(), 1, "its history is kept");
    assert_eq!(fixture.begin(dead.id, 2).await, BeginResult::Go);
}

pub(crate) async fn a_replay_keeps_effect_keys_and_what_was_applied<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job_that_is("a", JobState::Succeeded).await;
    fixture.ledger.replay(replay(&[job.id])).await.unwrap();
    assert_eq!(fixture.begin(job.id, 2).await, BeginResult::AlreadyApplied);
    let effects = fixture.ledger.effects(job.id).await.unwrap();
    assert_eq!(effects.len(), 1);
    assert_eq!((effects[0].key, effects[0].state), (effect_key(job.id), EffectState::Applied));
}

pub(crate) async fn a_replay_can_move_jobs_to_another_revision<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job_that_is("a", JobState::Dead).await;
    let moved = Replay { revision: Some("r2".into()), ..replay(&[job.id]) };
    fixture.ledger.replay(moved).await.unwrap();
    assert_eq!(&*fixture.read(job.id).await.revision, "r2");
}

/// The place where it stood means nothing in another list of steps; under its own revision it goes on from there.
pub(crate) async fn a_replay_under_another_revision_starts_at_the_first_step<D: Driver>() {
    let fixture = open::<D>();
    for (revision, step) in [(None, 1), (Some("r1"), 1), (Some("r2"), 0)] {
        let job = fixture.job_that_is(&format!("{revision:?}"), JobState::Succeeded).await;
        assert_eq!(job.step, 1);
        fixture.ledger.replay(Replay { revision: revision.map(Into::into), ..replay(&[job.id]) }).await.unwrap();
        assert_eq!(fixture.read(job.id).await.step, step, "{revision:?}");
    }
}

pub(crate) async fn a_second_replay_changes_nothing<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job_that_is("a", JobState::Dead).await;
    assert_eq!(fixture.ledger.replay(replay(&[job.id])).await.unwrap().len(), 1);
    let once = fixture.read(job.id).await;
    assert!(fixture.ledger.replay(replay(&[job.id, job.id])).await.unwrap().is_empty());
    assert_eq!(fixture.read(job.id).await, once);
    assert_eq!(fixture.audit_lines().await.len(), 1);
}

pub(crate) async fn replayed_jobs_run_in_their_old_order_and_are_in_the_audit_trail<D: Driver>() {
    let fixture = open::<D>();
    let mut jobs = Vec::new();
    for n in 0..5 {
        jobs.push(fixture.job_that_is(&format!("key {n}"), JobState::Dead).await.id);
    }
    let replayed = fixture.ledger.replay(replay(&jobs)).await.unwrap();
    assert_eq!(replayed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), jobs);
    assert_eq!(fixture.live("crm", "").await, jobs);
    let expected: Vec<String> = jobs.iter().map(|id| format!("ann replay {id} fixed")).collect();
    assert_eq!(fixture.audit_lines().await, expected);
}

/// An effect of which nobody knows whether it happened is read back before it is sent again, where that is possible.
pub(crate) async fn a_replay_reads_back_what_nobody_knows<D: Driver>() {
    let fixture = open::<D>();
    for (class, verifying) in [(EffectClass::Verifiable, true), (EffectClass::Keyed, false)] {
        let job = fixture.job(class.as_str()).await;
        fixture.begin_with(Begin { class, ..begin(job.id, 1) }).await;
        let mut died = settlement(job.id, 1, JobState::Dead);
        died.effect.as_mut().unwrap().state = EffectState::Unknown;
        fixture.settle_with(died).await;
        fixture.ledger.replay(replay(&[job.id])).await.unwrap();
        assert_eq!(fixture.read(job.id).await.verifying, verifying, "{class:?}");
    }
}

pub(crate) async fn what_happened_is_not_sent_again<D: Driver>() {
    let fixture = open::<D>();
    let parked = fixture.job_that_is("a", JobState::Unknown).await;
    let resolved = fixture.ledger.resolve(resolve(parked.id, Resolution::Happened)).await.unwrap();
    assert_eq!(resolved, [(parked.id, "crm".into())]);
    let job = fixture.read(parked.id).await;
    assert_eq!((job.state, job.step, job.attempts, job.finished_at), (JobState::Queued, 1, 0, None));
    assert_eq!((job.failure, job.due_at), (None, at(50)));
    assert_eq!(fixture.effect_state(parked.id).await, EffectState::Applied);
    assert_eq!(fixture.begin(parked.id, 2).await, BeginResult::AlreadyApplied);
    assert_eq!(fixture.audit_lines().await, [format!("ann resolve {} happened: looked", parked.id)]);
}

pub(crate) async fn what_did_not_happen_is_sent<D: Driver>() {
    let fixture = open::<D>();
    let parked = fixture.job_that_is("a", JobState::Unknown).await;
    fixture.ledger.resolve(resolve(parked.id, Resolution::NotHappened)).await.unwrap();
    let job = fixture.read(parked.id).await;
    assert_eq!((job.state, job.step), (JobState::Queued, 0));
    assert_eq!(fixture.effect_state(parked.id).await, EffectState::NotApplied);
    assert_eq!(fixture.begin(parked.id, 2).await, BeginResult::Go);
    assert_eq!(fixture.audit_lines().await, [format!("ann resolve {} did not happen: looked", parked.id)]);
}

pub(crate) async fn only_a_parked_job_is_resolved_and_only_once<D: Driver>() {
    let fixture = open::<D>();
    for (state, id) in jobs_in_every_state(&fixture).await {
        let before = fixture.read(id).await;
        let resolved = fixture.ledger.resolve(resolve(id, Resolution::Happened)).await.unwrap();
        assert_eq!(resolved.len(), usize::from(state == JobState::Unknown), "{state}");
        if state != JobState::Unknown {
            assert_eq!(fixture.read(id).await, before);
        }
        assert!(fixture.ledger.resolve(resolve(id, Resolution::NotHappened)).await.unwrap().is_empty());
    }
    assert_eq!(fixture.audit_lines().await.len(), 1);
}

/// Another effect, of which nobody knows either, may have happened all the same: nobody was asked about that one.
pub(crate) async fn a_verdict_is_about_what_the_job_is_parked_for_alone<D: Driver>() {
    for (verdict, said) in
        [(Resolution::Happened, EffectState::Applied), (Resolution::NotHappened, EffectState::NotApplied)]
    {
        let fixture = open::<D>();
        let job = fixture.job("a").await.id;
        fixture.begin_with(begin(job, 1)).await;
        let mut died = settlement(job, 1, JobState::Dead);
        died.effect.as_mut().unwrap().state = EffectState::Unknown;
        fixture.settle_with(died).await;
        fixture.ledger.replay(replay(&[job])).await.unwrap();
        let mail = EffectKey([9; 16]);
        let second = Begin { key: mail, step_id: "mail".into(), class: EffectClass::Blind, ..begin(job, 2) };
        fixture.begin_with(second).await;
        let mut parked = settlement(job, 2, JobState::Unknown);
        let effect = parked.effect.as_mut().unwrap();
        (effect.key, effect.state) = (mail, EffectState::Unknown);
        fixture.settle_with(parked).await;
        fixture.ledger.resolve(resolve(job, verdict)).await.unwrap();
        let effects = fixture.ledger.effects(job).await.unwrap();
        let of = |key| effects.iter().find(|effect| effect.key == key).unwrap().state;
        assert_eq!((of(mail), of(effect_key(job))), (said, EffectState::Unknown));
    }
}

pub(crate) async fn only_dead_and_parked_jobs_are_dropped<D: Driver>() {
    let fixture = open::<D>();
    let jobs = jobs_in_every_state(&fixture).await;
    let all: Vec<JobId> = jobs.iter().map(|(_, id)| *id).collect();
    let dropped = fixture.ledger.drop_jobs(drop_jobs(&all)).await.unwrap();
    for (state, id) in jobs {
        let given_up = matches!(state, JobState::Dead | JobState::Unknown);
        assert_eq!(dropped.iter().any(|(dropped, _)| *dropped == id), given_up, "{state}");
        let job = fixture.read(id).await;
        assert_eq!(job.state, if given_up { JobState::Dropped } else { state });
        if given_up {
            assert_eq!(job.finished_at, Some(at(50)));
        }
    }
    assert!(fixture.ledger.drop_jobs(drop_jobs(&all)).await.unwrap().is_empty());
    let expected: Vec<String> = dropped.iter().map(|(id, _)| format!("ann drop {id} spam")).collect();
    assert_eq!(fixture.audit_lines().await, expected);
}

pub(crate) async fn a_dropped_job_is_neither_begun_nor_settled<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job_that_is("a", JobState::Dead).await;
    fixture.ledger.drop_jobs(drop_jobs(&[job.id])).await.unwrap();
    assert_eq!(fixture.begin(job.id, 2).await, BeginResult::Stale);
    let late = Settlement { effect: None, ..settlement(job.id, 1, JobState::Succeeded) };
    assert!(!fixture.settle_with(late).await);
    assert_eq!(fixture.read(job.id).await.state, JobState::Dropped);
}
