//! Tail sampling: a trace is exported if it belongs to the share, or if something in it failed or was slow. The spans of the others
//! are collected for a while, so that a trace that fails late is exported as a whole.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::time::Duration;

use super::{RecordedSpan, Sampling, TraceId};
use crate::hash::UntrustedMap;
use crate::time::Time;

/// How long the spans of a trace outside the share are collected.
const DECISION_WAIT: Duration = Duration::from_secs(30);

/// Collected spans. Beyond it the oldest trace is dropped.
pub const SPANS_OPEN_MAX: usize = 16_384;

/// Traces whose decision is remembered, for their later spans.
const DECISIONS_MAX: usize = 32_768;

/// Spans that most traces have: a request, an event, a run and a call.
const SPANS_OF_TRACE: usize = 4;

/// Spans of one trace that are collected. Later ones are dropped.
const SPANS_OF_TRACE_MAX: usize = 256;

/// What was decided about a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Dropped,
    Kept,
    /// Kept after its first spans had been dropped: those that are built again are exported.
    KeptLate,
}

#[derive(Debug)]
struct OpenTrace {
    since: Time,
    spans: Vec<RecordedSpan>,
}

/// Decides which spans are exported. Keeps every trace with a failed or slow span, and a share of the others that follows from the
/// trace id: every service that samples by it decides alike.
#[derive(Debug)]
pub struct TailSampler {
    sampling: Sampling,
    open: UntrustedMap<TraceId, OpenTrace>,
    /// Undecided traces, oldest first; some are decided already.
    order: VecDeque<TraceId>,
    spans_open: usize,
    /// Decisions, in two generations: the older one is dropped when the newer one is full.
    decided: [UntrustedMap<TraceId, Decision>; 2],
    not_sampled: u64,
}

impl TailSampler {
    pub fn new(sampling: Sampling) -> TailSampler {
        TailSampler {
            sampling,
            open: UntrustedMap::default(),
            order: VecDeque::new(),
            spans_open: 0,
            decided: [UntrustedMap::default(), UntrustedMap::default()],
            not_sampled: 0,
        }
    }

    /// Takes a finished span. Spans that are exported are added to `kept`.
    pub fn add(&mut self, span: RecordedSpan, now: Time, kept: &mut Vec<RecordedSpan>) {
        let trace = span.context.trace;
        let is_remarkable = self.is_remarkable(&span);
        // Most spans: of a trace outside the share that is collected already.
        if !is_remarkable && self.open.contains_key(&trace) {
            return self.collect(span, now);
        }
        let decided = self.decision(trace);
        match decided {
            // The trace is exported, and with it the first form of this span.
            Some(Decision::Kept) if span.rebuilt => return,
            Some(Decision::Kept | Decision::KeptLate) => return kept.push(span),
            Some(Decision::Dropped) | None => {}
        }
        if is_remarkable || is_in_share(trace, self.sampling.share) {
            let collected = self.take(trace);
            let is_late = decided == Some(Decision::Dropped) && collected.is_empty();
            self.decide(trace, if is_late { Decision::KeptLate } else { Decision::Kept });
            kept.extend(collected);
            return kept.push(span);
        }
        if decided == Some(Decision::Dropped) && !span.rebuilt {
            self.not_sampled += 1;
            return;
        }
        self.collect(span, now);
    }

    /// Drops the spans of traces that were collected long enough.
    pub fn tick(&mut self, now: Time) {
        while let Some(oldest) = self.order.front() {
            match self.open.get(oldest) {
                Some(open) if now.since(open.since) < DECISION_WAIT => return,
                _ => self.drop_oldest(),
            }
        }
    }

    /// Spans that were not kept since the last call.
    pub fn take_not_sampled(&mut self) -> u64 {
        std::mem::take(&mut self.not_sampled)
    }

    fn is_remarkable(&self, span: &RecordedSpan) -> bool {
        span.failed || span.took.max(span.since_received) >= self.sampling.slow
    }

    fn collect(&mut self, span: RecordedSpan, now: Time) {
        let trace = span.context.trace;
        let open = match self.open.entry(trace) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(slot) => {
                self.order.push_back(trace);
                slot.insert(OpenTrace { since: now, spans: Vec::with_capacity(SPANS_OF_TRACE) })
            }
        };
        let is_known = span.rebuilt && open.spans.iter().any(|other| other.context.span == span.context.span);
        if is_known {
            return;
        }
        if open.spans.len() >= SPANS_OF_TRACE_MAX {
            self.not_sampled += 1;
            return;
        }
        open.spans.push(span);
        self.spans_open += 1;
        while self.spans_open > SPANS_OPEN_MAX {
            self.drop_oldest();
        }
        if self.order.len() > 2 * SPANS_OPEN_MAX {
            self.order.retain(|trace| self.open.contains_key(trace));
        }
    }

    fn drop_oldest(&mut self) {
        let Some(trace) = self.order.pop_front() else { return };
        if let Some(open) = self.open.remove(&trace) {
            self.spans_open -= open.spans.len();
            self.not_sampled += open.spans.len() as u64;
            self.decide(trace, Decision::Dropped);
        }
    }

    fn take(&mut self, trace: TraceId) -> Vec<RecordedSpan> {
        let spans = self.open.remove(&trace).map(|open| open.spans).unwrap_or_default();
        self.spans_open -= spans.len();
        spans
    }

    fn decision(&self, trace: TraceId) -> Option<Decision> {
        self.decided.iter().find_map(|generation| generation.get(&trace)).copied()
    }

    fn decide(&mut self, trace: TraceId, decision: Decision) {
        if self.decided[0].len() >= DECISIONS_MAX / 2 {
            self.decided.swap(0, 1);
            self.decided[0].clear();
        }
        self.decided[1].remove(&trace);
        self.decided[0].insert(trace, decision);
    }
}

/// Whether a trace belongs to the share, by the 56 random bits of its id, as OpenTelemetry's consistent sampling does.
fn is_in_share(trace: TraceId, share: f64) -> bool {
    let random = trace.0[9..].iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    random < (share * (1u64 << 56) as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Span, SpanId, SpanKind, TraceContext};

    const NOTHING: Sampling = Sampling { share: 0.0, slow: Duration::from_secs(10) };
    const ALL: Sampling = Sampling { share: 1.0, ..NOTHING };

    fn recorded(trace: TraceId, id: u64) -> RecordedSpan {
        let context = TraceContext { trace, span: SpanId(id), sampled: true };
        RecordedSpan::new(context, |context| Span::new(context, SpanKind::Client, "call".to_owned()))
    }

    fn span(trace: u8, id: u64) -> RecordedSpan {
        recorded(TraceId([trace; 16]), id)
    }

    fn failed(trace: u8, id: u64) -> RecordedSpan {
        RecordedSpan { failed: true, ..span(trace, id) }
    }

    fn ids(spans: &[RecordedSpan]) -> Vec<u64> {
        spans.iter().map(|span| span.context.span.0).collect()
    }

    #[test]
    fn failed_span_keeps_its_whole_trace_and_no_other() {
        let (mut sampler, mut kept) = (TailSampler::new(NOTHING), vec![]);
        sampler.add(span(1, 1), Time(0), &mut kept);
        sampler.add(span(2, 2), Time(0), &mut kept);
        sampler.add(failed(1, 3), Time(5), &mut kept);
        assert_eq!(ids(&kept), [1, 3], "at once");
        sampler.add(span(1, 4), Time(6), &mut kept);
        sampler.tick(Time(0) + DECISION_WAIT);
        assert_eq!((ids(&kept), sampler.take_not_sampled()), (vec![1, 3, 4], 1));
        sampler.add(failed(2, 5), Time(40_000), &mut kept);
        sampler.add(span(2, 6), Time(40_000), &mut kept);
        assert_eq!(ids(&kept), [1, 3, 4, 5, 6], "a failure after the decision is kept, and what follows it");
    }

    #[test]
    fn slow_trace_is_kept_by_its_span_or_by_the_time_since_the_request() {
        let (mut sampler, mut kept) = (TailSampler::new(NOTHING), vec![]);
        let slow = Duration::from_secs(10);
        sampler.add(RecordedSpan { took: slow, ..span(1, 1) }, Time(0), &mut kept);
        sampler.add(RecordedSpan { since_received: slow, ..span(2, 2) }, Time(0), &mut kept);
        sampler.add(RecordedSpan { took: slow - Duration::from_millis(1), ..span(3, 3) }, Time(0), &mut kept);
        assert_eq!(ids(&kept), [1, 2]);
    }

    #[test]
    fn share_follows_from_the_trace_id() {
        let kept = |share| (0..=255u8).filter(|byte| is_in_share(TraceId([*byte; 16]), share)).count();
        assert_eq!((kept(0.0), kept(0.25), kept(1.0)), (0, 64, 256));
        let (mut sampler, mut kept) = (TailSampler::new(ALL), vec![]);
        sampler.add(span(1, 1), Time(0), &mut kept);
        assert_eq!(ids(&kept), [1], "what is kept anyway does not wait");
    }

    #[test]
    fn rebuilt_span_is_exported_only_if_the_first_one_was_not() {
        let rebuilt = |trace| RecordedSpan { rebuilt: true, ..span(trace, 1) };
        let (mut sampler, mut kept) = (TailSampler::new(NOTHING), vec![]);
        for trace in [1, 2, 3] {
            sampler.add(span(trace, 1), Time(0), &mut kept);
        }
        // The first is undecided, the second is exported, the third is not.
        sampler.add(failed(2, 2), Time(1), &mut kept);
        sampler.add(rebuilt(1), Time(2), &mut kept);
        sampler.add(rebuilt(2), Time(2), &mut kept);
        sampler.add(failed(1, 2), Time(3), &mut kept);
        assert_eq!(ids(&kept), [1, 2, 1, 2]);
        kept.clear();
        sampler.tick(Time(60_000));
        sampler.add(rebuilt(3), Time(60_001), &mut kept);
        sampler.add(failed(3, 2), Time(60_002), &mut kept);
        assert_eq!(ids(&kept), [1, 2]);
        kept.clear();
        // It fails first, and the publishing span is built again afterwards.
        sampler.add(span(4, 1), Time(60_003), &mut kept);
        sampler.tick(Time(120_000));
        sampler.add(failed(4, 2), Time(120_001), &mut kept);
        sampler.add(rebuilt(4), Time(120_002), &mut kept);
        assert_eq!(ids(&kept), [2, 1]);
    }

    #[test]
    fn memory_is_bounded() {
        let (mut sampler, mut kept) = (TailSampler::new(NOTHING), vec![]);
        for n in 0..200_000u64 {
            sampler.add(recorded(TraceId((u128::from(n) + 1).to_be_bytes()), n + 1), Time(0), &mut kept);
        }
        let decisions: usize = sampler.decided.iter().map(UntrustedMap::len).sum();
        assert!(sampler.spans_open <= SPANS_OPEN_MAX && sampler.order.len() <= 2 * SPANS_OPEN_MAX);
        assert!(decisions <= DECISIONS_MAX, "{decisions}");
        for n in 0..1_000 {
            sampler.add(span(9, n + 1), Time(0), &mut kept);
        }
        assert!(sampler.open[&TraceId([9; 16])].spans.len() <= SPANS_OF_TRACE_MAX);
    }
}
