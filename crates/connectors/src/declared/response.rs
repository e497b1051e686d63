//! Judges an answer by the rules of the connector. Pure.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use sluice_domain::connector::{Connector, Declared, FailureAction, FailureRule, WaitSource, WaitUnit};
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome, Readback};
use sluice_domain::template::{Scope, Template};
use sluice_domain::time::Time;

use super::upsert;
use crate::Call;
use crate::failures::MatchedFailure;
use crate::http::response::{
    ResponseContext, SHIPPED_RULES as BY_STATUS, answer, body, can_be_read, outcome as by_status,
};
use crate::outbound::{HttpResponse, retry_after};
use crate::text::excerpt;

/// Longest wait that an answer can ask for, in seconds; the retry policy caps it further.
const WAIT_SECONDS_MAX: f64 = u32::MAX as f64;

/// What an answer means.
#[derive(Debug)]
pub(super) enum Judged {
    Outcome(Outcome),
    /// The token is not accepted.
    Refused(Failure),
}

/// An answer as a connector's tests have it.
#[derive(Clone, Debug)]
pub struct RecordedAnswer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// JSON, or text.
    pub body: Value,
}

impl RecordedAnswer {
    pub(super) fn to_response(&self) -> HttpResponse {
        let header = |(name, value): &(String, String)| {
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
        };
        let headers: HeaderMap = self.headers.iter().filter_map(header).collect();
        let body = match &self.body {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            body => body.to_string(),
        };
        HttpResponse { status: self.status, headers, body: body.into(), truncated: false }
    }
}

/// An action, and the failure rules of the destination that come before those of its connector.
pub(super) type ActionRules<'a> = (Declared, &'a [FailureRule]);

/// Outcome of an attempt with this answer, and the index of the connector's failure rule that decided. Rules of the destination
/// come before those of the connector, and the table of HTTP behind them.
pub(super) fn outcome(
    response: &HttpResponse,
    (action, own): ActionRules<'_>,
    call: &Call<'_>,
    host: &str,
) -> (Option<usize>, Judged) {
    let scope = scope(response, Some(call));
    let definition = action.definition();
    let success = &definition.success;
    let is_success = success.statuses.iter().any(|range| range.contains(response.status));
    if is_success && success.condition.as_ref().is_some_and(|rule| !can_be_read(response, rule, &scope)) {
        return (None, Judged::Outcome(unexpected(response, action, host)));
    }
    let holds = success.condition.as_ref().is_none_or(|condition| condition.holds(&scope) == Ok(true));
    if is_success && holds {
        let result = definition.result.as_ref().and_then(|result| result.render_plain(&scope).ok().flatten());
        let result = result.unwrap_or_else(|| json!({ "status": response.status, "body": body(response) }));
        return (None, Judged::Outcome(Outcome::Done { result }));
    }
    let connector = action.connector;
    let (code, message) = error_of(connector, &scope);
    if let Some((index, rule)) = find_rule((connector, own), response.status, &code, &message) {
        let after = wait(connector, &scope, call.now);
        let context = RuleContext { response, host, code: &code, message: &message, after };
        return (index, apply(rule, &context));
    }
    if (200..300).contains(&response.status) {
        return (None, Judged::Outcome(unexpected(response, action, host)));
    }
    let (class, rules) = (definition.class, &BY_STATUS);
    let context = ResponseContext { host, class, accept_status: &[], rules, now: call.now };
    (None, Judged::Outcome(named(by_status(response, context), &code, wait(connector, &scope, call.now))))
}

/// An answer of success without what the action expects, or of which that cannot be told.
fn unexpected(response: &HttpResponse, action: Declared, host: &str) -> Outcome {
    let (status, name, quoted) = (response.status, action.spec().name, excerpt(&response.body));
    let text = format!("{host} answered {status} without what {name} expects: {quoted}");
    Outcome::Unsure { failure: Failure::new(FailureClass::Retryable, "unexpected-response", text).with_status(status) }
}

struct RuleContext<'a> {
    response: &'a HttpResponse,
    host: &'a str,
    code: &'a str,
    message: &'a str,
    after: Option<Duration>,
}

fn apply(rule: &FailureRule, context: &RuleContext<'_>) -> Judged {
    let RuleContext { response, host, code, message, after } = *context;
    let failure = |class: FailureClass| {
        let quoted = match message {
            "" => excerpt(&response.body),
            message => excerpt(message.as_bytes()),
        };
        let separator = if quoted.is_empty() { "" } else { ": " };
        let advice = if rule.advice.is_empty() { "refused the request" } else { &rule.advice };
        let code = if code.is_empty() { format!("http-{}", response.status) } else { code.to_owned() };
        let text = format!("{host}: {advice} (status {}){separator}{quoted}", response.status);
        Failure::new(class, code, text).with_status(response.status)
    };
    match rule.action {
        FailureAction::Refresh => Judged::Refused(failure(FailureClass::Auth)),
        _ => {
            let matched = MatchedFailure { rule, status: response.status, requested_wait: after };
            Judged::Outcome(matched.outcome(failure))
        }
    }
}

/// The provider's code in place of the status, and the wait that the connector reads.
fn named(outcome: Outcome, code: &str, wait: Option<Duration>) -> Outcome {
    let with_code = |failure: Failure| match code {
        "" => failure,
        code => Failure { code: code.to_owned(), ..failure },
    };
    match outcome {
        Outcome::Retry { failure, after } => Outcome::Retry { failure: with_code(failure), after: wait.or(after) },
        Outcome::Wait { failure, after } => Outcome::Wait { failure: with_code(failure), after: wait.or(after) },
        Outcome::Reject { failure } => Outcome::Reject { failure: with_code(failure) },
        Outcome::Unsure { failure } => Outcome::Unsure { failure: with_code(failure) },
        other => other,
    }
}

/// True if a rule says that the token is not accepted.
pub(super) fn is_token_refusal(response: &HttpResponse, connector: &Connector, own: &[FailureRule]) -> bool {
    if (200..300).contains(&response.status) {
        return false;
    }
    let (code, message) = error_of(connector, &scope(response, None));
    find_rule((connector, own), response.status, &code, &message)
        .is_some_and(|(_, rule)| rule.action == FailureAction::Refresh)
}

/// Result of a read-back with this answer.
pub(super) fn readback(response: &HttpResponse, action: Declared, call: &Call<'_>, host: &str) -> Readback {
    if let Some(rule) = &action.definition().upsert {
        return match upsert::found(response, (action, &[]), rule, call, host) {
            Ok(Some(id)) => Readback::Present(upsert::output(&id, call)),
            Ok(None) => Readback::Absent,
            Err(outcome) => Readback::Unreadable(outcome.failure().cloned().unwrap_or_else(|| {
                Failure::new(FailureClass::Retryable, "unreadable", "The record cannot be looked up.")
            })),
        };
    }
    let Some(rule) = &action.definition().read_back else {
        let message = format!("{} cannot be read back.", action.spec().name);
        return Readback::Unreadable(Failure::new(FailureClass::Mapping, "no-read-back", message));
    };
    let scope = scope(response, Some(call));
    match response.status {
        404 => Readback::Absent,
        200..300 if can_be_read(response, &rule.found, &scope) => match rule.found.holds(&scope) {
            Ok(true) => {
                let result = rule.result.as_ref().and_then(|result| result.render_plain(&scope).ok().flatten());
                Readback::Present(result.unwrap_or_else(|| json!({ "status": response.status })))
            }
            Ok(false) => Readback::Absent,
            Err(problem) => {
                let message = format!("{host} answered the read-back with something else: {problem}");
                Readback::Unreadable(Failure::new(FailureClass::Retryable, "unexpected-response", message))
            }
        },
        _ => {
            let (class, rules) = (EffectClass::Natural, &BY_STATUS);
            let context = ResponseContext { host, class, accept_status: &[], rules, now: call.now };
            let failure = by_status(response, context).failure().cloned();
            Readback::Unreadable(failure.unwrap_or_else(|| {
                let message = format!("{host} answered the read-back incompletely.");
                Failure::new(FailureClass::Retryable, "truncated", message)
            }))
        }
    }
}

/// The rule that decides, with its index if it is one of the connector.
fn find_rule<'c>(
    (connector, own): (&'c Connector, &'c [FailureRule]),
    status: u16,
    code: &str,
    message: &str,
) -> Option<(Option<usize>, &'c FailureRule)> {
    let own = own.iter().map(|rule| (None, rule));
    let shipped = connector.failures.iter().enumerate().map(|(index, rule)| (Some(index), rule));
    own.chain(shipped).find(|(_, rule)| rule.matches(status, code, message))
}

/// Variables of rules: the answer, and the call it answers.
pub(super) fn scope(response: &HttpResponse, call: Option<&Call<'_>>) -> Scope {
    let mut scope = Scope::new();
    scope.set("response", answer(response));
    if let Some(call) = call {
        scope.set("with", call.with.clone());
        scope.set("effect", json!({ "key": call.effect_key }));
    }
    scope
}

/// The provider's code and message; empty if the answer has none.
fn error_of(connector: &Connector, scope: &Scope) -> (String, String) {
    let text = |template: &Option<Template>| {
        let value = template.as_ref().and_then(|template| template.render_plain(scope).ok().flatten());
        match value {
            Some(Value::String(text)) => text,
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        }
    };
    (text(&connector.error.code), text(&connector.error.message))
}

/// The wait that the answer asks for.
fn wait(connector: &Connector, scope: &Scope, now: Time) -> Option<Duration> {
    connector.wait_from.iter().find_map(|source| wait_of(source, scope, now))
}

fn wait_of(source: &WaitSource, scope: &Scope, now: Time) -> Option<Duration> {
    let value = source.value.evaluate(scope).ok().flatten()?;
    let text = match &value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let number = || text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let seconds = match source.unit {
        WaitUnit::RetryAfter => return retry_after::parse(&text, now),
        WaitUnit::Seconds => number()?,
        WaitUnit::Milliseconds => number()? / 1000.0,
        WaitUnit::Epoch => (number()? - now.0 as f64 / 1000.0).max(0.0),
    };
    Some(Duration::from_secs_f64(seconds.min(WAIT_SECONDS_MAX)))
}
