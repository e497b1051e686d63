//! Maps responses to outcomes. Pure.

use std::sync::LazyLock;

use serde_json::json;
use sluice_domain::failure_rules::FailureTable;
use sluice_domain::outcome::{EffectClass, Outcome};
use sluice_domain::time::Time;

use super::request::checksum;
use crate::outbound::HttpResponse;
use crate::provider_failure::{self, ProviderError};

/// Rules of this connector.
pub(crate) static SHIPPED_RULES: LazyLock<FailureTable> =
    LazyLock::new(|| FailureTable::parse(include_str!("failures.json")).expect("the table is valid: a test reads it"));

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'a> {
    pub(crate) host: &'a str,
    pub(crate) rules: &'a FailureTable,
    pub(crate) now: Time,
}

/// Whether the object was not stored because there is one. Old MinIO servers answer 304.
pub(super) fn exists(response: &HttpResponse) -> bool {
    matches!(response.status, 412 | 304)
}

/// Outcome of a PUT with this response.
pub(super) fn stored(response: &HttpResponse, url: &str, context: ResponseContext<'_>) -> Outcome {
    match response.status {
        200..300 => done(response, url, true),
        _ => failed(response, context),
    }
}

/// Outcome of a PUT that found an object, from what HEAD says about it.
pub(super) fn compared(
    stored: &HttpResponse,
    found: &HttpResponse,
    body: &[u8],
    (url, effect_key): (&str, &str),
    context: ResponseContext<'_>,
) -> Outcome {
    let header = |name: &str| found.headers.get(name).and_then(|value| value.to_str().ok());
    match found.status {
        200..300 => {
            let same = match header("x-amz-checksum-sha256") {
                Some(theirs) => theirs == checksum(body),
                // A store without checksums: the object is ours if it was written under this effect key.
                None => header("x-amz-meta-effect-key") == Some(effect_key),
            };
            if same { done(found, url, false) } else { failed(stored, context) }
        }
        // Deleted in between: the next attempt creates it.
        404 => failed(&HttpResponse { status: 503, ..found.clone() }, context),
        _ => failed(found, context),
    }
}

fn done(response: &HttpResponse, url: &str, created: bool) -> Outcome {
    let etag = response.headers.get("etag").and_then(|value| value.to_str().ok());
    Outcome::Done { result: json!({"url": url, "etag": etag.map(|etag| etag.trim_matches('"')), "created": created}) }
}

fn failed(response: &HttpResponse, context: ResponseContext<'_>) -> Outcome {
    let body = String::from_utf8_lossy(&response.body);
    let (code, message) = (element(&body, "Code"), element(&body, "Message"));
    let ResponseContext { host, rules, now } = context;
    let error = ProviderError { host, code, message, class: EffectClass::Natural, now };
    provider_failure::outcome(response, rules, error)
}

/// Text of the first element of this name; empty if there is none. Errors of S3 are small documents without attributes.
fn element<'a>(xml: &'a str, name: &str) -> &'a str {
    let inside = xml.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once(&format!("</{name}>")));
    inside.map_or("", |(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderMap, HeaderName, HeaderValue};

    fn response(status: u16, headers: &[(&'static str, &str)], body: &str) -> HttpResponse {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let headers: HeaderMap = headers.iter().map(header).collect();
        HttpResponse { status, headers, body: body.to_owned().into(), truncated: false }
    }

    fn brief(outcome: &Outcome) -> String {
        match (outcome, outcome.failure()) {
            (Outcome::Done { result }, _) => format!("done {}", result["created"]),
            (_, Some(failure)) => format!("{} {} {}", outcome.as_str(), failure.class.as_str(), failure.code),
            _ => outcome.as_str().to_owned(),
        }
    }

    fn context() -> ResponseContext<'static> {
        ResponseContext { host: "s3", rules: &SHIPPED_RULES, now: Time(0) }
    }

    fn error(code: &str) -> String {
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>why</Message></Error>")
    }

    #[test]
    fn every_rule_decides_a_recorded_answer() {
        let mut used = std::collections::BTreeSet::new();
        for (status, code, expected) in [
            (409, "ConditionalRequestConflict", "retry retryable ConditionalRequestConflict"),
            (409, "OperationAborted", "retry retryable OperationAborted"),
            (503, "SlowDown", "wait retryable SlowDown"),
            (403, "RequestTimeTooSkewed", "reject auth RequestTimeTooSkewed"),
            (404, "NoSuchBucket", "reject permanent NoSuchBucket"),
            (400, "BadDigest", "reject permanent BadDigest"),
            (400, "EntityTooLarge", "reject permanent EntityTooLarge"),
            (400, "KeyTooLongError", "reject mapping KeyTooLongError"),
            (412, "PreconditionFailed", "reject identity PreconditionFailed"),
            (304, "", "reject identity http-304"),
            (429, "", "wait retryable http-429"),
            (401, "", "reject auth http-401"),
            (403, "AccessDenied", "reject auth AccessDenied"),
            (307, "TemporaryRedirect", "reject permanent TemporaryRedirect"),
            (400, "InvalidArgument", "reject permanent InvalidArgument"),
            (500, "InternalError", "retry retryable InternalError"),
        ] {
            let answer = response(status, &[], &error(code));
            assert_eq!(brief(&stored(&answer, "u", context())), expected);
            used.extend(SHIPPED_RULES.rules().position(|(rule, _)| rule.matches(status, code, "why")));
        }
        assert_eq!(used.len(), SHIPPED_RULES.rules().count(), "a rule decides no recorded answer");
    }

    #[test]
    fn object_that_exists_is_ours_if_its_content_is() {
        let refused = response(412, &[], &error("PreconditionFailed"));
        let own = checksum(b"{}");
        let judge = |found: &HttpResponse| brief(&compared(&refused, found, b"{}", ("u", "eff"), context()));
        assert_eq!(judge(&response(200, &[("x-amz-checksum-sha256", &own)], "")), "done false");
        let other = checksum(b"[]");
        assert_eq!(
            judge(&response(200, &[("x-amz-checksum-sha256", &other)], "")),
            "reject identity PreconditionFailed"
        );
        assert_eq!(judge(&response(200, &[("x-amz-meta-effect-key", "eff")], "")), "done false");
        assert_eq!(
            judge(&response(200, &[("x-amz-meta-effect-key", "other")], "")),
            "reject identity PreconditionFailed"
        );
        assert_eq!(judge(&response(404, &[], "")), "retry retryable http-503", "deleted in between");
        assert_eq!(judge(&response(403, &[], "")), "reject auth http-403");
    }
}
