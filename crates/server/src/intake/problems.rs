//! Why a request is turned away, in words for its sender.

use hyper::{Method, StatusCode};
use sluice_domain::flow::{Flow, RateLimit};
use std::time::Duration;

use super::answer::HttpProblem;
use crate::revisions::LoadedRevision;

/// No flow takes this request.
pub(super) fn no_flow(live: &LoadedRevision, method: &Method, path: &str) -> HttpProblem {
    let methods: Vec<&str> =
        live.config.flows.values().filter(|flow| flow.path == path).map(|flow| flow.method.as_str()).collect();
    if methods.is_empty() {
        return HttpProblem::new(StatusCode::NOT_FOUND, "no-such-flow", format!("no flow takes requests at {path}"));
    }
    let allow = methods.join(", ");
    let problem = HttpProblem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        format!("{path} takes {allow}, not {method}"),
    );
    HttpProblem { allow: Some(allow), ..problem }
}

/// The body is larger than the flow takes.
pub(super) fn too_large(flow: &Flow) -> HttpProblem {
    HttpProblem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body-too-large",
        format!("the body is larger than the {} bytes that this flow takes", flow.body_bytes_max),
    )
}

/// Nothing is wrong with the request; it should come again.
pub(super) fn unavailable(code: &'static str, detail: &str, seconds: u64) -> HttpProblem {
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).retry_after(seconds)
}

/// The event could not be written down.
pub(super) fn ledger_problem(error: &sluice_ledger::Error) -> HttpProblem {
    use sluice_ledger::Error;
    match error {
        Error::Overloaded => {
            unavailable("overloaded", "more is arriving than can be written down; try again in a moment", 2)
        }
        Error::DiskFull => unavailable("disk-full", "there is no room to write the event down; nothing was stored", 30),
        Error::InDoubt { .. } => unavailable(
            "in-doubt",
            "it is unknown whether the event was stored; send it again and it will be stored once",
            5,
        ),
        other => {
            tracing::error!(error = %other, "an event could not be accepted");
            unavailable("unavailable", "the event could not be stored; send it again", 5)
        }
    }
}

/// Too often.
pub(super) fn rate_limited(who: &str, limit: RateLimit, wait: Duration) -> HttpProblem {
    let problem = HttpProblem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "rate-limited",
        format!("{who} may send {} in {:?}, with bursts of {}", limit.rate.count, limit.rate.per, limit.burst),
    );
    problem.retry_after(wait.as_secs_f64().ceil() as u64)
}
