//! What components observe, until the history is written.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_domain::history::Measure;
use sluice_domain::history::recorder::{Point, Recorder};

use crate::levels::Levels;

/// Source of requests that no flow takes.
const NO_SOURCE: &str = "none";

/// The open minute.
#[derive(Debug, Default)]
pub(crate) struct OpenMinute(Mutex<Recorder>);

impl OpenMinute {
    pub(crate) fn refused(&self, source: &str, code: &str) {
        let source = if source.is_empty() { NO_SOURCE } else { source };
        self.lock().count(Measure::Refused, source, code);
    }

    pub(crate) fn called(&self, destination: &str, took: Duration) {
        self.lock().observe(Measure::CallSeconds, destination, took);
    }

    pub(crate) fn waited(&self, destination: &str, since_due: Duration) {
        self.lock().observe(Measure::WaitSeconds, destination, since_due);
    }

    pub(crate) fn applied(&self, destination: &str, since_received: Duration) {
        self.lock().observe(Measure::EffectSeconds, destination, since_received);
    }

    pub(crate) fn started(&self, worker: &str, since_accepted: Duration) {
        self.lock().observe(Measure::QueueSeconds, worker, since_accepted);
    }

    /// A notice of an alert was delivered.
    pub(crate) fn signalled(&self, alert: &str, since_began: Duration) {
        self.lock().observe(Measure::SignalSeconds, alert, since_began);
    }

    /// An event was answered that its flow wants an answer to.
    pub(crate) fn responded(&self, flow: &str, since_received: Duration) {
        self.lock().observe(Measure::ResponseSeconds, flow, since_received);
    }

    /// How long a source has sent nothing in this hour.
    pub(crate) fn quiet(&self, source: &str, since: Duration) {
        self.lock().level(Measure::QuietSeconds, source, "", since.as_secs());
    }

    pub(crate) fn levels(&self, levels: &Levels) {
        let mut recorder = self.lock();
        for (worker, state, count) in &levels.live {
            recorder.level(Measure::JobsLive, worker, state.as_str(), *count);
        }
        for (worker, age) in &levels.oldest {
            recorder.level(Measure::OldestJobSeconds, worker, "", age.as_secs());
        }
        for (queue, count) in &levels.dead_letters {
            recorder.level(Measure::DeadLetters, queue, "", *count);
        }
        for (queue, age) in &levels.oldest_dead_letters {
            recorder.level(Measure::OldestDeadLetterSeconds, queue, "", age.as_secs());
        }
        for (destination, level) in &levels.breakers {
            recorder.level(Measure::Breaker, destination, "", *level);
        }
    }

    /// What was observed since the last call.
    pub(crate) fn take(&self) -> Vec<Point> {
        self.lock().take()
    }

    /// Puts back what could not be written.
    pub(crate) fn restore(&self, points: Vec<Point>) {
        self.lock().restore(points);
    }

    fn lock(&self) -> MutexGuard<'_, Recorder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
