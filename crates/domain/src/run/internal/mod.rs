//! Internal steps: they call no destination and take no slot of one. One file for each.
//!
//! What follows from the event alone is computed in every run. Everything else is recorded under the effect key of the step, so
//! that a second run finds what the first one found.

mod approval;
mod consent_set;
mod dedup_key;
mod enrich;
mod policy_check;
mod queue;
mod queue_pull;
mod setnx;

use std::sync::Arc;

use serde_json::Value;

use super::item::StepItem;
use super::{Command, DeadLetters, Input, JobRun, Notice, RunContext};
use crate::action::Action;
use crate::config::Config;
use crate::job::{EffectState, JobId};
use crate::ops::StepResult;
use crate::outcome::{Failure, FailureClass};
use crate::policy::{CapReservation, Contact, Policy};
use crate::template::Scope;
use crate::time::Time;
use crate::worker::Step;
pub(super) use dedup_key::dedup_key;
pub(super) use enrich::lookup;
pub(super) use queue_pull::pulled_jobs;

/// What an internal step came to.
#[derive(Debug)]
pub(super) enum InternalOutcome {
    /// A command has to be performed first.
    Ask(Box<Command>, InternalStep),
    Done(Value),
    /// The job has nothing more to do; the reason is its result, as a no-op.
    End(Value),
    /// The job waits, and that is durable already. `due` is by the steady clock.
    Deferred {
        due: Time,
        failure: Failure,
    },
    Die(Failure),
    Stale,
}

/// The command that an internal step waits for.
#[derive(Debug)]
pub(super) enum InternalStep {
    /// The recorded result is the output.
    Record,
    /// The recorded result ends the job.
    RecordEnd,
    /// The recorded result names the dead letters to read.
    RecordPull,
    RecordPolicy,
    Messages,
    Mark,
    /// The output of `consent.set`.
    Consent(Value),
    PolicyFacts(Arc<Policy>, Option<Contact>),
    /// Caps that are still to be counted, the last one first.
    PolicyCaps(Vec<CapReservation>, CapReservation),
    Approval,
    Pull,
    /// A pulled dead letter, and the parameters for the case that it is gone.
    QueuedJob(JobId, Value),
    Requeue(JobId),
    Accept,
    Lookup,
}

impl JobRun {
    /// Begins an internal step.
    pub(super) fn begin_internal(&mut self, item: &StepItem, with: Value, context: RunContext) -> InternalOutcome {
        let step = item.step();
        match step.action {
            Action::ComputeDedupKey => match dedup_key(step, &with, &self.scope) {
                Ok(output) => InternalOutcome::Done(output),
                Err(failure) => InternalOutcome::Die(failure),
            },
            Action::StoreSetnx => self.set_mark(item, &with, context),
            Action::PolicyCheck => self.check_policy(item, &with, context),
            Action::ConsentSet => self.set_consent(item, &with),
            Action::ApprovalRequest => self.request_approval(item, &with, context),
            Action::QueuePull => queue_pull::pull(&with),
            Action::Queue => self.queue(item, with, context),
            Action::EnrichCompany | Action::EnrichGeoip | Action::EnrichHttp => self.look_up(item, &with, context),
            external => InternalOutcome::Die(Failure::new(
                FailureClass::Mapping,
                "wrong-action",
                format!("{} is not an internal step", external.name()),
            )),
        }
    }

    /// Continues an internal step with the answer to its command.
    pub(super) fn continue_internal(
        &mut self,
        item: &StepItem,
        internal: InternalStep,
        input: Input,
        context: RunContext,
    ) -> InternalOutcome {
        match (internal, input) {
            (InternalStep::Record, Input::Recorded(Some(output))) => InternalOutcome::Done(output),
            (InternalStep::RecordEnd, Input::Recorded(Some(output))) => InternalOutcome::End(output),
            (InternalStep::RecordPull, Input::Recorded(Some(recorded))) => {
                InternalOutcome::ask(Command::ReadMessages(pulled_jobs(&recorded)), InternalStep::Messages)
            }
            (InternalStep::RecordPolicy, Input::Recorded(Some(output))) => self.policy_recorded(output),
            (InternalStep::Messages, Input::Messages(messages)) => InternalOutcome::Done(messages),
            (InternalStep::Mark, Input::Marked(Some(marked))) => {
                self.notices.push(Notice::Mark { set: marked.set });
                InternalOutcome::Done(marked.output())
            }
            (InternalStep::Consent(output), Input::Done) => self.record(item, output, context),
            (InternalStep::PolicyFacts(policy, contact), Input::ContactFacts(facts)) => {
                let decision = policy.evaluate(&self.scope, contact.as_ref(), &facts, context.wall);
                self.policy_decided(item, &policy, decision, context)
            }
            (InternalStep::PolicyCaps(_, cap), Input::CapUsed(used)) if used >= u64::from(cap.cap.max) => {
                self.cap_exhausted(item, &cap, context)
            }
            (InternalStep::PolicyCaps(rest, _), Input::CapUsed(_)) => self.count_caps(item, rest, context),
            (InternalStep::Approval, Input::Approval(Some(approval))) => self.approval_read(item, &approval, context),
            (InternalStep::Pull, Input::DeadLetters(DeadLetters::Found(jobs))) => {
                let result = self.step_result(item, EffectState::Applied, queue_pull::recorded(&jobs), context);
                InternalOutcome::ask(Command::RecordStep(Box::new(result)), InternalStep::RecordPull)
            }
            (InternalStep::Pull, Input::DeadLetters(DeadLetters::Paused(why))) => InternalOutcome::End(why),
            (InternalStep::QueuedJob(_, with), Input::JobIn(None)) => self.enqueue(item, &with, context),
            (InternalStep::QueuedJob(job, _), Input::JobIn(Some(state))) => self.queued_job(item, job, state, context),
            (InternalStep::Requeue(job), Input::Requeued(requeued)) => self.requeued(item, job, requeued, context),
            (InternalStep::Accept, Input::Accepted { id, new }) => self.event_accepted(item, id, new, context),
            (InternalStep::Lookup, Input::LookedUp(result)) => self.looked_up(item, *result, context),
            _ => InternalOutcome::Stale,
        }
    }

    /// Records the output of an internal step.
    fn record(&self, item: &StepItem, output: Value, context: RunContext) -> InternalOutcome {
        let result = self.step_result(item, EffectState::Applied, output, context);
        InternalOutcome::ask(Command::RecordStep(Box::new(result)), InternalStep::Record)
    }

    pub(super) fn step_result(
        &self,
        item: &StepItem,
        state: EffectState,
        result: Value,
        context: RunContext,
    ) -> StepResult {
        StepResult {
            job: self.job.id,
            n: self.job.attempts_total,
            fence: self.fence(context),
            step: item.place,
            step_id: Arc::clone(&item.label),
            key: item.key,
            action: item.step().action.name(),
            state,
            result,
            warning: None,
            at: context.at,
        }
    }
}

impl InternalOutcome {
    fn ask(command: Command, internal: InternalStep) -> InternalOutcome {
        InternalOutcome::Ask(Box::new(command), internal)
    }
}

/// What an internal step would come to, as far as that can be said without the ledger.
#[derive(Debug)]
pub struct DryRunOutput {
    pub output: Value,
    /// What was assumed.
    pub assumed: Option<&'static str>,
}

/// Says what an internal step would come to; nothing is written.
pub fn dry_run(config: &Config, step: &Step, with: &Value, scope: &Scope, now: Time) -> Result<DryRunOutput, String> {
    match step.action {
        Action::ComputeDedupKey => match dedup_key(step, with, scope) {
            Ok(output) => Ok(DryRunOutput { output, assumed: None }),
            Err(failure) => Err(failure.message),
        },
        Action::StoreSetnx => setnx::dry_run(step, with),
        Action::PolicyCheck => {
            let policy = with["policy"].as_str().and_then(|name| config.policies.get(name));
            policy_check::dry_run(step, policy, scope, now)
        }
        Action::ConsentSet => consent_set::dry_run(step, with, scope),
        Action::ApprovalRequest => approval::dry_run(step, with),
        Action::EnrichCompany | Action::EnrichGeoip | Action::EnrichHttp => Ok(enrich::dry_run(step, with, scope)),
        _ => Ok(DryRunOutput { output: Value::Null, assumed: Some("what it finds is not known before it runs") }),
    }
}

/// A parameter that is not what it should be.
fn bad_parameter(step: &Step, message: &str) -> InternalOutcome {
    InternalOutcome::Die(Failure::new(FailureClass::Mapping, "with", format!("step `{}`: {message}", step.id)))
}
