//! Work: runs a job.
//!
//! In: a loaded job and the destination whose slot was taken.
//! Out: a settlement in the ledger, and the result for the scheduler.
//! Touches: revisions (read), connectors, ledger: the writes of a run and the reads that it asks for.
//! Never: decides anything. Every decision is made by [`sluice_domain::run::JobRun`].
//! If the process dies here: the intent is in the ledger, or the effect may be repeated without harm. The job is loaded as
//! running by the next owner, and settled as interrupted by the class of its effect.

mod call;
mod dead_letters;
mod perform;

use std::fmt;
use std::sync::Arc;

use sluice_domain::job::{JobId, JobState};
use sluice_domain::run::{Command, DenialKind, JobRun, LoadedJob, Notice, RunContext, RunResult};
use sluice_domain::time::Time;
use sluice_ledger::{ChangedJob, JobRecord, Ledger};

use crate::clock::Clock;
use crate::observe::Metrics;
use crate::observe::metrics::DeadLabels;
use crate::revisions::Revisions;
use crate::safe_mode::SafeModes;

/// What runs share.
#[derive(Clone, Debug)]
pub struct WorkContext {
    pub ledger: Ledger,
    pub revisions: Revisions,
    pub metrics: Metrics,
    pub clock: Clock,
    /// Until this time of the steady clock every attempt is recorded before its call: set after an unclean shutdown.
    pub careful_until: Time,
    pub safe_modes: SafeModes,
    pub on_requeued: OnRequeued,
}

/// Called with the jobs, and their workers, that a run has requeued.
#[derive(Clone)]
pub struct OnRequeued(pub Arc<dyn Fn(Vec<ChangedJob>) + Send + Sync>);

impl fmt::Debug for OnRequeued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnRequeued")
    }
}

impl WorkContext {
    /// The inputs of a run at this moment.
    pub(crate) fn now(&self, worker: &str) -> RunContext {
        let (now, at) = (self.clock.now(), self.clock.ledger_time());
        RunContext {
            now,
            at,
            wall: self.clock.wall(),
            term: self.ledger.term(),
            safe_mode_until: self.safe_modes.until(worker, at),
            record_first: now < self.careful_until,
        }
    }
}

/// Runs a job until an external step has been attempted or nothing is left to do.
pub async fn work(
    context: &WorkContext,
    loaded: LoadedJob,
    destination: Arc<str>,
) -> Result<RunResult, sluice_ledger::Error> {
    let worker = loaded.job.worker.clone();
    if loaded.job.attempts_total == 0 && loaded.job.replays == 0 && loaded.job.state == JobState::Queued {
        context.metrics.queue_wait(&worker, context.clock.ledger_time().since(loaded.job.created_at));
    }
    let config = context.revisions.for_run(&loaded.job.revision, &context.ledger).await;
    let (mut run, mut command) = JobRun::start(loaded, destination, config, context.now(&worker));
    loop {
        observe(context, &mut run);
        match command {
            Command::Finish(result) => {
                report(context, &run, &result);
                return Ok(*result);
            }
            other => {
                let input = perform::perform(context, &run, other).await?;
                command = run.step(context.now(&worker), input);
            }
        }
    }
}

/// Counts and logs what happened in a run.
fn observe(context: &WorkContext, run: &mut JobRun) {
    let metrics = &context.metrics;
    for notice in run.take_notices() {
        match notice {
            Notice::PolicyDenied { policy, rule, kind } => metrics.policy(&policy, &rule, DenialKind::as_str(kind)),
            Notice::Mark { set } => metrics.mark(&run.job().worker, set),
            Notice::RetryBudgetExhausted => metrics.retry_budget_exhausted(&run.job().worker),
            Notice::Requeued => drop(metrics.replays.inc()),
            Notice::Stale => {
                tracing::warn!(job = %run.job().id, "stale run ignored: the job has changed since it was loaded")
            }
        }
    }
}

/// Counts and logs the end of a run that was written.
fn report(context: &WorkContext, run: &JobRun, result: &RunResult) {
    let RunResult::Ended { job, settled: true, .. } = result else { return };
    if !job.state.is_live() {
        context.metrics.job(&job.worker, job.state.as_str(), job.replays > 0);
    }
    let (event, destination) = (run.event(), run.destination());
    match (job.state, &job.failure) {
        (JobState::Dead | JobState::Unknown, Some(failure)) => {
            let labels = DeadLabels { worker: job.worker.to_string(), class: failure.class.as_str().to_owned() };
            context.metrics.dead_letters.get_or_create(&labels).inc();
            tracing::warn!(
                job = %job.id, event = %event.id, worker = %job.worker, source = %event.source, %destination,
                state = %job.state, class = failure.class.as_str(), code = %failure.code, attempts = job.attempts,
                trace = %event.trace, "{}", failure.message
            );
        }
        (state, failure) => tracing::debug!(
            job = %job.id, event = %event.id, worker = %job.worker, %destination, %state, attempts = job.attempts,
            trace = %event.trace, code = failure.as_ref().map_or("", |failure| &failure.code), "settled"
        ),
    }
}

/// Loads a job whose run was lost or refused. An attempt that was under way is settled as interrupted first, so that nothing
/// is sent again whose outcome is unknown. `None` if the ledger has no such job.
pub async fn reload(context: &WorkContext, job: JobId) -> Result<Option<JobRecord>, sluice_ledger::Error> {
    loop {
        let Some(loaded) = context.ledger.load_jobs(vec![job], usize::MAX).await?.pop() else {
            return Ok(None);
        };
        if loaded.job.state != JobState::Running {
            return Ok(Some(loaded.job));
        }
        match work(context, loaded, Arc::default()).await? {
            RunResult::Ended { job, .. } => return Ok(Some(job)),
            RunResult::Reload => {}
        }
    }
}
