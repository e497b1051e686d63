//! Watch: writes the history of the node, and tells operators what is wrong.
//!
//! In: a timer; what components have observed.
//! Out: a minute of the history; states of alerts; an event for each change of an alert, for each digest and for each response that is at
//! risk, which playbooks handle.
//! Touches: ledger: levels, history, alerts, response clocks, accept; metrics (what was observed); the scheduler's view; rejections of the intake.
//! Never: a job, a destination, or the decision whether something is wrong (that is `domain::alert`).
//! If the process dies here: what was observed in the open minute is lost. Counters of the ledger are not: the next minute that is
//! written contains them. A change of an alert is stored before it is notified and its event has a key, so it is notified once.

mod activity;
mod digest;
mod responses;
mod signals;

use std::time::Duration;

use sluice_domain::alert::signal::conditions;
use sluice_domain::alert::watch::{WatchCommand, commands};
use sluice_domain::alert::{Alert, NoticeEvent, Phase, Signals};
use sluice_domain::history::Step;
use sluice_domain::time::Time;
use sluice_ledger::{Acceptance, Ledger, RecordHistory};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::intake::IntakeContext;
use crate::levels::Levels;
use crate::observe::Metrics;
use crate::revisions::{LoadedRevision, Revisions};
use crate::schedule::SchedulerHandle;
use crate::work::WorkContext;
use activity::SourceClock;
use digest::DigestDay;
use signals::HistorySignals;

/// Between two looks at the node.
const INTERVAL: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(crate) struct Watch {
    ledger: Ledger,
    revisions: Revisions,
    clock: Clock,
    metrics: Metrics,
    scheduler: SchedulerHandle,
    intake: IntakeContext,
}

/// What is remembered between two looks.
#[derive(Debug)]
struct Memory {
    history: HistorySignals,
    sources: SourceClock,
    digest: DigestDay,
}

impl Watch {
    pub(crate) fn new(context: &WorkContext, scheduler: SchedulerHandle, intake: IntakeContext) -> Watch {
        let WorkContext { ledger, revisions, clock, metrics, .. } = context.clone();
        Watch { ledger, revisions, clock, metrics, scheduler, intake }
    }

    /// Looks at the node per interval and writes each minute once it is over; writes the open one at the end.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut minute = Step::Minute.start(self.clock.ledger_time());
        let mut memory = Memory {
            history: HistorySignals::default(),
            sources: SourceClock::new(self.clock.now()),
            digest: DigestDay::default(),
        };
        // Before the first look: without it the alerts that the history decides would seem to have ended with the last process.
        self.read_history(&mut memory).await;
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
            if let Err(error) = self.look(&mut memory).await {
                tracing::warn!(%error, "the node could not be looked at; looking again");
            }
            if is_new_minute {
                self.write(minute).await;
                minute = now;
                self.read_history(&mut memory).await;
            }
        }
    }

    async fn read_history(&self, memory: &mut Memory) {
        match self.history_signals().await {
            Ok(signals) => memory.history = signals,
            Err(error) => tracing::warn!(%error, "the history could not be read; reading it again"),
        }
    }

    /// Records the levels, evaluates the alerts and sends the digest. A part that fails does not keep the others from being made: a full
    /// disk refuses events, and the alert about it must be seen.
    async fn look(&self, memory: &mut Memory) -> Result<(), sluice_ledger::Error> {
        let live = self.revisions.current();
        let responses = self.watch_responses(&live).await;
        let alerts = self.watch_alerts(&live, memory).await;
        let digest = self.send_digest(&live, &mut memory.digest).await;
        responses.and(alerts).and(digest)
    }

    async fn watch_alerts(&self, live: &LoadedRevision, memory: &mut Memory) -> Result<(), sluice_ledger::Error> {
        let view = self.scheduler.view().await;
        let levels = Levels::read(&self.ledger, &self.clock, view.as_ref()).await?;
        self.metrics.history.levels(&levels);
        let known = self.ledger.alerts().await?;
        self.watch_sources(live, &known, &mut memory.sources).await?;
        let signals = self.signals(&levels, view.as_ref(), memory).await?;
        let signals = Signals { late_responses: self.late_responses().await?, ..signals };
        let rules = &live.config.alerts.rules;
        let performed =
            self.perform(commands(&known, &conditions(&signals, rules), rules, self.clock.ledger_time()), live).await;
        let firing: Vec<Alert> =
            self.ledger.alerts().await?.into_iter().filter(|alert| alert.phase == Phase::Firing).collect();
        self.metrics.alerts(&firing);
        performed
    }

    async fn perform(&self, commands: Vec<WatchCommand>, live: &LoadedRevision) -> Result<(), sluice_ledger::Error> {
        for command in commands {
            match command {
                WatchCommand::Keep(changes) => self.ledger.keep_alerts(changes).await?,
                WatchCommand::Notify(notice) => self.accept(&notice.event(&live.config.alerts), live).await?,
            }
        }
        Ok(())
    }

    /// Accepts an event of the node itself. A duplicate is one that an earlier look has accepted.
    async fn accept(&self, event: &NoticeEvent, live: &LoadedRevision) -> Result<(), sluice_ledger::Error> {
        let accepted = self.ledger.accept(event.accept(&live.config, &live.revision, self.clock.ledger_time())).await;
        if !matches!(accepted, Ok(Acceptance::Duplicate(_))) {
            let about = event.attributes["title"].as_str().unwrap_or_default();
            tracing::warn!(event_type = event.event_type, key = event.key_text, "{about}");
        }
        accepted.map(drop)
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
