//! `salesforce.upsert`: sends one record, or those of several calls as a collection, and reads the response.

mod request;
pub(crate) mod response;
pub(crate) mod settings;

use std::time::Duration;

use hyper::header::HeaderValue;
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

pub(crate) use request::Target;
use response::ResponseContext;
use settings::Settings;

use crate::batch::{BatchOutcome, Checked};
use crate::echo::mask_outcome;
use crate::outbound::{HttpResponse, Outbound, Request};
use crate::text::{MASK, exposed, redact, redact_outcome};
use crate::token::{Exchange, bearer};
use crate::{Call, deadline};

pub(crate) async fn call(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    let settings = match Settings::read(call.with) {
        Ok(settings) => settings,
        Err(failure) => return Outcome::Reject { failure },
    };
    let build = |authorization| request::upsert(&settings, target, authorization, call.traceparent);
    let outcome = match exchange(outbound, target, timeout_max, &call, build).await {
        Ok(response) => response::outcome(&response, context(target, &settings, &call)),
        Err(outcome) => outcome,
    };
    if let Outcome::Done { .. } = outcome {
        return outcome;
    }
    let tokens = target.tokens.texts();
    redact_outcome(outcome, exposed(&target.secrets).chain(tokens.iter().map(String::as_str)))
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
        _ => send_records(outbound, target, timeout_max, &checked).await.into_outcomes(&checked.calls),
    };
    checked.outcomes(sent)
}

async fn send_records(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    Checked { calls, settings, .. }: &Checked<'_, Settings<'_>>,
) -> BatchOutcome {
    let build = |authorization| request::batch(settings, target, authorization, calls[0].traceparent);
    let answer = match exchange(outbound, target, timeout_max, &calls[0], build).await {
        Ok(response) => response::batch(&response, context(target, &settings[0], &calls[0])),
        Err(outcome) => BatchOutcome::Whole(outcome),
    };
    let tokens = target.tokens.texts();
    let secrets = || exposed(&target.secrets).chain(tokens.iter().map(String::as_str));
    match answer {
        BatchOutcome::Whole(outcome) => BatchOutcome::Whole(redact_outcome(outcome, secrets())),
        BatchOutcome::Each(outcomes) => {
            BatchOutcome::Each(outcomes.into_iter().map(|outcome| redact_outcome(outcome, secrets())).collect())
        }
    }
}

/// Reads the record by its external id, and compares it with what the step writes: a record that differs counts as absent.
pub(crate) async fn read_back(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Readback {
    let settings = match Settings::read(call.with) {
        Ok(settings) => settings,
        Err(failure) => return Readback::Unreadable(failure),
    };
    let build = |authorization| request::read(&settings, target, authorization, call.traceparent);
    let found = match exchange(outbound, target, timeout_max, &call, build).await {
        Ok(response) => response::readback(&response, settings.fields, context(target, &settings, &call)),
        Err(outcome) => Readback::Unreadable(
            outcome
                .failure()
                .cloned()
                .unwrap_or_else(|| Failure::new(FailureClass::Retryable, "unreadable", "Cannot read the record.")),
        ),
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

/// Builds the request with a masked token.
pub(crate) fn prepare(target: &Target, call: &Call<'_>) -> Result<Request, Failure> {
    let authorization = bearer(MASK).expect("a mask is a valid header value");
    request::upsert(&Settings::read(call.with)?, target, authorization, call.traceparent)
}

async fn exchange(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    call: &Call<'_>,
    build: impl Fn(HeaderValue) -> Result<Request, Failure>,
) -> Result<HttpResponse, Outcome> {
    let exchange = Exchange { outbound, deadline: deadline([call.timeout, timeout_max]), now: call.now };
    let is_refusal = |response: &HttpResponse| response::is_token_refusal(response, &target.rules);
    let response = target.tokens.exchange(exchange, build, is_refusal).await?;
    target.quota.observe(response::quota(&response));
    Ok(response)
}

fn context<'a>(target: &'a Target, settings: &'a Settings<'_>, call: &Call<'_>) -> ResponseContext<'a> {
    ResponseContext {
        host: &target.host,
        object: &settings.object,
        mode: settings.mode,
        rules: &target.rules,
        now: call.now,
    }
}
