//! Answers of a token endpoint as RFC 6749 has them. Pure.

use std::time::Duration;

use serde_json::Value;
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome};
use sluice_domain::time::Time;

use super::Grant;
use crate::http::response::{ResponseContext, SHIPPED_RULES, outcome as by_status};
use crate::outbound::HttpResponse;

/// Reads a grant. Some providers answer 200 with an error, so the status alone says nothing.
pub(crate) fn read_grant(response: &HttpResponse, host: &str, now: Time) -> Result<Grant, Outcome> {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    if let (200..300, Some(token)) = (response.status, body["access_token"].as_str()) {
        // A number, or its text.
        let seconds = body["expires_in"].as_f64().or_else(|| body["expires_in"].as_str()?.parse().ok());
        return Ok(Grant {
            access_token: token.to_owned(),
            refresh_token: body["refresh_token"].as_str().map(str::to_owned),
            expires_in: seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        });
    }
    let code = body["error"].as_str().unwrap_or("no-token").to_owned();
    let message = format!("No token: {host} answered {} {code}; check the credentials.", response.status);
    let context = ResponseContext { host, class: EffectClass::Natural, accept_status: &[], rules: &SHIPPED_RULES, now };
    Err(match by_status(response, context) {
        Outcome::Retry { failure, after } => Outcome::Retry { failure: Failure { message, ..failure }, after },
        Outcome::Wait { failure, after } => Outcome::Wait { failure: Failure { message, ..failure }, after },
        _ => Outcome::Reject { failure: Failure::new(FailureClass::Auth, code, message).with_status(response.status) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderMap;
    use serde_json::json;

    #[test]
    fn grants_and_refusals_are_told_apart_by_status_and_content() {
        let read = |status, body: Value| {
            let body = body.to_string().into();
            let response = HttpResponse { status, headers: HeaderMap::new(), body, truncated: false };
            read_grant(&response, "id.example", Time(0))
        };
        for (life, expected) in
            [(json!(1800), Some(1800)), (json!("60"), Some(60)), (json!(-1), None), (json!(null), None)]
        {
            let grant = read(200, json!({"access_token": "t1", "expires_in": life})).unwrap();
            assert_eq!((grant.access_token.as_str(), grant.expires_in), ("t1", expected.map(Duration::from_secs)));
        }
        for (status, body, outcome, class) in [
            (200, json!({"error": "invalid_code"}), "reject", FailureClass::Auth),
            (401, json!({"error": "invalid_client"}), "reject", FailureClass::Auth),
            (429, json!({}), "wait", FailureClass::Retryable),
            (503, json!({}), "retry", FailureClass::Retryable),
        ] {
            let failed = read(status, body).unwrap_err();
            assert_eq!((failed.as_str(), failed.failure().unwrap().class), (outcome, class), "{status}");
        }
    }
}
