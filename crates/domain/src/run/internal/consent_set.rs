//! `consent.set`: what a contact agreed to, or withdrew.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::item::StepItem;
use super::super::{Command, JobRun};
use super::{DryRunOutput, InternalOutcome, InternalStep, bad_parameter};
use crate::event::scalar;
use crate::ops::SetConsent;
use crate::policy::{Contact, agreed};
use crate::template::Scope;
use crate::worker::Step;

/// The purpose, unless the step names one.
const PURPOSE: &str = "marketing";

impl JobRun {
    pub(super) fn set_consent(&self, item: &StepItem, with: &Value) -> InternalOutcome {
        let (contact, granted, purpose) = match parameters(with, &self.scope) {
            Ok(parameters) => parameters,
            Err(problem) => return bad_parameter(item.step(), problem),
        };
        // A repeat does no harm: the newest statement counts, by the event's own time.
        let at = self.event.occurred_at.unwrap_or(self.event.received_at);
        let consent = SetConsent { contact: contact.digest(), purpose: Arc::from(purpose.as_str()), granted, at };
        let output = json!({ "granted": granted, "purpose": purpose });
        InternalOutcome::ask(Command::SetConsent(consent), InternalStep::Consent(output))
    }
}

fn parameters(with: &Value, scope: &Scope) -> Result<(Contact, bool, String), &'static str> {
    let granted = agreed(&with["granted"]).ok_or("`granted` says neither yes nor no")?;
    let of_event = || {
        let event = scope.get("event")?;
        ["email", "phone_e164", "phone", "contact_external_id"].iter().find_map(|name| scalar(event.get(name)?))
    };
    let contact = scalar(&with["contact"]).or_else(of_event).as_deref().and_then(Contact::new);
    let purpose = with["purpose"].as_str().unwrap_or(PURPOSE).to_owned();
    Ok((contact.ok_or("the event does not say whose consent this is")?, granted, purpose))
}

pub(super) fn dry_run(step: &Step, with: &Value, scope: &Scope) -> Result<DryRunOutput, String> {
    let (_, granted, purpose) = parameters(with, scope).map_err(|problem| format!("step `{}`: {problem}", step.id))?;
    Ok(DryRunOutput { output: json!({ "granted": granted, "purpose": purpose }), assumed: None })
}
