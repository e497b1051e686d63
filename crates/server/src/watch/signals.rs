//! Reads what alerts are decided from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_domain::alert::Signals;
use sluice_domain::alert::signal::CallCounts;
use sluice_domain::alert::silence::{SourceActivity, WEEKS};
use sluice_domain::history::series::{self, Grouping, HistoryQuery, HistoryRow};
use sluice_domain::history::{Measure, Step, Value};
use sluice_domain::job::JobState;
use sluice_domain::schedule::SchedulerView;
use sluice_domain::schedule::gate::PauseReason;
use sluice_domain::time::Time;
use sluice_domain::wait::WaitReason;

use super::Watch;
use crate::levels::Levels;

const HOUR: Duration = Duration::from_secs(3600);
const WEEK: Duration = Duration::from_secs(7 * 86_400);
/// Window of failed calls.
const CALLS_WINDOW: Duration = Duration::from_secs(5 * 60);

/// Signals from the history; they change once per minute.
#[derive(Clone, Debug, Default)]
pub(super) struct HistorySignals {
    calls: Vec<CallCounts>,
    late_duplicates: Vec<(String, u64)>,
    sources: Vec<SourceActivity>,
}

impl Watch {
    /// Signals of this moment.
    pub(super) async fn signals(
        &self,
        levels: &Levels,
        view: Option<&SchedulerView>,
        history: HistorySignals,
    ) -> Result<Signals, sluice_ledger::Error> {
        let totals = self.ledger.job_totals().await?;
        let is_purpose = |wait: WaitReason| {
            matches!(wait, WaitReason::Approval | WaitReason::Policy | WaitReason::SafeMode | WaitReason::Delay)
        };
        let on_purpose = totals.iter().filter(|total| total.count > 0 && total.wait.is_some_and(is_purpose));
        let on_purpose: BTreeSet<&str> = on_purpose.map(|total| &*total.worker).collect();
        let count = |of: &dyn Fn(&sluice_ledger::JobTotal) -> bool| {
            totals.iter().filter(|total| of(total)).map(|total| total.count).sum::<u64>()
        };
        let gates = || view.into_iter().flat_map(|view| &view.gates);
        let jumps = self.intake.refused_lately().into_iter().filter(|(_, _, lately)| lately.is_jump());
        Ok(Signals {
            dead_letters: levels.oldest_dead_letters.clone(),
            queues: levels.oldest.iter().filter(|(worker, _)| !on_purpose.contains(worker.as_str())).cloned().collect(),
            open_breakers: gates().filter(|(_, gate)| gate.breaker != "closed").map(|(name, _)| name.clone()).collect(),
            unauthorized: gates()
                .filter(|(_, gate)| gate.paused == Some(PauseReason::Auth))
                .map(|(name, _)| name.clone())
                .collect(),
            calls: history.calls,
            sources: history.sources,
            refused_jumps: jumps.map(|(source, code, _)| (source, code.to_owned())).collect(),
            late_duplicates: history.late_duplicates,
            unknown_outcomes: count(&|total| total.state == JobState::Unknown),
            approvals_pending: count(&|total| total.wait == Some(WaitReason::Approval)),
            is_disk_full: self.ledger.stats().is_disk_full.load(Ordering::Relaxed),
            clock: self.clock.warning(self.clock.read_ledger_clock()),
            payload_drift: self.payload_drift().await?,
        })
    }

    /// Sources that are configured and have open notices.
    async fn payload_drift(&self) -> Result<Vec<(String, u64)>, sluice_ledger::Error> {
        let live = self.revisions.current();
        let mut sources = self.ledger.drifting_sources().await?;
        sources.retain(|(source, _)| live.config.flows.values().any(|flow| flow.source == *source));
        Ok(sources)
    }

    /// `up` says for how long the node has run: a node that was down hears nothing.
    pub(super) async fn history_signals(&self, up: Duration) -> Result<HistorySignals, sluice_ledger::Error> {
        let now = self.clock.ledger_time();
        let attempts = self.rows(Measure::Attempts, Step::Minute, now - CALLS_WINDOW).await?;
        let late = self.rows(Measure::LateDuplicates, Step::Minute, now - HOUR).await?;
        let sources = match up >= HOUR {
            true => self.source_activity(now).await?,
            false => vec![],
        };
        Ok(HistorySignals { calls: call_counts(&attempts), late_duplicates: by_source(&late), sources })
    }

    async fn source_activity(&self, now: Time) -> Result<Vec<SourceActivity>, sluice_ledger::Error> {
        let recent = self.rows(Measure::Accepted, Step::Minute, now - HOUR).await?;
        // The middle of the last 60 minutes decides which hour is compared.
        let middle = now - HOUR / 2;
        let hours = self.rows(Measure::Accepted, Step::Hour, middle - WEEK * WEEKS as u32 - HOUR).await?;
        let recent: BTreeMap<String, u64> = by_source(&recent).into_iter().collect();
        let by = Grouping::by_all(Measure::Accepted);
        let activity = |series: series::Series| {
            let source = series.labels.first().map(|name| name.to_string()).unwrap_or_default();
            let known_since = series.points.first().map_or(Time::NEVER, |(at, _)| *at);
            let week = |weeks: u32| {
                let hour = Step::Hour.start(middle - WEEK * weeks);
                let found = series.points.iter().find(|(at, _)| *at == hour);
                let count = found.map_or(0, |(_, value)| if let Value::Count(count) = value { *count } else { 0 });
                (known_since <= hour).then_some(count)
            };
            let weeks = (1..=WEEKS as u32).map(week).collect();
            SourceActivity { last_hour: recent.get(&source).copied().unwrap_or(0), source, weeks }
        };
        let configured = self.revisions.current();
        let is_configured =
            |activity: &SourceActivity| configured.config.flows.values().any(|flow| flow.source == activity.source);
        Ok(series::group(&hours, &by).into_iter().map(activity).filter(is_configured).collect())
    }

    async fn rows(&self, measure: Measure, step: Step, since: Time) -> Result<Vec<HistoryRow>, sluice_ledger::Error> {
        self.ledger.history(HistoryQuery { measure, step, since, until: Time::NEVER }).await
    }
}

/// Sums of a counter by its first label.
fn by_source(rows: &[HistoryRow]) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (labels, value) in rows.iter().flat_map(|row| &row.values) {
        if let Value::Count(count) = value {
            *sums.entry(labels.0.to_string()).or_default() += count;
        }
    }
    sums.into_iter().collect()
}

fn call_counts(rows: &[HistoryRow]) -> Vec<CallCounts> {
    let mut calls: BTreeMap<String, CallCounts> = BTreeMap::new();
    for (labels, value) in rows.iter().flat_map(|row| &row.values) {
        let Value::Count(count) = value else { continue };
        let destination = labels.0.to_string();
        let counts =
            calls.entry(destination.clone()).or_insert_with(|| CallCounts { destination, ..CallCounts::default() });
        counts.total += count;
        if matches!(&*labels.1, "retry" | "wait" | "unsure") {
            counts.failed += count;
        }
    }
    calls.into_values().collect()
}
