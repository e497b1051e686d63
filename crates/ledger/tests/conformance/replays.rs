//! Replays are durable and are taken batch by batch.

use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_domain::replay::{Reapply, ReplayId, ReplayState};
use sluice_domain::unit;
use sluice_ledger::{AdvanceReplay, ControlReplay, Controlled, JobFilter, NewReplay, Page, ReplaySelection};

use crate::driver::{Driver, Fixture, at, open};

fn new_replay() -> NewReplay {
    let filter = JobFilter { states: vec![JobState::Dead], ..JobFilter::default() };
    NewReplay {
        selection: ReplaySelection::Filter(filter),
        actor: "ann".into(),
        reason: "fixed".into(),
        revision: None,
        reapply: Reapply::default(),
        rate: Some(unit::rate("10/s").unwrap()),
        batch: 2,
        at: at(10),
    }
}

fn batch(id: ReplayId, after: i64, jobs: &[JobId]) -> AdvanceReplay {
    let until = *jobs.last().unwrap();
    let (after, jobs) = (JobId(after), jobs.to_vec());
    AdvanceReplay { id, after, until, jobs, skipped: 1, is_last: false, next_at: at(30), at: at(20) }
}

fn control(id: ReplayId, state: ReplayState) -> ControlReplay {
    ControlReplay { id, state, actor: "ann".into(), reason: "looks wrong".into(), at: at(21) }
}

async fn dead_jobs<D: Driver>(fixture: &Fixture<D>) -> Vec<JobId> {
    let mut jobs = Vec::new();
    for key in ["a", "b", "c"] {
        jobs.push(fixture.job_that_is(key, JobState::Dead).await.id);
    }
    jobs
}

pub(crate) async fn a_replay_is_taken_batch_by_batch_and_over_restarts<D: Driver>() {
    let fixture = open::<D>();
    let jobs = dead_jobs(&fixture).await;
    let record = fixture.ledger.start_replay(new_replay()).await.unwrap();
    fixture.job("later").await;
    assert_eq!((record.state, record.after, record.last_job), (ReplayState::Running, JobId(0), jobs[2]));
    assert_eq!(fixture.ledger.replay_record(record.id).await.unwrap(), Some(record.clone()), "it reads back");
    let changed = fixture.ledger.advance_replay(batch(record.id, 0, &jobs[..2])).await.unwrap().unwrap();
    assert_eq!(changed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), jobs[..2]);
    assert_eq!(fixture.read(jobs[0]).await.state, JobState::Queued);
    let again = fixture.ledger.advance_replay(batch(record.id, 0, &jobs[..2])).await.unwrap();
    assert_eq!(again, None, "the replay has moved on");
    let fixture = fixture.reopen().await;
    let running = fixture.ledger.running_replays().await.unwrap();
    assert_eq!((running.len(), running[0].after, running[0].replayed, running[0].skipped), (1, jobs[1], 2, 1));
    assert_eq!(running[0].next_at, at(30));
    // One of these was replayed before and is live: it is counted as skipped.
    let last = AdvanceReplay { is_last: true, skipped: 0, ..batch(record.id, jobs[1].0, &[jobs[0], jobs[2]]) };
    assert_eq!(fixture.ledger.advance_replay(last).await.unwrap().unwrap().len(), 1);
    let done = fixture.ledger.replay_record(record.id).await.unwrap().unwrap();
    assert_eq!((done.state, done.replayed, done.skipped), (ReplayState::Done, 3, 2));
    assert!(fixture.ledger.running_replays().await.unwrap().is_empty());
    let second = fixture.ledger.start_replay(new_replay()).await.unwrap();
    let ids = |page: Vec<sluice_ledger::ReplayRecord>| page.iter().map(|record| record.id).collect::<Vec<_>>();
    assert_eq!(ids(fixture.ledger.replays(Page { after: None, limit: 9 }).await.unwrap()), [second.id, record.id]);
    let older = fixture.ledger.replays(Page { after: Some(second.id.0), limit: 9 }).await.unwrap();
    assert_eq!(ids(older), [record.id]);
    let audit = fixture.audit_lines().await;
    assert!(audit.contains(&format!("ann replay {} fixed", record.id)), "{audit:?}");
}

pub(crate) async fn a_paused_or_cancelled_replay_takes_no_batch<D: Driver>() {
    let fixture = open::<D>();
    let jobs = dead_jobs(&fixture).await;
    let id = fixture.ledger.start_replay(new_replay()).await.unwrap().id;
    let pause = fixture.ledger.control_replay(control(id, ReplayState::Paused)).await.unwrap();
    assert!(matches!(&pause, Controlled::Changed(record) if record.state == ReplayState::Paused), "{pause:?}");
    assert_eq!(fixture.ledger.advance_replay(batch(id, 0, &jobs)).await.unwrap(), None);
    assert!(fixture.ledger.running_replays().await.unwrap().is_empty());
    let again = fixture.ledger.control_replay(control(id, ReplayState::Paused)).await.unwrap();
    assert!(matches!(again, Controlled::Same(_)));
    fixture.ledger.control_replay(control(id, ReplayState::Running)).await.unwrap();
    assert_eq!(fixture.ledger.advance_replay(batch(id, 0, &jobs[..1])).await.unwrap().unwrap().len(), 1);
    fixture.ledger.control_replay(control(id, ReplayState::Cancelled)).await.unwrap();
    assert_eq!(fixture.ledger.advance_replay(batch(id, jobs[0].0, &jobs[1..])).await.unwrap(), None);
    let resume = fixture.ledger.control_replay(control(id, ReplayState::Running)).await.unwrap();
    assert!(matches!(&resume, Controlled::Refused(record) if record.state == ReplayState::Cancelled), "{resume:?}");
    assert_eq!(fixture.read(jobs[2]).await.state, JobState::Dead);
    let unknown = fixture.ledger.control_replay(control(ReplayId(99), ReplayState::Paused)).await.unwrap();
    assert_eq!(unknown, Controlled::Unknown);
    let audit = fixture.audit_lines().await;
    for action in ["pause", "resume", "cancel"] {
        assert!(audit.contains(&format!("ann {action} {id} looks wrong")), "{action}: {audit:?}");
    }
}

pub(crate) async fn a_replay_that_applies_again_supersedes_effects_of_its_classes<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job_that_is("a", JobState::Succeeded).await.id;
    let replay_of = async |classes: &[EffectClass]| {
        let new = NewReplay {
            reapply: Reapply(classes.to_vec()),
            selection: ReplaySelection::Jobs(vec![job.0]),
            ..new_replay()
        };
        let id = fixture.ledger.start_replay(new).await.unwrap().id;
        let last = AdvanceReplay { is_last: true, ..batch(id, 0, &[job]) };
        fixture.ledger.advance_replay(last).await.unwrap().unwrap()
    };
    assert_eq!(replay_of(&[EffectClass::Blind]).await.len(), 1);
    assert_eq!(fixture.effect_state(job).await, EffectState::Applied, "of another class");
    let requeued = fixture.read(job).await;
    assert_eq!((requeued.state, requeued.step), (JobState::Queued, 0), "it starts at the first step");
    assert!(
        fixture
            .settle_with(sluice_ledger::Settlement {
                effect: None,
                attempt: None,
                ..crate::driver::settlement(job, 1, JobState::Succeeded)
            })
            .await
    );
    assert_eq!(replay_of(&[EffectClass::Natural, EffectClass::Keyed]).await.len(), 1);
    assert_eq!(fixture.effect_state(job).await, EffectState::Superseded);
    let audit = fixture.audit_lines().await;
    assert!(audit.iter().any(|line| line.ends_with("fixed; applies again: natural, keyed")), "{audit:?}");
}
