//! Reading: short questions on connections of their own, cut off when they take too long.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, params_from_iter};
use rusqlite::types::Value as Sql;
use serde::{Deserialize, Serialize};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::time::Time;

use super::{Role, open, row};
use crate::Error;
use crate::record::{AttemptRecord, AuditRecord, EffectRecord, EventBody, EventRecord, JobRecord, Ord, PauseRecord, Tally};

/// A question that takes longer is cut off: an open snapshot keeps the WAL from being reset.
const QUESTION_MAX: Duration = Duration::from_secs(2);

/// Which jobs, for lists and for acts on everything that matches.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobFilter {
    /// Only in these states.
    pub states: Vec<JobState>,
    /// Only of this worker.
    pub worker: Option<String>,
    /// Only in this queue.
    pub queue: Option<String>,
    /// Only in this dead-letter queue.
    pub dead_letter_queue: Option<String>,
    /// Only from this source.
    pub source: Option<String>,
    /// Only with this failure class.
    pub class: Option<String>,
    /// Only with this failure code.
    pub code: Option<String>,
    /// Only changed at or after this.
    pub since: Option<Time>,
    /// Only changed before this.
    pub until: Option<Time>,
}

/// A stretch of a list, newest first unless said otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Only what comes after this in the list; a job id or an ord.
    pub after: Option<i64>,
    /// This many.
    pub limit: u32,
}

/// A few read-only connections.
#[derive(Clone, Debug)]
pub(crate) struct Reads {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    idle: Mutex<Vec<Connection>>,
    directory: std::path::PathBuf,
}

impl Reads {
    pub fn open(directory: &Path) -> Result<Reads, Error> {
        let first = open(directory, Role::Read)?;
        Ok(Reads { pool: Arc::new(Pool { idle: Mutex::new(vec![first]), directory: directory.to_owned() }) })
    }

    /// Asks on a connection of its own, off the async threads.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let reads = self.clone();
        tokio::task::spawn_blocking(move || reads.ask_now(question)).await.map_err(|_| Error::Failed)?
    }

    fn ask_now<T>(&self, question: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        let idle = self.pool.idle.lock().map_err(|_| Error::Failed)?.pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => open(&self.pool.directory, Role::Read)?,
        };
        let deadline = Instant::now() + QUESTION_MAX;
        connection.progress_handler(4096, Some(move || Instant::now() > deadline))?;
        // One snapshot for all statements of a question.
        let answer = connection.unchecked_transaction().and_then(|snapshot| question(&snapshot));
        connection.progress_handler(0, None::<fn() -> bool>)?;
        let mut idle = self.pool.idle.lock().map_err(|_| Error::Failed)?;
        if idle.len() < 4 {
            idle.push(connection);
        }
        match answer {
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) => Err(Error::TooSlow),
            other => Ok(other?),
        }
    }
}

/// Live jobs of a worker beyond an id, in order.
pub(crate) fn live_jobs(connection: &Connection, worker: &str, after: JobId, limit: usize) -> rusqlite::Result<Vec<JobRecord>> {
    connection
        .prepare_cached(include_str!("sql/jobs_live.sql"))?
        .query_map(rusqlite::params![worker, after.0, i64::try_from(limit).unwrap_or(i64::MAX)], row::job)?
        .collect()
}

/// Jobs whose attempt had not ended when the process did.
pub(crate) fn running_jobs(connection: &Connection, after: JobId, limit: u32) -> rusqlite::Result<Vec<JobRecord>> {
    connection.prepare_cached(include_str!("sql/jobs_running.sql"))?.query_map([after.0, i64::from(limit)], row::job)?.collect()
}

/// The workers that have live jobs.
pub(crate) fn live_workers(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    connection.prepare_cached(include_str!("sql/workers_live.sql"))?.query_map([], |row| row.get(0))?.collect()
}

/// Live jobs by worker and state.
pub(crate) fn live_counts(connection: &Connection) -> rusqlite::Result<Vec<(String, JobState, u64)>> {
    connection
        .prepare_cached(include_str!("sql/counts_live.sql"))?
        .query_map([], |row| {
            let state = JobState::from_code(row.get(1)?).unwrap_or(JobState::Queued);
            Ok((row.get(0)?, state, row.get::<_, i64>(2)?.unsigned_abs()))
        })?
        .collect()
}

/// Events by their places, with bodies where they are still kept.
pub(crate) fn events(connection: &Connection, ords: &[Ord]) -> rusqlite::Result<Vec<(EventRecord, Option<EventBody>)>> {
    let mut found = Vec::with_capacity(ords.len());
    for ord in ords {
        let event = connection.prepare_cached(include_str!("sql/event.sql"))?.query_row([ord], row::event).optional()?;
        if let Some(event) = event {
            let body = connection.prepare_cached(include_str!("sql/event_body.sql"))?.query_row([ord], row::body).optional()?;
            found.push((event, body));
        }
    }
    Ok(found)
}

pub(crate) fn job(connection: &Connection, id: JobId) -> rusqlite::Result<Option<JobRecord>> {
    connection.prepare_cached(include_str!("sql/job.sql"))?.query_row([id.0], row::job).optional()
}

pub(crate) fn jobs_of_event(connection: &Connection, event: &EventRecord) -> rusqlite::Result<Vec<JobRecord>> {
    connection
        .prepare_cached(include_str!("sql/jobs_of_event.sql"))?
        .query_map([event.first_job.0, event.first_job.0 + i64::from(event.jobs)], row::job)?
        .collect()
}

pub(crate) fn effects(connection: &Connection, job: JobId) -> rusqlite::Result<Vec<EffectRecord>> {
    connection.prepare_cached(include_str!("sql/effects.sql"))?.query_map([job.0], row::effect)?.collect()
}

pub(crate) fn attempts(connection: &Connection, job: JobId) -> rusqlite::Result<Vec<AttemptRecord>> {
    connection.prepare_cached(include_str!("sql/attempts.sql"))?.query_map([job.0], row::attempt)?.collect()
}

/// Events, newest first.
pub(crate) fn list_events(connection: &Connection, source: Option<&str>, event_type: Option<&str>, page: Page) -> rusqlite::Result<Vec<EventRecord>> {
    connection
        .prepare_cached(include_str!("sql/list_events.sql"))?
        .query_map(rusqlite::params![page.after, source, event_type, page.limit], row::event)?
        .collect()
}

/// Jobs that match, newest first, with the source and type of their events.
pub(crate) fn list_jobs(connection: &Connection, filter: &JobFilter, page: Page) -> rusqlite::Result<Vec<(JobRecord, EventRecord)>> {
    let (sql, values) = list_jobs_sql(filter, page);
    let jobs: Vec<JobRecord> = connection.prepare_cached(&sql)?.query_map(params_from_iter(values), row::job)?.collect::<rusqlite::Result<_>>()?;
    let mut event = connection.prepare_cached(include_str!("sql/event.sql"))?;
    jobs.into_iter().map(|job| event.query_row([job.ord], row::event).map(|event| (job, event))).collect()
}

pub(super) fn list_jobs_sql(filter: &JobFilter, page: Page) -> (String, Vec<Sql>) {
    let mut sql = String::from(include_str!("sql/list_jobs.sql"));
    let mut values: Vec<Sql> = Vec::new();
    filter_clauses(filter, &mut sql, &mut values);
    if let Some(after) = page.after {
        sql.push_str(" AND j.id < ?");
        values.push(after.into());
    }
    sql.push_str(" ORDER BY j.id DESC LIMIT ?");
    values.push(i64::from(page.limit).into());
    (sql, values)
}

/// The ids of all jobs that match, oldest first, so that a replay keeps their order.
pub(crate) fn matching_jobs(connection: &Connection, filter: &JobFilter, after: JobId, limit: u32) -> rusqlite::Result<Vec<JobId>> {
    let (sql, values) = matching_jobs_sql(filter, after, limit);
    connection.prepare_cached(&sql)?.query_map(params_from_iter(values), |row| row.get(0).map(JobId))?.collect()
}

pub(super) fn matching_jobs_sql(filter: &JobFilter, after: JobId, limit: u32) -> (String, Vec<Sql>) {
    let mut sql = String::from(include_str!("sql/matching_jobs.sql"));
    let mut values: Vec<Sql> = vec![after.0.into()];
    filter_clauses(filter, &mut sql, &mut values);
    sql.push_str(" ORDER BY j.id LIMIT ?");
    values.push(i64::from(limit).into());
    (sql, values)
}

fn filter_clauses(filter: &JobFilter, sql: &mut String, values: &mut Vec<Sql>) {
    let mut clause = |text: &str, value: Sql| {
        sql.push_str(text);
        values.push(value);
    };
    if let Some(worker) = &filter.worker {
        clause(" AND j.worker = ?", worker.clone().into());
    }
    if let Some(queue) = &filter.queue {
        clause(" AND j.queue = ?", queue.clone().into());
    }
    if let Some(queue) = &filter.dead_letter_queue {
        clause(" AND j.dead_letter_queue = ?", queue.clone().into());
    }
    if let Some(source) = &filter.source {
        clause(" AND (SELECT e.source FROM event e WHERE e.ord = j.ord) = ?", source.clone().into());
    }
    if let Some(class) = &filter.class {
        clause(" AND j.failure ->> '$.class' = ?", class.clone().into());
    }
    if let Some(code) = &filter.code {
        clause(" AND j.failure ->> '$.code' = ?", code.clone().into());
    }
    if let Some(since) = filter.since {
        clause(" AND j.updated_at >= ?", since.0.into());
    }
    if let Some(until) = filter.until {
        clause(" AND j.updated_at < ?", until.0.into());
    }
    if !filter.states.is_empty() {
        let codes: Vec<String> = filter.states.iter().map(|state| state.code().to_string()).collect();
        sql.push_str(&format!(" AND j.state IN ({})", codes.join(", ")));
        // The words of a partial index: without them it is not used.
        if filter.states.iter().all(|state| matches!(state, JobState::Dead | JobState::Unknown)) {
            sql.push_str(" AND j.state IN (10, 11)");
        } else if filter.states.iter().all(|state| state.is_live()) {
            sql.push_str(" AND j.state < 8");
        }
    }
}

/// Why jobs died since then: class, code, an example of the message, how many, and the newest one's time.
pub(crate) fn dead_reasons(connection: &Connection, since: Time, limit: u32) -> rusqlite::Result<Vec<Reason>> {
    connection
        .prepare_cached(include_str!("sql/dead_reasons.sql"))?
        .query_map([since.0, i64::from(limit)], |row| {
            Ok(Reason {
                class: row.get(0)?,
                code: row.get(1)?,
                message: row.get(2)?,
                count: row.get::<_, i64>(3)?.unsigned_abs(),
                last_at: Time(row.get(4)?),
            })
        })?
        .collect()
}

/// Why jobs died.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// The failure class.
    pub class: String,
    /// The failure code.
    pub code: String,
    /// One of the messages.
    pub message: String,
    /// How many.
    pub count: u64,
    /// The newest.
    pub last_at: Time,
}

pub(crate) fn pauses(connection: &Connection) -> rusqlite::Result<Vec<PauseRecord>> {
    connection
        .prepare_cached(include_str!("sql/pauses.sql"))?
        .query_map([], |row| Ok(PauseRecord { target: row.get(0)?, at: Time(row.get(1)?), actor: row.get(2)?, reason: row.get(3)? }))?
        .collect()
}

pub(crate) fn revision(connection: &Connection, hash: &str) -> rusqlite::Result<Option<String>> {
    connection.prepare_cached(include_str!("sql/revision.sql"))?.query_row([hash], |row| row.get(0)).optional()
}

pub(crate) fn audit(connection: &Connection, page: Page) -> rusqlite::Result<Vec<AuditRecord>> {
    connection
        .prepare_cached(include_str!("sql/list_audit.sql"))?
        .query_map(rusqlite::params![page.after, page.limit], |row| {
            Ok(AuditRecord {
                id: row.get(0)?,
                at: Time(row.get(1)?),
                actor: row.get(2)?,
                action: row.get(3)?,
                object: row.get(4)?,
                detail: row.get(5)?,
            })
        })?
        .collect()
}

pub(crate) fn tallies(connection: &Connection, since_day: &str) -> rusqlite::Result<Vec<Tally>> {
    connection
        .prepare_cached(include_str!("sql/tallies.sql"))?
        .query_map([since_day], |row| {
            let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
            Ok(Tally { day: row.get(0)?, source: row.get(1)?, accepted: count(2)?, duplicates: count(3)?, clashes: count(4)?, jobs: None })
        })?
        .collect()
}

/// Every state that any job is in, with how many.
pub(crate) fn job_counts(connection: &Connection) -> rusqlite::Result<Vec<(JobState, u64)>> {
    connection
        .prepare_cached(include_str!("sql/job_counts.sql"))?
        .query_map([], |row| {
            Ok((JobState::from_code(row.get(0)?).unwrap_or(JobState::Queued), row.get::<_, i64>(1)?.unsigned_abs()))
        })?
        .collect()
}

pub(crate) fn event_count(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row(include_str!("sql/event_count.sql"), [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}
