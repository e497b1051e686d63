//! Watch: writes the history of the node, and tells operators what is wrong.
//!
//! In: a timer; what components have observed.
//! Out: a minute of the history; states of alerts; an event for each change of an alert, which playbooks handle.
//! Touches: ledger: levels, history, alerts, accept; metrics (what was observed); the scheduler's view; rejections of the intake.
//! Never: a job, a destination, or the decision whether something is wrong (that is `domain::alert`).
//! If the process dies here: what was observed in the open minute is lost. Counters of the ledger are not: the next minute that is
//! written contains them. A change of an alert is stored before it is notified and its event has a key, so it is notified once.

mod notice;
mod signals;

use std::time::Duration;

use sluice_domain::alert::signal::conditions;
use sluice_domain::alert::state::{AlertChanges, step};
use sluice_domain::alert::{Alert, Phase};
use sluice_domain::history::Step;
use sluice_domain::time::Time;
use sluice_ledger::{Ledger, RecordHistory};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::intake::IntakeContext;
use crate::levels::Levels;
use crate::observe::Metrics;
use crate::revisions::Revisions;
use crate::schedule::SchedulerHandle;
use crate::work::WorkContext;
pub(crate) use notice::Notice;
use signals::HistorySignals;

/// Between two looks at the node.
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(crate) struct Watch {
    ledger: Ledger,
    revisions: Revisions,
    clock: Clock,
    metrics: Metrics,
    scheduler: SchedulerHandle,
    intake: IntakeContext,
}

impl Watch {
    pub fn new(context: &WorkContext, scheduler: SchedulerHandle, intake: IntakeContext) -> Watch {
        let WorkContext { ledger, revisions, clock, metrics, .. } = context.clone();
        Watch { ledger, revisions, clock, metrics, scheduler, intake }
    }

    /// Looks at the node per interval and writes each minute once it is over; writes the open one at the end.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let started = self.clock.now();
        let mut minute = Step::Minute.start(self.clock.ledger_time());
        let mut history = HistorySignals::default();
        loop {
            let stopped = tokio::select! {
                () = tokio::time::sleep(INTERVAL) => false,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            if stopped {
                return self.write(minute).await;
            }
            let now = Step::Minute.start(self.clock.ledger_time());
            let is_new_minute = now > minute;
            if let Err(error) = self.look(&history).await {
                tracing::warn!(%error, "the node could not be looked at; looking again");
            }
            if is_new_minute {
                self.write(minute).await;
                minute = now;
                match self.history_signals(self.clock.now().since(started)).await {
                    Ok(signals) => history = signals,
                    Err(error) => tracing::warn!(%error, "the history could not be read; reading it again"),
                }
            }
        }
    }

    /// Records the levels and evaluates the alerts.
    async fn look(&self, history: &HistorySignals) -> Result<(), sluice_ledger::Error> {
        let view = self.scheduler.view().await;
        let levels = Levels::read(&self.ledger, &self.clock, view.as_ref()).await?;
        self.metrics.history.levels(&levels);
        let signals = self.signals(&levels, view.as_ref(), history.clone()).await?;
        let known = self.ledger.alerts().await?;
        let changes = step(&known, &conditions(&signals), self.clock.ledger_time());
        if changes != AlertChanges::default() {
            self.ledger.keep_alerts(changes).await?;
        }
        let firing = self.notify().await?;
        self.metrics.alerts(&firing);
        Ok(())
    }

    /// Notifies every change that was stored and not notified. Returns the firing alerts.
    async fn notify(&self) -> Result<Vec<Alert>, sluice_ledger::Error> {
        let mut firing = Vec::new();
        for alert in self.ledger.alerts().await? {
            if alert.is_to_notify() {
                let (name, subject, state) = (alert.kind.name(), &alert.subject, alert.phase.as_str());
                tracing::warn!(alert = name, %subject, state, runbook = alert.kind.runbook(), "{}", alert.detail);
                let event = Notice::of(&alert).event(&self.revisions.current(), self.clock.ledger_time());
                self.ledger.accept(event).await?;
                let changed = vec![alert.clone().after_notice()];
                self.ledger.keep_alerts(AlertChanges { changed, removed: vec![] }).await?;
            }
            if alert.phase == Phase::Firing {
                firing.push(alert);
            }
        }
        Ok(firing)
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
