//! Steps that stay inside: no destination, no slot of one. One file for each.
//!
//! They run in the same loop as every step, just before the next one that reaches out. What follows from the event alone
//! is computed again in every run; everything else is kept in the ledger under the name of its effect, so that a second run
//! finds what the first one found.

pub(super) mod approval;
mod consent_set;
mod dedup_key;
mod policy_check;
mod queue;
mod queue_pull;
mod setnx;

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::action::Action;
use sluice_domain::job::EffectState;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::template::Scope;
use sluice_domain::time::Time;
use sluice_domain::worker::{Step, Worker};
use sluice_ledger::StepResult;

use super::LoadedRevision;
use super::next_item::StepItem;
use super::run::JobRun;

/// What a step inside came to.
#[derive(Debug)]
pub(super) enum InternalOutcome {
    /// This is its output.
    Done(Value),
    /// The job has nothing more to do, and this is why: its result, as a no-op.
    End(Value),
    /// Not yet; the step is looked at again then, by the steady clock.
    #[allow(dead_code, reason = "for steps that wait for somebody")]
    Wait { due: Time, failure: Option<Failure> },
    /// The job waits, and that is written already.
    Deferred { due: Time, failure: Failure },
    /// It cannot be done.
    Die(Failure),
    /// The job has moved on without this run.
    Stale,
}

/// What such a step can look at.
#[derive(Debug)]
pub(super) struct InternalStep<'a> {
    pub live: &'a LoadedRevision,
    pub worker: &'a Worker,
    pub step: &'a Step,
    pub turn: &'a StepItem,
    /// Its parameters, filled in.
    pub with: &'a Value,
    pub scope: &'a Scope,
}

/// Does what the step says.
pub(super) async fn perform(
    run: &JobRun<'_>,
    inside: InternalStep<'_>,
) -> Result<InternalOutcome, sluice_ledger::Error> {
    match inside.step.action {
        Action::ComputeDedupKey => Ok(dedup_key::perform(inside.step, inside.with, inside.scope)),
        Action::StoreSetnx => setnx::perform(run, &inside).await,
        Action::PolicyCheck => Box::pin(policy_check::perform(run, &inside)).await,
        Action::ConsentSet => Box::pin(consent_set::perform(run, &inside)).await,
        Action::ApprovalRequest => Box::pin(approval::perform(run, &inside)).await,
        Action::QueuePull => queue_pull::perform(run, &inside).await,
        Action::Queue => queue::perform(run, &inside).await,
        outward => Ok(InternalOutcome::Die(Failure::new(
            FailureClass::Mapping,
            "wrong-action",
            format!("{} does not stay inside", outward.name()),
        ))),
    }
}

/// What a finished step inside shows to those that follow. What follows from the event alone is computed again.
pub(super) async fn recall(
    run: &JobRun<'_>,
    live: &LoadedRevision,
    step: &Step,
    scope: &Scope,
    kept: Option<Arc<Value>>,
) -> Result<Option<Arc<Value>>, sluice_ledger::Error> {
    Ok(match step.action {
        Action::ComputeDedupKey => {
            let holds = step.condition.as_ref().is_none_or(|condition| condition.holds(scope).unwrap_or(false));
            let with = step.with.render(scope, &live.secrets).ok().flatten().filter(|_| holds);
            with.and_then(|with| match dedup_key::perform(step, &with, scope) {
                InternalOutcome::Done(output) => Some(Arc::new(output)),
                _ => None,
            })
        }
        Action::QueuePull => match kept {
            Some(kept) => Some(Arc::new(queue_pull::messages(&run.context.ledger, &kept).await?)),
            None => None,
        },
        _ => kept,
    })
}

/// Whether what it leaves is a result of its job. A job that only looked and decided has done nothing.
pub(super) fn is_result(action: Action) -> bool {
    !action.is_internal() || action == Action::Queue
}

/// What a step inside would come to, as far as that can be said without the ledger.
#[derive(Debug)]
pub struct DryRunOutput {
    /// Its output.
    pub output: Value,
    /// What was taken for granted.
    pub assumed: Option<&'static str>,
}

/// Says what a step inside would come to; nothing is written.
pub fn dry_run(
    live: &LoadedRevision,
    step: &Step,
    with: &Value,
    scope: &Scope,
    now: Time,
) -> Result<DryRunOutput, String> {
    match step.action {
        Action::ComputeDedupKey => match dedup_key::perform(step, with, scope) {
            InternalOutcome::Done(output) => Ok(DryRunOutput { output, assumed: None }),
            InternalOutcome::Die(failure) => Err(failure.message),
            _ => Err("this step cannot be rehearsed".to_owned()),
        },
        Action::StoreSetnx => setnx::rehearse(step, with),
        Action::PolicyCheck => {
            let policy = with["policy"].as_str().and_then(|name| live.config.policies.get(name));
            policy_check::rehearse(step, policy, scope, now)
        }
        Action::ConsentSet => consent_set::rehearse(step, with, scope),
        Action::ApprovalRequest => approval::rehearse(step, with),
        _ => Ok(DryRunOutput { output: Value::Null, assumed: Some("what it finds is not known before it runs") }),
    }
}

impl JobRun<'_> {
    /// What a step inside is kept as.
    pub fn note(&self, step: &Step, turn: &StepItem, state: EffectState, result: Value) -> StepResult {
        StepResult {
            job: self.job.id,
            n: self.job.attempts_total,
            step: self.job.step,
            step_id: Arc::clone(&turn.label),
            key: turn.key,
            action: step.action.name(),
            state,
            result,
            at: self.context.clock.wall(),
        }
    }
}

/// A parameter that is not what it should be.
fn bad_parameter(step: &Step, message: &str) -> InternalOutcome {
    InternalOutcome::Die(Failure::new(FailureClass::Mapping, "with", format!("step `{}`: {message}", step.id)))
}
