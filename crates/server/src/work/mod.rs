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
mod telemetry;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluice_domain::call_budget::CallMeter;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::run::{Command, GroupCommand, GroupInput, GroupRun, LoadedJob, RunContext, RunResult};
use sluice_domain::time::Time;
use sluice_domain::trace::RunTrace;
use sluice_domain::worker::Worker;
use sluice_ledger::{ChangedJob, EventRecord, JobRecord, Ledger};

use crate::clock::Clock;
use crate::enrich::Lookups;
use crate::observe::Metrics;
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
    trace: RunTrace,
    meter: Option<CallMeter>,
    /// When its job could have run first, by the steady clock.
    due_since: Time,
}

/// What jobs run with: a slot of a destination.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Empty for internal steps.
    pub destination: Arc<str>,
    /// Counts the calls.
    pub meter: Option<CallMeter>,
}

/// Runs jobs with one slot: each until an external step has been attempted or nothing is left to do. `ended` is called once for
/// each job, as soon as its end is durable.
pub async fn work(context: &WorkContext, jobs: Vec<LoadedJob>, slot: Slot, mut ended: impl FnMut(JobId, Ended)) {
    let Some(worker) = jobs.first().map(|loaded| loaded.job.worker.clone()) else { return };
    let started = Instant::now();
    let mut configured = Vec::with_capacity(jobs.len());
    let Slot { destination, meter } = slot;
    let slot = SlotFacts { meter, due_since: jobs.iter().map(|loaded| due_since(context, &loaded.job)).collect() };
    for loaded in jobs {
        telemetry::started(context, &loaded);
        let config = context.revisions.for_run(&loaded.job.revision, &context.ledger).await;
        configured.push((loaded, config));
    }
    let (mut group, commands) = GroupRun::start(configured, &destination, context.now(&worker));
    let mut performing = FuturesUnordered::new();
    let mut next = VecDeque::from(commands);
    loop {
        telemetry::notices(context, &mut group);
        while let Some(command) = next.pop_front() {
            match command {
                GroupCommand::Member(index, Command::Finish(result)) => {
                    telemetry::ended(context, group.member(index), &result, started);
                    ended(group.member(index).job().id, Ok(result));
                }
                command => performing.push(perform::perform(context, members_of(&group, &command, &slot), command)),
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

/// What the jobs of a slot share, and since when each was due.
struct SlotFacts {
    meter: Option<CallMeter>,
    due_since: Vec<Time>,
}

/// When the job could have run first since its last attempt, by the steady clock.
fn due_since(context: &WorkContext, job: &JobRecord) -> Time {
    match job.state {
        JobState::Retrying | JobState::Waiting if job.due_at != JobRecord::DUE_AT_ONCE => job.due_at,
        _ => context.clock.now() - context.clock.ledger_time().since(job.updated_at),
    }
}

fn members_of(group: &GroupRun, command: &GroupCommand, slot: &SlotFacts) -> Vec<Member> {
    let member = |index: usize| {
        let run = group.member(index);
        Member {
            index,
            revision: run.job().revision.clone(),
            worker: run.worker().cloned(),
            event: run.event().clone(),
            trace: run.trace(),
            meter: slot.meter.clone(),
            due_since: slot.due_since.get(index).copied().unwrap_or_default(),
        }
    };
    match command {
        GroupCommand::Member(index, _) => vec![member(*index)],
        GroupCommand::Call(members, _) => members.iter().map(|index| member(*index)).collect(),
    }
}
