//! Destinations of declared types: renders the request of an action and judges the answer by the rules of its connector.

mod batch;
mod mail;
mod oauth;
mod request;
mod response;
mod target;
mod upsert;

use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderValue};
use serde_json::Value;
use sluice_domain::action::Action;
use sluice_domain::connector::Declared;
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

use response::Judged;
pub use response::RecordedAnswer;
pub(crate) use target::Target;

use crate::batch::{BatchOutcome, Checked};
use crate::echo::mask_outcome;
use crate::outbound::{HttpResponse, Outbound, Request};
use crate::text::{redact, redact_outcome};
use crate::token::Exchange;
use crate::{Call, deadline};

/// The declared action that performs a step's action at this destination. A job keeps the document that it was accepted under, and
/// with it the parameters and the class of its step, when the connector of this name is changed; credentials and addresses are current.
pub(crate) fn performs(target: &Target, action: Action) -> Option<Declared> {
    match action {
        Action::Declared(declared) => (target.connector.definition.name == declared.connector.name).then_some(declared),
        Action::SendTemplate => target.connector.mail_action(),
        _ => None,
    }
}

pub(crate) async fn call(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    action: Declared,
    call: Call<'_>,
) -> Outcome {
    let outcome = match &action.definition().upsert {
        Some(rule) => upsert::Requests { outbound, target, timeout_max, action, rule, call }.perform().await,
        None => {
            let build = |call: &Call<'_>| request::effect(target, action, call);
            match exchange(outbound, target, timeout_max, &call, build).await {
                Ok((response, host)) => {
                    response::outcome(&response, (action, &target.own_rules), &call, &host).1.into_outcome()
                }
                Err(outcome) => outcome,
            }
        }
    };
    let tokens = target.token_texts();
    redact_outcome(outcome, target.secrets().chain(tokens.iter().map(String::as_str)))
}

/// Sends the effects of several calls in one request, if the connector declares one.
pub(crate) async fn call_batch(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    action: Declared,
    calls: &[Call<'_>],
) -> Vec<Outcome> {
    let Some(form) = &action.definition().batch else { return vec![] };
    let checked = Checked::new(calls, |one| request::item(target, action, form, one));
    let sent = match checked.calls[..] {
        [] => vec![],
        [alone] => vec![mask_outcome(call(outbound, target, timeout_max, action, alone).await, &alone)],
        [first, ..] => {
            let build = |first: &Call<'_>| request::batch(target, action, form, (first, &checked.settings));
            let answer = match exchange(outbound, target, timeout_max, &first, build).await {
                Ok((response, host)) => {
                    batch::outcomes(&response, ((action, &target.own_rules), form), &checked.calls, &host).1
                }
                Err(outcome) => BatchOutcome::Whole(outcome),
            };
            let tokens = target.token_texts();
            let redacted = |outcome| redact_outcome(outcome, target.secrets().chain(tokens.iter().map(String::as_str)));
            let answer = match answer {
                BatchOutcome::Whole(outcome) => BatchOutcome::Whole(redacted(outcome)),
                BatchOutcome::Each(outcomes) => BatchOutcome::Each(outcomes.into_iter().map(redacted).collect()),
            };
            answer.into_outcomes(&checked.calls)
        }
    };
    checked.outcomes(sent)
}

/// Builds the request of several calls with a masked token.
pub(crate) fn prepare_batch(target: &Target, action: Declared, calls: &[Call<'_>]) -> Result<Request, Failure> {
    let (Some(form), [first, ..]) = (&action.definition().batch, calls) else { return Err(no_batch(action)) };
    let items: Vec<Value> =
        calls.iter().map(|call| request::item(target, action, form, call)).collect::<Result<_, _>>()?;
    let request = request::batch(target, action, form, (first, &items))?;
    Ok(with_token(request, target.masked_token()))
}

/// Outcomes of calls that shared a request with this answer, and the failure rules that decided.
pub(crate) fn judge_batch(
    action: Declared,
    calls: &[Call<'_>],
    answer: &RecordedAnswer,
) -> Result<(Vec<usize>, Vec<Outcome>), Failure> {
    let Some(form) = &action.definition().batch else { return Err(no_batch(action)) };
    let (rules, judged) = batch::outcomes(&answer.to_response(), ((action, &[]), form), calls, "the destination");
    Ok((rules, judged.into_outcomes(calls)))
}

fn no_batch(action: Declared) -> Failure {
    let message = format!("{} has no batch form.", action.spec().name);
    Failure::new(FailureClass::Mapping, "no-batch", message)
}

/// Looks for the effect with the request that the connector names.
pub(crate) async fn read_back(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    action: Declared,
    call: Call<'_>,
) -> Readback {
    let found = match &action.definition().upsert {
        Some(rule) => upsert::Requests { outbound, target, timeout_max, action, rule, call }.read_back().await,
        None => look(outbound, target, timeout_max, action, &call).await,
    };
    match found {
        Readback::Unreadable(failure) => {
            let tokens = target.token_texts();
            let message = redact(failure.message, target.secrets().chain(tokens.iter().map(String::as_str)));
            Readback::Unreadable(Failure { message, ..failure })
        }
        found => found,
    }
}

async fn look(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    action: Declared,
    call: &Call<'_>,
) -> Readback {
    let build = |call: &Call<'_>| request::read_back(target, action, call);
    let exchanged = exchange(outbound, target, timeout_max, call, build).await;
    match exchanged {
        Ok((response, host)) => response::readback(&response, action, call, &host),
        Err(outcome) => {
            Readback::Unreadable(outcome.failure().cloned().unwrap_or_else(|| {
                Failure::new(FailureClass::Retryable, "unreadable", "The effect cannot be looked up.")
            }))
        }
    }
}

/// Builds the request with a masked token.
pub(crate) fn prepare(target: &Target, action: Declared, call: &Call<'_>) -> Result<Request, Failure> {
    let request = request::effect(target, action, call)?;
    Ok(with_token(request, target.masked_token()))
}

/// Builds the read-back request with a masked token.
pub(crate) fn prepare_read_back(target: &Target, action: Declared, call: &Call<'_>) -> Result<Request, Failure> {
    let request = request::read_back(target, action, call)?;
    Ok(with_token(request, target.masked_token()))
}

/// Outcome of an attempt with this answer, and the index of the failure rule that decided.
pub(crate) fn judge(action: Declared, call: &Call<'_>, answer: &RecordedAnswer) -> (Option<usize>, Outcome) {
    let response = answer.to_response();
    let (rule, judged) = response::outcome(&response, (action, &[]), call, "the destination");
    let outcome = judged.into_outcome();
    match (&action.definition().upsert, outcome) {
        (Some(upsert), Outcome::Done { .. }) => {
            let outcome = match upsert::created(&response, (action, &[]), upsert, call, "the destination") {
                Ok(id) => Outcome::Done { result: upsert::output(&id, call) },
                Err(outcome) => outcome,
            };
            (rule, outcome)
        }
        (_, outcome) => (rule, outcome),
    }
}

/// Result of a read-back with this answer.
pub(crate) fn judge_read_back(action: Declared, call: &Call<'_>, answer: &RecordedAnswer) -> Readback {
    response::readback(&answer.to_response(), action, call, "the destination")
}

/// Sends with the current token and, if the rules say that it is refused, once more with a new one. Returns the answer and
/// the host.
async fn exchange(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    call: &Call<'_>,
    build: impl Fn(&Call<'_>) -> Result<Request, Failure>,
) -> Result<(HttpResponse, String), Outcome> {
    let limit = deadline([call.timeout, timeout_max]);
    let rejected = |failure| Outcome::Reject { failure };
    let request = build(call).map_err(rejected)?;
    let host = request.url.host_str().unwrap_or_default().to_owned();
    let Some(tokens) = &target.tokens else {
        return Ok((outbound.send(request, limit).await.map_err(|error| error.into_outcome())?, host));
    };
    let exchange = Exchange { outbound, deadline: limit, now: call.now };
    let with_token = |token: HeaderValue| Ok(with_token(build(call)?, Some(token)));
    let is_refusal =
        |response: &HttpResponse| response::is_token_refusal(response, target.connector.definition, &target.own_rules);
    Ok((tokens.exchange(exchange, with_token, is_refusal).await?, host))
}

fn with_token(mut request: Request, authorization: Option<HeaderValue>) -> Request {
    if let Some(authorization) = authorization {
        request.headers.insert(AUTHORIZATION, authorization);
    }
    request
}

impl Judged {
    /// A refused token that is not renewed, or that was renewed once, is an authentication failure.
    fn into_outcome(self) -> Outcome {
        match self {
            Judged::Outcome(outcome) => outcome,
            Judged::Refused(failure) => Outcome::Reject { failure },
        }
    }
}
