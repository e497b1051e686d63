//! Maps a response to an outcome. Pure.

use hyper::header::{CONTENT_TYPE, DATE, ETAG, HeaderName, LAST_MODIFIED, LINK, LOCATION};
use serde_json::{Map, Value};
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome, Readback};
use sluice_domain::time::Time;

use crate::outbound::HttpResponse;
use crate::text::excerpt;

/// Response headers in the step's output.
static OUTPUT_HEADERS: [HeaderName; 8] = [
    CONTENT_TYPE,
    DATE,
    ETAG,
    LAST_MODIFIED,
    LINK,
    LOCATION,
    HeaderName::from_static("request-id"),
    HeaderName::from_static("x-request-id"),
];

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'a> {
    /// For messages.
    pub(crate) host: &'a str,
    pub(crate) class: EffectClass,
    pub(crate) accept_status: &'a [u16],
    pub(crate) now: Time,
}

/// Outcome of an attempt with this response.
pub(crate) fn outcome(response: &HttpResponse, context: ResponseContext<'_>) -> Outcome {
    let status = response.status;
    if (200..300).contains(&status) || context.accept_status.contains(&status) {
        return Outcome::Done { result: output(response) };
    }
    let after = response.retry_after(context.now);
    let failure = |class, what: &str| failure(response, context.host, class, what);
    match status {
        429 => Outcome::Wait { failure: failure(FailureClass::Retryable, "limits the rate of requests"), after },
        503 if after.is_some() => {
            Outcome::Wait { failure: failure(FailureClass::Retryable, "is unavailable until its Retry-After"), after }
        }
        503 => Outcome::Retry { failure: failure(FailureClass::Retryable, "is unavailable"), after },
        408 | 425 => {
            Outcome::Retry { failure: failure(FailureClass::Retryable, "did not accept the request this time"), after }
        }
        409 | 423 => Outcome::Retry { failure: failure(FailureClass::Conflict, "reports a conflict"), after },
        500..=599 if context.class == EffectClass::Natural => {
            Outcome::Retry { failure: failure(FailureClass::Retryable, "failed to process the request"), after }
        }
        // A server error does not tell whether the request was applied.
        500..=599 => Outcome::Unsure {
            failure: failure(FailureClass::Retryable, "failed to process the request, which may have been applied"),
        },
        401 | 403 => Outcome::Reject {
            failure: failure(
                FailureClass::Auth,
                "rejects the credentials; check the destination's auth and its permissions",
            ),
        },
        300..=399 => Outcome::Reject { failure: failure(FailureClass::Permanent, &redirect(response)) },
        _ => Outcome::Reject {
            failure: failure(FailureClass::Permanent, "rejects this request; correct it, then replay the job"),
        },
    }
}

/// Result of a `verify` request.
pub(crate) fn readback(response: &HttpResponse, host: &str) -> Readback {
    match response.status {
        200..300 => Readback::Present(output(response)),
        404 => Readback::Absent,
        401 | 403 => Readback::Unreadable(failure(
            response,
            host,
            FailureClass::Auth,
            "rejects the credentials of the read-back; check the destination's auth",
        )),
        _ => Readback::Unreadable(failure(
            response,
            host,
            FailureClass::Retryable,
            "did not report whether the effect is present",
        )),
    }
}

fn redirect(response: &HttpResponse) -> String {
    let location = response.headers.get("location").and_then(|value| value.to_str().ok());
    // Host only: the query may hold a secret.
    match location.and_then(|text| url::Url::parse(text).ok()).as_ref().and_then(url::Url::host_str) {
        Some(host) => format!("redirects to {host}; redirects are not followed, use the final URL"),
        None => "redirects; redirects are not followed, use the final URL".to_owned(),
    }
}

fn failure(response: &HttpResponse, host: &str, class: FailureClass, what: &str) -> Failure {
    let quoted = excerpt(&response.body);
    let separator = if quoted.is_empty() { "." } else { ": " };
    Failure::new(
        class,
        format!("http-{}", response.status),
        format!("{host} {what} (status {}){separator}{quoted}", response.status),
    )
    .with_status(response.status)
}

/// Output of the step.
fn output(response: &HttpResponse) -> Value {
    let headers: Map<String, Value> = OUTPUT_HEADERS
        .iter()
        .filter_map(|name| Some((name.to_string(), response.headers.get(name)?.to_str().ok()?.into())))
        .collect();
    // `json!` would copy the values.
    let mut output = Map::from_iter([
        ("status".to_owned(), response.status.into()),
        ("headers".to_owned(), headers.into()),
        ("body".to_owned(), body(response)),
    ]);
    if response.truncated {
        output.insert("body_cut".to_owned(), true.into());
    }
    output.into()
}

/// JSON if the body is JSON, else text; null if it is empty.
pub(crate) fn body(response: &HttpResponse) -> Value {
    let bytes = response.body.trim_ascii();
    if bytes.is_empty() {
        return Value::Null;
    }
    let declared = response
        .headers
        .get("content-type")
        .and_then(|value| value.to_str().ok())
        .is_some_and(|text| text.split(';').next().is_some_and(|essence| essence.trim().ends_with("json")));
    let parsed = (!response.truncated && (declared || matches!(bytes[0], b'{' | b'[')))
        .then(|| serde_json::from_slice(bytes).ok())
        .flatten();
    parsed.unwrap_or_else(|| String::from_utf8_lossy(&response.body).into_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    const NOW: &str = "2026-03-01T12:00:00Z";

    fn response(status: u16, headers: &[(&'static str, &str)], body: &str) -> HttpResponse {
        let headers =
            headers.iter().map(|(name, value)| (hyper::header::HeaderName::from_static(name), value.parse().unwrap()));
        HttpResponse { status, headers: headers.collect(), body: body.to_owned().into(), truncated: false }
    }

    fn read(response: &HttpResponse, class: EffectClass) -> Outcome {
        let now = Time::parse(NOW).unwrap();
        outcome(response, ResponseContext { host: "a.example", class, accept_status: &[404], now })
    }

    /// Outcome, failure class and wait in seconds.
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
    fn status_maps_to_outcome_by_effect_class() {
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
            let response = response(status, headers, "");
            for class in [EffectClass::Blind, EffectClass::Keyed, EffectClass::Verifiable] {
                assert_eq!(brief(&read(&response, class)), blind, "{status} {headers:?} {class:?}");
            }
            let outcome = read(&response, EffectClass::Natural);
            assert_eq!(brief(&outcome), natural, "{status} {headers:?}");
            if let Some(failure) = outcome.failure() {
                assert_eq!((failure.code.clone(), failure.status), (format!("http-{status}"), Some(status)));
            }
        }
    }

    #[test]
    fn very_long_retry_after_is_passed_to_the_retry_policy() {
        let outcome = read(&response(429, &[("retry-after", "99999999999999999999")], ""), EffectClass::Blind);
        assert!(matches!(outcome, Outcome::Wait { after: Some(after), .. } if after > Duration::from_secs(1 << 31)));
    }

    #[test]
    fn output_holds_status_headers_and_body() {
        let json_headers: &[(&str, &str)] =
            &[("content-type", "application/problem+json; charset=utf-8"), ("set-cookie", "s=1")];
        let table = [
            (response(200, json_headers, " {\"id\": 7} "), json!({"id": 7})),
            (response(200, json_headers, "7"), json!(7)),
            (response(200, &[], "[1]"), json!([1])),
            (response(200, &[], "{broken"), json!("{broken")),
            (response(200, &[("content-type", "text/plain")], "ok\n"), json!("ok\n")),
            (response(204, &[], ""), Value::Null),
        ];
        for (response, body) in table {
            let Outcome::Done { result } = read(&response, EffectClass::Blind) else { panic!("{response:?}") };
            assert_eq!(result["body"], body);
            assert_eq!(result["status"], response.status);
            assert!(result["headers"].get("set-cookie").is_none() && result.get("body_cut").is_none());
        }
        let truncated = HttpResponse { truncated: true, ..response(200, &[], "[1") };
        let Outcome::Done { result } = read(&truncated, EffectClass::Blind) else { panic!("{truncated:?}") };
        assert_eq!((&result["body"], &result["body_cut"]), (&json!("[1"), &json!(true)));
    }

    #[test]
    fn message_names_host_and_status_and_quotes_a_short_excerpt() {
        let outcome = read(&response(422, &[], &"é".repeat(4000)), EffectClass::Blind);
        let message = &outcome.failure().unwrap().message;
        assert!(
            message.starts_with("a.example rejects this request; correct it, then replay the job (status 422): é"),
            "{message}"
        );
        assert!(message.chars().count() < 420, "{message}");
        let outcome =
            read(&response(302, &[("location", "https://b.example/x?token=hunter2")], ""), EffectClass::Blind);
        let message = &outcome.failure().unwrap().message;
        assert!(message.contains("redirects to b.example") && !message.contains("hunter2"), "{message}");
    }

    #[test]
    fn read_back_is_present_absent_or_unreadable() {
        assert!(matches!(readback(&response(200, &[], "{}"), "a"), Readback::Present(_)));
        assert_eq!(readback(&response(404, &[], ""), "a"), Readback::Absent);
        for status in [301, 400, 401, 410, 429, 500, 503] {
            assert!(matches!(readback(&response(status, &[], ""), "a"), Readback::Unreadable(_)), "{status}");
        }
    }
}
