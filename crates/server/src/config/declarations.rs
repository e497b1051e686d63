//! Named resources that documents refer to.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_domain::access::oidc::OidcSettings;
use sluice_domain::destination::Destination;
use sluice_domain::policy::Policy;
use sluice_domain::retry::RetryPolicy;
use sluice_domain::template::Messages;
use sluice_domain::trace::TraceSettings;
use sluice_domain::worker::Queue;

use super::alerts::ReadAlerts;
use super::catalogue::Catalogue;
use super::contacts::ReadContacts;
use super::diagnostics::Report;
use super::node::Span;

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

/// Value with its source location.
#[derive(Debug)]
pub(super) struct Placed<T> {
    pub(super) place: SourceLocation,
    pub(super) value: T,
}

/// Queues, destinations and policies, collected before flows and workers are read.
#[derive(Debug, Default)]
pub(super) struct Declarations {
    pub(super) connectors: Catalogue,
    pub(super) queues: BTreeMap<String, Placed<Queue>>,
    /// `None` could not be read: the name exists, and no further problem is reported for it.
    pub(super) destinations: BTreeMap<String, Placed<Option<Destination>>>,
    /// `None` could not be read.
    pub(super) policies: BTreeMap<String, Placed<Option<Arc<Policy>>>>,
    pub(super) contacts: Option<Placed<ReadContacts>>,
    pub(super) alerts: Option<Placed<ReadAlerts>>,
    pub(super) traces: Option<Placed<TraceSettings>>,
    pub(super) oidc: Option<Placed<Arc<OidcSettings>>>,
    /// Default retry policy.
    pub(super) retry: Option<Placed<RetryPolicy>>,
    pub(super) messages: Messages,
    /// Files of the configuration, for references to them.
    pub(super) texts: BTreeMap<String, String>,
    /// A file could not be read, so an unknown name may exist in it.
    pub(super) incomplete: bool,
}

impl Declarations {
    pub(super) fn standard_retry(&self) -> RetryPolicy {
        self.retry.as_ref().map_or_else(RetryPolicy::standard, |placed| placed.value.clone())
    }

    /// Reports an unknown queue.
    pub(super) fn check_queue(&self, report: Report<'_>, span: Span, queue: &str) {
        if self.incomplete || self.queues.contains_key(queue) {
            return;
        }
        let otherwise = format!("declare it: queues: [{{name: {queue}}}]");
        report.error(span, "unknown-queue", format!("unknown queue `{queue}`")).meant(
            queue,
            self.queues.keys().map(String::as_str),
            &otherwise,
        );
    }
}

/// Adds a named resource; a duplicate name is reported with both locations.
pub(super) fn add<T>(
    resources: &mut BTreeMap<String, Placed<T>>,
    report: Report<'_>,
    what: &str,
    (name, span): (&str, Span),
    value: T,
) {
    if let Some(first) = resources.get(name) {
        report
            .error(
                span,
                "duplicate-name",
                format!("the {what} `{name}` is already defined in {}", first.place.describe()),
            )
            .hint("give one of them another name, or remove it");
        return;
    }
    resources.insert(name.to_owned(), Placed { place: SourceLocation::new(report, span), value });
}
