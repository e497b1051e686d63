//! Lists of jobs.

use std::ops::{ControlFlow, Range};

use rusqlite::OptionalExtension;
use rusqlite::types::Value as Sql;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::time::Time;

use super::read_pool::Reader;
use super::search::{CandidateRow, Order, SearchBudget, WalkEnd};
use crate::filter::{JobFilter, ListPage, Page};
use crate::record::{EventRecord, JobRecord, JobTotal};

/// Restricts a list to one range of a partial index, in the order of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndexRange {
    /// Queued and running jobs of a destination and a worker.
    Ready { destination: String, worker: String },
    /// Retrying and waiting jobs of a worker.
    Waiting { worker: String },
    /// Dead and unknown jobs of a dead-letter queue.
    Parked { dead_letter_queue: Option<String> },
}

/// Where the jobs of a filter can be.
#[derive(Clone, Debug)]
pub(super) struct JobPlaces {
    filter: JobFilter,
    /// `None`: all jobs.
    pub ranges: Vec<Option<IndexRange>>,
    /// No more jobs than these match.
    pub count_max: u64,
}

impl Reader<'_> {
    pub(crate) fn list_jobs(
        &self,
        filter: &JobFilter,
        page: &Page,
    ) -> rusqlite::Result<ListPage<(JobRecord, EventRecord)>> {
        let found = self.search_jobs(filter, *page)?;
        let mut job = self.prepare_cached(include_str!("sql/job.sql"))?;
        let mut event = self.prepare_cached(include_str!("sql/event.sql"))?;
        found.try_map(|row| {
            let job = job.query_row([row.id], |row| self.job_row(row))?;
            let event = event.query_row([row.seq], |row| self.event_row(row))?;
            Ok((job, event))
        })
    }

    /// Newest first.
    fn search_jobs(&self, filter: &JobFilter, page: Page) -> rusqlite::Result<ListPage<CandidateRow>> {
        let places = self.job_places(filter)?;
        let (limit, before) = (page.limit as usize, page.after.unwrap_or(i64::MAX));
        let mut found = Vec::new();
        if places.count_max == 0 {
            return Ok(ListPage::whole(found));
        }
        // A first page that has found as many jobs as there are needs no further search.
        let enough = match page.after {
            None => limit.min(usize::try_from(places.count_max).unwrap_or(limit)),
            Some(_) => limit,
        };
        let mut budget = SearchBudget::of(self.search_max);
        for times in self.creation_times(filter, Order::NewestFirst)? {
            let ids = self.ids_of(&times)?;
            let ids = ids.start..ids.end.min(before);
            let walked = self.walk_jobs(&places, (ids, Order::NewestFirst), &mut budget, |row| {
                found.push(row);
                Ok(if found.len() >= enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            match walked {
                WalkEnd::Whole => {}
                WalkEnd::Enough if found.len() < limit => return Ok(ListPage::whole(found)),
                WalkEnd::Enough => return Ok(ListPage::full(found, |row| row.id)),
                WalkEnd::OutOfTime(last) => {
                    let at = self.job_time(last.id)?;
                    return Ok(ListPage { rows: found, next: Some(last.id), scanned_to: at });
                }
            }
        }
        Ok(ListPage::whole(found))
    }

    /// Oldest first, so that a replay keeps the order of the jobs.
    pub(crate) fn matching_jobs_part(
        &self,
        filter: &JobFilter,
        after: &JobId,
        limit: &u32,
    ) -> rusqlite::Result<ListPage<JobId>> {
        let places = self.job_places(filter)?;
        let (mut budget, mut found) = (SearchBudget::of(self.search_max), Vec::new());
        if places.count_max == 0 {
            return Ok(ListPage::whole(found));
        }
        for times in self.creation_times(filter, Order::OldestFirst)? {
            let ids = self.ids_of(&times)?;
            let ids = ids.start.max(after.0.saturating_add(1))..ids.end;
            let walked = self.walk_jobs(&places, (ids, Order::OldestFirst), &mut budget, |row| {
                found.push(JobId(row.id));
                Ok(if found.len() >= *limit as usize { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            match walked {
                WalkEnd::Whole => {}
                WalkEnd::Enough => return Ok(ListPage::full(found, |id| id.0)),
                WalkEnd::OutOfTime(last) => {
                    let at = self.job_time(last.id)?;
                    return Ok(ListPage { rows: found, next: Some(last.id), scanned_to: at });
                }
            }
        }
        Ok(ListPage::whole(found))
    }

    /// Walks the jobs of the places within a range of ids.
    pub(super) fn walk_jobs(
        &self,
        places: &JobPlaces,
        (ids, order): (Range<i64>, Order),
        budget: &mut SearchBudget,
        visit: impl FnMut(CandidateRow) -> rusqlite::Result<ControlFlow<()>>,
    ) -> rusqlite::Result<WalkEnd> {
        if ids.is_empty() {
            return Ok(WalkEnd::Whole);
        }
        let statements = places.ranges.iter().map(|range| walk_jobs_sql(&places.filter, &ids, order, range.as_ref()));
        self.walk(statements.collect(), order, budget, visit)
    }

    fn job_time(&self, id: i64) -> rusqlite::Result<Option<Time>> {
        let mut statement = self.prepare_cached(include_str!("sql/job_created_at.sql"))?;
        statement.query_row([id], |row| row.get(0).map(Time)).optional()
    }

    /// Times within which the jobs of a filter were created, in the order of a walk. A job of a source was created with an event of it;
    /// a job that was changed before a time was created before it.
    fn creation_times(&self, filter: &JobFilter, order: Order) -> rusqlite::Result<Vec<Range<Time>>> {
        let end = filter.until.unwrap_or(Time(i64::MAX));
        let mut times = match &filter.source {
            Some(source) => self.stored_times(source)?,
            None => vec![Time(i64::MIN)..Time(i64::MAX)],
        };
        times.retain_mut(|times| {
            times.end = times.end.min(end);
            times.start < times.end
        });
        if order == Order::OldestFirst {
            times.reverse();
        }
        Ok(times)
    }

    /// Ids of the jobs that were created within a time.
    fn ids_of(&self, times: &Range<Time>) -> rusqlite::Result<Range<i64>> {
        let first_at = |time: Time| match time.0 {
            unbounded @ (i64::MIN | i64::MAX) => Ok(unbounded),
            _ => Ok::<_, rusqlite::Error>(self.first_job_from(self.first_stored_at(time)?)?.unwrap_or(i64::MAX)),
        };
        Ok(first_at(times.start)?..first_at(times.end)?)
    }

    /// The ranges that hold all jobs of a filter, if those that can match are all in partial indexes; otherwise all jobs. The totals
    /// say which kinds of jobs there are. They are few.
    pub(super) fn job_places(&self, filter: &JobFilter) -> rusqlite::Result<JobPlaces> {
        let mut totals = self.job_totals()?;
        totals.retain(|total| can_match(total, filter));
        let count_max = totals.iter().map(|total| total.count).sum();
        let is_indexed = |state: JobState| state.is_live() || matches!(state, JobState::Dead | JobState::Unknown);
        let is_restricted = *filter != JobFilter { since: filter.since, until: filter.until, ..JobFilter::default() };
        let mut ranges = Vec::new();
        if !is_restricted || totals.iter().any(|total| !is_indexed(total.state)) {
            ranges.push(None);
            return Ok(JobPlaces { filter: filter.clone(), ranges, count_max });
        }
        for total in totals {
            let worker = total.worker.to_string();
            let range = Some(match total.state {
                JobState::Queued | JobState::Running => {
                    IndexRange::Ready { destination: total.destination.to_string(), worker }
                }
                state if state.is_live() => IndexRange::Waiting { worker },
                _ => IndexRange::Parked { dead_letter_queue: total.dead_letter_queue.map(|queue| queue.to_string()) },
            });
            if !ranges.contains(&range) {
                ranges.push(range);
            }
        }
        Ok(JobPlaces { filter: filter.clone(), ranges, count_max })
    }
}

/// Whether jobs of a kind can match: a job that ends well has no failure.
fn can_match(total: &JobTotal, filter: &JobFilter) -> bool {
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
    let needs_failure = filter.class.is_some() || filter.code.is_some();
    let ended_well = matches!(total.state, JobState::Succeeded | JobState::Noop);
    (filter.states.is_empty() || filter.states.contains(&total.state))
        && is(&filter.worker, &total.worker)
        && is(&filter.destination, &total.destination)
        && is(&filter.dead_letter_queue, total.dead_letter_queue.as_deref().unwrap_or_default())
        && !(needs_failure && ended_well)
}

/// Walks the jobs of one range within a range of ids: id, sequence number, whether the job matches. The condition is a column, so
/// that the walk can say how far it has come; what costs most is evaluated last.
pub(super) fn walk_jobs_sql(
    filter: &JobFilter,
    ids: &Range<i64>,
    order: Order,
    range: Option<&IndexRange>,
) -> (String, Vec<Sql>) {
    let mut values: Vec<Sql> = Vec::new();
    let condition = condition(filter, &mut values);
    let (table, id) = match range {
        // Deferred jobs have a table of their own, in the order of its index.
        Some(IndexRange::Waiting { .. }) => ("deferred q CROSS JOIN job j ON j.id = q.id", "q.id"),
        _ => ("job j", "j.id"),
    };
    let mut sql = format!("SELECT j.id, j.seq, iif({condition}, 1, 0) FROM {table} WHERE {id} >= ? AND {id} < ?");
    values.extend([ids.start.into(), ids.end.into()]);
    // The states are the words of a partial index: without them it is not used.
    match range {
        Some(IndexRange::Ready { destination, worker }) => {
            sql.push_str(" AND j.destination = ? AND j.worker = ? AND j.state IN (0, 1)");
            values.extend([destination.clone().into(), worker.clone().into()]);
        }
        Some(IndexRange::Waiting { worker }) => {
            sql.push_str(" AND q.worker = ?");
            values.push(worker.clone().into());
        }
        Some(IndexRange::Parked { dead_letter_queue }) => {
            sql.push_str(" AND j.dead_letter_queue IS ? AND j.state IN (10, 11)");
            values.push(dead_letter_queue.clone().into());
        }
        None => {}
    }
    sql.push_str(&format!(" ORDER BY {id} {}", order.keyword()));
    (sql, values)
}

fn condition(filter: &JobFilter, values: &mut Vec<Sql>) -> String {
    let mut sql = String::from("1");
    if !filter.states.is_empty() {
        let codes: Vec<String> = filter.states.iter().map(|state| state.code().to_string()).collect();
        sql.push_str(&format!(" AND j.state IN ({})", codes.join(", ")));
    }
    let text = |value: &Option<String>| value.clone().map(Sql::from);
    let parts = [
        (" AND j.updated_at >= ?", filter.since.map(|since| since.0.into())),
        (" AND j.updated_at < ?", filter.until.map(|until| until.0.into())),
        (" AND j.worker = ?", text(&filter.worker)),
        (" AND j.queue = ?", text(&filter.queue)),
        (" AND j.dead_letter_queue = ?", text(&filter.dead_letter_queue)),
        (" AND j.destination = ?", text(&filter.destination)),
        (" AND j.failure ->> '$.class' = ?", text(&filter.class)),
        (" AND j.failure ->> '$.code' = ?", text(&filter.code)),
        (" AND (SELECT e.source FROM event e WHERE e.seq = j.seq) = ?", text(&filter.source)),
    ];
    for (part, value) in parts {
        if let Some(value) = value {
            sql.push_str(part);
            values.push(value);
        }
    }
    sql
}
