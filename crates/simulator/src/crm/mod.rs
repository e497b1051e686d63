//! What the simulated CRMs share: logs of calls and writes, requests under faults, and `/sim/…`.

mod calls;
mod control;
mod truth;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

pub use calls::SeenCall;
pub(crate) use truth::CallEffect;
pub use truth::{CallCounts, ExternalId, ObjectTruth, Truth, Write, WriteActor, WriteCounts, WriteKind};

use crate::apply_fault::{FakeTarget, Refusal, ReplyTruth, apply_fault};
use crate::faults::{Call, CallKind, Injector};
use crate::inspect::{self, Inspect};
use crate::lock;
use crate::reply::{FakeReply, Hangup, Payload};
use crate::serve::{Handler, read_body};
use calls::CallLog;
use truth::WriteLog;

/// Larger bodies are rejected with 413.
const BODY_BYTES_MAX: usize = 8 << 20;

/// What differs between the CRMs.
pub(crate) trait Crm: Debug + Send + 'static {
    /// Name in paths of `/sim/…`.
    const NAME: &'static str;
    /// An object and a field of it that identifies records, for messages.
    const EXAMPLE: (&'static str, &'static str);

    /// Call to the data API.
    type Call: Debug + Send;
    /// Call to the token endpoint.
    type TokenCall: Debug + Send;
    type Record: Serialize;

    fn is_token_path(path: &str) -> bool;
    fn token_call(parts: &Parts, body: &Bytes) -> Self::TokenCall;
    /// Parses a data call, or returns the response to a path that is not part of the API. `number` makes its request id.
    fn data_call(parts: &Parts, body: Bytes, number: u64) -> Result<Self::Call, Box<FakeReply>>;
    fn is_read(call: &Self::Call) -> bool;
    /// Ids of the records that a call writes.
    fn written_ids(call: &Self::Call) -> Vec<String>;

    /// Executes a call; the caller compares the log of writes to learn whether a record changed.
    fn execute(&mut self, call: &Self::Call) -> FakeReply;
    /// Refuses a call without executing it.
    fn refuse(&mut self, call: &Self::Call, refusal: Refusal) -> FakeReply;
    /// Response of a read that finds nothing.
    fn absent(&self, call: &Self::Call) -> FakeReply;
    /// Issues a token, or refuses to.
    fn issue_token(&mut self, call: &Self::TokenCall) -> Result<FakeReply, Box<FakeReply>>;
    fn refuse_token(refusal: Refusal) -> FakeReply;
    fn expire_tokens(&mut self);

    fn log(&self) -> &CrmLog;
    fn log_mut(&mut self) -> &mut CrmLog;
    /// Records of an object with an id above `after`, oldest first; all of them if `after` is empty.
    fn records(&self, object: &str, after: &str, limit: usize) -> Vec<Self::Record>;
    fn record_count(&self, object: &str) -> u64;
    fn delete_records(&mut self);
    /// Calls counted against the daily limit, and the limit.
    fn daily_calls(&self) -> (u64, u64);
    /// Resets the daily call count.
    fn new_day(&mut self);
}

/// Latest calls and writes, each up to a maximum.
#[derive(Debug)]
pub(crate) struct CrmLog {
    calls: CallLog,
    writes: WriteLog,
}

impl CrmLog {
    pub(crate) fn new(calls_kept_max: usize, writes_kept_max: usize) -> CrmLog {
        CrmLog { calls: CallLog::new(calls_kept_max), writes: WriteLog::new(writes_kept_max) }
    }

    pub(crate) fn record(&mut self, write: Write) {
        self.writes.record(write);
    }

    fn settle(&mut self, number: u64, effect: CallEffect, reply: ReplyTruth) {
        self.writes.settle(effect, reply);
        self.calls.settle(number, effect, reply);
    }
}

/// State shared by handle and server.
#[derive(Debug)]
pub(crate) struct CrmServer<C> {
    crm: Mutex<C>,
    injector: Injector,
    /// Data calls so far.
    requests: AtomicU64,
    /// Notified when a call arrives and when it is settled.
    pub(crate) changed: watch::Sender<()>,
    /// Other simulators that are inspected here.
    beside: Vec<Arc<dyn Inspect>>,
}

impl<C: Crm> CrmServer<C> {
    pub(crate) fn new(crm: C, injector: Injector, beside: Vec<Arc<dyn Inspect>>) -> CrmServer<C> {
        let (requests, changed) = (AtomicU64::new(0), watch::Sender::new(()));
        CrmServer { crm: Mutex::new(crm), injector, requests, changed, beside }
    }

    pub(crate) fn crm(&self) -> MutexGuard<'_, C> {
        lock(&self.crm)
    }

    pub(crate) fn truth(&self) -> Truth {
        let crm = self.crm();
        let (api_usage, api_limit) = crm.daily_calls();
        let CrmLog { calls, writes } = crm.log();
        Truth {
            calls: writes.calls,
            objects: writes.objects(|object| crm.record_count(object)),
            faults: self.injector.counts(),
            api_usage,
            api_limit,
            writes_forgotten: writes.writes_forgotten(),
            calls_forgotten: calls.forgotten(),
        }
    }

    /// Deletes records, logs and all counts. Keeps tokens and the fault plan.
    pub(crate) fn reset(&self) {
        let mut crm = self.crm();
        crm.delete_records();
        crm.log_mut().writes.clear();
        crm.log_mut().calls.clear();
        crm.new_day();
        self.injector.reset_counts();
        drop(crm);
        self.changed.send_replace(());
    }

    pub(crate) fn writes_page(&self, after: u64, external_id: Option<&str>, limit: usize) -> Vec<Write> {
        let wanted = |write: &&Write| {
            let value = write.external_id.as_ref().map(|id| id.value.as_str());
            write.number > after && external_id.is_none_or(|wanted| value == Some(wanted))
        };
        self.crm().log().writes.entries().filter(wanted).take(limit).cloned().collect()
    }

    pub(crate) fn calls_page(&self, after: u64, limit: usize) -> Vec<SeenCall> {
        self.crm().log().calls.page(after, limit)
    }

    pub(crate) fn external_ids(&self, object: &str, field: &str) -> BTreeMap<String, WriteCounts> {
        self.crm().log().writes.external_ids(object, field)
    }

    /// What this and the other simulators received, by name.
    fn received_by_all(&self, limit: usize) -> BTreeMap<&'static str, Vec<Value>> {
        let others = self.beside.iter().map(|simulator| (simulator.name(), simulator.received(limit)));
        others.chain([(self.name(), self.received(limit))]).collect()
    }

    /// Records a data call and returns its number in the log.
    fn received_call(&self, parts: &Parts) -> u64 {
        let traceparent = parts.headers.get("traceparent").and_then(|value| value.to_str().ok());
        let mut crm = self.crm();
        let log = crm.log_mut();
        log.writes.calls.received += 1;
        log.calls.record(parts.method.as_str(), traceparent)
    }

    /// Counts a call whose path is not part of the API.
    fn unknown_path(&self, parts: &Parts, reply: FakeReply) -> FakeReply {
        let number = self.received_call(parts);
        self.crm().log_mut().settle(number, CallEffect::Unchanged, ReplyTruth::Accurate(reply.status));
        self.changed.send_replace(());
        reply
    }
}

impl<C: Crm> Inspect for CrmServer<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn received(&self, limit: usize) -> Vec<Value> {
        let crm = self.crm();
        let writes: Vec<&Write> = crm.log().writes.entries().collect();
        inspect::last(writes.into_iter(), limit)
    }

    fn truth(&self) -> Value {
        json!(CrmServer::truth(self))
    }

    fn injector(&self) -> &Injector {
        &self.injector
    }
}

impl<C: Crm> Handler for CrmServer<C> {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Payload>, Hangup> {
        let (parts, body) = request.into_parts();
        let Some(body) = read_body(body, BODY_BYTES_MAX).await? else {
            return Ok(FakeReply::empty(StatusCode::PAYLOAD_TOO_LARGE).complete());
        };
        let path = parts.uri.path();
        if let Some(control_path) = path.strip_prefix("/sim") {
            let query = parts.uri.query().unwrap_or_default();
            return Ok(control::respond(&*self, &parts.method, control_path, query, &body).complete());
        }
        let method = parts.method.as_str();
        let (request, decision) = if C::is_token_path(path) {
            self.crm().log_mut().writes.calls.token_calls += 1;
            let decision = self.injector.decide(&Call { kind: CallKind::Token, method, path, keys: &[] });
            (CrmRequest::Token(C::token_call(&parts, &body)), decision)
        } else {
            let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
            let call = match C::data_call(&parts, body, number) {
                Ok(call) => call,
                Err(reply) => return Ok(self.unknown_path(&parts, *reply).complete()),
            };
            let kind = if C::is_read(&call) { CallKind::Read } else { CallKind::Write };
            let ids = C::written_ids(&call);
            let keys: Vec<&str> = ids.iter().map(String::as_str).collect();
            let decision = self.injector.decide(&Call { kind, method, path, keys: &keys });
            (CrmRequest::Data(call, self.received_call(&parts)), decision)
        };
        self.changed.send_replace(());
        let Parts { method, uri, .. } = parts;
        apply_fault(
            decision,
            CrmCall { server: self, request, method, address: uri.to_string(), effect: CallEffect::Unchanged },
        )
        .await
    }
}

enum CrmRequest<C: Crm> {
    Token(C::TokenCall),
    /// With its number in the log.
    Data(C::Call, u64),
}

/// One call in progress.
struct CrmCall<C: Crm> {
    server: Arc<CrmServer<C>>,
    request: CrmRequest<C>,
    method: Method,
    /// Path and query as received.
    address: String,
    effect: CallEffect,
}

impl<C: Crm> FakeTarget for CrmCall<C> {
    fn apply(&mut self) -> FakeReply {
        let mut crm = self.server.crm();
        match &self.request {
            CrmRequest::Data(call, _) => {
                let written = crm.log().writes.written();
                let reply = crm.execute(call);
                let changed = crm.log().writes.written() != written;
                self.effect = if changed { CallEffect::Applied } else { CallEffect::Unchanged };
                reply
            }
            CrmRequest::Token(_) if self.method != Method::POST => FakeReply::empty(StatusCode::METHOD_NOT_ALLOWED),
            CrmRequest::Token(call) => {
                let reply = crm.issue_token(call);
                crm.log_mut().writes.calls.tokens_issued += u64::from(reply.is_ok());
                reply.unwrap_or_else(|refused| *refused)
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> FakeReply {
        match &self.request {
            CrmRequest::Data(call, _) => self.server.crm().refuse(call, refusal),
            CrmRequest::Token(_) => C::refuse_token(refusal),
        }
    }

    fn absent(&mut self) -> FakeReply {
        match &self.request {
            CrmRequest::Data(call, _) => self.server.crm().absent(call),
            CrmRequest::Token(_) => FakeReply::empty(StatusCode::NOT_FOUND),
        }
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn settle(&mut self, reply: ReplyTruth) {
        if let CrmRequest::Data(_, number) = self.request {
            self.server.crm().log_mut().settle(number, self.effect, reply);
        }
        self.server.changed.send_replace(());
    }
}
