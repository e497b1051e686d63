//! The balance: what came in by day and source, and what became of it. Counted in parts, so that no read is long.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use sluice_domain::time::Time;
use sluice_ledger::{BalanceOutcome, EventSeq, SourceDayCounts};

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{BalanceRow, BalanceView};

/// Events that one read looks at, and one answer of the API.
const PART_EVENTS: i64 = 10_000;
const ANSWER_EVENTS: i64 = 50_000;
/// Up to so many events are accounted for without being asked: more take longer than a page may.
const EVENTS_AT_ONCE_MAX: u64 = 10_000;
const DAY_MS: i64 = 86_400_000;

/// Requests by day and source.
#[derive(Clone, Debug)]
pub struct Account {
    /// Kept with every commit, so reading them costs nothing.
    pub counts: Vec<SourceDayCounts>,
    /// What became of every event; `None` if there are so many that it has to be asked for.
    pub outcomes: Option<(Vec<BalanceRow>, Duration)>,
    /// Events in the ledger.
    pub events: u64,
}

/// Whether to read every event even if there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Little,
    Whole,
}

/// Rows by day and source.
#[derive(Debug, Default)]
struct Rows(BTreeMap<(String, String), BalanceRow>);

impl Rows {
    fn of(counts: &[SourceDayCounts]) -> Rows {
        let mut rows = Rows::default();
        for count in counts {
            let row = rows.row(&count.day, &count.source);
            row.accepted += count.accepted;
            row.duplicates += count.duplicates;
            row.pruned += count.pruned;
        }
        rows
    }

    fn row(&mut self, day: &str, source: &str) -> &mut BalanceRow {
        let (day, source) = (day.to_owned(), source.to_owned());
        let empty = || BalanceRow { day: day.clone(), source: source.clone(), ..BalanceRow::default() };
        self.0.entry((day.clone(), source.clone())).or_insert_with(empty)
    }

    /// With what is missing, if every event was counted.
    fn into_rows(self, is_whole: bool) -> Vec<BalanceRow> {
        let whole = |row: BalanceRow| BalanceRow { remainder: is_whole.then(|| remainder(&row)), ..row };
        self.0.into_values().map(whole).collect()
    }
}

impl Operator {
    /// What became of the events since the day of a time. `after` continues an answer that was not whole.
    pub async fn balance(&self, since: Time, after: Option<&str>) -> Result<BalanceView, OperateError> {
        let day = start_of_day(since);
        let (mut rows, events) = match after {
            None => {
                let (counts, events) = self.ledger.balance_start(day).await?;
                (Rows::of(&counts), events)
            }
            Some(cursor) => (Rows::default(), parse_cursor(cursor)?),
        };
        let end = events.end.min(events.start.saturating_add(ANSWER_EVENTS));
        self.count(&mut rows, events.start..end).await?;
        let next = (end < events.end).then(|| format!("{end}.{}", events.end));
        let is_whole = after.is_none() && next.is_none();
        Ok(BalanceView { since: day_name(day), rows: rows.into_rows(is_whole), next })
    }

    /// The balance of the last days for a page: the counts of what came in, and what became of it if that is asked for or quickly read.
    pub async fn account(&self, days: u32, effort: Effort) -> Result<Account, OperateError> {
        let since = self.clock.ledger_time() - Duration::from_secs(u64::from(days.saturating_sub(1)) * 86_400);
        let stored = self.ledger.event_count().await?;
        let (counts, events) = self.ledger.balance_start(start_of_day(since)).await?;
        if effort == Effort::Little && events.end.saturating_sub(events.start).unsigned_abs() > EVENTS_AT_ONCE_MAX {
            return Ok(Account { counts, outcomes: None, events: stored });
        }
        let _one_at_a_time = self.accounting.lock().await;
        let (mut rows, started) = (Rows::of(&counts), Instant::now());
        self.count(&mut rows, events).await?;
        Ok(Account { counts, outcomes: Some((rows.into_rows(true), started.elapsed())), events: stored })
    }

    async fn count(&self, rows: &mut Rows, events: Range<EventSeq>) -> Result<(), OperateError> {
        let mut place = events.start;
        while place < events.end {
            let limit = (events.end - place).min(PART_EVENTS);
            let part = self.ledger.balance_part(place - 1, u32::try_from(limit).unwrap_or(u32::MAX)).await?;
            for ((day, source, outcome), count) in part.counts {
                *count_of(rows.row(&day, &source), outcome) += count;
            }
            place += limit;
        }
        Ok(())
    }
}

fn start_of_day(time: Time) -> Time {
    Time(time.0.div_euclid(DAY_MS) * DAY_MS)
}

fn day_name(day: Time) -> String {
    day.to_jiff().strftime("%Y-%m-%d").to_string()
}

/// Reads `next` of an answer: the first event that was not counted, and the end. Events that arrive meanwhile are not counted, as their
/// requests were not.
fn parse_cursor(text: &str) -> Result<Range<EventSeq>, OperateError> {
    let parts = text.split_once('.').and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
    let found = parts.filter(|events: &Range<EventSeq>| events.start > 0 && events.start <= events.end);
    found.ok_or_else(|| OperateError::Invalid(format!("`{text}` is not a cursor; use `next` of the part before")))
}

fn count_of(row: &mut BalanceRow, outcome: BalanceOutcome) -> &mut u64 {
    match outcome {
        BalanceOutcome::Done => &mut row.done,
        BalanceOutcome::Noop => &mut row.noop,
        BalanceOutcome::Dead => &mut row.dead,
        BalanceOutcome::Waiting => &mut row.waiting,
        BalanceOutcome::Unknown => &mut row.unknown,
        BalanceOutcome::Dropped => &mut row.dropped,
    }
}

fn remainder(row: &BalanceRow) -> i64 {
    let there = row.done + row.noop + row.dead + row.waiting + row.unknown + row.dropped;
    row.accepted as i64 - there as i64 - row.pruned as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_of_a_balance_is_read_back_and_nonsense_is_refused() {
        assert_eq!(parse_cursor("7.90").unwrap(), 7..90);
        for text in ["", "7", "a.b", "9.7", "-1.5", "0.5"] {
            assert!(parse_cursor(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_neither_there_nor_pruned_is_missing() {
        let mut rows = Rows::of(&[SourceDayCounts {
            day: "2026-11-18".into(),
            source: "website".into(),
            accepted: 10,
            pruned: 2,
            ..SourceDayCounts::default()
        }]);
        *count_of(rows.row("2026-11-18", "website"), BalanceOutcome::Done) += 7;
        assert_eq!(rows.into_rows(true)[0].remainder, Some(1));
    }
}
