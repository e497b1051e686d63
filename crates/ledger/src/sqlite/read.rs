//! Reading: short questions, whose answers are opened on the way out.

use std::collections::BTreeMap;

use rusqlite::types::Value as Sql;
use rusqlite::{OptionalExtension, params_from_iter};
use serde::{Deserialize, Serialize};
use sluice_domain::duplicate_stats::DuplicateStats;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::time::Time;

use super::read_pool::Reader;
use crate::record::{
    AttemptRecord, AuditRecord, EffectRecord, EventBody, EventRecord, EventSeq, JobRecord, KeysRecord, PauseRecord,
    PinnedRecord, RevisionRecord, SourceDayCounts, VariantRecord, Variants,
};

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

/// Live jobs of a worker beyond an id, in order.
pub(crate) fn live_jobs(
    reader: &Reader<'_>,
    worker: &str,
    after: JobId,
    limit: usize,
) -> rusqlite::Result<Vec<JobRecord>> {
    reader
        .prepare_cached(include_str!("sql/jobs_live.sql"))?
        .query_map(rusqlite::params![worker, after.0, i64::try_from(limit).unwrap_or(i64::MAX)], |row| reader.job(row))?
        .collect()
}

/// Jobs whose attempt had not ended when the process did.
pub(crate) fn running_jobs(reader: &Reader<'_>, after: JobId, limit: u32) -> rusqlite::Result<Vec<JobRecord>> {
    reader
        .prepare_cached(include_str!("sql/jobs_running.sql"))?
        .query_map([after.0, i64::from(limit)], |row| reader.job(row))?
        .collect()
}

/// The workers that have live jobs.
pub(crate) fn live_workers(reader: &Reader<'_>) -> rusqlite::Result<Vec<String>> {
    reader.prepare_cached(include_str!("sql/workers_live.sql"))?.query_map([], |row| row.get(0))?.collect()
}

/// Live jobs by worker and state.
pub(crate) fn live_counts(reader: &Reader<'_>) -> rusqlite::Result<Vec<(String, JobState, u64)>> {
    reader
        .prepare_cached(include_str!("sql/counts_live.sql"))?
        .query_map([], |row| {
            let state = JobState::from_code(row.get(1)?).unwrap_or(JobState::Queued);
            Ok((row.get(0)?, state, row.get::<_, i64>(2)?.unsigned_abs()))
        })?
        .collect()
}

/// Events by their places, with bodies where they are still kept.
pub(crate) fn events(
    reader: &Reader<'_>,
    ords: &[EventSeq],
) -> rusqlite::Result<Vec<(EventRecord, Option<EventBody>)>> {
    let mut found = Vec::with_capacity(ords.len());
    for ord in ords {
        let event = reader
            .prepare_cached(include_str!("sql/event.sql"))?
            .query_row([ord], |row| reader.event(row))
            .optional()?;
        if let Some(event) = event {
            let body = body(reader, *ord)?;
            found.push((event, body));
        }
    }
    Ok(found)
}

/// The other contents that came under the key of an event.
pub(crate) fn variants(reader: &Reader<'_>, ord: EventSeq) -> rusqlite::Result<Variants> {
    let mut statement = reader.prepare_cached(include_str!("sql/variants.sql"))?;
    let mut rows = statement.query([ord])?;
    let mut variants = Variants::default();
    while let Some(row) = rows.next()? {
        let event: Option<EventSeq> = row.get(5)?;
        let body = match event {
            Some(event) => body(reader, event)?,
            None => reader.variant_body(ord, row)?,
        };
        variants.further += row.get::<_, i64>(4)?.unsigned_abs();
        variants.kept.push(VariantRecord {
            received_at: Time(row.get(1)?),
            fingerprint: row.get(2)?,
            times: row.get::<_, i64>(3)?.unsigned_abs(),
            event,
            body,
        });
    }
    Ok(variants)
}

/// How often and how late a source repeats itself.
pub(crate) fn repeats(reader: &Reader<'_>, source: &str) -> rusqlite::Result<DuplicateStats> {
    let mut counts = [BTreeMap::new(), BTreeMap::new()];
    let mut statement = reader.prepare_cached(include_str!("sql/lateness.sql"))?;
    let mut rows = statement.query([source])?;
    while let Some(row) = rows.next()? {
        let kind = usize::from(row.get::<_, u8>(0)?);
        if let Some(counts) = counts.get_mut(kind) {
            counts.insert(row.get(1)?, row.get::<_, i64>(2)?.unsigned_abs());
        }
    }
    let [within, after_expiry] = counts;
    Ok(DuplicateStats::new(&within, &after_expiry))
}

fn body(reader: &Reader<'_>, ord: EventSeq) -> rusqlite::Result<Option<EventBody>> {
    reader.prepare_cached(include_str!("sql/event_body.sql"))?.query_row([ord], |row| reader.body(ord, row)).optional()
}

pub(crate) fn job(reader: &Reader<'_>, id: JobId) -> rusqlite::Result<Option<JobRecord>> {
    reader.prepare_cached(include_str!("sql/job.sql"))?.query_row([id.0], |row| reader.job(row)).optional()
}

pub(crate) fn jobs_of_event(reader: &Reader<'_>, event: &EventRecord) -> rusqlite::Result<Vec<JobRecord>> {
    reader
        .prepare_cached(include_str!("sql/jobs_of_event.sql"))?
        .query_map([event.first_job.0, event.first_job.0 + i64::from(event.jobs)], |row| reader.job(row))?
        .collect()
}

pub(crate) fn effects(reader: &Reader<'_>, job: JobId) -> rusqlite::Result<Vec<EffectRecord>> {
    reader.prepare_cached(include_str!("sql/effects.sql"))?.query_map([job.0], |row| reader.effect(row))?.collect()
}

pub(crate) fn attempts(reader: &Reader<'_>, job: JobId) -> rusqlite::Result<Vec<AttemptRecord>> {
    reader.prepare_cached(include_str!("sql/attempts.sql"))?.query_map([job.0], |row| reader.attempt(row))?.collect()
}

/// Events, newest first.
pub(crate) fn list_events(
    reader: &Reader<'_>,
    source: Option<&str>,
    event_type: Option<&str>,
    page: Page,
) -> rusqlite::Result<Vec<EventRecord>> {
    reader
        .prepare_cached(include_str!("sql/list_events.sql"))?
        .query_map(rusqlite::params![page.after, source, event_type, page.limit], |row| reader.event(row))?
        .collect()
}

/// Jobs that match, newest first, with the source and type of their events.
pub(crate) fn list_jobs(
    reader: &Reader<'_>,
    filter: &JobFilter,
    page: Page,
) -> rusqlite::Result<Vec<(JobRecord, EventRecord)>> {
    let (sql, values) = list_jobs_sql(filter, page);
    let jobs: Vec<JobRecord> = reader
        .prepare_cached(&sql)?
        .query_map(params_from_iter(values), |row| reader.job(row))?
        .collect::<rusqlite::Result<_>>()?;
    let mut event = reader.prepare_cached(include_str!("sql/event.sql"))?;
    jobs.into_iter().map(|job| event.query_row([job.seq], |row| reader.event(row)).map(|event| (job, event))).collect()
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
pub(crate) fn matching_jobs(
    reader: &Reader<'_>,
    filter: &JobFilter,
    after: JobId,
    limit: u32,
) -> rusqlite::Result<Vec<JobId>> {
    let (sql, values) = matching_jobs_sql(filter, after, limit);
    reader.prepare_cached(&sql)?.query_map(params_from_iter(values), |row| row.get(0).map(JobId))?.collect()
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
pub(crate) fn dead_reasons(reader: &Reader<'_>, since: Time, limit: u32) -> rusqlite::Result<Vec<Reason>> {
    let mut statement = reader.prepare_cached(include_str!("sql/dead_reasons.sql"))?;
    let mut rows = statement.query([since.0, i64::from(limit)])?;
    let mut reasons = Vec::new();
    while let Some(row) = rows.next()? {
        let newest = JobId(row.get(4)?);
        reasons.push(Reason {
            class: row.get(0)?,
            code: row.get(1)?,
            message: reader.message_of(newest)?,
            count: row.get::<_, i64>(2)?.unsigned_abs(),
            last_at: Time(row.get(3)?),
        });
    }
    Ok(reasons)
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

pub(crate) fn pauses(reader: &Reader<'_>) -> rusqlite::Result<Vec<PauseRecord>> {
    reader
        .prepare_cached(include_str!("sql/pauses.sql"))?
        .query_map([], |row| {
            Ok(PauseRecord { target: row.get(0)?, at: Time(row.get(1)?), actor: row.get(2)?, reason: row.get(3)? })
        })?
        .collect()
}

pub(crate) fn revision(reader: &Reader<'_>, hash: &str) -> rusqlite::Result<Option<String>> {
    reader.prepare_cached(include_str!("sql/revision.sql"))?.query_row([hash], |row| row.get(0)).optional()
}

pub(crate) fn configured(reader: &Reader<'_>, page: Page) -> rusqlite::Result<Vec<RevisionRecord>> {
    reader
        .prepare_cached(include_str!("sql/list_configured.sql"))?
        .query_map(rusqlite::params![page.after, page.limit], |row| {
            Ok(RevisionRecord {
                n: row.get(0)?,
                at: Time(row.get(1)?),
                hash: row.get(2)?,
                actor: row.get(3)?,
                reason: row.get(4)?,
            })
        })?
        .collect()
}

pub(crate) fn pinned(reader: &Reader<'_>) -> rusqlite::Result<Vec<PinnedRecord>> {
    let mut statement = reader.prepare_cached(include_str!("sql/pinned.sql"))?;
    let mut rows = statement.query([])?;
    let mut counts = BTreeMap::<PinnedRecord, u64>::new();
    while let Some(row) = rows.next()? {
        let parked: Option<String> = row.get(3)?;
        let is_parked = parked.is_some();
        let dead_letter_queue = parked.filter(|queue| !queue.is_empty());
        let group = PinnedRecord::one(row.get(0)?, row.get(1)?, row.get(2)?, dead_letter_queue, is_parked);
        *counts.entry(group).or_default() += 1;
    }
    Ok(PinnedRecord::counted(counts))
}

pub(crate) fn audit(reader: &Reader<'_>, page: Page) -> rusqlite::Result<Vec<AuditRecord>> {
    reader
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

pub(crate) fn tallies(reader: &Reader<'_>, since_day: &str) -> rusqlite::Result<Vec<SourceDayCounts>> {
    reader
        .prepare_cached(include_str!("sql/tallies.sql"))?
        .query_map([since_day], |row| {
            let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
            Ok(SourceDayCounts {
                day: row.get(0)?,
                source: row.get(1)?,
                accepted: count(2)?,
                duplicates: count(3)?,
                clashes: count(4)?,
                by_content: count(5)?,
                jobs: None,
            })
        })?
        .collect()
}

/// Every state that any job is in, with how many.
pub(crate) fn job_counts(reader: &Reader<'_>) -> rusqlite::Result<Vec<(JobState, u64)>> {
    reader
        .prepare_cached(include_str!("sql/job_counts.sql"))?
        .query_map([], |row| {
            Ok((JobState::from_code(row.get(0)?).unwrap_or(JobState::Queued), row.get::<_, i64>(1)?.unsigned_abs()))
        })?
        .collect()
}

pub(crate) fn event_count(reader: &Reader<'_>) -> rusqlite::Result<u64> {
    reader.query_row(include_str!("sql/event_count.sql"), [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

/// What may be told about the keys.
pub(crate) fn keys(reader: &Reader<'_>) -> rusqlite::Result<KeysRecord> {
    reader.vault.describe(reader)
}
