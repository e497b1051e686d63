//! Where a job waits next: the destination that it will really call.

use std::sync::Arc;

use super::item::{NextItem, holds};
use super::{JobRun, RunContext, RunResult, Settle, StepRoute};
use crate::call_budget::BUDGET_CODE;
use crate::job::JobState;
use crate::ops::{Fence, Settlement};
use crate::outcome::{Failure, FailureClass};
use crate::record::JobRecord;
use crate::schedule::PendingJob;
use crate::template::Scope;
use crate::time::Time;
use crate::transition::JobUpdate;
use crate::worker::{Step, Worker};

impl StepRoute {
    fn of(step: &Step) -> StepRoute {
        match step.action.is_internal() {
            true => StepRoute::internal(),
            false => StepRoute { destination: step.destination.clone(), order: step.order },
        }
    }
}

/// The route of a new job: steps whose condition is false are passed over. A condition that cannot be evaluated is left to the
/// run, which reports it.
pub fn first_route(worker: &Worker, scope: &Scope) -> StepRoute {
    for step in &worker.steps {
        // A list is evaluated by the run.
        if step.foreach.is_some() {
            return StepRoute::of(step);
        }
        match holds(step, scope) {
            Ok(true) => return StepRoute::of(step),
            Ok(false) => {}
            Err(_) => return StepRoute::internal(),
        }
    }
    StepRoute::internal()
}

/// Writes the route of a live job that a run handed to another destination: the ledger then has it there.
pub fn reroute(job: &JobRecord, route: &StepRoute, context: RunContext) -> Settle {
    let next = JobUpdate {
        state: job.state,
        step: job.step,
        attempts: job.attempts,
        due_at: job.due_at,
        verifying: job.verifying,
        failure: job.failure.clone(),
        dead_letter_queue: job.dead_letter_queue.clone(),
        result: job.result.clone(),
        destination: route.destination.clone(),
        order: route.order,
    };
    let settlement = Settlement {
        job: job.id,
        n: job.attempts_total,
        fence: Fence { owner: context.term, expected: job.term },
        effect: None,
        attempt: None,
        write: None,
        next,
        at: context.at,
    };
    Settle { settlement, charge: None, begin: None }
}

/// Writes that a job of a replay or an import waits until its due time: only the reserve of the budget is left. Waiting costs no
/// attempt. The result is that of a run that made no call, once the settlement is written.
pub fn postpone(job: &JobRecord, pending: &PendingJob, context: RunContext) -> (Settle, RunResult) {
    let message = format!(
        "The calls of destination:{} that are left in its budget are reserved for live traffic.",
        pending.destination
    );
    let failure = Failure::new(FailureClass::Retryable, BUDGET_CODE, message);
    let route = StepRoute { destination: pending.destination.clone(), order: pending.order };
    let mut settle = reroute(job, &route, context);
    let next = &mut settle.settlement.next;
    (next.state, next.due_at, next.failure) = (JobState::Waiting, pending.due, Some(failure.clone()));
    let job = JobRecord {
        state: JobState::Waiting,
        due_at: pending.due,
        failure: Some(failure),
        destination: route.destination.clone(),
        order: route.order,
        term: context.term,
        updated_at: context.at,
        ..job.clone()
    };
    (settle, RunResult::Ended { job, health: None, took: None, route, settled: true })
}

impl JobRun {
    /// The route from the step where the job stands; `None` if no step is left to do. Steps that are passed over leave their
    /// outputs, as in a run.
    pub(super) fn route_ahead(&mut self, at: Time) -> Option<StepRoute> {
        let Some(worker) = self.worker.clone() else { return Some(StepRoute::internal()) };
        let place = self.job.step;
        let route = self.find_route(&worker, at);
        self.job.step = place;
        route
    }

    fn find_route(&mut self, worker: &Arc<Worker>, at: Time) -> Option<StepRoute> {
        while let Some(step) = worker.step_at(self.job.step) {
            match self.next_item(worker, step, at) {
                Ok(NextItem::Pass(output)) => {
                    if let Some(output) = output {
                        self.show(step, Arc::new(output));
                    }
                    self.job.step += 1;
                }
                Ok(NextItem::Do(_) | NextItem::NotBefore(_)) => return Some(StepRoute::of(step)),
                Err(_) => return Some(StepRoute::internal()),
            }
        }
        None
    }

    /// The route of the step where the job stands, whether or not its condition holds.
    pub(super) fn route_here(&self) -> StepRoute {
        let step = self.worker.as_ref().and_then(|worker| worker.step_at(self.job.step));
        step.map_or_else(StepRoute::internal, StepRoute::of)
    }
}
