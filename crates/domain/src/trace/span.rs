//! Finished spans.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{SpanId, TraceContext};

/// Role of a span, as OpenTelemetry names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Answers a request.
    Server,
    /// Publishes an event.
    Producer,
    /// Runs a job.
    Consumer,
    /// Calls a destination.
    Client,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    Text(Cow<'static, str>),
    Shared(Arc<str>),
    Number(i64),
    Flag(bool),
}

impl From<&'static str> for Attribute {
    fn from(text: &'static str) -> Attribute {
        Attribute::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Attribute {
        Attribute::Text(Cow::Owned(text))
    }
}

impl From<Arc<str>> for Attribute {
    fn from(text: Arc<str>) -> Attribute {
        Attribute::Shared(text)
    }
}

impl From<i64> for Attribute {
    fn from(number: i64) -> Attribute {
        Attribute::Number(number)
    }
}

impl From<u32> for Attribute {
    fn from(number: u32) -> Attribute {
        Attribute::Number(i64::from(number))
    }
}

impl From<bool> for Attribute {
    fn from(flag: bool) -> Attribute {
        Attribute::Flag(flag)
    }
}

/// A finished span. Its texts are names of the configuration, ids, digests and codes: never personal data.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub context: TraceContext,
    pub parent: Option<SpanId>,
    /// Whether the parent belongs to the sender.
    pub parent_is_remote: bool,
    pub kind: SpanKind,
    pub name: String,
    /// Since the Unix epoch.
    pub start: Duration,
    pub took: Duration,
    pub attributes: Vec<(&'static str, Attribute)>,
    pub links: Vec<TraceContext>,
    /// Code of the failure.
    pub error: Option<String>,
}

impl Span {
    /// A span without attributes, links and error.
    pub fn new(context: TraceContext, kind: SpanKind, name: String) -> Span {
        Span {
            context,
            parent: None,
            parent_is_remote: false,
            kind,
            name,
            start: Duration::ZERO,
            took: Duration::ZERO,
            attributes: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<Attribute>) -> Span {
        self.attributes.push((name, value.into()));
        self
    }

    /// The same, for a value that may be absent.
    pub fn with_some(self, name: &'static str, value: Option<impl Into<Attribute>>) -> Span {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The same with an error, which the attribute `error.type` names too.
    pub fn failed(mut self, code: Option<String>) -> Span {
        if let Some(code) = &code {
            self.attributes.push(("error.type", code.clone().into()));
        }
        self.error = code;
        self
    }
}

/// A finished span as it is recorded: what sampling needs, and how to describe the rest. Few spans are exported, so names and
/// attributes are made for those alone.
pub struct RecordedSpan {
    pub context: TraceContext,
    /// Since the Unix epoch.
    pub start: Duration,
    pub took: Duration,
    /// From receiving the request until the end of this span, if that is longer than the span itself.
    pub since_received: Duration,
    pub failed: bool,
    /// Built again from the ledger, because the first one may be lost. Not exported if the first one was.
    pub rebuilt: bool,
    pub describe: Describe,
}

/// Makes the name and the attributes of a span.
pub(super) type Describe = Box<dyn FnOnce(TraceContext) -> Span + Send>;

impl RecordedSpan {
    pub fn new(context: TraceContext, describe: impl FnOnce(TraceContext) -> Span + Send + 'static) -> RecordedSpan {
        RecordedSpan {
            context,
            start: Duration::ZERO,
            took: Duration::ZERO,
            since_received: Duration::ZERO,
            failed: false,
            rebuilt: false,
            describe: Box::new(describe),
        }
    }

    /// The span with its name and attributes.
    pub fn described(self) -> Span {
        Span { start: self.start, took: self.took, ..(self.describe)(self.context) }
    }
}

impl fmt::Debug for RecordedSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedSpan").field("context", &self.context).field("took", &self.took).finish_non_exhaustive()
    }
}
