//! A finished job whose confirmed write is compared with its record, because a call of its lane may have been applied late.
//!
//! The effect stays [`EffectState::Rechecking`] until its record is as it was written, or nobody can tell. Then the job is finished as
//! it was: no other step of it runs again, and its result stays. Only a write that cannot be made again for good makes it a dead
//! letter; nothing is undone for that.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::item::{StepItem, items};
use super::settle::Written;
use super::{Command, JobRun, Notice, RunContext, StepRoute, Waiting};
use crate::job::{EffectKey, EffectState, JobState};
use crate::mutant::Mutant;
use crate::ops::EffectSettlement;
use crate::outcome::{EffectClass, Failure, FailureClass};
use crate::record::EffectRecord;
use crate::settle::{NextAction, SETTLE_DELAY};
use crate::template::TemplateProblem;
use crate::time::Time;
use crate::transition::JobUpdate;
use crate::upsert::late_window;
use crate::worker::{LaneOrder, Step, Worker};

/// How long the calls of a step may be under way, and be applied after that.
#[derive(Clone, Copy, Debug)]
struct LateCalls {
    timeout: Duration,
    horizon: Duration,
}

/// The place of the step whose write is compared. Another revision than the one that it was made under may have moved it.
pub(super) fn place(worker: Option<&Worker>, effects: &[EffectRecord]) -> Option<u32> {
    let compared = effects.iter().find(|effect| effect.state == EffectState::Rechecking)?;
    let step = compared.step_id.split(['@', '[']).next()?;
    let place = worker?.steps.iter().position(|other| *other.id == *step)?;
    u32::try_from(place).ok()
}

impl JobRun {
    /// Reads the record back, or writes it again. Neither conditions nor other steps are looked at: the write was due once.
    pub(super) fn compare(&mut self, key: EffectKey, context: RunContext) -> Command {
        let Some(worker) = self.worker.clone() else { return self.reload() };
        let step = worker.step_at(self.job.step).filter(|step| !step.action.is_internal());
        let Some((step, item)) = step.and_then(|step| Some((step, self.compared_item(&worker, step, key)?))) else {
            return self.end_comparison("the step has no such item any more".into(), context);
        };
        if *step.destination != *self.destination {
            return self.hand_back(StepRoute { destination: step.destination.clone(), order: step.order });
        }
        if step.merged.is_some() {
            let command = Command::ReadContact { seq: self.event.seq, slot: self.slot(step) };
            self.waiting = Waiting::Contact(item);
            return command;
        }
        let rendered = self.render(&worker, step);
        self.compare_rendered(item, rendered, context)
    }

    /// Compares the record with these parameters.
    pub(super) fn compare_rendered(
        &mut self,
        item: StepItem,
        rendered: Result<Value, TemplateProblem>,
        context: RunContext,
    ) -> Command {
        match rendered {
            Ok(with) => self.attempt(item, with, context),
            Err(problem) => self.end_comparison(format!("step `{}`: {problem}", item.step().id), context),
        }
    }

    /// The item of the step whose effect has this key. Its expressions see the item from here on.
    fn compared_item(&mut self, worker: &Arc<Worker>, step: &Step, key: EffectKey) -> Option<StepItem> {
        let Some(foreach) = &step.foreach else {
            let round = self.effects.round(worker, self.job.step as usize);
            return Some(self.item(worker, step.label(round, None), None)).filter(|item| item.key == key);
        };
        let items = items(step, foreach, &self.scope).ok()?;
        let count = items.len();
        items.into_iter().enumerate().find_map(|(index, value)| {
            let item = self.item(worker, self.effects.item_label(step, index), Some((index, count)));
            if item.key != key {
                return None;
            }
            self.scope.set("item", value);
            self.scope.set("index", index.into());
            Some(item)
        })
    }

    /// The record cannot be compared or must not be written: the effect is applied and the job finished, as before.
    pub(super) fn end_comparison(&mut self, reason: String, context: RunContext) -> Command {
        let Some(key) = self.compared else { return self.reload() };
        self.notices.push(Notice::NotCompared { reason });
        let (absent_reads, reads) = self.effects.get(key).map_or((0, 0), |entry| entry.reads);
        let effect = EffectSettlement {
            key,
            step: self.job.step,
            state: EffectState::Applied,
            result: None,
            absent_reads,
            reads,
            late_until: None,
        };
        let update = self.finished_as_before(context.at);
        self.settle(update, Written { effect: Some(effect), ..Written::default() }, context)
    }

    /// The job after a decision about the write that is compared.
    pub(super) fn after_comparison(&self, next: NextAction, attempts: u32, at: Time) -> JobUpdate {
        match next {
            NextAction::Advance { .. } | NextAction::Skip { .. } => self.finished_as_before(at),
            other => self.position(attempts, at).after(other),
        }
    }

    fn finished_as_before(&self, at: Time) -> JobUpdate {
        let step = self.worker.as_ref().map_or(self.job.step, |worker| worker.end());
        let result = self.job.result.clone();
        JobUpdate { state: JobState::Succeeded, step, result, ..self.position(0, at).complete() }
    }

    /// The state of the compared effect after an attempt that was decided upon like this; `None` if that of any effect applies.
    pub(super) fn compared_state(&self, key: EffectKey, next: &NextAction) -> Option<EffectState> {
        match next {
            _ if self.compared != Some(key) => None,
            NextAction::Advance { .. } | NextAction::Die { .. } => None,
            // The destination left the record alone on purpose.
            NextAction::Skip { .. } => Some(EffectState::Applied),
            _ => Some(EffectState::Rechecking),
        }
    }

    /// Whether the intent of a call must be durable before it is made: were the call lost with the process, nobody would look for
    /// it.
    pub(super) fn looks_for_late_calls(&self, step: &Step) -> bool {
        self.late_calls(step).is_some()
    }

    /// Until when a call of this step may still be applied, by the steady clock, if nobody saw how it ended. `None` if that cannot
    /// overwrite a newer write, or would not be noticed.
    pub(super) fn late_until(&self, step: &Step, call: UnknownCall, now: Time) -> Option<Time> {
        let LateCalls { timeout, horizon } = self.late_calls(step).filter(|_| !Mutant::StragglerForgotten.is_on())?;
        Some(match call {
            UnknownCall::TimedOut => now + horizon,
            UnknownCall::Interrupted => now + timeout + horizon,
        })
    }

    fn late_calls(&self, step: &Step) -> Option<LateCalls> {
        let matters =
            step.class == EffectClass::Natural && step.order == LaneOrder::Fifo && step.action.compares_record();
        let pinned = self.config.pinned.as_ref().filter(|_| matters)?;
        let destination = pinned.config.destinations.get(&*step.destination)?;
        Some(LateCalls { timeout: destination.timeout, horizon: destination.straggler_horizon? })
    }

    /// How long after an unknown outcome the effect of this step may still be applied, and is looked for.
    pub(super) fn late_window(&self, step: &Step) -> Duration {
        let pinned = self.config.pinned.as_ref();
        late_window(step, pinned.and_then(|pinned| pinned.config.destinations.get(&*step.destination)))
    }

    /// The time before which a read-back says nothing, if it is not over. Due times that were written before the last start of the
    /// machine may be early, as the time that it was off is taken from its clock.
    pub(super) fn too_early_to_read(&self, item: &StepItem, context: RunContext) -> Option<NextAction> {
        let reads_max = item.worker.retry_for(item.place).max_attempts;
        let delay = match self.late_calls(item.step()).filter(|_| self.compared == Some(item.key)) {
            Some(late) => late.timeout + late.horizon,
            // The look that decides comes after the window of a late call, and so does the last one.
            None if self
                .effects
                .get(item.key)
                .is_some_and(|entry| entry.reads.0 > 0 || entry.reads.1 + 1 >= reads_max) =>
            {
                self.late_window(item.step()).max(SETTLE_DELAY)
            }
            None => SETTLE_DELAY,
        };
        let due = context.at_boot + delay;
        let failure = Failure::new(
            FailureClass::Retryable,
            "not-seen-yet",
            "the machine was restarted; the destination is given time before it is read",
        );
        (due > context.now).then_some(NextAction::Verify { due, failure })
    }
}

/// A call of unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownCall {
    /// It was given up after its time-out.
    TimedOut,
    /// The process ended: the call may have begun at any time before.
    Interrupted,
}
