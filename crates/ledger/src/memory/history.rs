//! The history, and the counters that it is exact by.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_domain::history::measure::MEASURES;
use sluice_domain::history::series::{HistoryQuery, HistoryRow, POINTS_MAX};
use sluice_domain::history::{Labels, Measure, Step, Value};
use sluice_domain::job::Term;
use sluice_domain::time::Time;

use super::Store;
use crate::op::RecordHistory;
use crate::record::CounterTotal;

#[derive(Clone, Debug, Default)]
pub(super) struct HistoryRows {
    intervals: BTreeMap<(Step, Measure, Time), BTreeMap<Labels, Value>>,
    /// By measure; sorted by labels, so that a counter is found without making them.
    counters: BTreeMap<Measure, Vec<(Labels, Counter)>>,
    last: Option<(Term, Time)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    total: u64,
    /// Part of the total that is in the history.
    recorded: u64,
}

impl HistoryRows {
    pub(super) fn add(&mut self, measure: Measure, first: &Arc<str>, second: &str) {
        let counters = self.counters.entry(measure).or_default();
        let at = match counters.binary_search_by(|(labels, _)| (&*labels.0, &*labels.1).cmp(&(&**first, second))) {
            Ok(at) => at,
            Err(at) => {
                counters.insert(at, (Labels(first.clone(), Arc::from(second)), Counter::default()));
                at
            }
        };
        counters[at].1.total += 1;
    }

    fn merge(&mut self, minute: Time, measure: Measure, labels: &Labels, value: &Value) {
        for step in Step::ALL {
            let interval = self.intervals.entry((step, measure, step.start(minute))).or_default();
            match interval.get_mut(labels) {
                Some(known) => known.merge(value),
                None => drop(interval.insert(labels.clone(), value.clone())),
            }
        }
    }
}

impl Store {
    /// Writes a minute of the history. `false` if it is written already.
    pub fn record_history(&mut self, record: &RecordHistory) -> bool {
        let history = &mut self.history;
        if history.last.is_some_and(|last| (record.term, record.minute) <= last) {
            return false;
        }
        for point in &record.points {
            history.merge(record.minute, point.measure, &point.labels, &point.value);
        }
        let mut counted = Vec::new();
        let counters = history
            .counters
            .iter_mut()
            .flat_map(|(measure, counters)| counters.iter_mut().map(move |of| (measure, of)));
        for (measure, (labels, counter)) in counters {
            if counter.total > counter.recorded {
                counted.push((*measure, labels.clone(), Value::Count(counter.total - counter.recorded)));
                counter.recorded = counter.total;
            }
        }
        for (measure, labels, value) in counted {
            history.merge(record.minute, measure, &labels, &value);
        }
        if let Some(now) = record.expire_at {
            history.intervals.retain(|(step, _, at), _| *at >= step.expired_before(now));
        }
        history.last = Some((record.term, record.minute));
        true
    }

    /// Intervals of a measure, oldest first.
    pub fn history(&self, query: &HistoryQuery) -> Vec<HistoryRow> {
        let HistoryQuery { measure, step, since, until } = *query;
        if since >= until {
            return vec![];
        }
        let range = self.history.intervals.range((step, measure, since)..(step, measure, until));
        let row = |((_, _, at), values): (&(Step, Measure, Time), &BTreeMap<Labels, Value>)| HistoryRow {
            at: *at,
            values: values.iter().map(|(labels, value)| (labels.clone(), value.clone())).collect(),
        };
        range.map(row).take(POINTS_MAX as usize).collect()
    }

    /// Counters since the store was created, in the order of their measures and labels.
    pub fn counter_totals(&self) -> Vec<CounterTotal> {
        let mut totals: Vec<CounterTotal> = self
            .history
            .counters
            .iter()
            .flat_map(|(measure, counters)| counters.iter().map(move |of| (measure, of)))
            .map(|(measure, (labels, counter))| CounterTotal {
                measure: *measure,
                labels: labels.clone(),
                total: counter.total,
            })
            .collect();
        let place = |measure: Measure| MEASURES.iter().position(|spec| spec.measure == measure);
        totals.sort_by(|one, other| (place(one.measure), &one.labels).cmp(&(place(other.measure), &other.labels)));
        totals
    }
}
