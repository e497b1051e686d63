//! An answer becomes an outcome. Pure.

use hyper::header::{CONTENT_TYPE, DATE, ETAG, HeaderName, LAST_MODIFIED, LINK, LOCATION};
use serde_json::{Map, Value};
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome, Readback};
use sluice_domain::time::Time;

use crate::outbound::HttpResponse;
use crate::text::excerpt;

/// The headers of an answer that a later step may use.
static KEPT_HEADERS: [HeaderName; 8] = [
    CONTENT_TYPE,
    DATE,
    ETAG,
    LAST_MODIFIED,
    LINK,
    LOCATION,
    HeaderName::from_static("request-id"),
    HeaderName::from_static("x-request-id"),
];

/// What decides how an answer is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'a> {
    /// Who answered, for messages.
    pub(crate) host: &'a str,
    pub(crate) class: EffectClass,
    pub(crate) accept_status: &'a [u16],
    pub(crate) now: Time,
}

/// What an attempt came to that was answered like this.
pub(crate) fn outcome(answer: &HttpResponse, reading: ResponseContext<'_>) -> Outcome {
    let status = answer.status;
    if (200..300).contains(&status) || reading.accept_status.contains(&status) {
        return Outcome::Done { result: output(answer) };
    }
    let after = answer.retry_after(reading.now);
    let failure = |class, what: &str| failure(answer, reading.host, class, what);
    match status {
        429 => Outcome::Wait { failure: failure(FailureClass::Retryable, "asks to slow down"), after },
        503 if after.is_some() => {
            Outcome::Wait { failure: failure(FailureClass::Retryable, "is away and says for how long"), after }
        }
        503 => Outcome::Retry { failure: failure(FailureClass::Retryable, "is away for now"), after },
        408 | 425 => {
            Outcome::Retry { failure: failure(FailureClass::Retryable, "did not take the request this time"), after }
        }
        409 | 423 => {
            Outcome::Retry { failure: failure(FailureClass::Conflict, "reports a conflict with something else"), after }
        }
        500..=599 if reading.class == EffectClass::Natural => {
            Outcome::Retry { failure: failure(FailureClass::Retryable, "failed"), after }
        }
        // A server that fails says nothing about how far it came.
        500..=599 => Outcome::Unsure {
            failure: failure(FailureClass::Retryable, "failed, and the request may have been applied"),
        },
        401 | 403 => Outcome::Reject {
            failure: failure(FailureClass::Auth, "refuses our credentials; check the destination's auth and rights"),
        },
        300..=399 => Outcome::Reject { failure: failure(FailureClass::Permanent, &redirect(answer)) },
        _ => Outcome::Reject {
            failure: failure(FailureClass::Permanent, "refuses this request; correct it, then replay the job"),
        },
    }
}

/// What a `verify` found.
pub(crate) fn readback(answer: &HttpResponse, host: &str) -> Readback {
    match answer.status {
        200..300 => Readback::Present(output(answer)),
        404 => Readback::Absent,
        401 | 403 => Readback::Unreadable(failure(
            answer,
            host,
            FailureClass::Auth,
            "refuses our credentials, so it cannot be read whether the effect is there",
        )),
        _ => Readback::Unreadable(failure(
            answer,
            host,
            FailureClass::Retryable,
            "does not say whether the effect is there",
        )),
    }
}

fn redirect(answer: &HttpResponse) -> String {
    let location = answer.headers.get("location").and_then(|value| value.to_str().ok());
    // Only the host: a query may hold a secret.
    match location.and_then(|text| url::Url::parse(text).ok()).as_ref().and_then(url::Url::host_str) {
        Some(host) => format!("redirects to {host}, and redirects are not followed; use the final URL"),
        None => "redirects, and redirects are not followed; use the final URL".to_owned(),
    }
}

fn failure(answer: &HttpResponse, host: &str, class: FailureClass, what: &str) -> Failure {
    let said = excerpt(&answer.body);
    let colon = if said.is_empty() { "." } else { ": " };
    Failure::new(
        class,
        format!("http-{}", answer.status),
        format!("{host} {what} (status {}){colon}{said}", answer.status),
    )
    .with_status(answer.status)
}

/// The step's output.
fn output(answer: &HttpResponse) -> Value {
    let headers: Map<String, Value> = KEPT_HEADERS
        .iter()
        .filter_map(|name| Some((name.to_string(), answer.headers.get(name)?.to_str().ok()?.into())))
        .collect();
    // Not `json!`, which copies what it is given.
    let mut output = Map::from_iter([
        ("status".to_owned(), answer.status.into()),
        ("headers".to_owned(), headers.into()),
        ("body".to_owned(), body(answer)),
    ]);
    if answer.cut {
        output.insert("body_cut".to_owned(), true.into());
    }
    output.into()
}

/// JSON where it is JSON, else text, else nothing.
fn body(answer: &HttpResponse) -> Value {
    let bytes = answer.body.trim_ascii();
    if bytes.is_empty() {
        return Value::Null;
    }
    let declared = answer
        .headers
        .get("content-type")
        .and_then(|value| value.to_str().ok())
        .is_some_and(|text| text.split(';').next().is_some_and(|essence| essence.trim().ends_with("json")));
    let parsed = (!answer.cut && (declared || matches!(bytes[0], b'{' | b'[')))
        .then(|| serde_json::from_slice(bytes).ok())
        .flatten();
    parsed.unwrap_or_else(|| String::from_utf8_lossy(&answer.body).into_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    const NOW: &str = "2026-03-01T12:00:00Z";

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> HttpResponse {
        let headers =
            headers.iter().map(|(name, value)| (hyper::header::HeaderName::from_static(name), value.parse().unwrap()));
        HttpResponse { status, headers: headers.collect(), body: body.to_owned().into(), cut: false }
    }

    fn read(answer: &HttpResponse, class: EffectClass) -> Outcome {
        let now = Time::parse(NOW).unwrap();
        outcome(answer, ResponseContext { host: "a.example", class, accept_status: &[404], now })
    }

    /// `outcome`, class of the failure, seconds to wait.
    fn brief(outcome: &Outcome) -> String {
        let after = match outcome {
            Outcome::Retry { after, .. } | Outcome::Wait { after, .. } => after.map(|after| after.as_secs()),
            _ => None,
        };
        let class = outcome.failure().map_or("-", |failure| failure.class.as_str());
        after.map_or_else(
            || format!("{} {class}", outcome.as_str()),
            |after| format!("{} {class} {after}", outcome.as_str()),
        )
    }

    #[test]
    fn every_status_has_its_outcome() {
        let seconds: &[(&str, &str)] = &[("retry-after", "7")];
        let date: &[(&str, &str)] = &[("retry-after", "Sun, 01 Mar 2026 12:01:00 GMT")];
        let garbage: &[(&str, &str)] = &[("retry-after", "-3")];
        let none: &[(&str, &str)] = &[];
        let table = [
            (200, none, "done -", "done -"),
            (201, none, "done -", "done -"),
            (204, none, "done -", "done -"),
            (404, none, "done -", "done -"),
            (301, none, "reject permanent", "reject permanent"),
            (304, none, "reject permanent", "reject permanent"),
            (400, none, "reject permanent", "reject permanent"),
            (401, none, "reject auth", "reject auth"),
            (403, none, "reject auth", "reject auth"),
            (408, none, "retry retryable", "retry retryable"),
            (409, none, "retry conflict", "retry conflict"),
            (410, none, "reject permanent", "reject permanent"),
            (422, none, "reject permanent", "reject permanent"),
            (423, seconds, "retry conflict 7", "retry conflict 7"),
            (425, none, "retry retryable", "retry retryable"),
            (429, none, "wait retryable", "wait retryable"),
            (429, seconds, "wait retryable 7", "wait retryable 7"),
            (429, date, "wait retryable 60", "wait retryable 60"),
            (429, garbage, "wait retryable", "wait retryable"),
            (500, none, "unsure retryable", "retry retryable"),
            (501, none, "unsure retryable", "retry retryable"),
            (502, none, "unsure retryable", "retry retryable"),
            (503, none, "retry retryable", "retry retryable"),
            (503, seconds, "wait retryable 7", "wait retryable 7"),
            (504, none, "unsure retryable", "retry retryable"),
            (504, seconds, "unsure retryable", "retry retryable 7"),
        ];
        for (status, headers, blind, natural) in table {
            let answer = answer(status, headers, "");
            for class in [EffectClass::Blind, EffectClass::Keyed, EffectClass::Verifiable] {
                assert_eq!(brief(&read(&answer, class)), blind, "{status} {headers:?} {class:?}");
            }
            let outcome = read(&answer, EffectClass::Natural);
            assert_eq!(brief(&outcome), natural, "{status} {headers:?}");
            if let Some(failure) = outcome.failure() {
                assert_eq!((failure.code.clone(), failure.status), (format!("http-{status}"), Some(status)));
            }
        }
    }

    #[test]
    fn an_absurd_wait_survives_for_the_policy_to_cap() {
        let outcome = read(&answer(429, &[("retry-after", "99999999999999999999")], ""), EffectClass::Blind);
        assert!(matches!(outcome, Outcome::Wait { after: Some(after), .. } if after > Duration::from_secs(1 << 31)));
    }

    #[test]
    fn the_output_is_the_answer() {
        let json_headers: &[(&str, &str)] =
            &[("content-type", "application/problem+json; charset=utf-8"), ("set-cookie", "s=1")];
        let table = [
            (answer(200, json_headers, " {\"id\": 7} "), json!({"id": 7})),
            (answer(200, json_headers, "7"), json!(7)),
            (answer(200, &[], "[1]"), json!([1])),
            (answer(200, &[], "{broken"), json!("{broken")),
            (answer(200, &[("content-type", "text/plain")], "ok\n"), json!("ok\n")),
            (answer(204, &[], ""), Value::Null),
        ];
        for (answer, body) in table {
            let Outcome::Done { result } = read(&answer, EffectClass::Blind) else { panic!("{answer:?}") };
            assert_eq!(result["body"], body);
            assert_eq!(result["status"], answer.status);
            assert!(result["headers"].get("set-cookie").is_none() && result.get("body_cut").is_none());
        }
        let cut = HttpResponse { cut: true, ..answer(200, &[], "[1") };
        let Outcome::Done { result } = read(&cut, EffectClass::Blind) else { panic!("{cut:?}") };
        assert_eq!((&result["body"], &result["body_cut"]), (&json!("[1"), &json!(true)));
    }

    #[test]
    fn a_message_says_who_answered_what_and_quotes_little_of_it() {
        let outcome = read(&answer(422, &[], &"é".repeat(4000)), EffectClass::Blind);
        let message = &outcome.failure().unwrap().message;
        assert!(
            message.starts_with("a.example refuses this request; correct it, then replay the job (status 422): é"),
            "{message}"
        );
        assert!(message.chars().count() < 420, "{message}");
        let outcome = read(&answer(302, &[("location", "https://b.example/x?token=hunter2")], ""), EffectClass::Blind);
        let message = &outcome.failure().unwrap().message;
        assert!(message.contains("redirects to b.example") && !message.contains("hunter2"), "{message}");
    }

    #[test]
    fn a_readback_is_present_absent_or_neither() {
        assert!(matches!(readback(&answer(200, &[], "{}"), "a"), Readback::Present(_)));
        assert_eq!(readback(&answer(404, &[], ""), "a"), Readback::Absent);
        for status in [301, 400, 401, 410, 429, 500, 503] {
            assert!(matches!(readback(&answer(status, &[], ""), "a"), Readback::Unreadable(_)), "{status}");
        }
    }
}
