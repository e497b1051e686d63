//! State shared by handle and server, and request handling.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::calls::SeenCall;
use super::control;
use super::errors::ApiError;
use super::org::{ApiCall, Org};
use super::store::Record;
use super::truth::{CallEffect, Truth, Write, WriteCounts};
use crate::apply_fault::{FakeTarget, Refusal, ReplyTruth, apply_fault};
use crate::faults::{Call, CallKind, Injector};
use crate::inspect::{self, Inspect};
use crate::reply::{FakeReply, Hangup, Payload};
use crate::serve::{Handler, read_body};
use crate::{lock, uri};

/// Larger bodies are rejected with 413.
const BODY_BYTES_MAX: usize = 8 << 20;
const TOKEN_PATH: &str = "/services/oauth2/token";

#[derive(Debug)]
pub(crate) struct Shared {
    org: Mutex<Org>,
    pub(crate) injector: Injector,
    requests: AtomicU64,
    /// Notified when a call arrives and when it is settled.
    pub(crate) changed: watch::Sender<()>,
    /// Other simulators that are inspected here.
    pub(crate) beside: Vec<Arc<dyn Inspect>>,
}

impl Shared {
    pub(crate) fn new(org: Org, injector: Injector, beside: Vec<Arc<dyn Inspect>>) -> Shared {
        Shared { org: Mutex::new(org), injector, requests: AtomicU64::new(0), changed: watch::Sender::new(()), beside }
    }

    /// What this and the other simulators received, by name.
    pub(crate) fn received_by_all(&self, limit: usize) -> BTreeMap<&'static str, Vec<Value>> {
        let others = self.beside.iter().map(|simulator| (simulator.name(), simulator.received(limit)));
        others.chain([(self.name(), self.received(limit))]).collect()
    }

    pub(crate) fn org(&self) -> MutexGuard<'_, Org> {
        lock(&self.org)
    }

    pub(crate) fn truth(&self) -> Truth {
        let org = self.org();
        Truth {
            calls: org.writes.calls,
            objects: org.writes.objects(|object| org.store.count(object)),
            faults: self.injector.counts(),
            api_usage: org.api_usage,
            api_limit: org.api_limit,
            writes_forgotten: org.writes.writes_forgotten(),
            calls_forgotten: org.calls.forgotten(),
        }
    }

    pub(crate) fn reset(&self) {
        let mut org = self.org();
        org.store.clear();
        org.writes.clear();
        org.calls.clear();
        org.api_usage = 0;
        self.injector.reset_counts();
        drop(org);
        self.changed.send_replace(());
    }

    pub(crate) fn records_page(&self, object: &str, after: &str, limit: usize) -> Vec<Record> {
        let org = self.org();
        org.store.records(object).filter(|record| record.id.as_str() > after).take(limit).cloned().collect()
    }

    pub(crate) fn writes_page(&self, after: u64, external_id: Option<&str>, limit: usize) -> Vec<Write> {
        let org = self.org();
        let wanted = |write: &&Write| {
            let value = write.external_id.as_ref().map(|id| id.value.as_str());
            write.number > after && external_id.is_none_or(|wanted| value == Some(wanted))
        };
        org.writes.entries().filter(wanted).take(limit).cloned().collect()
    }

    pub(crate) fn calls_page(&self, after: u64, limit: usize) -> Vec<SeenCall> {
        self.org().calls.page(after, limit)
    }

    /// Counts a call whose path is not part of the API.
    fn unknown_path(&self, parts: &Parts, error: &ApiError) -> FakeReply {
        let mut org = self.org();
        org.writes.calls.received += 1;
        let number = org.calls.record(parts.method.as_str(), traceparent(parts));
        org.calls.settle(number, CallEffect::Unchanged, ReplyTruth::Accurate(error.status));
        org.writes.settle(CallEffect::Unchanged, ReplyTruth::Accurate(error.status));
        drop(org);
        self.changed.send_replace(());
        error.reply()
    }

    pub(crate) fn external_ids(&self, object: &str, field: &str) -> BTreeMap<String, WriteCounts> {
        self.org().writes.external_ids(object, field)
    }
}

impl Inspect for Shared {
    fn name(&self) -> &'static str {
        "salesforce"
    }

    fn received(&self, limit: usize) -> Vec<Value> {
        let org = self.org();
        let writes: Vec<&Write> = org.writes.entries().collect();
        inspect::last(writes.into_iter(), limit)
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
        let (parts, body) = request.into_parts();
        let Some(body) = read_body(body, BODY_BYTES_MAX).await? else {
            return Ok(FakeReply::empty(StatusCode::PAYLOAD_TOO_LARGE).complete());
        };
        let path = parts.uri.path();
        if let Some(control_path) = path.strip_prefix("/sim") {
            let query = parts.uri.query().unwrap_or_default();
            return Ok(control::respond(&self, &parts.method, control_path, query, &body).complete());
        }
        let request = if path == TOKEN_PATH {
            SalesforceRequest::Token(TokenCall::new(&parts, body))
        } else {
            let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
            match api_call(&parts, body, number) {
                Ok(call) => SalesforceRequest::Data(call),
                Err(error) => return Ok(self.unknown_path(&parts, &error).complete()),
            }
        };
        let kind = match &request {
            SalesforceRequest::Token(_) => CallKind::Token,
            SalesforceRequest::Data(_) if parts.method == Method::GET || parts.method == Method::HEAD => CallKind::Read,
            SalesforceRequest::Data(_) => CallKind::Write,
        };
        let keys = if let SalesforceRequest::Data(call) = &request { call.external_ids() } else { Vec::new() };
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let decision = self.injector.decide(&Call { kind, method: parts.method.as_str(), path, keys: &keys });
        let number = {
            let mut org = self.org();
            match request {
                SalesforceRequest::Token(_) => {
                    org.writes.calls.token_calls += 1;
                    None
                }
                SalesforceRequest::Data(_) => {
                    org.writes.calls.received += 1;
                    Some(org.calls.record(parts.method.as_str(), traceparent(&parts)))
                }
            }
        };
        self.changed.send_replace(());
        apply_fault(decision, FakeCall { shared: self, request, number, effect: CallEffect::Unchanged }).await
    }
}

/// Parses the path of a data call.
fn api_call(parts: &Parts, body: Bytes, number: u64) -> Result<ApiCall, ApiError> {
    let path = parts.uri.path();
    let rest = path.strip_prefix("/services/data").ok_or_else(ApiError::not_found)?;
    let mut segments = rest.split('/').filter(|segment| !segment.is_empty()).map(uri::decode);
    let version = segments.next().map(|segment| version(&segment).ok_or_else(ApiError::not_found)).transpose()?;
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !body.is_empty() && content_type.is_some_and(|value| !value.starts_with("application/json")) {
        let message = "The request content type is not supported: send application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message));
    }
    Ok(ApiCall {
        method: parts.method.clone(),
        target: parts.uri.to_string(),
        version,
        segments: segments.collect(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        token: credential(&parts.headers, "Bearer").or_else(|| credential(&parts.headers, "OAuth")),
        request_id: format!("sim-{number:08}"),
        body,
    })
}

fn traceparent(parts: &Parts) -> Option<&str> {
    parts.headers.get("traceparent").and_then(|value| value.to_str().ok())
}

fn version(segment: &str) -> Option<u32> {
    segment.strip_prefix('v')?.strip_suffix(".0")?.parse().ok()
}

fn credential(headers: &HeaderMap, scheme: &str) -> Option<String> {
    let (found, value) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    found.eq_ignore_ascii_case(scheme).then(|| value.trim().to_owned())
}

#[derive(Debug)]
struct TokenCall {
    method: Method,
    form: String,
    basic: Option<String>,
    instance_url: String,
}

impl TokenCall {
    fn new(parts: &Parts, body: Bytes) -> TokenCall {
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1");
        TokenCall {
            method: parts.method.clone(),
            form: String::from_utf8_lossy(&body).into_owned(),
            basic: credential(&parts.headers, "Basic"),
            instance_url: format!("http://{host}"),
        }
    }
}

#[derive(Debug)]
enum SalesforceRequest {
    Token(TokenCall),
    Data(ApiCall),
}

/// One call in progress.
#[derive(Debug)]
struct FakeCall {
    shared: Arc<Shared>,
    request: SalesforceRequest,
    /// Number of the data call.
    number: Option<u64>,
    effect: CallEffect,
}

impl FakeTarget for FakeCall {
    fn apply(&mut self) -> FakeReply {
        let mut org = self.shared.org();
        match &self.request {
            SalesforceRequest::Data(call) => {
                let (reply, effect) = org.execute(call);
                self.effect = effect;
                reply
            }
            SalesforceRequest::Token(call) if call.method != Method::POST => {
                FakeReply::empty(StatusCode::METHOD_NOT_ALLOWED)
            }
            SalesforceRequest::Token(call) => {
                let reply = org.tokens.issue_for(&call.form, call.basic.as_deref(), &call.instance_url);
                org.writes.calls.tokens_issued += u64::from(reply.is_ok());
                reply.unwrap_or_else(|refused| refused.reply())
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> FakeReply {
        match &self.request {
            SalesforceRequest::Data(call) => self.shared.org().refuse(call, refusal),
            SalesforceRequest::Token(_) => {
                let (status, error) = match refusal {
                    Refusal::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded"),
                    Refusal::ServerError => (StatusCode::INTERNAL_SERVER_ERROR, "unknown_error"),
                    Refusal::ServerUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable"),
                    _ => (StatusCode::BAD_REQUEST, "invalid_grant"),
                };
                FakeReply::json(status, &json!({"error": error, "error_description": "authentication failure"}))
            }
        }
    }

    fn absent(&mut self) -> FakeReply {
        match &self.request {
            SalesforceRequest::Data(call) => self.shared.org().absent(call),
            SalesforceRequest::Token(_) => FakeReply::empty(StatusCode::NOT_FOUND),
        }
    }

    fn address(&self) -> String {
        match &self.request {
            SalesforceRequest::Data(call) => call.target.clone(),
            SalesforceRequest::Token(_) => TOKEN_PATH.to_owned(),
        }
    }

    fn settle(&mut self, reply: ReplyTruth) {
        if let Some(number) = self.number {
            let mut org = self.shared.org();
            org.writes.settle(self.effect, reply);
            org.calls.settle(number, self.effect, reply);
        }
        self.shared.changed.send_replace(());
    }
}
