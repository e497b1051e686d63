//! Lists of events with their jobs.

use std::collections::BTreeSet;

use rusqlite::types::Value as Sql;
use rusqlite::{Row, params_from_iter};
use sluice_domain::event::EventStatus;
use sluice_domain::job::{JobId, JobState};

use super::backlog::json_array;
use super::read_pool::Reader;
use super::row::wrong;
use crate::filter::{EventQuery, JobFilter, Page};
use crate::record::{EventRecord, EventSeq, JobSummary, ListedEvent};

/// Rows that are read at once while a status is searched for.
const SEARCH_ROWS: u32 = 256;

impl Reader<'_> {
    pub fn list_events(&self, query: &EventQuery, page: &Page) -> rusqlite::Result<Vec<ListedEvent>> {
        match query.status {
            None => {
                let (sql, values) = list_events_sql(query, *page);
                self.listed(&sql, values)
            }
            // Few jobs are live or parked, and an index has them. A list of events is short as well.
            Some(status) if !status.has_job_in().is_empty() && query.seqs.is_none() => {
                self.events_with_jobs_in(status, query, page)
            }
            Some(status) => self.events_walked(status, query, page),
        }
    }

    /// Walks the jobs in the states of a status, newest first.
    fn events_with_jobs_in(
        &self,
        status: EventStatus,
        query: &EventQuery,
        page: &Page,
    ) -> rusqlite::Result<Vec<ListedEvent>> {
        let states = status.has_job_in().to_vec();
        let filter = JobFilter { states, source: query.source.clone(), ..JobFilter::default() };
        let mut found: Vec<ListedEvent> = Vec::new();
        let mut after = None;
        loop {
            let jobs = self.jobs_in_index(&filter, Page { after, limit: SEARCH_ROWS })?;
            let Some((last, _)) = jobs.last() else { return Ok(found) };
            after = Some(last.0);
            let is_new = |seq: &EventSeq| page.after.is_none_or(|after| *seq < after);
            let seqs: BTreeSet<EventSeq> = jobs.iter().map(|(_, seq)| *seq).filter(is_new).collect();
            let seen = found.last().map(|listed| listed.event.seq);
            let seqs: Vec<EventSeq> = seqs.into_iter().filter(|seq| seen.is_none_or(|seen| *seq < seen)).collect();
            if seqs.is_empty() {
                continue;
            }
            let among = EventQuery { seqs: Some(seqs), ..query.clone() };
            let (sql, values) = list_events_sql(&among, Page { after: page.after, limit: SEARCH_ROWS });
            found.extend(self.listed(&sql, values)?.into_iter().filter(|listed| listed.is(status)));
            if found.len() >= page.limit as usize {
                found.truncate(page.limit as usize);
                return Ok(found);
            }
        }
    }

    /// Walks the events themselves, newest first.
    fn events_walked(
        &self,
        status: EventStatus,
        query: &EventQuery,
        page: &Page,
    ) -> rusqlite::Result<Vec<ListedEvent>> {
        let mut found: Vec<ListedEvent> = Vec::new();
        let mut after = page.after;
        loop {
            let (sql, values) = list_events_sql(query, Page { after, limit: SEARCH_ROWS });
            let listed = self.listed(&sql, values)?;
            let Some(last) = listed.last() else { return Ok(found) };
            after = Some(last.event.seq);
            found.extend(listed.into_iter().filter(|listed| listed.is(status)));
            if found.len() >= page.limit as usize {
                found.truncate(page.limit as usize);
                return Ok(found);
            }
        }
    }

    fn listed(&self, sql: &str, values: Vec<Sql>) -> rusqlite::Result<Vec<ListedEvent>> {
        let mut statement = self.prepare_cached(sql)?;
        let events = statement.query_map(params_from_iter(values), |row| self.event_row(row))?;
        let mut jobs = self.prepare_cached(include_str!("sql/job_summaries.sql"))?;
        let mut with_jobs = |event: EventRecord| {
            let ids = [event.first_job.0, event.first_job.0 + i64::from(event.jobs)];
            let jobs = jobs.query_map(ids, summary_row)?.collect::<rusqlite::Result<_>>()?;
            Ok(ListedEvent { event, jobs })
        };
        events.map(|event| with_jobs(event?)).collect()
    }
}

impl ListedEvent {
    fn is(&self, status: EventStatus) -> bool {
        EventStatus::of(self.jobs.iter().map(|job| job.state)) == status
    }
}

fn summary_row(row: &Row<'_>) -> rusqlite::Result<JobSummary> {
    Ok(JobSummary {
        id: JobId(row.get(0)?),
        worker: row.get(1)?,
        state: JobState::from_code(row.get(2)?).ok_or_else(|| wrong(2, "unknown job state"))?,
        attempts_total: row.get(3)?,
    })
}

pub(super) fn list_events_sql(query: &EventQuery, page: Page) -> (String, Vec<Sql>) {
    let mut sql = include_str!("sql/list_events.sql").to_owned();
    sql.push_str(" WHERE 1 = 1");
    let mut values: Vec<Sql> = Vec::new();
    let mut clause = |text: &str, value: Sql| {
        sql.push_str(text);
        values.push(value);
    };
    if let Some(seqs) = &query.seqs {
        clause(" AND e.seq IN (SELECT value FROM json_each(?))", json_array(seqs.iter().copied()).into());
    }
    if let Some(after) = page.after {
        clause(" AND e.seq < ?", after.into());
    }
    if let Some(source) = &query.source {
        clause(" AND e.source = ?", source.clone().into());
    }
    if let Some(event_type) = &query.event_type {
        clause(" AND e.event_type = ?", event_type.clone().into());
    }
    if let Some(since) = query.since {
        clause(" AND e.received_at >= ?", since.0.into());
    }
    clause(" ORDER BY e.seq DESC LIMIT ?", i64::from(page.limit).into());
    (sql, values)
}
