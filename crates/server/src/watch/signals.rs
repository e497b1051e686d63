//! Reads what alerts are decided from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_domain::alert::Signals;
use sluice_domain::alert::signal::{CallCounts, CallLimit, LimitForecast};
use sluice_domain::history::series::{HistoryQuery, HistoryRow};
use sluice_domain::history::{Measure, Step, Value};
use sluice_domain::job::JobState;
use sluice_domain::schedule::SchedulerView;
use sluice_domain::schedule::gate::PauseReason;
use sluice_domain::time::Time;
use sluice_domain::wait::WaitReason;

use super::activity::{SourceHours, activities};
use super::{Memory, Watch};
use crate::intake::{Lately, SOURCE_PAUSED};
use crate::levels::Levels;

const HOUR: Duration = Duration::from_secs(3600);
/// Window of failed calls.
const CALLS_WINDOW: Duration = Duration::from_secs(5 * 60);

/// Signals from the history; they change once per minute.
#[derive(Clone, Debug, Default)]
pub(super) struct HistorySignals {
    calls: Vec<CallCounts>,
    late_duplicates: Vec<(String, u64)>,
    hours: SourceHours,
}

impl Watch {
    /// Signals of this moment.
    pub(super) async fn signals(
        &self,
        levels: &Levels,
        view: Option<&SchedulerView>,
        memory: &Memory,
    ) -> Result<Signals, sluice_ledger::Error> {
        let totals = self.ledger.job_totals().await?;
        let is_purpose = |wait: WaitReason| {
            matches!(
                wait,
                WaitReason::Approval
                    | WaitReason::Policy
                    | WaitReason::SafeMode
                    | WaitReason::Budget
                    | WaitReason::Delay
            )
        };
        let on_purpose = totals.iter().filter(|total| total.count > 0 && total.wait.is_some_and(is_purpose));
        let on_purpose: BTreeSet<&str> = on_purpose.map(|total| &*total.worker).collect();
        let count = |of: &dyn Fn(&sluice_ledger::JobTotal) -> bool| {
            totals.iter().filter(|total| of(total)).map(|total| total.count).sum::<u64>()
        };
        let gates = || view.into_iter().flat_map(|view| &view.gates);
        let open = gates().filter(|(_, gate)| gate.breaker != "closed");
        let (now, history) = (self.clock.ledger_time(), &memory.history);
        let holidays = &self.revisions.current().config.alerts.holidays;
        Ok(Signals {
            dead_letters: levels.oldest_dead_letters.clone(),
            queues: levels.oldest.iter().filter(|(worker, _)| !on_purpose.contains(worker.as_str())).cloned().collect(),
            open_breakers: open.map(|(name, gate)| (name.clone(), self.ledger_time_of(gate.failing_since))).collect(),
            unauthorized: gates()
                .filter(|(_, gate)| gate.paused == Some(PauseReason::Auth))
                .map(|(name, _)| name.clone())
                .collect(),
            calls: history.calls.clone(),
            sources: activities(&history.hours, &memory.sources, holidays, (now, self.clock.now())),
            refused_jumps: refused_jumps(self.intake.refused_lately()),
            late_duplicates: history.late_duplicates.clone(),
            unknown_outcomes: count(&|total| total.state == JobState::Unknown),
            approvals_pending: count(&|total| total.wait == Some(WaitReason::Approval)),
            is_disk_full: self.ledger.stats().is_disk_full.load(Ordering::Relaxed),
            clock: self.clock.warning(self.clock.read_ledger_clock()),
            payload_drift: self.payload_drift().await?,
            late_responses: vec![],
            call_limits: self.call_limits(view),
        })
    }

    /// Sources that are configured and have open notices.
    async fn payload_drift(&self) -> Result<Vec<(String, u64)>, sluice_ledger::Error> {
        let live = self.revisions.current();
        let mut sources = self.ledger.drifting_sources().await?;
        sources.retain(|(source, _)| live.config.flows.values().any(|flow| flow.source == *source));
        Ok(sources)
    }

    /// Budgets of destinations, and what others reported about their daily limits since the node started.
    fn call_limits(&self, view: Option<&SchedulerView>) -> Vec<CallLimit> {
        let (live, now) = (self.revisions.current(), self.clock.ledger_time());
        let limit = |destination: &String| {
            let budget = view.and_then(|view| view.gates.get(destination)?.budget.as_ref());
            if let Some((budget, limit)) = budget.and_then(|budget| Some((budget, budget.limit?))) {
                let forecast = LimitForecast::Budget(budget.runs_out_at.map(|at| at.since(now)));
                return Some(CallLimit { destination: destination.clone(), used: budget.used, limit, forecast });
            }
            let quota = live.connectors.quota(destination)?;
            let forecast = LimitForecast::Recent;
            Some(CallLimit { destination: destination.clone(), used: quota.used, limit: quota.limit, forecast })
        };
        live.config.destinations.keys().filter_map(limit).collect()
    }

    /// The ledger's time of a moment of the steady clock, which gates use.
    fn ledger_time_of(&self, at: Option<Time>) -> Option<Time> {
        at.map(|at| self.clock.ledger_time() - self.clock.now().since(at))
    }

    pub(super) async fn history_signals(&self) -> Result<HistorySignals, sluice_ledger::Error> {
        let now = self.clock.ledger_time();
        let attempts = self.rows(Measure::Attempts, Step::Minute, now - CALLS_WINDOW).await?;
        let late = self.rows(Measure::LateDuplicates, Step::Minute, now - HOUR).await?;
        let hours = self.source_hours(now).await?;
        Ok(HistorySignals { calls: call_counts(&attempts), late_duplicates: by_source(&late), hours })
    }

    pub(super) async fn rows(
        &self,
        measure: Measure,
        step: Step,
        since: Time,
    ) -> Result<Vec<HistoryRow>, sluice_ledger::Error> {
        self.ledger.history(HistoryQuery { measure, step, since, until: Time::NEVER }).await
    }
}

/// Sources with a jump of rejected requests, and the problem code. A source that an operator paused rejects all of them, on purpose.
fn refused_jumps(lately: Vec<(String, &'static str, Lately)>) -> Vec<(String, String)> {
    let jumps = lately.into_iter().filter(|(_, code, lately)| *code != SOURCE_PAUSED && lately.is_jump());
    jumps.map(|(source, code, _)| (source, code.to_owned())).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_of_a_paused_source_are_no_jump() {
        let jump = Lately { minute: 40, hour: 40, day: 40 };
        let lately = vec![("shop".to_owned(), SOURCE_PAUSED, jump), ("shop".to_owned(), "signature-mismatch", jump)];
        assert_eq!(refused_jumps(lately), [("shop".to_owned(), "signature-mismatch".to_owned())]);
    }
}
