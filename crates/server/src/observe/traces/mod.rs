//! Spans on their way to a receiver of OpenTelemetry.
//!
//! Recording a span appends it to a bounded buffer and never waits. A task of its own takes the buffer, decides which traces are
//! kept, and exports them; a receiver that is slow or gone costs spans, which are counted, and nothing else. While traces are off,
//! no span is built.

mod pipeline;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use sluice_domain::time::Time;
use sluice_domain::trace::{RecordedSpan, TraceSettings};
use tokio::sync::watch;

/// Spans that wait to be taken from the buffer.
const BUFFER_MAX: usize = 16_384;

/// What happened to a span.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Exported,
    NotSampled,
    /// A buffer was full.
    Full,
    /// The receiver did not take it.
    Failed,
}

impl Fate {
    const ALL: [Fate; 4] = [Fate::Exported, Fate::NotSampled, Fate::Full, Fate::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Fate::Exported => "exported",
            Fate::NotSampled => "not_sampled",
            Fate::Full => "dropped_full",
            Fate::Failed => "dropped_failed",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct SpanLabels {
    /// exported, not_sampled, dropped_full or dropped_failed.
    result: &'static str,
}

/// Handle to record spans. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Traces(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    is_on: AtomicBool,
    /// The ledger's time at which traces were turned on.
    since: AtomicI64,
    buffer: Mutex<Vec<RecordedSpan>>,
    settings: watch::Sender<Option<TraceSettings>>,
    counts: Family<SpanLabels, Counter>,
}

impl Default for Traces {
    fn default() -> Traces {
        Traces(Arc::new(Shared {
            is_on: AtomicBool::new(false),
            since: AtomicI64::new(i64::MAX),
            buffer: Mutex::default(),
            settings: watch::Sender::new(None),
            counts: Family::default(),
        }))
    }
}

impl Traces {
    /// Spans by what happened to them.
    pub(super) fn counts(&self) -> Family<SpanLabels, Counter> {
        self.0.counts.clone()
    }

    /// Whether spans are recorded. Callers build none otherwise.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// Whether traces were on when this was written.
    pub(crate) fn was_on(&self, at: Time) -> bool {
        at.0 >= self.0.since.load(Ordering::Relaxed)
    }

    /// Applies the settings of a configuration. `None` turns traces off.
    pub(crate) fn configure(&self, settings: Option<TraceSettings>, now: Time) {
        let is_same = match (&*self.0.settings.borrow(), &settings) {
            (Some(before), Some(after)) => before.is_same(after),
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return;
        }
        self.0.since.store(if settings.is_some() { now.0 } else { i64::MAX }, Ordering::Relaxed);
        self.0.is_on.store(settings.is_some(), Ordering::Relaxed);
        for fate in Fate::ALL {
            // Counters that begin at zero show their first increase.
            self.count(fate, 0);
        }
        self.0.settings.send_replace(settings);
    }

    /// Records a finished span.
    pub(crate) fn record(&self, span: RecordedSpan) {
        let mut buffer = self.0.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() < BUFFER_MAX {
            return buffer.push(span);
        }
        drop(buffer);
        self.count(Fate::Full, 1);
    }

    /// Exports what is recorded until the node stops.
    pub(crate) async fn run(self, stop: watch::Receiver<bool>) {
        pipeline::run(&self, stop).await;
    }

    fn take(&self) -> Vec<RecordedSpan> {
        std::mem::take(&mut *self.0.buffer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn turn_off(&self) {
        self.0.is_on.store(false, Ordering::Relaxed);
    }

    fn count(&self, fate: Fate, spans: u64) {
        self.0.counts.get_or_create(&SpanLabels { result: fate.as_str() }).inc_by(spans);
    }
}

/// A span that took this long and has just ended, by the clock of the machine.
pub(crate) fn ended_now(span: RecordedSpan, took: Duration) -> RecordedSpan {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    RecordedSpan { start: now.saturating_sub(took), took, ..span }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_domain::trace::{Protocol, Span, SpanId, SpanKind, TraceContext, TraceId};

    fn span(id: u64) -> RecordedSpan {
        let context = TraceContext { trace: TraceId([1; 16]), span: SpanId(id), sampled: true };
        RecordedSpan::new(context, |context| Span::new(context, SpanKind::Client, "call".to_owned()))
    }

    #[test]
    fn full_buffer_drops_and_counts_spans() {
        let traces = Traces::default();
        assert!(!traces.is_on());
        traces.configure(Some(TraceSettings::new("http://127.0.0.1:9", Protocol::Grpc)), Time(5));
        assert!(traces.is_on() && traces.was_on(Time(5)) && !traces.was_on(Time(4)));
        for id in 0..BUFFER_MAX as u64 + 7 {
            traces.record(span(id + 1));
        }
        assert_eq!(traces.counts().get_or_create(&SpanLabels { result: "dropped_full" }).get(), 7);
        assert_eq!(traces.take().len(), BUFFER_MAX);
        traces.configure(None, Time(6));
        assert!(!traces.is_on() && !traces.was_on(Time(7)));
    }
}
