//! Several jobs with one slot.

use std::collections::{BTreeMap, VecDeque};

use serde_json::json;

use super::tests::{NOW, case_of, done, rejected, run_config, step, worker};
use super::*;
use crate::action::BatchForm;
use crate::job::{EffectState, JobId};
use crate::ops::{BeginResult, CappedBeginResult, ChargeResult};
use crate::outcome::{EffectClass, Outcome, Readback};
use crate::template::{Expression, Template};

/// A step whose calls share a request: those with the same `kind`, and no two with the same `who`.
fn batched(class: EffectClass) -> Step {
    let attribute = |name: &str| Template::Expression(Expression::parse(&format!("event.{name}")).unwrap());
    let names = ["kind", "who"];
    Step {
        with: Template::Map(names.map(|name| (name.to_owned(), attribute(name))).into()),
        batch: Some(BatchForm::new(3, &["kind"], &["who"])),
        ..step("a", "crm", class)
    }
}

/// A group of jobs and what becomes of them.
struct Group {
    jobs: Vec<(LoadedJob, RunConfig)>,
    /// For each request its jobs, by their ids.
    calls: Vec<Vec<i64>>,
    begun: Vec<i64>,
    results: BTreeMap<i64, RunResult>,
    settled: BTreeMap<i64, &'static str>,
}

impl Group {
    /// Jobs with these kinds and identities.
    fn new(step: Step, items: &[(&str, &str)]) -> Group {
        let worker = worker(vec![step]);
        let jobs = items.iter().enumerate().map(|(index, (kind, who))| {
            let mut loaded = case_of(worker.clone(), json!({ "kind": kind, "who": who })).loaded;
            loaded.job.id = JobId(index as i64 + 1);
            (loaded, run_config(&worker))
        });
        let jobs = jobs.collect();
        Group { jobs, calls: vec![], begun: vec![], results: BTreeMap::new(), settled: BTreeMap::new() }
    }

    /// Runs the group; `answer` says what becomes of each request.
    fn run(&mut self, answer: impl Fn(&[i64]) -> Vec<Outcome>) {
        let (mut group, commands) = GroupRun::start(self.jobs.clone(), &"crm".into(), NOW);
        let mut commands = VecDeque::from(commands);
        while let Some(command) = commands.pop_front() {
            let input = match command {
                GroupCommand::Call(members, batch) => {
                    let ids: Vec<i64> = batch.calls.iter().map(|call| call.job.0).collect();
                    assert_eq!(members.len(), ids.len());
                    self.calls.push(ids.clone());
                    GroupInput::Called(answer(&ids).into_iter().map(|outcome| (outcome, true)).collect())
                }
                GroupCommand::Member(member, command) => {
                    let id = group.member(member).job().id.0;
                    match self.perform(id, command) {
                        Some(input) => GroupInput::Member(member, input),
                        None => continue,
                    }
                }
            };
            commands.extend(group.step(NOW, input));
        }
        assert_eq!(self.results.len(), self.jobs.len(), "every job has an end");
    }

    fn perform(&mut self, id: i64, command: Command) -> Option<Input> {
        Some(match command {
            Command::Begin { .. } => {
                assert!(self.calls.is_empty(), "every intent is durable before the request");
                self.begun.push(id);
                Input::Begun(CappedBeginResult::Begun(BeginResult::Go))
            }
            Command::ReadBack(_) => {
                self.calls.push(vec![id]);
                Input::ReadBack(Readback::Present(json!({})))
            }
            Command::Settle(settle) => {
                self.settled.extend(settle.settlement.attempt.map(|attempt| (id, attempt.outcome)));
                Input::Settled(ChargeResult::Settled)
            }
            Command::Finish(result) => {
                self.results.insert(id, *result);
                return None;
            }
            other => panic!("{other:?}"),
        })
    }

    fn state(&self, id: i64) -> JobState {
        match &self.results[&id] {
            RunResult::Ended { job, .. } => job.state,
            other => panic!("{other:?}"),
        }
    }

    /// Jobs that wait for another slot, and whether they need one of their own.
    fn released(&self) -> Vec<(i64, bool)> {
        let released = self.results.iter().filter_map(|(id, result)| match result {
            RunResult::Released { alone, .. } => Some((*id, *alone)),
            _ => None,
        });
        released.collect()
    }
}

fn all_done(ids: &[i64]) -> Vec<Outcome> {
    ids.iter().map(|_| done("1")).collect()
}

fn unsure() -> Outcome {
    Outcome::Unsure { failure: Failure::new(FailureClass::Retryable, "cut", "") }
}

#[test]
fn jobs_share_a_request_and_settle_on_their_own() {
    let mut group = Group::new(batched(EffectClass::Natural), &[("lead", "a"), ("lead", "b"), ("lead", "c")]);
    group.run(all_done);
    assert_eq!(group.calls, [[1, 2, 3]]);
    for id in 1..=3 {
        assert_eq!(group.state(id), JobState::Succeeded);
    }
}

#[test]
fn one_bad_record_fails_alone() {
    let mut group = Group::new(batched(EffectClass::Natural), &[("lead", "a"), ("lead", "b"), ("lead", "c")]);
    group.run(|_| vec![done("1"), rejected(), done("3")]);
    assert_eq!(
        (1..=3).map(|id| group.state(id)).collect::<Vec<_>>(),
        [JobState::Succeeded, JobState::Dead, JobState::Succeeded]
    );
}

#[test]
fn calls_that_cannot_share_the_request_wait_for_another_slot() {
    let items = [("lead", "a"), ("deal", "b"), ("lead", "A "), ("lead", "c"), ("lead", "d"), ("lead", "e")];
    let mut group = Group::new(batched(EffectClass::Natural), &items);
    group.run(all_done);
    assert_eq!(group.calls, [[1, 4, 5]], "another kind, the same identity, and more than the form allows");
    assert_eq!(group.released(), [(2, false), (3, false), (6, false)]);
}

#[test]
fn without_a_batch_form_one_job_calls_and_the_others_need_slots_of_their_own() {
    let step = Step { batch: None, ..batched(EffectClass::Natural) };
    let mut group = Group::new(step, &[("lead", "a"), ("lead", "b")]);
    group.run(all_done);
    assert_eq!((&group.calls[..], group.released()), (&[vec![1]][..], vec![(2, true)]));
}

#[test]
fn lost_answer_is_unsure_for_each_effect_by_its_class() {
    for (class, state) in [
        (EffectClass::Natural, JobState::Retrying),
        (EffectClass::Keyed, JobState::Retrying),
        (EffectClass::Verifiable, JobState::Waiting),
        (EffectClass::Blind, JobState::Unknown),
    ] {
        let mut group = Group::new(batched(class), &[("lead", "a"), ("lead", "b")]);
        group.run(|ids| unsure().of_whole_batch(ids.len()));
        assert_eq!((group.state(1), group.state(2)), (state, state), "{class:?}");
        let intents = if class == EffectClass::Natural { 0 } else { 2 };
        assert_eq!(group.begun.len(), intents, "{class:?}");
    }
}

#[test]
fn rejected_credentials_end_one_job_and_the_others_wait() {
    let auth = Outcome::Reject { failure: Failure::new(FailureClass::Auth, "401", "no") };
    let mut group = Group::new(batched(EffectClass::Natural), &[("lead", "a"), ("lead", "b"), ("lead", "c")]);
    group.run(|ids| auth.clone().of_whole_batch(ids.len()));
    assert_eq!(
        (1..=3).map(|id| group.state(id)).collect::<Vec<_>>(),
        [JobState::Dead, JobState::Waiting, JobState::Waiting]
    );
}

#[test]
fn rejected_request_costs_no_job_its_life() {
    let mut group = Group::new(batched(EffectClass::Natural), &[("lead", "a"), ("lead", "b")]);
    group.run(|ids| rejected().of_whole_batch(ids.len()));
    for id in 1..=2 {
        let RunResult::Ended { job, .. } = &group.results[&id] else { panic!("it has an end") };
        assert_eq!((job.state, job.attempts), (JobState::Retrying, 0), "it was no attempt of this job");
        assert!(crate::schedule::PendingJob::of(job).alone, "its next call is made for it alone");
    }
}

#[test]
fn job_that_reads_back_shares_its_slot_with_none() {
    let mut group = Group::new(batched(EffectClass::Verifiable), &[("lead", "a"), ("lead", "b")]);
    let mut unknown = case_of(worker(vec![batched(EffectClass::Verifiable)]), json!({}));
    unknown.loaded = group.jobs[0].0.clone();
    group.jobs[0].0.effects = vec![unknown.effect("a", EffectClass::Verifiable, EffectState::Unknown)];
    group.jobs[0].0.job.verifying = true;
    group.run(all_done);
    assert_eq!((&group.calls[..], group.released()), (&[vec![1]][..], vec![(2, false)]));
}

#[test]
fn member_that_is_lost_does_not_hold_the_others_back() {
    let group = Group::new(batched(EffectClass::Keyed), &[("lead", "a"), ("lead", "b")]);
    let (mut run, commands) = GroupRun::start(group.jobs.clone(), &"crm".into(), NOW);
    assert_eq!(commands.len(), 2, "both intents are recorded at once");
    assert!(run.step(NOW, GroupInput::Lost(vec![0])).is_empty());
    let begun = Input::Begun(CappedBeginResult::Begun(BeginResult::Go));
    let commands = run.step(NOW, GroupInput::Member(1, begun));
    assert!(matches!(&commands[..], [GroupCommand::Call(members, _)] if members[..] == [1]), "{commands:?}");
}
