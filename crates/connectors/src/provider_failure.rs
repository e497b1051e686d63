//! Error responses of providers with a failure table, for connectors whose requests are never converted. Pure.

use std::time::Duration;

use sluice_domain::failure_rules::{FailureAction, FailureRule, FailureTable, RuleCall};
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome};
use sluice_domain::time::Time;

use crate::failures::MatchedFailure;
use crate::outbound::HttpResponse;
use crate::text::excerpt;

/// An error response, taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProviderError<'a> {
    pub(crate) host: &'a str,
    pub(crate) code: &'a str,
    pub(crate) message: &'a str,
    pub(crate) class: EffectClass,
    pub(crate) now: Time,
}

/// Outcome of an effect with this error response. A server error leaves an effect that must not be repeated unknown, unless the
/// table says that it was not applied: a rule about a provider's code, or a status other than 5xx.
pub(crate) fn outcome(response: &HttpResponse, rules: &FailureTable, error: ProviderError<'_>) -> Outcome {
    let rule = rules
        .find(RuleCall::Effect, response.status, error.code, error.message)
        .expect("the last shipped rule matches everything");
    let failure = |class| failure(response, rule, error, class);
    let tells = !rule.codes.is_empty() || response.status == 503;
    let is_vague = response.status >= 500 && !tells && matches!(rule.action, FailureAction::Retry(_));
    if is_vague && error.class != EffectClass::Natural {
        return Outcome::Unsure { failure: failure(FailureClass::Retryable) };
    }
    let requested_wait: Option<Duration> = response.retry_after(error.now);
    MatchedFailure { rule, status: response.status, requested_wait }.outcome(failure)
}

fn failure(response: &HttpResponse, rule: &FailureRule, error: ProviderError<'_>, class: FailureClass) -> Failure {
    let status = response.status;
    let code = if error.code.is_empty() { format!("http-{status}") } else { error.code.to_owned() };
    let quoted = match error.message {
        "" => excerpt(&response.body),
        message => excerpt(message.as_bytes()),
    };
    let separator = if quoted.is_empty() { "." } else { ": " };
    let message = format!("{} returned {code} (status {status}): {}{separator}{quoted}", error.host, rule.advice);
    Failure::new(class, code, message).with_status(status)
}
