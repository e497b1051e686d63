//! Counters, gauges and histograms, in Prometheus format.
//!
//! Labels are names from the configuration and fixed words: never an email address, a key or an event id.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use sluice_domain::alert::Alert;
use sluice_ledger::ResponseCount;

use super::event_metrics::EventHandles;
use super::gate_levels::GateLevels;
use super::history::OpenMinute;
use super::metric_table;
use super::stages::Stages;
use super::traces::Traces;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct IntakeLabels {
    pub source: String,
    /// accepted, duplicate, handshake, or the problem code.
    pub outcome: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OutcomeLabels {
    /// accepted, duplicate, quarantined, refused.
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct AttemptLabels {
    pub destination: String,
    /// done, noop, retry, wait, reject, unsure.
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct JobLabels {
    pub worker: String,
    pub state: &'static str,
    /// yes or no.
    pub replay: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct DeadLabels {
    pub worker: String,
    pub class: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct DestinationLabels {
    pub destination: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct GateLabels {
    pub destination: String,
    /// opened, half_open, closed, auth_paused.
    pub change: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct DepthLabels {
    pub worker: String,
    pub state: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct WorkerLabels {
    pub worker: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct MarkLabels {
    pub worker: String,
    /// true if the job set the mark, false if another owns it.
    pub set: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct PolicyLabels {
    pub policy: String,
    pub rule: String,
    /// refused or wait.
    pub decision: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct LookupLabels {
    pub action: &'static str,
    /// found, absent, or the code of the warning.
    pub result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ReleaseLabels {
    /// event, operator or enrichment.
    pub by: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct SourceLabels {
    pub source: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct GroupStateLabels {
    pub state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct QueueLabels {
    pub queue: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct AlertLabels {
    pub alert: &'static str,
    /// critical or warning.
    pub severity: &'static str,
    pub subject: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ResponseLabels {
    pub flow: String,
    /// waiting, at_risk or late.
    pub state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ResponseEndLabels {
    pub flow: String,
    /// met, missed or given_up.
    pub result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct NorthStarLabels {
    pub name: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct TargetLabels {
    /// `destination:NAME`, `worker:NAME`, `queue:NAME`, `source:NAME` or `replays`.
    pub target: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct BuildLabels {
    pub version: &'static str,
}

/// Label of an exemplar: the trace that a duration belongs to.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct TraceLabels {
    pub trace_id: String,
}

pub(super) type TracedHistogram = HistogramWithExemplars<TraceLabels>;

/// A trace id of W3C has so many characters. Other text is no trace id.
const TRACE_ID_LENGTH: usize = 32;

pub(super) fn trace_labels(trace: &str) -> Option<TraceLabels> {
    let is_trace_id = trace.len() == TRACE_ID_LENGTH && trace.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_trace_id.then(|| TraceLabels { trace_id: trace.to_owned() })
}

fn fast() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 16))
}

fn slow() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 20))
}

fn slow_traced() -> TracedHistogram {
    HistogramWithExemplars::new(exponential_buckets(0.001, 2.0, 20))
}

/// All metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
pub struct Inner {
    registry: Registry,
    /// Metrics whose names have no prefix.
    plain_names: Registry,
    /// What is written to the history.
    pub(crate) history: OpenMinute,
    /// Spans, until they are exported.
    pub(crate) traces: Traces,
    /// Limits of log lines.
    pub(crate) stages: Stages,
    /// Of the metrics that every event changes.
    pub(super) handles: EventHandles,
    pub intake_requests: Family<IntakeLabels, Counter>,
    /// From the request head to the response.
    pub intake_seconds: Histogram,
    pub intake_bytes: Counter,
    pub events_accepted: Family<SourceLabels, Counter>,
    pub duplicates: Family<SourceLabels, Counter>,
    pub clashes: Family<SourceLabels, Counter>,
    /// Payload members unknown to the schema and the mapping.
    pub unknown_fields: Family<SourceLabels, Counter>,
    /// Events whose jobs are dead letters from the start.
    pub quarantined: Family<SourceLabels, Counter>,
    /// Quarantined events that were identified.
    pub identity_releases: Family<ReleaseLabels, Counter>,
    pub attempts: Family<AttemptLabels, Counter>,
    pub attempt_seconds: Family<DestinationLabels, TracedHistogram, fn() -> TracedHistogram>,
    /// From receiving the request to the applied effect.
    pub effect_seconds: Family<DestinationLabels, TracedHistogram, fn() -> TracedHistogram>,
    /// From accepting the event to the first run of its job.
    pub queue_seconds: Family<WorkerLabels, Histogram, fn() -> Histogram>,
    /// Duration of runs.
    pub run_seconds: Family<WorkerLabels, Histogram, fn() -> Histogram>,
    pub jobs: Family<JobLabels, Counter>,
    pub dead_letters: Family<DeadLabels, Counter>,
    pub replays: Counter,
    pub import_rows: Family<OutcomeLabels, Counter>,
    /// Marks of `store.setnx`, set by the job or already set.
    pub marks: Family<MarkLabels, Counter>,
    /// Effects that a policy denied or deferred.
    pub policies: Family<PolicyLabels, Counter>,
    pub lookups: Family<LookupLabels, Counter>,
    /// Jobs that died because the retry budget of their contact was exhausted.
    pub retry_budget_exhausted: Family<WorkerLabels, Counter>,
    /// State changes of gates.
    pub gates: Family<GateLabels, Counter>,
    /// As of the last scrape.
    pub depth: Family<DepthLabels, Gauge>,
    /// As of the last scrape.
    pub oldest_seconds: Family<WorkerLabels, Gauge>,
    /// Dead and unknown jobs, as of the last scrape.
    pub dead_letter_depth: Family<QueueLabels, Gauge>,
    pub oldest_dead_letter_seconds: Family<QueueLabels, Gauge>,
    /// Groups with dead letters, as of the last scrape.
    pub failure_groups: Family<GroupStateLabels, Gauge>,
    /// 0 closed, 1 half-open, 2 open.
    pub breakers: Family<DestinationLabels, Gauge>,
    /// 1 if paused.
    pub paused: Family<DestinationLabels, Gauge>,
    /// Pauses by operators.
    pub pauses: Family<TargetLabels, Gauge>,
    /// Calls of the provider's day, as of the last response.
    pub calls_today: Family<DestinationLabels, Gauge>,
    pub calls_today_limit: Family<DestinationLabels, Gauge>,
    pub wait_seconds: Family<DestinationLabels, Histogram, fn() -> Histogram>,
    /// Gates and budgets, as of the last scrape.
    pub gate_levels: GateLevels,
    pub approvals_pending: Gauge,
    pub unknown_outcomes: Gauge,
    pub clock_in_doubt: Gauge,
    pub build_info: Family<BuildLabels, Gauge>,
    /// As of the last scrape.
    pub north_stars: Family<NorthStarLabels, Gauge<f64, AtomicU64>>,
    /// Firing alerts by kind, severity and subject.
    pub alerts_firing: Family<AlertLabels, Gauge>,
    alerts_shown: Mutex<HashSet<AlertLabels>>,
    /// Response clocks that run.
    pub responses_open: Family<ResponseLabels, Gauge>,
    /// Response clocks that ended.
    pub responses: Family<ResponseEndLabels, Counter>,
    /// The same as the sum of `attempts`, `duplicates` and `dead_letter_depth`, under the names of published dashboards.
    pub contact_attempts: Counter,
    pub idempotency_hits: Counter,
    pub contact_dlq_depth: Gauge,
    pub in_flight: Gauge,
    pub jobs_in_memory: Gauge,
    pub ledger_commits: Gauge,
    pub ledger_operations: Gauge,
    /// Operations waiting for the writer.
    pub ledger_queue: Gauge,
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

/// Registers metrics with the names and texts of the table.
struct Registering<'r>(&'r mut Registry);

impl Registering<'_> {
    fn add(&mut self, name: &'static str, metric: impl Metric) {
        let spec = metric_table::spec(name);
        // The registry adds its prefix, the suffix of a counter and the full stop.
        let short = name.strip_prefix("sluice_").unwrap_or(name);
        self.0.register(short.strip_suffix("_total").unwrap_or(short), spec.about.trim_end_matches('.'), metric);
    }
}

impl Metrics {
    pub fn new() -> Metrics {
        let mut inner = Inner {
            registry: Registry::with_prefix("sluice"),
            plain_names: Registry::default(),
            history: OpenMinute::default(),
            traces: Traces::default(),
            stages: Stages::default(),
            handles: EventHandles::default(),
            intake_requests: Family::default(),
            intake_seconds: fast(),
            intake_bytes: Counter::default(),
            events_accepted: Family::default(),
            duplicates: Family::default(),
            clashes: Family::default(),
            unknown_fields: Family::default(),
            quarantined: Family::default(),
            identity_releases: Family::default(),
            attempts: Family::default(),
            attempt_seconds: Family::new_with_constructor(slow_traced),
            effect_seconds: Family::new_with_constructor(slow_traced),
            queue_seconds: Family::new_with_constructor(slow),
            run_seconds: Family::new_with_constructor(slow),
            jobs: Family::default(),
            dead_letters: Family::default(),
            replays: Counter::default(),
            import_rows: Family::default(),
            marks: Family::default(),
            policies: Family::default(),
            lookups: Family::default(),
            retry_budget_exhausted: Family::default(),
            gates: Family::default(),
            depth: Family::default(),
            oldest_seconds: Family::default(),
            dead_letter_depth: Family::default(),
            oldest_dead_letter_seconds: Family::default(),
            failure_groups: Family::default(),
            breakers: Family::default(),
            paused: Family::default(),
            pauses: Family::default(),
            calls_today: Family::default(),
            calls_today_limit: Family::default(),
            wait_seconds: Family::new_with_constructor(slow as fn() -> Histogram),
            gate_levels: GateLevels::default(),
            approvals_pending: Gauge::default(),
            unknown_outcomes: Gauge::default(),
            clock_in_doubt: Gauge::default(),
            build_info: Family::default(),
            north_stars: Family::default(),
            alerts_firing: Family::default(),
            alerts_shown: Mutex::default(),
            responses_open: Family::default(),
            responses: Family::default(),
            contact_attempts: Counter::default(),
            idempotency_hits: Counter::default(),
            contact_dlq_depth: Gauge::default(),
            in_flight: Gauge::default(),
            jobs_in_memory: Gauge::default(),
            ledger_commits: Gauge::default(),
            ledger_operations: Gauge::default(),
            ledger_queue: Gauge::default(),
            ledger_wal_pages: Gauge::default(),
        };
        let mut to = Registering(&mut inner.registry);
        to.add("sluice_intake_requests_total", inner.intake_requests.clone());
        to.add("sluice_intake_seconds", inner.intake_seconds.clone());
        to.add("sluice_intake_body_bytes_total", inner.intake_bytes.clone());
        to.add("sluice_events_accepted_total", inner.events_accepted.clone());
        to.add("sluice_duplicates_total", inner.duplicates.clone());
        to.add("sluice_key_clashes_total", inner.clashes.clone());
        to.add("sluice_quarantined_total", inner.quarantined.clone());
        to.add("sluice_identity_releases_total", inner.identity_releases.clone());
        to.add("sluice_unknown_fields_total", inner.unknown_fields.clone());
        to.add("sluice_jobs_live", inner.depth.clone());
        to.add("sluice_oldest_job_seconds", inner.oldest_seconds.clone());
        to.add("sluice_queue_seconds", inner.queue_seconds.clone());
        to.add("sluice_run_seconds", inner.run_seconds.clone());
        to.add("sluice_attempts_total", inner.attempts.clone());
        to.add("sluice_attempt_seconds", inner.attempt_seconds.clone());
        to.add("sluice_effect_seconds", inner.effect_seconds.clone());
        to.add("sluice_jobs_finished_total", inner.jobs.clone());
        to.add("sluice_dead_letters_total", inner.dead_letters.clone());
        to.add("sluice_dead_letter_depth", inner.dead_letter_depth.clone());
        to.add("sluice_oldest_dead_letter_seconds", inner.oldest_dead_letter_seconds.clone());
        to.add("sluice_failure_groups", inner.failure_groups.clone());
        to.add("sluice_replays_total", inner.replays.clone());
        to.add("sluice_import_rows_total", inner.import_rows.clone());
        to.add("sluice_retry_budget_exhausted_total", inner.retry_budget_exhausted.clone());
        to.add("sluice_marks_total", inner.marks.clone());
        to.add("sluice_policy_decisions_total", inner.policies.clone());
        to.add("sluice_lookups_total", inner.lookups.clone());
        to.add("sluice_breaker", inner.breakers.clone());
        to.add("sluice_gate_changes_total", inner.gates.clone());
        to.add("sluice_destination_paused", inner.paused.clone());
        to.add("sluice_paused", inner.pauses.clone());
        to.add("sluice_calls_today", inner.calls_today.clone());
        to.add("sluice_destination_wait_seconds", inner.wait_seconds.clone());
        for (name, gauge) in inner.gate_levels.named() {
            to.add(name, gauge.clone());
        }
        to.add("sluice_calls_today_limit", inner.calls_today_limit.clone());
        to.add("sluice_approvals_pending", inner.approvals_pending.clone());
        to.add("sluice_unknown_outcomes", inner.unknown_outcomes.clone());
        to.add("sluice_responses_open", inner.responses_open.clone());
        to.add("sluice_responses_total", inner.responses.clone());
        to.add("sluice_alerts_firing", inner.alerts_firing.clone());
        to.add("sluice_north_star", inner.north_stars.clone());
        to.add("sluice_jobs_running", inner.in_flight.clone());
        to.add("sluice_jobs_in_memory", inner.jobs_in_memory.clone());
        to.add("sluice_ledger_commits", inner.ledger_commits.clone());
        to.add("sluice_ledger_operations", inner.ledger_operations.clone());
        to.add("sluice_ledger_queue", inner.ledger_queue.clone());
        to.add("sluice_ledger_wal_pages", inner.ledger_wal_pages.clone());
        to.add("sluice_clock_in_doubt", inner.clock_in_doubt.clone());
        to.add("sluice_trace_spans_total", inner.traces.counts());
        to.add("sluice_build_info", inner.build_info.clone());
        let mut to = Registering(&mut inner.plain_names);
        to.add("contact_attempts_total", inner.contact_attempts.clone());
        to.add("idempotency_hits_total", inner.idempotency_hits.clone());
        to.add("contact_dlq_depth", inner.contact_dlq_depth.clone());
        let version = BuildLabels { version: env!("CARGO_PKG_VERSION") };
        inner.build_info.get_or_create(&version).set(1);
        Metrics(Arc::new(inner))
    }

    pub fn mark(&self, worker: &str, set: bool) {
        self.marks.get_or_create(&MarkLabels { worker: worker.to_owned(), set: set.to_string() }).inc();
    }

    pub fn retry_budget_exhausted(&self, worker: &str) {
        self.retry_budget_exhausted.get_or_create(&WorkerLabels { worker: worker.to_owned() }).inc();
    }

    pub fn policy(&self, policy: &str, rule: &str, decision: &str) {
        let (policy, rule, decision) = (policy.to_owned(), rule.to_owned(), decision.to_owned());
        self.policies.get_or_create(&PolicyLabels { policy, rule, decision }).inc();
    }

    /// Counts quarantined events that were identified and released.
    pub fn released(&self, by: &'static str, events: u64) {
        if events > 0 {
            self.identity_releases.get_or_create(&ReleaseLabels { by }).inc_by(events);
        }
    }

    pub fn lookup(&self, action: &'static str, result: &'static str) {
        self.lookups.get_or_create(&LookupLabels { action, result }).inc();
    }

    /// Alerts that fire now. One that still fires is never left out: a scrape at that moment would tell of its end.
    pub fn alerts(&self, firing: &[Alert]) {
        let labels = |alert: &Alert| AlertLabels {
            alert: alert.kind.name(),
            severity: alert.severity.as_str(),
            subject: alert.subject.clone(),
        };
        let firing: HashSet<AlertLabels> = firing.iter().map(labels).collect();
        for labels in &firing {
            self.alerts_firing.get_or_create(labels).set(1);
        }
        let mut shown = self.alerts_shown.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in shown.difference(&firing) {
            self.alerts_firing.remove(gone);
        }
        *shown = firing;
    }

    /// Response clocks that run now.
    pub fn responses_running(&self, counts: &[ResponseCount]) {
        self.responses_open.clear();
        for count in counts {
            let labels = ResponseLabels { flow: count.flow.to_string(), state: count.state.as_str() };
            self.responses_open.get_or_create(&labels).set(i64::try_from(count.count).unwrap_or(i64::MAX));
        }
    }

    pub fn response_ended(&self, flow: &str, result: &'static str) {
        self.responses.get_or_create(&ResponseEndLabels { flow: flow.to_owned(), result }).inc();
    }

    /// Metrics page for Prometheus.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut page = String::with_capacity(16 * 1024);
        text::encode_registry(&mut page, &self.registry)?;
        text::encode_registry(&mut page, &self.plain_names)?;
        text::encode_eof(&mut page)?;
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_domain::alert::AlertKind;
    use sluice_domain::alert::rules::AlertRules;
    use sluice_domain::alert::signal::Condition;
    use sluice_domain::alert::state::step;
    use sluice_domain::time::Time;

    fn firing(kind: AlertKind) -> Alert {
        let condition = Condition { kind, subject: "crm".into(), detail: String::new(), began: None };
        step(&[], &[condition], &AlertRules::default(), Time(0)).changed.remove(0)
    }

    #[test]
    fn alert_that_still_fires_is_on_every_page() {
        let (metrics, open) = (Metrics::new(), firing(AlertKind::BreakerOpen));
        metrics.alerts(&[open.clone(), firing(AlertKind::Unauthorized)]);
        let scraped = metrics.clone();
        let pages = std::thread::spawn(move || {
            (0..200).all(|_| scraped.render().unwrap().contains(r#"alerts_firing{alert="breaker-open""#))
        });
        loop {
            metrics.alerts(std::slice::from_ref(&open));
            if pages.is_finished() {
                break;
            }
        }
        assert!(pages.join().unwrap());
        assert!(!metrics.render().unwrap().contains(r#"alert="unauthorized""#));
    }
}
