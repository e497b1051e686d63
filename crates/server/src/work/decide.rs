//! From a decision about a step to where its job stands, with what the step says about failures.

use std::sync::Arc;

use sluice_domain::job::JobState;
use sluice_domain::outcome::Failure;
use sluice_domain::settle::NextAction;
use sluice_domain::transition::{JobPosition, JobUpdate};
use sluice_domain::undo::{NotUndone, Undoing};
use sluice_domain::worker::{OnError, Step, Worker};
use sluice_ledger::JobRecord;

use super::job_effects::JobEffects;

/// Whether the job goes on although this step of it has failed for good.
pub(super) fn goes_on(worker: &Worker, place: u32) -> bool {
    !worker.is_undoing(place) && worker.step_at(place).is_some_and(|step| step.on_error == OnError::Continue)
}

/// Applies a decision about the step that the job stands at.
pub(super) fn decide(
    worker: &Worker,
    books: &JobEffects,
    job: &JobRecord,
    standing: JobPosition<'_>,
    next: NextAction,
) -> JobUpdate {
    let place = standing.step;
    if worker.is_undoing(place) {
        return go_on_undoing(worker, job, standing, next);
    }
    match next {
        NextAction::Die { failure } if goes_on(worker, place) => {
            standing.after(NextAction::Skip { reason: failure.message })
        }
        NextAction::Die { failure } if undoes(worker, books, place) => {
            let undoing = Undoing::new(failure);
            told(standing.move_to(worker.undo_from()), &undoing)
        }
        other => standing.after(other),
    }
}

/// Whether anything is to be taken back when the step in this place has failed for good.
fn undoes(worker: &Worker, books: &JobEffects, place: u32) -> bool {
    let fails = worker.step_at(place).is_none_or(|step| step.on_error == OnError::Fail);
    fails && worker.undo.iter().filter_map(|undo| undo.undoes).any(|place| books.is_to_undo(worker, place))
}

fn go_on_undoing(worker: &Worker, job: &JobRecord, standing: JobPosition<'_>, next: NextAction) -> JobUpdate {
    let Some(mut undoing) = Undoing::read(job.result.as_deref()) else { return standing.after(next) };
    let place = standing.step;
    let undone = worker.step_at(place).and_then(|step| worker.steps.get(step.undoes?)).map(|step: &Step| &step.id);
    match next {
        NextAction::Advance { .. } | NextAction::Skip { .. } => {
            undoing.undone.extend(undone.map(|step| step.to_string()))
        }
        NextAction::Die { failure } => {
            undoing.not_undone.extend(undone.map(|step| NotUndone { step: step.to_string(), failure }));
        }
        other => return JobUpdate { result: Some(Arc::new(undoing.to_value())), ..standing.after(other) },
    }
    told(standing.move_to(place + 1), &undoing)
}

/// Alive, and what it died of is still there to be seen.
fn told(next: JobUpdate, undoing: &Undoing) -> JobUpdate {
    JobUpdate { failure: Some(undoing.failure.clone()), result: Some(Arc::new(undoing.to_value())), ..next }
}

/// Everything that could be taken back was. A replay starts at the first step: what was undone is done again, as another
/// effect.
pub(super) fn undone(job: &JobRecord, standing: JobPosition<'_>) -> JobUpdate {
    let lost = || job.failure.clone().unwrap_or_else(lost);
    let undoing = Undoing::read(job.result.as_deref()).unwrap_or_else(|| Undoing::new(lost()));
    let dead = standing.after(NextAction::Die { failure: undoing.told() });
    debug_assert_eq!(dead.state, JobState::Dead);
    JobUpdate { step: 0, result: Some(Arc::new(undoing.to_value())), ..dead }
}

fn lost() -> Failure {
    use sluice_domain::outcome::FailureClass;
    Failure::new(FailureClass::Permanent, "undone", "a step failed for good, and what was done before was undone")
}
