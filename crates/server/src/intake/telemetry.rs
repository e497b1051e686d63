//! What requests leave in the log and in traces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::{HeaderMap, Method, StatusCode};
use sluice_domain::event::EventId;
use sluice_domain::flow::Flow;
use sluice_domain::mask;
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::random::Random;
use sluice_domain::trace::{EventTrace, RecordedSpan, Span, SpanId, SpanKind, TraceContext, TraceId};
use sluice_ledger::{Acceptance, Duplicate, NewEvent};

use super::IntakeContext;
use super::answer::HttpProblem;
use crate::observe::traces::ended_now;

/// Generates ids of traces and spans: unique, not secret.
#[derive(Debug)]
pub(super) struct Ids {
    seed: u64,
    next: AtomicU64,
}

impl Ids {
    pub(super) fn new() -> Ids {
        use std::hash::{BuildHasher, RandomState};
        Ids { seed: RandomState::new().hash_one(0u64), next: AtomicU64::new(0) }
    }

    fn random(&self) -> Random {
        Random::seeded(self.seed ^ self.next.fetch_add(1, Ordering::Relaxed).rotate_left(32))
    }

    pub(super) fn trace(&self) -> TraceId {
        let mut random = self.random();
        let id = u128::from(random.next_u64().max(1)) << 64 | u128::from(random.next_u64());
        TraceId(id.to_be_bytes())
    }

    fn span(&self) -> SpanId {
        SpanId(self.random().next_u64().max(1))
    }
}

/// The trace of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTrace {
    /// The trace of its events, as it is stored.
    pub(super) event: EventTrace,
    /// The span of the request; `None` while traces are off.
    span: Option<SpanId>,
    started: Instant,
}

impl RequestTrace {
    /// Whether the request may leave something in the log or in a trace.
    pub(super) fn is_observed(&self) -> bool {
        self.span.is_some() || tracing::enabled!(tracing::Level::INFO)
    }
}

/// What is logged of an event that is written.
#[derive(Clone, Debug)]
pub(super) struct EventFacts {
    event_type: Arc<str>,
    /// Queue of its first job.
    queue: Option<Arc<str>>,
    jobs: usize,
    /// Code of its quarantine.
    pub(super) reason: Option<Arc<str>>,
}

impl EventFacts {
    /// `is_observed`: whether the facts go into the log or a trace. The reason is part of the answer too.
    pub(super) fn of(event: &NewEvent, is_observed: bool) -> EventFacts {
        EventFacts {
            event_type: if is_observed { event.event_type.as_str().into() } else { Arc::default() },
            queue: event.jobs.first().map(|job| job.queue.clone()),
            jobs: event.jobs.len(),
            reason: event.quarantine.as_ref().map(|quarantine| quarantine.failure.code.as_str().into()),
        }
    }
}

/// The events of a request after their commit.
pub(super) struct WrittenEvents<'a> {
    pub(super) facts: &'a [EventFacts],
    pub(super) keys: &'a [String],
    pub(super) accepted: &'a [Acceptance],
    /// Duration of the commit.
    pub(super) took: Duration,
}

impl IntakeContext {
    /// Continues the trace of the sender, or begins one.
    pub(super) fn trace(&self, headers: &HeaderMap) -> RequestTrace {
        let sent = headers.get("traceparent").and_then(|value| TraceContext::parse(value.to_str().ok()?));
        let event = sent.map_or_else(|| EventTrace::root(self.ids.trace()), EventTrace::from);
        let span = self.metrics.traces.is_on().then(|| self.ids.span());
        RequestTrace { event, span, started: Instant::now() }
    }

    pub(super) fn observe_events(&self, flow: &Arc<Flow>, trace: &RequestTrace, written: &WrittenEvents<'_>) {
        let WrittenEvents { facts, keys, accepted, took } = written;
        for ((acceptance, facts), key_text) in accepted.iter().zip(*facts).zip(*keys) {
            let key = || self.key_hash(key_text);
            match acceptance {
                Acceptance::Accepted(accepted) => {
                    if tracing::enabled!(tracing::Level::INFO)
                        && let Some(unlogged) = self.metrics.stages.accepted.take()
                    {
                        tracing::info!(
                            stage = "accepted", event = %accepted.id, key = %key(), source = %flow.source,
                            flow = %flow.name, object = %facts.event_type, jobs = facts.jobs,
                            status = if accepted.quarantined { "quarantined" } else { "accepted" },
                            code = facts.reason.as_deref().unwrap_or_default(), trace = %trace.event.trace,
                            took_ms = millis(*took), unlogged, "event accepted"
                        );
                    }
                    if let Some(parent) = trace.span {
                        let published = Published {
                            id: accepted.id,
                            parent,
                            flow: flow.clone(),
                            facts: facts.clone(),
                            key: key_text.clone(),
                            pseudonyms: self.revisions.pseudonyms().clone(),
                        };
                        let span = published.recorded(trace.event.published(accepted.id));
                        self.metrics.traces.record(ended_now(span, *took));
                    }
                }
                Acceptance::Duplicate(first) => self.observe_duplicate(flow, trace, first, key),
                Acceptance::ProofUsed => {}
            }
        }
    }

    fn observe_duplicate(&self, flow: &Flow, trace: &RequestTrace, first: &Duplicate, key: impl FnOnce() -> String) {
        if tracing::enabled!(tracing::Level::INFO)
            && let Some(unlogged) = self.metrics.stages.duplicate.take()
        {
            tracing::info!(
                stage = "duplicate", event = %first.id, key = %key(), source = %flow.source, flow = %flow.name,
                status = if first.clash { "clash" } else { "duplicate" }, trace = %trace.event.trace, unlogged,
                "duplicate answered"
            );
        }
    }

    /// The end of a request: its span, and a line if it was refused.
    pub(super) fn observe_request(
        &self,
        flow: &Arc<Flow>,
        method: &Method,
        trace: &RequestTrace,
        answer: Result<(StatusCode, &'static str), &HttpProblem>,
    ) {
        let (status, outcome) = answer.unwrap_or_else(|problem| (problem.status, problem.code));
        if answer.is_err()
            && tracing::enabled!(tracing::Level::INFO)
            && let Some(unlogged) = self.metrics.stages.refused.take()
        {
            tracing::info!(
                stage = "refused", source = %flow.source, flow = %flow.name, status = status.as_u16(),
                code = outcome, trace = %trace.event.trace, unlogged, "request refused"
            );
        }
        let Some(span) = trace.span else { return };
        let context = TraceContext { trace: trace.event.trace, span, sampled: trace.event.sampled };
        let (flow, method, parent) = (flow.clone(), method.clone(), trace.event.parent);
        let span = RecordedSpan::new(context, move |context| {
            let span = Span::new(context, SpanKind::Server, format!("{method} {}", flow.path))
                .with("http.request.method", method.to_string())
                .with("http.route", flow.path.clone())
                .with("http.response.status_code", u32::from(status.as_u16()))
                .with("sluice.source", flow.source.clone())
                .with("sluice.flow", flow.name.clone())
                .with("sluice.outcome", outcome)
                // A refused request is the sender's error; only the server's own are errors of a server span.
                .failed(status.is_server_error().then(|| outcome.to_owned()));
            Span { parent, parent_is_remote: true, ..span }
        });
        let span = RecordedSpan { failed: status.is_server_error(), ..span };
        self.metrics.traces.record(ended_now(span, trace.started.elapsed()));
    }

    /// Digest of an idempotency key under the secret key of the ledger.
    fn key_hash(&self, key: &str) -> String {
        self.revisions.pseudonyms().digested(key)
    }
}

/// What the span that publishes an event to a queue is described from.
struct Published {
    id: EventId,
    parent: SpanId,
    flow: Arc<Flow>,
    facts: EventFacts,
    key: String,
    pseudonyms: PseudonymKey,
}

impl Published {
    fn recorded(self, context: TraceContext) -> RecordedSpan {
        let failed = self.facts.reason.is_some();
        RecordedSpan { failed, ..RecordedSpan::new(context, move |context| self.describe(context)) }
    }

    fn describe(self, context: TraceContext) -> Span {
        let Published { flow, facts, .. } = self;
        let queue = facts.queue.as_deref().unwrap_or(&flow.name);
        let event_type: String = mask::text(&facts.event_type).chars().take(100).collect();
        let span = Span::new(context, SpanKind::Producer, format!("send {queue}"))
            .with("messaging.system", "sluice")
            .with("messaging.operation.type", "send")
            .with("messaging.operation.name", "send")
            .with("messaging.destination.name", queue.to_owned())
            .with("messaging.message.id", self.id.to_string())
            .with("sluice.source", flow.source.clone())
            .with("sluice.flow", flow.name.clone())
            .with("sluice.event.type", event_type)
            .with("sluice.key.hash", self.pseudonyms.digested(&self.key))
            .with("sluice.jobs", i64::try_from(facts.jobs).unwrap_or(i64::MAX))
            .failed(facts.reason.map(|reason| reason.to_string()));
        Span { parent: Some(self.parent), ..span }
    }
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}
