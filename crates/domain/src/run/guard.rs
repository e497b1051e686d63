//! Policies and safe mode between a step and its effect.

use std::sync::Arc;

use serde_json::Value;

use super::item::StepItem;
use super::{Command, DenialKind, JobRun, Notice, RunContext, Waiting};
use crate::outcome::{Failure, FailureClass};
use crate::policy::{CapReservation, Contact, ContactFacts, Policy, PolicyDecision, PolicyDenial};
use crate::safe_mode::SAFE_MODE_HOLDS;
use crate::template::TemplateProblem;
use crate::time::Time;
use crate::wait::POLICY_CODE;
use crate::worker::Step;

/// A step whose policies are being evaluated.
#[derive(Debug)]
pub(super) struct Guard {
    pub item: StepItem,
    pub with: Value,
    /// Policies that are still to be evaluated, the last one first.
    names: Vec<Arc<str>>,
    caps: Vec<CapReservation>,
    later: Option<(Time, PolicyDenial)>,
    /// The policy whose facts are being read.
    asked: Option<(Arc<Policy>, Option<Contact>)>,
}

/// Whether an effect may happen.
#[derive(Debug)]
pub(super) enum Guarded {
    /// Yes, if there is room under each of these caps.
    Go(Vec<CapReservation>),
    Refused(PolicyDenial),
    /// Not before this time of the wall clock.
    Later(Time, PolicyDenial),
    /// A policy cannot be evaluated.
    Broken(Failure),
}

/// A policy whose facts are known, or have to be read first.
pub(super) enum Facts {
    Known(ContactFacts),
    Read(Box<Command>),
}

impl JobRun {
    /// Evaluates every policy of the step, and those of safe mode, then makes the attempt.
    pub(super) fn guard(&mut self, item: StepItem, with: Value, context: RunContext) -> Command {
        let (step, worker) = (item.step(), &item.worker);
        let safe_mode = context.safe_mode_until.filter(|_| step.announces.is_none());
        if let Some(until) = safe_mode.filter(|_| worker.safe_mode.hold) {
            let detail = format!("safe mode holds this worker until {until}");
            let denial = PolicyDenial { policy: SAFE_MODE_HOLDS.into(), rule: "hold".into(), detail };
            return self.guarded(item, with, Guarded::Later(until, denial), context);
        }
        let tighter = worker.safe_mode.policy.iter().filter(|_| safe_mode.is_some());
        let mut names: Vec<Arc<str>> = step.policies.iter().chain(tighter).cloned().collect();
        names.reverse();
        self.evaluate_policies(Guard { item, with, names, caps: vec![], later: None, asked: None }, None, context)
    }

    pub(super) fn guard_facts(&mut self, guard: Guard, facts: ContactFacts, context: RunContext) -> Command {
        self.evaluate_policies(guard, Some(facts), context)
    }

    fn evaluate_policies(&mut self, mut guard: Guard, mut read: Option<ContactFacts>, context: RunContext) -> Command {
        loop {
            let (policy, contact, facts) = match (guard.asked.take(), read.take()) {
                (Some((policy, contact)), Some(facts)) => (policy, contact, facts),
                _ => {
                    let Some(name) = guard.names.pop() else { break };
                    let (policy, contact) = match self.policy_and_contact(guard.item.step(), &name) {
                        Ok(found) => found,
                        Err(failure) => {
                            return self.guarded(guard.item, guard.with, Guarded::Broken(failure), context);
                        }
                    };
                    match facts_needed(&policy, contact.as_ref()) {
                        Facts::Known(facts) => (policy, contact, facts),
                        Facts::Read(command) => {
                            guard.asked = Some((policy, contact));
                            self.waiting = Waiting::Guard(Box::new(guard));
                            return *command;
                        }
                    }
                }
            };
            match policy.evaluate(&self.scope, contact.as_ref(), &facts, context.at) {
                Ok(PolicyDecision::Allowed(more)) => guard.caps.extend(more),
                Ok(PolicyDecision::Refused(denial)) => {
                    return self.guarded(guard.item, guard.with, Guarded::Refused(denial), context);
                }
                Ok(PolicyDecision::Later { until, refusal }) => {
                    if guard.later.as_ref().is_none_or(|(latest, _)| until > *latest) {
                        guard.later = Some((until, refusal));
                    }
                }
                Err(problem) => {
                    let failure = broken(guard.item.step(), &policy.name, &problem);
                    return self.guarded(guard.item, guard.with, Guarded::Broken(failure), context);
                }
            }
        }
        let guarded = match guard.later {
            Some((until, denial)) => Guarded::Later(until, denial),
            None => Guarded::Go(guard.caps),
        };
        self.guarded(guard.item, guard.with, guarded, context)
    }

    fn policy_and_contact(&self, step: &Step, name: &str) -> Result<(Arc<Policy>, Option<Contact>), Failure> {
        let Some(policy) = self.config.policy(name) else {
            let message = format!("step `{}`: the policy `{name}` is not in the configuration any more", step.id);
            return Err(Failure::new(FailureClass::Mapping, "policy-lost", message));
        };
        let contact = policy.contact(&self.scope).map_err(|problem| broken(step, name, &problem))?;
        Ok((policy, contact))
    }

    /// The effect is put off. Waiting costs no attempt.
    pub(super) fn put_off(&mut self, until: Time, denial: &PolicyDenial, context: RunContext) -> Command {
        self.notice_denial(denial, DenialKind::Deferred);
        let message = format!("{}, {}: {}", denial.policy, denial.rule, denial.detail);
        let code = if &*denial.policy == SAFE_MODE_HOLDS { SAFE_MODE_HOLDS } else { POLICY_CODE };
        self.wait_until(until, Some(Failure::new(FailureClass::Retryable, code, message)), context)
    }

    pub(super) fn notice_denial(&mut self, denial: &PolicyDenial, kind: DenialKind) {
        let (policy, rule) = (denial.policy.clone(), denial.rule.clone());
        self.notices.push(Notice::PolicyDenied { policy, rule, kind });
    }
}

/// The facts that a policy needs: none, or those to read.
pub(super) fn facts_needed(policy: &Policy, contact: Option<&Contact>) -> Facts {
    let purposes: Vec<Arc<str>> = policy.purposes().cloned().collect();
    match contact {
        Some(contact) if policy.reads_suppression() || !purposes.is_empty() => {
            Facts::Read(Box::new(Command::ReadContactFacts {
                contact: contact.digest(),
                channel: policy.channel.clone(),
                purposes,
            }))
        }
        _ => Facts::Known(ContactFacts::default()),
    }
}

fn broken(step: &Step, policy: &str, problem: &TemplateProblem) -> Failure {
    Failure::new(FailureClass::Mapping, "policy", format!("step `{}`: policy `{policy}`: {problem}", step.id))
}
