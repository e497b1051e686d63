//! Maps responses to outcomes. Pure.

use std::sync::LazyLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluice_domain::failure_rules::{FailureAction, FailureRule, FailureTable, RuleCall};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::time::Time;

use super::settings::{Mode, OnAbsent};
use crate::batch::BatchOutcome;
use crate::failures::MatchedFailure;
use crate::outbound::HttpResponse;
use crate::quota::Quota;
use crate::text::excerpt;
use crate::token::Grant;

/// Rules of this connector. The error code decides before the status: different Salesforce subsystems return the same code
/// with different statuses.
pub(crate) static SHIPPED_RULES: LazyLock<FailureTable> =
    LazyLock::new(|| FailureTable::parse(include_str!("failures.json")).expect("the table is valid: a test reads it"));

/// Status with which Salesforce answers a record alone that has such an error.
const RECORD_ERROR_STATUS: u16 = 400;
/// Maximum record URLs in a message.
const RECORDS_NAMED_MAX: usize = 5;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'a> {
    /// For messages.
    pub(crate) host: &'a str,
    pub(crate) object: &'a str,
    pub(crate) mode: Mode,
    pub(crate) rules: &'a FailureTable,
    pub(crate) now: Time,
}

/// One error, in any of Salesforce's formats.
#[derive(Debug, Default)]
struct ApiError {
    code: String,
    message: String,
    fields: Vec<String>,
}

impl ApiError {
    fn read(value: &Value) -> ApiError {
        let text = |names: &[&str]| {
            names.iter().find_map(|name| value.get(name).and_then(Value::as_str)).unwrap_or_default().to_owned()
        };
        let fields = value.get("fields").and_then(Value::as_array).into_iter().flatten();
        ApiError {
            code: text(&["errorCode", "statusCode", "error"]),
            message: text(&["message", "error_description"]),
            fields: fields.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }
}

/// Body of a successful write or read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Record {
    #[serde(alias = "Id")]
    id: Option<String>,
    created: Option<bool>,
    success: Option<bool>,
    errors: Vec<Value>,
}

/// Outcome of an upsert with this response.
pub(crate) fn outcome(response: &HttpResponse, context: ResponseContext<'_>) -> Outcome {
    if response.truncated && response.status < 300 {
        let message =
            format!("The response of {} is too large. The upsert is idempotent and is sent again.", context.host);
        let failure = Failure::new(FailureClass::Retryable, "too-large", message).with_status(response.status);
        return Outcome::Retry { failure, after: None };
    }
    let api_error = match (response.status, response.body.trim_ascii()) {
        (200 | 201 | 204, b"") => return done(response, Record::default()),
        (200..300, body) => match serde_json::from_slice::<Record>(body) {
            Ok(record) if record.id.is_some() && record.success != Some(false) => return done(response, record),
            Ok(record) => record.errors.first().map(ApiError::read).unwrap_or_else(|| raw(body)),
            Err(_) => api_error(body),
        },
        (_, body) => api_error(body),
    };
    failed(response.status, &api_error, response.retry_after(context.now), context)
}

/// Outcomes of a collection: one result for each record, in their order. A result is classified as the answer to its record alone
/// would be.
pub(crate) fn batch(response: &HttpResponse, context: ResponseContext<'_>) -> BatchOutcome {
    if response.truncated && response.status < 300 {
        let message = format!("The response of {} is too large.", context.host);
        let failure = Failure::new(FailureClass::Permanent, "too-large", message).with_status(response.status);
        // Upserts are idempotent: each is sent again, alone.
        return BatchOutcome::Whole(Outcome::Reject { failure });
    }
    match serde_json::from_slice::<Vec<Record>>(&response.body) {
        Ok(records) if response.status == 200 => {
            BatchOutcome::Each(records.into_iter().map(|record| result(record, context)).collect())
        }
        _ => {
            let api_error = api_error(response.body.trim_ascii());
            let after = response.retry_after(context.now);
            BatchOutcome::Whole(failed(response.status, &api_error, after, context))
        }
    }
}

/// Outcome of one record of a collection.
fn result(record: Record, context: ResponseContext<'_>) -> Outcome {
    if record.id.is_some() && record.success != Some(false) {
        return Outcome::Done { result: json!({"id": record.id, "created": record.created.unwrap_or_default()}) };
    }
    let api_error = record.errors.first().map(ApiError::read).unwrap_or_default();
    failed(RECORD_ERROR_STATUS, &api_error, None, context)
}

fn failed(
    status: u16,
    api_error: &ApiError,
    requested_wait: Option<Duration>,
    context: ResponseContext<'_>,
) -> Outcome {
    let rule = find(context.rules, RuleCall::Effect, status, api_error);
    let failure = |class| failure(status, context.host, api_error, rule, class);
    match (rule.action, context.mode) {
        (FailureAction::Absent, Mode::UpdateOnly(on_absent)) if status < 500 => absent(on_absent, status, context),
        // The next upsert by this external id is an update.
        (FailureAction::Convert, _) => Outcome::Retry { failure: failure(FailureClass::Conflict), after: None },
        _ => MatchedFailure { rule, status, requested_wait }.outcome(failure),
    }
}

fn find<'a>(rules: &'a FailureTable, call: RuleCall, status: u16, error: &ApiError) -> &'a FailureRule {
    rules.find(call, status, &error.code, &error.message).expect("the last shipped rule matches everything")
}

/// Outcome of an update without a record.
fn absent(on_absent: OnAbsent, status: u16, context: ResponseContext<'_>) -> Outcome {
    let reason = format!("No {} has this external id, and update_only does not create one.", context.object);
    match on_absent {
        OnAbsent::Noop => Outcome::Noop { reason },
        OnAbsent::DeadLetter => {
            let advice = "Replay the job once the record exists, or set `on_absent` to noop or create.";
            let failure = Failure::new(FailureClass::Identity, "record-absent", format!("{reason} {advice}"));
            Outcome::Reject { failure: failure.with_status(status) }
        }
    }
}

/// True if the response refuses the token rather than the request.
pub(crate) fn is_token_refusal(response: &HttpResponse, rules: &FailureTable) -> bool {
    if (200..300).contains(&response.status) {
        return false;
    }
    let api_error = api_error(response.body.trim_ascii());
    find(rules, RuleCall::Effect, response.status, &api_error).action == FailureAction::Refresh
}

/// Use of the organisation's rolling 24-hour limit, from `Sforce-Limit-Info: api-usage=18/15000`.
pub(crate) fn quota(response: &HttpResponse) -> Option<Quota> {
    let info = response.headers.get("sforce-limit-info")?.to_str().ok()?;
    let usage = info.split([',', ';']).find_map(|part| part.trim().strip_prefix("api-usage="))?;
    let (used, limit) = usage.split_once('/')?;
    Some(Quota { used: used.trim().parse().ok()?, limit: limit.trim().parse().ok()? })
}

/// Result of a read by external id: present if the record has these values.
pub(crate) fn readback(
    response: &HttpResponse,
    written: &Map<String, Value>,
    context: ResponseContext<'_>,
) -> Readback {
    let body = response.body.trim_ascii();
    if response.status == 200
        && let Ok(Record { id: Some(id), .. }) = serde_json::from_slice(body)
    {
        let found = serde_json::from_slice::<Map<String, Value>>(body).unwrap_or_default();
        return match written.iter().all(|(name, value)| is_written(&found, name, value)) {
            true => Readback::Present(json!({"id": id, "created": false})),
            false => Readback::Absent,
        };
    }
    let api_error = api_error(body);
    let rule = find(context.rules, RuleCall::Effect, response.status, &api_error);
    let matched = MatchedFailure { rule, status: response.status, requested_wait: None };
    matched.readback(|class| failure(response.status, context.host, &api_error, rule, class))
}

/// Whether a record has the value that was written. Field names ignore case. Salesforce stores empty text as null, trims text
/// and shows numbers as it likes. A value in a form that is not recognised counts as different: writing it again does no harm.
fn is_written(found: &Map<String, Value>, name: &str, value: &Value) -> bool {
    let named = || found.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let stored = found.get(name).or_else(named).unwrap_or(&Value::Null);
    let is_empty = |value: &Value| value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty());
    match (stored, value) {
        _ if is_empty(stored) && is_empty(value) => true,
        (Value::String(stored), Value::String(value)) => stored.trim() == value.trim(),
        (Value::Number(stored), Value::Number(value)) => stored.as_f64() == value.as_f64(),
        (stored, value) => stored == value,
    }
}

/// Access token of the response; the error is the outcome of the effect, which was not sent.
pub(crate) fn grant(response: &HttpResponse, host: &str, now: Time) -> Result<Grant, Outcome> {
    #[derive(Deserialize)]
    struct TokenGrant {
        access_token: String,
    }
    if response.status == 200
        && let Ok(granted) = serde_json::from_slice::<TokenGrant>(&response.body)
    {
        // Salesforce does not report how long it is valid.
        return Ok(Grant { access_token: granted.access_token, refresh_token: None, expires_in: None });
    }
    // A 2xx body may hold a token in an unknown format: it is not quoted.
    let api_error = if response.status < 300 { ApiError::default() } else { api_error(response.body.trim_ascii()) };
    let rule = find(&SHIPPED_RULES, RuleCall::Token, response.status, &api_error);
    let matched = MatchedFailure { rule, status: response.status, requested_wait: response.retry_after(now) };
    Err(matched.outcome(|class| {
        let failure = failure(response.status, host, &api_error, rule, class);
        Failure { message: format!("No token: {}", failure.message), ..failure }
    }))
}

fn done(response: &HttpResponse, record: Record) -> Outcome {
    let created = record.created.unwrap_or(response.status == 201);
    Outcome::Done { result: json!({"id": record.id, "created": created}) }
}

/// First error in a body; a body of unknown format becomes the message.
fn api_error(body: &[u8]) -> ApiError {
    let parsed = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let found = match &parsed {
        Value::Array(items) if items.first().is_some_and(Value::is_string) => return ambiguous(items),
        Value::Array(items) => items.first(),
        other => Some(other),
    };
    found
        .map(ApiError::read)
        .filter(|api_error| !api_error.code.is_empty() || !api_error.message.is_empty())
        .unwrap_or_else(|| raw(body))
}

fn raw(body: &[u8]) -> ApiError {
    ApiError { message: String::from_utf8_lossy(body).into_owned(), ..ApiError::default() }
}

/// Records that share an external id.
fn ambiguous(urls: &[Value]) -> ApiError {
    let named: Vec<&str> = urls.iter().filter_map(Value::as_str).take(RECORDS_NAMED_MAX).collect();
    let more = urls.len().saturating_sub(named.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    ApiError { message: format!("{}{more}", named.join(" ")), ..ApiError::default() }
}

fn failure(status: u16, host: &str, api_error: &ApiError, rule: &FailureRule, class: FailureClass) -> Failure {
    let code = if api_error.code.is_empty() { format!("http-{status}") } else { api_error.code.clone() };
    let quoted = excerpt(api_error.message.as_bytes());
    let separator = if quoted.is_empty() { "." } else { ": " };
    let fields =
        if api_error.fields.is_empty() { String::new() } else { format!(", fields {}", api_error.fields.join(" ")) };
    let message = format!("{host} returned {code} (status {status}{fields}): {}{separator}{quoted}", rule.advice);
    Failure::new(class, code, message).with_status(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderMap, HeaderName, HeaderValue};

    /// Recorded responses with the expected outcome, one per line.
    const UPSERTS: &str = include_str!("../../tests/data/salesforce_upsert.jsonl");
    const READS: &str = include_str!("../../tests/data/salesforce_read.jsonl");
    const TOKENS: &str = include_str!("../../tests/data/salesforce_token.jsonl");

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Recorded {
        status: u16,
        #[serde(default)]
        headers: Vec<(String, String)>,
        body: Value,
        #[serde(default)]
        written: Option<Map<String, Value>>,
        /// Of an update; an upsert without it.
        on_absent: Option<RecordedOnAbsent>,
        expect: String,
        #[serde(default)]
        message: Vec<String>,
    }

    #[derive(Clone, Copy, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum RecordedOnAbsent {
        DeadLetter,
        Noop,
    }

    impl From<RecordedOnAbsent> for OnAbsent {
        fn from(recorded: RecordedOnAbsent) -> OnAbsent {
            match recorded {
                RecordedOnAbsent::DeadLetter => OnAbsent::DeadLetter,
                RecordedOnAbsent::Noop => OnAbsent::Noop,
            }
        }
    }

    fn recorded(lines: &str) -> Vec<(Recorded, HttpResponse)> {
        let lines = lines.lines().filter(|line| !line.trim().is_empty());
        lines
            .map(|line| {
                let recorded: Recorded = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
                let body = match &recorded.body {
                    Value::String(text) => text.clone(),
                    Value::Null => String::new(),
                    json => json.to_string(),
                };
                let headers: HeaderMap = recorded
                    .headers
                    .iter()
                    .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap()))
                    .collect();
                let response = HttpResponse { status: recorded.status, headers, body: body.into(), truncated: false };
                (recorded, response)
            })
            .collect()
    }

    fn context(mode: Mode) -> ResponseContext<'static> {
        let now = Time::parse("2026-03-01T12:00:00Z").unwrap();
        ResponseContext { host: "acme", object: "Lead", mode, rules: &SHIPPED_RULES, now }
    }

    /// Outcome, class, code, wait in seconds.
    fn brief(outcome: &Outcome) -> String {
        let after = match outcome {
            Outcome::Done { result } => return format!("done {result}"),
            Outcome::Retry { after, .. } | Outcome::Wait { after, .. } => *after,
            _ => None,
        };
        let failure = outcome.failure().map_or_else(String::new, |f| format!(" {} {}", f.class.as_str(), f.code));
        let after = after.map_or_else(String::new, |after| format!(" {}s", after.as_secs()));
        format!("{}{failure}{after}", outcome.as_str())
    }

    fn check(recorded: &Recorded, found: &str, message: &str) {
        let body = &recorded.body;
        assert_eq!(found, recorded.expect, "{} {body}", recorded.status);
        for part in &recorded.message {
            assert!(message.contains(part), "`{part}` is not in `{message}`");
        }
        assert!(message.chars().count() < 700, "{message}");
    }

    #[test]
    fn recorded_upserts_map_to_outcomes() {
        for (recorded, response) in recorded(UPSERTS) {
            let mode = recorded.on_absent.map_or(Mode::Upsert, |on_absent| Mode::UpdateOnly(on_absent.into()));
            let outcome = outcome(&response, context(mode));
            let refresh = if is_token_refusal(&response, &SHIPPED_RULES) { "refresh, then " } else { "" };
            let message = outcome.failure().map_or("", |failure| &failure.message);
            check(&recorded, &format!("{refresh}{}", brief(&outcome)), message);
        }
    }

    #[test]
    fn recorded_reads_map_to_read_backs() {
        for (recorded, response) in recorded(READS) {
            let written = recorded.written.clone().unwrap_or_default();
            let found = match readback(&response, &written, context(Mode::Upsert)) {
                Readback::Present(value) => format!("present {value}"),
                Readback::Absent => "absent".to_owned(),
                Readback::Unreadable(failure) => format!("unreadable {} {}", failure.class.as_str(), failure.code),
            };
            check(&recorded, &found, "");
        }
    }

    #[test]
    fn recorded_token_responses_map_to_outcomes() {
        for (recorded, response) in recorded(TOKENS) {
            match grant(&response, "acme", context(Mode::Upsert).now) {
                Ok(granted) => check(&recorded, &format!("token {}", granted.access_token), ""),
                Err(outcome) => check(&recorded, &brief(&outcome), &outcome.failure().unwrap().message),
            }
        }
    }

    #[test]
    fn every_rule_is_covered_by_a_recorded_response() {
        let error_of = |response: &HttpResponse| match serde_json::from_slice::<Record>(&response.body) {
            Ok(record) if !record.errors.is_empty() => ApiError::read(&record.errors[0]),
            _ => api_error(response.body.trim_ascii()),
        };
        let hits = |lines: &str, call| {
            let responses = recorded(lines);
            let found =
                responses.iter().map(|(_, response)| find(&SHIPPED_RULES, call, response.status, &error_of(response)));
            found.cloned().collect::<Vec<_>>()
        };
        let mut covered = hits(UPSERTS, RuleCall::Effect);
        covered.extend(hits(TOKENS, RuleCall::Token));
        let missing: Vec<_> = SHIPPED_RULES.rules().filter(|(rule, _)| !covered.contains(rule)).collect();
        assert!(missing.is_empty(), "{missing:#?}");
    }

    #[test]
    fn limit_header_is_read_in_every_form() {
        let read = |text: &'static str| {
            let headers =
                HeaderMap::from_iter([(HeaderName::from_static("sforce-limit-info"), HeaderValue::from_static(text))]);
            quota(&HttpResponse { status: 200, headers, body: "".into(), truncated: false })
        };
        let expected = Some(Quota { used: 18, limit: 15_000 });
        assert_eq!(read("api-usage=18/15000"), expected);
        assert_eq!(read("api-usage=18/15000; per-app-api-usage=17/250(appName=sluice)"), expected);
        assert_eq!(read("per-app-api-usage=17/250(appName=sluice), api-usage=18/15000"), expected);
        assert_eq!(read("api-usage=many"), None);
    }
}
