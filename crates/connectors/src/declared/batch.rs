//! Takes the answer to a request with several calls apart. Pure.

use serde_json::{Value, json};
use sluice_domain::connector::{BatchDefinition, Declared};
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome};
use sluice_domain::template::{Expression, Scope};

use super::response::{self, ActionRules, Judged};
use crate::Call;
use crate::batch::BatchOutcome;
use crate::http::response::answer;
use crate::outbound::HttpResponse;

/// Outcomes of the calls with this answer, and the indexes of the failure rules that decided. An answer without a list of results
/// is about the request as a whole.
pub(super) fn outcomes(
    response: &HttpResponse,
    (action, form): (ActionRules<'_>, &BatchDefinition),
    calls: &[Call<'_>],
    host: &str,
) -> (Vec<usize>, BatchOutcome) {
    if let Some(too_large) = too_large(response, (action, form), host) {
        return (vec![], BatchOutcome::Whole(too_large));
    }
    let mut scope = Scope::new();
    scope.set("response", answer(response));
    let results = match &form.results {
        Some(results) if !response.truncated => match results.evaluate(&scope) {
            Ok(Some(Value::Array(results))) => Some(results),
            _ => None,
        },
        _ => None,
    };
    let Some(results) = results else { return whole(response, (action, form), calls, host) };
    let mut rules = vec![];
    let mut judge = |call: &Call<'_>, result: &Value| {
        let single = single_answer(response, form, &scope, result);
        let (rule, judged) = response::outcome(&single, action, call, host);
        rules.extend(rule);
        judged.into_outcome()
    };
    let outcomes = match &form.matching {
        None if results.len() == calls.len() => {
            calls.iter().zip(&results).map(|(call, result)| judge(call, result)).collect()
        }
        // One outcome for each result: the caller sees that the numbers differ.
        None => results.iter().map(|_| Outcome::Done { result: Value::Null }).collect(),
        Some(matching) => {
            let keys: Vec<Option<Value>> =
                results.iter().map(|result| value(&matching.result, &[("result", result)])).collect();
            calls
                .iter()
                .map(|call| match find(&keys, &matching.call, call) {
                    Some(at) => judge(call, &results[at]),
                    None => unanswered(host, action.0),
                })
                .collect()
        }
    };
    (rules, BatchOutcome::Each(outcomes))
}

/// An answer of success whose results do not fit, at a destination that recognises a repeat: each call is sent again, alone. Together
/// they would have the same answer.
fn too_large(
    response: &HttpResponse,
    ((action, _), form): (ActionRules<'_>, &BatchDefinition),
    host: &str,
) -> Option<Outcome> {
    let is_repeatable = matches!(action.definition().class, EffectClass::Natural | EffectClass::Keyed);
    let is_cut = response.truncated && form.results.is_some() && (200..300).contains(&response.status);
    (is_cut && is_repeatable).then(|| {
        let message = format!("The response of {host} is too large.");
        let failure = Failure::new(FailureClass::Permanent, "too-large", message).with_status(response.status);
        Outcome::Reject { failure }
    })
}

/// The answer is that of every call. A success holds for each of them, with its own result.
fn whole(
    response: &HttpResponse,
    (action, form): (ActionRules<'_>, &BatchDefinition),
    calls: &[Call<'_>],
    host: &str,
) -> (Vec<usize>, BatchOutcome) {
    let Some(first) = calls.first() else { return (vec![], BatchOutcome::Each(vec![])) };
    let (rule, judged) = response::outcome(response, action, first, host);
    let rules: Vec<usize> = rule.into_iter().collect();
    match judged {
        Judged::Outcome(Outcome::Done { .. }) if form.results.is_some() => {
            let message = format!("{host} answered {} without the results of the calls.", response.status);
            let failure = Failure::new(FailureClass::Retryable, "unexpected-response", message);
            (rules, BatchOutcome::Whole(Outcome::Unsure { failure: failure.with_status(response.status) }))
        }
        Judged::Outcome(Outcome::Done { .. } | Outcome::Noop { .. }) => {
            let judge = |call| response::outcome(response, action, call, host).1.into_outcome();
            (rules, BatchOutcome::Each(calls.iter().map(judge).collect()))
        }
        judged => (rules, BatchOutcome::Whole(judged.into_outcome())),
    }
}

/// The answer as a request of its own would have got it.
fn single_answer(response: &HttpResponse, form: &BatchDefinition, scope: &Scope, result: &Value) -> HttpResponse {
    let mut scope = scope.clone();
    scope.set("result", result.clone());
    let body = match &form.body {
        Some(template) => template.render_plain(&scope).ok().flatten().unwrap_or_default(),
        None => result.clone(),
    };
    let status = form.status.as_ref().and_then(|status| match status.evaluate(&scope).ok()?? {
        Value::Number(number) => number.as_u64().and_then(|number| u16::try_from(number).ok()),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    });
    HttpResponse {
        status: status.filter(|status| (100..600).contains(status)).unwrap_or(response.status),
        headers: response.headers.clone(),
        body: body.to_string().into(),
        truncated: false,
    }
}

/// The only result with the key of this call; `None` if there is none, or several.
fn find(keys: &[Option<Value>], own: &Expression, call: &Call<'_>) -> Option<usize> {
    let effect = json!({ "key": call.effect_key });
    let own = text(&value(own, &[("with", call.with), ("effect", &effect)])?)?;
    let mut found =
        keys.iter().enumerate().filter(|(_, key)| key.as_ref().and_then(text).is_some_and(|key| key == own));
    match (found.next(), found.next()) {
        (Some((at, _)), None) => Some(at),
        _ => None,
    }
}

fn value(expression: &Expression, variables: &[(&'static str, &Value)]) -> Option<Value> {
    let mut scope = Scope::new();
    for (name, value) in variables {
        scope.set(*name, (*value).clone());
    }
    expression.evaluate(&scope).ok().flatten()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_lowercase()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn unanswered(host: &str, action: Declared) -> Outcome {
    let message = format!("The answer of {host} has no result for this call of {}.", action.spec().name);
    Outcome::Unsure { failure: Failure::new(FailureClass::Retryable, "batch-results", message) }
}
