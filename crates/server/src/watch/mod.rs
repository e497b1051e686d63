//! Watch: writes the history of the node.
//!
//! In: a timer; what components have observed.
//! Out: a minute of the history in the ledger.
//! Touches: ledger: levels, record history; metrics (what was observed); the scheduler's view.
//! Never: a job, an event or a destination.
//! If the process dies here: what was observed in the open minute is lost. Counters of the ledger are not: the next minute that is
//! written contains them.

use std::time::Duration;

use sluice_domain::history::Step;
use sluice_domain::time::Time;
use sluice_ledger::{Ledger, RecordHistory};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::levels::Levels;
use crate::observe::Metrics;
use crate::schedule::SchedulerHandle;

/// Between two readings of the levels.
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub ledger: Ledger,
    pub clock: Clock,
    pub metrics: Metrics,
    pub scheduler: SchedulerHandle,
}

impl Watch {
    /// Reads levels per interval and writes each minute once it is over; writes the open one at the end.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut minute = Step::Minute.start(self.clock.ledger_time());
        loop {
            let stopped = tokio::select! {
                () = tokio::time::sleep(INTERVAL) => false,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            if stopped {
                return self.write(minute).await;
            }
            self.read_levels().await;
            let now = Step::Minute.start(self.clock.ledger_time());
            if now > minute {
                self.write(minute).await;
                minute = now;
            }
        }
    }

    async fn read_levels(&self) {
        let view = self.scheduler.view().await;
        match Levels::read(&self.ledger, &self.clock, view.as_ref()).await {
            Ok(levels) => self.metrics.history.levels(&levels),
            Err(error) => tracing::warn!(%error, "the levels of the node could not be read; reading them again"),
        }
    }

    async fn write(&self, minute: Time) {
        let points = self.metrics.history.take();
        let reading = self.clock.read_ledger_clock();
        let record = RecordHistory {
            term: self.ledger.term(),
            minute,
            points: points.clone(),
            expire_at: reading.may_prune().then_some(reading.time),
        };
        if let Err(error) = self.ledger.record_history(record).await {
            tracing::warn!(%error, %minute, "a minute of the history could not be written; the next one contains it");
            self.metrics.history.restore(points);
        }
    }
}
