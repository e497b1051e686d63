//! Public intake listener.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use sluice_domain::flow::Flow;
use sluice_domain::key::KeyDigest;
use sluice_domain::time::Time;
use sluice_domain::verify::{self, Success};
use sluice_ledger::{Acceptance, AuditEntry, NewEvent, Proof};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use super::IntakeContext;
use super::admit::{Caller, Origin};
use super::answer::{self, HttpProblem};
use super::peer::Peers;
use super::prepare::{Headers, Prepared, RequestMeta, check_headers, prepare_all, verify_request};
use super::problems::{ledger_problem, no_flow, not_received};
use super::receive::{BodyLimits, BodyMemory, ReceivedBody};
use super::refused::Refused;
use super::settings::IntakeSettings;
use super::slack;
use super::telemetry::{EventFacts, RequestTrace, WrittenEvents};
use crate::observe::metrics::SourceLabels;
use crate::revisions::LoadedRevision;

#[derive(Debug)]
pub(crate) struct IntakeServer {
    listener: TcpListener,
    context: IntakeContext,
    settings: IntakeSettings,
}

pub(super) struct Shared {
    pub(super) context: IntakeContext,
    pub(super) settings: IntakeSettings,
    pub(super) body_limits: BodyLimits,
    pub(super) body_memory: BodyMemory,
    pub(super) peers: Peers,
}

/// A request whose body has arrived.
struct Arrived<'a> {
    head: &'a Parts,
    body: &'a [u8],
    received_at: Time,
    caller: &'a Caller,
    trace: &'a RequestTrace,
}

impl IntakeServer {
    pub(crate) async fn bind(
        address: SocketAddr,
        context: IntakeContext,
        settings: IntakeSettings,
    ) -> std::io::Result<IntakeServer> {
        Ok(IntakeServer { listener: TcpListener::bind(address).await?, context, settings })
    }

    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`; then finishes open requests.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let permits = Arc::new(Semaphore::new(self.settings.connections_max));
        let shared = Arc::new(Shared {
            context: self.context,
            body_limits: self.settings.body_limits(),
            settings: self.settings,
            body_memory: BodyMemory::default(),
            peers: Peers::default(),
        });
        loop {
            // Accepts a connection only with a free permit; the rest wait in the listen backlog.
            let Ok(permit) = permits.clone().acquire_owned().await else { break };
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted");
                    // Usually out of file descriptors; they become free when connections end.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Some(origin) = shared.connect(&stream, peer) else { continue };
            let _ = stream.set_nodelay(true);
            let head_timeout = shared.settings.head_timeout_with(permits.available_permits());
            let (shared, mut stop) = (shared.clone(), stop.clone());
            tokio::spawn(async move {
                let Origin { address, peer, connection: counted } = origin;
                let service = service_fn(move |request: Request<Incoming>| {
                    let shared = shared.clone();
                    let caller = shared.caller(address, &peer, &request);
                    async move { Ok::<_, Infallible>(shared.answer(request, caller).await) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(head_timeout)
                    .max_buf_size(64 * 1024)
                    .serve_connection(TokioIo::new(stream), service);
                let mut connection = std::pin::pin!(connection);
                let stopped = async {
                    let _ = stop.wait_for(|stop| *stop).await;
                };
                tokio::select! {
                    _ = connection.as_mut() => {}
                    () = stopped => {
                        connection.as_mut().graceful_shutdown();
                        let _ = connection.await;
                    }
                }
                drop((permit, counted));
            });
        }
        // All permits are free once the last connection has ended.
        let permits_total = u32::try_from(shared.settings.connections_max).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(Duration::from_secs(20), permits.acquire_many(permits_total)).await;
    }
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>, caller: Caller) -> Response<Full<Bytes>> {
        let started = Instant::now();
        let live = self.context.revisions.current();
        let path = request.uri().path();
        let Some(flow) = find_flow(&live, request.method(), path) else {
            if let Some(destination) = slack::destination_of(request.method(), path).map(str::to_owned) {
                let taken = match self.admit_unverified(&caller) {
                    Ok(()) => slack::take(&self.context, &live, &destination, request, self.receiver(&caller)).await,
                    Err(problem) => Err(problem),
                };
                let taken = taken.map_err(|problem| self.charge(&caller, problem));
                if taken.is_ok() {
                    self.note_verified(&caller);
                }
                let code = taken.as_ref().map_or_else(|problem| problem.code, |_| "interaction");
                self.context.metrics.intake("", code, started.elapsed());
                return taken.unwrap_or_else(|problem| problem.response());
            }
            let problem = no_flow(&live, request.method(), path);
            self.context.metrics.refused("", problem.code, started.elapsed());
            return problem.response();
        };
        let (flow, method) = (flow.clone(), request.method().clone());
        let trace = self.context.trace(request.headers());
        match self.take(&live, &flow, request, &caller, &trace).await {
            Ok((outcome, response)) => {
                self.context.metrics.intake(&flow.source, outcome, started.elapsed());
                self.context.observe_request(&flow, &method, &trace, Ok((response.status(), outcome)));
                response
            }
            Err(problem) => {
                let problem = if flow.verify.is_some() { self.charge(&caller, problem) } else { problem };
                self.context.metrics.refused(&flow.source, problem.code, started.elapsed());
                self.context.observe_request(&flow, &method, &trace, Err(&problem));
                self.refuse(&flow, &caller, &problem);
                problem.response()
            }
        }
    }

    async fn take(
        &self,
        live: &LoadedRevision,
        flow: &Arc<Flow>,
        request: Request<Incoming>,
        caller: &Caller,
        trace: &RequestTrace,
    ) -> Result<(&'static str, Response<Full<Bytes>>), HttpProblem> {
        let received_at = self.context.clock.ledger_time();
        self.admit(flow, caller, &request)?;
        check_headers(flow, request.headers())?;
        let (head, body) = request.into_parts();
        let body = self.receive(flow, body, caller).await?;
        let arrived = Arrived { head: &head, body: &body.bytes, received_at, caller, trace };
        let (prepared, proof) = match self.understand(live, flow, arrived)? {
            ParsedRequest::Greeting(answer) => {
                self.count_unverified(caller)?;
                return Ok(("handshake", answer));
            }
            ParsedRequest::Events(prepared, proof) => (prepared, proof),
        };
        let bytes = body.bytes.len() as u64;
        let (keys, mut events): (Vec<String>, Vec<NewEvent>) = prepared.into_iter().map(Prepared::into_new).unzip();
        if let Some(token) = &proof {
            // Without events nothing is written, and a token that proves nothing need not be remembered.
            events.iter_mut().for_each(|event| event.proof = Some(one_time_proof(flow, token, received_at)));
        }
        let is_observed = trace.is_observed();
        let facts: Vec<EventFacts> = events.iter().map(|event| EventFacts::of(event, is_observed)).collect();
        let verified_by = events.first().and_then(|event| event.verified_by.clone());
        let begun = Instant::now();
        let accepted = self.write(events).await?;
        let outcome = self.count(flow, &accepted);
        let written = WrittenEvents { facts: &facts, keys: &keys, accepted: &accepted, took: begun.elapsed() };
        self.context.observe_events(flow, trace, &written);
        if outcome != "duplicate" {
            self.context.metrics.intake_bytes.inc_by(bytes);
        }
        let answers = accepted.iter().zip(&keys).zip(&facts).map(|((acceptance, key), facts)| answer::EventResult {
            acceptance,
            key,
            reason: facts.reason.as_deref(),
        });
        let status = success(flow);
        let caller = answer::Caller { flow, verified_by: verified_by.as_deref() };
        let response = match flow.body.events {
            Some(_) => answer::several(status, answers),
            None => answer::one(status, caller, answers),
        };
        Ok((outcome, response))
    }

    /// Writes the events of a request in one transaction.
    async fn write(&self, events: Vec<NewEvent>) -> Result<Vec<Acceptance>, HttpProblem> {
        let accepted = match <[NewEvent; 1]>::try_from(events) {
            Ok([event]) => self.context.ledger.accept(event).await.map(|acceptance| vec![acceptance]),
            Err(events) => self.context.ledger.accept_all(events).await,
        };
        let accepted = accepted.map_err(|error| ledger_problem(&error))?;
        if accepted.iter().any(|acceptance| matches!(acceptance, Acceptance::ProofUsed)) {
            return Err(HttpProblem::new(
                StatusCode::UNAUTHORIZED,
                "proof-replayed",
                "the credential of this request was already used for another event",
            ));
        }
        Ok(accepted)
    }

    /// Counts the events of a request. Returns the outcome label of the request.
    fn count(&self, flow: &Flow, accepted: &[Acceptance]) -> &'static str {
        let labels = || SourceLabels { source: flow.source.clone() };
        let mut outcome = if accepted.is_empty() { "accepted" } else { "duplicate" };
        for acceptance in accepted {
            match acceptance {
                Acceptance::Accepted(accepted) => {
                    outcome = "accepted";
                    self.context.metrics.accepted(&flow.source);
                    self.context.metrics.released("event", u64::from(accepted.released));
                    if accepted.quarantined {
                        self.context.metrics.quarantined.get_or_create(&labels()).inc();
                    }
                }
                Acceptance::Duplicate(first) => {
                    self.context.metrics.duplicates.get_or_create(&labels()).inc();
                    self.context.metrics.idempotency_hits.inc();
                    if first.clash {
                        self.context.metrics.clashes.get_or_create(&labels()).inc();
                        tracing::warn!(source = %flow.source, event = %first.id, "key clash: same key, different payload; first one kept");
                    }
                }
                // Rejected before.
                Acceptance::ProofUsed => {}
            }
        }
        outcome
    }

    /// Verifies the raw bytes before parsing them.
    fn understand<'f>(
        &self,
        live: &LoadedRevision,
        flow: &'f Flow,
        arrived: Arrived<'_>,
    ) -> Result<ParsedRequest<'f>, HttpProblem> {
        // Senders sign the time that people read.
        let now = self.context.clock.wall();
        let Arrived { head, body, received_at, caller, trace } = arrived;
        let path_and_query = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let headers = Headers(&head.headers);
        let raw = verify::Request { method: head.method.as_str(), path_and_query, headers: &headers, body };
        if let Some(verifier) = &flow.verify
            && let Some(greeting) = verify::handshake(verifier, &raw, now.to_jiff())
        {
            let status = StatusCode::from_u16(greeting.status).unwrap_or(StatusCode::OK);
            let content_type = greeting.content_type.unwrap_or("text/plain");
            return Ok(ParsedRequest::Greeting(answer::raw(status, content_type, Bytes::from(greeting.body))));
        }
        if head.method.as_str() != flow.method {
            return Err(no_flow(live, &head.method, head.uri.path()));
        }
        let verified = verify_request(flow, &raw, now)?;
        let verified_by = verified.as_ref().and_then(|verified| verified.secret);
        self.admit_verified(flow, caller, verified_by)?;
        let trace = trace.event.to_string();
        let pseudonyms = Some(self.context.revisions.pseudonyms());
        let (verified_ref, address) = (verified.as_ref(), Some(caller.address));
        let arrival =
            RequestMeta { received_at, verified_by, verified: verified_ref, trace: &trace, pseudonyms, address };
        let prepared = prepare_all(live, flow, &head.headers, body, arrival)?;
        Ok(ParsedRequest::Events(prepared, verified.and_then(|verified| verified.replay_token)))
    }

    async fn receive<'a>(
        &'a self,
        flow: &Flow,
        body: Incoming,
        caller: &'a Caller,
    ) -> Result<ReceivedBody<'a>, HttpProblem> {
        let bytes_max = usize::try_from(flow.body_bytes_max).unwrap_or(usize::MAX);
        let received = self.receiver(caller).receive(body, bytes_max).await;
        received.map_err(|error| not_received(error, flow.body_bytes_max))
    }

    fn refuse(&self, flow: &Flow, caller: &Caller, problem: &HttpProblem) {
        let at = self.context.clock.wall();
        let refused = Refused {
            at,
            source: flow.source.clone(),
            address: caller.address.to_string(),
            code: problem.code,
            detail: problem.detail.clone(),
        };
        tracing::debug!(source = %flow.source, code = problem.code, address = %caller.address, "rejected: {}", problem.detail);
        if let Some(count) = self.context.refusals.note(refused)
            && (problem.status == StatusCode::UNAUTHORIZED || problem.code == "header-repeated")
        {
            let ledger = self.context.ledger.clone();
            let entry = AuditEntry {
                at,
                actor: "intake".to_owned(),
                action: "refuse".to_owned(),
                object: format!("source:{}", flow.source),
                detail: format!("{} from {}, {count} since the last entry", problem.code, caller.address),
            };
            tokio::spawn(async move {
                if let Err(error) = ledger.audit(entry).await {
                    tracing::warn!(%error, "rejection not written to the audit trail");
                }
            });
        }
    }
}

/// Result of parsing a verified request.
enum ParsedRequest<'f> {
    /// Handshake with its response.
    Greeting(Response<Full<Bytes>>),
    /// Events, and the credential that is valid for one event only.
    Events(Vec<Prepared<'f>>, Option<String>),
}

/// Flow of a path. A verified flow with another method is returned too, because handshakes use GET.
fn find_flow<'a>(live: &'a LoadedRevision, method: &Method, path: &str) -> Option<&'a Arc<Flow>> {
    let mut at_path = live.config.flows.values().filter(|flow| flow.path == path);
    let first = at_path.next()?;
    let exact = std::iter::once(first).chain(at_path).find(|flow| flow.method == method.as_str());
    exact.or_else(|| (method == Method::GET && first.verify.is_some()).then_some(first))
}

/// Some senders accept only 200 as a success.
fn success(flow: &Flow) -> StatusCode {
    match flow.success {
        Success::Exactly200 => StatusCode::OK,
        Success::Any2xx => StatusCode::ACCEPTED,
    }
}

/// At least the longest validity window of a credential that does not cover the body.
const PROOF_LIFETIME: Duration = Duration::from_secs(3_600);

/// A credential that does not cover the body could be attached to another event, so it is accepted for one request only. A
/// duplicate of that request passes.
fn one_time_proof(flow: &Flow, token: &str, received_at: Time) -> Proof {
    Proof { digest: KeyDigest::new("proof", &flow.name, token), expires_at: received_at + PROOF_LIFETIME }
}
