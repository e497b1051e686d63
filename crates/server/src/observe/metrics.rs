//! Counters and histograms for every stage, in Prometheus' form.
//!
//! Labels are names from the configuration and closed lists of words: never an email, a key or an event id.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// What a request at the door came to.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct IntakeLabels {
    /// Who sent it.
    pub source: String,
    /// accepted, duplicate, or the code of the problem.
    pub outcome: String,
}

/// What an attempt came to.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct AttemptLabels {
    /// Where.
    pub destination: String,
    /// done, noop, retry, wait, reject, unsure.
    pub outcome: &'static str,
}

/// What a job came to.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct JobLabels {
    /// Whose.
    pub worker: String,
    /// The state.
    pub state: &'static str,
    /// Whether it was a replay.
    pub replay: &'static str,
}

/// Why a job died.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct DeadLabels {
    /// Whose.
    pub worker: String,
    /// The failure class.
    pub class: String,
}

/// One destination.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct DestinationLabels {
    /// Its name.
    pub destination: String,
}

/// One destination and what happened to its gate.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct GateLabels {
    /// Its name.
    pub destination: String,
    /// opened, half_open, closed, auth_paused.
    pub change: String,
}

/// Live jobs.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct DepthLabels {
    /// Whose.
    pub worker: String,
    /// The state.
    pub state: String,
}

/// One worker.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct WorkerLabels {
    /// Its name.
    pub worker: String,
}

/// One worker and what became of its marks.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct MarkLabels {
    /// Its name.
    pub worker: String,
    /// Whether the mark was the job's own to set: true or false.
    pub set: String,
}

/// One rule of a policy and what it decided.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct PolicyLabels {
    /// The policy.
    pub policy: String,
    /// The rule.
    pub rule: String,
    /// refused or wait.
    pub decision: String,
}

/// One source.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct SourceLabels {
    /// Who sent it.
    pub source: String,
}

fn fast() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 16))
}

fn slow() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 20))
}

/// Every metric. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

/// The metrics by their names.
#[derive(Debug)]
pub struct Inner {
    registry: Registry,
    /// Requests at the door.
    pub intake_requests: Family<IntakeLabels, Counter>,
    /// From the first byte of the request to the answer.
    pub intake_seconds: Histogram,
    /// Bytes of accepted bodies.
    pub intake_bytes: Counter,
    /// Repeats that were answered with the first answer.
    pub duplicates: Family<SourceLabels, Counter>,
    /// Repeats with another content.
    pub clashes: Family<SourceLabels, Counter>,
    /// Members of payloads that neither schema nor mapping knows.
    pub unknown_fields: Family<SourceLabels, Counter>,
    /// Events whose jobs wait for a person from the start.
    pub quarantined: Family<SourceLabels, Counter>,
    /// Attempts by destination and outcome.
    pub attempts: Family<AttemptLabels, Counter>,
    /// How long destinations take.
    pub attempt_seconds: Family<DestinationLabels, Histogram, fn() -> Histogram>,
    /// From the arrival of the request to the applied effect.
    pub effect_seconds: Family<DestinationLabels, Histogram, fn() -> Histogram>,
    /// Jobs that came to an end.
    pub jobs: Family<JobLabels, Counter>,
    /// Jobs that died, by reason.
    pub dead_letters: Family<DeadLabels, Counter>,
    /// Jobs brought back to life.
    pub replays: Counter,
    /// Marks of `store.setnx`, set or found set.
    pub marks: Family<MarkLabels, Counter>,
    /// Effects that a policy refused or put off.
    pub policies: Family<PolicyLabels, Counter>,
    /// Jobs that died because their contact had no retries left.
    pub retry_budget_exhausted: Family<WorkerLabels, Counter>,
    /// Gates that opened and closed.
    pub gates: Family<GateLabels, Counter>,
    /// Live jobs, as of the last look.
    pub depth: Family<DepthLabels, Gauge>,
    /// Age of the oldest live job in seconds, as of the last look.
    pub oldest_seconds: Family<WorkerLabels, Gauge>,
    /// Jobs that run.
    pub in_flight: Gauge,
    /// Jobs in memory.
    pub jobs_in_memory: Gauge,
    /// Transactions of the ledger.
    pub ledger_commits: Gauge,
    /// Operations in them.
    pub ledger_operations: Gauge,
    /// Operations that wait for the writer.
    pub ledger_queue: Gauge,
    /// Pages in the write-ahead log.
    pub ledger_wal_pages: Gauge,
}

impl std::ops::Deref for Metrics {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Metrics {
        let mut inner = Inner {
            registry: Registry::with_prefix("sluice"),
            intake_requests: Family::default(),
            intake_seconds: fast(),
            intake_bytes: Counter::default(),
            duplicates: Family::default(),
            clashes: Family::default(),
            unknown_fields: Family::default(),
            quarantined: Family::default(),
            attempts: Family::default(),
            attempt_seconds: Family::new_with_constructor(slow),
            effect_seconds: Family::new_with_constructor(slow),
            jobs: Family::default(),
            dead_letters: Family::default(),
            replays: Counter::default(),
            marks: Family::default(),
            policies: Family::default(),
            retry_budget_exhausted: Family::default(),
            gates: Family::default(),
            depth: Family::default(),
            oldest_seconds: Family::default(),
            in_flight: Gauge::default(),
            jobs_in_memory: Gauge::default(),
            ledger_commits: Gauge::default(),
            ledger_operations: Gauge::default(),
            ledger_queue: Gauge::default(),
            ledger_wal_pages: Gauge::default(),
        };
        let r = &mut inner.registry;
        r.register("intake_requests", "Requests at the door, by source and outcome", inner.intake_requests.clone());
        r.register("intake_seconds", "From the request's head to its answer", inner.intake_seconds.clone());
        r.register("intake_body_bytes", "Bytes of accepted bodies", inner.intake_bytes.clone());
        r.register("duplicates", "Repeats answered with the first answer", inner.duplicates.clone());
        r.register("key_clashes", "Repeats with another content than the first", inner.clashes.clone());
        r.register(
            "unknown_fields",
            "Members of payloads that neither schema nor mapping knows",
            inner.unknown_fields.clone(),
        );
        r.register("quarantined", "Events whose jobs wait for a person from the start", inner.quarantined.clone());
        r.register("attempts", "Attempts, by destination and outcome", inner.attempts.clone());
        r.register("attempt_seconds", "How long destinations take", inner.attempt_seconds.clone());
        r.register("effect_seconds", "From the request's arrival to the applied effect", inner.effect_seconds.clone());
        r.register("jobs_finished", "Jobs that came to an end, by worker and state", inner.jobs.clone());
        r.register("dead_letters", "Jobs that died, by worker and failure class", inner.dead_letters.clone());
        r.register("replays", "Jobs brought back to life", inner.replays.clone());
        r.register("marks", "Marks of store.setnx, by worker and whether the job set it", inner.marks.clone());
        r.register(
            "policy_decisions",
            "Effects that a policy refused or put off, by policy, rule and decision",
            inner.policies.clone(),
        );
        r.register(
            "retry_budget_exhausted",
            "Jobs that died because their contact had no retries left, by worker",
            inner.retry_budget_exhausted.clone(),
        );
        r.register("gate_changes", "Breakers and pauses, by destination", inner.gates.clone());
        r.register("jobs_live", "Live jobs, by worker and state", inner.depth.clone());
        r.register("oldest_job_seconds", "Age of the oldest live job, by worker", inner.oldest_seconds.clone());
        r.register("jobs_running", "Jobs that run", inner.in_flight.clone());
        r.register("jobs_in_memory", "Jobs in memory", inner.jobs_in_memory.clone());
        r.register("ledger_commits", "Transactions of the ledger since the start", inner.ledger_commits.clone());
        r.register("ledger_operations", "Operations in them", inner.ledger_operations.clone());
        r.register("ledger_queue", "Operations that wait for the writer", inner.ledger_queue.clone());
        r.register("ledger_wal_pages", "Pages in the write-ahead log", inner.ledger_wal_pages.clone());
        Metrics(Arc::new(inner))
    }

    /// A request at the door has been answered.
    pub fn intake(&self, source: &str, outcome: &str, took: Duration) {
        self.intake_requests
            .get_or_create(&IntakeLabels { source: source.to_owned(), outcome: outcome.to_owned() })
            .inc();
        self.intake_seconds.observe(took.as_secs_f64());
    }

    /// A mark was set, or found set.
    pub fn mark(&self, worker: &str, set: bool) {
        self.marks.get_or_create(&MarkLabels { worker: worker.to_owned(), set: set.to_string() }).inc();
    }

    /// A job has died because its contact had no retries left.
    pub fn retry_budget_exhausted(&self, worker: &str) {
        self.retry_budget_exhausted.get_or_create(&WorkerLabels { worker: worker.to_owned() }).inc();
    }

    /// A rule of a policy has refused an effect, or put it off.
    pub fn policy(&self, policy: &str, rule: &str, decision: &str) {
        let (policy, rule, decision) = (policy.to_owned(), rule.to_owned(), decision.to_owned());
        self.policies.get_or_create(&PolicyLabels { policy, rule, decision }).inc();
    }

    /// An attempt has ended.
    pub fn attempt(&self, destination: &str, outcome: &'static str, took: Duration) {
        let labels = AttemptLabels { destination: destination.to_owned(), outcome };
        self.attempts.get_or_create(&labels).inc();
        let labels = DestinationLabels { destination: labels.destination };
        self.attempt_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// An effect is applied, so long after its request arrived.
    pub fn effect(&self, destination: &str, since_received: Duration) {
        self.effect_seconds
            .get_or_create(&DestinationLabels { destination: destination.to_owned() })
            .observe(since_received.as_secs_f64());
    }

    /// A job has come to an end.
    pub fn job(&self, worker: &str, state: &'static str, replay: bool) {
        let labels = JobLabels { worker: worker.to_owned(), state, replay: if replay { "yes" } else { "no" } };
        self.jobs.get_or_create(&labels).inc();
    }

    /// The page that Prometheus reads.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut page = String::with_capacity(16 * 1024);
        prometheus_client::encoding::text::encode(&mut page, &self.registry)?;
        Ok(page)
    }
}
