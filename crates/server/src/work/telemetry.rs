//! What runs leave in metrics, the log and traces.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_domain::alert::notice::signal;
use sluice_domain::event::EventId;
use sluice_domain::job::{EffectKey, JobId, JobState, written_record};
use sluice_domain::mask;
use sluice_domain::outcome::{Failure, Outcome};
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::record::JobRecord;
use sluice_domain::run::{DenialKind, GroupRun, JobRun, LoadedJob, Notice, RunResult, StepCall};
use sluice_domain::trace::{EventTrace, RecordedSpan, Span, SpanId, SpanKind, TraceContext};
use sluice_ledger::{EventRecord, NewEvent};

use super::{Member, WorkContext};
use crate::observe::metrics::DeadLabels;
use crate::observe::traces::ended_now;

/// A publishing span is built again if the run begins so long after it: its trace may have been decided without it.
const REBUILD_AFTER: Duration = Duration::from_secs(20);

/// Characters of an object's or a record's name that are logged.
const NAME_CHARACTERS_MAX: usize = 100;

/// A run begins.
pub(super) fn started(context: &WorkContext, loaded: &LoadedJob) {
    let LoadedJob { job, event, .. } = loaded;
    let is_new = job.attempts_total == 0 && job.replays == 0 && job.state == JobState::Queued;
    let waited = context.clock.ledger_time().since(job.created_at);
    if is_new {
        context.metrics.queue_wait(&job.worker, waited);
        if context.metrics.traces.is_on() && !was_published_lately(context, event) {
            rebuild_publishing(context, event, &job.queue);
        }
    }
    if tracing::enabled!(tracing::Level::INFO)
        && let Some(unlogged) = context.metrics.stages.started.take()
    {
        tracing::info!(
            stage = "started", event = %event.id, job = %job.id, key = %key_hash(context, event), source = %event.source,
            worker = %job.worker, queue = %job.queue, destination = %job.destination, object = %event.event_type,
            status = %job.state, attempts = job.attempts, replay = job.replays > 0, waited_ms = millis(waited),
            trace = event.trace_id(), unlogged, "run started"
        );
    }
}

/// Whether the intake published the event just now: not before a restart, nor while traces were off, nor by a schedule.
fn was_published_lately(context: &WorkContext, event: &EventRecord) -> bool {
    let is_recent = context.clock.ledger_time().since(event.persisted_at) < REBUILD_AFTER;
    let is_of_intake = context.revisions.current().config.flows.contains_key(&*event.flow);
    is_recent && is_of_intake && context.metrics.traces.was_on(event.persisted_at)
}

/// Builds the publishing span of an event again. It is exported if the first one was not.
fn rebuild_publishing(context: &WorkContext, event: &Arc<EventRecord>, queue: &Arc<str>) {
    let trace = EventTrace::of(event);
    let (own, event, queue) = (trace.published(event.id), event.clone(), queue.clone());
    let (took, received) = (event.persisted_at.since(event.received_at), event.received_at);
    let span = RecordedSpan::new(own, move |own| Span {
        parent: trace.parent,
        parent_is_remote: true,
        ..publishing(&event, own, &queue)
    });
    let start = Duration::from_millis(u64::try_from(received.0).unwrap_or(0));
    context.metrics.traces.record(RecordedSpan { start, took, rebuilt: true, ..span });
}

fn publishing(event: &EventRecord, context: TraceContext, queue: &str) -> Span {
    messaging(Span::new(context, SpanKind::Producer, format!("send {queue}")), "send", queue)
        .with("messaging.message.id", event.id.to_string())
        .with("sluice.source", event.source.clone())
        .with("sluice.flow", event.flow.clone())
        .with("sluice.event.type", shown(&event.event_type))
}

/// An event that a step emitted was accepted.
pub(super) fn emitted(context: &WorkContext, event: &NewEvent, id: EventId) {
    if !context.metrics.traces.is_on() {
        return;
    }
    let record = event.record(id);
    let trace = EventTrace::of(&record);
    let queue = event.jobs.first().map_or(&event.flow, |job| &job.queue).clone();
    let span = RecordedSpan::new(trace.published(id), move |own| Span {
        parent: trace.parent,
        ..publishing(&record, own, &queue)
    });
    context.metrics.traces.record(ended_now(span, Duration::ZERO));
}

fn messaging(span: Span, operation: &'static str, queue: &str) -> Span {
    span.with("messaging.system", "sluice")
        .with("messaging.operation.type", operation)
        .with("messaging.operation.name", operation)
        .with("messaging.destination.name", queue.to_owned())
}

/// What is logged of a call.
#[derive(Clone, Debug)]
pub(super) struct CallFacts {
    job: JobId,
    action: &'static str,
    destination: Arc<str>,
    label: Arc<str>,
    effect: EffectKey,
    /// Kind of the record: `object` or `table` of the step. Not masked.
    object: Option<Arc<str>>,
    attempt: u32,
    context: Option<TraceContext>,
}

impl CallFacts {
    pub(super) fn of(context: &WorkContext, call: &StepCall) -> CallFacts {
        let name = |key: &str| call.with.get(key).and_then(Value::as_str).map(Arc::from);
        CallFacts {
            job: call.job,
            action: call.action.name(),
            destination: call.destination.clone(),
            label: call.label.clone(),
            effect: call.effect_key,
            object: name("object").or_else(|| name("table")),
            attempt: call.attempt,
            context: context.metrics.traces.is_on().then(|| TraceContext::parse(&call.traceparent)).flatten(),
        }
    }

    pub(super) fn destination(&self) -> &str {
        &self.destination
    }

    /// The span of the call; `None` while traces are off.
    pub(super) fn context(&self) -> Option<TraceContext> {
        self.context
    }
}

/// A name from a sender, a destination or a template, as it may be logged.
fn shown(text: &str) -> String {
    mask::text(text).chars().take(NAME_CHARACTERS_MAX).collect()
}

/// The id of the record that a call wrote.
fn written(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Done { result } => written_record(result),
        _ => None,
    }
}

/// How a call has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallEnd<'a> {
    pub(super) outcome: &'a Outcome,
    pub(super) took: Duration,
    /// The span whose context was sent, if the request was shared with another call.
    pub(super) first: Option<TraceContext>,
}

pub(super) fn called(context: &WorkContext, member: &Member, facts: &CallFacts, end: CallEnd<'_>) {
    let CallEnd { outcome, took, first } = end;
    let event = &member.event;
    // An exemplar leads to the trace of the call, which later attempts have for themselves.
    let trace = facts.context.map(|context| context.trace.to_string());
    let trace = trace.as_deref().unwrap_or_else(|| event.trace_id());
    context.metrics.attempt(&facts.destination, outcome.as_str(), took, trace);
    if matches!(outcome, Outcome::Done { .. }) {
        let since_received = context.clock.ledger_time().since(event.received_at);
        context.metrics.effect(&facts.destination, since_received, trace);
        if let Some((alert, since_began)) = signal(event, context.clock.ledger_time()) {
            context.metrics.history.signalled(alert.name(), since_began);
        }
    }
    log_call(context, event, facts, end);
    let Some(own) = facts.context else { return };
    let failed = outcome.failure().filter(|_| !matches!(outcome, Outcome::Wait { .. }));
    let described = DescribedCall {
        facts: facts.clone(),
        event: event.id,
        outcome: outcome.as_str(),
        record: written(outcome),
        code: failed.map(|failure| failure.code.clone()),
        parent: member.trace.context.span,
        first,
    };
    let since_received = context.clock.ledger_time().since(event.received_at);
    let span = RecordedSpan::new(own, move |own| described.span(own));
    context.metrics.traces.record(ended_now(RecordedSpan { failed: failed.is_some(), since_received, ..span }, took));
}

/// What the span of a call is described from.
struct DescribedCall {
    facts: CallFacts,
    event: EventId,
    outcome: &'static str,
    record: Option<String>,
    /// Code of the failure.
    code: Option<String>,
    parent: SpanId,
    /// The span whose context was sent, if the request was shared with another call.
    first: Option<TraceContext>,
}

impl DescribedCall {
    fn span(self, own: TraceContext) -> Span {
        let facts = self.facts;
        let span = Span::new(own, SpanKind::Client, format!("{} {}", facts.action, facts.destination))
            .with("sluice.destination", facts.destination)
            .with("sluice.action", facts.action)
            .with("sluice.step", shown(&facts.label))
            .with("sluice.job.id", facts.job.to_string())
            .with("sluice.event.id", self.event.to_string())
            .with("sluice.effect.key", facts.effect.to_string())
            .with("sluice.attempt", facts.attempt)
            .with("sluice.outcome", self.outcome)
            .with_some("sluice.object", facts.object.as_deref().map(shown))
            .with_some("sluice.record.id", self.record.as_deref().map(shown))
            .failed(self.code.as_deref().map(shown));
        Span { parent: Some(self.parent), links: self.first.into_iter().collect(), ..span }
    }
}

fn log_call(context: &WorkContext, event: &EventRecord, facts: &CallFacts, end: CallEnd<'_>) {
    let CallEnd { outcome, took, .. } = end;
    let CallFacts { job, action, destination, label, attempt, .. } = facts;
    let object = || facts.object.as_deref().map(shown).unwrap_or_default();
    match outcome.failure() {
        Some(Failure { class, code, message, .. }) if !matches!(outcome, Outcome::Wait { .. }) => tracing::warn!(
            stage = "called", event = %event.id, %job, key = %key_hash(context, event), source = %event.source, %destination,
            action, step = %label, object = object(), status = outcome.as_str(), class = class.as_str(), %code, attempt,
            took_ms = millis(took), trace = event.trace_id(), "{message}"
        ),
        failure => {
            if tracing::enabled!(tracing::Level::INFO)
                && let Some(unlogged) = context.metrics.stages.called.take()
            {
                tracing::info!(
                    stage = "called", event = %event.id, %job, key = %key_hash(context, event), source = %event.source,
                    %destination, action, step = %label, object = object(), record = written(outcome).as_deref().map(shown).unwrap_or_default(),
                    status = outcome.as_str(), code = failure.map_or("", |failure| &failure.code), attempt,
                    took_ms = millis(took), trace = event.trace_id(), unlogged, "destination called"
                );
            }
        }
    }
}

/// Counts and logs what happened in the runs of a group.
pub(super) fn notices(context: &WorkContext, group: &mut GroupRun) {
    for index in 0..group.len() {
        of_run(context, group.member_mut(index));
    }
}

fn of_run(context: &WorkContext, run: &mut JobRun) {
    let metrics = &context.metrics;
    for notice in run.take_notices() {
        match notice {
            Notice::PolicyDenied { policy, rule, kind } => metrics.policy(&policy, &rule, DenialKind::as_str(kind)),
            Notice::Mark { set } => metrics.mark(&run.job().worker, set),
            Notice::Lookup { step, action, result, failure } => {
                metrics.lookup(action, result);
                if let Some(failure) = failure {
                    let (worker, failure) = (&run.job().worker, mask::text(&failure));
                    tracing::warn!(job = %run.job().id, %worker, %step, code = result, "lookup failed, the job continues: {failure}");
                }
            }
            Notice::RetryBudgetExhausted => metrics.retry_budget_exhausted(&run.job().worker),
            Notice::Requeued => drop(metrics.replays.inc()),
            Notice::NotCompared { reason } => {
                tracing::warn!(job = %run.job().id, %reason, "a record is not compared with its last confirmed write")
            }
            Notice::Stale => {
                tracing::warn!(job = %run.job().id, "stale run ignored: the job has changed since it was loaded")
            }
        }
    }
}

/// A run has ended, and that is written.
pub(super) fn ended(context: &WorkContext, run: &JobRun, result: &RunResult, started: Instant) {
    let RunResult::Ended { job, settled: true, .. } = result else { return };
    if !job.state.is_live() {
        context.metrics.job(&job.worker, job.state.as_str(), job.replays > 0);
    }
    context.metrics.run(&job.worker, started.elapsed());
    log_end(context, run, job);
    if context.metrics.traces.is_on() {
        let span = run_span(context, run, job);
        let is_first_failure = span.failed && run.trace().link.is_none();
        context.metrics.traces.record(ended_now(span, started.elapsed()));
        if is_first_failure {
            // Under load the first spans of a trace are dropped before it fails.
            rebuild_publishing(context, run.event(), &job.queue);
        }
    }
}

fn log_end(context: &WorkContext, run: &JobRun, job: &JobRecord) {
    let (event, destination) = (run.event(), run.destination());
    match (job.state, &job.failure) {
        (JobState::Dead | JobState::Unknown, Some(failure)) => {
            let labels = DeadLabels { worker: job.worker.to_string(), class: failure.class.as_str().to_owned() };
            context.metrics.dead_letters.get_or_create(&labels).inc();
            tracing::warn!(
                stage = "dead-letter", job = %job.id, event = %event.id, key = %key_hash(context, event),
                worker = %job.worker, source = %event.source, %destination, object = %event.event_type,
                status = %job.state, class = failure.class.as_str(), code = %failure.code, attempts = job.attempts,
                trace = event.trace_id(), "{}", failure.message
            );
        }
        (state, failure) => {
            if tracing::enabled!(tracing::Level::INFO)
                && let Some(unlogged) = context.metrics.stages.settled.take()
            {
                tracing::info!(
                    stage = "settled", job = %job.id, event = %event.id, key = %key_hash(context, event),
                    worker = %job.worker, source = %event.source, %destination, object = %event.event_type,
                    status = %state, attempts = job.attempts, trace = event.trace_id(),
                    code = failure.as_ref().map_or("", |failure| &failure.code), unlogged, "settled"
                );
            }
        }
    }
}

fn run_span(context: &WorkContext, run: &JobRun, job: &JobRecord) -> RecordedSpan {
    let (event, trace) = (run.event(), run.trace());
    let failed = matches!(job.state, JobState::Dead | JobState::Unknown | JobState::Retrying);
    let failure = job.failure.as_ref().filter(|_| failed);
    let described = DescribedRun {
        event: event.clone(),
        parent: trace.parent,
        link: trace.link,
        queue: job.queue.clone(),
        worker: job.worker.clone(),
        entity: job.entity,
        job: job.id,
        state: job.state,
        attempts: job.attempts_total,
        is_replay: job.replays > 0,
        code: failure.map(|failure| failure.code.clone()),
        pseudonyms: context.revisions.pseudonyms().clone(),
    };
    let since_received = if job.state.is_live() || job.replays > 0 {
        Duration::ZERO
    } else {
        context.clock.ledger_time().since(event.received_at)
    };
    let span = RecordedSpan::new(trace.context, move |own| described.span(own));
    RecordedSpan { failed: failure.is_some(), since_received, ..span }
}

/// What the span of a run is described from.
struct DescribedRun {
    event: Arc<EventRecord>,
    parent: Option<SpanId>,
    link: Option<TraceContext>,
    queue: Arc<str>,
    worker: Arc<str>,
    entity: u64,
    job: JobId,
    state: JobState,
    attempts: u32,
    is_replay: bool,
    /// Code of the failure.
    code: Option<String>,
    pseudonyms: PseudonymKey,
}

impl DescribedRun {
    fn span(self, own: TraceContext) -> Span {
        let event = &self.event;
        let span = Span::new(own, SpanKind::Consumer, format!("process {}", self.queue));
        let span = messaging(span, "process", &self.queue)
            .with("messaging.message.id", event.id.to_string())
            .with("messaging.consumer.group.name", self.worker)
            .with("sluice.source", event.source.clone())
            .with("sluice.flow", event.flow.clone())
            .with("sluice.event.type", shown(&event.event_type))
            .with("sluice.key.hash", self.pseudonyms.digested(&event.key_text))
            .with("sluice.entity.hash", self.pseudonyms.digested(&self.entity.to_string()))
            .with("sluice.job.id", self.job.to_string())
            .with("sluice.job.state", self.state.as_str())
            .with("sluice.attempts", self.attempts)
            .with("sluice.replay", self.is_replay)
            .failed(self.code.as_deref().map(shown));
        Span { parent: self.parent, links: self.link.into_iter().collect(), ..span }
    }
}

/// Digest of an idempotency key under the secret key of the ledger.
fn key_hash(context: &WorkContext, event: &EventRecord) -> String {
    context.revisions.pseudonyms().digested(&event.key_text)
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}
