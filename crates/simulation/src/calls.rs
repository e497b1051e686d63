//! Calls of a simulated node: what the destinations do with them, and what the runs are told.

use std::time::Duration;

use serde_json::Value;
use sluice_domain::ops::Begin;
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome, Readback};
use sluice_domain::run::{CallBatch, GroupInput, Input, RECORD_AFTER, Recording, StepCall};

use super::accounts::{self, Upsert};
use super::coverage::Fault;
use super::destinations::{Answer, Item, LAG_MS_MAX, Look};
use super::invariants::Invariant;
use super::node::Waiter;
use super::ops::SimOp;
use super::run::{Pending, SimRun};
use super::trace::About;
use super::world::{SimEvent, Simulation};

/// A request under way.
#[derive(Debug)]
pub(super) struct SimCall {
    pub members: Vec<usize>,
    pub answers: Vec<Answer>,
    pub outcomes: Vec<Outcome>,
    pub recorded: Vec<bool>,
    /// Intents that are recorded if the answer does not come soon.
    pub begins: Vec<Begin>,
}

impl Simulation {
    /// Calls a destination for the members of a group.
    pub(super) fn call(&mut self, group: u32, members: Vec<usize>, batch: CallBatch) {
        let CallBatch { calls, recording } = batch;
        let Some(destination) = calls.first().and_then(|call| self.plan.facts(&call.label)).map(|to| to.destination)
        else {
            return;
        };
        let is_recorded: Vec<bool> =
            recording.iter().map(|recording| !matches!(recording, Recording::IfSlow(_))).collect();
        let mut begins = vec![];
        for recording in recording {
            match recording {
                Recording::Done => {}
                Recording::Before(begin) => self.submit(SimOp::Begin(begin, vec![]), Waiter::Nobody),
                Recording::IfSlow(begin) => begins.push(*begin),
            }
        }
        if let Err(failure) = self.count_call(group) {
            return self.call_not_made(group, members, (&calls, failure), is_recorded);
        }
        self.check_identities(&calls);
        let upsert = self.upsert_of(&calls);
        let may_land_late = upsert == Some(Upsert::Create)
            || calls.iter().all(|call| self.plan.facts(&call.label).is_some_and(|facts| facts.compares));
        let sent = self.destinations.0[destination].call(self.now, may_land_late, &self.rates, &mut self.random);
        let items = self.destinations.0[destination].items(sent, calls.len(), &self.rates, &mut self.random);
        if let Some(fault) = sent.fault {
            self.coverage.fault(fault);
            self.trace.say(self.now, About::Job(calls[0].job), || fault.as_str().to_owned());
        }
        for ((call, member), item) in calls.iter().zip(&members).zip(&items.each) {
            let n = self.group_mut(group).map_or(0, |group| group.run.member(*member).job().attempts_total);
            self.call_one((call, n), *item, (destination, upsert));
        }
        if let Some(fault) = items.fault {
            self.coverage.fault(fault);
        }
        if let Some(ms) = sent.lands_after_ms {
            calls.iter().for_each(|call| self.plan_landing(sent.after_ms + ms, call));
        }
        let answers: Vec<Answer> = items.each.iter().map(|item| item.answer).collect();
        let outcomes = match (upsert, &calls[..], &answers[..]) {
            (Some(upsert), [call], [answer]) => vec![self.upsert_outcome(call, upsert, *answer)],
            _ => self.outcomes(&calls, &answers, items.is_whole),
        };
        let (epoch, slow) = (self.epoch, sent.after_ms > RECORD_AFTER.as_millis() as i64);
        let mut recorded: Vec<bool> = is_recorded;
        if slow {
            recorded.fill(true);
        }
        let record_later = slow && !begins.is_empty();
        if let Some(group) = self.group_mut(group) {
            group.call = Some(SimCall { members, answers, outcomes, recorded, begins });
        }
        if record_later {
            self.plan_in(RECORD_AFTER.as_millis() as i64, SimEvent::RecordSlow { epoch, group });
        }
        self.plan_in(sent.after_ms, SimEvent::CallAnswered { epoch, group });
        self.crashes_at(Fault::CrashAfterSend);
    }

    /// One call reaches the destination, alone or with others.
    fn call_one(&mut self, (call, n): (&StepCall, u32), item: Item, (destination, upsert): (usize, Option<Upsert>)) {
        let label = &call.label;
        let Some(facts) = self.plan.facts(label).cloned() else { return };
        self.look_at_call(call, n, label);
        self.trace.note(self.now, "call", About::Job(call.job), u64::from(n) << 8);
        if facts.class == EffectClass::Natural && !facts.merged {
            self.write_called(call.job, label);
        }
        if upsert == Some(Upsert::Create) {
            self.create_sent(call);
        }
        match upsert.filter(|_| item.applied) {
            Some(Upsert::Create) => return self.create_applied(call),
            Some(Upsert::Update(_)) => return self.account_updated(call),
            None => {}
        }
        if item.applied {
            let shown = self.checker.job(call.job).effect(label).shown;
            if self.destinations.0[destination].apply(facts.class, call.effect_key, shown) {
                let visible_at = self.now + self.random.below(LAG_MS_MAX) as i64;
                self.applied(call.job, label, visible_at);
            }
            self.record_written(call);
        }
    }

    /// What a call that looks for its record comes to. Such a call is about one job.
    fn upsert_of(&mut self, calls: &[StepCall]) -> Option<Upsert> {
        let call = calls.first().filter(|call| self.plan.facts(&call.label).is_some_and(|facts| facts.upsert))?;
        Some(self.look_for_account(call))
    }

    /// No two effects of one call have the same identity.
    fn check_identities(&mut self, calls: &[StepCall]) {
        let mut seen = std::collections::BTreeSet::new();
        for call in calls.iter().filter(|_| calls.len() > 1) {
            let identity = call.with.get("external_id").unwrap_or(&call.with["who"]);
            if !seen.insert(identity.to_string()) {
                let detail = || format!("`{}` is written twice in one call", call.label);
                self.checker.fail(self.now, Invariant::IdentitiesApart, About::Job(call.job), detail);
            }
        }
    }

    fn outcomes(&self, calls: &[StepCall], answers: &[Answer], is_whole: bool) -> Vec<Outcome> {
        let of = |(call, answer): (&StepCall, &Answer)| {
            let class = self.plan.facts(&call.label).map_or(EffectClass::Natural, |facts| facts.class);
            outcome_of(*answer, class)
        };
        let mut each = calls.iter().zip(answers).map(of);
        match is_whole {
            true => each.next().map_or_else(Vec::new, |outcome| outcome.of_whole_batch(calls.len())),
            false => each.collect(),
        }
    }

    /// A call takes longer than its intents may stay unrecorded.
    pub(super) fn record_slow(&mut self, group: u32) {
        let call = self.group_mut(group).and_then(|group| group.call.as_mut());
        for begin in call.map(|call| std::mem::take(&mut call.begins)).unwrap_or_default() {
            self.submit(SimOp::Begin(Box::new(begin), vec![]), Waiter::Nobody);
        }
    }

    /// A request has been answered, or not in time.
    pub(super) fn call_answered(&mut self, group: u32) {
        if self.crashes_at(Fault::CrashAfterAnswer) {
            return;
        }
        let Some(call) = self.group_mut(group).and_then(|group| group.call.take()) else { return };
        let SimCall { members, answers, outcomes, recorded, .. } = call;
        if answers.contains(&Answer::Panicked) {
            for member in members {
                if let Some(sim) = self.group_mut(group).and_then(|group| group.parked[member].take()) {
                    self.lose(sim);
                }
            }
            return;
        }
        for ((member, answer), outcome) in members.iter().zip(&answers).zip(&outcomes) {
            let asked_ms = self.asked_ms(group, *member, *answer);
            if let Some(sim) = self.group_mut(group).and_then(|group| group.parked[*member].as_mut()) {
                sim.told = Some(outcome.as_str());
                sim.unauthorized = *answer == Answer::Unauthorized;
                sim.asked_ms = asked_ms;
            }
        }
        let called = outcomes.into_iter().zip(recorded).collect();
        let commands = self.step_group(group, GroupInput::Called(called));
        self.drive(group, commands);
    }

    pub(super) fn read_back(&mut self, mut sim: Box<SimRun>, call: &StepCall) {
        let Some(facts) = self.plan.facts(&call.label).cloned() else { return };
        if let Err(failure) = self.count_call(sim.group) {
            sim.pending = Pending::OverBudget(failure);
            let epoch = self.epoch;
            let run = self.keep(sim);
            return self.plan_in(1, SimEvent::Answered { epoch, run });
        }
        let seen = self.checker.job(call.job).effect(&call.label);
        let mut account = None;
        let visible_at = match facts.class {
            EffectClass::Verifiable if facts.upsert => {
                account = self.accounts.found(call, self.now);
                account.map(|_| self.now)
            }
            EffectClass::Natural => self.record_is_of(call).then_some(self.now),
            _ => (seen.shown > 0).then_some(seen.visible_at),
        };
        let destination = &self.destinations.0[facts.destination];
        let (look, fault) = destination.look(self.now, visible_at, &self.rates, &mut self.random);
        if let Some(fault) = fault {
            self.happened(fault);
            self.checker.job(call.job).effect(&call.label).denied |= fault == Fault::ReadLies;
        }
        if facts.upsert {
            self.account_read(call, look, fault);
        }
        let found = account.map_or(Value::Bool(true), |id| accounts::result(call, id));
        sim.pending = Pending::ReadBack(look, found);
        let (epoch, ms) = (self.epoch, 5 + self.some_ms(200));
        let run = self.keep(sim);
        self.plan_in(ms, SimEvent::Answered { epoch, run });
    }

    /// A read-back has ended.
    pub(super) fn answered(&mut self, slot: u32) {
        if self.crashes_at(Fault::CrashAfterAnswer) {
            return;
        }
        let Some(mut sim) = self.take_run(slot) else { return };
        match std::mem::replace(&mut sim.pending, Pending::Nothing) {
            Pending::ReadBack(look, found) => self.resume(sim, Input::ReadBack(readback_of(look, found))),
            Pending::OverBudget(failure) => self.resume(sim, Input::ReadBack(Readback::Unreadable(failure))),
            _ => {}
        }
    }

    fn asked_ms(&mut self, group: u32, member: usize, answer: Answer) -> Option<i64> {
        let Answer::Throttled(Some(seconds)) = answer else { return None };
        let run = self.group_mut(group)?.run.member(member);
        let policy = run.worker()?.retry_for(run.job().step);
        Some(Duration::from_secs(u64::from(seconds)).min(policy.retry_after_cap).as_millis() as i64)
    }
}

fn readback_of(look: Look, found: Value) -> Readback {
    match look {
        Look::Present => Readback::Present(found),
        Look::Absent => Readback::Absent,
        Look::Unreadable => Readback::Unreadable(Failure::new(FailureClass::Retryable, "connect", "it cannot be read")),
    }
}

pub(super) fn outcome_of(answer: Answer, class: EffectClass) -> Outcome {
    let failure = |class, code| Failure::new(class, code, "simulated");
    let retry = |code| Outcome::Retry { failure: failure(FailureClass::Retryable, code), after: None };
    let unsure = |code| Outcome::Unsure { failure: failure(FailureClass::Retryable, code) };
    match answer {
        Answer::Done => Outcome::Done { result: Value::Bool(true) },
        Answer::Noop => Outcome::Noop { reason: "nothing to do".into() },
        Answer::Refused => retry("connect"),
        Answer::Away => retry("503"),
        Answer::Throttled(seconds) => Outcome::Wait {
            failure: failure(FailureClass::Retryable, "429"),
            after: seconds.map(|seconds| Duration::from_secs(u64::from(seconds))),
        },
        Answer::ServerError if class == EffectClass::Natural => retry("500"),
        Answer::ServerError => unsure("500"),
        Answer::Cut => unsure("cut"),
        Answer::TimedOut | Answer::Panicked => unsure("timeout"),
        Answer::Conflict => Outcome::Retry { failure: failure(FailureClass::Conflict, "409"), after: None },
        Answer::Rejected => Outcome::Reject { failure: failure(FailureClass::Permanent, "422") },
        Answer::Unauthorized => Outcome::Reject { failure: failure(FailureClass::Auth, "401") },
    }
}
