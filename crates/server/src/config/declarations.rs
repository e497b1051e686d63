//! The names that one part of a configuration uses to speak of another.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_domain::destination::Destination;
use sluice_domain::policy::Policy;
use sluice_domain::retry::RetryPolicy;
use sluice_domain::template::Messages;
use sluice_domain::worker::Queue;

use super::diagnostics::Report;
use super::node::Span;

/// Where something was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceLocation {
    pub(super) file: String,
    pub(super) span: Span,
}

impl SourceLocation {
    pub(super) fn new(report: Report<'_>, span: Span) -> SourceLocation {
        SourceLocation { file: report.file().to_owned(), span }
    }

    /// `file:line:column`.
    pub(super) fn describe(&self) -> String {
        format!("{}:{}:{}", self.file, self.span.line, self.span.column)
    }
}

/// Something and where it was said.
#[derive(Debug)]
pub(super) struct Placed<T> {
    pub(super) place: SourceLocation,
    pub(super) value: T,
}

/// Every queue and destination there is, known before flows and workers are read.
#[derive(Debug, Default)]
pub(super) struct Declarations {
    pub(super) queues: BTreeMap<String, Placed<Queue>>,
    /// `None` is one that could not be read: its name exists, and nothing more is said about it.
    pub(super) destinations: BTreeMap<String, Placed<Option<Destination>>>,
    /// The same: `None` could not be read.
    pub(super) policies: BTreeMap<String, Placed<Option<Arc<Policy>>>>,
    /// The retry policy of workers that have none.
    pub(super) retry: Option<Placed<RetryPolicy>>,
    /// What `messaging.send_template` can send.
    pub(super) messages: Messages,
    /// The files of the configuration, for what refers to one.
    pub(super) texts: BTreeMap<String, String>,
    /// Whether a file could not be read, so that a name that is not here may still exist.
    pub(super) incomplete: bool,
}

impl Declarations {
    /// The policy of a worker that says nothing.
    pub(super) fn standard_retry(&self) -> RetryPolicy {
        self.retry.as_ref().map_or_else(RetryPolicy::standard, |placed| placed.value.clone())
    }

    /// Says so if there is no such queue.
    pub(super) fn check_queue(&self, report: Report<'_>, span: Span, queue: &str) {
        if self.incomplete || self.queues.contains_key(queue) {
            return;
        }
        let otherwise = format!("declare it: queues: [{{name: {queue}}}]");
        report.error(span, "unknown-queue", format!("no queue is called `{queue}`")).meant(
            queue,
            self.queues.keys().map(String::as_str),
            &otherwise,
        );
    }
}

/// Adds a thing under its name; a name that is taken is a problem that names both places.
pub(super) fn add<T>(
    things: &mut BTreeMap<String, Placed<T>>,
    report: Report<'_>,
    what: &str,
    (name, span): (&str, Span),
    value: T,
) {
    if let Some(first) = things.get(name) {
        report
            .error(
                span,
                "duplicate-name",
                format!("the {what} `{name}` is already defined in {}", first.place.describe()),
            )
            .hint("give one of them another name, or remove it");
        return;
    }
    things.insert(name.to_owned(), Placed { place: SourceLocation::new(report, span), value });
}
