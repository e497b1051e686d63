//! Maps a response to an outcome. Pure.

use std::sync::LazyLock;

use serde_json::{Value, json};
use sluice_domain::failure_rules::FailureTable;
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome};
use sluice_domain::time::Time;

use crate::outbound::HttpResponse;
use crate::provider_failure::{self, ProviderError};

/// Rules of this connector.
pub(crate) static SHIPPED_RULES: LazyLock<FailureTable> =
    LazyLock::new(|| FailureTable::parse(include_str!("failures.json")).expect("the table is valid: a test reads it"));

/// Outcome of an attempt with this response. SES may accept a mail and not send it; events of the configuration set tell.
pub(super) fn outcome(response: &HttpResponse, host: &str, rules: &FailureTable, now: Time) -> Outcome {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    if let 200..300 = response.status {
        return match body["MessageId"].as_str() {
            Some(id) => Outcome::Done { result: json!({ "id": id }) },
            None => {
                let message = format!("{host} answered {} without a MessageId.", response.status);
                let failure = Failure::new(FailureClass::Retryable, "unexpected-response", message);
                Outcome::Unsure { failure: failure.with_status(response.status) }
            }
        };
    }
    let header = response.headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok());
    let code = header.or(body["__type"].as_str()).or(body["code"].as_str()).unwrap_or_default();
    // `MessageRejected:http://…` and `com.amazonaws.sesv2#MessageRejected`.
    let code = code.split(':').next().unwrap_or_default().rsplit('#').next().unwrap_or_default();
    let message = body["message"].as_str().or(body["Message"].as_str()).unwrap_or_default();
    provider_failure::outcome(response, rules, ProviderError { host, code, message, class: EffectClass::Blind, now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderMap, HeaderName, HeaderValue};

    fn judged(status: u16, code: &str, message: &str) -> String {
        let mut headers = HeaderMap::new();
        if !code.is_empty() {
            let value = HeaderValue::from_str(&format!("{code}:http://internal.amazon.com/")).unwrap();
            headers.insert(HeaderName::from_static("x-amzn-errortype"), value);
        }
        let body = json!({ "message": message }).to_string().into();
        let response = HttpResponse { status, headers, body, truncated: false };
        let outcome = outcome(&response, "ses", &SHIPPED_RULES, Time(0));
        let failure = outcome.failure().unwrap();
        format!("{} {} {}", outcome.as_str(), failure.class.as_str(), failure.code)
    }

    #[test]
    fn every_rule_decides_a_recorded_answer() {
        let mut used = std::collections::BTreeSet::new();
        for (status, code, message, expected) in [
            (429, "TooManyRequestsException", "slow", "wait retryable"),
            (400, "ThrottlingException", "Daily message quota exceeded.", "wait retryable"),
            (400, "ThrottlingException", "Maximum sending rate exceeded.", "wait retryable"),
            (400, "MessageRejected", "Email address is not verified.", "reject permanent"),
            (400, "MailFromDomainNotVerifiedException", "no", "reject permanent"),
            (400, "BadRequestException", "no", "reject permanent"),
            (404, "NotFoundException", "no such set", "reject permanent"),
            (400, "AccountSuspendedException", "no", "reject auth"),
            (400, "SendingPausedException", "no", "reject auth"),
            (400, "LimitExceededException", "no", "reject permanent"),
            (403, "RequestExpired", "clock", "reject auth"),
            (429, "", "slow", "wait retryable"),
            (401, "", "no", "reject auth"),
            (403, "SignatureDoesNotMatch", "no", "reject auth"),
            (413, "", "large", "reject permanent"),
            (422, "", "no", "reject permanent"),
            (307, "", "there", "reject permanent"),
            (500, "InternalFailure", "oops", "unsure retryable"),
            (503, "ServiceUnavailable", "oops", "retry retryable"),
        ] {
            let shown = if code.is_empty() { format!("http-{status}") } else { code.to_owned() };
            assert_eq!(judged(status, code, message), format!("{expected} {shown}"));
            used.extend(SHIPPED_RULES.rules().position(|(rule, _)| rule.matches(status, code, message)));
        }
        assert_eq!(used.len(), SHIPPED_RULES.rules().count(), "a rule decides no recorded answer");
    }
}
