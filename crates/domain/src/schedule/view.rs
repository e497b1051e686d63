//! State of the scheduler and its gates for operators.

use std::sync::Arc;

use serde::Serialize;

use super::gate::{Breaker, Gate, PauseReason};
use super::{Backlog, BacklogView, JobPhase, JobWait, PendingJob, Scheduler, SchedulerView, WaitsFor};
use crate::call_budget::{BudgetAdmission, CallBudgetView};
use crate::time::Time;

/// State of a gate for operators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateView {
    /// State of the breaker: `closed`, `open` or `half-open`.
    pub breaker: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Time>,
    /// Calls in flight.
    pub in_flight: u32,
    /// Calls that may be in flight at once now.
    pub concurrency: u32,
    /// Configured limit of `concurrency`.
    pub concurrency_max: u32,
    /// Calls a second that the destination was found to allow; none if it has refused no call for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learned_rate: Option<f64>,
    /// Retry-After of the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<PauseReason>,
    /// The first failed call of those that opened the breaker or may open it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<CallBudgetView>,
}

impl Gate {
    pub fn view(&self, now: Time) -> GateView {
        let (breaker, open_until) = match self.breaker {
            Breaker::Closed { .. } => ("closed", None),
            Breaker::Open { until } if until > now => ("open", Some(until)),
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => ("half-open", None),
        };
        GateView {
            breaker,
            open_until,
            in_flight: self.in_flight,
            concurrency: self.concurrency(),
            concurrency_max: self.settings.concurrency_max,
            learned_rate: self.pace.rate(now).map(|rate| (rate * 10.0).round() / 10.0),
            not_before: (self.not_before > now).then_some(self.not_before),
            paused: self.paused.clone(),
            failing_since: self.failing_since,
            budget: self.budget.as_ref().map(|budget| budget.view(now)),
        }
    }

    /// Why no call can start now, if none can, and until when, if that is known.
    pub(super) fn waits_for(&self, now: Time) -> Option<(WaitsFor, Option<Time>)> {
        if self.paused.is_some() {
            return Some((WaitsFor::Destination, None));
        }
        match self.breaker {
            Breaker::Open { until } if until > now => return Some((WaitsFor::Breaker, Some(until))),
            Breaker::HalfOpen { probe: Some(_) } => return Some((WaitsFor::Breaker, None)),
            _ => {}
        }
        if now < self.not_before {
            return Some((WaitsFor::RetryAfter, Some(self.not_before)));
        }
        match self.budget_admits(now) {
            BudgetAdmission::Until(at) => return Some((WaitsFor::Budget, Some(at))),
            BudgetAdmission::Charging => return Some((WaitsFor::Budget, None)),
            BudgetAdmission::Go => {}
        }
        if self.in_flight >= self.concurrency() {
            return Some((WaitsFor::DestinationSlot, None));
        }
        let paced = self.pace.would_open_at(now);
        let rate = self.rate_opens_at().filter(|at| *at > now).max(paced);
        rate.map(|at| (WaitsFor::Rate, Some(at)))
    }
}

impl Scheduler {
    pub fn view(&self, now: Time) -> SchedulerView {
        let gates = self
            .destinations
            .iter()
            .filter_map(|destination| Some((destination.name.to_string(), destination.gate.as_ref()?.view(now))));
        let paused = self.workers.iter().filter(|worker| worker.paused);
        let mut backlogs: Vec<BacklogView> =
            (0..super::index(self.backlogs.len())).map(|backlog| self.view_backlog(now, backlog)).collect();
        backlogs.sort_by(|a, b| (&a.worker, &a.destination).cmp(&(&b.worker, &b.destination)));
        SchedulerView {
            jobs_in_memory: self.jobs.len(),
            in_flight: self.in_flight,
            gates: gates.collect(),
            workers_paused: paused.map(|worker| worker.name.to_string()).collect(),
            backlogs,
        }
    }

    fn view_backlog(&self, now: Time, id: u32) -> BacklogView {
        let backlog = &self.backlogs[id as usize];
        let waits = self.waits_for(now, id, backlog);
        BacklogView {
            worker: self.workers[backlog.worker as usize].name.to_string(),
            destination: self.destinations[backlog.destination as usize].name.to_string(),
            jobs_in_memory: backlog.window.jobs,
            running: backlog.running,
            has_more: backlog.window.wants_load(now),
            waits_for: waits.map(|wait| wait.waits_for),
            until: waits.and_then(|wait| wait.until),
        }
    }

    /// Why a live job does not run; `None` if it runs, or can run now.
    pub fn wait_of(&self, now: Time, job: &PendingJob) -> Option<JobWait> {
        let known = self.jobs.get(&job.id);
        let backlog = match known {
            Some(known) => Some(known.backlog),
            None => self.backlog_id(&job.worker, &job.destination),
        };
        if known.is_some_and(|known| known.phase.holds_lane() || known.phase == JobPhase::Rerouting) {
            return None;
        }
        // What stops all jobs of the backlog comes before what stops this one: it is what an operator can change.
        let closed = backlog.and_then(|id| self.closed(now, &self.backlogs[id as usize]));
        if closed.is_some() {
            return closed;
        }
        let due = known.map_or(job.due, |known| known.due);
        let wait = |waits_for, until, behind| Some(JobWait { waits_for, until, behind });
        match known.map(|known| known.phase) {
            Some(JobPhase::InLane) => {
                let head = known.and_then(|known| self.lanes.head(known.lane?));
                wait(WaitsFor::Lane, None, head)
            }
            Some(JobPhase::Ready) => backlog.and_then(|id| self.taken(now, &self.backlogs[id as usize])),
            _ if due > now => wait(WaitsFor::Due, Some(due), None),
            _ => wait(WaitsFor::Load, None, None),
        }
    }

    fn backlog_id(&self, worker: &Arc<str>, destination: &Arc<str>) -> Option<u32> {
        let (worker, destination) = (self.worker_ids.get(worker)?, self.destination_ids.get(destination)?);
        self.backlog_ids.get(&(*worker, *destination)).copied()
    }

    /// What stops every job of a backlog until a time or an operator changes it.
    fn closed(&self, now: Time, backlog: &Backlog) -> Option<JobWait> {
        let wait = |waits_for, until| Some(JobWait { waits_for, until, behind: None });
        if self.draining {
            return wait(WaitsFor::Shutdown, None);
        }
        if self.workers[backlog.worker as usize].paused {
            return wait(WaitsFor::Worker, None);
        }
        let gate = self.destinations[backlog.destination as usize].gate.as_ref()?;
        let (waits_for, until) = gate.waits_for(now)?;
        let is_closed = match waits_for {
            WaitsFor::Budget => until.is_some(),
            _ => matches!(waits_for, WaitsFor::Destination | WaitsFor::Breaker | WaitsFor::RetryAfter),
        };
        is_closed.then_some(JobWait { waits_for, until, behind: None })
    }

    /// What stops the next due job of a backlog for the moment: a slot or the rate.
    fn taken(&self, now: Time, backlog: &Backlog) -> Option<JobWait> {
        if backlog.in_flight >= self.workers[backlog.worker as usize].concurrency {
            return Some(JobWait { waits_for: WaitsFor::WorkerSlot, until: None, behind: None });
        }
        let gate = self.destinations[backlog.destination as usize].gate.as_ref()?;
        gate.waits_for(now).map(|(waits_for, until)| JobWait { waits_for, until, behind: None })
    }

    fn waits_for(&self, now: Time, id: u32, backlog: &Backlog) -> Option<JobWait> {
        let wait = |waits_for| Some(JobWait { waits_for, until: None, behind: None });
        let has_more = backlog.window.wants_load(now) || backlog.window.load.is_some();
        let waiting = backlog.window.jobs > backlog.running as usize;
        if !waiting && !has_more {
            return None;
        }
        match self.closed(now, backlog).or_else(|| self.taken(now, backlog)) {
            Some(reason) => Some(reason),
            None if self.ready.contains_key(&id) => None,
            None if waiting => wait(WaitsFor::Due),
            None => wait(WaitsFor::Load),
        }
    }
}
