//! What stands between a step and its effect: policies, and safe mode.

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::job::{EffectState, JobState};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::policy::{CapReservation, Contact, ContactFacts, Policy, PolicyDecision, PolicyDenial};
use sluice_domain::settle::NextAction;
use sluice_domain::template::{Scope, TemplateProblem};
use sluice_domain::time::Time;
use sluice_domain::worker::{Step, Worker};
use sluice_ledger::Skip;

use super::job_effects::EffectEntry;
use super::next_item::StepItem;
use super::run::JobRun;
use super::{LoadedRevision, RunResult};
use crate::safe_mode::SAFE_MODE_HOLDS;

/// Whether the effect of a step may happen.
#[derive(Debug)]
pub(super) enum Guarded {
    /// Yes, if there is a place under each of these caps.
    Go(Vec<CapReservation>),
    /// No.
    Refused(PolicyDenial),
    /// Not now, by the wall clock.
    Later(Time, PolicyDenial),
    /// Nobody can tell: a rule cannot be evaluated.
    Broken(Failure),
}

/// A policy and what is known of whom it is asked about.
#[derive(Debug)]
pub(super) struct Asked {
    pub policy: Arc<Policy>,
    pub contact: Option<Contact>,
    pub known: ContactFacts,
}

impl JobRun<'_> {
    /// Asks every policy of the step, and those of safe mode.
    pub async fn guarded(
        &self,
        live: &LoadedRevision,
        worker: &Worker,
        step: &Step,
        scope: &Scope,
    ) -> Result<Guarded, sluice_ledger::Error> {
        let now = self.context.clock.wall();
        let safe = self.context.safe_modes.until(&worker.name, now);
        if let Some(until) = safe.filter(|_| worker.safe_mode.hold && step.announces.is_none()) {
            let detail = format!("safe mode holds this worker until {until}");
            return Ok(Guarded::Later(
                until,
                PolicyDenial { policy: SAFE_MODE_HOLDS.into(), rule: "hold".into(), detail },
            ));
        }
        let tighter = worker.safe_mode.policy.iter().filter(|_| safe.is_some() && step.announces.is_none());
        let (mut caps, mut later): (Vec<CapReservation>, Option<(Time, PolicyDenial)>) = (vec![], None);
        for name in step.policies.iter().chain(tighter) {
            let Some(policy) = self.context.revisions.policy(live, name) else {
                let message = format!("step `{}`: the policy `{name}` is not in the configuration any more", step.id);
                return Ok(Guarded::Broken(Failure::new(FailureClass::Mapping, "policy-lost", message)));
            };
            let asked = match self.ask_about(policy, scope).await? {
                Ok(asked) => asked,
                Err(problem) => return Ok(Guarded::Broken(broken(step, name, &problem))),
            };
            match asked.policy.evaluate(scope, asked.contact.as_ref(), &asked.known, now) {
                Ok(PolicyDecision::Allowed(more)) => caps.extend(more),
                Ok(PolicyDecision::Refused(refusal)) => return Ok(Guarded::Refused(refusal)),
                Ok(PolicyDecision::Later { until, refusal }) => {
                    if later.as_ref().is_none_or(|(latest, _)| until > *latest) {
                        later = Some((until, refusal));
                    }
                }
                Err(problem) => return Ok(Guarded::Broken(broken(step, name, &problem))),
            }
        }
        Ok(match later {
            Some((until, refusal)) => Guarded::Later(until, refusal),
            None => Guarded::Go(caps),
        })
    }

    /// What has to be known before a policy can be asked.
    pub async fn ask_about(
        &self,
        policy: Arc<Policy>,
        scope: &Scope,
    ) -> Result<Result<Asked, TemplateProblem>, sluice_ledger::Error> {
        let contact = match policy.contact(scope) {
            Ok(contact) => contact,
            Err(problem) => return Ok(Err(problem)),
        };
        let purposes: Vec<Arc<str>> = policy.purposes().cloned().collect();
        let known = match &contact {
            Some(contact) if policy.reads_suppression() || !purposes.is_empty() => {
                self.context.ledger.contact_facts(contact.digest(), policy.channel.clone(), purposes).await?
            }
            _ => ContactFacts::default(),
        };
        Ok(Ok(Asked { policy, contact, known }))
    }

    /// The effect does not happen. That is kept with the reason, and the job goes on behind it.
    pub async fn refuse(
        mut self: Box<Self>,
        step: &Step,
        turn: &StepItem,
        refusal: PolicyDenial,
    ) -> Result<Option<RunResult>, sluice_ledger::Error> {
        self.context.metrics.policy(&refusal.policy, &refusal.rule, "refused");
        let at = self.context.clock.wall();
        let result = Arc::new(refusal.to_value());
        let skip = Skip {
            job: self.job.id,
            n: self.job.attempts_total,
            step: self.job.step,
            step_id: turn.label.clone(),
            key: turn.key,
            class: step.class,
            action: step.action.name(),
            destination: step.destination.clone(),
            result: Value::clone(&result),
            at,
        };
        if !self.context.ledger.skip(skip).await? {
            return Ok(None);
        }
        self.books
            .put(turn.key, EffectEntry { state: EffectState::Skipped, result: Some(result.clone()), last_at: at });
        self.more_items = self.has_more(step, turn);
        let reason = format!("{}: {}", refusal.policy, refusal.rule);
        let next = self.decided(NextAction::Skip { reason }, self.job.attempts, at);
        self.write_noop(next, result, at).await
    }

    /// The effect happens later. Waiting costs no attempt.
    pub async fn put_off(
        self: Box<Self>,
        until: Time,
        refusal: &PolicyDenial,
    ) -> Result<Option<RunResult>, sluice_ledger::Error> {
        self.context.metrics.policy(&refusal.policy, &refusal.rule, "wait");
        let clock = &self.context.clock;
        let due = clock.now() + until.since(clock.wall());
        let message = format!("{}, {}: {}", refusal.policy, refusal.rule, refusal.detail);
        let code = if &*refusal.policy == SAFE_MODE_HOLDS { SAFE_MODE_HOLDS } else { "policy-wait" };
        self.wait(due, Some(Failure::new(FailureClass::Retryable, code, message))).await
    }

    /// A job in which nothing was done says why.
    pub async fn write_noop(
        self: Box<Self>,
        mut next: sluice_domain::transition::JobUpdate,
        result: Arc<Value>,
        at: Time,
    ) -> Result<Option<RunResult>, sluice_ledger::Error> {
        if next.state == JobState::Noop && next.result.is_none() {
            next.result = Some(result);
        }
        self.write(next, None, None, None, at).await
    }
}

fn broken(step: &Step, policy: &str, problem: &TemplateProblem) -> Failure {
    Failure::new(FailureClass::Mapping, "policy", format!("step `{}`: policy `{policy}`: {problem}", step.id))
}
