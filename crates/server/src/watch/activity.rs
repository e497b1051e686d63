//! When each source sent last, and what it usually sends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluice_domain::alert::silence::{Holidays, HourFacts, SourceActivity};
use sluice_domain::alert::{Alert, AlertKind, Phase};
use sluice_domain::history::series::HistoryRow;
use sluice_domain::history::{Measure, Step, Value};
use sluice_domain::time::Time;

use super::Watch;
use crate::revisions::LoadedRevision;

/// Hours of the weeks before, and a week more for holidays.
const REACH: Duration = Duration::from_secs(36 * 86_400);

/// Accepted events of each source and when their number grew last, by the steady clock: a clock that is set makes no source silent. A
/// source that sent nothing since the node started, or while it was paused, is quiet since then: a node that was down hears nothing.
#[derive(Debug)]
pub(super) struct SourceClock {
    started: Time,
    last: BTreeMap<String, (u64, Time)>,
    /// Accepted events of each source whose alert fires, when that was seen first.
    silent: BTreeMap<String, u64>,
}

impl SourceClock {
    pub(super) fn new(started: Time) -> SourceClock {
        SourceClock { started, last: BTreeMap::new(), silent: BTreeMap::new() }
    }

    fn observe(&mut self, source: &str, total: u64, is_paused: bool, now: Time) {
        match self.last.get_mut(source) {
            Some((known, _)) if *known == total && !is_paused => {}
            Some(known) => *known = (total, now),
            None => drop(self.last.insert(source.to_owned(), (total, self.started))),
        }
    }

    /// Remembers what was accepted of the sources whose alert fires.
    fn observe_alerts(&mut self, alerts: &[Alert]) {
        let is_firing = |alert: &&Alert| alert.kind == AlertKind::SourceSilent && alert.phase == Phase::Firing;
        let firing: BTreeSet<&str> = alerts.iter().filter(is_firing).map(|alert| alert.subject.as_str()).collect();
        self.silent.retain(|source, _| firing.contains(source.as_str()));
        for (source, (total, _)) in self.last.iter().filter(|(source, _)| firing.contains(source.as_str())) {
            self.silent.entry(source.clone()).or_insert(*total);
        }
    }

    fn quiet(&self, source: &str, now: Time) -> Duration {
        now.since(self.last.get(source).map_or(self.started, |(_, at)| *at))
    }

    /// Whether nothing was accepted since the alert of a source fires.
    fn is_known_silent(&self, source: &str) -> bool {
        let total = self.last.get(source).map(|(total, _)| total);
        total.is_some() && total == self.silent.get(source)
    }
}

/// Facts of hours by source.
pub(super) type SourceHours = BTreeMap<String, BTreeMap<Time, HourFacts>>;

impl Watch {
    /// Records how long each configured source has been quiet in this hour.
    pub(super) async fn watch_sources(
        &self,
        live: &LoadedRevision,
        alerts: &[Alert],
        sources: &mut SourceClock,
    ) -> Result<(), sluice_ledger::Error> {
        let (now, steady) = (self.clock.ledger_time(), self.clock.now());
        let names: BTreeSet<&str> = live.config.flows.values().map(|flow| flow.source.as_str()).collect();
        let paused = self.intake.paused();
        sources.last.retain(|name, _| names.contains(name.as_str()));
        let totals = self.ledger.counter_totals().await?;
        for total in totals.iter().filter(|total| total.measure == Measure::Accepted) {
            let name = &*total.labels.0;
            if names.contains(name) {
                sources.observe(name, total.total, paused.contains(name), steady);
            }
        }
        sources.observe_alerts(alerts);
        let in_hour = now.since(Step::Hour.start(now));
        for name in names {
            self.metrics.history.quiet(name, sources.quiet(name, steady).min(in_hour));
        }
        Ok(())
    }

    /// Facts of the hours that silence is compared with.
    pub(super) async fn source_hours(&self, now: Time) -> Result<SourceHours, sluice_ledger::Error> {
        let mut hours = SourceHours::new();
        let accepted = self.rows(Measure::Accepted, Step::Hour, now - REACH).await?;
        let quiet = self.rows(Measure::QuietSeconds, Step::Hour, now - REACH).await?;
        for (source, at, value) in values(&accepted) {
            if let Value::Count(events) = value {
                hours.entry(source.to_owned()).or_default().entry(at).or_default().events = *events;
            }
        }
        for (source, at, value) in values(&quiet) {
            // Only what was sent says since when a source is known.
            if let (Value::Gauge(gauge), Some(known)) = (value, hours.get_mut(source)) {
                known.entry(at).or_default().longest_gap = Some(Duration::from_secs(gauge.max));
            }
        }
        Ok(hours)
    }
}

fn values(rows: &[HistoryRow]) -> impl Iterator<Item = (&str, Time, &Value)> {
    rows.iter().flat_map(|row| row.values.iter().map(|(labels, value)| (&*labels.0, row.at, value)))
}

/// What every source of the history does now; `steady` is the time of the steady clock.
pub(super) fn activities(
    hours: &SourceHours,
    sources: &SourceClock,
    holidays: &Holidays,
    (now, steady): (Time, Time),
) -> Vec<SourceActivity> {
    let hour = Step::Hour.start(now);
    let same = |at: Time| holidays.same_time(at).into_iter().map(|at| Step::Hour.start(at)).collect::<Vec<_>>();
    let (these, before) = (same(hour), same(hour - Step::Hour.length()));
    let activity = |(source, known): (&String, &BTreeMap<Time, HourFacts>)| {
        let first = known.iter().find(|(_, facts)| facts.events > 0).map_or(Time::NEVER, |(at, _)| *at);
        let facts = |at: &Time| (first <= *at).then(|| known.get(at).copied().unwrap_or_default());
        SourceActivity {
            source: source.clone(),
            quiet: sources.quiet(source, steady),
            is_known_silent: sources.is_known_silent(source),
            hour_elapsed: now.since(hour),
            weeks: these.iter().map(facts).collect(),
            weeks_before: before.iter().map(facts).collect(),
        }
    };
    hours.iter().filter(|(source, _)| sources.last.contains_key(*source)).map(activity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_domain::alert::rules::AlertRules;
    use sluice_domain::alert::signal::{Condition, Signals, conditions};
    use sluice_domain::alert::state::step;

    const HOUR_MS: i64 = 3_600_000;
    /// Monday, 30 March 2026, 10:30 UTC.
    const NOW: Time = Time(1_774_866_600_000);

    fn hour(n: u64) -> Duration {
        Duration::from_secs(n * 3_600)
    }

    /// A source that has sent 60 events in each of the hours from 8 to 17 for five weeks, at regular times.
    fn hours() -> SourceHours {
        let facts = HourFacts { events: 60, longest_gap: Some(Duration::from_secs(60)) };
        let first = Step::Hour.start(NOW).0 - 35 * 24 * HOUR_MS;
        let busy = (0..35 * 24)
            .map(|n| first + n * HOUR_MS)
            .filter(|at| (8..17).contains(&at.rem_euclid(24 * HOUR_MS).div_euclid(HOUR_MS)));
        BTreeMap::from([("shop".to_owned(), busy.map(|at| (Time(at), facts)).collect())])
    }

    fn found(sources: &SourceClock, now: Time, steady: Time) -> Vec<Condition> {
        let sources = activities(&hours(), sources, &Holidays::default(), (now, steady));
        conditions(&Signals { sources, ..Signals::default() }, &AlertRules::default())
    }

    fn firing(sources: &SourceClock, now: Time) -> Vec<Alert> {
        step(&[], &found(sources, now, now), &AlertRules::default(), now).changed
    }

    /// The clock of a source whose last event came at `last`.
    fn quiet_since(last: Time) -> SourceClock {
        let mut sources = SourceClock::new(last - hour(1));
        sources.observe("shop", 6, false, last - hour(1));
        sources.observe("shop", 7, false, last);
        sources
    }

    #[test]
    fn silent_source_stays_silent_over_a_restart_until_it_sends() {
        let alerts = firing(&quiet_since(NOW - hour(2)), NOW);
        assert_eq!(alerts.len(), 1, "the source is silent");
        let mut restarted = SourceClock::new(NOW);
        restarted.observe("shop", 7, false, NOW);
        restarted.observe_alerts(&alerts);
        assert_eq!(found(&restarted, NOW, NOW).len(), 1);
        restarted.observe("shop", 8, false, NOW + hour(1));
        restarted.observe_alerts(&alerts);
        assert!(found(&restarted, NOW + hour(1), NOW + hour(1)).is_empty());
    }

    #[test]
    fn end_of_the_busy_hours_is_no_recovery_of_a_silent_source() {
        let mut sources = quiet_since(NOW - hour(2));
        sources.observe_alerts(&firing(&sources, NOW));
        let night = NOW + hour(12);
        assert_eq!(found(&sources, night, night).len(), 1);
        assert!(found(&quiet_since(NOW), night, night).is_empty(), "a source that stops at night is not silent");
    }

    #[test]
    fn clock_that_is_set_forward_makes_no_source_silent() {
        let sources = quiet_since(NOW);
        assert!(found(&sources, NOW + hour(24), NOW).is_empty());
        assert_eq!(found(&sources, NOW + hour(24), NOW + hour(1)).len(), 1);
    }

    #[test]
    fn paused_source_is_quiet_since_the_end_of_its_pause() {
        let mut sources = quiet_since(NOW - hour(2));
        sources.observe("shop", 7, true, NOW);
        assert!(found(&sources, NOW, NOW).is_empty());
        sources.observe("shop", 7, false, NOW + hour(1));
        assert_eq!(found(&sources, NOW + hour(1), NOW + hour(1)).len(), 1);
    }
}
