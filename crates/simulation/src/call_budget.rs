//! Budgets of calls in a simulated node, and an independent count of the calls that destinations got.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sluice_domain::call_budget::BudgetCharge;
use sluice_domain::job::JobId;
use sluice_domain::outcome::{Failure, Outcome};
use sluice_domain::run::{RunResult, StepCall, postpone};
use sluice_domain::schedule::{Input, PendingJob};
use sluice_domain::time::Time;
use sluice_ledger::ChargeCalls;

use super::calls::SimCall;
use super::coverage::Fault;
use super::destinations::Answer;
use super::invariants::Invariant;
use super::node::Waiter;
use super::ops::{SimOp, SimReply};
use super::plan::BUDGET_WINDOW;
use super::trace::About;
use super::world::{SimEvent, Simulation};

/// Calls of the tickets by the true times at which their slots were taken, newest last.
#[derive(Debug, Default)]
pub(super) struct CountedCalls {
    /// With the number of the slot.
    calls: VecDeque<(Time, u64)>,
    slots: u64,
}

impl CountedCalls {
    /// The machine starts again: how long it was off is taken from a wall clock that may be wrong.
    pub(crate) fn forget(&mut self) {
        self.calls.clear();
    }

    /// The number of a slot that is taken.
    pub(crate) fn take_slot(&mut self) -> u64 {
        self.slots += 1;
        self.slots
    }
}

/// Times of the steady clock are whole milliseconds.
const TOLERANCE: Duration = Duration::from_millis(5);

impl Simulation {
    /// Writes a charge of a budget.
    pub(super) fn charge(&mut self, destination: Arc<str>, charge: BudgetCharge) {
        let Some(index) = self.plan.destination_index(&destination) else { return };
        self.submit(SimOp::ChargeCalls(ChargeCalls { destination, charge }), Waiter::Charge(index));
    }

    pub(super) fn charged(&mut self, destination: usize, reply: Option<SimReply>) {
        let at = self.ledger_time();
        let answer = match reply {
            Some(SimReply::Charged(rows)) => Some((rows, at)),
            _ => None,
        };
        self.step(Input::Charged { destination: self.plan.destinations[destination].clone(), answer });
    }

    /// Writes that a job waits for a budget.
    pub(super) fn postpone(&mut self, pending: &PendingJob) {
        let found = self.node.as_ref().and_then(|node| node.cache.get(&pending.id)).cloned();
        let Some(job) = found else { return };
        let (settle, result) = postpone(&job, pending, self.run_context(&job.worker));
        self.coverage.fault(Fault::Postponed);
        if let Some(node) = &mut self.node {
            node.postponed.insert(job.id, result);
        }
        self.submit(SimOp::Settle(Box::new(settle)), Waiter::Postpone(job.id));
    }

    pub(super) fn postponed(&mut self, id: JobId, written: bool) {
        let Some(node) = &mut self.node else { return };
        let Some(result) = node.postponed.remove(&id) else { return };
        let input = match (written, &result) {
            (true, RunResult::Ended { job, .. }) => {
                node.cache.insert(id, job.clone());
                Input::of_run(id, &result)
            }
            _ => Input::RunLost(id),
        };
        self.step(input);
        self.forget_unless_held(id);
    }

    /// Calls that the slot of a group has made, where they are counted.
    pub(super) fn calls_made(&mut self, group: u32) -> Option<u32> {
        Some(self.group_mut(group)?.meter.as_ref()?.made())
    }

    /// A call or a read-back is about to be made: the budget must allow it, by the meter of its slot and by our own count.
    pub(super) fn count_call(&mut self, group: u32) -> Result<(), Failure> {
        let Some(of) = self.group_mut(group) else { return Ok(()) };
        let Some(meter) = of.meter.clone() else { return Ok(()) };
        let (started_at, slot) = (of.started_at, of.slot);
        let (is_background, job) = (of.is_background, of.run.member(0).job().id);
        if let Err(failure) = meter.count() {
            self.coverage.fault(Fault::BudgetExhausted);
            return Err(failure);
        }
        let Some(limit) = self.plan.budget.as_ref().and_then(|budget| budget.calls) else { return Ok(()) };
        let reserve = self.plan.budget.as_ref().map_or(0, |budget| limit * u64::from(budget.reserve_percent) / 100);
        let since = started_at - (BUDGET_WINDOW - TOLERANCE);
        let counted = &mut self.checker.counted_calls.calls;
        // A slot that was taken later may call earlier; it was decided upon with this one in mind.
        let used = counted.iter().filter(|(at, other)| *at > since && *other <= slot).count() as u64;
        counted.push_back((started_at, slot));
        while counted.front().is_some_and(|(at, _)| started_at.since(*at) > 2 * BUDGET_WINDOW) {
            counted.pop_front();
        }
        let share = if is_background { limit - reserve } else { limit };
        if used >= share {
            let detail = || format!("{used} calls were made in the window, {share} may be");
            self.checker.fail(self.now, Invariant::CallBudgetKept, About::Job(job), detail);
        }
        Ok(())
    }

    /// The budget does not allow the calls: they are not made, and their jobs wait.
    pub(super) fn call_not_made(
        &mut self,
        group: u32,
        members: Vec<usize>,
        (calls, failure): (&[StepCall], Failure),
        recorded: Vec<bool>,
    ) {
        let outcomes = calls.iter().map(|_| Outcome::Wait { failure: failure.clone(), after: None }).collect();
        let answers = calls.iter().map(|_| Answer::Throttled(None)).collect();
        let epoch = self.epoch;
        if let Some(of) = self.group_mut(group) {
            of.call = Some(SimCall { members, answers, outcomes, recorded, begins: vec![] });
        }
        self.plan_in(1, SimEvent::CallAnswered { epoch, group });
    }
}
