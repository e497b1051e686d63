//! State shared by handle and server, and request handling.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use data_encoding::BASE64;
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::state::{ServiceEffect, ServiceState, ServiceTruth};
use super::{ServiceKind, ServiceSettings, klaviyo, mail, pagerduty, segment, twilio};
use crate::apply_fault::{FakeTarget, Refusal, ReplyTruth, apply_fault};
use crate::faults::{Call, CallKind, Injector};
use crate::inspect::{self, Inspect, Received};
use crate::lock;
use crate::reply::{FakeReply, Hangup, Payload};
use crate::serve::Handler;

/// Larger requests are rejected with 413.
const BODY_BYTES_MAX: usize = 10 << 20;

#[derive(Debug)]
pub(super) struct Shared {
    settings: ServiceSettings,
    pub(super) injector: Injector,
    state: Mutex<ServiceState>,
}

/// A request, as the services read it.
#[derive(Debug)]
pub(super) struct ServiceRequest<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    parts: &'a Parts,
    pub(super) body: &'a [u8],
}

impl ServiceRequest<'_> {
    /// Value of a header; empty if it is absent.
    pub(super) fn header(&self, name: &str) -> &str {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(super) fn authorization(&self) -> &str {
        self.header(AUTHORIZATION.as_str())
    }

    /// User and password of basic authentication.
    pub(super) fn basic(&self) -> Option<(String, String)> {
        let encoded = self.authorization().strip_prefix("Basic ")?;
        let decoded = String::from_utf8(BASE64.decode(encoded.as_bytes()).ok()?).ok()?;
        let (user, password) = decoded.split_once(':')?;
        Some((user.to_owned(), password.to_owned()))
    }

    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(self.body).ok()
    }

    pub(super) fn form(&self) -> &str {
        std::str::from_utf8(self.body).unwrap_or_default()
    }
}

impl Shared {
    pub(super) fn new(settings: ServiceSettings, injector: Injector) -> Shared {
        let state = ServiceState { effects_max: settings.effects_max, ..ServiceState::default() };
        Shared { settings, injector, state: Mutex::new(state) }
    }

    pub(super) fn truth(&self) -> ServiceTruth {
        ServiceTruth { faults: self.injector.counts(), ..lock(&self.state).truth.clone() }
    }

    pub(super) fn effects(&self) -> Vec<ServiceEffect> {
        lock(&self.state).effects.clone()
    }

    fn answer(&self, request: &ServiceRequest<'_>) -> FakeReply {
        let state = &mut lock(&self.state);
        match self.settings.kind {
            ServiceKind::Twilio => twilio::answer(state, request),
            ServiceKind::Segment => segment::answer(state, request),
            ServiceKind::Sendgrid => mail::sendgrid(state, request),
            ServiceKind::Postmark => mail::postmark(state, request),
            ServiceKind::Klaviyo => klaviyo::answer(state, request),
            ServiceKind::Pagerduty => pagerduty::answer(state, request),
        }
    }

    /// The error body of this service.
    fn error(&self, status: StatusCode, message: &str) -> FakeReply {
        let body = match self.settings.kind {
            ServiceKind::Twilio => {
                let code = if status == StatusCode::TOO_MANY_REQUESTS { 20429 } else { 20500 };
                json!({"code": code, "message": message, "more_info": format!("https://www.twilio.com/docs/errors/{code}"), "status": status.as_u16()})
            }
            ServiceKind::Segment => json!({"success": false, "message": message}),
            ServiceKind::Sendgrid => json!({"errors": [{"message": message, "field": null, "help": null}]}),
            ServiceKind::Postmark => json!({"ErrorCode": 100, "Message": message}),
            ServiceKind::Klaviyo => klaviyo::errors(status, "error", message, Value::Null),
            ServiceKind::Pagerduty => json!({"status": "error", "message": message, "errors": [message]}),
        };
        FakeReply::json(status, &body)
    }
}

impl Inspect for Shared {
    fn name(&self) -> &'static str {
        self.settings.kind.name()
    }

    fn received(&self, limit: usize) -> Vec<Value> {
        inspect::last(lock(&self.state).effects.iter(), limit)
    }

    fn truth(&self) -> Value {
        json!(Shared::truth(self))
    }

    fn injector(&self) -> &Injector {
        &self.injector
    }
}

impl Handler for Shared {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Payload>, Hangup> {
        let (parts, body) = match inspect::receive(&*self, request, BODY_BYTES_MAX).await? {
            Received::Call(parts, body) => (parts, body),
            Received::Answered(reply) => return Ok(reply.complete()),
        };
        let path = parts.uri.path().to_owned();
        *lock(&self.state).truth.calls.entry(format!("{} {path}", parts.method)).or_default() += 1;
        let kind = if parts.method == Method::GET { CallKind::Read } else { CallKind::Write };
        let decision = self.injector.decide(&Call { kind, method: parts.method.as_str(), path: &path, keys: &[] });
        apply_fault(decision, FakeCall { shared: self, parts, body, applied: false }).await
    }
}

/// One call in progress.
#[derive(Debug)]
struct FakeCall {
    shared: Arc<Shared>,
    parts: Parts,
    body: Bytes,
    applied: bool,
}

impl FakeTarget for FakeCall {
    fn apply(&mut self) -> FakeReply {
        let request = ServiceRequest {
            method: self.parts.method.as_str(),
            path: self.parts.uri.path(),
            query: self.parts.uri.query().unwrap_or_default(),
            parts: &self.parts,
            body: &self.body,
        };
        let before = lock(&self.shared.state).truth.effects;
        let reply = self.shared.answer(&request);
        self.applied = lock(&self.shared.state).truth.effects > before;
        reply
    }

    fn refuse(&mut self, refusal: Refusal) -> FakeReply {
        let (status, message) = match refusal {
            Refusal::TooManyRequests | Refusal::RequestLimitExceeded => {
                (StatusCode::TOO_MANY_REQUESTS, "Too Many Requests")
            }
            Refusal::ServerError => (StatusCode::INTERNAL_SERVER_ERROR, "Internal error"),
            Refusal::ServerUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "Service unavailable"),
            Refusal::LockRow => (StatusCode::LOCKED, "Locked"),
            Refusal::DuplicateValue => (StatusCode::CONFLICT, "Duplicate"),
            Refusal::InvalidSession => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        };
        self.shared.error(status, message)
    }

    fn absent(&mut self) -> FakeReply {
        self.shared.error(StatusCode::NOT_FOUND, "Not found")
    }

    fn address(&self) -> String {
        self.parts.uri.to_string()
    }

    fn settle(&mut self, reply: ReplyTruth) {
        if self.applied && !matches!(reply, ReplyTruth::Accurate(_)) {
            lock(&self.shared.state).truth.unseen += 1;
        }
    }
}
