//! The metrics that every event changes.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;

use super::handles::Handles;
use super::metrics::{
    AttemptLabels, DestinationLabels, IntakeLabels, JobLabels, Metrics, SourceLabels, TracedHistogram, WorkerLabels,
    trace_labels,
};

/// Handles of the series that every event changes.
#[derive(Debug, Default)]
pub(super) struct EventHandles {
    requests: Handles<Counter>,
    accepted: Handles<Counter>,
    queue_seconds: Handles<Histogram>,
    wait_seconds: Handles<Histogram>,
    run_seconds: Handles<Histogram>,
    attempts: Handles<Counter>,
    attempt_seconds: Handles<TracedHistogram>,
    effect_seconds: Handles<TracedHistogram>,
    /// Of jobs that were not replayed.
    jobs: Handles<Counter>,
}

/// The metric of a family with these labels.
fn of<L, M, C>(family: &Family<L, M, C>, labels: L) -> M
where
    L: Clone + std::hash::Hash + Eq,
    M: Clone,
    C: MetricConstructor<M>,
{
    M::clone(&family.get_or_create(&labels))
}

fn worker(name: &str) -> WorkerLabels {
    WorkerLabels { worker: name.to_owned() }
}

fn destination(name: &str) -> DestinationLabels {
    DestinationLabels { destination: name.to_owned() }
}

impl Metrics {
    /// Counts a request by its outcome, which is a fixed word.
    pub fn intake(&self, source: &str, outcome: &'static str, took: Duration) {
        let labels = || IntakeLabels { source: source.to_owned(), outcome: outcome.to_owned() };
        let create = || of(&self.intake_requests, labels());
        self.handles.requests.with(source, outcome, create, |counter| {
            counter.inc();
        });
        self.intake_seconds.observe(took.as_secs_f64());
    }

    /// Counts a rejected request.
    pub fn refused(&self, source: &str, code: &'static str, took: Duration) {
        self.intake(source, code, took);
        self.history.refused(source, code);
    }

    pub fn accepted(&self, source: &str) {
        let create = || of(&self.events_accepted, SourceLabels { source: source.to_owned() });
        self.handles.accepted.with(source, "", create, |counter| {
            counter.inc();
        });
    }

    pub fn queue_wait(&self, name: &str, since_accepted: Duration) {
        let create = || of(&self.queue_seconds, worker(name));
        self.handles.queue_seconds.with(name, "", create, |seconds| seconds.observe(since_accepted.as_secs_f64()));
        self.history.started(name, since_accepted);
    }

    /// A job has waited so long after its due time for a call.
    pub fn destination_wait(&self, name: &str, since_due: Duration) {
        let create = || of(&self.wait_seconds, destination(name));
        self.handles.wait_seconds.with(name, "", create, |seconds| seconds.observe(since_due.as_secs_f64()));
        self.history.waited(name, since_due);
    }

    /// The run of a job has ended.
    pub fn run(&self, name: &str, took: Duration) {
        let create = || of(&self.run_seconds, worker(name));
        self.handles.run_seconds.with(name, "", create, |seconds| seconds.observe(took.as_secs_f64()));
    }

    /// `trace` is the trace id of the event.
    pub fn attempt(&self, name: &str, outcome: &'static str, took: Duration, trace: &str) {
        let create = || of(&self.attempts, AttemptLabels { destination: name.to_owned(), outcome });
        self.handles.attempts.with(name, outcome, create, |counter| {
            counter.inc();
        });
        self.contact_attempts.inc();
        let create = || of(&self.attempt_seconds, destination(name));
        let seconds = took.as_secs_f64();
        let observe = |histogram: &TracedHistogram| histogram.observe(seconds, trace_labels(trace), None);
        self.handles.attempt_seconds.with(name, "", create, observe);
        self.history.called(name, took);
    }

    /// An effect was applied. `trace` is the trace id of the event.
    pub fn effect(&self, name: &str, since_received: Duration, trace: &str) {
        let create = || of(&self.effect_seconds, destination(name));
        let seconds = since_received.as_secs_f64();
        let observe = |histogram: &TracedHistogram| histogram.observe(seconds, trace_labels(trace), None);
        self.handles.effect_seconds.with(name, "", create, observe);
        self.history.applied(name, since_received);
    }

    pub fn job(&self, name: &str, state: &'static str, replay: bool) {
        let replayed = if replay { "yes" } else { "no" };
        let create = || of(&self.jobs, JobLabels { worker: name.to_owned(), state, replay: replayed });
        match replay {
            true => drop(create().inc()),
            false => self.handles.jobs.with(name, state, create, |counter| {
                counter.inc();
            }),
        }
    }
}
