//! The run of a job: a state machine that decides every next action and performs none.
//!
//! [`JobRun::start`] and [`JobRun::step`] answer with one [`Command`]; the caller performs it and passes the answer back as an
//! [`Input`], until [`Command::Finish`]. Time, randomness and everything that the ledger or a destination says are inputs, so
//! that production and the simulation run this very code.
//!
//! A run goes on from the step where the job stands: steps whose condition is false are passed over, internal steps are
//! performed, and the first external step is attempted once. Its outcome is settled and the run ends. A step of another
//! destination than the one whose slot was taken ends the run too: the job is handed back with its new route.

mod attempt;
mod compare;
mod decide;
mod effects;
mod forecast;
mod group;
mod guard;
mod identify;
mod internal;
mod item;
mod merge;
mod message;
mod outputs;
mod protocol;
mod recover;
mod route;
mod scope;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::contact::ContactWrite;
use crate::job::{EffectKey, EffectState, JobState};
use crate::outcome::{Failure, FailureClass};
use crate::outputs::Outputs;
use crate::random::Random;
use crate::record::{EffectRecord, EventBody, EventRecord, JobRecord};
use crate::settle::NextAction;
use crate::template::{Scope, TemplateProblem};
use crate::time::Time;
use crate::trace::RunTrace;
use crate::transition::run_seed;
use crate::unit::format_duration;
use crate::worker::{Step, Worker};
pub use attempt::timed_out;
use attempt::{Attempt, PreparedCall};
use effects::JobEffects;
pub use forecast::{Forecast, ForecastCall, ReplayPlan, forecast};
use group::Offer;
pub use group::{GroupCommand, GroupInput, GroupRun};
use guard::Guard;
pub use identify::{FoundIdentity, IdentitySearch, MadeLookup, QuarantinedEvent, SearchCommand, search_again_at};
pub use internal::{DryRunOutput, dry_run};
use internal::{InternalOutcome, InternalStep};
pub use item::items;
use item::{NextItem, StepItem};
pub use message::fill;
pub use protocol::*;
pub use route::{first_route, postpone, reroute};
pub use scope::scope_of;
use settle::Settling;

/// A call whose intent need not be durable before it is made is recorded together with its outcome if that comes this soon. A
/// slower one is recorded meanwhile, so that it counts should the process end.
pub const RECORD_AFTER: Duration = Duration::from_millis(20);

/// One run of one job.
#[derive(Debug)]
pub struct JobRun {
    config: RunConfig,
    job: JobRecord,
    event: Arc<EventRecord>,
    body: Arc<EventBody>,
    /// The destination whose slot was taken; empty for none.
    destination: Arc<str>,
    worker: Option<Arc<Worker>>,
    dead_letter_queue: Option<Arc<str>>,
    effects: JobEffects,
    /// The effect that was begun and not settled, if the job was interrupted.
    intent: Option<EffectRecord>,
    /// The applied effect that is compared with its record. The job was finished before, and does nothing else.
    compared: Option<EffectKey>,
    scope: Scope,
    /// Outputs that are part of the job's result.
    outputs: Outputs,
    /// Outputs of internal steps, the result of a job that did nothing else.
    internal_outputs: Outputs,
    /// Whether the step has items left beside the one that was attempted.
    more_items: bool,
    /// Start of the call, by the steady clock.
    call_started: Option<Time>,
    call_took: Option<Duration>,
    random: Random,
    /// Calls of other jobs may share its request: see [`GroupRun`].
    is_in_group: bool,
    /// The write of the contact's merged state that is attempted; it counts once it is applied.
    write: Option<ContactWrite>,
    waiting: Waiting,
    notices: Vec<Notice>,
    trace: RunTrace,
}

/// The command that a run waits for, with what it needs to continue.
#[derive(Debug)]
enum Waiting {
    Nothing,
    /// Messages of a finished `queue_pull`, the step at this place.
    RestoredMessages(usize),
    Announced(StepItem),
    FailureRecorded(StepItem, Value),
    Contact(StepItem),
    Guard(Box<Guard>),
    Internal(StepItem, Box<InternalStep>),
    Offered(Box<Offer>),
    Begun(Box<PreparedCall>),
    Record(Box<PreparedCall>),
    Called(Box<Attempt>),
    ReadBack(Box<Attempt>),
    Skipped(StepItem, Arc<Value>, String),
    Settled(Box<Settling>),
}

impl JobRun {
    /// Starts a run with a slot of `destination`. A job that is loaded as running was interrupted: it is settled by the class
    /// of its effect, and nothing else happens.
    pub fn start(
        loaded: LoadedJob,
        destination: Arc<str>,
        config: RunConfig,
        context: RunContext,
    ) -> (Box<JobRun>, Command) {
        let mut run = JobRun::new(loaded, destination, config);
        let command = run.begin_run(context);
        (run, command)
    }

    fn begin_run(&mut self, context: RunContext) -> Command {
        match self.job.state {
            JobState::Running => self.settle_interrupted(context),
            _ => match self.prepare(context) {
                Ok(()) => self.restore_outputs(0, context),
                Err(failure) if self.compared.is_some() => self.end_comparison(failure.message, context),
                Err(failure) => self.end_without_attempt(NextAction::Die { failure }, context),
            },
        }
    }

    fn new(loaded: LoadedJob, destination: Arc<str>, config: RunConfig) -> Box<JobRun> {
        let LoadedJob { mut job, event, body, effects } = loaded;
        let worker = config.worker(&job.worker);
        job.step = compare::place(worker.as_deref(), &effects).unwrap_or(job.step);
        let dead_letter_queue = worker.as_ref().and_then(|worker| config.dead_letter_queue(worker));
        let begun = |effect: &&EffectRecord| matches!(effect.state, EffectState::Intent | EffectState::Rechecking);
        let intent = effects.iter().find(begun).cloned();
        let effects = JobEffects::new(event.id, &job.worker, effects);
        Box::new(JobRun {
            trace: RunTrace::new(&event, &job),
            random: Random::seeded(run_seed(job.id, job.attempts_total, event.received_at)),
            intent,
            compared: effects.rechecking(),
            effects,
            config,
            job,
            event,
            body,
            destination,
            worker,
            dead_letter_queue,
            scope: Scope::new(),
            outputs: Outputs::default(),
            internal_outputs: Outputs::default(),
            more_items: false,
            call_started: None,
            call_took: None,
            is_in_group: false,
            write: None,
            waiting: Waiting::Nothing,
            notices: Vec::new(),
        })
    }

    /// What the job knows before its first step, or why it cannot run.
    fn prepare(&mut self, context: RunContext) -> Result<(), Failure> {
        let lost = |code: &str, message: &str| Failure::new(FailureClass::Mapping, code, message);
        let Some(pinned) = &self.config.pinned else {
            return Err(lost(
                "revision-lost",
                "the configuration that this job was accepted under cannot be read any more; replay it with --latest-config",
            ));
        };
        if self.worker.is_none() {
            return Err(lost("worker-lost", "the worker of this job is not in its configuration"));
        }
        if let Some(queue) = pinned.config.queues.get(&*self.job.queue) {
            let waited = context.at.since(self.job.created_at);
            // A job that an operator replayed never expires, nor does one whose effect is compared. What has to be read back is read first.
            let may_expire = self.job.replays == 0 && self.compared.is_none() && !self.job.verifying;
            if may_expire && waited > queue.retention {
                let (waited, retention) = (format_duration(waited), format_duration(queue.retention));
                let message = format!("waited {waited}; the queue `{}` keeps jobs for {retention}", queue.name);
                return Err(Failure::new(FailureClass::Expired, "expired", message));
            }
        }
        if self.body.is_removed() {
            return Err(lost(
                "body-removed",
                "the stored request is past its retention and was removed; it cannot run again",
            ));
        }
        self.scope = scope_of(pinned, &self.event, &self.body, &self.job.queue)?;
        self.scope.set("safe_mode", Value::Bool(context.safe_mode_until.is_some()));
        Ok(())
    }

    /// Continues with the answer to the last command. An answer that does not fit ends the run: the job is loaded again.
    pub fn step(&mut self, context: RunContext, input: Input) -> Command {
        match (std::mem::replace(&mut self.waiting, Waiting::Nothing), input) {
            (Waiting::RestoredMessages(place), Input::Messages(messages)) => {
                self.show_at(place, messages);
                self.restore_outputs(place + 1, context)
            }
            (Waiting::Announced(item), Input::Approval(approval)) => self.announced(item, approval.as_deref(), context),
            (Waiting::FailureRecorded(item, output), Input::Recorded(recorded)) => {
                if recorded.is_none() {
                    return self.reload();
                }
                self.keep_output(&item, output, context);
                self.advance(context)
            }
            (Waiting::Contact(item), Input::Contact(view)) => match self.contact_read(item, view.as_deref(), context) {
                Some(command) => command,
                None => self.advance(context),
            },
            (Waiting::Guard(guard), Input::ContactFacts(facts)) => self.guard_facts(*guard, facts, context),
            (Waiting::Internal(item, step), input) => self.internal_answered(item, *step, input, context),
            (Waiting::Offered(offer), Input::Offer(answer)) => self.offer_answered(*offer, answer, context),
            (Waiting::Begun(prepared), Input::Begun(begun)) => self.begun(*prepared, begun, context),
            (Waiting::Record(prepared), Input::Record(record)) => self.recalled(*prepared, record, context),
            (Waiting::Called(attempt), Input::Called { outcome, recorded }) => {
                self.called(*attempt, outcome, recorded, context)
            }
            (Waiting::ReadBack(attempt), Input::ReadBack(readback)) => self.was_read_back(*attempt, readback, context),
            (Waiting::Skipped(item, result, reason), Input::Skipped(true)) => {
                self.skipped(&item, result, reason, context)
            }
            (Waiting::Settled(settling), Input::Settled(result)) => self.settled(*settling, result),
            _ => self.reload(),
        }
    }

    /// The job as this run knows it.
    pub fn job(&self) -> &JobRecord {
        &self.job
    }

    /// The span of this run.
    pub fn trace(&self) -> RunTrace {
        self.trace
    }

    /// The event of the job.
    pub fn event(&self) -> &Arc<EventRecord> {
        &self.event
    }

    /// The destination whose slot was taken.
    pub fn destination(&self) -> &Arc<str> {
        &self.destination
    }

    /// The steps of the job, with the retry policy of the active revision.
    pub fn worker(&self) -> Option<&Arc<Worker>> {
        self.worker.as_ref()
    }

    /// What happened since the last call and is to be counted or logged.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// From the step where the job stands to the next command. Steps that are passed over cost nothing.
    fn advance(&mut self, context: RunContext) -> Command {
        if let Some(key) = self.compared {
            return self.compare(key, context);
        }
        let Some(worker) = self.worker.clone() else { return self.reload() };
        loop {
            let Some(step) = worker.step_at(self.job.step) else { return self.reach_end(&worker, context) };
            let item = match self.next_item(&worker, step, context.at) {
                Ok(NextItem::Do(item)) => item,
                Ok(NextItem::Pass(output)) => {
                    self.pass(step, output);
                    continue;
                }
                Ok(NextItem::NotBefore(due)) => return self.wait_until(due, None, context),
                Err(failure) => return self.end_without_attempt(NextAction::Die { failure }, context),
            };
            if !step.action.is_internal() && *step.destination != *self.destination {
                return self.hand_back(StepRoute { destination: step.destination.clone(), order: step.order });
            }
            if step.announces.is_some() {
                match self.announcement(&worker, step, context) {
                    Some(request) => {
                        self.waiting = Waiting::Announced(item);
                        return Command::RequestApproval(Box::new(request));
                    }
                    None => {
                        self.pass(step, None);
                        continue;
                    }
                }
            }
            if let Some(command) = self.perform(item, context) {
                return command;
            }
        }
    }

    /// Renders a step and begins it. `None` if the run continues with the next item or step.
    fn perform(&mut self, item: StepItem, context: RunContext) -> Option<Command> {
        match self.read_contact(&item) {
            Some(command) => {
                self.waiting = Waiting::Contact(item);
                Some(command)
            }
            None => self.perform_rendered(item, context),
        }
    }

    fn perform_rendered(&mut self, item: StepItem, context: RunContext) -> Option<Command> {
        let step = item.step();
        match self.render(&item.worker, step) {
            Err(problem) if step.action.is_lookup() => {
                let outcome = self.lookup_not_rendered(&item, &problem, context);
                self.internal_outcome(item, outcome, context)
            }
            Err(problem) => {
                let failure = Failure::new(FailureClass::Mapping, "with", format!("step `{}`: {problem}", step.id));
                Some(self.failed_without_attempt(item, failure, context))
            }
            Ok(with) if step.action.is_internal() => {
                let outcome = self.begin_internal(&item, with, context);
                self.internal_outcome(item, outcome, context)
            }
            Ok(with) => Some(self.attempt(item, with, context)),
        }
    }

    fn render(&self, worker: &Worker, step: &Step) -> Result<Value, TemplateProblem> {
        let Some(pinned) = &self.config.pinned else { return Ok(Value::Null) };
        let with = step.render_with(&self.scope, &*pinned.secrets)?;
        fill(&pinned.config.messages, worker, step.action, &self.scope, with)
    }

    fn internal_answered(
        &mut self,
        item: StepItem,
        internal: InternalStep,
        input: Input,
        context: RunContext,
    ) -> Command {
        let outcome = self.continue_internal(&item, internal, input, context);
        match self.internal_outcome(item, outcome, context) {
            Some(command) => command,
            None => self.advance(context),
        }
    }

    fn internal_outcome(&mut self, item: StepItem, outcome: InternalOutcome, context: RunContext) -> Option<Command> {
        Some(match outcome {
            InternalOutcome::Ask(command, internal) => {
                self.waiting = Waiting::Internal(item, Box::new(internal));
                *command
            }
            InternalOutcome::Done(output) => {
                self.keep_output(&item, output, context);
                return None;
            }
            InternalOutcome::End(reason) => self.end_noop(reason, context),
            InternalOutcome::Deferred { due, failure } => self.deferred(due, failure, context),
            InternalOutcome::Die(failure) => self.failed_without_attempt(item, failure, context),
            InternalOutcome::Stale => self.reload(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod group_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
