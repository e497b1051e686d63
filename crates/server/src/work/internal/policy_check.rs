//! `policy.check`: what a policy would say, kept so that a second run hears the same.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_domain::job::EffectState;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::policy::{ContactFacts, Policy, PolicyDecision, PolicyDenial};
use sluice_domain::template::Scope;
use sluice_domain::time::Time;
use sluice_domain::worker::Step;

use super::{DryRunOutput, InternalOutcome, InternalStep, bad_parameter};
use crate::work::guard::Asked;
use crate::work::run::JobRun;

pub(super) async fn perform(
    run: &JobRun<'_>,
    inside: &InternalStep<'_>,
) -> Result<InternalOutcome, sluice_ledger::Error> {
    let name = inside.with["policy"].as_str().unwrap_or_default();
    let Some(policy) = run.context.revisions.policy(inside.live, name) else {
        return Ok(bad_parameter(inside.step, &format!("there is no policy `{name}`")));
    };
    let now = run.context.clock.wall();
    let decision = match run.ask_about(policy, inside.scope).await? {
        Ok(Asked { policy, contact, known }) => policy.evaluate(inside.scope, contact.as_ref(), &known, now),
        Err(problem) => Err(problem),
    };
    let output = match decision {
        Err(problem) => {
            let message = format!("step `{}`: policy `{name}`: {problem}", inside.step.id);
            return Ok(InternalOutcome::Die(Failure::new(FailureClass::Mapping, "policy", message)));
        }
        Ok(PolicyDecision::Refused(refusal)) => refused(&refusal),
        Ok(PolicyDecision::Later { until, refusal }) => later(&refusal, until),
        Ok(PolicyDecision::Allowed(caps)) => {
            let mut output = json!({ "allowed": true });
            for cap in caps {
                if run.context.ledger.cap_used(cap.clone(), now).await? >= u64::from(cap.cap.max) {
                    output = refused(&cap.refusal());
                    break;
                }
            }
            output
        }
    };
    let note = run.note(inside.step, inside.turn, EffectState::Applied, output);
    Ok(run.context.ledger.note(note).await?.map_or(InternalOutcome::Stale, |kept| {
        if let (Some(policy), Some(rule)) = (kept["policy"].as_str(), kept["rule"].as_str()) {
            run.context.metrics.policy(policy, rule, "refused");
        }
        InternalOutcome::Done(kept)
    }))
}

fn refused(refusal: &PolicyDenial) -> Value {
    json!({ "allowed": false, "policy": &*refusal.policy, "rule": &*refusal.rule, "reason": refusal.detail })
}

fn later(refusal: &PolicyDenial, until: Time) -> Value {
    let mut output = refused(refusal);
    output["until"] = json!(until);
    output
}

/// What it would say of somebody who has had nothing and said nothing.
pub(super) fn rehearse(
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
        PolicyDecision::Refused(refusal) => refused(&refusal),
        PolicyDecision::Later { until, refusal } => later(&refusal, until),
    };
    Ok(DryRunOutput { output, assumed: Some("the ledger knows nothing of this contact") })
}
