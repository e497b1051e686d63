//! Work: a job's next step, done.
//!
//! In: a job with its event.
//! Out: a settlement in the ledger, and what the scheduler should know.
//! Touches: revisions (read), connectors, ledger: begin, settle, effects.
//! Never: chooses what runs next.
//! If the process dies here: the intent is in the ledger, or the effect was natural; the next start settles the attempt as
//! interrupted, by the rules of its class.

mod attempt;
mod budget;
mod decide;
mod guard;
mod internal;
mod job_effects;
mod message;
mod next_item;
mod recover;
mod run;
mod scope;
mod step_outputs;

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::settle::{DestinationHealth, NextAction};
use sluice_domain::time::Time;
use sluice_domain::worker::{LaneOrder, Worker};
use sluice_ledger::{EventBody, EventRecord, JobRecord, Ledger};

use crate::clock::Clock;
use crate::observe::Metrics;
use crate::revisions::{LoadedRevision, Revisions};
use crate::safe_mode::SafeModes;
use crate::schedule;
pub use attempt::span;
pub use internal::{DryRunOutput, dry_run};
use internal::{InternalOutcome, InternalStep};
pub use message::filled;
use next_item::NextItem;
pub use next_item::items;
pub use recover::{recover, recover_one};
use run::JobRun;
pub use scope::scope_of;

/// What the room needs.
#[derive(Clone, Debug)]
pub struct WorkContext {
    /// Where attempts are written down.
    pub ledger: Ledger,
    /// What the steps are.
    pub revisions: Revisions,
    /// What is counted.
    pub metrics: Metrics,
    /// The time.
    pub clock: Clock,
    /// Until then every attempt is written down before it is made.
    pub careful_until: Time,
    /// Who is in safe mode.
    pub safe_modes: SafeModes,
    /// Who has to know of jobs that come back to life.
    pub scheduler: schedule::SchedulerHandle,
}

/// A job to be worked on.
#[derive(Clone, Debug)]
pub struct RunInput {
    /// The job.
    pub job: JobRecord,
    /// Its event.
    pub event: Arc<EventRecord>,
    /// And what it says.
    pub body: Arc<EventBody>,
    /// The destination whose slot was taken for this run.
    pub destination: Arc<str>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The job as it stands now.
    pub job: JobRecord,
    /// What was learned of the destination; `None` if it was not asked.
    pub verdict: Option<DestinationHealth>,
    /// Where its next step goes, if there is one.
    pub place: Option<StepRoute>,
}

/// Where a step goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRoute {
    /// The destination.
    pub destination: Arc<str>,
    /// Whether jobs of one entity keep their order there.
    pub order: LaneOrder,
}

impl StepRoute {
    /// Where the first step goes that reaches out from this one on; `None` if there is none.
    pub fn of(worker: &Worker, step: u32) -> Option<StepRoute> {
        let step = worker.next_external(step)?;
        Some(StepRoute { destination: step.destination.clone(), order: step.order })
    }

    /// For a job that no destination has to be asked about.
    pub fn nowhere() -> StepRoute {
        StepRoute { destination: Arc::from(""), order: LaneOrder::Fifo }
    }
}

/// Works on a job until an outward step has been tried, or until there is nothing left to do. `None` if the ledger knows the job
/// otherwise than memory does: it has to be read anew.
pub async fn work(context: &WorkContext, order: RunInput) -> Result<Option<RunResult>, sluice_ledger::Error> {
    let mut run = JobRun::new(context, order);
    let Some(live) = context.revisions.get(&run.job.revision, &context.ledger).await else {
        let failure = Failure::new(
            FailureClass::Mapping,
            "revision-lost",
            "the configuration that this job was accepted under cannot be read any more; replay it with --latest-config",
        );
        return run.end_untried(NextAction::Die { failure }).await;
    };
    let Some(worker) = context.revisions.worker(&live, &run.job.worker) else {
        let failure =
            Failure::new(FailureClass::Mapping, "worker-lost", "the worker of this job is not in its configuration");
        return run.end_untried(NextAction::Die { failure }).await;
    };
    run.worker = Some(worker.clone());
    run.dead_letter_queue = dead_letter_queue(&context.revisions.current(), &live, &worker);
    if let Some(failure) = run.expired(&live) {
        return run.end_untried(NextAction::Die { failure }).await;
    }
    let mut scope = match scope_of(&live, &run.event, &run.body, &run.job.queue) {
        Ok(scope) => scope,
        Err(failure) => return run.end_untried(NextAction::Die { failure }).await,
    };
    let safe_mode = context.safe_modes.until(&worker.name, context.clock.wall()).is_some();
    scope.set("safe_mode", Value::Bool(safe_mode));
    run.open_books(&worker).await?;
    run.recall(&live, &worker, &mut scope).await?;
    // Steps that need not be done cost nothing and are passed over; those that stay inside take no slot.
    loop {
        let Some(step) = worker.step_at(run.job.step) else {
            return run.reach_end(&worker).await;
        };
        let turn = match run.turn(&worker, step, &mut scope) {
            Ok(NextItem::Do(turn)) => turn,
            Ok(NextItem::Pass(output)) => {
                run.pass(step, output, &mut scope);
                continue;
            }
            Ok(NextItem::NotYet(due)) => return run.wait_until(due).await,
            Err(failure) => return run.end_untried(NextAction::Die { failure }).await,
        };
        if !step.action.is_internal() && *step.destination != *run.destination {
            // The slot that was taken is another destination's.
            return Ok(Some(run.hand_back()));
        }
        if step.announces.is_some() && !Box::pin(run.announce(&live, &worker, step, &mut scope)).await? {
            run.pass(step, None, &mut scope);
            continue;
        }
        let rendered = step.with.render(&scope, &live.secrets).map(|with| with.unwrap_or(Value::Null));
        let with = match rendered.and_then(|with| filled(&live.config.messages, &worker, step.action, &scope, with)) {
            Ok(with) => with,
            Err(problem) => {
                let failure = Failure::new(FailureClass::Mapping, "with", format!("step `{}`: {problem}", step.id));
                match run.failed_untried(&worker, step, &turn, failure, &mut scope).await? {
                    Ok(()) => continue,
                    Err(failure) => return run.end_untried(NextAction::Die { failure }).await,
                }
            }
        };
        if !step.action.is_internal() {
            let guarded = Box::pin(run.guarded(&live, &worker, step, &scope)).await?;
            return Box::pin(run.attempt(&live, &worker, step, turn, &with, guarded)).await;
        }
        let inside = InternalStep { live: &live, worker: &worker, step, turn: &turn, with: &with, scope: &scope };
        match internal::perform(&run, inside).await? {
            InternalOutcome::Done(output) => run.keep(step, &turn, output, &mut scope),
            InternalOutcome::End(reason) => return run.end_noop(reason).await,
            InternalOutcome::Wait { due, failure } => return run.wait(due, failure).await,
            InternalOutcome::Deferred { due, failure } => return Ok(Some(run.waits(due, failure))),
            InternalOutcome::Die(failure) => match run.failed_untried(&worker, step, &turn, failure, &mut scope).await?
            {
                Ok(()) => {}
                Err(failure) => return run.end_untried(NextAction::Die { failure }).await,
            },
            InternalOutcome::Stale => return Ok(None),
        }
    }
}

/// Where a job of this worker lies once it is dead.
fn dead_letter_queue(current: &LoadedRevision, pinned: &LoadedRevision, worker: &Worker) -> Option<Arc<str>> {
    let of_queue =
        |live: &LoadedRevision| live.config.queues.get(&worker.queue).and_then(|queue| queue.dead_letter_queue.clone());
    worker.retry.dead_letter_queue.clone().or_else(|| of_queue(current)).or_else(|| of_queue(pinned))
}
