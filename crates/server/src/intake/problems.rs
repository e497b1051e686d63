//! Error responses of the intake.

use hyper::{Method, StatusCode};
use sluice_domain::flow::RateLimit;
use std::time::Duration;

use super::answer::HttpProblem;
use super::receive::ReceiveError;
use crate::revisions::LoadedRevision;

pub(super) fn no_flow(live: &LoadedRevision, method: &Method, path: &str) -> HttpProblem {
    let methods: Vec<&str> =
        live.config.flows.values().filter(|flow| flow.path == path).map(|flow| flow.method.as_str()).collect();
    if methods.is_empty() {
        return HttpProblem::new(StatusCode::NOT_FOUND, "no-such-flow", format!("no flow has the path {path}"));
    }
    let allow = methods.join(", ");
    let problem = HttpProblem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        format!("{path} accepts {allow}, not {method}"),
    );
    HttpProblem { allow: Some(allow), ..problem }
}

/// Too many connections, bytes or unverified requests of one address.
pub(super) fn address_limited(what: &str, wait: Duration) -> HttpProblem {
    HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, "address-limited", what)
        .retry_after(wait.as_secs_f64().ceil() as u64)
        .closing()
}

/// Response to a body that was not received.
pub(super) fn not_received(error: ReceiveError, bytes_max: u64) -> HttpProblem {
    let problem = match error {
        ReceiveError::TooLarge => too_large(bytes_max),
        ReceiveError::Incomplete => HttpProblem::new(
            StatusCode::BAD_REQUEST,
            "body-incomplete",
            "the connection ended before the body was complete; nothing was stored",
        ),
        ReceiveError::Timeout => HttpProblem::new(
            StatusCode::REQUEST_TIMEOUT,
            "body-timeout",
            "the body did not arrive in time; nothing was stored",
        ),
        ReceiveError::TooSlow => HttpProblem::new(
            StatusCode::REQUEST_TIMEOUT,
            "body-timeout",
            "the body arrives too slowly while memory is short; nothing was stored",
        ),
        ReceiveError::MemoryFull => {
            unavailable("overloaded", "more bodies are arriving than memory is set aside for; retry later", 2)
        }
        ReceiveError::AddressLimit => {
            address_limited("this address sends too many bytes at once; nothing was stored", Duration::from_secs(2))
        }
    };
    problem.closing()
}

pub(super) fn too_large(bytes_max: u64) -> HttpProblem {
    HttpProblem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body-too-large",
        format!("the body exceeds the limit of {bytes_max} bytes"),
    )
}

/// 503 with `Retry-After`.
pub(super) fn unavailable(code: &'static str, detail: &str, seconds: u64) -> HttpProblem {
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).retry_after(seconds)
}

pub(super) fn ledger_problem(error: &sluice_ledger::Error) -> HttpProblem {
    use sluice_ledger::Error;
    match error {
        Error::Overloaded => {
            unavailable("overloaded", "requests arrive faster than they can be written; retry later", 2)
        }
        Error::DiskFull => unavailable("disk-full", "the disk is full; nothing was stored", 30),
        Error::InDoubt { .. } => {
            unavailable("in-doubt", "the event may have been stored; send it again, it is stored once", 5)
        }
        other => {
            tracing::error!(error = %other, "event not accepted");
            unavailable("unavailable", "the event could not be stored; send it again", 5)
        }
    }
}

pub(super) fn rate_limited(who: &str, limit: RateLimit, wait: Duration) -> HttpProblem {
    let problem = HttpProblem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "rate-limited",
        format!(
            "the rate limit of {who} is {} per {:?}, with bursts of {}",
            limit.rate.count, limit.rate.per, limit.burst
        ),
    );
    problem.retry_after(wait.as_secs_f64().ceil() as u64)
}
