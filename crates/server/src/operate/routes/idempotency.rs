//! `Idempotency-Key` on commands: a repeated request gets the first response, and nothing is done again.
//!
//! Keys and responses are in the ledger for 24 hours. A response that shows a secret is not kept, and one that reveals personal data is
//! a read: its key is ignored.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sluice_domain::idempotent_command::{BODY_BYTES_MAX, Claim, CommandDigest, CommandResponse, digest};
use sluice_ledger::{ClaimCommand, FinishCommand};

use super::change::ORDER_BYTES_MAX;
use super::problem;
use crate::access::RequestCaller;
use crate::operate::operator::{OperateError, Operator};

/// Longest key, in characters.
const KEY_MAX: usize = 255;

const HEADER: &str = "idempotency-key";

/// What is kept of the response of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Whole,
    /// The body shows a secret.
    WithoutBody,
    /// It is a read with a reason: a repeat is read again.
    Nothing,
}

impl Kept {
    fn of(path: &str) -> Kept {
        if path.ends_with("/reveal") || path.starts_with("/export") || path.contains("/exports/") {
            return Kept::Nothing;
        }
        match path.trim_end_matches('/').ends_with("/tokens") || path.ends_with("/sign-in-links") {
            true => Kept::WithoutBody,
            false => Kept::Whole,
        }
    }
}

pub(super) async fn once(State(operator): State<Operator>, request: Request, next: Next) -> Response {
    let keys: Vec<HeaderValue> = request.headers().get_all(HEADER).iter().cloned().collect();
    let kept = Kept::of(request.uri().path());
    let key = match keys.as_slice() {
        _ if *request.method() != Method::POST || kept == Kept::Nothing => return next.run(request).await,
        [] => return next.run(request).await,
        [key] if !key.is_empty() && key.len() <= KEY_MAX => key.clone(),
        _ => {
            let detail = "send one idempotency key with 1 to 255 characters";
            return problem(StatusCode::BAD_REQUEST, "idempotency-key-invalid", detail);
        }
    };
    let caller = request.extensions().get::<RequestCaller>().map(|RequestCaller(caller)| caller.actor(""));
    let (head, body) = request.into_parts();
    // The body was read in limited time and size before.
    let body = axum::body::to_bytes(body, ORDER_BYTES_MAX).await.unwrap_or_default();
    let secret = operator.ledger.pseudonym_key();
    let claim = ClaimCommand {
        key: digest(&secret, &[caller.unwrap_or_default().as_bytes(), key.as_bytes()]),
        request: digest(&secret, &[head.method.as_str().as_bytes(), head.uri.path().as_bytes(), &body]),
        term: operator.ledger.term(),
        at: operator.clock.ledger_time(),
    };
    let key = claim.key;
    match operator.ledger.claim_command(claim).await {
        Ok(Claim::First) => {}
        Ok(claim) => return repeated(claim),
        Err(error) => return OperateError::from(error).into_response(),
    }
    // A caller that hangs up has given its command all the same: it is done, and its response is kept.
    let serving = tokio::spawn(serve(operator, Request::from_parts(head, Body::from(body)), next, (key, kept)));
    serving.await.unwrap_or_else(|_| {
        problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the command failed; see the log and the audit trail")
    })
}

async fn serve(operator: Operator, request: Request, next: Next, (key, kept): (CommandDigest, Kept)) -> Response {
    let response = next.run(request).await;
    let (head, body) = response.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return problem(StatusCode::INTERNAL_SERVER_ERROR, "response", "the response was lost; see the audit trail");
    };
    let text = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    // Nothing was done if it says to try again.
    let response = (!head.status.is_server_error()).then(|| CommandResponse {
        status: head.status.as_u16(),
        content_type: text(header::CONTENT_TYPE).to_owned(),
        body: Some(bytes.to_vec())
            .filter(|body| body.len() <= BODY_BYTES_MAX && (kept == Kept::Whole || !head.status.is_success())),
    });
    if let Err(error) = operator.ledger.finish_command(FinishCommand { key, response }).await {
        tracing::warn!(%error, "the response of a command is not kept; a repeat is refused");
    }
    Response::from_parts(head, Body::from(bytes))
}

/// The response to a request that is not the first.
fn repeated(claim: Claim) -> Response {
    let refused = |code, detail| problem(StatusCode::CONFLICT, code, detail);
    match claim {
        Claim::Done(CommandResponse { status, content_type, body: Some(body) }) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
            let mut response = (status, body).into_response();
            if let Ok(content_type) = HeaderValue::from_str(&content_type) {
                response.headers_mut().insert(header::CONTENT_TYPE, content_type);
            }
            response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
            response
        }
        Claim::Done(_) => refused(
            "response-not-kept",
            "this command was done; its response shows a secret or is long, and was not kept",
        ),
        Claim::InProgress => {
            let mut response = refused("in-progress", "the first request with this key is being served");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        Claim::InDoubt => refused(
            "in-doubt",
            "the node stopped while it served the first request with this key; see the audit trail, then use a new key",
        ),
        Claim::First | Claim::OtherRequest => {
            let detail = "this idempotency key was used for another request; use a new one";
            problem(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused", detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_revealed_data_are_not_kept() {
        assert_eq!(Kept::of("/tokens"), Kept::WithoutBody);
        assert_eq!(Kept::of("/api/v1/sign-in-links"), Kept::WithoutBody);
        assert_eq!(Kept::of("/events/evt_1/reveal"), Kept::Nothing);
        assert_eq!(Kept::of("/replays"), Kept::Whole);
        assert_eq!(Kept::of("/tokens/7/revoke"), Kept::Whole);
    }
}
