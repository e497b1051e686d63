//! State shared by handle and server, and request handling.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{HeaderName, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::provider::ProviderState;
use super::rate_limit::{RateCounts, RateLimit};
use super::request_log::{KeyCounts, KeyLookup, ReceivedRequest, RequestLog, SinkTruth, fingerprint};
use super::route::matches;
use super::{KeyPolicy, SinkSettings, TokenPolicy};
use crate::apply_fault::{FakeTarget, Refusal, ReplyTruth, apply_fault};
use crate::faults::{Call, CallKind, Injector};
use crate::inspect::{self, Inspect};
use crate::reply::{FakeReply, Hangup, Payload};
use crate::serve::{Handler, read_body};
use crate::{lock, uri};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const OK: &[u8] = br#"{"ok":true}"#;
const JSON: &str = "application/json";

#[derive(Debug)]
pub(crate) struct Shared {
    settings: SinkSettings,
    pub(crate) injector: Injector,
    counts: Counts,
    log: Mutex<RequestLog>,
    resources: Mutex<HashMap<String, Bytes>>,
    provider: ProviderState,
    /// Number of the latest access token, and the requests that it may still make.
    token: Mutex<(u64, u64)>,
    rate: Mutex<RateLimit>,
    /// Notified when a call arrives and when it is settled.
    pub(crate) changed: watch::Sender<()>,
}

/// Totals without a lock.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    settled: AtomicU64,
    applied: AtomicU64,
    applied_unseen: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
    replayed: AtomicU64,
}

impl Counts {
    fn all(&self) -> [&AtomicU64; 7] {
        let Counts { requests, settled, applied, applied_unseen, refused, cut, replayed } = self;
        [requests, settled, applied, applied_unseen, refused, cut, replayed]
    }
}

fn increment(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed) + 1
}

impl Shared {
    pub(crate) fn new(settings: SinkSettings, injector: Injector) -> Shared {
        Shared {
            rate: Mutex::new(RateLimit::new(settings.calls_per_second_max)),
            settings,
            injector,
            counts: Counts::default(),
            log: Mutex::default(),
            resources: Mutex::default(),
            provider: ProviderState::default(),
            token: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    pub(super) fn limit_rate(&self, calls_per_second_max: Option<u32>) {
        lock(&self.rate).calls_per_second_max = calls_per_second_max;
    }

    pub(super) fn rate_counts(&self) -> RateCounts {
        lock(&self.rate).counts
    }

    fn log(&self) -> MutexGuard<'_, RequestLog> {
        lock(&self.log)
    }

    pub(crate) fn truth(&self) -> SinkTruth {
        let [requests, settled, applied, applied_unseen, refused, cut, replayed] =
            self.counts.all().map(|counter| counter.load(Ordering::Acquire));
        let resources = lock(&self.resources).len() as u64 + self.provider.objects();
        let faults = self.injector.counts();
        let mut truth = SinkTruth {
            requests,
            settled,
            applied,
            applied_unseen,
            refused,
            cut,
            replayed,
            resources,
            faults,
            ..SinkTruth::default()
        };
        self.log().fill_in(&mut truth);
        truth
    }

    pub(crate) fn keys(&self) -> BTreeMap<String, KeyCounts> {
        self.log().keys()
    }

    pub(crate) fn paths(&self) -> BTreeMap<String, u64> {
        self.log().paths()
    }

    pub(crate) fn requests_kept(&self) -> Vec<ReceivedRequest> {
        self.log().requests.iter().cloned().collect()
    }

    pub(crate) fn resource(&self, id: &str) -> Option<Bytes> {
        lock(&self.resources).get(id).cloned().or_else(|| self.provider.object(id))
    }

    pub(crate) fn reset(&self) {
        self.counts.all().iter().for_each(|counter| counter.store(0, Ordering::Release));
        *self.log() = RequestLog::default();
        lock(&self.resources).clear();
        self.provider.reset();
        *lock(&self.token) = (0, 0);
        self.injector.reset_counts();
        self.changed.send_replace(());
    }

    fn record(&self, parts: &Parts, body: &Bytes, key: Option<&str>, number: u64) {
        let SinkSettings { remembered_max, requests_kept_max, .. } = self.settings;
        if remembered_max == 0 && requests_kept_max == 0 {
            return;
        }
        let mut log = self.log();
        if remembered_max > 0 {
            log.count_path(parts.method.as_str(), parts.uri.path(), remembered_max);
        }
        if let (Some(key), true) = (key, remembered_max > 0) {
            log.count_key(key, remembered_max);
        }
        if requests_kept_max > 0 {
            let header = |(name, value): (&HeaderName, &hyper::header::HeaderValue)| {
                (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            };
            let received = ReceivedRequest {
                number,
                method: parts.method.to_string(),
                target: parts.uri.to_string(),
                headers: parts.headers.iter().map(header).collect(),
                body: String::from_utf8_lossy(body).into_owned(),
            };
            log.keep(received, requests_kept_max);
        }
    }

    /// Applies a request that is not a duplicate, and returns its response.
    fn serve(&self, parts: &Parts, body: &Bytes) -> FakeReply {
        let (method, path) = (&parts.method, parts.uri.path());
        if let Some(reply) = self.settings.tokens.as_ref().and_then(|policy| self.check_token(policy, parts)) {
            return reply;
        }
        if let Some(provider) = self.settings.provider {
            return self.provider.serve(provider, parts, body);
        }
        if !self.settings.routes.is_empty() {
            return self.recorded(method, path, body);
        }
        let Some(id) = path.strip_prefix("/resource/").filter(|id| !id.is_empty()) else {
            return FakeReply::of(StatusCode::OK, JSON, OK);
        };
        let id = uri::decode(id);
        let mut resources = lock(&self.resources);
        let exists = resources.contains_key(&id);
        match (method.as_str(), exists) {
            ("GET" | "HEAD", true) => FakeReply::of(StatusCode::OK, JSON, resources[&id].clone()),
            ("DELETE", true) => {
                resources.remove(&id);
                FakeReply::empty(StatusCode::NO_CONTENT)
            }
            ("GET" | "HEAD" | "DELETE", false) => not_found(),
            ("POST", true) => FakeReply::json(StatusCode::CONFLICT, &json!({"error": "the resource exists"})),
            ("PUT" | "POST", false) if resources.len() >= self.settings.resources_max => FakeReply::json(
                StatusCode::INSUFFICIENT_STORAGE,
                &json!({"error": "the maximum number of resources is stored"}),
            ),
            ("PUT" | "POST", _) => {
                resources.insert(id, body.clone());
                FakeReply::of(if exists { StatusCode::OK } else { StatusCode::CREATED }, JSON, OK)
            }
            _ => FakeReply::empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    /// The reply of the first route that matches. A read-back finds nothing before a write was applied.
    fn recorded(&self, method: &Method, path: &str, body: &Bytes) -> FakeReply {
        let Some(route) = self.settings.routes.iter().find(|route| route.matches(method.as_str(), path)) else {
            return FakeReply::json(StatusCode::NOT_FOUND, &json!({"error": "no recorded request has this path"}));
        };
        let is_written = self.counts.applied.load(Ordering::Acquire) > 0;
        match &route.absent {
            Some(absent) if !is_written => absent.reply(),
            _ => route.reply_to(body),
        }
    }

    fn is_token_request(&self, parts: &Parts) -> bool {
        self.settings.tokens.as_ref().is_some_and(|policy| matches(&policy.path, parts.uri.path()))
    }

    /// The reply of the token endpoint, and the refusal of a token that is old or used up. `None`: the request goes on.
    fn check_token(&self, policy: &TokenPolicy, parts: &Parts) -> Option<FakeReply> {
        let mut token = lock(&self.token);
        if parts.method == Method::POST && matches(&policy.path, parts.uri.path()) {
            *token = (token.0 + 1, policy.uses_max);
            let body = json!({ "access_token": format!("simulated-token-{}", token.0), "token_type": "Bearer", "expires_in": 3600 });
            return Some(FakeReply::json(StatusCode::OK, &body));
        }
        let sent = parts.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !sent.ends_with(&format!(" simulated-token-{}", token.0)) || token.1 == 0 {
            return Some(FakeReply::json(StatusCode::UNAUTHORIZED, &json!({ "error": "invalid_token" })));
        }
        token.1 -= 1;
        None
    }

    fn control(&self, method: &Method, path: &str, query: &str, body: &[u8]) -> FakeReply {
        if let Some(reply) = inspect::respond(self, method, path, query, body) {
            return reply;
        }
        match (method.as_str(), path) {
            ("GET", "/keys") => FakeReply::json(StatusCode::OK, &self.keys()),
            ("GET", "/paths") => FakeReply::json(StatusCode::OK, &self.paths()),
            ("GET", "/requests") => FakeReply::json(StatusCode::OK, &self.requests_kept()),
            ("POST", "/reset") => {
                self.reset();
                FakeReply::empty(StatusCode::NO_CONTENT)
            }
            _ => {
                let own = ["GET /sim/keys", "GET /sim/paths", "GET /sim/requests", "POST /sim/reset"];
                let known: Vec<&str> = inspect::ENDPOINTS.into_iter().chain(own).collect();
                FakeReply::json(StatusCode::NOT_FOUND, &json!({"error": "unknown endpoint", "known": known}))
            }
        }
    }
}

fn not_found() -> FakeReply {
    FakeReply::json(StatusCode::NOT_FOUND, &json!({"error": "the resource does not exist"}))
}

impl Inspect for Shared {
    fn name(&self) -> &'static str {
        self.settings.name
    }

    fn received(&self, limit: usize) -> Vec<Value> {
        inspect::last(self.log().requests.iter(), limit)
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
        let Some(body) = read_body(body, self.settings.body_bytes_max).await? else {
            return Ok(FakeReply::empty(StatusCode::PAYLOAD_TOO_LARGE).complete());
        };
        let path = parts.uri.path();
        if let Some(control_path) = path.strip_prefix("/sim/").map(|_| &path["/sim".len()..]) {
            let query = parts.uri.query().unwrap_or_default();
            return Ok(self.control(&parts.method, control_path, query, &body).complete());
        }
        let number = increment(&self.counts.requests);
        let key = parts.headers.get(IDEMPOTENCY_KEY).map(|key| String::from_utf8_lossy(key.as_bytes()));
        let key = key.map(|key| key.trim().trim_matches('"').to_owned());
        self.record(&parts, &body, key.as_deref(), number);
        self.changed.send_replace(());

        if !lock(&self.rate).admits(Instant::now()) {
            increment(&self.counts.settled);
            increment(&self.counts.refused);
            self.changed.send_replace(());
            return Ok(FakeReply::empty(StatusCode::TOO_MANY_REQUESTS).with(RETRY_AFTER, "1").complete());
        }
        let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
        let kind = if is_read { CallKind::Read } else { CallKind::Write };
        let resource = path.strip_prefix("/resource/").map(uri::decode);
        let keys: Vec<&str> = key.as_deref().into_iter().chain(resource.as_deref()).collect();
        let decision = self.injector.decide(&Call { kind, method: parts.method.as_str(), path, keys: &keys });
        apply_fault(decision, FakeCall { shared: self, parts, body, key, kind, applied: false }).await
    }
}

/// One request in progress.
#[derive(Debug)]
struct FakeCall {
    shared: Arc<Shared>,
    parts: Parts,
    body: Bytes,
    key: Option<String>,
    kind: CallKind,
    applied: bool,
}

impl FakeTarget for FakeCall {
    fn apply(&mut self) -> FakeReply {
        let shared = &self.shared;
        let method = &self.parts.method;
        let key = self.key.as_deref().filter(|_| shared.settings.remembered_max > 0 && self.kind == CallKind::Write);
        let Some(key) = key else {
            let reply = shared.serve(&self.parts, &self.body);
            self.applied =
                self.kind == CallKind::Write && reply.status.is_success() && !shared.is_token_request(&self.parts);
            return reply;
        };
        // Holds the lock during the effect, so that only one of two requests with one key is the first.
        let mut log = shared.log();
        let fingerprint = fingerprint(method.as_str(), &self.parts.uri.to_string(), &self.body);
        if shared.settings.keys == KeyPolicy::Honour {
            match log.look_up_key(key, fingerprint) {
                KeyLookup::New => {}
                KeyLookup::Duplicate(reply) => {
                    increment(&shared.counts.replayed);
                    return reply;
                }
                KeyLookup::Mismatch => {
                    let problem = json!({"title": "Idempotency-Key is already used", "status": 422});
                    return FakeReply::json(StatusCode::UNPROCESSABLE_ENTITY, &problem);
                }
            }
        }
        let reply = shared.serve(&self.parts, &self.body);
        self.applied = reply.status.is_success();
        if self.applied {
            log.record_applied(key, fingerprint, &reply);
        }
        reply
    }

    fn refuse(&mut self, refusal: Refusal) -> FakeReply {
        let (status, error) = match refusal {
            Refusal::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "too many requests"),
            Refusal::RequestLimitExceeded => (StatusCode::FORBIDDEN, "request limit exceeded"),
            Refusal::ServerError => (StatusCode::INTERNAL_SERVER_ERROR, "unexpected error"),
            Refusal::ServerUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "server unavailable"),
            Refusal::LockRow => (StatusCode::LOCKED, "locked"),
            Refusal::DuplicateValue => (StatusCode::CONFLICT, "duplicate"),
            Refusal::InvalidSession => (StatusCode::UNAUTHORIZED, "unauthorized"),
        };
        FakeReply::json(status, &json!({"error": error}))
    }

    fn absent(&mut self) -> FakeReply {
        not_found()
    }

    fn address(&self) -> String {
        self.parts.uri.to_string()
    }

    fn settle(&mut self, reply: ReplyTruth) {
        let counts = &self.shared.counts;
        let (accurate, refused) = match reply {
            ReplyTruth::Accurate(status) => (true, !status.is_success()),
            ReplyTruth::Ambiguous(status) => (false, !status.is_success()),
            ReplyTruth::NoReply => (false, false),
        };
        if self.applied {
            increment(&counts.applied);
        }
        if self.applied && !accurate {
            increment(&counts.applied_unseen);
        }
        if refused && !self.applied {
            increment(&counts.refused);
        }
        if reply == ReplyTruth::NoReply {
            increment(&counts.cut);
        }
        increment(&counts.settled);
        self.shared.changed.send_replace(());
    }
}
