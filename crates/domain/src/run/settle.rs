//! How a run ends: the update of the job, what is written with it, and the result.

use std::sync::Arc;

use serde_json::Value;

use super::compare::UnknownCall;
use super::effects::{EffectEntry, error_output};
use super::item::StepItem;
use super::{Command, JobRun, Notice, RunContext, RunResult, Settle, StepRoute, Waiting, decide};
use crate::contact::WriteRecord;
use crate::job::{EffectState, JobState, Term};
use crate::ops::{AttemptSettlement, Begin, ChargeResult, EffectSettlement, Fence, RetryCharge, Settlement};
use crate::outcome::Failure;
use crate::settle::{DestinationHealth, NextAction};
use crate::time::Time;
use crate::transition::{AttemptEnd, JobPosition, JobUpdate, effect_after};
use crate::upsert::IDENTITY_BUSY;
use crate::worker::{LaneOrder, Worker};

/// A settlement that is being written.
#[derive(Debug)]
pub(super) struct Settling {
    update: JobUpdate,
    /// The update that is written instead when the retry budget is used up.
    otherwise: Option<JobUpdate>,
    health: Option<DestinationHealth>,
    at: Time,
    term: Term,
}

/// What an attempt came to.
#[derive(Debug)]
pub(super) struct AttemptResult {
    pub item: StepItem,
    pub attempt: AttemptSettlement,
    /// Reads that did not find the effect since the last attempt, and reads in all.
    pub reads: (u32, u32),
    pub end: AttemptEnd,
    /// Attempts at the step, this one included if it counts.
    pub attempts: u32,
    pub health: DestinationHealth,
    /// The intent, if it was not recorded before.
    pub begin: Option<Begin>,
}

/// What a settlement writes beside the update of the job.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub effect: Option<EffectSettlement>,
    pub attempt: Option<AttemptSettlement>,
    pub begin: Option<Begin>,
    pub health: Option<DestinationHealth>,
    pub write: Option<WriteRecord>,
}

impl JobRun {
    /// Nothing was attempted: the job ends, or goes on without this step.
    pub(super) fn end_without_attempt(&mut self, next: NextAction, context: RunContext) -> Command {
        let update = self.decided(next, self.job.attempts, context.at);
        self.settle(update, Written::default(), context)
    }

    /// Every step is done or was passed over, or everything is undone.
    pub(super) fn reach_end(&mut self, worker: &Worker, context: RunContext) -> Command {
        let update = if worker.is_undoing(self.job.step) {
            decide::undone(&self.job, self.position(self.job.attempts, context.at))
        } else {
            self.completed(context.at)
        };
        self.settle(update, Written::default(), context)
    }

    fn completed(&self, at: Time) -> JobUpdate {
        let mut update = self.position(0, at).complete();
        if update.state == JobState::Noop && !self.internal_outputs.is_empty() {
            update.result = Some(Arc::new(self.internal_outputs.to_value()));
        }
        update
    }

    /// An internal step has decided that nothing more is to be done.
    pub(super) fn end_noop(&mut self, reason: Value, context: RunContext) -> Command {
        let update = self.position(0, context.at).end_noop(reason);
        self.settle(update, Written::default(), context)
    }

    /// The job waits until this time of the ledger's clock. Waiting costs no attempt.
    pub(super) fn wait_until(&mut self, until: Time, failure: Option<Failure>, context: RunContext) -> Command {
        let due = context.now + until.since(context.at);
        let update = self.waits(due, failure, context.at);
        self.settle(update, Written::default(), context)
    }

    fn waits(&self, due: Time, failure: Option<Failure>, at: Time) -> JobUpdate {
        let mut update = self.position(self.job.attempts, at).wait(due, failure);
        if self.worker.as_ref().is_some_and(|worker| worker.is_undoing(self.job.step)) {
            // It says how far the job is undone.
            update.result = self.job.result.clone();
        }
        update
    }

    /// The job waits, and that is durable already. `due` is by the steady clock.
    pub(super) fn deferred(&mut self, due: Time, failure: Failure, context: RunContext) -> Command {
        let update = self.waits(due, Some(failure), context.at);
        let route = self.route_here();
        self.apply(update, context.at);
        self.job.term = context.term;
        self.finish(None, route, true)
    }

    /// The next step calls another destination than the one whose slot was taken. Only memory changes: should the process
    /// end, the steps that were passed over are passed over again.
    pub(super) fn hand_back(&mut self, route: StepRoute) -> Command {
        self.finish(None, route, false)
    }

    /// A write was refused: the ledger knows the job otherwise.
    pub(super) fn reload(&mut self) -> Command {
        self.notices.push(Notice::Stale);
        Command::Finish(Box::new(RunResult::Reload))
    }

    /// An attempt has ended.
    pub(super) fn end_attempt(&mut self, next: NextAction, result: AttemptResult, context: RunContext) -> Command {
        let AttemptResult { item, attempt, reads, end, attempts, health, begin } = result;
        let (mut state, mut output) = effect_after(&next, end);
        let mut known = output.clone();
        if let Some(compared) = self.compared_state(item.key, &next) {
            // What the confirmed write returned stays.
            known = self.effects.get(item.key).and_then(|entry| entry.result.clone());
            (state, output) = (compared, None);
        } else if let NextAction::Die { failure } = &next
            && decide::continues(&item.worker, item.place)
        {
            output = Some(Arc::new(error_output(failure)));
            known = output.clone();
        }
        self.effects.put(item.key, EffectEntry { state, result: known, last_at: context.at, reads });
        self.keep_attempt_output(&item);
        self.more_items = self.has_more(&item);
        let (absent_reads, reads) = reads;
        let late_until = match end {
            AttemptEnd::Unsure => self.late_until(item.step(), UnknownCall::TimedOut, context.now),
            AttemptEnd::Answered => None,
        };
        let effect = EffectSettlement {
            key: item.key,
            step: item.place,
            state,
            result: output,
            absent_reads,
            reads,
            late_until,
        };
        let update = self.decided(next, attempts, context.at);
        let write = self.write_record(item.step(), attempt.kind, state);
        let written = Written { effect: Some(effect), attempt: Some(attempt), begin, health: Some(health), write };
        self.settle(update, written, context)
    }

    /// An effect was skipped by a policy and that is recorded. A job in which nothing was done says why.
    pub(super) fn skipped(
        &mut self,
        item: &StepItem,
        result: Arc<Value>,
        reason: String,
        context: RunContext,
    ) -> Command {
        let entry = EffectEntry {
            state: EffectState::Skipped,
            result: Some(result.clone()),
            last_at: context.at,
            reads: (0, 0),
        };
        self.effects.put(item.key, entry);
        self.more_items = self.has_more(item);
        self.settle_skip(result, reason, context)
    }

    pub(super) fn settle_skip(&mut self, result: Arc<Value>, reason: String, context: RunContext) -> Command {
        let mut update = self.decided(NextAction::Skip { reason }, self.job.attempts, context.at);
        if update.state == JobState::Noop && update.result.is_none() {
            update.result = Some(result);
        }
        self.settle(update, Written::default(), context)
    }

    /// The job after a decision about the step where it stands.
    pub(super) fn decided(&self, next: NextAction, attempts: u32, at: Time) -> JobUpdate {
        let position = self.position(attempts, at);
        match &self.worker {
            _ if self.compared.is_some() => self.after_comparison(next, attempts, at),
            Some(worker) => decide::decide(worker, &self.effects, &self.job, position, next),
            None => position.after(next),
        }
    }

    pub(super) fn position(&self, attempts: u32, at: Time) -> JobPosition<'_> {
        JobPosition {
            step: self.job.step,
            steps: self.worker.as_ref().map_or(0, |worker| worker.end()),
            more_items: self.more_items,
            attempts,
            dead_letter_queue: self.dead_letter_queue.as_deref(),
            outputs: &self.outputs,
            at,
        }
    }

    /// Writes the end of the run. A job that goes on is routed to the destination that it will call next; if no step is left
    /// to do, it is complete.
    pub(super) fn settle(&mut self, mut update: JobUpdate, written: Written, context: RunContext) -> Command {
        let here = self.job.step;
        let mut route = StepRoute::internal();
        if update.state.is_live() {
            (self.job.step, route) = (update.step, self.route_here());
            if update.step != here {
                match self.route_ahead(context.at) {
                    Some(ahead) => route = ahead,
                    None => update = self.completed_behind(&update, context.at),
                }
            }
            self.job.step = here;
            if self.compared.is_some() {
                update.result = self.job.result.clone();
            }
        }
        if self.job.replays > 0 && is_identity_busy(&update) {
            // The job that it waits for may be a newer one of its lane, which has to read back first.
            route.order = LaneOrder::None;
        }
        (update.destination, update.order) = (route.destination, route.order);
        let charge = self.charge(&update, context.at);
        let settlement = Settlement {
            job: self.job.id,
            n: self.job.attempts_total,
            fence: self.fence(context),
            effect: written.effect,
            attempt: written.attempt,
            write: written.write,
            next: update.clone(),
            at: context.at,
        };
        let otherwise = charge.as_ref().map(|charge| charge.otherwise.clone());
        self.waiting = Waiting::Settled(Box::new(Settling {
            update,
            otherwise,
            health: written.health,
            at: context.at,
            term: context.term,
        }));
        Command::Settle(Box::new(Settle { settlement, charge, begin: written.begin }))
    }

    /// Every write of this run follows from the job as it knows it.
    pub(super) fn fence(&self, context: RunContext) -> Fence {
        Fence { owner: context.term, expected: self.job.term }
    }

    /// No step behind the one that was done has anything to do.
    fn completed_behind(&mut self, update: &JobUpdate, at: Time) -> JobUpdate {
        match &self.worker {
            Some(worker) if worker.is_undoing(update.step) => {
                self.job.failure = update.failure.clone();
                self.job.result = update.result.clone();
                self.job.step = update.step;
                decide::undone(&self.job, self.position(update.attempts, at))
            }
            Some(worker) => {
                self.job.step = worker.end();
                self.completed(at)
            }
            None => update.clone(),
        }
    }

    /// The retry that a settlement takes from the budget of the job's contact, with the update if none is left.
    fn charge(&self, update: &JobUpdate, at: Time) -> Option<RetryCharge> {
        let worker = self.worker.as_ref()?;
        let budget = worker.retry_for(self.job.step).budget.or(worker.retry.budget)?;
        let is_shared = update.failure.as_ref().is_some_and(Failure::is_of_shared_request);
        if update.state != JobState::Retrying || is_shared {
            return None;
        }
        let failure = budget.used_up(&worker.name, update.failure.as_ref());
        let otherwise = self.decided(NextAction::Die { failure }, self.job.attempts + 1, at);
        Some(RetryCharge { retries: budget.retries, until: at + budget.window, otherwise })
    }

    /// The writer has answered.
    pub(super) fn settled(&mut self, settling: Settling, result: ChargeResult) -> Command {
        let Settling { update, otherwise, health, at, term } = settling;
        let update = match (result, otherwise) {
            (ChargeResult::Stale, _) => return self.reload(),
            (ChargeResult::Exhausted, Some(otherwise)) => {
                self.notices.push(Notice::RetryBudgetExhausted);
                otherwise
            }
            _ => update,
        };
        let route = StepRoute { destination: update.destination.clone(), order: update.order };
        self.apply(update, at);
        self.job.term = term;
        self.finish(health, route, true)
    }

    fn apply(&mut self, update: JobUpdate, at: Time) {
        let job = &mut self.job;
        (job.state, job.step, job.attempts, job.due_at) = (update.state, update.step, update.attempts, update.due_at);
        (job.verifying, job.updated_at) = (update.verifying, at);
        (job.failure, job.result) = (update.failure, update.result);
        (job.destination, job.order) = (update.destination, update.order);
    }

    fn finish(&mut self, health: Option<DestinationHealth>, route: StepRoute, settled: bool) -> Command {
        Command::Finish(Box::new(RunResult::Ended {
            job: self.job.clone(),
            health,
            took: self.call_took,
            route,
            settled,
        }))
    }
}

/// Whether the job waits for another effect of its identity.
fn is_identity_busy(update: &JobUpdate) -> bool {
    update.failure.as_ref().is_some_and(|failure| failure.code == IDENTITY_BUSY)
}
