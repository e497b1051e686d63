//! `utils.compute_dedup_key`: what an event is about, and when the sender says that it happened.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::key::dedup;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::template::Scope;
use sluice_domain::worker::Step;

use super::{InternalOutcome, bad_parameter};

pub(super) fn perform(step: &Step, with: &Value, scope: &Scope) -> InternalOutcome {
    let fields: Option<Vec<String>> = match &with["fields"] {
        Value::String(field) => Some(vec![field.clone()]),
        Value::Array(fields) => fields.iter().map(|field| field.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    let Some(fields) = fields.filter(|fields| !fields.is_empty()) else {
        return bad_parameter(step, "`fields` must be a list of names");
    };
    let width = match &with["bucket_minutes"] {
        Value::Null => None,
        minutes => match minutes.as_f64().filter(|minutes| *minutes > 0.0 && minutes.is_finite()) {
            Some(minutes) => Some(Duration::from_millis((minutes * 60e3) as u64)),
            None => return bad_parameter(step, "`bucket_minutes` must be a number above zero"),
        },
    };
    match dedup(scope, &fields, width) {
        Ok(key) => InternalOutcome::Done(json!({ "key": key.text, "adjacent": key.adjacent })),
        Err(problem) => {
            let message = format!("step `{}`: {problem}", step.id);
            InternalOutcome::Die(Failure::new(FailureClass::Mapping, "dedup-key", message))
        }
    }
}

/// The keys beside this one, if an earlier step made it.
pub(super) fn adjacent(scope: &Scope, key: &str) -> Vec<String> {
    let steps = scope.get("steps").and_then(Value::as_object).into_iter().flatten();
    let mut outputs = steps.map(|(_, step)| &step["output"]);
    let made = outputs.find(|output| output["key"].as_str() == Some(key) && output["adjacent"].is_array());
    let adjacent = made.and_then(|output| output["adjacent"].as_array()).into_iter().flatten();
    adjacent.filter_map(Value::as_str).map(str::to_owned).collect()
}
