//! `enrich.company`, `enrich.geoip`, `enrich.http`: what is found is recorded, so that a second run of the job finds the same.
//!
//! A lookup that was interrupted before its result was recorded is made again: it has no effect. A failed lookup is recorded too,
//! with a warning for its source, and the job continues.

use serde_json::{Value, json};

use super::super::item::StepItem;
use super::super::{Command, JobRun, Notice, RunContext};
use super::{DryRunOutput, InternalOutcome, InternalStep};
use crate::action::Action;
use crate::enrich::{GeoLookup, HttpLookup, Lookup, LookupResult, company};
use crate::event::{LossCode, MappingWarning, scalar};
use crate::job::EffectState;
use crate::mutant::Mutant;
use crate::ops::{StepResult, StepWarning};
use crate::template::{Scope, TemplateProblem};
use crate::worker::Step;

impl JobRun {
    pub(super) fn look_up(&mut self, item: &StepItem, with: &Value, context: RunContext) -> InternalOutcome {
        // A replay goes through the steps again, and finds what the first run found.
        let recorded = self.effects.get(item.key).and_then(|entry| entry.result.clone());
        if let Some(output) = recorded.filter(|_| !Mutant::LookupMadeAgain.is_on()) {
            return InternalOutcome::Done(Value::clone(&output));
        }
        match lookup(item.step(), with, &self.scope) {
            Ok(mut lookup) => {
                if let Lookup::Http(http) = &mut lookup {
                    http.effect_key = item.key.to_string();
                    http.traceparent = self.traceparent();
                }
                InternalOutcome::ask(Command::LookUp(Box::new(lookup)), InternalStep::Lookup)
            }
            Err(result) => self.looked_up(item, result, context),
        }
    }

    /// The parameters could not be rendered, so there is nothing to look up.
    pub(in crate::run) fn lookup_not_rendered(
        &mut self,
        item: &StepItem,
        problem: &TemplateProblem,
        context: RunContext,
    ) -> InternalOutcome {
        self.looked_up(item, LookupResult::failed(LossCode::LookupFailed, format!("with: {problem}")), context)
    }

    pub(super) fn looked_up(&mut self, item: &StepItem, result: LookupResult, context: RunContext) -> InternalOutcome {
        let step = item.step();
        let failure = result.failure();
        self.notices.push(Notice::Lookup {
            step: step.id.clone(),
            action: step.action.name(),
            result: result.as_str(),
            failure: failure.map(|failure| failure.message.clone()),
        });
        let warning = failure.map(|failure| {
            let warning = MappingWarning { field: format!("steps.{}", step.id), code: failure.code };
            Box::new(StepWarning { source: self.event.source.clone(), warning })
        });
        let recorded = self.step_result(item, EffectState::Applied, result.output(), context);
        let recorded = StepResult { warning, ..recorded };
        InternalOutcome::ask(Command::RecordStep(Box::new(recorded)), InternalStep::Record)
    }
}

/// The lookup of a step. `Err` is its result if none has to be made.
pub(in crate::run) fn lookup(step: &Step, with: &Value, scope: &Scope) -> Result<Lookup, LookupResult> {
    match step.action {
        Action::EnrichGeoip => GeoLookup::new(with).map(Lookup::Geo),
        Action::EnrichHttp => HttpLookup::new(&step.destination, with).map(|lookup| Lookup::Http(Box::new(lookup))),
        _ => {
            let email = scope.get("event").and_then(|event| scalar(event.get("email")?));
            Err(company(with, email.as_deref()))
        }
    }
}

/// What can be said without the database or the destination.
pub(super) fn dry_run(step: &Step, with: &Value, scope: &Scope) -> DryRunOutput {
    match lookup(step, with, scope) {
        Err(result) => DryRunOutput { output: result.output(), assumed: None },
        Ok(_) => DryRunOutput { output: json!({ "found": false }), assumed: Some("the lookup finds nothing") },
    }
}
