//! What the steps behind a job left, for those that follow.

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::approval::ApprovalState;
use sluice_domain::job::EffectState;
use sluice_domain::outcome::Failure;
use sluice_domain::template::Scope;
use sluice_domain::worker::{Step, Worker};

use super::job_effects::{EffectEntry, JobEffects, error_output};
use super::next_item::{StepItem, items};
use super::run::JobRun;
use super::{LoadedRevision, decide, internal};

impl JobRun<'_> {
    /// Reads what the ledger knows of the job's effects, if it can know anything.
    pub async fn open_books(&mut self, worker: &Worker) -> Result<(), sluice_ledger::Error> {
        let keeps_items = worker.steps.iter().any(|step| step.foreach.is_some());
        if self.job.step > 0 || self.job.replays > 0 || keeps_items {
            let effects = self.context.ledger.effects(self.job.id).await?;
            self.books = JobEffects::new(self.event.id, &self.job.worker, effects);
        }
        Ok(())
    }

    /// Makes the outputs of finished steps visible to the ones that follow.
    pub async fn recall(
        &mut self,
        live: &LoadedRevision,
        worker: &Worker,
        scope: &mut Scope,
    ) -> Result<(), sluice_ledger::Error> {
        let behind = self.job.step.min(worker.end()) as usize;
        for (place, step) in worker.steps.iter().enumerate().take(behind) {
            let output = match &step.foreach {
                // A list that cannot be read any more has left nothing.
                Some(foreach) => {
                    Some(Arc::new(self.books.list(step, items(step, foreach, scope).map_or(0, |items| items.len()))))
                }
                None if step.action.is_internal() => {
                    internal::recall(self, live, step, scope, self.books.output(worker, place, step)).await?
                }
                None => self.books.output(worker, place, step),
            };
            if let Some(output) = output {
                self.show(step, output, scope);
            }
        }
        Ok(())
    }

    /// Asks the question that this step announces. Answers whether it still has to be announced.
    pub async fn announce(
        &self,
        live: &LoadedRevision,
        worker: &Worker,
        step: &Step,
        scope: &mut Scope,
    ) -> Result<bool, sluice_ledger::Error> {
        let Some(asks) = worker.steps.iter().find(|asks| Some(&asks.id) == step.announces.as_ref()) else {
            return Ok(false);
        };
        let Ok(Some(with)) = asks.with.render(scope, &live.secrets) else { return Ok(false) };
        let Ok(question) = internal::approval::ask(self, asks, self.books.key(&asks.label(0, None)), &with) else {
            return Ok(false);
        };
        scope.set("approval", internal::approval::shown(&question));
        let asked = self.context.ledger.request_approval(question).await?;
        Ok(asked.is_some_and(|asked| asked.state == ApprovalState::Pending))
    }

    /// There is nothing to do in this step, or nothing more; on to the next one.
    pub fn pass(&mut self, step: &Step, output: Option<Value>, scope: &mut Scope) {
        if let Some(output) = output {
            self.show(step, Arc::new(output), scope);
        }
        self.job.step += 1;
        self.job.attempts = 0;
    }

    /// A step inside has left this; on to the next item, or to the next step.
    pub fn keep(&mut self, step: &Step, turn: &StepItem, output: Value, scope: &mut Scope) {
        match turn.item {
            Some(_) => {
                let (result, last_at) = (Some(Arc::new(output)), self.context.clock.wall());
                self.books.put(turn.key, EffectEntry { state: EffectState::Applied, result, last_at });
            }
            None => self.pass(step, Some(output), scope),
        }
    }

    /// What was just done is part of what the step left.
    pub fn remember(&mut self, worker: &Worker, step: &Step, turn: &StepItem) {
        let output = match turn.item {
            Some((_, items)) => Some(Arc::new(self.books.list(step, items))),
            None if step.undoes.is_some() => None,
            None => {
                let before = || self.books.output(worker, self.job.step as usize, step);
                self.books.left(step, turn.key).or_else(before)
            }
        };
        if let Some(output) = output {
            self.outputs.put(&step.id, output);
        }
    }

    fn show(&mut self, step: &Step, output: Arc<Value>, scope: &mut Scope) {
        scope.set_step_output(&step.id, Value::clone(&output));
        match step.action {
            action if !internal::is_result(action) => {
                drop(self.inside.insert(step.id.to_string(), Arc::unwrap_or_clone(output)))
            }
            _ => self.outputs.put(&step.id, output),
        }
    }

    /// A step cannot be prepared. If the job goes on without it, that is kept, so that a second run goes on too; otherwise
    /// this is what the job dies of.
    pub async fn failed_untried(
        &mut self,
        worker: &Worker,
        step: &Step,
        turn: &StepItem,
        failure: Failure,
        scope: &mut Scope,
    ) -> Result<Result<(), Failure>, sluice_ledger::Error> {
        if !decide::goes_on(worker, self.job.step) {
            return Ok(Err(failure));
        }
        let output = error_output(&failure);
        let note = self.note(step, turn, EffectState::Skipped, output.clone());
        if self.context.ledger.note(note).await?.is_none() {
            tracing::warn!(job = %self.job.id, "the job has moved on without this run");
        }
        self.keep(step, turn, output, scope);
        Ok(Ok(()))
    }
}
