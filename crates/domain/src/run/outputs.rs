//! Outputs of finished steps, for the steps that follow and for the result of the job.

use std::sync::Arc;

use serde_json::Value;

use super::effects::{EffectEntry, error_output};
use super::item::{StepItem, items};
use super::{Command, JobRun, RunContext, Waiting, decide, internal};
use crate::action::Action;
use crate::job::EffectState;
use crate::outcome::Failure;
use crate::settle::NextAction;
use crate::worker::Step;

impl JobRun {
    /// Makes the outputs of finished steps visible again, from this place on, then continues with the step where the job
    /// stands.
    pub(super) fn restore_outputs(&mut self, from: usize, context: RunContext) -> Command {
        let Some(worker) = self.worker.clone() else { return self.reload() };
        let finished = self.job.step.min(worker.end()) as usize;
        for (place, step) in worker.steps.iter().enumerate().take(finished).skip(from) {
            let recorded = || self.effects.output(&worker, place, step);
            let output = match &step.foreach {
                // A list that cannot be evaluated any more has no output.
                Some(foreach) => {
                    let count = items(step, foreach, &self.scope).map_or(0, |items| items.len());
                    Some(Arc::new(self.effects.list(step, count)))
                }
                None if step.action == Action::QueuePull => match recorded() {
                    Some(recorded) => {
                        self.waiting = Waiting::RestoredMessages(place);
                        return Command::ReadMessages(internal::pulled_jobs(&recorded));
                    }
                    None => None,
                },
                None if step.action == Action::ComputeDedupKey => self.recompute_dedup_key(step).map(Arc::new),
                None => recorded(),
            };
            if let Some(output) = output {
                self.show(step, output);
            }
        }
        self.advance(context)
    }

    /// Makes the output of the step at this place visible.
    pub(super) fn show_at(&mut self, place: usize, output: Value) {
        if let Some(worker) = self.worker.clone()
            && let Some(step) = worker.steps.get(place)
        {
            self.show(step, Arc::new(output));
        }
    }

    /// A dedup key follows from the event alone: it is computed again in every run, and recorded nowhere.
    fn recompute_dedup_key(&self, step: &Step) -> Option<Value> {
        let pinned = self.config.pinned.as_ref()?;
        let holds = step.condition.as_ref().is_none_or(|condition| condition.holds(&self.scope).unwrap_or(false));
        let with = step.with.render(&self.scope, &*pinned.secrets).ok().flatten().filter(|_| holds)?;
        internal::dedup_key(step, &with, &self.scope).ok()
    }

    pub(super) fn show(&mut self, step: &Step, output: Arc<Value>) {
        self.scope.set_step_output(step.id.clone(), output.clone());
        let outputs = if is_result(step.action) { &mut self.outputs } else { &mut self.internal_outputs };
        outputs.put(&step.id, output);
    }

    /// Continues with the next step.
    pub(super) fn pass(&mut self, step: &Step, output: Option<Value>) {
        if let Some(output) = output {
            self.show(step, Arc::new(output));
        }
        self.job.step += 1;
        self.job.attempts = 0;
    }

    /// Keeps the output of an internal step and continues with the next item or step.
    pub(super) fn keep_output(&mut self, item: &StepItem, output: Value, context: RunContext) {
        match item.index {
            Some(_) => {
                let (result, last_at) = (Some(Arc::new(output)), context.at);
                let entry = EffectEntry { state: EffectState::Applied, result, last_at, reads: (0, 0) };
                self.effects.put(item.key, entry);
            }
            None => self.pass(item.step(), Some(output)),
        }
    }

    /// Makes what an attempt left part of the step's output.
    pub(super) fn keep_attempt_output(&mut self, item: &StepItem) {
        let step = item.step();
        let output = match item.index {
            Some((_, items)) => Some(Arc::new(self.effects.list(step, items))),
            None if step.undoes.is_some() => None,
            None => {
                let before = || self.effects.output(&item.worker, item.place as usize, step);
                self.effects.output_of(step, item.key).or_else(before)
            }
        };
        if let Some(output) = output {
            self.scope.set_step_output(step.id.clone(), output.clone());
            self.outputs.put(&step.id, output);
        }
    }

    /// A step cannot be attempted. With `on_error: continue` its failure is recorded as its output, so that a second run
    /// continues too; otherwise the job dies of it.
    pub(super) fn failed_without_attempt(&mut self, item: StepItem, failure: Failure, context: RunContext) -> Command {
        if !decide::continues(&item.worker, item.place) {
            return self.end_without_attempt(NextAction::Die { failure }, context);
        }
        let output = error_output(&failure);
        let result = self.step_result(&item, EffectState::Skipped, output.clone(), context);
        self.waiting = Waiting::FailureRecorded(item, output);
        Command::RecordStep(Box::new(result))
    }
}

/// Whether the output of an action is a result of its job. A job that only looked and decided has done nothing.
fn is_result(action: Action) -> bool {
    !action.is_internal() || action == Action::Queue
}
