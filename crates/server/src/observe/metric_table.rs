//! Every metric: its name, labels and meaning. The registry, the reference page and the checks of dashboards and alert rules read it.

use std::fmt::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MetricSpec {
    /// As in queries: counters with `_total`.
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    pub about: &'static str,
}

use MetricKind::{Counter, Gauge, Histogram};

const fn row(name: &'static str, kind: MetricKind, labels: &'static [&'static str], about: &'static str) -> MetricSpec {
    MetricSpec { name, kind, labels, about }
}

const DESTINATION: &[&str] = &["destination"];
const WORKER: &[&str] = &["worker"];
const SOURCE: &[&str] = &["source"];
const QUEUE: &[&str] = &["queue"];

/// In the order of the path of an event.
pub(crate) const METRICS: &[MetricSpec] = &[
    row(
        "sluice_intake_requests_total",
        Counter,
        &["source", "outcome"],
        "Requests at the intake: accepted, duplicate, handshake, interaction or the problem code.",
    ),
    row("sluice_intake_seconds", Histogram, &[], "From the request head to the response, including the commit."),
    row("sluice_intake_body_bytes_total", Counter, &[], "Bytes of accepted bodies."),
    row("sluice_events_accepted_total", Counter, SOURCE, "New events. A request may carry several."),
    row("sluice_duplicates_total", Counter, SOURCE, "Duplicates, answered with the first response."),
    row("sluice_key_clashes_total", Counter, SOURCE, "Requests with a known key and different content."),
    row("sluice_quarantined_total", Counter, SOURCE, "Events whose jobs are dead letters from the start."),
    row(
        "sluice_identity_releases_total",
        Counter,
        &["by"],
        "Quarantined events that were identified and released: by a later event, an operator or an enrichment.",
    ),
    row("sluice_unknown_fields_total", Counter, SOURCE, "Payload members unknown to the schema and the mapping."),
    row("sluice_jobs_live", Gauge, &["worker", "state"], "Live jobs: queued, running, retrying, waiting."),
    row("sluice_oldest_job_seconds", Gauge, WORKER, "Age of the oldest live job."),
    row("sluice_queue_seconds", Histogram, WORKER, "From accepting the event to the first run of its job."),
    row("sluice_run_seconds", Histogram, WORKER, "Duration of runs, with the call of a destination."),
    row(
        "sluice_attempts_total",
        Counter,
        &["destination", "outcome"],
        "Calls of destinations: done, noop, retry, wait, reject, unsure.",
    ),
    row("sluice_attempt_seconds", Histogram, DESTINATION, "Duration of calls, with the trace id as exemplar."),
    row(
        "sluice_effect_seconds",
        Histogram,
        DESTINATION,
        "From receiving the request to the applied effect, with the trace id as exemplar.",
    ),
    row(
        "sluice_jobs_finished_total",
        Counter,
        &["worker", "state", "replay"],
        "Jobs that ended, by state; replay is yes for replayed jobs.",
    ),
    row(
        "sluice_dead_letters_total",
        Counter,
        &["worker", "class"],
        "Jobs that died or whose outcome is unknown, by failure class.",
    ),
    row(
        "sluice_dead_letter_depth",
        Gauge,
        QUEUE,
        "Dead and unknown jobs of a dead-letter queue; none for jobs without one.",
    ),
    row("sluice_oldest_dead_letter_seconds", Gauge, QUEUE, "Age of the oldest dead letter."),
    row(
        "sluice_failure_groups",
        Gauge,
        &["state"],
        "Failure groups with dead letters, by state: open, acknowledged, resolved.",
    ),
    row("sluice_replays_total", Counter, &[], "Replayed jobs."),
    row(
        "sluice_import_rows_total",
        Counter,
        &["outcome"],
        "Rows of imports: accepted, duplicate, quarantined, refused.",
    ),
    row(
        "sluice_retry_budget_exhausted_total",
        Counter,
        WORKER,
        "Jobs that died because the retry budget of their contact was exhausted.",
    ),
    row(
        "sluice_marks_total",
        Counter,
        &["worker", "set"],
        "Marks of store.setnx: true was set by the job, false belongs to another event.",
    ),
    row(
        "sluice_policy_decisions_total",
        Counter,
        &["policy", "rule", "decision"],
        "Effects that a policy denied or deferred.",
    ),
    row(
        "sluice_lookups_total",
        Counter,
        &["action", "result"],
        "Lookups of `enrich` steps: found, absent, or the code of the warning.",
    ),
    row("sluice_breaker", Gauge, DESTINATION, "Circuit breaker: 0 closed, 1 half-open, 2 open."),
    row(
        "sluice_gate_changes_total",
        Counter,
        &["destination", "change"],
        "Changes of breakers and pauses: opened, half_open, closed, auth_paused.",
    ),
    row("sluice_destination_paused", Gauge, DESTINATION, "1 if the destination is paused."),
    row(
        "sluice_paused",
        Gauge,
        &["target"],
        "1 for each pause by an operator: destination:NAME, worker:NAME, queue:NAME, source:NAME or replays.",
    ),
    row(
        "sluice_calls_today",
        Gauge,
        DESTINATION,
        "Calls that the destination counts in its day, as of its last response.",
    ),
    row("sluice_calls_today_limit", Gauge, DESTINATION, "Calls that the destination allows in its day."),
    row("sluice_destination_wait_seconds", Histogram, DESTINATION, "From the due time of a job to its call."),
    row("sluice_destination_in_flight", Gauge, DESTINATION, "Calls in flight."),
    row("sluice_destination_concurrency", Gauge, DESTINATION, "Calls that may be in flight now."),
    row("sluice_destination_concurrency_max", Gauge, DESTINATION, "Configured limit of calls in flight."),
    row(
        "sluice_destination_retry_after_seconds",
        Gauge,
        DESTINATION,
        "Rest of the pause that the destination asked for.",
    ),
    row(
        "sluice_destination_learned_rate",
        Gauge,
        DESTINATION,
        "Calls a second that the destination was found to allow by its 429; absent if it has refused none for a while.",
    ),
    row("sluice_destination_budget_limit", Gauge, DESTINATION, "Calls of the budget in one window."),
    row("sluice_destination_budget_used", Gauge, DESTINATION, "Calls that count in the window now."),
    row("sluice_destination_budget_left", Gauge, DESTINATION, "Calls that are left for live traffic."),
    row(
        "sluice_destination_budget_left_for_replays",
        Gauge,
        DESTINATION,
        "Calls that are left for replays and imports: those above the reserve.",
    ),
    row(
        "sluice_destination_budget_runs_out_seconds",
        Gauge,
        DESTINATION,
        "Seconds until the budget is used up at the rate of the last hour; absent if calls come back before.",
    ),
    row("sluice_approvals_pending", Gauge, &[], "Pending approvals."),
    row("sluice_unknown_outcomes", Gauge, &[], "Jobs whose effect has an unknown outcome."),
    row("sluice_responses_open", Gauge, &["flow", "state"], "Response clocks that run: waiting, at_risk, late."),
    row("sluice_responses_total", Counter, &["flow", "result"], "Response clocks that ended: met, missed, given_up."),
    row("sluice_alerts_firing", Gauge, &["alert", "severity", "subject"], "1 for each alert that fires."),
    row("sluice_north_star", Gauge, &["name"], "North stars; absent if nothing is known."),
    row("sluice_jobs_running", Gauge, &[], "Running jobs."),
    row("sluice_jobs_in_memory", Gauge, &[], "Jobs in memory; the rest of the backlog is in the ledger."),
    row("sluice_ledger_commits", Gauge, &[], "Transactions of the ledger since the start."),
    row("sluice_ledger_operations", Gauge, &[], "Operations of the ledger since the start."),
    row("sluice_ledger_queue", Gauge, &[], "Operations waiting for the writer."),
    row("sluice_ledger_wal_pages", Gauge, &[], "Pages in the write-ahead log."),
    row("sluice_clock_in_doubt", Gauge, &[], "1 if the clock of the machine differs from the time of the ledger."),
    row(
        "sluice_trace_spans_total",
        Counter,
        &["result"],
        "Spans: exported, not_sampled, dropped_full (a buffer was full) or dropped_failed (the receiver did not take them).",
    ),
    row("sluice_build_info", Gauge, &["version"], "1, with the version of the program."),
    row("contact_attempts_total", Counter, &[], "The sum of sluice_attempts_total."),
    row("idempotency_hits_total", Counter, &[], "The sum of sluice_duplicates_total."),
    row("contact_dlq_depth", Gauge, &[], "The sum of sluice_dead_letter_depth."),
];

/// The row of a metric.
pub(super) fn spec(name: &str) -> &'static MetricSpec {
    METRICS.iter().find(|spec| spec.name == name).expect("every registered metric is in the table")
}

/// Reference page in Markdown.
pub(crate) fn reference() -> String {
    let mut page = String::from(
        "# Metrics\n\nGenerated by `sluice reference metrics`; do not edit.\n\n\
         `GET /metrics` on the admin listener, in the OpenMetrics text format; in the Prometheus text format if `Accept` asks for it. \
         Labels are names from the configuration and fixed words: never an email address, a key or an id. A metric with labels appears \
         with its first value. Counters start at zero with the process; `/api/v1/totals` has exact ones.\n\n\
         | metric | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for MetricSpec { name, kind, labels, about } in METRICS {
        let _ = writeln!(page, "| `{name}` | {} | {} | {about} |", kind.as_str(), labels.join(", "));
    }
    page
}

/// The page in the text format of Prometheus, for scrapers that do not read OpenMetrics: counters are described under the name
/// of their samples, and there are no exemplars.
pub(crate) fn prometheus_text(open_metrics: &str) -> String {
    let mut page = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let described = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        match described.and_then(|rest| rest.split_once(' ')) {
            Some((name, rest)) => {
                let keyword = &line[..7];
                let total = format!("{name}_total");
                let name = if METRICS.iter().any(|spec| spec.name == total) { &total } else { name };
                let _ = writeln!(page, "{keyword}{name} {rest}");
            }
            None if line.starts_with('#') => {}
            None => {
                let sample = line.rsplit_once(" # {").map_or(line, |(sample, _)| sample);
                let _ = writeln!(page, "{sample}");
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_labels_follow_the_conventions_of_prometheus() {
        let names: BTreeSet<&str> = METRICS.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for spec in METRICS {
            assert_eq!(spec.name.ends_with("_total"), spec.kind == Counter, "{}", spec.name);
            assert!(spec.kind != Histogram || spec.name.ends_with("_seconds"), "{}", spec.name);
            assert!(spec.about.ends_with('.') && spec.about.len() <= 120, "{}", spec.name);
        }
    }

    #[test]
    fn page_is_converted_to_the_text_format_of_prometheus() {
        let page = "# HELP sluice_replays Replayed jobs.\n# TYPE sluice_replays counter\nsluice_replays_total 2\n\
                    # TYPE sluice_breaker gauge\nsluice_breaker{destination=\"a # b\"} 0\n\
                    sluice_attempt_seconds_bucket{le=\"1\"} 3 # {trace_id=\"ab\"} 0.5\n# EOF\n";
        let expected = "# HELP sluice_replays_total Replayed jobs.\n# TYPE sluice_replays_total counter\nsluice_replays_total 2\n\
                        # TYPE sluice_breaker gauge\nsluice_breaker{destination=\"a # b\"} 0\n\
                        sluice_attempt_seconds_bucket{le=\"1\"} 3\n";
        assert_eq!(prometheus_text(page), expected);
    }
}
