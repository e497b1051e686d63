//! Renders the request of a declared action. Pure.

use serde_json::{Value, json};
use sluice_domain::connector::{BatchDefinition, Declared};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::template::{Scope, Template};

use super::mail;
use super::target::Target;
use crate::Call;
use crate::http::request::{EffectContext, build};
use crate::http::settings::Settings;
use crate::outbound::Request;
use crate::parameter::kind;

pub(super) fn effect(target: &Target, action: Declared, call: &Call<'_>) -> Result<Request, Failure> {
    render(target, action, &action.definition().request, call, None)
}

pub(super) fn read_back(target: &Target, action: Declared, call: &Call<'_>) -> Result<Request, Failure> {
    let definition = action.definition();
    let look = definition.read_back.as_ref().map(|rule| &rule.request);
    match look.or(definition.upsert.as_ref().map(|rule| &rule.find)) {
        Some(request) => render(target, action, request, call, None),
        None => Err(Failure::new(
            FailureClass::Mapping,
            "no-read-back",
            format!("{} cannot be read back.", action.spec().name),
        )),
    }
}

/// The part of a batch request for one call.
pub(super) fn item(
    target: &Target,
    action: Declared,
    batch: &BatchDefinition,
    call: &Call<'_>,
) -> Result<Value, Failure> {
    let scope = scope_of(target, action, call)?;
    Ok(rendered(action, &batch.item, &scope)?.unwrap_or_default())
}

/// The request that carries these items.
pub(super) fn batch(
    target: &Target,
    action: Declared,
    batch: &BatchDefinition,
    (first, items): (&Call<'_>, &[Value]),
) -> Result<Request, Failure> {
    let mut scope = target.scope();
    scope.set("with", first.with.clone());
    scope.set("items", Value::Array(items.to_vec()));
    to_request(target, rendered(action, &batch.request, &scope)?, first)
}

/// `record` is the id of the record that is updated.
pub(super) fn render(
    target: &Target,
    action: Declared,
    template: &Template,
    call: &Call<'_>,
    record: Option<&Value>,
) -> Result<Request, Failure> {
    let mut scope = scope_of(target, action, call)?;
    if let Some(id) = record {
        scope.set("record", json!({ "id": id }));
    }
    to_request(target, rendered(action, template, &scope)?, call)
}

/// Variables of the request of a call, whose parameters are checked.
fn scope_of(target: &Target, action: Declared, call: &Call<'_>) -> Result<Scope, Failure> {
    check_parameters(action, call.with)?;
    let mut scope = target.scope();
    if action.definition().is_mail {
        if crate::parameter::value(call.with, "headers").is_some() && !takes(action, "headers") {
            let message = format!("{} cannot send additional headers; remove `with.headers`.", action.spec().name);
            return Err(Failure::new(FailureClass::Mapping, "invalid-parameter", message));
        }
        let default_from = scope.get("destination").and_then(|values| values.get("from")).and_then(Value::as_str);
        let mail = mail::scope(call.with, default_from)?;
        scope.set("mail", mail);
    }
    scope.set("with", call.with.clone());
    scope.set("effect", json!({ "key": call.effect_key }));
    Ok(scope)
}

fn rendered(action: Declared, template: &Template, scope: &Scope) -> Result<Option<Value>, Failure> {
    template.render_plain(scope).map_err(|problem| {
        let message = format!("The request of {} cannot be rendered: {problem}.", action.spec().name);
        Failure::new(FailureClass::Mapping, "invalid-parameter", message)
    })
}

fn to_request(target: &Target, rendered: Option<Value>, call: &Call<'_>) -> Result<Request, Failure> {
    let rendered = rendered.unwrap_or(Value::Null);
    let context = EffectContext { effect_key: None, traceparent: call.traceparent, now: call.now };
    let mut request = build(&Settings::read(&rendered)?, &target.http, context)?;
    for (name, value) in &target.headers {
        request.headers.entry(name).or_insert_with(|| value.clone());
    }
    Ok(request)
}

fn takes(action: Declared, name: &str) -> bool {
    action.spec().parameters.iter().any(|parameter| parameter.name == name)
}

/// A required parameter whose value the event lacks, and a value of a wrong type.
fn check_parameters(action: Declared, with: &Value) -> Result<(), Failure> {
    use sluice_domain::action::ParameterType;
    let is_mail = action.definition().is_mail;
    for parameter in action.spec().parameters {
        let value = with.get(parameter.name).filter(|value| !value.is_null());
        let Some(value) = value.filter(|value| value.as_str().is_none_or(|text| !text.trim().is_empty())) else {
            // A mail without a recipient has its own failure.
            if parameter.required && !is_mail {
                let message = format!("`with.{}` has no value: the event lacks it.", parameter.name);
                return Err(Failure::new(FailureClass::Identity, "no-value", message));
            }
            continue;
        };
        let fits = match &parameter.value_type {
            ParameterType::Text | ParameterType::Url | ParameterType::Duration => {
                !value.is_array() && !value.is_object()
            }
            ParameterType::Flag => value.is_boolean(),
            ParameterType::Number => value.is_number(),
            ParameterType::Map => value.is_object(),
            ParameterType::OneOf(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            ParameterType::Numbers => value.is_array(),
            ParameterType::Texts => !value.is_object(),
            ParameterType::Expression | ParameterType::Expressions | ParameterType::Any => true,
        };
        if !fits {
            let found = kind(value);
            return Err(crate::parameter::problem(parameter.name, format_args!("has a wrong type: it is {found}")));
        }
    }
    if !action.any_of().is_empty() && action.any_of().iter().all(|name| with.get(*name).is_none_or(Value::is_null)) {
        let message =
            format!("None of `with.{}` has a value: the event lacks them.", action.any_of().join("`, `with."));
        return Err(Failure::new(FailureClass::Identity, "no-value", message));
    }
    Ok(())
}
