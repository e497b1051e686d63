//! `Idempotency-Key` on commands: a repeated request gets the first response, and nothing is done again.
//!
//! Responses are remembered in memory: after a restart of the node a repeated request is done again. What it requeues, decides
//! or pauses is the same then, since commands state the wanted result; a replay or a token would be a second one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::change::ORDER_BYTES_MAX;
use super::problem;
use crate::access::RequestCaller;

/// Responses that are remembered; the oldest goes first.
const RESPONSES_MAX: usize = 1_024;
/// Longest response that is remembered, in bytes.
const RESPONSE_BYTES_MAX: usize = 256 * 1024;
/// Longest key, in characters.
const KEY_MAX: usize = 255;

const HEADER: &str = "idempotency-key";

type Digest = [u8; 32];

#[derive(Clone, Debug)]
struct Stored {
    status: StatusCode,
    content_type: Option<HeaderValue>,
    body: Bytes,
}

#[derive(Clone, Debug)]
struct Entry {
    request: Digest,
    /// Absent while the first request is served.
    response: Option<Stored>,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Digest, Entry>,
    /// Oldest first.
    order: VecDeque<Digest>,
}

/// Responses by caller and key. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Responses(Arc<Mutex<Entries>>);

enum Begun {
    First,
    Known(Stored),
    InProgress,
    OtherRequest,
}

impl Responses {
    fn entries(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, key: Digest, request: Digest) -> Begun {
        let mut entries = self.entries();
        match entries.by_key.get(&key) {
            Some(entry) if entry.request != request => return Begun::OtherRequest,
            Some(Entry { response: Some(stored), .. }) => return Begun::Known(stored.clone()),
            Some(_) => return Begun::InProgress,
            None => {}
        }
        while entries.order.len() >= RESPONSES_MAX {
            let oldest = entries.order.pop_front();
            oldest.map(|oldest| entries.by_key.remove(&oldest));
        }
        entries.by_key.insert(key, Entry { request, response: None });
        entries.order.push_back(key);
        Begun::First
    }

    /// Remembers a response. One that says to try again is forgotten, so that trying again works.
    fn end(&self, key: Digest, stored: Option<Stored>) {
        let mut entries = self.entries();
        match stored {
            Some(stored) => {
                if let Some(entry) = entries.by_key.get_mut(&key) {
                    entry.response = Some(stored);
                }
            }
            None => {
                entries.by_key.remove(&key);
                entries.order.retain(|known| *known != key);
            }
        }
    }
}

/// Forgets the request if it is given up before its response.
struct Guard {
    responses: Responses,
    key: Option<Digest>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.responses.end(key, None);
        }
    }
}

pub(super) async fn once(Extension(responses): Extension<Responses>, request: Request, next: Next) -> Response {
    let Some(key) = request.headers().get(HEADER).cloned().filter(|_| !request.method().is_safe()) else {
        return next.run(request).await;
    };
    if key.is_empty() || key.len() > KEY_MAX {
        return problem(
            StatusCode::BAD_REQUEST,
            "idempotency-key-invalid",
            "an idempotency key has 1 to 255 characters",
        );
    }
    let caller = request.extensions().get::<RequestCaller>().map(|RequestCaller(caller)| caller.actor(""));
    let (head, body) = request.into_parts();
    // The body was read in limited time and size before.
    let body = axum::body::to_bytes(body, ORDER_BYTES_MAX).await.unwrap_or_default();
    let digest = |parts: &[&[u8]]| {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        *hasher.finalize().as_bytes()
    };
    let key = digest(&[caller.unwrap_or_default().as_bytes(), key.as_bytes()]);
    match responses.begin(key, digest(&[head.uri.path().as_bytes(), &body])) {
        Begun::First => {}
        Begun::Known(stored) => return repeated(stored),
        Begun::InProgress => {
            return problem(StatusCode::CONFLICT, "in-progress", "the first request with this key is being served");
        }
        Begun::OtherRequest => {
            let detail = "this idempotency key was used for another request; use a new one";
            return problem(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused", detail);
        }
    }
    let mut guard = Guard { responses: responses.clone(), key: Some(key) };
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    let (head, body) = response.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return problem(StatusCode::INTERNAL_SERVER_ERROR, "response", "the response was lost; see the audit trail");
    };
    if !head.status.is_server_error() && bytes.len() <= RESPONSE_BYTES_MAX {
        guard.key = None;
        let content_type = head.headers.get(header::CONTENT_TYPE).cloned();
        responses.end(key, Some(Stored { status: head.status, content_type, body: bytes.clone() }));
    }
    Response::from_parts(head, Body::from(bytes))
}

fn repeated(stored: Stored) -> Response {
    let mut response = (stored.status, stored.body).into_response();
    if let Some(content_type) = stored.content_type {
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Stored {
        Stored { status: StatusCode::OK, content_type: None, body: Bytes::from_static(b"{}") }
    }

    #[test]
    fn first_response_is_remembered_and_another_request_is_refused() {
        let responses = Responses::default();
        assert!(matches!(responses.begin([1; 32], [7; 32]), Begun::First));
        assert!(matches!(responses.begin([1; 32], [7; 32]), Begun::InProgress));
        responses.end([1; 32], Some(stored()));
        assert!(matches!(responses.begin([1; 32], [7; 32]), Begun::Known(_)));
        assert!(matches!(responses.begin([1; 32], [8; 32]), Begun::OtherRequest));
    }

    #[test]
    fn request_that_was_given_up_can_be_made_again() {
        let responses = Responses::default();
        responses.begin([1; 32], [7; 32]);
        drop(Guard { responses: responses.clone(), key: Some([1; 32]) });
        assert!(matches!(responses.begin([1; 32], [7; 32]), Begun::First));
    }

    #[test]
    fn number_of_remembered_responses_is_bounded() {
        let responses = Responses::default();
        for n in 0..RESPONSES_MAX as u64 + 10 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&n.to_le_bytes());
            responses.begin(key, [7; 32]);
        }
        let entries = responses.entries();
        assert_eq!((entries.by_key.len(), entries.order.len()), (RESPONSES_MAX, RESPONSES_MAX));
    }
}
