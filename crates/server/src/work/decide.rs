//! From a decision about a step to where its job stands, with what the step says about failures.

use std::sync::Arc;

use sluice_domain::job::JobState;
use sluice_domain::outcome::Failure;
use sluice_domain::progress::{JobNext, Standing};
use sluice_domain::settle::Next;
use sluice_domain::undo::{NotUndone, Undoing};
use sluice_domain::worker::{OnError, Step, Worker};
use sluice_ledger::JobRecord;

use super::books::Books;

/// Whether the job goes on although this step of it has failed for good.
pub(super) fn goes_on(worker: &Worker, place: u32) -> bool {
    !worker.is_undoing(place) && worker.step_at(place).is_some_and(|step| step.on_error == OnError::Continue)
}

/// Applies a decision about the step that the job stands at.
pub(super) fn decide(worker: &Worker, books: &Books, job: &JobRecord, standing: Standing<'_>, next: Next) -> JobNext {
    let place = standing.step;
    if worker.is_undoing(place) {
        return go_on_undoing(worker, job, standing, next);
    }
    match next {
        Next::Die { failure } if goes_on(worker, place) => standing.after(Next::Skip { reason: failure.message }),
        Next::Die { failure } if undoes(worker, books, place) => {
            let undoing = Undoing::new(failure);
            told(standing.move_to(worker.undo_from()), &undoing)
        }
        other => standing.after(other),
    }
}

/// Whether anything is to be taken back when the step in this place has failed for good.
fn undoes(worker: &Worker, books: &Books, place: u32) -> bool {
    let fails = worker.step_at(place).is_none_or(|step| step.on_error == OnError::Fail);
    fails && worker.undo.iter().filter_map(|undo| undo.undoes).any(|place| books.is_to_undo(worker, place))
}

fn go_on_undoing(worker: &Worker, job: &JobRecord, standing: Standing<'_>, next: Next) -> JobNext {
    let Some(mut undoing) = Undoing::read(job.result.as_deref()) else { return standing.after(next) };
    let place = standing.step;
    let undone = worker.step_at(place).and_then(|step| worker.steps.get(step.undoes?)).map(|step: &Step| &step.id);
    match next {
        Next::Advance { .. } | Next::Skip { .. } => undoing.undone.extend(undone.map(|step| step.to_string())),
        Next::Die { failure } => {
            undoing.not_undone.extend(undone.map(|step| NotUndone { step: step.to_string(), failure }));
        }
        other => return JobNext { result: Some(Arc::new(undoing.to_value())), ..standing.after(other) },
    }
    told(standing.move_to(place + 1), &undoing)
}

/// Alive, and what it died of is still there to be seen.
fn told(next: JobNext, undoing: &Undoing) -> JobNext {
    JobNext { failure: Some(undoing.failure.clone()), result: Some(Arc::new(undoing.to_value())), ..next }
}

/// Everything that could be taken back was. A replay starts at the first step: what was undone is done again, as another
/// effect.
pub(super) fn undone(job: &JobRecord, standing: Standing<'_>) -> JobNext {
    let lost = || job.failure.clone().unwrap_or_else(lost);
    let undoing = Undoing::read(job.result.as_deref()).unwrap_or_else(|| Undoing::new(lost()));
    let dead = standing.after(Next::Die { failure: undoing.told() });
    debug_assert_eq!(dead.state, JobState::Dead);
    JobNext { step: 0, result: Some(Arc::new(undoing.to_value())), ..dead }
}

fn lost() -> Failure {
    use sluice_domain::outcome::FailureClass;
    Failure::new(FailureClass::Permanent, "undone", "a step failed for good, and what was done before was undone")
}
