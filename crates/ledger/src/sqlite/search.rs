//! Searches of lists: a page walks rows in the order of their ids and ends when it is full, when nothing is left, or when its time is
//! up. Then it says how far it has looked.

use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use rusqlite::types::Value as Sql;
use rusqlite::{CachedStatement, OptionalExtension, Row, Rows, params_from_iter};
use sluice_domain::time::Time;

use super::read_pool::Reader;
use crate::record::EventSeq;

/// Time that one page of a list searches. A page of the console has 100 ms for everything.
pub(super) const SEARCH_MAX: Duration = Duration::from_millis(40);
/// Rows that are looked at between two looks at the clock, and at least by every page: a search always advances.
pub(super) const STRIDE_ROWS: u32 = 256;
const DAY_MS: i64 = 86_400_000;

/// When the search of a page ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchBudget {
    deadline: Instant,
    rows: u32,
}

impl SearchBudget {
    pub(super) fn of(time: Duration) -> SearchBudget {
        SearchBudget { deadline: Instant::now() + time, rows: 0 }
    }

    /// Counts a row. Whether the time is up.
    fn spend_row(&mut self) -> bool {
        self.rows = self.rows.wrapping_add(1);
        self.rows.is_multiple_of(STRIDE_ROWS) && Instant::now() >= self.deadline
    }
}

/// Order of the ids of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    NewestFirst,
    OldestFirst,
}

impl Order {
    pub(super) fn keyword(self) -> &'static str {
        match self {
            Order::NewestFirst => "DESC",
            Order::OldestFirst => "ASC",
        }
    }

    fn is_before(self, id: i64, other: i64) -> bool {
        match self {
            Order::NewestFirst => id > other,
            Order::OldestFirst => id < other,
        }
    }
}

/// How a walk has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkEnd {
    /// There are no more rows.
    Whole,
    /// The visitor has seen enough.
    Enough,
    /// The time was up at this row, which was looked at.
    OutOfTime(CandidateRow),
}

/// The first columns of a statement that is walked: id, sequence number of the event, whether the row matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CandidateRow {
    pub id: i64,
    pub seq: EventSeq,
    pub matches: bool,
}

impl CandidateRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<CandidateRow> {
        Ok(CandidateRow { id: row.get(0)?, seq: row.get(1)?, matches: row.get(2)? })
    }
}

impl Reader<'_> {
    /// Walks the rows of several statements, each in the order of ids, as one. Calls `visit` with the rows that match.
    pub(super) fn walk(
        &self,
        statements: Vec<(String, Vec<Sql>)>,
        order: Order,
        budget: &mut SearchBudget,
        mut visit: impl FnMut(CandidateRow) -> rusqlite::Result<ControlFlow<()>>,
    ) -> rusqlite::Result<WalkEnd> {
        let (texts, values): (Vec<String>, Vec<Vec<Sql>>) = statements.into_iter().unzip();
        let prepared = texts.iter().map(|sql| self.connection.prepare_cached(sql));
        let mut prepared: Vec<CachedStatement<'_>> = prepared.collect::<rusqlite::Result<_>>()?;
        let mut cursors = Vec::with_capacity(prepared.len());
        for (statement, values) in prepared.iter_mut().zip(values) {
            let mut rows = statement.query(params_from_iter(values))?;
            let first = next_of(&mut rows)?;
            cursors.push((rows, first));
        }
        loop {
            let mut first: Option<(usize, CandidateRow)> = None;
            for (place, (_, row)) in cursors.iter().enumerate() {
                if let Some(row) = row
                    && first.is_none_or(|(_, first)| order.is_before(row.id, first.id))
                {
                    first = Some((place, *row));
                }
            }
            let Some((place, row)) = first else { return Ok(WalkEnd::Whole) };
            if row.matches && visit(row)?.is_break() {
                return Ok(WalkEnd::Enough);
            }
            if budget.spend_row() {
                return Ok(WalkEnd::OutOfTime(row));
            }
            let (rows, next) = &mut cursors[place];
            *next = next_of(rows)?;
        }
    }

    /// Sequence number of the first event that was stored at or after a time; one beyond the last event if there is none. The
    /// ledger's clock never goes back, so times ascend with sequence numbers.
    pub(super) fn first_stored_at(&self, time: Time) -> rusqlite::Result<EventSeq> {
        self.bisect_events(include_str!("sql/event_stored_from.sql"), time).map(|(first, _)| first)
    }

    /// First event whose time, as a statement reads it from a sequence number on, is not before a time; and the last event.
    pub(super) fn bisect_events(&self, sql: &str, time: Time) -> rusqlite::Result<(EventSeq, EventSeq)> {
        let ends = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?));
        let (Some(first), Some(last)) = self.query_row(include_str!("sql/event_ends.sql"), [], ends)? else {
            return Ok((0, -1));
        };
        let mut statement = self.prepare_cached(sql)?;
        let mut is_earlier = |seq: EventSeq| {
            let at = statement.query_row([seq], |row| row.get::<_, i64>(0)).optional()?;
            Ok::<_, rusqlite::Error>(at.is_some_and(|at| at < time.0))
        };
        let (mut low, mut high) = (first, last + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            match is_earlier(middle)? {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok((low, last))
    }

    /// The times at which events of a source were stored that still exist, newest first: runs of days. The counts by day know them,
    /// so a search for a rare source passes over the days without it.
    pub(super) fn stored_times(&self, source: &str) -> rusqlite::Result<Vec<Range<Time>>> {
        let mut statement = self.prepare_cached(include_str!("sql/days_of_source.sql"))?;
        let starts = statement.query_map([source], |row| row.get::<_, i64>(0))?;
        let mut runs: Vec<Range<Time>> = Vec::new();
        for start in starts {
            let start = start?;
            let end = start + DAY_MS;
            match runs.last_mut() {
                Some(run) if run.start.0 == end => run.start = Time(start),
                _ => runs.push(Time(start)..Time(end)),
            }
        }
        Ok(runs)
    }

    /// Sequence numbers of the events that were stored within a time.
    pub(super) fn stored_within(&self, times: &Range<Time>) -> rusqlite::Result<Range<EventSeq>> {
        Ok(self.first_stored_at(times.start)?..self.first_stored_at(times.end)?)
    }

    /// Id of the first job of the first event from a sequence number on; `None` beyond the last event.
    pub(super) fn first_job_from(&self, seq: EventSeq) -> rusqlite::Result<Option<i64>> {
        let mut statement = self.prepare_cached(include_str!("sql/first_job_from.sql"))?;
        statement.query_row([seq], |row| row.get(0)).optional()
    }
}

fn next_of(rows: &mut Rows<'_>) -> rusqlite::Result<Option<CandidateRow>> {
    rows.next()?.map(CandidateRow::read).transpose()
}
