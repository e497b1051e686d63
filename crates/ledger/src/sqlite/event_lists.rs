//! Lists of events with their jobs.

use std::iter;
use std::ops::{ControlFlow, Range};

use rusqlite::types::Value as Sql;
use rusqlite::{OptionalExtension, Row};
use sluice_domain::event::EventStatus;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::time::Time;

use super::backlog::json_array;
use super::read_pool::Reader;
use super::row::wrong;
use super::search::{CandidateRow, Order, SearchBudget, WalkEnd};
use crate::filter::{EventQuery, JobFilter, ListPage, Page};
use crate::record::{EventRecord, EventSeq, JobSummary, ListedEvent};

impl Reader<'_> {
    pub(crate) fn list_events(&self, query: &EventQuery, page: &Page) -> rusqlite::Result<ListPage<ListedEvent>> {
        let (limit, before) = (page.limit as usize, page.after.unwrap_or(EventSeq::MAX));
        let mut found = Vec::new();
        let mut budget = SearchBudget::of(self.search_max);
        // The totals know whether there are such jobs at all, and an index has the live and the parked ones.
        let states = query.status.map_or(&[][..], EventStatus::has_job_in);
        let is_by_jobs = !states.is_empty() && query.seqs.is_none();
        for seqs in self.seq_ranges(query)? {
            let seqs = seqs.start..seqs.end.min(before);
            if seqs.is_empty() {
                continue;
            }
            let mut visit = |row: CandidateRow| {
                if let Some(listed) = self.listed(row.seq)?
                    && query.status.is_none_or(|status| listed.is(status))
                {
                    found.push(listed);
                }
                Ok(if found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            let walked = match is_by_jobs {
                true => self.walk_events_of_jobs(query, states, &seqs, (&mut budget, &mut visit))?,
                false => {
                    let statement = walk_events_sql(query, &seqs);
                    self.walk(vec![statement], Order::NewestFirst, &mut budget, visit)?
                }
            };
            match walked {
                WalkEnd::Whole => {}
                WalkEnd::Enough => return Ok(ListPage::full(found, |listed| listed.event.seq)),
                WalkEnd::OutOfTime(last) => {
                    let at = self.listed(last.seq)?.map(|listed| listed.event.received_at);
                    return Ok(ListPage { rows: found, next: Some(last.seq), scanned_to: at });
                }
            }
        }
        Ok(ListPage::whole(found))
    }

    /// Walks the events that have a job in one of these states, newest first. The jobs of an event have neighbouring ids.
    fn walk_events_of_jobs(
        &self,
        query: &EventQuery,
        states: &[JobState],
        seqs: &Range<EventSeq>,
        (budget, visit): (&mut SearchBudget, &mut dyn FnMut(CandidateRow) -> rusqlite::Result<ControlFlow<()>>),
    ) -> rusqlite::Result<WalkEnd> {
        let places = self.job_places(&JobFilter { states: states.to_vec(), ..JobFilter::default() })?;
        let first = self.first_job_from(seqs.start)?.unwrap_or(i64::MAX);
        let end = self.first_job_from(seqs.end)?.unwrap_or(i64::MAX);
        let mut matching = self.prepare_cached(&event_matches_sql(query))?;
        let mut seen = None;
        let mut visit_event = |row: CandidateRow| {
            if seen.replace(row.seq) == Some(row.seq) || !seqs.contains(&row.seq) {
                return Ok(ControlFlow::Continue(()));
            }
            let mut values = vec![Sql::Integer(row.seq)];
            values.extend(event_values(query));
            match matching.exists(rusqlite::params_from_iter(values))? {
                true => visit(row),
                false => Ok(ControlFlow::Continue(())),
            }
        };
        let walked = self.walk_jobs(&places, (first..end, Order::NewestFirst), budget, &mut visit_event)?;
        // The next page begins behind the last event: another job of it may be the one that matches.
        match walked {
            WalkEnd::OutOfTime(last) if visit_event(last)?.is_break() => Ok(WalkEnd::Enough),
            walked => Ok(walked),
        }
    }

    /// Sequence numbers within which the events of a query are, newest first.
    fn seq_ranges(&self, query: &EventQuery) -> rusqlite::Result<Vec<Range<EventSeq>>> {
        if query.seqs.is_some() {
            return Ok(iter::once(EventSeq::MIN..EventSeq::MAX).collect());
        }
        // An event is stored after it was received.
        let first = query.since.map(|since| self.first_stored_at(since)).transpose()?.unwrap_or(EventSeq::MIN);
        let Some(source) = &query.source else {
            return Ok(iter::once(first..EventSeq::MAX).collect());
        };
        let within = |times: Range<Time>| {
            let seqs = self.stored_within(&times)?;
            Ok(seqs.start.max(first)..seqs.end)
        };
        self.stored_times(source)?.into_iter().map(within).collect()
    }

    fn listed(&self, seq: EventSeq) -> rusqlite::Result<Option<ListedEvent>> {
        let mut event = self.prepare_cached(include_str!("sql/event.sql"))?;
        let event: Option<EventRecord> = event.query_row([seq], |row| self.event_row(row)).optional()?;
        let Some(event) = event else { return Ok(None) };
        let mut jobs = self.prepare_cached(include_str!("sql/job_summaries.sql"))?;
        let ids = [event.first_job.0, event.first_job.0 + i64::from(event.jobs)];
        let jobs = jobs.query_map(ids, summary_row)?.collect::<rusqlite::Result<_>>()?;
        Ok(Some(ListedEvent { event, jobs }))
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

/// Walks events within a range of sequence numbers, newest first: number, number, whether the event matches.
pub(super) fn walk_events_sql(query: &EventQuery, seqs: &Range<EventSeq>) -> (String, Vec<Sql>) {
    let mut values: Vec<Sql> = event_values(query);
    let mut sql = format!(
        "SELECT e.seq, e.seq, iif({}, 1, 0) FROM event e WHERE e.seq >= ? AND e.seq < ?",
        event_condition(query)
    );
    values.extend([seqs.start.into(), seqs.end.into()]);
    if let Some(seqs) = &query.seqs {
        sql.push_str(" AND e.seq IN (SELECT value FROM json_each(?))");
        values.push(json_array(seqs.iter().copied()).into());
    }
    sql.push_str(" ORDER BY e.seq DESC");
    (sql, values)
}

fn event_matches_sql(query: &EventQuery) -> String {
    format!("SELECT 1 FROM event e WHERE e.seq = ? AND {}", event_condition(query))
}

fn event_condition(query: &EventQuery) -> String {
    let mut sql = String::from("1");
    for (is_asked, part) in [
        (query.since.is_some(), " AND e.received_at >= ?"),
        (query.source.is_some(), " AND e.source = ?"),
        (query.event_type.is_some(), " AND e.event_type = ?"),
        (query.status == Some(EventStatus::Unrouted), " AND e.jobs = 0"),
    ] {
        if is_asked {
            sql.push_str(part);
        }
    }
    sql
}

/// The values of an [`event_condition`].
fn event_values(query: &EventQuery) -> Vec<Sql> {
    let since = query.since.map(|since| since.0.into());
    let texts = [&query.source, &query.event_type].into_iter().flatten();
    since.into_iter().chain(texts.map(|text| text.clone().into())).collect()
}
