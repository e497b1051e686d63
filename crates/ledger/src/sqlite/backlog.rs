//! The backlog of a worker and a destination, and jobs with everything that a run needs.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::params;
use sluice_domain::job::JobId;
use sluice_domain::schedule::backlog::{BacklogPage, BacklogQuery};
use sluice_domain::time::Time;

use super::read_pool::Reader;
use super::row::body_bytes;
use crate::record::{EffectRecord, EventBody, EventRecord, EventSeq, JobRecord, LoadedJob, looked_at_max};

/// An event with its body.
type StoredEvent = (Arc<EventRecord>, Arc<EventBody>);

/// Column of `backlog_ready.sql` that says whether the job is blocked.
const BLOCKED: usize = 24;

impl Reader<'_> {
    pub(crate) fn backlog(&self, query: &BacklogQuery) -> rusqlite::Result<BacklogPage> {
        let mut page = self.ready_jobs(query)?;
        let (destination, worker) = (query.destination.as_ref(), query.worker.as_ref());
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
        page.due = self
            .prepare_cached(include_str!("sql/backlog_due.sql"))?
            .query_map(params![destination, worker, query.due_by.0, limit.saturating_add(1)], |row| self.job_row(row))?
            .collect::<rusqlite::Result<_>>()?;
        page.more_due = page.due.len() > query.limit;
        page.due.truncate(query.limit);
        page.next_due = self
            .prepare_cached(include_str!("sql/next_due.sql"))?
            .query_row(params![destination, worker, query.due_by.0], |row| row.get::<_, Option<i64>>(0))?
            .map(Time);
        Ok(page)
    }

    fn ready_jobs(&self, query: &BacklogQuery) -> rusqlite::Result<BacklogPage> {
        let mut page = BacklogPage { looked_until: query.after, ..BacklogPage::default() };
        let look_max = looked_at_max(query.limit);
        let mut statement = self.prepare_cached(include_str!("sql/backlog_ready.sql"))?;
        let mut rows = statement.query(params![
            query.destination.as_ref(),
            query.worker.as_ref(),
            query.after.0,
            query.due_by.0,
            i64::try_from(look_max).unwrap_or(i64::MAX).saturating_add(1)
        ])?;
        let mut looked_at = 0;
        while let Some(row) = rows.next()? {
            if page.queued.len() >= query.limit || looked_at >= look_max {
                page.more_queued = true;
                break;
            }
            page.looked_until = JobId(row.get(0)?);
            looked_at += 1;
            if !row.get::<_, bool>(BLOCKED)? {
                page.queued.push(self.job_row(row)?);
            }
        }
        Ok(page)
    }

    pub(crate) fn load_jobs(&self, jobs: &[JobId], body_bytes_max: &usize) -> rusqlite::Result<Vec<LoadedJob>> {
        let ids = json_array(jobs.iter().map(|job| job.0));
        let mut found: HashMap<JobId, JobRecord> = self
            .prepare_cached(include_str!("sql/load_jobs.sql"))?
            .query_map([&ids], |row| self.job_row(row).map(|job| (job.id, job)))?
            .collect::<rusqlite::Result<_>>()?;
        let jobs = jobs.iter().filter_map(|id| found.remove(id)).collect();
        let jobs = self.within_bytes(jobs, *body_bytes_max)?;
        let events = self.load_events(&jobs)?;
        let mut effects = self.load_effects(&jobs)?;
        let loaded = jobs.into_iter().filter_map(|job| {
            let (event, body) = events.get(&job.seq)?.clone();
            let effects = effects.remove(&job.id).unwrap_or_default();
            Some(LoadedJob { event, body, effects, job })
        });
        Ok(loaded.collect())
    }

    /// The first jobs whose bodies have no more bytes than allowed. Bodies are not read.
    fn within_bytes(&self, jobs: Vec<JobRecord>, bytes_max: usize) -> rusqlite::Result<Vec<JobRecord>> {
        let seqs = json_array(jobs.iter().map(|job| job.seq));
        let lengths: HashMap<EventSeq, usize> = self
            .prepare_cached(include_str!("sql/body_lengths.sql"))?
            .query_map([&seqs], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?
            .map(|row| row.map(|(seq, length)| (seq, body_bytes(length))))
            .collect::<rusqlite::Result<_>>()?;
        let mut bytes = 0usize;
        let mut within = Vec::with_capacity(jobs.len());
        for job in jobs {
            bytes = bytes.saturating_add(lengths.get(&job.seq).copied().unwrap_or_default());
            if bytes > bytes_max && !within.is_empty() {
                break;
            }
            within.push(job);
        }
        Ok(within)
    }

    fn load_events(&self, jobs: &[JobRecord]) -> rusqlite::Result<HashMap<EventSeq, StoredEvent>> {
        let seqs = json_array(jobs.iter().map(|job| job.seq));
        let mut bodies: HashMap<EventSeq, Arc<EventBody>> = self
            .prepare_cached(include_str!("sql/load_bodies.sql"))?
            .query_map([&seqs], |row| Ok((row.get(1)?, Arc::new(self.body_row(row)?))))?
            .collect::<rusqlite::Result<_>>()?;
        let mut statement = self.prepare_cached(include_str!("sql/load_events.sql"))?;
        let events = statement.query_map([&seqs], |row| self.event_row(row))?;
        let mut with_body = |event: EventRecord| {
            let body = bodies.remove(&event.seq).unwrap_or_default();
            (event.seq, (Arc::new(event), body))
        };
        events.map(|event| Ok(with_body(event?))).collect()
    }

    fn load_effects(&self, jobs: &[JobRecord]) -> rusqlite::Result<HashMap<JobId, Vec<EffectRecord>>> {
        let ids = json_array(jobs.iter().map(|job| job.id.0));
        let mut effects = HashMap::<JobId, Vec<EffectRecord>>::new();
        let mut statement = self.prepare_cached(include_str!("sql/load_effects.sql"))?;
        for effect in statement.query_map([&ids], |row| self.effect_row(row))? {
            let effect = effect?;
            effects.entry(effect.job).or_default().push(effect);
        }
        Ok(effects)
    }
}

pub(super) fn json_array(numbers: impl Iterator<Item = i64>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    format!("[{}]", numbers.join(","))
}
