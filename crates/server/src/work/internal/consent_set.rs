//! `consent.set`: what a contact agreed to, or withdrew.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_domain::event::scalar;
use sluice_domain::job::EffectState;
use sluice_domain::policy::{Contact, agreed};
use sluice_domain::template::Scope;
use sluice_domain::worker::Step;
use sluice_ledger::SetConsent;

use super::{DryRunOutput, InternalOutcome, InternalStep, bad_parameter};
use crate::work::run::JobRun;

/// What is agreed to, unless the step says otherwise.
const PURPOSE: &str = "marketing";

pub(super) async fn perform(
    run: &JobRun<'_>,
    inside: &InternalStep<'_>,
) -> Result<InternalOutcome, sluice_ledger::Error> {
    let (contact, granted, purpose) = match read(inside.step, inside.with, inside.scope) {
        Ok(read) => read,
        Err(problem) => return Ok(bad_parameter(inside.step, &problem)),
    };
    let at = run.event.occurred_at.unwrap_or(run.event.received_at);
    let consent = SetConsent { contact: contact.digest(), purpose: Arc::from(purpose.as_str()), granted, at };
    // A repeat does no harm: what was said last counts, by the event's own time.
    run.context.ledger.set_consent(consent).await?;
    let output = json!({ "granted": granted, "purpose": purpose });
    let note = run.note(inside.step, inside.turn, EffectState::Applied, output);
    Ok(run.context.ledger.note(note).await?.map_or(InternalOutcome::Stale, InternalOutcome::Done))
}

fn read(_step: &Step, with: &Value, scope: &Scope) -> Result<(Contact, bool, String), String> {
    let granted = agreed(&with["granted"]).ok_or("`granted` says neither yes nor no")?;
    let named = scalar(&with["contact"]);
    let of_event = || {
        let event = scope.get("event")?;
        ["email", "phone_e164", "phone", "contact_external_id"].iter().find_map(|name| scalar(event.get(name)?))
    };
    let contact = named.or_else(of_event).as_deref().and_then(Contact::new);
    let purpose = with["purpose"].as_str().unwrap_or(PURPOSE).to_owned();
    Ok((contact.ok_or("the event does not say whose consent this is")?, granted, purpose))
}

pub(super) fn rehearse(step: &Step, with: &Value, scope: &Scope) -> Result<DryRunOutput, String> {
    let (_, granted, purpose) = read(step, with, scope).map_err(|problem| format!("step `{}`: {problem}", step.id))?;
    Ok(DryRunOutput { output: json!({ "granted": granted, "purpose": purpose }), assumed: None })
}
