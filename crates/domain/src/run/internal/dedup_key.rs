//! `utils.compute_dedup_key`: a key from fields of the event, with the time bucket of the sender's own timestamp.

use std::time::Duration;

use serde_json::{Value, json};

use crate::key::dedup;
use crate::outcome::{Failure, FailureClass};
use crate::template::Scope;
use crate::worker::Step;

/// The output of the step.
pub(in crate::run) fn dedup_key(step: &Step, with: &Value, scope: &Scope) -> Result<Value, Failure> {
    let fail =
        |code: &str, message: &str| Failure::new(FailureClass::Mapping, code, format!("step `{}`: {message}", step.id));
    let fields: Option<Vec<String>> = match &with["fields"] {
        Value::String(field) => Some(vec![field.clone()]),
        Value::Array(fields) => fields.iter().map(|field| field.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    let fields =
        fields.filter(|fields| !fields.is_empty()).ok_or_else(|| fail("with", "`fields` must be a list of names"))?;
    let width = match &with["bucket_minutes"] {
        Value::Null => None,
        minutes => {
            let minutes = minutes.as_f64().filter(|minutes| *minutes > 0.0 && minutes.is_finite());
            let minutes = minutes.ok_or_else(|| fail("with", "`bucket_minutes` must be a number above zero"))?;
            Some(Duration::from_millis((minutes * 60e3) as u64))
        }
    };
    let key = dedup(scope, &fields, width).map_err(|problem| fail("dedup-key", &problem.to_string()))?;
    Ok(json!({ "key": key.text, "adjacent": key.adjacent }))
}

/// The adjacent keys of this one, if an earlier step computed it.
pub(super) fn adjacent(scope: &Scope, key: &str) -> Vec<String> {
    let computed =
        scope.step_outputs().find(|output| output["key"].as_str() == Some(key) && output["adjacent"].is_array());
    let adjacent = computed.and_then(|output| output["adjacent"].as_array()).into_iter().flatten();
    adjacent.filter_map(Value::as_str).map(str::to_owned).collect()
}
