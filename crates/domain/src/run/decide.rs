//! From a decision about a step to the update of its job, by the step's `on_error` and `undo`.

use std::sync::Arc;

use super::effects::JobEffects;
use crate::job::JobState;
use crate::mutant::Mutant;
use crate::outcome::{Failure, FailureClass};
use crate::record::JobRecord;
use crate::settle::NextAction;
use crate::transition::{JobPosition, JobUpdate};
use crate::undo::{NotUndone, Undoing};
use crate::worker::{OnError, Step, Worker};

/// Whether the job continues although this step has failed for good.
pub(super) fn continues(worker: &Worker, place: u32) -> bool {
    !worker.is_undoing(place) && worker.step_at(place).is_some_and(|step| step.on_error == OnError::Continue)
}

/// Applies a decision about the step where the job stands.
pub(super) fn decide(
    worker: &Worker,
    effects: &JobEffects,
    job: &JobRecord,
    position: JobPosition<'_>,
    next: NextAction,
) -> JobUpdate {
    let place = position.step;
    if worker.is_undoing(place) {
        return continue_undoing(worker, job, position, next);
    }
    match next {
        NextAction::Die { failure } if continues(worker, place) => {
            position.after(NextAction::Skip { reason: failure.message })
        }
        NextAction::Die { failure } if undoes(worker, effects, place) && !Mutant::UndoForgotten.is_on() => {
            with_undoing(position.move_to(worker.undo_from()), &Undoing::new(failure))
        }
        other => position.after(other),
    }
}

/// Whether something has to be undone when the step at this place has failed for good.
fn undoes(worker: &Worker, effects: &JobEffects, place: u32) -> bool {
    let fails = worker.step_at(place).is_none_or(|step| step.on_error == OnError::Fail);
    fails && worker.undo.iter().filter_map(|undo| undo.undoes).any(|place| effects.is_to_undo(worker, place))
}

fn continue_undoing(worker: &Worker, job: &JobRecord, position: JobPosition<'_>, next: NextAction) -> JobUpdate {
    let Some(mut undoing) = Undoing::read(job.result.as_deref()) else { return position.after(next) };
    let place = position.step;
    let undone = worker.step_at(place).and_then(|step| worker.steps.get(step.undoes?)).map(|step: &Step| &step.id);
    match next {
        NextAction::Advance { .. } | NextAction::Skip { .. } => {
            undoing.undone.extend(undone.map(|step| step.to_string()));
        }
        NextAction::Die { failure } => {
            undoing.not_undone.extend(undone.map(|step| NotUndone { step: step.to_string(), failure }));
        }
        other => return JobUpdate { result: Some(Arc::new(undoing.to_value())), ..position.after(other) },
    }
    with_undoing(position.move_to(place + 1), &undoing)
}

/// A live job that still shows what it failed of.
fn with_undoing(update: JobUpdate, undoing: &Undoing) -> JobUpdate {
    JobUpdate { failure: Some(undoing.failure.clone()), result: Some(Arc::new(undoing.to_value())), ..update }
}

/// Everything that could be undone is. A replay starts at the first step: what was undone is done again, as another effect.
pub(super) fn undone(job: &JobRecord, position: JobPosition<'_>) -> JobUpdate {
    let lost = || job.failure.clone().unwrap_or_else(lost);
    let undoing = Undoing::read(job.result.as_deref()).unwrap_or_else(|| Undoing::new(lost()));
    let dead = position.after(NextAction::Die { failure: undoing.told() });
    debug_assert_eq!(dead.state, JobState::Dead);
    JobUpdate { step: 0, result: Some(Arc::new(undoing.to_value())), ..dead }
}

fn lost() -> Failure {
    Failure::new(FailureClass::Permanent, "undone", "a step failed for good, and the steps before it were undone")
}
