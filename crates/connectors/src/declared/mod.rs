//! Destinations of declared types: renders the request of an action and judges the answer by the rules of its connector.

mod mail;
mod request;
mod response;
mod target;
mod token;

use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderValue};
use sluice_domain::action::Action;
use sluice_domain::connector::Declared;
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

use response::Judged;
pub use response::RecordedAnswer;
pub(crate) use target::Target;

use crate::outbound::{HttpResponse, Outbound, Request};
use crate::text::{MASK, redact, redact_outcome};
use crate::{Call, deadline};

/// The declared action that performs a step's action at this destination.
pub(crate) fn performs(target: &Target, action: Action) -> Option<Declared> {
    match action {
        Action::Declared(declared) => target.connector.actions().find(|own| *own == declared),
        Action::SendTemplate => target.connector.mail_action(),
        _ => None,
    }
}

pub(crate) async fn call(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    action: Declared,
    call: Call<'_>,
) -> Outcome {
    let exchanged = exchange(outbound, target, timeout_max, &call, |call| request::effect(target, action, call)).await;
    let outcome = match exchanged {
        Ok((response, host)) => response::outcome(&response, action, &call, &host).1.into_outcome(),
        Err(outcome) => outcome,
    };
    let token = target.tokens.text();
    redact_outcome(outcome, target.secrets().chain(token.as_deref()))
}

/// Looks for the effect with the request that the connector names.
pub(crate) async fn read_back(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    action: Declared,
    call: Call<'_>,
) -> Readback {
    let exchanged =
        exchange(outbound, target, timeout_max, &call, |call| request::read_back(target, action, call)).await;
    let found =
        match exchanged {
            Ok((response, host)) => response::readback(&response, action, &call, &host),
            Err(outcome) => Readback::Unreadable(outcome.failure().cloned().unwrap_or_else(|| {
                Failure::new(FailureClass::Retryable, "unreadable", "The effect cannot be looked up.")
            })),
        };
    match found {
        Readback::Unreadable(failure) => {
            let token = target.tokens.text();
            let message = redact(failure.message, target.secrets().chain(token.as_deref()));
            Readback::Unreadable(Failure { message, ..failure })
        }
        found => found,
    }
}

/// Builds the request with a masked token.
pub(crate) fn prepare(target: &Target, action: Declared, call: &Call<'_>) -> Result<Request, Failure> {
    let request = request::effect(target, action, call)?;
    Ok(with_token(request, target.tokens.masked(MASK)))
}

/// Builds the read-back request with a masked token.
pub(crate) fn prepare_read_back(target: &Target, action: Declared, call: &Call<'_>) -> Result<Request, Failure> {
    let request = request::read_back(target, action, call)?;
    Ok(with_token(request, target.tokens.masked(MASK)))
}

/// Outcome of an attempt with this answer, and the index of the failure rule that decided.
pub(crate) fn judge(action: Declared, call: &Call<'_>, answer: &RecordedAnswer) -> (Option<usize>, Outcome) {
    let (rule, judged) = response::outcome(&answer.to_response(), action, call, "the destination");
    (rule, judged.into_outcome())
}

/// Result of a read-back with this answer.
pub(crate) fn judge_read_back(action: Declared, call: &Call<'_>, answer: &RecordedAnswer) -> Readback {
    response::readback(&answer.to_response(), action, call, "the destination")
}

/// Sends with the current token and, if the rules say that it is refused, once more with a new one. Returns the answer and
/// the host.
async fn exchange(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    call: &Call<'_>,
    build: impl Fn(&Call<'_>) -> Result<Request, Failure>,
) -> Result<(HttpResponse, String), Outcome> {
    let deadline_at = deadline([call.timeout, timeout_max]);
    let mut refused = None;
    loop {
        let token = target.tokens.get(outbound, refused.as_ref(), deadline_at, call.now).await?;
        let request = build(call).map_err(|failure| Outcome::Reject { failure })?;
        let request = with_token(request, token.as_ref().map(|token| token.authorization.clone()));
        let host = request.url.host_str().unwrap_or_default().to_owned();
        let response = outbound.send(request, deadline_at).await.map_err(|error| error.into_outcome())?;
        if let Some(token) = token
            && refused.is_none()
            && target.tokens.renewable()
            && response::is_token_refusal(&response, target.connector.definition)
        {
            refused = Some(token);
            continue;
        }
        return Ok((response, host));
    }
}

fn with_token(mut request: Request, authorization: Option<HeaderValue>) -> Request {
    if let Some(authorization) = authorization {
        request.headers.insert(AUTHORIZATION, authorization);
    }
    request
}

impl Judged {
    /// A refused token that is not renewed, or that was renewed once, is an authentication failure.
    fn into_outcome(self) -> Outcome {
        match self {
            Judged::Outcome(outcome) => outcome,
            Judged::Refused(failure) => Outcome::Reject { failure },
        }
    }
}
