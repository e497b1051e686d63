//! A document with `consumes:` to a [`Worker`].

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_domain::retry::RetryPolicy;
use sluice_domain::unit;
use sluice_domain::worker::Worker;

use super::document::DOCUMENT;
use super::fields::Fields;
use super::names::Names;
use super::node::{Node, Span};
use super::report::Report;
use super::retry;
use super::script::NeededRuntime;
use super::step;
use super::table::{Shape, Table, key};

pub(super) static WORKER: Table = Table {
    title: "a worker",
    about: "What is done with a queue's events, step by step. A document with `consumes:` is a worker.",
    keys: &[
        key("version", Shape::OneOf(&["1"]), "The version of the language.").or("1"),
        key("name", Shape::Name, "Its name.").required(),
        key("consumes", Shape::Described("the name of a queue, or a map with queue"), "The queue that it works on.")
            .required(),
        key("concurrency", Shape::Count(1, 10_000), "Jobs in flight at once, at the most.").or("8"),
        key("retry", Shape::Table("a retry policy"), "When a failed step is tried again."),
        key("run", Shape::Tables("a step"), "What is done, in this order."),
        key("steps", Shape::Tables("a step"), "The same."),
    ],
    later: &["schedule", "on", "rate_limit"],
};

pub(super) static CONSUMES: Table = Table {
    title: "what a worker consumes",
    about: "The queue.",
    keys: &[key("queue", Shape::Name, "The queue.").required()],
    later: &[],
};

const CONCURRENCY: u32 = 8;

/// A worker and where its name was written.
pub(super) struct ReadWorker {
    pub(super) name: (String, Span),
    pub(super) worker: Arc<Worker>,
    /// The destinations that are always there, as far as its steps use them.
    pub(super) built_in: BTreeSet<&'static str>,
    /// What its scripts need on this machine.
    pub(super) runtimes: Vec<NeededRuntime>,
}

/// Reads a document.
pub(super) fn read(report: Report<'_>, node: &Node, names: &Names) -> Option<ReadWorker> {
    let fields = Fields::open(report, node, &[&WORKER, &DOCUMENT])?;
    fields.one_of("version");
    let (name, name_span) = fields.name("name").unwrap_or(("", fields.span));
    let queue = read_consumes(&fields, names);
    let consumed = queue.map_or("", |(queue, _)| queue);
    let concurrency = fields.count("concurrency").unwrap_or(CONCURRENCY);
    let standard = RetryPolicy::standard();
    let policy = match fields.node("retry") {
        Some(node) => retry::read(report, node, &standard, (names, consumed)),
        None => standard,
    };
    let read = step::read_all(&fields, (names, consumed), &policy);
    for used in &read.timeouts {
        check_timeout(report, used, consumed, names);
    }
    let (queue, _) = queue?;
    let worker = Worker {
        name: name.to_owned(),
        queue: queue.to_owned(),
        concurrency,
        retry: policy,
        steps: read.steps,
        undo: vec![],
        on: None,
    };
    let name = (name.to_owned(), name_span);
    Some(ReadWorker { name, worker: Arc::new(worker), built_in: read.built_in, runtimes: read.runtimes })
}

fn read_consumes<'n>(fields: &Fields<'n, '_>, names: &Names) -> Option<(&'n str, Span)> {
    let node = fields.node("consumes")?;
    let (queue, span) = match node.text() {
        Some(queue) => (queue, node.span),
        None => Fields::open(fields.report, node, &[&CONSUMES])?.name("queue")?,
    };
    names.check_queue(fields.report, span, queue);
    Some((queue, span))
}

/// An attempt that is given up while its call still runs has an unknown outcome for no good reason.
fn check_timeout(report: Report<'_>, used: &step::Timeout, queue: &str, names: &Names) {
    let Some(queue) = names.queues.get(queue) else { return };
    let visible = queue.value.visibility_timeout;
    if visible < used.timeout {
        report
            .warning(
                used.span,
                "attempt-too-short",
                format!(
                    "an attempt is given up after {} (visibility_timeout of `{}`), and a call to `{}` may take {}",
                    unit::format_duration(visible),
                    queue.value.name,
                    used.destination,
                    unit::format_duration(used.timeout)
                ),
            )
            .hint("make the queue's visibility_timeout longer than the destination's timeout");
    }
}
