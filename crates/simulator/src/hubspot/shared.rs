//! State shared by handle and server, and request handling.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::control;
use super::errors::ApiError;
use super::portal::{ApiCall, Portal};
use super::store::HubspotRecord;
use crate::apply_fault::{FakeTarget, Refusal, ReplyTruth, apply_fault};
use crate::faults::{Call, CallKind, Injector};
use crate::inspect::{self, Inspect};
use crate::reply::{FakeReply, Hangup, Payload};
use crate::salesforce::truth::CallEffect;
use crate::salesforce::{SeenCall, Truth, Write, WriteCounts};
use crate::serve::{Handler, read_body};
use crate::{lock, uri};

/// Larger bodies are rejected with 413.
const BODY_BYTES_MAX: usize = 8 << 20;
const TOKEN_PATHS: [&str; 2] = ["/oauth/v1/token", "/oauth/v3/token"];

#[derive(Debug)]
pub(crate) struct Shared {
    portal: Mutex<Portal>,
    pub(crate) injector: Injector,
    requests: AtomicU64,
    /// Notified when a call arrives and when it is settled.
    pub(crate) changed: watch::Sender<()>,
}

impl Shared {
    pub(crate) fn new(portal: Portal, injector: Injector) -> Shared {
        Shared { portal: Mutex::new(portal), injector, requests: AtomicU64::new(0), changed: watch::Sender::new(()) }
    }

    pub(crate) fn portal(&self) -> MutexGuard<'_, Portal> {
        lock(&self.portal)
    }

    pub(crate) fn truth(&self) -> Truth {
        let portal = self.portal();
        Truth {
            calls: portal.writes.calls,
            objects: portal.writes.objects(|object| portal.store.count(object)),
            faults: self.injector.counts(),
            api_usage: portal.limits.daily_used,
            api_limit: portal.limits.daily_max,
            writes_forgotten: portal.writes.writes_forgotten(),
            calls_forgotten: portal.calls.forgotten(),
        }
    }

    pub(crate) fn reset(&self) {
        let mut portal = self.portal();
        portal.store.clear();
        portal.writes.clear();
        portal.calls.clear();
        portal.limits.new_day();
        self.injector.reset_counts();
        drop(portal);
        self.changed.send_replace(());
    }

    /// Records with a number above `after`.
    pub(crate) fn records_page(&self, object: &str, after: u64, limit: usize) -> Vec<HubspotRecord> {
        let portal = self.portal();
        let is_after = |record: &&HubspotRecord| record.id.parse::<u64>().is_ok_and(|number| number > after);
        portal.store.records(object).filter(is_after).take(limit).cloned().collect()
    }

    pub(crate) fn writes_page(&self, after: u64, external_id: Option<&str>, limit: usize) -> Vec<Write> {
        let portal = self.portal();
        let wanted = |write: &&Write| {
            let value = write.external_id.as_ref().map(|id| id.value.as_str());
            write.number > after && external_id.is_none_or(|wanted| value == Some(wanted))
        };
        portal.writes.entries().filter(wanted).take(limit).cloned().collect()
    }

    pub(crate) fn calls_page(&self, after: u64, limit: usize) -> Vec<SeenCall> {
        self.portal().calls.page(after, limit)
    }

    pub(crate) fn external_ids(&self, object: &str, property: &str) -> BTreeMap<String, WriteCounts> {
        self.portal().writes.external_ids(object, property)
    }
}

impl Inspect for Shared {
    fn name(&self) -> &'static str {
        "hubspot"
    }

    fn received(&self, limit: usize) -> Vec<Value> {
        let portal = self.portal();
        let writes: Vec<&Write> = portal.writes.entries().collect();
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
        let request = match TOKEN_PATHS.contains(&path) {
            true => HubspotRequest::Token {
                path: path.to_owned(),
                method: parts.method.clone(),
                form: String::from_utf8_lossy(&body).into_owned(),
            },
            false => {
                let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
                HubspotRequest::Data(api_call(&parts, body, number))
            }
        };
        let (kind, keys) = match &request {
            HubspotRequest::Token { .. } => (CallKind::Token, Vec::new()),
            HubspotRequest::Data(call) => (kind(call), call.ids()),
        };
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let decision = self.injector.decide(&Call { kind, method: parts.method.as_str(), path, keys: &keys });
        let number = {
            let mut portal = self.portal();
            match request {
                HubspotRequest::Token { .. } => {
                    portal.writes.calls.token_calls += 1;
                    None
                }
                HubspotRequest::Data(_) => {
                    portal.writes.calls.received += 1;
                    let traceparent = parts.headers.get("traceparent").and_then(|value| value.to_str().ok());
                    Some(portal.calls.record(parts.method.as_str(), traceparent))
                }
            }
        };
        self.changed.send_replace(());
        apply_fault(decision, FakeCall { shared: self, request, number, effect: CallEffect::Unchanged }).await
    }
}

fn kind(call: &ApiCall) -> CallKind {
    let operation = call.segments.last().map(String::as_str);
    match call.method == Method::GET || matches!(operation, Some("search" | "read")) {
        true => CallKind::Read,
        false => CallKind::Write,
    }
}

/// Parses the path of a data call, in the classic and in the dated form.
fn api_call(parts: &Parts, body: Bytes, number: u64) -> ApiCall {
    let mut segments: Vec<String> =
        parts.uri.path().split('/').filter(|segment| !segment.is_empty()).map(uri::decode).collect();
    let is_api = |segments: &[String]| match segments {
        [crm, version, objects, ..] if crm == "crm" && objects == "objects" => version == "v3" || version == "v4",
        [crm, objects, version, ..] if crm == "crm" && objects == "objects" => version.starts_with("20"),
        _ => false,
    };
    segments = if is_api(&segments) { segments.split_off(3) } else { Vec::new() };
    let authorization = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    ApiCall {
        method: parts.method.clone(),
        target: parts.uri.to_string(),
        segments,
        query: parts.uri.query().unwrap_or_default().to_owned(),
        token: authorization.and_then(|text| text.strip_prefix("Bearer ")).map(|token| token.trim().to_owned()),
        request_id: format!("sim-{number:08}"),
        body,
    }
}

#[derive(Debug)]
enum HubspotRequest {
    Token { path: String, method: Method, form: String },
    Data(ApiCall),
}

/// One call in progress.
#[derive(Debug)]
struct FakeCall {
    shared: Arc<Shared>,
    request: HubspotRequest,
    /// Number of the data call.
    number: Option<u64>,
    effect: CallEffect,
}

impl FakeTarget for FakeCall {
    fn apply(&mut self) -> FakeReply {
        let mut portal = self.shared.portal();
        match &self.request {
            HubspotRequest::Data(call) => {
                let (reply, effect) = portal.execute(call);
                self.effect = effect;
                reply
            }
            HubspotRequest::Token { method, .. } if *method != Method::POST => {
                FakeReply::empty(StatusCode::METHOD_NOT_ALLOWED)
            }
            HubspotRequest::Token { form, .. } => {
                let reply = portal.tokens.issue_for(form);
                portal.writes.calls.tokens_issued += u64::from(reply.is_ok());
                reply.unwrap_or_else(|refused| refused.reply())
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> FakeReply {
        match &self.request {
            HubspotRequest::Data(call) => self.shared.portal().refuse(call, refusal),
            HubspotRequest::Token { .. } => match refusal {
                Refusal::TooManyRequests => ApiError::rate_limit("SECONDLY").reply(),
                Refusal::ServerError => ApiError::new(500, "INTERNAL_ERROR", "internal error").reply(),
                Refusal::ServerUnavailable => ApiError::new(503, "SERVICE_UNAVAILABLE", "unavailable").reply(),
                _ => FakeReply::json(
                    StatusCode::BAD_REQUEST,
                    &json!({"status": "BAD_REFRESH_TOKEN", "message": "refused"}),
                ),
            },
        }
    }

    fn absent(&mut self) -> FakeReply {
        match &self.request {
            HubspotRequest::Data(call) => self.shared.portal().absent(call),
            HubspotRequest::Token { .. } => FakeReply::empty(StatusCode::NOT_FOUND),
        }
    }

    fn address(&self) -> String {
        match &self.request {
            HubspotRequest::Data(call) => call.target.clone(),
            HubspotRequest::Token { path, .. } => path.clone(),
        }
    }

    fn settle(&mut self, reply: ReplyTruth) {
        if let Some(number) = self.number {
            let mut portal = self.shared.portal();
            portal.writes.settle(self.effect, reply);
            portal.calls.settle(number, self.effect, reply);
        }
        self.shared.changed.send_replace(());
    }
}
