//! Traces: which trace an event, its runs and its calls belong to.
//!
//! Every id follows from stored data, so that a trace continues after a restart and whether or not spans are exported.

mod sampler;
mod settings;
mod span;

use std::fmt;

use data_encoding::HEXLOWER;

pub use sampler::{SPANS_OPEN_MAX, TailSampler};
pub use settings::{Protocol, Sampling, TraceSettings};
pub use span::{Attribute, RecordedSpan, Span, SpanKind};

use crate::digest::DigestContext;
use crate::event::EventId;
use crate::job::JobId;
use crate::record::{EventRecord, JobRecord};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub u64);

impl TraceId {
    /// Parses 32 lower-case hexadecimal digits that are not all zero.
    pub fn parse(text: &str) -> Option<TraceId> {
        let id = u128::from_str_radix(hexadecimal(text, 32)?, 16).ok()?;
        (id != 0).then(|| TraceId(id.to_be_bytes()))
    }
}

impl SpanId {
    /// Parses 16 lower-case hexadecimal digits that are not all zero.
    pub fn parse(text: &str) -> Option<SpanId> {
        let id = u64::from_str_radix(hexadecimal(text, 16)?, 16).ok()?;
        (id != 0).then_some(SpanId(id))
    }

    /// The span id of the n-th attempt of a job.
    pub fn of_attempt(job: JobId, n: u32) -> SpanId {
        SpanId(((job.0 as u64).rotate_left(20) ^ u64::from(n)).max(1))
    }

    /// The id of the span that publishes an event.
    pub fn of_event(event: EventId) -> SpanId {
        let [a, b, c, d, e, f, g, h, ..] = event.0;
        SpanId(u64::from_be_bytes([a, b, c, d, e, f, g, h]).max(1))
    }
}

fn hexadecimal(text: &str, digits: usize) -> Option<&str> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (text.len() == digits && text.bytes().all(is_digit)).then_some(text)
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEXLOWER.encode_mut_str(&self.0, &mut [0; 32]))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEXLOWER.encode_mut_str(&self.0.to_be_bytes(), &mut [0; 16]))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A span of a trace, as W3C `traceparent` identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: TraceId,
    pub span: SpanId,
    pub sampled: bool,
}

impl TraceContext {
    /// Parses a `traceparent` header. An invalid one is ignored as a whole, as the specification requires.
    pub fn parse(header: &str) -> Option<TraceContext> {
        let mut parts = header.trim().split('-');
        let version = hexadecimal(parts.next()?, 2).filter(|version| *version != "ff")?;
        let (trace, span) = (TraceId::parse(parts.next()?)?, SpanId::parse(parts.next()?)?);
        let flags = u8::from_str_radix(hexadecimal(parts.next()?, 2)?, 16).ok()?;
        // Later versions may add fields.
        let is_complete = parts.next().is_none() || version != "00";
        is_complete.then_some(TraceContext { trace, span, sampled: flags & 1 == 1 })
    }
}

/// As a `traceparent` header. Every call has one: it is written in one piece.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut header = *b"00-00000000000000000000000000000000-0000000000000000-00";
        HEXLOWER.encode_mut(&self.trace.0, &mut header[3..35]);
        HEXLOWER.encode_mut(&self.span.0.to_be_bytes(), &mut header[36..52]);
        header[54] = if self.sampled { b'1' } else { b'0' };
        f.write_str(std::str::from_utf8(&header).map_err(|_| fmt::Error)?)
    }
}

/// The trace of an event. Stored as text: the trace id, and if another span caused the event, that span and its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTrace {
    pub trace: TraceId,
    /// The span of the sender, or of the run that emitted the event.
    pub parent: Option<SpanId>,
    pub sampled: bool,
}

impl EventTrace {
    /// A trace that begins with the event.
    pub fn root(trace: TraceId) -> EventTrace {
        EventTrace { trace, parent: None, sampled: true }
    }

    /// Reads the stored text of an event. Text that is no trace id gives the trace that its event id stands for.
    pub fn of(event: &EventRecord) -> EventTrace {
        EventTrace::parse(&event.trace).unwrap_or_else(|| EventTrace::root(TraceId(event.id.0)))
    }

    fn parse(text: &str) -> Option<EventTrace> {
        match text.split_once('-') {
            None => TraceId::parse(text).map(EventTrace::root),
            Some(_) => TraceContext::parse(&format!("00-{text}")).map(EventTrace::from),
        }
    }

    /// The span that publishes the event.
    pub fn published(self, event: EventId) -> TraceContext {
        TraceContext { trace: self.trace, span: SpanId::of_event(event), sampled: self.sampled }
    }
}

impl From<TraceContext> for EventTrace {
    fn from(context: TraceContext) -> EventTrace {
        EventTrace { trace: context.trace, parent: Some(context.span), sampled: context.sampled }
    }
}

/// As it is stored.
impl fmt::Display for EventTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parent {
            None => write!(f, "{}", self.trace),
            Some(parent) => write!(f, "{}-{parent}-{:02x}", self.trace, u8::from(self.sampled)),
        }
    }
}

impl EventRecord {
    /// The trace id, for logs and lists.
    pub fn trace_id(&self) -> &str {
        self.trace.split('-').next().unwrap_or_default()
    }
}

/// The span of one run of a job.
///
/// The first run continues the trace of the event. A later attempt at a step and a replay begin a trace of their own, which links to
/// the event: they may come hours later, and a trace that grows for days cannot be sampled or shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTrace {
    pub context: TraceContext,
    /// `None` if the run begins a trace.
    pub parent: Option<SpanId>,
    /// The span that published the event, if the run begins a trace.
    pub link: Option<TraceContext>,
}

impl RunTrace {
    /// The run that begins with the job in this state.
    pub fn new(event: &EventRecord, job: &JobRecord) -> RunTrace {
        static CONTEXT: DigestContext = DigestContext::new("sluice span of a run");
        let published = EventTrace::of(event).published(event.id);
        let digest: [u8; 24] = CONTEXT.of(|hasher| {
            hasher.update(&published.trace.0).update(&job.id.0.to_le_bytes());
            // The job is written at the end of every run.
            hasher.update(&job.attempts_total.to_le_bytes()).update(&job.updated_at.0.to_le_bytes());
        });
        let [own @ .., _, _, _, _, _, _, _, _] = digest;
        let [.., a, b, c, d, e, f, g, h] = digest;
        let span = SpanId(u64::from_be_bytes([a, b, c, d, e, f, g, h]).max(1));
        let is_first = job.attempts == 0 && job.replays == 0;
        match is_first {
            true => RunTrace { context: TraceContext { span, ..published }, parent: Some(published.span), link: None },
            false => RunTrace {
                context: TraceContext { trace: TraceId(own), span, sampled: published.sampled },
                parent: None,
                link: Some(published),
            },
        }
    }

    /// The span of the n-th attempt of the job.
    pub fn call(&self, job: JobId, n: u32) -> TraceContext {
        TraceContext { span: SpanId::of_attempt(job, n), ..self.context }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_a_valid_traceparent_is_used() {
        let context = TraceContext::parse(HEADER).unwrap();
        assert_eq!((context.to_string().as_str(), context.sampled), (HEADER, true));
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more";
        assert_eq!(TraceContext::parse(later).map(|context| context.sampled), Some(false));
        for wrong in [
            "",
            "00",
            "00-xyz-1-1",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn stored_trace_is_read_as_it_was_written() {
        let caused = EventTrace::from(TraceContext::parse(HEADER).unwrap());
        for trace in [caused, EventTrace { sampled: false, ..caused }, EventTrace::root(TraceId([7; 16]))] {
            assert_eq!(EventTrace::parse(&trace.to_string()), Some(trace));
        }
        assert_eq!(caused.to_string(), HEADER[3..]);
        assert_eq!(EventTrace::parse("no trace"), None);
    }
}
