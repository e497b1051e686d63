//! What a replay of a job would do: the calls that it would make, or the failure that it would end with. Nothing is performed.

use std::sync::Arc;

use super::item::{NextItem, StepItem};
use super::{JobRun, LoadedJob, RunConfig, RunContext};
use crate::job::JobState;
use crate::outcome::{EffectClass, Failure, FailureClass};
use crate::replay::Reapply;
use crate::worker::{Step, Worker};

/// What a replay of one job would do.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    /// Calls that it would make, in their order.
    pub calls: Vec<ForecastCall>,
    /// The failure that it would end with.
    pub failure: Option<Failure>,
    /// Whether the destination rejected the same content before, under the same configuration.
    pub rejected_before: bool,
}

/// One call of a [`Forecast`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForecastCall {
    pub destination: Arc<str>,
    pub class: EffectClass,
    /// An earlier effect of the job has written the record: the call updates it. Otherwise it creates or updates one.
    pub updates: bool,
}

/// A replay of a job: under which configuration, and what is applied again.
#[derive(Clone, Debug)]
pub struct ReplayPlan<'a> {
    pub config: RunConfig,
    pub reapply: &'a Reapply,
}

/// Goes through the steps of a job as a replay would. Steps behind a call whose output is not known are counted as calls unless
/// their condition is known to be false.
pub fn forecast(mut loaded: LoadedJob, plan: ReplayPlan<'_>, context: RunContext) -> Forecast {
    let revision = plan.config.pinned.as_ref().map(|pinned| pinned.name.clone());
    let moved = revision.is_some_and(|revision| revision != loaded.job.revision);
    let rejected = loaded.job.failure.as_ref().is_some_and(|failure| {
        matches!(failure.class, FailureClass::Permanent | FailureClass::Identity | FailureClass::Conflict)
    });
    let rejected_before = loaded.job.state == JobState::Dead && rejected && !moved && plan.reapply.is_empty();
    for effect in &mut loaded.effects {
        if !effect.destination.is_empty() && plan.reapply.supersedes(effect.class, effect.state) {
            effect.state = crate::job::EffectState::Superseded;
        }
    }
    let job = &mut loaded.job;
    (job.state, job.replays) = (JobState::Queued, job.replays + 1);
    if moved || !plan.reapply.is_empty() {
        job.step = 0;
    }
    let mut run = JobRun::new(loaded, Arc::default(), plan.config);
    let (calls, failure) = match run.prepare(context) {
        Err(failure) => (vec![], Some(failure)),
        Ok(()) => {
            run.show_finished_outputs();
            run.walk(context)
        }
    };
    Forecast { rejected_before: rejected_before && failure.is_none() && !calls.is_empty(), calls, failure }
}

impl JobRun {
    /// Outputs of the steps before the one where the job stands, as far as the ledger has them.
    fn show_finished_outputs(&mut self) {
        let Some(worker) = self.worker.clone() else { return };
        let finished = self.job.step.min(worker.end()) as usize;
        for (place, step) in worker.steps.iter().enumerate().take(finished) {
            if let Some(output) = self.effects.output(&worker, place, step) {
                self.show(step, output);
            }
        }
    }

    fn walk(&mut self, context: RunContext) -> (Vec<ForecastCall>, Option<Failure>) {
        let Some(worker) = self.worker.clone() else { return (vec![], None) };
        let mut calls = Vec::new();
        // Whether a step before has an output that only the run itself will know.
        let mut guessing = false;
        while let Some(step) = worker.step_at(self.job.step).filter(|_| !worker.is_undoing(self.job.step)) {
            match self.next_item(&worker, step, context.at) {
                Ok(NextItem::Pass(output)) => {
                    self.pass(step, output);
                    continue;
                }
                Ok(NextItem::Do(item)) => match self.forecast_item(&item, &mut calls, guessing) {
                    Ok(known) => guessing |= !known,
                    Err(failure) => return (calls, Some(failure)),
                },
                Ok(NextItem::NotBefore(_)) => calls.push(ForecastCall::of(step)),
                Err(_) if guessing => calls.extend((!step.action.is_internal()).then(|| ForecastCall::of(step))),
                Err(failure) => return (calls, Some(failure)),
            }
            self.job.step += 1;
        }
        (calls, None)
    }

    /// Counts the calls of a step. Returns whether its output is known.
    fn forecast_item(
        &mut self,
        item: &StepItem,
        calls: &mut Vec<ForecastCall>,
        guessing: bool,
    ) -> Result<bool, Failure> {
        let (worker, step): (&Worker, &Step) = (&item.worker, item.step());
        if item.index.is_none() && self.effects.is_finished(step, item.key) {
            if let Some(output) = self.effects.output(worker, item.place as usize, step) {
                self.show(step, output);
            }
            return Ok(true);
        }
        if step.action.is_internal() {
            return Ok(false);
        }
        match self.render(worker, step) {
            Err(problem) if !guessing => {
                Err(Failure::new(FailureClass::Mapping, "with", format!("step `{}`: {problem}", step.id)))
            }
            _ => {
                let call =
                    |index| ForecastCall { updates: self.effects.has_written(step, index), ..ForecastCall::of(step) };
                match item.index {
                    None => calls.push(call(None)),
                    Some((_, items)) => {
                        let is_open =
                            |item: &usize| !self.effects.is_finished(step, self.effects.item_key(step, *item));
                        calls.extend((0..items).filter(is_open).map(|item| call(Some(item))));
                    }
                }
                Ok(false)
            }
        }
    }
}

impl ForecastCall {
    fn of(step: &Step) -> ForecastCall {
        ForecastCall { destination: step.destination.clone(), class: step.class, updates: false }
    }
}
