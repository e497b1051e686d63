//! From rows to records.

use std::sync::Arc;

use rusqlite::Row;
use serde_json::Value;
use sluice_domain::event::EventId;
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_domain::time::Time;

use crate::record::{AttemptKind, AttemptRecord, EffectRecord, EventBody, EventRecord, JobRecord};

fn wrong(column: usize, what: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Null, what.to_owned().into())
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Time> {
    row.get(column).map(Time)
}

fn maybe_time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Time>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Time))
}

fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<T>> {
    match row.get_ref(column)?.as_str_or_null().map_err(|error| wrong(column, &error.to_string()))? {
        Some(text) => serde_json::from_str(text).map(Some).map_err(|error| wrong(column, &error.to_string())),
        None => Ok(None),
    }
}

fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Arc<str>> {
    row.get_ref(column)?.as_str().map(Arc::from).map_err(|error| wrong(column, &error.to_string()))
}

/// The columns of `event.sql`.
pub(super) fn event(row: &Row<'_>) -> rusqlite::Result<EventRecord> {
    Ok(EventRecord {
        ord: row.get(0)?,
        id: EventId(row.get(1)?),
        generation: row.get(2)?,
        key_text: row.get(3)?,
        flow: row.get(4)?,
        source: row.get(5)?,
        event_type: row.get(6)?,
        received_at: time(row, 7)?,
        persisted_at: time(row, 8)?,
        occurred_at: maybe_time(row, 9)?,
        expires_at: time(row, 10)?,
        revision: row.get(11)?,
        verified_by: row.get(12)?,
        trace: row.get(13)?,
        first_job: JobId(row.get(14)?),
        jobs: row.get(15)?,
    })
}

/// The columns of `event_body.sql`.
pub(super) fn body(row: &Row<'_>) -> rusqlite::Result<EventBody> {
    Ok(EventBody { headers: row.get(0)?, raw: row.get(1)?, normalized: row.get(2)? })
}

/// The columns of `job.sql`.
pub(super) fn job(row: &Row<'_>) -> rusqlite::Result<JobRecord> {
    Ok(JobRecord {
        id: JobId(row.get(0)?),
        ord: row.get(1)?,
        worker: text(row, 2)?,
        queue: text(row, 3)?,
        revision: text(row, 4)?,
        entity: row.get::<_, i64>(5)? as u64,
        state: JobState::from_code(row.get(6)?).ok_or_else(|| wrong(6, "no such state of a job"))?,
        step: row.get(7)?,
        attempts: row.get(8)?,
        tries: row.get(9)?,
        due_at: time(row, 10)?,
        verifying: row.get(11)?,
        created_at: time(row, 12)?,
        updated_at: time(row, 13)?,
        finished_at: maybe_time(row, 14)?,
        replays: row.get(15)?,
        failure: json(row, 16)?,
        dead_letter_queue: row.get(17)?,
        result: json::<Value>(row, 18)?,
    })
}

/// The columns of `effects.sql`.
pub(super) fn effect(row: &Row<'_>) -> rusqlite::Result<EffectRecord> {
    Ok(EffectRecord {
        job: JobId(row.get(0)?),
        step: row.get(1)?,
        step_id: row.get(2)?,
        key: EffectKey(row.get(3)?),
        action: row.get(4)?,
        destination: row.get(5)?,
        class: EffectClass::parse(&text(row, 6)?).ok_or_else(|| wrong(6, "no such class of effect"))?,
        state: EffectState::parse(&text(row, 7)?).ok_or_else(|| wrong(7, "no such state of an effect"))?,
        attempts: row.get(8)?,
        absent_reads: row.get(9)?,
        reads: row.get(10)?,
        result: json::<Value>(row, 11)?,
        first_at: time(row, 12)?,
        last_at: time(row, 13)?,
    })
}

/// The columns of `attempts.sql`.
pub(super) fn attempt(row: &Row<'_>) -> rusqlite::Result<AttemptRecord> {
    Ok(AttemptRecord {
        job: JobId(row.get(0)?),
        n: row.get(1)?,
        step: row.get(2)?,
        kind: if &*text(row, 3)? == "read" { AttemptKind::Read } else { AttemptKind::Call },
        started_at: time(row, 4)?,
        ended_at: time(row, 5)?,
        outcome: row.get(6)?,
        failure: json(row, 7)?,
    })
}
