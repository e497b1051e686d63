//! An answer becomes an outcome. Pure.

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::time::Time;

use super::failures::{ErrorAction, ErrorRule, classify, classify_token};
use super::settings::Mode;
use crate::outbound::HttpResponse;
use crate::text::excerpt;

/// More record URLs than this are not named in a message.
const RECORDS_NAMED_MAX: usize = 5;

/// What decides how an answer is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'a> {
    /// Who answered, for messages.
    pub(crate) host: &'a str,
    pub(crate) object: &'a str,
    pub(crate) mode: Mode,
    pub(crate) now: Time,
}

/// One error, in any of the shapes that Salesforce has for it.
#[derive(Debug, Default)]
struct Complaint {
    code: String,
    message: String,
    fields: Vec<String>,
}

impl Complaint {
    fn read(value: &Value) -> Complaint {
        let text = |names: &[&str]| {
            names.iter().find_map(|name| value.get(name).and_then(Value::as_str)).unwrap_or_default().to_owned()
        };
        let fields = value.get("fields").and_then(Value::as_array).into_iter().flatten();
        Complaint {
            code: text(&["errorCode", "statusCode", "error"]),
            message: text(&["message", "error_description"]),
            fields: fields.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }
}

/// What a write or a read brings when it succeeds.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Record {
    #[serde(alias = "Id")]
    id: Option<String>,
    created: Option<bool>,
    success: Option<bool>,
    errors: Vec<Value>,
}

/// What an upsert came to that was answered like this.
pub(crate) fn outcome(answer: &HttpResponse, reading: ResponseContext<'_>) -> Outcome {
    if answer.cut && answer.status < 300 {
        let message =
            format!("{} answered more than is read; the upsert is sent again, which does no harm.", reading.host);
        let failure = Failure::new(FailureClass::Retryable, "too-large", message).with_status(answer.status);
        return Outcome::Retry { failure, after: None };
    }
    let complaint = match (answer.status, answer.body.trim_ascii()) {
        (200 | 201 | 204, b"") => return done(answer, Record::default()),
        (200..300, body) => match serde_json::from_slice::<Record>(body) {
            Ok(record) if record.id.is_some() && record.success != Some(false) => return done(answer, record),
            Ok(record) => record.errors.first().map(Complaint::read).unwrap_or_else(|| raw(body)),
            Err(_) => complaint(body),
        },
        (_, body) => complaint(body),
    };
    let row = classify(answer.status, &complaint.code, &complaint.message);
    let failure = |class| failure(answer, reading.host, &complaint, row, class);
    let asked = answer.retry_after(reading.now);
    match row.verdict {
        ErrorAction::Wait(wait) => {
            Outcome::Wait { failure: failure(FailureClass::Retryable), after: asked.or(Some(wait)) }
        }
        ErrorAction::Retry if answer.status == 503 && asked.is_some() => {
            Outcome::Wait { failure: failure(FailureClass::Retryable), after: asked }
        }
        ErrorAction::Retry => Outcome::Retry { failure: failure(FailureClass::Retryable), after: asked },
        ErrorAction::Conflict => Outcome::Retry { failure: failure(FailureClass::Conflict), after: asked },
        ErrorAction::Reject(class) => Outcome::Reject { failure: failure(class) },
        // A server that fails knows nothing about what is there.
        ErrorAction::Absent if answer.status >= 500 => {
            Outcome::Retry { failure: failure(FailureClass::Retryable), after: asked }
        }
        ErrorAction::Absent if reading.mode == Mode::UpdateOnly => Outcome::Noop {
            reason: format!("There is no {} with this external id, and update_only never creates one.", reading.object),
        },
        ErrorAction::Absent => Outcome::Reject { failure: failure(FailureClass::Permanent) },
        ErrorAction::Refresh => Outcome::Reject { failure: failure(FailureClass::Auth) },
    }
}

/// Whether an answer refuses the token, and not what was asked with it.
pub(crate) fn refuses_token(answer: &HttpResponse) -> bool {
    if (200..300).contains(&answer.status) {
        return false;
    }
    let complaint = complaint(answer.body.trim_ascii());
    classify(answer.status, &complaint.code, &complaint.message).verdict == ErrorAction::Refresh
}

/// What a read by external id found.
pub(crate) fn readback(answer: &HttpResponse, reading: ResponseContext<'_>) -> Readback {
    let body = answer.body.trim_ascii();
    if answer.status == 200
        && let Ok(Record { id: Some(id), .. }) = serde_json::from_slice(body)
    {
        return Readback::Present(json!({"id": id, "created": false}));
    }
    let complaint = complaint(body);
    let row = classify(answer.status, &complaint.code, &complaint.message);
    let failure = |class| failure(answer, reading.host, &complaint, row, class);
    match row.verdict {
        ErrorAction::Absent if answer.status < 500 => Readback::Absent,
        ErrorAction::Absent | ErrorAction::Wait(_) | ErrorAction::Retry => {
            Readback::Unreadable(failure(FailureClass::Retryable))
        }
        ErrorAction::Conflict => Readback::Unreadable(failure(FailureClass::Conflict)),
        ErrorAction::Reject(class) => Readback::Unreadable(failure(class)),
        ErrorAction::Refresh => Readback::Unreadable(failure(FailureClass::Auth)),
    }
}

/// The token that an answer brings, or what its absence means for the effect, which was not sent.
pub(crate) fn token(answer: &HttpResponse, host: &str, now: Time) -> Result<String, Outcome> {
    #[derive(Deserialize)]
    struct Granted {
        access_token: String,
    }
    if answer.status == 200
        && let Ok(granted) = serde_json::from_slice::<Granted>(&answer.body)
    {
        return Ok(granted.access_token);
    }
    // What does not refuse may hold a token in a shape we do not know: it is not quoted.
    let complaint = if answer.status < 300 { Complaint::default() } else { complaint(answer.body.trim_ascii()) };
    let row = classify_token(answer.status, &complaint.code, &complaint.message);
    let asked = answer.retry_after(now);
    let failure = |class| {
        let failure = failure(answer, host, &complaint, row, class);
        Failure { message: format!("No token: {}", failure.message), ..failure }
    };
    Err(match row.verdict {
        ErrorAction::Wait(wait) => {
            Outcome::Wait { failure: failure(FailureClass::Retryable), after: asked.or(Some(wait)) }
        }
        ErrorAction::Retry => Outcome::Retry { failure: failure(FailureClass::Retryable), after: asked },
        ErrorAction::Conflict | ErrorAction::Absent => {
            Outcome::Retry { failure: failure(FailureClass::Conflict), after: asked }
        }
        ErrorAction::Reject(class) => Outcome::Reject { failure: failure(class) },
        ErrorAction::Refresh => Outcome::Reject { failure: failure(FailureClass::Auth) },
    })
}

fn done(answer: &HttpResponse, record: Record) -> Outcome {
    let created = record.created.unwrap_or(answer.status == 201);
    Outcome::Done { result: json!({"id": record.id, "created": created}) }
}

/// The first error in a body. One that has no known shape is its own message.
fn complaint(body: &[u8]) -> Complaint {
    let parsed = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let found = match &parsed {
        Value::Array(items) if items.first().is_some_and(Value::is_string) => return several(items),
        Value::Array(items) => items.first(),
        other => Some(other),
    };
    found
        .map(Complaint::read)
        .filter(|complaint| !complaint.code.is_empty() || !complaint.message.is_empty())
        .unwrap_or_else(|| raw(body))
}

fn raw(body: &[u8]) -> Complaint {
    Complaint { message: String::from_utf8_lossy(body).into_owned(), ..Complaint::default() }
}

/// The records that share an external id.
fn several(urls: &[Value]) -> Complaint {
    let named: Vec<&str> = urls.iter().filter_map(Value::as_str).take(RECORDS_NAMED_MAX).collect();
    let more = urls.len().saturating_sub(named.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Complaint { message: format!("{}{more}", named.join(" ")), ..Complaint::default() }
}

fn failure(answer: &HttpResponse, host: &str, complaint: &Complaint, row: &ErrorRule, class: FailureClass) -> Failure {
    let code = if complaint.code.is_empty() { format!("http-{}", answer.status) } else { complaint.code.clone() };
    let said = excerpt(complaint.message.as_bytes());
    let colon = if said.is_empty() { "." } else { ": " };
    let fields =
        if complaint.fields.is_empty() { String::new() } else { format!(", fields {}", complaint.fields.join(" ")) };
    let message = format!("{host} answered {code} (status {}{fields}): {}{colon}{said}", answer.status, row.advice);
    Failure::new(class, code, message).with_status(answer.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderMap, HeaderName, HeaderValue};

    /// Recorded answers and what each comes to, one a line.
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
        update_only: bool,
        expect: String,
        #[serde(default)]
        message: Vec<String>,
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
                let answer = HttpResponse { status: recorded.status, headers, body: body.into(), cut: false };
                (recorded, answer)
            })
            .collect()
    }

    fn reading(mode: Mode) -> ResponseContext<'static> {
        ResponseContext { host: "acme", object: "Lead", mode, now: Time::parse("2026-03-01T12:00:00Z").unwrap() }
    }

    /// `outcome`, class, code, seconds to wait.
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
    fn every_recorded_upsert_comes_to_what_it_means() {
        for (recorded, answer) in recorded(UPSERTS) {
            let mode = if recorded.update_only { Mode::UpdateOnly } else { Mode::Upsert };
            let outcome = outcome(&answer, reading(mode));
            let refresh = if refuses_token(&answer) { "refresh, then " } else { "" };
            let message = outcome.failure().map_or("", |failure| &failure.message);
            check(&recorded, &format!("{refresh}{}", brief(&outcome)), message);
        }
    }

    #[test]
    fn every_recorded_read_comes_to_what_it_means() {
        for (recorded, answer) in recorded(READS) {
            let found = match readback(&answer, reading(Mode::Upsert)) {
                Readback::Present(value) => format!("present {value}"),
                Readback::Absent => "absent".to_owned(),
                Readback::Unreadable(failure) => format!("unreadable {} {}", failure.class.as_str(), failure.code),
            };
            check(&recorded, &found, "");
        }
    }

    #[test]
    fn every_recorded_token_answer_comes_to_what_it_means() {
        for (recorded, answer) in recorded(TOKENS) {
            match token(&answer, "acme", reading(Mode::Upsert).now) {
                Ok(token) => check(&recorded, &format!("token {token}"), ""),
                Err(outcome) => check(&recorded, &brief(&outcome), &outcome.failure().unwrap().message),
            }
        }
    }
}
