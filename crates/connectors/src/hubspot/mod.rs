//! `hubspot.upsert` and `hubspot.associate`: send one record or association, or the records of several calls as a batch, and read
//! the response.

mod request;
pub(crate) mod response;
pub(crate) mod settings;

use std::time::Duration;

use hyper::header::HeaderValue;
use sluice_domain::action::Action;
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

pub(crate) use request::Target;
use request::{Address, Head};
use response::{Answer, ResponseContext};
use settings::{AssociateSettings, FirstCall, Settings};

use crate::batch::{BatchOutcome, Checked};
use crate::echo::mask_outcome;
use crate::outbound::{HttpResponse, Outbound, Request};
use crate::text::{MASK, exposed, redact, redact_outcome};
use crate::token::{Exchange, bearer};
use crate::{Call, deadline};

pub(crate) async fn call(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    let exchange = Exchange { outbound, deadline: deadline([call.timeout, timeout_max]), now: call.now };
    let outcome = match call.action {
        Action::HubspotAssociate => associate(exchange, target, &call).await,
        _ => upsert(exchange, target, &call).await,
    };
    match outcome {
        Ok(outcome @ Outcome::Done { .. }) | Err(outcome @ Outcome::Done { .. }) => outcome,
        Ok(outcome) | Err(outcome) => {
            let tokens = target.tokens.texts();
            redact_outcome(outcome, exposed(&target.secrets).chain(tokens.iter().map(String::as_str)))
        }
    }
}

/// Sends the records of several calls in one request. A call whose parameters are invalid is rejected and not part of it; a
/// record that is left alone is sent as one.
pub(crate) async fn call_batch(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    calls: &[Call<'_>],
) -> Vec<Outcome> {
    let checked = Checked::new(calls, |one| Settings::read(one.with));
    let sent = match checked.calls[..] {
        [] => vec![],
        [alone] => vec![mask_outcome(call(outbound, target, timeout_max, alone).await, &alone)],
        [first, ..] => {
            let exchange = Exchange { outbound, deadline: deadline([first.timeout, timeout_max]), now: first.now };
            send_records(exchange, target, &checked).await.into_outcomes(&checked.calls)
        }
    };
    checked.outcomes(sent)
}

async fn send_records(
    exchange: Exchange<'_>,
    target: &Target,
    Checked { calls, settings, .. }: &Checked<'_, Settings<'_>>,
) -> BatchOutcome {
    let records: Vec<(&Settings<'_>, &str)> = settings.iter().zip(calls.iter().map(|call| call.effect_key)).collect();
    let build = |authorization| request::batch(&records, target, head(authorization, &calls[0]));
    let answer = match send(exchange, target, build).await {
        Ok(response) => response::batch(&response, &records, context(target, &calls[0])),
        Err(outcome) => BatchOutcome::Whole(outcome),
    };
    let tokens = target.tokens.texts();
    let clean = |outcome| redact_outcome(outcome, exposed(&target.secrets).chain(tokens.iter().map(String::as_str)));
    match answer {
        BatchOutcome::Whole(outcome) => BatchOutcome::Whole(clean(outcome)),
        BatchOutcome::Each(outcomes) => BatchOutcome::Each(outcomes.into_iter().map(clean).collect()),
    }
}

async fn associate(exchange: Exchange<'_>, target: &Target, call: &Call<'_>) -> Result<Outcome, Outcome> {
    let settings = AssociateSettings::read(call.with).map_err(|failure| Outcome::Reject { failure })?;
    let build = |authorization| request::associate(&settings, target, head(authorization, call));
    let response = send(exchange, target, build).await?;
    Ok(response::associated(&response, &settings, context(target, call)))
}

/// One call, or two if the record turns out to exist. Both may be repeated: the second writes the same values.
async fn upsert(exchange: Exchange<'_>, target: &Target, call: &Call<'_>) -> Result<Outcome, Outcome> {
    let settings = Settings::read(call.with).map_err(|failure| Outcome::Reject { failure })?;
    let context = context(target, call);
    let build = |authorization| first_request(target, &settings, call, authorization);
    let response = send(exchange, target, build).await?;
    let existing = match settings.first_call() {
        FirstCall::Upsert => {
            return Ok(response::upserted(&response, (&settings, call.effect_key), context));
        }
        FirstCall::Update => return Ok(response::outcome(&response, settings.mode, &settings.object, context)),
        FirstCall::Create => match response::created(&response, context) {
            Answer::Settled(outcome) => return Ok(outcome),
            Answer::Exists(existing) => existing,
        },
    };
    let address = existing.as_deref().map_or(Address::Property, Address::Record);
    let build = |authorization| request::update(&settings, target, address, head(authorization, call));
    let response = send(exchange, target, build).await?;
    Ok(response::converted(&response, &settings, context))
}

/// Reads the record by its id property, and compares it with what the step writes: a record that differs counts as absent.
pub(crate) async fn read_back(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Readback {
    let exchange = Exchange { outbound, deadline: deadline([call.timeout, timeout_max]), now: call.now };
    let found =
        match Settings::read(call.with) {
            Ok(settings) => {
                let build = |authorization| request::read(&settings, target, head(authorization, &call));
                match send(exchange, target, build).await {
                    Ok(response) => response::readback(&response, &settings, context(target, &call)),
                    Err(outcome) => Readback::Unreadable(outcome.failure().cloned().unwrap_or_else(|| {
                        Failure::new(FailureClass::Retryable, "unreadable", "Cannot read the record.")
                    })),
                }
            }
            Err(failure) => Readback::Unreadable(failure),
        };
    match found {
        Readback::Unreadable(failure) => {
            let tokens = target.tokens.texts();
            let secrets = exposed(&target.secrets).chain(tokens.iter().map(String::as_str));
            let message = redact(failure.message, secrets);
            Readback::Unreadable(Failure { message, ..failure })
        }
        found => found,
    }
}

/// Builds the first request with a masked token.
pub(crate) fn prepare(target: &Target, call: &Call<'_>) -> Result<Request, Failure> {
    let authorization = bearer(MASK).expect("a mask is a valid header value");
    match call.action {
        Action::HubspotAssociate => {
            request::associate(&AssociateSettings::read(call.with)?, target, head(authorization, call))
        }
        _ => first_request(target, &Settings::read(call.with)?, call, authorization),
    }
}

fn first_request(
    target: &Target,
    settings: &Settings<'_>,
    call: &Call<'_>,
    authorization: HeaderValue,
) -> Result<Request, Failure> {
    let head = head(authorization, call);
    match settings.first_call() {
        FirstCall::Upsert => request::batch(&[(settings, call.effect_key)], target, head),
        FirstCall::Create => request::create(settings, target, head),
        FirstCall::Update => request::update(settings, target, Address::Property, head),
    }
}

async fn send(
    exchange: Exchange<'_>,
    target: &Target,
    build: impl Fn(HeaderValue) -> Result<Request, Failure>,
) -> Result<HttpResponse, Outcome> {
    let is_refusal = |response: &HttpResponse| response::is_token_refusal(response, &target.rules);
    let response = target.tokens.exchange(exchange, build, is_refusal).await?;
    target.quota.observe(response::quota(&response));
    Ok(response)
}

fn head<'a>(authorization: HeaderValue, call: &Call<'a>) -> Head<'a> {
    Head { authorization, traceparent: call.traceparent }
}

fn context<'a>(target: &'a Target, call: &Call<'_>) -> ResponseContext<'a> {
    ResponseContext { host: &target.host, rules: &target.rules, now: call.now }
}
