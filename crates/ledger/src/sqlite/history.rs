//! The history: one row for each measure and interval, with the values of all its series.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, params};
use sluice_domain::history::codec::{self, Points};
use sluice_domain::history::measure::MEASURES;
use sluice_domain::history::recorder::OTHER;
use sluice_domain::history::series::{HistoryQuery, HistoryRow, POINTS_MAX};
use sluice_domain::history::{Labels, Measure, Step, Value};
use sluice_domain::job::Term;
use sluice_domain::time::Time;

use super::batch::Batch;
use super::read_pool::Reader;
use super::row::wrong;
use crate::op::RecordHistory;
use crate::record::CounterTotal;

/// Series that are ever numbered. Labels are names of the configuration; beyond so many, new ones share one series.
const SERIES_MAX: i64 = 16_384;

impl Batch<'_, '_> {
    pub(super) fn write_history(&mut self, record: &RecordHistory) -> rusqlite::Result<bool> {
        let last = self
            .cached(include_str!("sql/history_last.sql"))?
            .query_row([], |row| Ok((Term(row.get(0)?), Time(row.get(1)?))))
            .optional()?;
        if last.is_some_and(|last| (record.term, record.minute) <= last) {
            return Ok(false);
        }
        for (measure, points) in self.new_points(record)? {
            for step in Step::ALL {
                self.merge_interval(step, measure, step.start(record.minute), &points)?;
            }
        }
        if let Some(now) = record.expire_at {
            let mut delete = self.cached(include_str!("sql/delete_history.sql"))?;
            for (step, spec) in Step::ALL.into_iter().flat_map(|step| MEASURES.iter().map(move |spec| (step, spec))) {
                delete.execute(params![step.code(), spec.code, step.expired_before(now).0])?;
            }
        }
        self.cached(include_str!("sql/keep_history_last.sql"))?.execute(params![record.term.0, record.minute.0])?;
        Ok(true)
    }

    /// What was observed, and what was counted since the last record.
    fn new_points(&self, record: &RecordHistory) -> rusqlite::Result<BTreeMap<Measure, Points>> {
        let mut points: BTreeMap<Measure, Points> = BTreeMap::new();
        let mut add = |measure: Measure, labels: &Labels, value: Value| -> rusqlite::Result<()> {
            let series = self.series_number(measure, labels)?;
            let points = points.entry(measure).or_default();
            match points.get_mut(&series) {
                Some(known) => known.add(&value),
                None => drop(points.insert(series, value)),
            }
            Ok(())
        };
        for point in &record.points {
            add(point.measure, &point.labels, point.value.clone())?;
        }
        for counted in self.counter_rows(include_str!("sql/counter_changes.sql"))? {
            add(counted.measure, &counted.labels, Value::Count(counted.total))?;
        }
        self.cached(include_str!("sql/record_counters.sql"))?.execute([])?;
        Ok(points)
    }

    fn merge_interval(&self, step: Step, measure: Measure, at: Time, new: &Points) -> rusqlite::Result<()> {
        let stored: Option<Vec<u8>> = self
            .cached(include_str!("sql/history_row.sql"))?
            .query_row(params![step.code(), measure.code(), at.0], |row| row.get(0))
            .optional()?;
        let mut points = stored
            .map(|bytes| {
                codec::decode(&bytes, measure.kind()).unwrap_or_else(|| {
                    tracing::warn!(measure = measure.name(), %at, "an interval of the history is damaged; it starts again");
                    Points::new()
                })
            })
            .unwrap_or_default();
        for (series, value) in new {
            match points.get_mut(series) {
                Some(known) => known.merge(value),
                None => drop(points.insert(*series, value.clone())),
            }
        }
        let bytes = codec::encode(&points);
        self.cached(include_str!("sql/write_history_row.sql"))?
            .execute(params![step.code(), measure.code(), at.0, bytes])
            .map(drop)
    }

    fn series_number(&self, measure: Measure, labels: &Labels) -> rusqlite::Result<u64> {
        let find = |labels: &Labels| {
            self.cached(include_str!("sql/history_series_number.sql"))?
                .query_row(params![measure.code(), labels.0.as_ref(), labels.1.as_ref()], |row| row.get::<_, i64>(0))
                .optional()
        };
        if let Some(number) = find(labels)? {
            return Ok(number.unsigned_abs());
        }
        let count: i64 = self.cached(include_str!("sql/history_series_count.sql"))?.query_row([], |row| row.get(0))?;
        let labels = if count < SERIES_MAX { labels.clone() } else { Labels::new(OTHER, "") };
        if let Some(number) = find(&labels)? {
            return Ok(number.unsigned_abs());
        }
        self.cached(include_str!("sql/insert_history_series.sql"))?.execute(params![
            measure.code(),
            labels.0.as_ref(),
            labels.1.as_ref()
        ])?;
        Ok(self.connection.last_insert_rowid().unsigned_abs())
    }

    fn counter_rows(&self, sql: &str) -> rusqlite::Result<Vec<CounterTotal>> {
        counter_rows(self.connection, sql)
    }
}

impl Reader<'_> {
    pub(crate) fn history(&self, query: &HistoryQuery) -> rusqlite::Result<Vec<HistoryRow>> {
        let HistoryQuery { measure, step, since, until } = *query;
        let mut statement = self.prepare_cached(include_str!("sql/history_series.sql"))?;
        let series: BTreeMap<u64, Labels> = statement
            .query_map([measure.code()], |row| {
                let labels = Labels::new(row.get::<_, String>(1)?, row.get::<_, String>(2)?);
                Ok((row.get::<_, i64>(0)?.unsigned_abs(), labels))
            })?
            .collect::<rusqlite::Result<_>>()?;
        let mut statement = self.prepare_cached(include_str!("sql/history_rows.sql"))?;
        let row = |row: &rusqlite::Row<'_>| {
            let points = codec::decode(row.get_ref(1)?.as_blob()?, measure.kind()).unwrap_or_default();
            let labelled = |(number, value)| series.get(&number).map(|labels| (labels.clone(), value));
            let mut values: Vec<(Labels, Value)> = points.into_iter().filter_map(labelled).collect();
            values.sort_by(|(one, _), (other, _)| one.cmp(other));
            Ok(HistoryRow { at: Time(row.get(0)?), values })
        };
        statement.query_map(params![step.code(), measure.code(), since.0, until.0, POINTS_MAX], row)?.collect()
    }

    pub(crate) fn counter_totals(&self) -> rusqlite::Result<Vec<CounterTotal>> {
        counter_rows(self, include_str!("sql/counter_totals.sql"))
    }
}

fn counter_rows(connection: &rusqlite::Connection, sql: &str) -> rusqlite::Result<Vec<CounterTotal>> {
    let row = |row: &rusqlite::Row<'_>| {
        let measure = Measure::from_code(row.get(0)?).ok_or_else(|| wrong(0, "unknown measure"))?;
        let labels = Labels::new(row.get::<_, String>(1)?, row.get::<_, String>(2)?);
        Ok(CounterTotal { measure, labels, total: row.get::<_, i64>(3)?.unsigned_abs() })
    };
    connection.prepare_cached(sql)?.query_map([], row)?.collect()
}
