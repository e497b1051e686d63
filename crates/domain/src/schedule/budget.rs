//! Budgets of calls: what the ledger charges, what a slot may use, and which jobs wait.

use std::sync::Arc;

use super::gate::Gate;
use super::{JobPhase, PendingJob, RETRY_DELAY, Scheduler, SchedulerAction, Slot};
use crate::call_budget::{
    BudgetAdmission, BudgetCharge, BudgetRow, CallBudget, POSTPONED_MAX, Reservation, Traffic, UsageReport,
};
use crate::job::JobId;
use crate::time::Time;

impl Gate {
    pub(super) fn budget(&self) -> Option<&CallBudget> {
        self.budget.as_ref()
    }

    pub(super) fn budget_mut(&mut self) -> Option<&mut CallBudget> {
        self.budget.as_mut()
    }

    pub(super) fn budget_admits(&self, now: Time) -> BudgetAdmission {
        self.budget.as_ref().map_or(BudgetAdmission::Go, |budget| budget.admit(now, Traffic::Live))
    }

    /// The calls that a slot of this traffic may make; `None` without a budget.
    pub(super) fn reserve(&mut self, now: Time, traffic: Traffic) -> Option<Reservation> {
        self.budget.as_mut()?.start(now, traffic)
    }
}

impl Scheduler {
    /// Calls that the slot of this job may make; `None` if the destination has no budget.
    pub fn allowance(&self, job: JobId) -> Option<u32> {
        let JobPhase::Running(Slot::Taken(call)) = self.jobs.get(&job)?.phase else { return None };
        Some(self.calls.get(&call)?.reserved?.calls)
    }

    /// Charges of budgets that are given back when nothing runs any more.
    pub fn unused_charges(&self, now: Time) -> Vec<(Arc<str>, BudgetCharge)> {
        let budgets = self.destinations.iter().filter_map(|to| Some((to, to.gate.as_ref()?.budget()?)));
        budgets.filter_map(|(to, budget)| Some((to.name.clone(), budget.settle(now)?))).collect()
    }

    /// The run of a job ends, and its slot has made so many calls by now.
    pub(super) fn called(&mut self, now: Time, job: JobId, calls: u32, reported: Option<UsageReport>) {
        let Some(JobPhase::Running(Slot::Taken(call))) = self.jobs.get(&job).map(|job| job.phase) else { return };
        let Some(flight) = self.calls.get_mut(&call) else { return };
        flight.made = flight.made.max(Some(calls));
        let destination = self.backlogs[flight.backlog as usize].destination;
        let gate = self.destinations[destination as usize].gate.as_mut();
        if let (Some(budget), Some(report)) = (gate.and_then(|gate| gate.budget_mut()), reported) {
            budget.observe(now, report);
        }
    }

    pub(super) fn charged(&mut self, now: Time, destination: &Arc<str>, answer: Option<(Vec<BudgetRow>, Time)>) {
        if let Some(budget) = self.gate(destination).and_then(|gate| gate.budget_mut()) {
            budget.charged(now, answer, RETRY_DELAY);
        }
    }

    /// Charges what due jobs need. Returns when a failed charge is tried again.
    pub(super) fn plan_charges(&mut self, now: Time) -> Option<Time> {
        if self.draining {
            return None;
        }
        let mut wake: Option<Time> = None;
        for destination in &mut self.destinations {
            let Some(budget) = destination.gate.as_mut().and_then(|gate| gate.budget_mut()) else { continue };
            let has_due = destination.backlogs.iter().any(|backlog| self.ready.contains_key(backlog));
            if budget.is_read() && !has_due {
                continue;
            }
            match budget.charge(now) {
                Ok(charge) => self.actions.push(SchedulerAction::Charge(destination.name.clone(), charge)),
                Err(at) => wake = wake.into_iter().chain(at).min(),
            }
        }
        wake
    }

    /// Until when only the reserve of the budget is left, if that is so.
    fn background_until(&self, now: Time, backlog: u32) -> Option<Time> {
        let destination = self.backlogs[backlog as usize].destination;
        let budget = self.destinations[destination as usize].gate.as_ref()?.budget()?;
        match budget.admit(now, Traffic::Background) {
            BudgetAdmission::Until(until) => Some(until),
            BudgetAdmission::Go | BudgetAdmission::Charging => None,
        }
    }

    pub(super) fn keeps_reserve(&self, now: Time, backlog: u32) -> bool {
        self.background_until(now, backlog).is_some()
    }

    /// Jobs of replays and imports at the head of a backlog leave memory while only the reserve is left: those behind them need
    /// not wait for them.
    pub(super) fn postpone_background(&mut self, now: Time, backlog: u32) {
        let Some(until) = self.background_until(now, backlog) else { return };
        let destination = self.backlogs[backlog as usize].destination;
        let until = until.min(now + POSTPONED_MAX).max(now + RETRY_DELAY);
        while self.in_flight < self.limits.in_flight {
            let first = self.ready.get(&backlog).and_then(|ready| ready.first().copied());
            let Some((turn, id)) = first else { return };
            let Some(job) = self.jobs.get(&id).filter(|job| job.traffic == Traffic::Background) else { return };
            let (order, entity, alone, traffic) = (job.order, job.entity, job.alone, job.traffic);
            if let Some(ready) = self.ready.get_mut(&backlog) {
                ready.remove(&(turn, id));
                if ready.is_empty() {
                    self.ready.remove(&backlog);
                }
            }
            let worker = self.backlogs[backlog as usize].worker;
            let pending = PendingJob {
                id,
                worker: self.workers[worker as usize].name.clone(),
                destination: self.destinations[destination as usize].name.clone(),
                order,
                entity,
                due: until,
                interrupted: false,
                alone,
                traffic,
            };
            // It holds its lane until its wait is durable, so that no other overtakes it.
            self.start(id, Slot::NotNeeded);
            self.actions.push(SchedulerAction::Postpone(pending));
        }
    }
}
