//! When each source sent last, and what it usually sends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluice_domain::alert::silence::{Holidays, HourFacts, SourceActivity};
use sluice_domain::history::series::HistoryRow;
use sluice_domain::history::{Measure, Step, Value};
use sluice_domain::time::Time;

use super::Watch;
use crate::revisions::LoadedRevision;

/// Hours of the weeks before, and a week more for holidays.
const REACH: Duration = Duration::from_secs(36 * 86_400);

/// Accepted events of each source and when their number grew last. A source that sent nothing since the node started is quiet since
/// then: a node that was down hears nothing.
#[derive(Debug)]
pub(super) struct SourceClock {
    started: Time,
    last: BTreeMap<String, (u64, Time)>,
}

impl SourceClock {
    pub fn new(started: Time) -> SourceClock {
        SourceClock { started, last: BTreeMap::new() }
    }

    fn observe(&mut self, source: &str, total: u64, now: Time) {
        match self.last.get_mut(source) {
            Some((known, _)) if *known == total => {}
            Some(known) => *known = (total, now),
            None => drop(self.last.insert(source.to_owned(), (total, self.started))),
        }
    }

    fn quiet(&self, source: &str, now: Time) -> Duration {
        now.since(self.last.get(source).map_or(self.started, |(_, at)| *at))
    }
}

/// Facts of hours by source.
pub(super) type SourceHours = BTreeMap<String, BTreeMap<Time, HourFacts>>;

impl Watch {
    /// Records how long each configured source has been quiet in this hour.
    pub(super) async fn watch_sources(
        &self,
        live: &LoadedRevision,
        sources: &mut SourceClock,
    ) -> Result<(), sluice_ledger::Error> {
        let now = self.clock.ledger_time();
        let names: BTreeSet<&str> = live.config.flows.values().map(|flow| flow.source.as_str()).collect();
        sources.last.retain(|name, _| names.contains(name.as_str()));
        let totals = self.ledger.counter_totals().await?;
        for total in totals.iter().filter(|total| total.measure == Measure::Accepted) {
            if names.contains(&*total.labels.0) {
                sources.observe(&total.labels.0, total.total, now);
            }
        }
        let in_hour = now.since(Step::Hour.start(now));
        for name in names {
            self.metrics.history.quiet(name, sources.quiet(name, now).min(in_hour));
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

/// What every source of the history does now.
pub(super) fn activities(
    hours: &SourceHours,
    sources: &SourceClock,
    holidays: &Holidays,
    now: Time,
) -> Vec<SourceActivity> {
    let hour = Step::Hour.start(now);
    let same = |at: Time| holidays.same_time(at).into_iter().map(|at| Step::Hour.start(at)).collect::<Vec<_>>();
    let (these, before) = (same(hour), same(hour - Step::Hour.length()));
    let activity = |(source, known): (&String, &BTreeMap<Time, HourFacts>)| {
        let first = known.iter().find(|(_, facts)| facts.events > 0).map_or(Time::NEVER, |(at, _)| *at);
        let facts = |at: &Time| (first <= *at).then(|| known.get(at).copied().unwrap_or_default());
        SourceActivity {
            source: source.clone(),
            quiet: sources.quiet(source, now),
            hour_elapsed: now.since(hour),
            weeks: these.iter().map(facts).collect(),
            weeks_before: before.iter().map(facts).collect(),
        }
    };
    hours.iter().filter(|(source, _)| sources.last.contains_key(*source)).map(activity).collect()
}
