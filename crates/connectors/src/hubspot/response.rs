//! Maps responses to outcomes. Pure.

use std::sync::LazyLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluice_domain::failure_rules::{FailureAction, FailureRule, FailureTable, RuleCall};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::time::Time;

use super::settings::{AssociateSettings, Mode, OnAbsent, Settings};
use crate::batch::BatchOutcome;
use crate::failures::MatchedFailure;
use crate::outbound::HttpResponse;
use crate::quota::Quota;
use crate::text::excerpt;
use crate::token::Grant;

/// Rules of this connector.
pub(crate) static SHIPPED_RULES: LazyLock<FailureTable> =
    LazyLock::new(|| FailureTable::parse(include_str!("failures.json")).expect("the table is valid: a test reads it"));

/// Maximum details of an error in a message.
const DETAILS_MAX: usize = 5;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'a> {
    /// For messages.
    pub(crate) host: &'a str,
    pub(crate) rules: &'a FailureTable,
    pub(crate) now: Time,
}

/// Response to a create.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Settled(Outcome),
    /// The record exists; its id, if the response names it.
    Exists(Option<String>),
}

/// One error. Every field is optional in HubSpot's description.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ApiError {
    category: String,
    message: String,
    /// Of a 429.
    policy_name: String,
    /// OAuth: `BAD_REFRESH_TOKEN`, or the standard member.
    status: String,
    error: String,
    errors: Vec<ErrorDetail>,
    context: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorDetail {
    message: String,
    code: String,
}

impl ApiError {
    /// Error of a response; a body of unknown format becomes the message.
    fn read(body: &[u8]) -> ApiError {
        match serde_json::from_slice::<ApiError>(body) {
            Ok(error) if !error.message.is_empty() || !error.code().is_empty() => error,
            _ => ApiError::raw(body),
        }
    }

    /// A successful response that does not say what was expected.
    fn raw(body: &[u8]) -> ApiError {
        ApiError { message: String::from_utf8_lossy(body).into_owned(), ..ApiError::default() }
    }

    /// The provider's code: the policy of a limit, else the category.
    fn code(&self) -> &str {
        let standing = if self.status == "error" { "" } else { &self.status };
        let codes = [&self.policy_name, &self.category, &self.error];
        codes.into_iter().map(String::as_str).find(|code| !code.is_empty()).unwrap_or(standing)
    }

    /// The message with its details.
    fn text(&self) -> String {
        let mut text = self.message.clone();
        for detail in self.errors.iter().take(DETAILS_MAX).filter(|detail| !self.message.contains(&detail.message)) {
            text = format!("{text} {} {}", detail.code, detail.message);
        }
        text
    }

    /// Values of a member of the context.
    fn context(&self, names: [&str; 2]) -> impl Iterator<Item = &str> {
        let found = names.into_iter().filter_map(|name| self.context.get(name));
        found.filter_map(Value::as_array).flatten().filter_map(Value::as_str)
    }
}

/// A record in a response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Record {
    id: Option<String>,
    new: Option<bool>,
    properties: Map<String, Value>,
    #[serde(rename = "objectWriteTraceId")]
    trace_id: Option<String>,
}

/// Response to a batch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BatchAnswer {
    results: Vec<Record>,
    errors: Vec<ApiError>,
}

/// Outcome of an update with this response.
pub(crate) fn outcome(response: &HttpResponse, mode: Mode, object: &str, context: ResponseContext<'_>) -> Outcome {
    let error = match record(response) {
        Ok(record) => return done(record, false),
        Err(error) => error,
    };
    let failed = Failed { response, error: &error, context };
    match (failed.rule().action, mode) {
        (FailureAction::Absent, Mode::UpdateOnly(on_absent)) if response.status < 500 => {
            absent(on_absent, response.status, object)
        }
        _ => failed.outcome(),
    }
}

/// Outcome of a create, or the id of the record that exists already.
pub(crate) fn created(response: &HttpResponse, context: ResponseContext<'_>) -> Answer {
    let error = match record(response) {
        Ok(record) => return Answer::Settled(done(record, response.status == 201)),
        Err(error) => error,
    };
    let failed = Failed { response, error: &error, context };
    match failed.rule().action {
        FailureAction::Convert if response.status < 500 => Answer::Exists(existing_id(&error.message)),
        _ => Answer::Settled(failed.outcome()),
    }
}

/// Outcome of the update that follows a create of an existing record. If that record is gone again, the next attempt creates it.
pub(crate) fn converted(response: &HttpResponse, settings: &Settings<'_>, context: ResponseContext<'_>) -> Outcome {
    let error = match record(response) {
        Ok(record) => return done(record, false),
        Err(error) => error,
    };
    let failed = Failed { response, error: &error, context };
    match failed.rule().action {
        FailureAction::Absent if response.status < 500 => {
            let message = format!(
                "{} named a record that exists, and does not find it: another record may hold a unique value of this one, or `{}` was changed.",
                context.host, settings.id_property
            );
            let failure = Failure::new(FailureClass::Conflict, "record-absent", message).with_status(response.status);
            Outcome::Retry { failure, after: None }
        }
        _ => failed.outcome(),
    }
}

/// Outcome of an upsert that was sent alone.
pub(crate) fn upserted(
    response: &HttpResponse,
    record: (&Settings<'_>, &str),
    context: ResponseContext<'_>,
) -> Outcome {
    match batch(response, &[record], context) {
        BatchOutcome::Whole(outcome) => outcome,
        BatchOutcome::Each(outcomes) => outcomes.into_iter().next().unwrap_or_else(|| unanswered(response, context)),
    }
}

/// Outcomes of the records of one call, in their order. Results and errors are found by trace id, else by the value of the id
/// property: HubSpot does not promise an order.
pub(crate) fn batch(
    response: &HttpResponse,
    records: &[(&Settings<'_>, &str)],
    context: ResponseContext<'_>,
) -> BatchOutcome {
    if response.truncated && response.status < 300 && records.len() > 1 {
        let message = format!("The response of {} is too large.", context.host);
        let failure = Failure::new(FailureClass::Permanent, "too-large", message).with_status(response.status);
        // Upserts are idempotent: each is sent again, alone. Together they would have the same response.
        return BatchOutcome::Whole(Outcome::Reject { failure });
    }
    let answer = match response.status {
        200..300 if !response.truncated => serde_json::from_slice::<BatchAnswer>(&response.body).ok(),
        _ => None,
    };
    let Some(answer) = answer.filter(|answer| !answer.results.is_empty() || !answer.errors.is_empty()) else {
        return BatchOutcome::Whole(unanswered(response, context));
    };
    // The only answer to the only record can be of no other.
    let (lone_result, lone_error) = match (records, answer.results.as_slice(), answer.errors.as_slice()) {
        ([_], [result], []) => (Some(result), None),
        ([_], [], [error]) => (None, Some(error)),
        _ => (None, None),
    };
    let outcome_of = |(settings, trace_id): &(&Settings<'_>, &str)| {
        let result = answer.results.iter().find(|record| record.is_of(settings, trace_id)).or(lone_result);
        if let Some(record) = result.filter(|record| record.id.is_some()) {
            return Outcome::Done { result: json!({"id": record.id, "created": record.new.unwrap_or(false)}) };
        }
        let error = answer.errors.iter().find(|error| error.is_of(settings, trace_id)).or(lone_error);
        match error {
            Some(error) => Failed { response: &as_single(response, error), error, context }.outcome(),
            None => unanswered(response, context),
        }
    };
    BatchOutcome::Each(records.iter().map(outcome_of).collect())
}

impl Record {
    fn is_of(&self, settings: &Settings<'_>, trace_id: &str) -> bool {
        match &self.trace_id {
            Some(found) => found == trace_id,
            None => {
                let value = self.properties.get(&*settings.id_property).and_then(Value::as_str);
                value.is_some_and(|value| value.eq_ignore_ascii_case(&settings.id))
            }
        }
    }
}

impl ApiError {
    fn is_of(&self, settings: &Settings<'_>, trace_id: &str) -> bool {
        self.context(["objectWriteTraceId", "objectWriteTraceIds"]).any(|found| found == trace_id)
            || self.context(["ids", "id"]).any(|found| found.eq_ignore_ascii_case(&settings.id))
    }
}

/// The response that a call of this record alone would have had: the error of a record in a 207 has no status of its own.
fn as_single(response: &HttpResponse, error: &ApiError) -> HttpResponse {
    let status = match error.category.as_str() {
        "CONFLICT" => 409,
        "OBJECT_NOT_FOUND" => 404,
        "RATE_LIMITS" => 429,
        "MISSING_SCOPES" => 403,
        _ => 400,
    };
    HttpResponse { status, ..response.clone() }
}

/// Outcome of a record that the response says nothing about. Upserts may be sent again.
fn unanswered(response: &HttpResponse, context: ResponseContext<'_>) -> Outcome {
    let body = response.body.trim_ascii();
    let error = if response.status < 300 { ApiError::raw(body) } else { ApiError::read(body) };
    Failed { response, error: &error, context }.outcome()
}

pub(crate) fn associated(
    response: &HttpResponse,
    settings: &AssociateSettings<'_>,
    context: ResponseContext<'_>,
) -> Outcome {
    match response.status {
        200..300 => Outcome::Done { result: json!({"from": settings.from, "to": settings.to}) },
        _ => {
            let error = ApiError::read(response.body.trim_ascii());
            let failed = Failed { response, error: &error, context };
            match failed.rule().action {
                FailureAction::Absent if response.status < 500 => {
                    Outcome::Reject { failure: failed.failure(FailureClass::Identity) }
                }
                _ => failed.outcome(),
            }
        }
    }
}

/// True if the response refuses the token rather than the request.
pub(crate) fn is_token_refusal(response: &HttpResponse, rules: &FailureTable) -> bool {
    if (200..300).contains(&response.status) {
        return false;
    }
    let error = ApiError::read(response.body.trim_ascii());
    find(rules, RuleCall::Effect, response.status, &error).action == FailureAction::Refresh
}

/// Use of the account's daily limit. Not reported to OAuth apps.
pub(crate) fn quota(response: &HttpResponse) -> Option<Quota> {
    let number = |name: &str| response.headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let limit = number("x-hubspot-ratelimit-daily")?;
    Some(Quota { used: limit.saturating_sub(number("x-hubspot-ratelimit-daily-remaining")?), limit })
}

/// Result of a read by the id property: present if the record has these values.
pub(crate) fn readback(response: &HttpResponse, settings: &Settings<'_>, context: ResponseContext<'_>) -> Readback {
    match record(response) {
        Ok(record) => {
            let stored = |name: &str| record.properties.get(name).and_then(Value::as_str).unwrap_or_default();
            let is_written = |(name, value): &(&str, std::borrow::Cow<'_, str>)| is_same(name, stored(name), value);
            match settings.properties.iter().all(is_written) {
                true => Readback::Present(json!({"id": record.id, "created": false})),
                false => Readback::Absent,
            }
        }
        Err(error) => {
            let failed = Failed { response, error: &error, context };
            failed.matched().readback(|class| failed.failure(class))
        }
    }
}

/// Whether a property holds the written text. HubSpot trims text and lowers email addresses. A value in a form that is not
/// recognised counts as different: writing it again does no harm.
fn is_same(name: &str, stored: &str, written: &str) -> bool {
    let (stored, written) = (stored.trim(), written.trim());
    stored == written
        || (name.contains("email") && stored.eq_ignore_ascii_case(written))
        || matches!((stored.parse::<f64>(), written.parse::<f64>()), (Ok(stored), Ok(written)) if stored == written)
}

/// Tokens of the response; the error is the outcome of the effect, which was not sent.
pub(crate) fn grant(response: &HttpResponse, host: &str, now: Time) -> Result<Grant, Outcome> {
    #[derive(Deserialize)]
    struct TokenGrant {
        access_token: String,
        refresh_token: Option<String>,
        expires_in: Option<u64>,
    }
    if response.status == 200
        && let Ok(granted) = serde_json::from_slice::<TokenGrant>(&response.body)
    {
        let expires_in = granted.expires_in.map(Duration::from_secs);
        return Ok(Grant { access_token: granted.access_token, refresh_token: granted.refresh_token, expires_in });
    }
    // A 2xx body may hold a token in an unknown format: it is not quoted.
    let error = match response.status < 300 {
        true => ApiError::default(),
        false => ApiError::read(response.body.trim_ascii()),
    };
    let rule = find(&SHIPPED_RULES, RuleCall::Token, response.status, &error);
    let matched = MatchedFailure { rule, status: response.status, requested_wait: response.retry_after(now) };
    Err(matched.outcome(|class| {
        let failure = failure(response.status, host, &error, rule, class);
        Failure { message: format!("No token: {}", failure.message), ..failure }
    }))
}

/// An error response to a call.
struct Failed<'a> {
    response: &'a HttpResponse,
    error: &'a ApiError,
    context: ResponseContext<'a>,
}

impl<'a> Failed<'a> {
    fn rule(&self) -> &'a FailureRule {
        find(self.context.rules, RuleCall::Effect, self.response.status, self.error)
    }

    fn matched(&self) -> MatchedFailure<'a> {
        let requested_wait = self.response.retry_after(self.context.now);
        MatchedFailure { rule: self.rule(), status: self.response.status, requested_wait }
    }

    fn failure(&self, class: FailureClass) -> Failure {
        failure(self.response.status, self.context.host, self.error, self.rule(), class)
    }

    fn outcome(&self) -> Outcome {
        if self.response.truncated && self.response.status < 300 {
            let host = self.context.host;
            let message = format!("The response of {host} is too large. The write is idempotent and is sent again.");
            let failure = Failure::new(FailureClass::Retryable, "too-large", message);
            return Outcome::Retry { failure: failure.with_status(self.response.status), after: None };
        }
        self.matched().outcome(|class| self.failure(class))
    }
}

fn find<'a>(rules: &'a FailureTable, call: RuleCall, status: u16, error: &ApiError) -> &'a FailureRule {
    rules.find(call, status, error.code(), &error.text()).expect("the last shipped rule matches everything")
}

/// Record of a successful response, or its error.
fn record(response: &HttpResponse) -> Result<Record, Box<ApiError>> {
    let body = response.body.trim_ascii();
    match response.status {
        200..300 => match serde_json::from_slice::<Record>(body) {
            Ok(record) if record.id.is_some() => Ok(record),
            _ => Err(Box::new(ApiError::raw(body))),
        },
        _ => Err(Box::new(ApiError::read(body))),
    }
}

fn done(record: Record, created: bool) -> Outcome {
    Outcome::Done { result: json!({"id": record.id, "created": record.new.unwrap_or(created)}) }
}

/// Outcome of an update without a record.
fn absent(on_absent: OnAbsent, status: u16, object: &str) -> Outcome {
    let reason = format!("No record of {object} has this id, and it is not created.");
    match on_absent {
        OnAbsent::Noop => Outcome::Noop { reason },
        OnAbsent::DeadLetter => {
            let advice = "Replay the job once the record exists, or set `on_absent` to noop or create.";
            let failure = Failure::new(FailureClass::Identity, "record-absent", format!("{reason} {advice}"));
            Outcome::Reject { failure: failure.with_status(status) }
        }
    }
}

/// Number after `Existing ID:`.
fn existing_id(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("Existing ID:")?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    Some(digits).filter(|digits| !digits.is_empty())
}

fn failure(status: u16, host: &str, error: &ApiError, rule: &FailureRule, class: FailureClass) -> Failure {
    let code = match error.code() {
        "" => format!("http-{status}"),
        code => code.to_owned(),
    };
    let quoted = excerpt(error.text().as_bytes());
    let separator = if quoted.is_empty() { "." } else { ": " };
    let message = format!("{host} returned {code} (status {status}): {}{separator}{quoted}", rule.advice);
    Failure::new(class, code, message).with_status(status)
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
