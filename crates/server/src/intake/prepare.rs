//! Turns a request into events: verify, parse, drop fields, derive the key, map. Does no I/O.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::HeaderName;
use hyper::{HeaderMap, StatusCode};
use serde::Serializer;
use serde_json::Value;
use sluice_domain::contact::{IDENTITY_MISSING, Observation};
use sluice_domain::event::{Event, EventId, EventOrigin, MappingProblem};
use sluice_domain::flow::{ContentDedup, Enqueue, Flow, Idempotency, OnClash, OnMismatch};
use sluice_domain::import::{self, RowTimes};
use sluice_domain::key::{self, DerivedKey, KeyContext, KeyDigest, KeyProblem};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::payload;
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::run::first_route;
use sluice_domain::schema::Mismatch;
use sluice_domain::template::{Scope, TemplateProblem};
use sluice_domain::time::Time;
use sluice_domain::verify::{self, HeaderSource, Verified};
use sluice_ledger::{ClashPolicy, EventBody, EventDraft, NewEvent, NewJob, Quarantine};

use super::answer::HttpProblem;
use super::body;
use crate::revisions::LoadedRevision;

pub use sluice_domain::key::TENANT;

pub(super) struct Headers<'a>(pub &'a HeaderMap);

impl HeaderSource for Headers<'_> {
    fn value(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(|value| value.as_bytes())
    }
}

/// Credential headers, never stored.
const SECRET_HEADERS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];

/// The address of the caller, for flows that read it. A header of this name that the caller sent is never stored.
pub(super) const CLIENT_ADDRESS_HEADER: &str = "sluice-client-address";

/// Event that is ready to be written.
#[derive(Debug)]
pub struct Prepared<'f> {
    pub key: DerivedKey,
    pub event: Event,
    /// Flow steps whose condition is true.
    pub queues: Vec<&'f Enqueue>,
    /// Payload without dropped fields.
    pub payload: Value,
    pub new: NewEvent,
}

impl Prepared<'_> {
    /// Key and ledger input, with the decoded event attached for its first run.
    pub fn into_new(self) -> (String, NewEvent) {
        if let Some(event) = self.event.into_cacheable() {
            self.new.body.decoded.put(event);
        }
        (self.key.text, self.new)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RequestMeta<'a> {
    pub received_at: Time,
    /// Name of the secret that verified the request.
    pub verified_by: Option<&'a str>,
    /// What the verification has proved. `None` for a dry run.
    pub verified: Option<&'a Verified<'a>>,
    pub trace: &'a str,
    /// Key of the pseudonyms; a public one for a dry run.
    pub pseudonyms: Option<&'a PseudonymKey>,
    /// Address of the caller, in front of trusted proxies. `None` for a dry run.
    pub address: Option<IpAddr>,
}

/// Rejects a request that repeats a header which decides about it: two readers could use different values.
pub(super) fn check_headers(flow: &Flow, headers: &HeaderMap) -> Result<(), HttpProblem> {
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let is_repeated = |name: &&String| headers.get_all(name.as_str()).iter().nth(1).is_some();
    match flow.headers_read.iter().find(is_repeated) {
        None => Ok(()),
        Some(name) => Err(HttpProblem::new(
            StatusCode::BAD_REQUEST,
            "header-repeated",
            format!("the request has the header {name} more than once; send it once"),
        )),
    }
}

/// Prepares a verified request that carries one event.
pub fn prepare<'f>(
    live: &LoadedRevision,
    flow: &'f Flow,
    headers: &HeaderMap,
    body: &[u8],
    arrival: RequestMeta<'_>,
) -> Result<Prepared<'f>, HttpProblem> {
    let mut all = prepare_all(live, flow, headers, body, arrival)?;
    match all.len() {
        0 => Err(HttpProblem::new(StatusCode::BAD_REQUEST, "events-missing", "the body contains no event")),
        _ => Ok(all.swap_remove(0)),
    }
}

/// Prepares every event of a verified request, in order.
pub fn prepare_all<'f>(
    live: &LoadedRevision,
    flow: &'f Flow,
    headers: &HeaderMap,
    body: &[u8],
    arrival: RequestMeta<'_>,
) -> Result<Vec<Prepared<'f>>, HttpProblem> {
    let payload = body::read(flow, headers, body)?;
    let kept = kept_headers(flow, headers, arrival);
    let request = Request { live, flow, arrival, row: None };
    match &flow.body.events {
        None => Ok(vec![request.event(kept, payload.value, payload.text.as_deref())?]),
        Some(lists) => {
            let events = payload::split(payload.value, lists).map_err(body::problem)?;
            events.into_iter().map(|event| request.event(kept.clone(), event, None)).collect()
        }
    }
}

/// A row of an import: a payload that a sender sent before.
#[derive(Clone, Debug)]
pub(crate) struct RowOrigin {
    pub headers: HeaderMap,
    pub times: RowTimes,
    /// Idempotency key of the event that was exported.
    pub key: Option<String>,
    /// Number of this content among the rows of the file, from 1.
    pub occurrence: u32,
}

/// Prepares a row of an import as a request with this payload would be. The operator answers for it: nothing is verified.
pub(crate) fn prepare_row<'f>(
    live: &LoadedRevision,
    flow: &'f Flow,
    payload: Value,
    row: &RowOrigin,
    arrival: RequestMeta<'_>,
) -> Result<Prepared<'f>, HttpProblem> {
    let kept = kept_headers(flow, &row.headers, arrival);
    Request { live, flow, arrival, row: Some(row) }.event(kept, payload, None)
}

/// Why a stored request is not an event of a flow.
#[derive(Debug)]
pub(crate) enum StoredProblem {
    /// The intake would have answered so.
    Refused(HttpProblem),
    /// The stored text is not a payload.
    Unreadable,
}

/// Prepares the stored request of one event, as this configuration would have. Headers and members that were not stored are
/// missing.
pub(crate) fn prepare_stored<'f>(
    live: &LoadedRevision,
    flow: &'f Flow,
    body: &EventBody,
    arrival: RequestMeta<'_>,
) -> Result<Prepared<'f>, StoredProblem> {
    let payload = payload::parse_json(&body.raw, flow.body.duplicate_keys).map_err(|_| StoredProblem::Unreadable)?;
    let headers: Arc<str> = Arc::from(body.headers.as_str());
    let request = Request { live, flow, arrival, row: None };
    request.event(headers, payload, Some(&body.raw)).map_err(StoredProblem::Refused)
}

/// Verifies a request over its raw bytes.
pub(super) fn verify_request<'v>(
    flow: &'v Flow,
    request: &verify::Request<'_>,
    now: Time,
) -> Result<Option<Verified<'v>>, HttpProblem> {
    let Some(verifier) = &flow.verify else { return Ok(None) };
    match verify::verify(verifier, request, now.to_jiff()) {
        Ok(verified) => Ok(Some(verified)),
        Err(refusal) => Err(HttpProblem::new(StatusCode::UNAUTHORIZED, refusal.code(), refusal.to_string())),
    }
}

struct Request<'a, 'f> {
    live: &'a LoadedRevision,
    flow: &'f Flow,
    arrival: RequestMeta<'a>,
    row: Option<&'a RowOrigin>,
}

/// Failure class for operators, and the error response if the event is rejected.
type Flaw = (FailureClass, HttpProblem);

impl<'f> Request<'_, 'f> {
    /// Whether invalid events are quarantined instead of rejected.
    fn keeps_flawed(&self) -> bool {
        match self.flow.admission.on_mismatch {
            OnMismatch::Reject => false,
            OnMismatch::Quarantine => true,
            OnMismatch::RejectUnlessBatch => self.flow.body.events.is_some(),
        }
    }

    fn event(&self, headers: Arc<str>, mut payload: Value, text: Option<&[u8]>) -> Result<Prepared<'f>, HttpProblem> {
        let flow = self.flow;
        let mut trimmed = false;
        for path in &flow.body.dropped {
            trimmed |= path.remove(&mut payload);
        }
        let raw = match text {
            Some(text) if !trimmed => text.to_vec(),
            _ => payload.to_string().into_bytes(),
        };
        let fingerprint = key::fingerprint_digest(&payload, &flow.idempotency.volatile);
        let mut flaw = self.mismatch(&payload);
        let mut scope = Scope::new();
        scope.set_pseudonyms(self.arrival.pseudonyms.cloned().unwrap_or_default());
        let kept = headers.clone();
        scope.set_lazy("headers", move || {
            serde_json::from_str(&kept).map_err(|error| TemplateProblem(format!("the headers cannot be read: {error}")))
        });
        scope.set("body", payload);
        let key = self.key(&scope, fingerprint, &mut flaw)?;
        let digest = KeyDigest::new(TENANT, &flow.name, &key.text);
        let id = EventId::new(digest, 0);
        let origin =
            EventOrigin { source: &flow.source, idempotency_key: &key.text, id, received_at: self.arrival.received_at };
        let event = self.mapped(&scope, origin, &mut flaw);
        if let Some((_, problem)) = flaw.as_ref().filter(|_| !self.keeps_flawed()) {
            return Err(problem.clone());
        }
        let (observation, unidentified) = self.observe(&event);
        flaw = flaw.or_else(|| self.missing_identity(&event)).or(unidentified);
        let queues = match self.queues(&mut scope, &event) {
            Ok(queues) => queues,
            Err(problem) if flaw.is_none() && !self.keeps_flawed() => return Err(problem),
            Err(problem) => {
                flaw = flaw.or(Some((FailureClass::Mapping, problem)));
                flow.enqueue.iter().collect()
            }
        };
        let quarantine =
            flaw.map(|(class, problem)| Quarantine::new(Failure::new(class, problem.code, problem.detail)));
        let jobs = self.jobs(&queues, &event, &mut scope);
        let owns_content = flow.idempotency.owns_signed_content && self.row.is_none_or(|row| row.key.is_none());
        let signed_content = owns_content.then(|| self.signed_content(&scope, &event, fingerprint));
        let headers = headers.to_string();
        let parts =
            Parts { key: &key, digest, event: &event, jobs, fingerprint, signed_content, headers, raw, quarantine };
        let new = self.new_event(parts, observation);
        let payload = scope.take("body").unwrap_or_default();
        Ok(Prepared { key, event, queues, payload, new })
    }

    /// The normalized event, or one that holds the payload alone and is flawed.
    fn mapped(&self, scope: &Scope, origin: EventOrigin<'_>, flaw: &mut Option<Flaw>) -> Event {
        let mapping = &self.flow.event;
        let mut event = mapping.apply(scope, origin).unwrap_or_else(|problem| {
            flaw.get_or_insert_with(|| (FailureClass::Mapping, mapping_problem(&problem)));
            mapping.unmapped(scope, origin)
        });
        if let Some(row) = self.row {
            event.occurred_at = import::occurred_at(event.occurred_at, row.times, self.arrival.received_at);
        }
        event
    }

    /// The key. A single event without one is rejected; one of several is quarantined, so that it does not block the others.
    fn key(&self, scope: &Scope, fingerprint: [u8; 16], flaw: &mut Option<Flaw>) -> Result<DerivedKey, HttpProblem> {
        let flow = self.flow;
        let context = KeyContext { source: &flow.source, mapping: &flow.event };
        match key::derive(&flow.idempotency.strategies, scope, context) {
            Ok(key) => Ok(key),
            Err(KeyProblem::Missing(_)) if let Some(row) = self.row => {
                Ok(import::fallback_key(row.key.as_deref(), fingerprint, row.occurrence))
            }
            Err(problem) if self.keeps_flawed() && flow.body.events.is_some() => {
                flaw.get_or_insert_with(|| (FailureClass::Mapping, key_problem(&problem)));
                let text = format!("unkeyed|{}", data_encoding::HEXLOWER.encode(&fingerprint));
                Ok(DerivedKey::of_content(text, &flow.idempotency.strategies))
            }
            Err(problem) => Err(key_problem(&problem)),
        }
    }

    /// The digest of what the sender signed: the whole payload, and the signing time. The type is part of it, although it may come
    /// from a header that is not signed: one content can be two events, such as `orders/create` and `orders/updated`.
    fn signed_content(&self, scope: &Scope, event: &Event, fingerprint: [u8; 16]) -> KeyDigest {
        let whole = match (self.flow.idempotency.volatile.is_empty(), scope.get("body")) {
            (false, Some(body)) => key::fingerprint_digest(body, &[]),
            _ => fingerprint,
        };
        let signed_at = self.arrival.verified.and_then(|verified| verified.timestamp).map(Time::from);
        KeyDigest::signed_content(&self.flow.name, &event.event_type, signed_at, whole)
    }

    fn missing_identity(&self, event: &Event) -> Option<Flaw> {
        if !self.flow.admission.requires_identity() || event.has_identity() {
            return None;
        }
        let names: Vec<&str> = self.flow.event.identity.iter().map(|(name, _)| name.as_str()).collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        let detail = format!("no identity: {} {verb} empty", names.join(", "));
        let problem = HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, IDENTITY_MISSING, detail);
        Some((FailureClass::Identity, problem))
    }

    /// What the event says about its contact, if contacts are kept. An event whose identity fields identify nobody is a flaw where
    /// the flow requires an identity.
    fn observe(&self, event: &Event) -> (Option<Box<Observation>>, Option<Flaw>) {
        let Some(rules) = self.live.config.contacts.as_ref().filter(|_| !event.identity.is_empty()) else {
            return (None, None);
        };
        let observation = self.dated(rules.observe(event));
        if !observation.identifiers.is_empty() {
            return (Some(Box::new(observation)), None);
        }
        if !self.flow.admission.requires_identity() {
            return (None, None);
        }
        let names: Vec<&str> = rules.identifiers.iter().map(|rule| rule.field.as_str()).collect();
        let detail = format!("no identifier of a contact: none of {} has a usable value", names.join(", "));
        let problem = HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, IDENTITY_MISSING, detail);
        (None, Some((FailureClass::Identity, problem)))
    }

    /// Without a time, what a request says counts as said on its arrival; that of a row says nothing.
    fn dated(&self, observation: Observation) -> Observation {
        match self.row {
            Some(_) => Observation { occurred_at: Some(import::observed_at(observation.occurred_at)), ..observation },
            None => observation,
        }
    }

    /// What an event says that is quarantined because it has no identity, if a later event may supply one.
    fn waiting(&self, event: &Event) -> Option<Box<Observation>> {
        let rules = self.live.config.contacts.as_ref()?;
        Some(Box::new(self.dated(rules.observe_unidentified(event))))
            .filter(|observation| observation.correlation.is_some())
    }

    /// Whether lookups of one of the jobs may supply the identity that is missing.
    fn looks_up_identity(&self, quarantine: &Quarantine, jobs: &[NewJob]) -> bool {
        let config = &self.live.config;
        let looks_up =
            |job: &NewJob| config.workers.get(&*job.worker).is_some_and(|worker| !worker.identity_lookups().is_empty());
        let is_missing = config.contacts.is_some() && quarantine.failure.code == IDENTITY_MISSING;
        is_missing && jobs.iter().any(looks_up)
    }

    fn new_event(&self, parts: Parts<'_>, observation: Option<Box<Observation>>) -> NewEvent {
        let Request { live, flow, arrival, .. } = self;
        let Parts { key, digest, event, jobs, fingerprint, signed_content, headers, raw, quarantine } = parts;
        let adjacent = |text: &String| KeyDigest::new(TENANT, &flow.name, text);
        let draft = EventDraft {
            flow: &flow.name,
            source: &Arc::from(flow.source.as_str()),
            expires_at: arrival.received_at + flow.idempotency.ttl,
            revision: &live.revision,
            trace: arrival.trace,
            fingerprint,
            headers,
            raw,
            event,
            jobs,
        };
        let new = NewEvent::with_key(draft, digest);
        let quarantine = quarantine.map(|quarantine| {
            let looks_up_identity = self.looks_up_identity(&quarantine, &new.jobs);
            Quarantine { looks_up_identity, ..quarantine }
        });
        // Rows are history, with or without a time: nobody waits for an answer to them.
        let respond = flow.respond.as_ref().filter(|_| self.row.is_none());
        let response = respond.and_then(|rule| rule.start(new.received_at, new.occurred_at, &new.jobs)).map(Box::new);
        NewEvent {
            response,
            verified_by: arrival.verified_by.map(str::to_owned),
            adjacent_keys: key.adjacent.iter().map(adjacent).collect(),
            clash: match flow.idempotency.on_clash {
                OnClash::Drop => ClashPolicy::Drop,
                OnClash::Update => ClashPolicy::Update,
                OnClash::Quarantine => ClashPolicy::Quarantine,
            },
            signed_content,
            content_window: match flow.idempotency.content_window {
                // Rows arrive together, however far apart they happened.
                _ if self.row.is_some() => None,
                ContentDedup::Off => None,
                ContentDedup::Always(window) => Some(window),
                ContentDedup::WithoutOwnId => (key.by_content || key.rank > 0).then_some(Idempotency::CONTENT_WINDOW),
            },
            observation: match &quarantine {
                Some(quarantine) if quarantine.failure.code == IDENTITY_MISSING => self.waiting(event),
                // That of a quarantined event counts from its replay on.
                _ => observation,
            },
            quarantine,
            imported: self.row.is_some(),
            ..new
        }
    }

    /// One job for each worker of these queues, and one for each playbook of this type of event.
    fn jobs(&self, queues: &[&Enqueue], event: &Event, scope: &mut Scope) -> Vec<NewJob> {
        let config = &self.live.config;
        let by_queue = queues.iter().flat_map(|enqueue| config.consumers(&enqueue.queue));
        let mut jobs: Vec<NewJob> = Vec::new();
        for worker in by_queue.chain(config.playbooks(&event.event_type)) {
            // The route of a worker without conditions needs no scope.
            if worker.steps.first().is_some_and(|step| step.condition.is_some()) && scope.get("event").is_none() {
                scope.set("event", event.to_scope());
            }
            let job = worker.new_job().routed(first_route(worker, scope));
            if worker.on.is_none() || !jobs.contains(&job) {
                jobs.push(job);
            }
        }
        jobs
    }

    fn mismatch(&self, payload: &Value) -> Option<Flaw> {
        let mismatches = self.flow.admission.schema.as_ref()?.check(payload);
        if mismatches.is_empty() {
            return None;
        }
        let version = &self.flow.event.schema_version;
        let places: Vec<String> = mismatches.iter().map(Mismatch::to_string).collect();
        let detail = format!("the body does not match the schema of version {version}: {}", places.join("; "));
        Some((FailureClass::Mapping, HttpProblem::new(StatusCode::BAD_REQUEST, "schema-mismatch", detail)))
    }

    fn queues(&self, scope: &mut Scope, event: &Event) -> Result<Vec<&'f Enqueue>, HttpProblem> {
        let flow = self.flow;
        if flow.enqueue.iter().any(|enqueue| enqueue.condition.is_some()) {
            scope.set("event", event.to_scope());
        }
        let mut queues = Vec::with_capacity(flow.enqueue.len());
        for enqueue in &flow.enqueue {
            let holds = match &enqueue.condition {
                None => true,
                Some(condition) => condition.holds(scope).map_err(|problem| {
                    let detail = format!("step `{}`: {problem}", enqueue.step);
                    HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, "condition-failed", detail)
                })?,
            };
            if holds {
                queues.push(enqueue);
            }
        }
        Ok(queues)
    }
}

struct Parts<'p> {
    key: &'p DerivedKey,
    /// Of the key's text.
    digest: KeyDigest,
    event: &'p Event,
    jobs: Vec<NewJob>,
    fingerprint: [u8; 16],
    signed_content: Option<KeyDigest>,
    headers: String,
    raw: Vec<u8>,
    quarantine: Option<Quarantine>,
}

/// Stored headers as a JSON object: what key, mapping and workers read. A header that the signature covers has the value that was
/// verified; one of the scheme that the verification did not use is left out. Values of a repeated header are joined.
fn kept_headers(flow: &Flow, headers: &HeaderMap, RequestMeta { verified, address, .. }: RequestMeta<'_>) -> Arc<str> {
    let signed = verified.map_or(&[][..], |verified| &verified.signed_headers);
    let unused = verified.map_or(&[][..], |verified| &verified.unused_headers);
    let kept = headers.keys().filter_map(|name| {
        let text = match signed.iter().find(|(signed, _)| *signed == name.as_str()) {
            Some((_, verified)) => Cow::Borrowed(verified.as_str()),
            None => joined(headers, name)?,
        };
        let name = name.as_str();
        let dropped = SECRET_HEADERS.contains(&name)
            || name == CLIENT_ADDRESS_HEADER
            || unused.contains(&name)
            || flow.body.dropped_headers.iter().any(|dropped| dropped == name);
        (!dropped).then_some((name, text))
    });
    let address = address.filter(|_| flow.headers_read.contains(CLIENT_ADDRESS_HEADER));
    let kept = kept.chain(address.map(|address| (CLIENT_ADDRESS_HEADER, Cow::Owned(address.to_string()))));
    let mut json = Vec::with_capacity(512);
    serde_json::Serializer::new(&mut json).collect_map(kept).expect("strings serialize to JSON");
    Arc::from(String::from_utf8(json).expect("JSON is UTF-8"))
}

/// The values of a header, joined with commas as RFC 9110 says; `None` if one is not text.
fn joined<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Cow<'h, str>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.try_fold(Cow::Borrowed(first), |text, value| Some(Cow::Owned(format!("{text}, {}", value.to_str().ok()?))))
}

fn key_problem(problem: &KeyProblem) -> HttpProblem {
    let code = match problem {
        KeyProblem::Missing(_) => "idempotency-key-missing",
        KeyProblem::TooLong(_) => "idempotency-key-too-long",
        KeyProblem::Expression(_) => "idempotency-key-failed",
    };
    HttpProblem::new(StatusCode::BAD_REQUEST, code, problem.to_string())
}

fn mapping_problem(problem: &MappingProblem) -> HttpProblem {
    let code = match problem {
        MappingProblem::Missing(_) => "field-missing",
        MappingProblem::Expression { .. } | MappingProblem::Value { .. } => "field-invalid",
    };
    HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, code, problem.to_string())
}
