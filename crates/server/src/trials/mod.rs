//! Trials: apply a new configuration to stored requests beside the active one, and report the differences. A shadow does so with
//! requests as they are accepted.
//!
//! In: a compiled configuration, a window of time; the shadow configuration of the ledger and events after their commit.
//! Out: progress, then a report; the report of the shadow.
//! Touches: ledger: read verbs; the report of the shadow.
//! Never: writes anything else; calls a destination.
//! If the process dies here: a trial is lost; a shadow continues from the last event that its report contains.

mod apply;
mod shadow;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::time::Time;
use sluice_ledger::{EventSeq, Ledger, StoredQuery};

use crate::change::TrialReport;
use crate::revisions::LoadedRevision;
use apply::TrialRun;
pub(crate) use shadow::{ShadowReport, ShadowRun};

/// Events of one trial: the newest of its window. Bounds its memory to about 1.5 KiB for each.
pub(crate) const EVENTS_MAX: u64 = 200_000;
const PAGE_EVENTS: u32 = 256;
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A trial that nobody has looked at for this long is cancelled.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// What a trial compares.
#[derive(Clone, Debug)]
pub(crate) struct TrialInput {
    pub active: Arc<LoadedRevision>,
    pub candidate: Arc<LoadedRevision>,
    /// Only flows differ: requests to destinations are the same for equal events.
    pub only_flows_differ: bool,
    /// Requests received at or after this time.
    pub since: Time,
}

/// One trial.
#[derive(Debug)]
pub(crate) struct Trial {
    pub id: u64,
    pub active: Arc<str>,
    pub candidate: Arc<str>,
    pub since: Time,
    started: Instant,
    done: AtomicU64,
    total: AtomicU64,
    is_cut: AtomicBool,
    is_cancelled: AtomicBool,
    state: Mutex<TrialState>,
    looked_at: Mutex<Instant>,
}

#[derive(Clone, Debug)]
pub(crate) enum TrialState {
    Running,
    Done { report: Box<TrialReport>, took: Duration },
    Cancelled,
    Failed(String),
}

/// How far a trial has come.
#[derive(Clone, Debug)]
pub(crate) struct TrialProgress {
    pub state: TrialState,
    /// Events that were looked at.
    pub done: u64,
    /// Events of the window; 0 until it is known.
    pub total: u64,
    /// The window has more events than a trial takes.
    pub is_cut: bool,
    pub took: Duration,
}

impl Trial {
    fn new(id: u64, input: &TrialInput) -> Trial {
        Trial {
            id,
            active: input.active.revision.clone(),
            candidate: input.candidate.revision.clone(),
            since: input.since,
            started: Instant::now(),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            is_cut: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            state: Mutex::new(TrialState::Running),
            looked_at: Mutex::new(Instant::now()),
        }
    }

    /// Progress. A caller that looks keeps the trial running.
    pub(crate) fn progress(&self) -> TrialProgress {
        if let Ok(mut looked_at) = self.looked_at.lock() {
            *looked_at = Instant::now();
        }
        let state = self.state.lock().map_or(TrialState::Cancelled, |state| state.clone());
        let took = match &state {
            TrialState::Done { took, .. } => *took,
            _ => self.started.elapsed(),
        };
        TrialProgress {
            state,
            done: self.done.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
            is_cut: self.is_cut.load(Ordering::Relaxed),
            took,
        }
    }

    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    fn is_running(&self) -> bool {
        self.state.lock().is_ok_and(|state| matches!(*state, TrialState::Running))
    }

    fn is_given_up(&self) -> bool {
        let is_abandoned = self.looked_at.lock().is_ok_and(|looked_at| looked_at.elapsed() > ABANDONED_AFTER);
        is_abandoned || self.is_cancelled.load(Ordering::Relaxed)
    }
}

/// The trials of a node: one at a time; the last one stays readable. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Trials {
    ledger: Ledger,
    pseudonyms: PseudonymKey,
    last: Arc<Mutex<Option<Arc<Trial>>>>,
    started: Arc<AtomicU64>,
}

impl Trials {
    pub(crate) fn new(ledger: Ledger, pseudonyms: PseudonymKey) -> Trials {
        Trials { ledger, pseudonyms, last: Arc::default(), started: Arc::default() }
    }

    /// Starts a trial. `None` if one is running.
    pub(crate) fn start(&self, input: TrialInput) -> Option<Arc<Trial>> {
        let mut last = self.last.lock().ok()?;
        if last.as_ref().is_some_and(|trial| trial.is_running()) {
            return None;
        }
        let trial = Arc::new(Trial::new(self.started.fetch_add(1, Ordering::Relaxed) + 1, &input));
        *last = Some(trial.clone());
        let (trials, running) = (self.clone(), trial.clone());
        tokio::spawn(async move {
            let state = match trials.run(&running, input).await {
                Ok(Some(report)) => TrialState::Done { report: Box::new(report), took: running.started.elapsed() },
                Ok(None) => TrialState::Cancelled,
                Err(problem) => TrialState::Failed(problem),
            };
            if let Ok(mut last) = running.state.lock() {
                *last = state;
            }
        });
        Some(trial)
    }

    /// A trial by its id, if it is the last one.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Trial>> {
        self.last.lock().ok()?.clone().filter(|trial| trial.id == id)
    }

    /// `None` if the trial is cancelled or nobody waits for it.
    async fn run(&self, trial: &Trial, input: TrialInput) -> Result<Option<TrialReport>, String> {
        let in_words = |error: sluice_ledger::Error| error.to_string();
        let since = input.since;
        let mut run = TrialRun::new(input, self.pseudonyms.clone());
        let Some((first, last)) = self.ledger.event_span(since).await.map_err(in_words)? else {
            return Ok(Some(run.into_report()));
        };
        let events = (last - first + 1).unsigned_abs();
        trial.is_cut.store(events > EVENTS_MAX, Ordering::Relaxed);
        trial.total.store(events.min(EVENTS_MAX), Ordering::Relaxed);
        let first = first.max(last - EVENTS_MAX.cast_signed() + 1);
        let mut after: EventSeq = first - 1;
        while after < last {
            if trial.is_given_up() {
                return Ok(None);
            }
            let query = StoredQuery { after, limit: PAGE_EVENTS, body_bytes_max: PAGE_BYTES_MAX };
            let mut page = self.ledger.events_after(query).await.map_err(in_words)?;
            let Some(newest) = page.last().map(|stored| stored.event.seq) else { break };
            page.retain(|stored| stored.event.seq <= last && stored.event.received_at >= since);
            after = newest;
            let applied = tokio::task::spawn_blocking(move || {
                page.iter().for_each(|stored| run.add(stored));
                run
            });
            run = applied.await.map_err(|error| format!("a request could not be compared: {error}"))?;
            trial.done.store((after.min(last) - first + 1).unsigned_abs(), Ordering::Relaxed);
        }
        let report = tokio::task::spawn_blocking(move || run.into_report()).await;
        report.map(Some).map_err(|error| format!("the contacts could not be compared: {error}"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
