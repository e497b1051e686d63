//! `policy.check`: the decision of a policy, recorded so that a second run finds the same.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::guard::{Facts, facts_needed};
use super::super::item::StepItem;
use super::super::{Command, DenialKind, JobRun, Notice, RunContext};
use super::{DryRunOutput, InternalOutcome, InternalStep, bad_parameter};
use crate::job::EffectState;
use crate::outcome::{Failure, FailureClass};
use crate::policy::{CapReservation, ContactFacts, Policy, PolicyDecision, PolicyDenial};
use crate::template::{Scope, TemplateProblem};
use crate::time::Time;
use crate::worker::Step;

impl JobRun {
    pub(super) fn check_policy(&self, item: &StepItem, with: &Value, context: RunContext) -> InternalOutcome {
        let name = with["policy"].as_str().unwrap_or_default();
        let Some(policy) = self.config.policy(name) else {
            return bad_parameter(item.step(), &format!("there is no policy `{name}`"));
        };
        let contact = match policy.contact(&self.scope) {
            Ok(contact) => contact,
            Err(problem) => return broken(item.step(), &policy, &problem),
        };
        match facts_needed(&policy, contact.as_ref()) {
            Facts::Known(facts) => {
                let decision = policy.evaluate(&self.scope, contact.as_ref(), &facts, context.wall);
                self.policy_decided(item, &policy, decision, context)
            }
            Facts::Read(command) => InternalOutcome::Ask(command, InternalStep::PolicyFacts(policy, contact)),
        }
    }

    pub(super) fn policy_decided(
        &self,
        item: &StepItem,
        policy: &Policy,
        decision: Result<PolicyDecision, TemplateProblem>,
        context: RunContext,
    ) -> InternalOutcome {
        match decision {
            Err(problem) => broken(item.step(), policy, &problem),
            Ok(PolicyDecision::Refused(denial)) => self.record_decision(item, denied(&denial), context),
            Ok(PolicyDecision::Later { until, refusal }) => {
                self.record_decision(item, deferred(&refusal, until), context)
            }
            Ok(PolicyDecision::Allowed(mut caps)) => {
                caps.reverse();
                self.count_caps(item, caps, context)
            }
        }
    }

    /// Counts what is used of the next cap; with none left, the effect is allowed.
    pub(super) fn count_caps(
        &self,
        item: &StepItem,
        mut caps: Vec<CapReservation>,
        context: RunContext,
    ) -> InternalOutcome {
        match caps.pop() {
            Some(cap) => InternalOutcome::ask(Command::ReadCapUsed(cap.clone()), InternalStep::PolicyCaps(caps, cap)),
            None => self.record_decision(item, json!({ "allowed": true }), context),
        }
    }

    pub(super) fn cap_exhausted(&self, item: &StepItem, cap: &CapReservation, context: RunContext) -> InternalOutcome {
        self.record_decision(item, denied(&cap.refusal()), context)
    }

    fn record_decision(&self, item: &StepItem, output: Value, context: RunContext) -> InternalOutcome {
        let result = self.step_result(item, EffectState::Applied, output, context);
        InternalOutcome::ask(Command::RecordStep(Box::new(result)), InternalStep::RecordPolicy)
    }

    pub(super) fn policy_recorded(&mut self, output: Value) -> InternalOutcome {
        if let (Some(policy), Some(rule)) = (output["policy"].as_str(), output["rule"].as_str()) {
            let (policy, rule) = (Arc::from(policy), Arc::from(rule));
            self.notices.push(Notice::PolicyDenied { policy, rule, kind: DenialKind::Refused });
        }
        InternalOutcome::Done(output)
    }
}

fn broken(step: &Step, policy: &Policy, problem: &TemplateProblem) -> InternalOutcome {
    let message = format!("step `{}`: policy `{}`: {problem}", step.id, policy.name);
    InternalOutcome::Die(Failure::new(FailureClass::Mapping, "policy", message))
}

fn denied(denial: &PolicyDenial) -> Value {
    json!({ "allowed": false, "policy": &*denial.policy, "rule": &*denial.rule, "reason": denial.detail })
}

fn deferred(denial: &PolicyDenial, until: Time) -> Value {
    let mut output = denied(denial);
    output["until"] = json!(until);
    output
}

/// As for a contact that the ledger knows nothing of.
pub(super) fn dry_run(
    step: &Step,
    policy: Option<&Arc<Policy>>,
    scope: &Scope,
    now: Time,
) -> Result<DryRunOutput, String> {
    let Some(policy) = policy else { return Err(format!("step `{}`: there is no such policy", step.id)) };
    let contact = policy.contact(scope).map_err(|problem| problem.to_string())?;
    let decision = policy.evaluate(scope, contact.as_ref(), &ContactFacts::default(), now);
    let output = match decision.map_err(|problem| problem.to_string())? {
        PolicyDecision::Allowed(_) => json!({ "allowed": true }),
        PolicyDecision::Refused(denial) => denied(&denial),
        PolicyDecision::Later { until, refusal } => deferred(&refusal, until),
    };
    Ok(DryRunOutput { output, assumed: Some("the ledger knows nothing of this contact") })
}
