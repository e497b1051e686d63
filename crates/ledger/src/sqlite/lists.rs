//! Lists of events and jobs.

use rusqlite::params_from_iter;
use rusqlite::types::Value as Sql;
use sluice_domain::job::{JobId, JobState};

use super::read_pool::Reader;
use crate::filter::{JobFilter, Page};
use crate::record::{EventRecord, EventSeq, JobRecord};

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

impl Reader<'_> {
    pub fn list_jobs(&self, filter: &JobFilter, page: &Page) -> rusqlite::Result<Vec<(JobRecord, EventRecord)>> {
        let mut jobs: Vec<JobRecord> = Vec::new();
        for range in self.index_ranges(filter)? {
            let (sql, values) = list_jobs_sql(filter, *page, range.as_ref());
            let mut statement = self.prepare_cached(&sql)?;
            let found = statement.query_map(params_from_iter(values), |row| self.job_row(row))?;
            jobs.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
        jobs.truncate(page.limit as usize);
        let mut event = self.prepare_cached(include_str!("sql/event.sql"))?;
        let with_event = |job: JobRecord| {
            let event = event.query_row([job.seq], |row| self.event_row(row))?;
            Ok((job, event))
        };
        jobs.into_iter().map(with_event).collect()
    }

    /// Jobs that match, newest first, each with the sequence number of its event.
    pub fn jobs_in_index(&self, filter: &JobFilter, page: Page) -> rusqlite::Result<Vec<(JobId, EventSeq)>> {
        let mut jobs: Vec<(JobId, EventSeq)> = Vec::new();
        for range in self.index_ranges(filter)? {
            let (sql, values) = list_jobs_sql(filter, page, range.as_ref());
            let mut statement = self.prepare_cached(&sql)?;
            let found = statement.query_map(params_from_iter(values), |row| Ok((JobId(row.get(0)?), row.get(1)?)))?;
            jobs.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        jobs.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        jobs.truncate(page.limit as usize);
        Ok(jobs)
    }

    /// Oldest first, so that a replay keeps the order of the jobs.
    pub fn matching_jobs(&self, filter: &JobFilter, after: &JobId, limit: &u32) -> rusqlite::Result<Vec<JobId>> {
        let mut ids: Vec<JobId> = Vec::new();
        for range in self.index_ranges(filter)? {
            let (sql, values) = matching_jobs_sql(filter, *after, *limit, range.as_ref());
            let mut statement = self.prepare_cached(&sql)?;
            let found = statement.query_map(params_from_iter(values), |row| row.get(0).map(JobId))?;
            ids.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        ids.sort_unstable();
        ids.truncate(*limit as usize);
        Ok(ids)
    }

    /// The ranges that hold all jobs in the states of a filter, if each of these states is in a partial index. Otherwise the one
    /// range without a restriction. Few ranges exist: the totals name them.
    fn index_ranges(&self, filter: &JobFilter) -> rusqlite::Result<Vec<Option<IndexRange>>> {
        let is_indexed = |state: &JobState| state.is_live() || matches!(state, JobState::Dead | JobState::Unknown);
        if filter.states.is_empty() || !filter.states.iter().all(is_indexed) {
            return Ok(vec![None]);
        }
        let mut ranges = Vec::new();
        for total in self.job_totals()?.into_iter().filter(|total| filter.states.contains(&total.state)) {
            if filter.worker.as_deref().is_some_and(|worker| *total.worker != *worker) {
                continue;
            }
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
        Ok(ranges)
    }
}

/// The statement of a file for a range: deferred jobs have a table of their own, in the order of its index.
fn statement(file: &str, range: Option<&IndexRange>) -> (String, &'static str) {
    match range {
        Some(IndexRange::Waiting { .. }) => {
            let joined = file.replace("FROM job j", "FROM deferred q CROSS JOIN job j ON j.id = q.id");
            (joined, "q.id")
        }
        _ => (file.to_owned(), "j.id"),
    }
}

pub(super) fn list_jobs_sql(filter: &JobFilter, page: Page, range: Option<&IndexRange>) -> (String, Vec<Sql>) {
    let (mut sql, id) = statement(include_str!("sql/list_jobs.sql"), range);
    let mut values: Vec<Sql> = Vec::new();
    filter_clauses(filter, range, &mut sql, &mut values);
    if let Some(after) = page.after {
        sql.push_str(&format!(" AND {id} < ?"));
        values.push(after.into());
    }
    sql.push_str(&format!(" ORDER BY {id} DESC LIMIT ?"));
    values.push(i64::from(page.limit).into());
    (sql, values)
}

pub(super) fn matching_jobs_sql(
    filter: &JobFilter,
    after: JobId,
    limit: u32,
    range: Option<&IndexRange>,
) -> (String, Vec<Sql>) {
    let (mut sql, id) = statement(include_str!("sql/matching_jobs.sql"), range);
    let mut values: Vec<Sql> = Vec::new();
    filter_clauses(filter, range, &mut sql, &mut values);
    sql.push_str(&format!(" AND {id} > ? ORDER BY {id} LIMIT ?"));
    values.extend([after.0.into(), i64::from(limit).into()]);
    (sql, values)
}

fn filter_clauses(filter: &JobFilter, range: Option<&IndexRange>, sql: &mut String, values: &mut Vec<Sql>) {
    let mut clause = |text: &str, value: Sql| {
        sql.push_str(text);
        values.push(value);
    };
    match range {
        Some(IndexRange::Ready { destination, worker }) => {
            clause(" AND j.destination = ?", destination.clone().into());
            clause(" AND j.worker = ?", worker.clone().into());
        }
        Some(IndexRange::Waiting { worker }) => clause(" AND q.worker = ?", worker.clone().into()),
        Some(IndexRange::Parked { dead_letter_queue }) => {
            clause(" AND j.dead_letter_queue IS ?", dead_letter_queue.clone().into());
            filter.worker.iter().for_each(|worker| clause(" AND j.worker = ?", worker.clone().into()));
        }
        None => filter.worker.iter().for_each(|worker| clause(" AND j.worker = ?", worker.clone().into())),
    }
    let texts = [
        (" AND j.queue = ?", &filter.queue),
        (" AND j.dead_letter_queue = ?", &filter.dead_letter_queue),
        (" AND (SELECT e.source FROM event e WHERE e.seq = j.seq) = ?", &filter.source),
        (" AND j.failure ->> '$.class' = ?", &filter.class),
        (" AND j.failure ->> '$.code' = ?", &filter.code),
    ];
    for (text, value) in texts {
        if let Some(value) = value {
            clause(text, value.clone().into());
        }
    }
    if let Some(since) = filter.since {
        clause(" AND j.updated_at >= ?", since.0.into());
    }
    if let Some(until) = filter.until {
        clause(" AND j.updated_at < ?", until.0.into());
    }
    if filter.states.is_empty() {
        return;
    }
    let codes: Vec<String> = filter.states.iter().map(|state| state.code().to_string()).collect();
    sql.push_str(&format!(" AND j.state IN ({})", codes.join(", ")));
    // The words of a partial index: without them it is not used.
    match range {
        Some(IndexRange::Ready { .. }) => sql.push_str(" AND j.state IN (0, 1)"),
        Some(IndexRange::Parked { .. }) => sql.push_str(" AND j.state IN (10, 11)"),
        Some(IndexRange::Waiting { .. }) | None => {}
    }
}
