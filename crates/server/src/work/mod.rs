//! Work: runs the jobs of one slot.
//!
//! In: loaded jobs and the destination whose slot was taken.
//! Out: for each job a settlement in the ledger, and the result for the scheduler.
//! Touches: revisions (read), connectors, lookups, ledger: the writes of a run and the reads that it asks for.
//! Never: decides anything. Every decision is made by [`sluice_domain::run::GroupRun`].
//! If the process dies here: the intent is in the ledger, or the effect may be repeated without harm. The job is loaded as
//! running by the next owner, and settled as interrupted by the class of its effect.

mod call;
mod dead_letters;
mod perform;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::mask;
use sluice_domain::run::{
    Command, DenialKind, GroupCommand, GroupInput, GroupRun, JobRun, LoadedJob, Notice, RunContext, RunResult,
};
use sluice_domain::time::Time;
use sluice_domain::worker::Worker;
use sluice_ledger::{ChangedJob, EventRecord, Ledger};

use crate::clock::Clock;
use crate::enrich::Lookups;
use crate::observe::Metrics;
use crate::observe::metrics::DeadLabels;
use crate::pauses::AppliedPauses;
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
    pub paused: AppliedPauses,
    pub on_requeued: OnRequeued,
    pub lookups: Lookups,
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
            at_boot: self.clock.at_boot(),
        }
    }
}

/// How the run of one job ended; the error says why its end was not written.
pub type Ended = Result<Box<RunResult>, Arc<sluice_ledger::Error>>;

/// What a command of a member needs of its run.
#[derive(Clone, Debug)]
struct Member {
    index: usize,
    revision: Arc<str>,
    worker: Option<Arc<Worker>>,
    event: Arc<EventRecord>,
}

/// Runs jobs with one slot: each until an external step has been attempted or nothing is left to do. `ended` is called once for
/// each job, as soon as its end is durable.
pub async fn work(
    context: &WorkContext,
    jobs: Vec<LoadedJob>,
    destination: Arc<str>,
    mut ended: impl FnMut(JobId, Ended),
) {
    let Some(worker) = jobs.first().map(|loaded| loaded.job.worker.clone()) else { return };
    let mut configured = Vec::with_capacity(jobs.len());
    for loaded in jobs {
        observe_wait(context, &loaded);
        let config = context.revisions.for_run(&loaded.job.revision, &context.ledger).await;
        configured.push((loaded, config));
    }
    let (mut group, commands) = GroupRun::start(configured, &destination, context.now(&worker));
    let mut performing = FuturesUnordered::new();
    let mut next = VecDeque::from(commands);
    loop {
        observe(context, &mut group);
        while let Some(command) = next.pop_front() {
            match command {
                GroupCommand::Member(index, Command::Finish(result)) => {
                    report(context, group.member(index), &result);
                    ended(group.member(index).job().id, Ok(result));
                }
                command => performing.push(perform::perform(context, members_of(&group, &command), command)),
            }
        }
        let Some(performed) = performing.next().await else { return };
        let input = performed.unwrap_or_else(|(members, error)| {
            let error = Arc::new(error);
            for member in &members {
                ended(group.member(*member).job().id, Err(error.clone()));
            }
            GroupInput::Lost(members)
        });
        next.extend(group.step(context.now(&worker), input));
    }
}

/// How long a new job has waited.
fn observe_wait(context: &WorkContext, loaded: &LoadedJob) {
    let job = &loaded.job;
    if job.attempts_total == 0 && job.replays == 0 && job.state == JobState::Queued {
        context.metrics.queue_wait(&job.worker, context.clock.ledger_time().since(job.created_at));
    }
}

fn members_of(group: &GroupRun, command: &GroupCommand) -> Vec<Member> {
    let member = |index: usize| {
        let run = group.member(index);
        Member {
            index,
            revision: run.job().revision.clone(),
            worker: run.worker().cloned(),
            event: run.event().clone(),
        }
    };
    match command {
        GroupCommand::Member(index, _) => vec![member(*index)],
        GroupCommand::Call(members, _) => members.iter().map(|index| member(*index)).collect(),
    }
}

/// Counts and logs what happened in a run.
fn observe(context: &WorkContext, group: &mut GroupRun) {
    for index in 0..group.len() {
        observe_run(context, group.member_mut(index));
    }
}

fn observe_run(context: &WorkContext, run: &mut JobRun) {
    let metrics = &context.metrics;
    for notice in run.take_notices() {
        match notice {
            Notice::PolicyDenied { policy, rule, kind } => metrics.policy(&policy, &rule, DenialKind::as_str(kind)),
            Notice::Mark { set } => metrics.mark(&run.job().worker, set),
            Notice::Lookup { step, action, result, failure } => {
                metrics.lookup(action, result);
                if let Some(failure) = failure {
                    let (worker, failure) = (&run.job().worker, mask::text(&failure));
                    tracing::warn!(job = %run.job().id, %worker, %step, code = result, "lookup failed, the job continues: {failure}");
                }
            }
            Notice::RetryBudgetExhausted => metrics.retry_budget_exhausted(&run.job().worker),
            Notice::Requeued => drop(metrics.replays.inc()),
            Notice::NotCompared { reason } => {
                tracing::warn!(job = %run.job().id, %reason, "a record is not compared with its last confirmed write")
            }
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
