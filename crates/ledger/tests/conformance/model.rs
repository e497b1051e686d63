//! The ledger beside a model of it that is too simple to be wrong: after each verb, and over restarts, both say the same.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluice_domain::event::EventId;
use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::time::Time;
use sluice_ledger::{
    Acceptance, BeginResult, DropJobs, JobFilter, NewEvent, NewJob, Page, Prune, Pruned, Replay, Resolution, Resolve,
};

use crate::driver::{Driver, Fixture, open_with_few_recent_keys, settlement};
use crate::fixtures::{DAY, event};

const HOUR: i64 = DAY / 24;

/// A verb. `job` picks one of the jobs that there are.
#[derive(Clone, Debug)]
enum Step {
    Accept { key: u8, content: u8, lifetime_hours: i64, jobs: usize },
    Advance { hours: i64 },
    Begin { job: usize, ahead: u32 },
    Settle { job: usize, behind: u32, state: JobState },
    Replay { job: usize },
    Resolve { job: usize, verdict: Resolution },
    Drop { job: usize },
    Prune { bodies_hours: i64, events_hours: i64 },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let job = 0..64usize;
    let state = proptest::sample::select(vec![
        JobState::Queued,
        JobState::Retrying,
        JobState::Waiting,
        JobState::Succeeded,
        JobState::Noop,
        JobState::Dead,
        JobState::Unknown,
    ]);
    let verdict = proptest::sample::select(vec![Resolution::Happened, Resolution::NotHappened]);
    let step = prop_oneof![
        8 => (0..6u8, 0..2u8, 1..72i64, 0..3usize)
            .prop_map(|(key, content, lifetime_hours, jobs)| Step::Accept { key, content, lifetime_hours, jobs }),
        3 => (1..30i64).prop_map(|hours| Step::Advance { hours }),
        8 => (job.clone(), prop_oneof![5 => Just(1u32), 1 => Just(0), 1 => Just(2)])
            .prop_map(|(job, ahead)| Step::Begin { job, ahead }),
        8 => (job.clone(), prop_oneof![5 => Just(0u32), 1 => Just(1)], state)
            .prop_map(|(job, behind, state)| Step::Settle { job, behind, state }),
        3 => job.clone().prop_map(|job| Step::Replay { job }),
        3 => (job.clone(), verdict).prop_map(|(job, verdict)| Step::Resolve { job, verdict }),
        2 => job.prop_map(|job| Step::Drop { job }),
        2 => (0..48i64, 0..48i64).prop_map(|(bodies_hours, events_hours)| Step::Prune { bodies_hours, events_hours }),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..120)
}

#[derive(Debug)]
struct ModelEvent {
    key: u8,
    content: u8,
    generation: u32,
    expires_at: i64,
    persisted_at: i64,
    jobs: std::ops::Range<i64>,
    body: bool,
}

#[derive(Debug, PartialEq)]
struct ModelJob {
    seq: i64,
    state: JobState,
    step: u32,
    attempts: u32,
    tries: u32,
    replays: u32,
}

#[derive(Debug, Default)]
struct Model {
    events: BTreeMap<i64, ModelEvent>,
    jobs: BTreeMap<i64, ModelJob>,
    effects: BTreeMap<i64, (EffectState, u32)>,
    ended: BTreeMap<i64, usize>,
    /// The name of each generation of a key.
    names: BTreeMap<(u8, u32), EventId>,
    last_seq: i64,
    last_job: i64,
}

impl Model {
    fn pick(&self, job: usize) -> Option<i64> {
        self.jobs.keys().nth(job % self.jobs.len().max(1)).copied()
    }

    fn is_held(&self, event: &ModelEvent) -> bool {
        let held = |state: JobState| state.is_live() || matches!(state, JobState::Dead | JobState::Unknown);
        event.jobs.clone().any(|job| held(self.jobs[&job].state))
    }

    fn prune(&mut self, bodies_before: i64, events_before: i64, now: i64) -> u64 {
        let free: Vec<i64> =
            self.events.iter().filter(|(_, event)| !self.is_held(event)).map(|(ord, _)| *ord).collect();
        let mut rows = 0;
        for ord in free {
            let event = self.events.get_mut(&ord).unwrap();
            if event.body && event.persisted_at < bodies_before {
                event.body = false;
                rows += 1;
            }
            if event.persisted_at < events_before && event.expires_at < now {
                for job in self.events.remove(&ord).unwrap().jobs {
                    self.jobs.remove(&job);
                    self.effects.remove(&job);
                    self.ended.remove(&job);
                }
                rows += 1;
            }
        }
        rows
    }

    fn revive(&mut self, id: i64, from: &[JobState], steps: u32) -> usize {
        let job = self.jobs.get_mut(&id).unwrap();
        if !from.contains(&job.state) {
            return 0;
        }
        *job = ModelJob {
            state: JobState::Queued,
            step: job.step + steps,
            attempts: 0,
            replays: job.replays + 1,
            seq: job.seq,
            tries: job.tries,
        };
        1
    }
}

struct Run<D: Driver> {
    fixture: Fixture<D>,
    model: Model,
}

impl<D: Driver> Run<D> {
    async fn accept(&mut self, key: u8, content: u8, lifetime_hours: i64, jobs: usize) {
        let now = self.fixture.clock.now();
        let new = NewEvent {
            received_at: now,
            expires_at: Time(now.0 + lifetime_hours * HOUR),
            fingerprint: [content; 16],
            jobs: vec![NewJob::new("crm", "default"); jobs],
            ..event(&format!("key {key}"))
        };
        let answer = self.fixture.ledger.accept(new).await.unwrap();
        let model = &mut self.model;
        let owner = model.events.iter().rev().find(|(_, event)| event.key == key).map(|(_, event)| event);
        match (answer, owner) {
            (Acceptance::Duplicate(repeat), Some(owner)) => {
                assert!(owner.expires_at > now.0, "the key had expired");
                assert_eq!(Some(&repeat.id), model.names.get(&(key, owner.generation)));
                assert_eq!(repeat.clash, owner.content != content);
                assert_eq!(repeat.jobs.len(), owner.jobs.clone().count());
            }
            (Acceptance::Accepted(accepted), owner) => {
                assert!(owner.is_none_or(|owner| owner.expires_at <= now.0), "the key has an owner");
                let generation = owner.map_or(0, |owner| owner.generation + 1);
                assert_eq!(accepted.seq, model.last_seq + 1);
                // Of a key that was pruned and comes again the name is the same again; no other has it.
                let others = model.names.iter().filter(|(other, _)| **other != (key, generation));
                assert!(others.into_iter().all(|(_, name)| *name != accepted.id));
                assert_eq!(*model.names.entry((key, generation)).or_insert(accepted.id), accepted.id);
                let ids = model.last_job + 1..model.last_job + 1 + jobs as i64;
                model.last_seq += 1;
                model.last_job += jobs as i64;
                for id in ids.clone() {
                    let seq = model.last_seq;
                    let job = ModelJob { seq, state: JobState::Queued, step: 0, attempts: 0, tries: 0, replays: 0 };
                    model.jobs.insert(id, job);
                }
                let (expires_at, persisted_at) = (now.0 + lifetime_hours * HOUR, now.0);
                let event = ModelEvent { key, content, generation, expires_at, persisted_at, jobs: ids, body: true };
                model.events.insert(model.last_seq, event);
            }
            (other, _) => panic!("not known before: {other:?}"),
        }
    }

    async fn begin(&mut self, id: i64, ahead: u32) {
        let job = self.model.jobs.get_mut(&id).unwrap();
        let n = job.tries + ahead;
        let begun = self.fixture.begin(JobId(id), n).await;
        if !job.state.is_live() || job.state == JobState::Running || ahead != 1 {
            return assert_eq!(begun, BeginResult::Stale);
        }
        let effect = self.model.effects.entry(id).or_insert((EffectState::NotApplied, 0));
        if effect.0.is_final() {
            return assert_eq!(begun, BeginResult::AlreadyApplied);
        }
        (job.state, job.tries) = (JobState::Running, n);
        *effect = (EffectState::Intent, effect.1 + 1);
        assert_eq!(begun, BeginResult::Go);
    }

    async fn settle(&mut self, id: i64, behind: u32, state: JobState) {
        let job = self.model.jobs.get_mut(&id).unwrap();
        let Some(n) = job.tries.checked_sub(behind) else { return };
        let settlement = settlement(JobId(id), n, state);
        let written = self.fixture.settle_with(settlement.clone()).await;
        assert_eq!(written, job.state == JobState::Running && behind == 0);
        if written {
            (job.state, job.step, job.attempts) = (state, settlement.next.step, settlement.next.attempts);
            *self.model.ended.entry(id).or_default() += 1;
            if let Some(effect) = self.model.effects.get_mut(&id).filter(|effect| !effect.0.is_final()) {
                effect.0 = settlement.effect.unwrap().state;
            }
        }
    }

    async fn resolve(&mut self, id: i64, verdict: Resolution) {
        let at = self.fixture.clock.now();
        let resolve = Resolve { job: JobId(id), resolution: verdict, actor: "ann".into(), reason: "looked".into(), at };
        let resolved = self.fixture.ledger.resolve(resolve).await.unwrap().len();
        let (steps, state) = match verdict {
            Resolution::Happened => (1, EffectState::Applied),
            Resolution::NotHappened => (0, EffectState::NotApplied),
        };
        assert_eq!(resolved, self.model.revive(id, &[JobState::Unknown], steps));
        if let Some(effect) = self.model.effects.get_mut(&id).filter(|effect| effect.0 == EffectState::Unknown)
            && resolved > 0
        {
            effect.0 = state;
        }
    }

    async fn step(mut self, step: Step) -> Run<D> {
        let at = self.fixture.clock.now();
        match step {
            Step::Accept { key, content, lifetime_hours, jobs } => {
                self.accept(key, content, lifetime_hours, jobs).await
            }
            Step::Advance { hours } => drop(self.fixture.clock.advance(hours * HOUR)),
            Step::Reopen => self.fixture = self.fixture.reopen().await,
            Step::Prune { bodies_hours, events_hours } => {
                let (bodies_before, events_before) =
                    (Time(at.0 - bodies_hours * HOUR), Time(at.0 - events_hours * HOUR));
                let prune = Prune { bodies_before, events_before, rows_max: 1000, at };
                let pruned = self.fixture.ledger.prune(prune).await.unwrap();
                let rows = self.model.prune(bodies_before.0, events_before.0, at.0);
                assert_eq!(pruned, Pruned { rows, more: false });
            }
            Step::Begin { job, ahead } => {
                if let Some(id) = self.model.pick(job) {
                    self.begin(id, ahead).await;
                }
            }
            Step::Settle { job, behind, state } => {
                if let Some(id) = self.model.pick(job) {
                    self.settle(id, behind, state).await;
                }
            }
            Step::Resolve { job, verdict } => {
                if let Some(id) = self.model.pick(job) {
                    self.resolve(id, verdict).await;
                }
            }
            Step::Replay { job } => {
                if let Some(id) = self.model.pick(job) {
                    let (actor, reason) = ("ann".into(), "fixed".into());
                    let replay = Replay { jobs: vec![JobId(id)], actor, reason, revision: None, at };
                    let replayed = self.fixture.ledger.replay(replay).await.unwrap().len();
                    let from = [JobState::Succeeded, JobState::Noop, JobState::Dead];
                    assert_eq!(replayed, self.model.revive(id, &from, 0));
                }
            }
            Step::Drop { job } => {
                if let Some(id) = self.model.pick(job) {
                    let drop = DropJobs { jobs: vec![JobId(id)], actor: "ann".into(), reason: "spam".into(), at };
                    let dropped = self.fixture.ledger.drop_jobs(drop).await.unwrap().len();
                    let job = self.model.jobs.get_mut(&id).unwrap();
                    let parked = matches!(job.state, JobState::Dead | JobState::Unknown);
                    assert_eq!(dropped, usize::from(parked));
                    if parked {
                        job.state = JobState::Dropped;
                    }
                }
            }
        }
        self
    }

    async fn compare(&self) {
        let ledger = &self.fixture.ledger;
        let listed = ledger.list_jobs(JobFilter::default(), Page { after: None, limit: 10_000 }).await.unwrap().rows;
        assert_eq!(listed.len(), self.model.jobs.len());
        for (job, event) in listed {
            let found = ModelJob {
                seq: job.seq,
                state: job.state,
                step: job.step,
                attempts: job.attempts,
                tries: job.attempts_total,
                replays: job.replays,
            };
            assert_eq!(found, self.model.jobs[&job.id.0], "{}", job.id);
            assert_eq!(event.generation, self.model.events[&job.seq].generation);
            assert_eq!(job.finished_at.is_none(), job.state.is_live());
            let effects = ledger.effects(job.id).await.unwrap();
            let found = effects.first().map(|effect| (effect.state, effect.attempts));
            assert_eq!(found.as_ref(), self.model.effects.get(&job.id.0), "{}", job.id);
            let ended = self.model.ended.get(&job.id.0).copied().unwrap_or(0);
            assert_eq!(ledger.attempts(job.id).await.unwrap().len(), ended, "{}", job.id);
        }
        let found = ledger.events(self.model.events.keys().copied().collect()).await.unwrap();
        assert_eq!(found.len() as u64, ledger.event_count().await.unwrap());
        assert_eq!(found.len(), self.model.events.len());
        for (event, body) in found {
            assert_eq!(body.is_some(), self.model.events[&event.seq].body, "the body of {}", event.id);
        }
        let filter = JobFilter {
            states: JobState::ALL.into_iter().filter(|state| state.is_live()).collect(),
            ..JobFilter::default()
        };
        let live = ledger.matching_jobs(filter, JobId(0), 10_000).await.unwrap();
        let expected = self.model.jobs.iter().filter(|(_, job)| job.state.is_live()).map(|(id, _)| JobId(*id));
        assert_eq!(live, expected.collect::<Vec<_>>());
        let mut backlog = self.fixture.live("crm", "").await;
        backlog.extend(self.fixture.live("crm", "crm").await);
        backlog.sort();
        assert_eq!(backlog, live, "every live job is in a backlog");
        let counted = ledger.job_counts().await.unwrap();
        for state in JobState::ALL {
            let expected = self.model.jobs.values().filter(|job| job.state == state).count() as u64;
            let found = counted.iter().find(|(counted, _)| *counted == state).map_or(0, |(_, count)| *count);
            assert_eq!(found, expected, "{state}");
        }
    }
}

pub(crate) async fn any_sequence_of_verbs_does_what_a_plain_model_does<D: Driver>() {
    let handle = tokio::runtime::Handle::current();
    let check = move || {
        let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
        let check = |steps: Vec<Step>| {
            handle.block_on(async {
                let mut run = Run { fixture: open_with_few_recent_keys::<D>(3), model: Model::default() };
                for step in steps {
                    run = run.step(step).await;
                    run.compare().await;
                }
                let run = run.step(Step::Reopen).await;
                run.compare().await;
                run.fixture.ledger.close().await;
            });
            Ok(())
        };
        TestRunner::new(config).run(&steps(), check).unwrap();
    };
    tokio::task::spawn_blocking(check).await.unwrap();
}
