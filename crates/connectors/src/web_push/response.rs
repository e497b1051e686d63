//! Maps a response to an outcome. Pure.

use std::sync::LazyLock;

use serde_json::{Value, json};
use sluice_domain::failure_rules::FailureTable;
use sluice_domain::outcome::{EffectClass, Outcome};
use sluice_domain::time::Time;

use crate::outbound::HttpResponse;
use crate::provider_failure::{self, ProviderError};

/// Rules of this connector.
pub(crate) static SHIPPED_RULES: LazyLock<FailureTable> =
    LazyLock::new(|| FailureTable::parse(include_str!("failures.json")).expect("the table is valid: a test reads it"));

/// Outcome of an attempt with this response: a 2xx means accepted, not delivered.
pub(super) fn outcome(response: &HttpResponse, host: &str, rules: &FailureTable, now: Time) -> Outcome {
    if let 200..300 = response.status {
        let header = |name: &str| response.headers.get(name).and_then(|value| value.to_str().ok());
        return Outcome::Done { result: json!({ "location": header("location"), "ttl": header("ttl") }) };
    }
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    // Mozilla's service has numbers for its errors.
    let code = body["errno"].as_u64().map(|code| code.to_string()).unwrap_or_default();
    let message = body["message"].as_str().unwrap_or_default();
    let error = ProviderError { host, code: &code, message, class: EffectClass::Blind, now };
    provider_failure::outcome(response, rules, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderMap;

    #[test]
    fn every_rule_decides_a_recorded_answer() {
        let mut used = std::collections::BTreeSet::new();
        for (status, errno, expected) in [
            (404, "", "reject identity http-404"),
            (410, "106", "reject identity 106"),
            (413, "", "reject mapping http-413"),
            (429, "", "wait retryable http-429"),
            // The endpoint comes from a browser: what one answers must not stop the messages to others.
            (401, "109", "reject permanent 109"),
            (403, "", "reject identity http-403"),
            (503, "202", "retry retryable 202"),
            (503, "201", "wait retryable 201"),
            (400, "", "reject permanent http-400"),
            (301, "", "reject permanent http-301"),
            (500, "", "unsure retryable http-500"),
            (503, "", "retry retryable http-503"),
        ] {
            let body = match errno.parse::<u64>() {
                Ok(errno) => json!({ "errno": errno }).to_string(),
                Err(_) => String::new(),
            };
            let response = HttpResponse { status, headers: HeaderMap::new(), body: body.into(), truncated: false };
            let outcome = outcome(&response, "push", &SHIPPED_RULES, Time(0));
            let failure = outcome.failure().unwrap();
            assert_eq!(format!("{} {} {}", outcome.as_str(), failure.class.as_str(), failure.code), expected);
            used.extend(SHIPPED_RULES.rules().position(|(rule, _)| rule.matches(status, errno, "")));
        }
        assert_eq!(used.len(), SHIPPED_RULES.rules().count(), "a rule decides no recorded answer");
    }
}
