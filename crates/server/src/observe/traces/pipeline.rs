//! Takes spans from the buffer, samples them, and exports them in batches, one at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_connectors::{OtlpError, OtlpExporter};
use sluice_domain::time::Time;
use sluice_domain::trace::{RecordedSpan, Span, TailSampler, TraceSettings};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Fate, Traces};

/// How often the buffer is taken.
const TAKE_INTERVAL: Duration = Duration::from_millis(200);
/// Kept spans that wait for their export.
const PENDING_MAX: usize = 8_192;
const BATCH_MAX: usize = 512;
/// Wait after a failed export; doubled up to [`BACKOFF_MAX`].
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Time for the last exports when the node stops.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(1_500);

pub(super) async fn run(traces: &Traces, mut stop: watch::Receiver<bool>) {
    let mut settings = traces.0.settings.subscribe();
    while !*stop.borrow() {
        let current = settings.borrow_and_update().clone();
        let pipeline = current.and_then(|settings| match OtlpExporter::new(&settings) {
            Ok(exporter) => Some(Pipeline::new(traces, exporter, &settings)),
            Err(error) => {
                tracing::error!(%error, "traces are off: the exporter cannot be built");
                traces.turn_off();
                None
            }
        });
        let changed = async {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => {}
                _ = settings.changed() => {}
            }
        };
        match pipeline {
            Some(pipeline) => pipeline.run_until(changed).await,
            None => changed.await,
        }
    }
}

type Exported = Result<usize, (usize, OtlpError)>;

struct Pipeline<'t> {
    traces: &'t Traces,
    exporter: Arc<OtlpExporter>,
    sampler: TailSampler,
    started: Instant,
    pending: VecDeque<RecordedSpan>,
    exporting: Option<JoinHandle<Exported>>,
    /// Wait after the next failure.
    backoff: Duration,
    not_before: Instant,
    is_failing: bool,
}

impl<'t> Pipeline<'t> {
    fn new(traces: &'t Traces, exporter: OtlpExporter, settings: &TraceSettings) -> Pipeline<'t> {
        Pipeline {
            traces,
            exporter: Arc::new(exporter),
            sampler: TailSampler::new(settings.sampling),
            started: Instant::now(),
            pending: VecDeque::new(),
            exporting: None,
            backoff: BACKOFF,
            not_before: Instant::now(),
            is_failing: false,
        }
    }

    async fn run_until(mut self, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        let mut interval = tokio::time::interval(TAKE_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = end.as_mut() => break,
                _ = interval.tick() => self.take(),
                exported = finished(&mut self.exporting) => self.exported(exported),
            }
            self.export_next();
        }
        self.flush().await;
    }

    fn now(&self) -> Time {
        Time(0) + self.started.elapsed()
    }

    fn take(&mut self) {
        let (now, mut kept) = (self.now(), Vec::new());
        for span in self.traces.take() {
            self.sampler.add(span, now, &mut kept);
        }
        self.sampler.tick(now);
        self.keep(kept);
    }

    fn keep(&mut self, kept: Vec<RecordedSpan>) {
        self.traces.count(Fate::NotSampled, self.sampler.take_not_sampled());
        let room = PENDING_MAX.saturating_sub(self.pending.len());
        self.traces.count(Fate::Full, kept.len().saturating_sub(room) as u64);
        self.pending.extend(kept.into_iter().take(room));
    }

    fn export_next(&mut self) {
        if self.exporting.is_some() || self.pending.is_empty() || Instant::now() < self.not_before {
            return;
        }
        let batch = self.pending.drain(..self.pending.len().min(BATCH_MAX)).map(RecordedSpan::described);
        let batch: Vec<Span> = batch.collect();
        let exporter = self.exporter.clone();
        self.exporting = Some(tokio::spawn(async move {
            let exported = exporter.export(&batch).await;
            exported.map(|()| batch.len()).map_err(|error| (batch.len(), error))
        }));
    }

    fn exported(&mut self, exported: Exported) {
        match exported {
            Ok(spans) => {
                self.traces.count(Fate::Exported, spans as u64);
                if self.is_failing {
                    tracing::info!("traces are exported again");
                }
                (self.is_failing, self.backoff) = (false, BACKOFF);
            }
            Err((spans, error)) => {
                self.traces.count(Fate::Failed, spans as u64);
                if !self.is_failing {
                    tracing::warn!(%error, "traces cannot be exported; spans are dropped and counted until it works again");
                }
                self.is_failing = true;
                self.not_before = Instant::now() + self.backoff;
                self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
            }
        }
    }

    /// Exports what is left, as far as time allows.
    async fn flush(&mut self) {
        self.take();
        let flushed = tokio::time::timeout(FLUSH_TIMEOUT, async {
            while self.exporting.is_some() || !self.pending.is_empty() {
                if self.exporting.is_some() {
                    let exported = finished(&mut self.exporting).await;
                    self.exported(exported);
                }
                if self.is_failing {
                    break;
                }
                self.export_next();
            }
        });
        let _ = flushed.await;
        if let Some(exporting) = self.exporting.take() {
            exporting.abort();
        }
        self.traces.count(Fate::Failed, self.pending.len() as u64);
    }
}

/// The result of the export that is under way; pending if there is none.
async fn finished(exporting: &mut Option<JoinHandle<Exported>>) -> Exported {
    match exporting {
        None => std::future::pending().await,
        Some(task) => {
            let result = task.await;
            *exporting = None;
            result.unwrap_or(Ok(0))
        }
    }
}
