//! A document with `consumes:`, `on:` or `schedule:` to a [`Worker`].

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use sluice_domain::action::Action;
use sluice_domain::cron::Schedule;
use sluice_domain::retry::RetryPolicy;
use sluice_domain::template::Template;
use sluice_domain::unit;
use sluice_domain::worker::Worker;

use super::declarations::Declarations;
use super::diagnostics::Report;
use super::document::DOCUMENT;
use super::field_reads;
use super::fields::Fields;
use super::lookup::{self, NeededDatabase};
use super::node::{Span, YamlNode};
use super::retry;
use super::rule::{at_least_one, at_most_one, same};
use super::safe_mode;
use super::script::NeededRuntime;
use super::step;
use super::table::{SectionSpec, ValueType, key};

/// Keys that bind a worker to its jobs.
pub(super) const STARTS: &[&str] = &["consumes", "on", "schedule"];

pub(super) static WORKER: SectionSpec = SectionSpec {
    title: "a worker",
    about: "Steps that run for each job. A document with `consumes:` is a worker of a queue; one with `on:` is a playbook, bound to an event type; one with `schedule:` runs on a schedule. A playbook and a scheduled worker have a queue of their own name.",
    keys: &[
        key("version", ValueType::OneOf(&["1"]), "Version of the configuration language.").or("1"),
        key("name", ValueType::Name, "Unique name.").required(),
        key("consumes", ValueType::Described("the name of a queue, or a map with queue"), "Queue of the worker."),
        key(
            "on",
            ValueType::Described("a type of event such as shopify.cart.abandoned"),
            "Event type of the playbook.",
        ),
        key("schedule", ValueType::Table("a schedule"), "Schedule of the worker."),
        key("concurrency", ValueType::Count(1, 10_000), "Maximum number of jobs in flight.").or("8"),
        key("retry", ValueType::Table("a retry policy"), "Retry policy.")
            .or("the policy of a document with only `retry:`"),
        key("safe_mode", ValueType::Table("safe mode"), "Behaviour in safe mode."),
        key("run", ValueType::Tables("a step"), "Steps, in order."),
        key("steps", ValueType::Tables("a step"), "Synonym of `run`."),
    ],
    later: &["rate_limit"],
    rules: &[
        at_most_one(
            STARTS,
            "the worker has `{first}` and `{second}`",
            "a worker has exactly one of consumes, on and schedule; split it into two workers",
        ),
        same(&["run", "steps"], "`run` and `steps` are synonyms"),
        at_least_one(&["run", "steps"], "the worker has no steps", "add `run:` with a list of steps").coded("no-steps"),
    ],
};

pub(super) static CONSUMES: SectionSpec = SectionSpec {
    title: "what a worker consumes",
    about: "The queue.",
    keys: &[key("queue", ValueType::Name, "The queue.").required()],
    later: &[],
    rules: &[],
};

pub(super) static SCHEDULE: SectionSpec = SectionSpec {
    title: "a schedule",
    about: "Each firing is an event, processed once. Of the firings missed while no node ran, only the latest is made up for.",
    keys: &[
        key(
            "cron",
            ValueType::Described("a rule such as */10 * * * *: minute, hour, day of the month, month, day of the week"),
            "When.",
        )
        .required(),
        key("timezone", ValueType::Zone, "Time zone of the rule, such as Europe/Berlin.").or("UTC"),
    ],
    later: &[],
    rules: &[],
};

const CONCURRENCY: u32 = 8;

pub(super) struct ReadWorker {
    pub(super) name: (String, Span),
    pub(super) worker: Arc<Worker>,
    /// Built-in destinations used by its steps.
    pub(super) built_in: BTreeSet<&'static str>,
    /// Runtimes required by its scripts.
    pub(super) runtimes: Vec<NeededRuntime>,
    /// Geo databases read by its steps.
    pub(super) databases: Vec<NeededDatabase>,
    /// Location of `on:` of a playbook.
    pub(super) on: Option<Span>,
    /// Dead-letter queues read by `queue_pull`, with their location.
    pub(super) pulled: Vec<(String, Span)>,
    /// Fields of the event that it reads, with their location.
    pub(super) event_reads: Vec<(String, Span)>,
    /// Queues that its steps put events into.
    pub(super) fills: Vec<String>,
}

pub(super) fn read(report: Report<'_>, node: &YamlNode, names: &Declarations) -> Option<ReadWorker> {
    let fields = Fields::open(report, node, &[&WORKER, &DOCUMENT])?;
    fields.one_of("version");
    let (name, name_span) = fields.name("name").unwrap_or(("", fields.span));
    let on = fields.node("on").and_then(|node| read_on(report, node));
    let schedule = fields.node("schedule").and_then(|node| read_schedule(report, node));
    if STARTS.iter().filter(|start| fields.node(start).is_some()).count() > 1 {
        return None;
    }
    let queue = match fields.node("consumes") {
        Some(_) => read_consumes(&fields, names),
        None => Some((name, name_span)),
    };
    let consumed = queue.map_or("", |(queue, _)| queue);
    let concurrency = fields.count("concurrency").unwrap_or(CONCURRENCY);
    let standard = names.standard_retry();
    let policy = match fields.node("retry") {
        Some(node) => retry::read(report, node, &RetryPolicy::standard(), (names, consumed)),
        None => standard,
    };
    let read = step::read_all(&fields, (names, consumed), &policy);
    for used in &read.timeouts {
        check_timeout(report, used, consumed, names);
    }
    let (queue, _) = queue?;
    let on_span = fields.node("on").map(|node| node.span);
    let safe_mode = fields.node("safe_mode").and_then(|node| safe_mode::read(report, node, names));
    let worker = Worker {
        name: name.to_owned(),
        queue: queue.to_owned(),
        concurrency,
        retry: policy,
        steps: read.steps,
        undo: read.undo,
        on,
        schedule,
        safe_mode: safe_mode.unwrap_or_default(),
    };
    lookup::check_reads(report, node, &worker);
    let fills = filled_queues(&worker);
    Some(ReadWorker {
        name: (name.to_owned(), name_span),
        worker: Arc::new(worker),
        built_in: read.built_in,
        runtimes: read.runtimes,
        databases: read.databases,
        on: on_span,
        pulled: read.pulled,
        event_reads: field_reads::event_reads(node),
        fills,
    })
}

/// Queues that the steps of a worker put events into.
fn filled_queues(worker: &Worker) -> Vec<String> {
    let steps = worker.steps.iter().filter(|step| step.action == Action::Queue);
    let names = steps.filter_map(|step| match &step.with {
        Template::Map(entries) => entries.iter().find(|(name, _)| name == "name"),
        _ => None,
    });
    names
        .filter_map(|(_, name)| match name {
            Template::Literal(Value::String(name)) => Some(name.clone()),
            _ => None,
        })
        .collect()
}

fn read_on(report: Report<'_>, node: &YamlNode) -> Option<String> {
    let good = |text: &&str| !text.trim().is_empty() && !text.contains(['*', '{', ' ']);
    let found = node.text().filter(good).map(str::to_owned);
    if found.is_none() {
        report
            .error(node.span, "bad-value", "`on` must be one literal event type")
            .hint("such as: on: shopify.cart.abandoned");
    }
    found
}

fn read_schedule(report: Report<'_>, node: &YamlNode) -> Option<Schedule> {
    let fields = Fields::open(report, node, &[&SCHEDULE])?;
    let zone = match fields.node("timezone") {
        Some(_) => fields.zone("timezone")?,
        None => "UTC",
    };
    match Schedule::parse(fields.text("cron")?, zone) {
        Ok(schedule) => Some(schedule),
        Err(problem) => {
            let span = fields.node("cron").map_or(fields.span, |node| node.span);
            report.error(span, "bad-value", problem.to_string()).hint("such as: cron: \"*/10 * * * *\"");
            None
        }
    }
}

fn read_consumes<'n>(fields: &Fields<'n, '_>, names: &Declarations) -> Option<(&'n str, Span)> {
    let node = fields.node("consumes")?;
    let (queue, span) = match node.text() {
        Some(queue) => (queue, node.span),
        None => Fields::open(fields.report, node, &[&CONSUMES])?.name("queue")?,
    };
    names.check_queue(fields.report, span, queue);
    Some((queue, span))
}

/// An attempt cancelled during its call has an unknown outcome, so the visibility timeout must exceed the call
/// timeout.
fn check_timeout(report: Report<'_>, used: &step::Timeout, queue: &str, names: &Declarations) {
    let Some(queue) = names.queues.get(queue) else { return };
    let visible = queue.value.visibility_timeout;
    if visible < used.timeout {
        report
            .warning(
                used.span,
                "attempt-too-short",
                format!(
                    "an attempt is cancelled after {} (visibility_timeout of `{}`), but a call to `{}` may take {}",
                    unit::format_duration(visible),
                    queue.value.name,
                    used.destination,
                    unit::format_duration(used.timeout)
                ),
            )
            .hint("make the queue's visibility_timeout longer than the destination's timeout");
    }
}
