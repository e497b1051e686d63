//! Rows as records, with sealed values opened.

use std::sync::Arc;

use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde_json::Value;
use sluice_domain::event::EventId;
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState, Term};
use sluice_domain::outcome::{EffectClass, Failure};
use sluice_domain::time::Time;

use super::attempt::lane_order_from_code;
use super::mac::EffectColumns;
use super::read_pool::Reader;
use crate::record::{AttemptKind, AttemptRecord, EffectRecord, EventBody, EventRecord, EventSeq, JobRecord};
use crate::seal::{SEALED_OVERHEAD_BYTES, SealContext, StableId};

pub(super) fn wrong(column: usize, what: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Null, what.to_owned().into())
}

pub(super) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Time> {
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

/// Headers, raw bytes and normalized event are one sealed value, behind the lengths of the first two.
pub(super) fn body_parts(body: &EventBody) -> ([u8; 8], [&[u8]; 3]) {
    let mut lengths = [0; 8];
    lengths[..4].copy_from_slice(&(body.headers.len() as u32).to_be_bytes());
    lengths[4..].copy_from_slice(&(body.raw.len() as u32).to_be_bytes());
    (lengths, [body.headers.as_bytes(), &body.raw, body.normalized.as_bytes()])
}

/// Bytes of a body by the length of its sealed form.
pub(super) fn body_bytes(sealed: i64) -> usize {
    usize::try_from(sealed).unwrap_or(0).saturating_sub(SEALED_OVERHEAD_BYTES + 8)
}

fn body_of(opened: &[u8]) -> Option<EventBody> {
    let length =
        |at: usize| opened.get(at..at + 4).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")));
    let (headers, rest) = opened.get(8..)?.split_at_checked(length(0)? as usize)?;
    let (raw, normalized) = rest.split_at_checked(length(4)? as usize)?;
    Some(EventBody {
        headers: String::from_utf8(headers.to_vec()).ok()?,
        raw: raw.to_vec(),
        normalized: String::from_utf8(normalized.to_vec()).ok()?,
        ..EventBody::default()
    })
}

/// The contexts of sealed values, for writing and reading.
pub(super) mod place {
    use sluice_domain::event::EventId;

    use super::{SealContext, StableId};

    /// Of a value that belongs to an event.
    fn of_event<'a>(table: &'static str, seq: i64, event: EventId, column: &'static str) -> SealContext<'a> {
        let stable = Some(StableId { owner: event.0, index: 0 });
        SealContext { stable, ..SealContext::new(table, seq, column) }
    }

    pub(crate) fn key_text<'a>(seq: i64, event: EventId) -> SealContext<'a> {
        of_event("event", seq, event, "key_text")
    }

    pub(crate) fn body<'a>(seq: i64, event: EventId) -> SealContext<'a> {
        of_event("event_body", seq, event, "sealed")
    }

    pub(crate) fn variant(seq: i64, event: EventId, n: &[u8; 8]) -> SealContext<'_> {
        SealContext { part: n, ..of_event("variant", seq, event, "sealed") }
    }

    pub(crate) fn job_message<'a>(job: i64, identity: StableId) -> SealContext<'a> {
        SealContext { stable: Some(identity), ..SealContext::new("job", job, "message") }
    }

    pub(crate) fn job_result<'a>(job: i64, identity: StableId) -> SealContext<'a> {
        SealContext { stable: Some(identity), ..SealContext::new("job", job, "result") }
    }

    /// An effect key is derived from the event id.
    pub(crate) fn effect_result(job: i64, key: &[u8; 16]) -> SealContext<'_> {
        let stable = Some(StableId { owner: *key, index: 0 });
        SealContext { part: key, stable, ..SealContext::new("effect", job, "result") }
    }

    /// An approval id is an effect key.
    pub(crate) fn approval<'a>(job: i64, id: &'a [u8; 16], column: &'static str) -> SealContext<'a> {
        let stable = Some(StableId { owner: *id, index: 0 });
        SealContext { part: id, stable, ..SealContext::new("approval", job, column) }
    }

    pub(crate) fn contact_state<'a>(id: i64) -> SealContext<'a> {
        SealContext::new("contact", id, "sealed")
    }

    pub(crate) fn waiting_event<'a>(seq: i64, event: EventId) -> SealContext<'a> {
        of_event("waiting_event", seq, event, "sealed")
    }

    pub(crate) fn event_identity<'a>(seq: i64, event: EventId) -> SealContext<'a> {
        of_event("event_identity", seq, event, "sealed")
    }

    /// The part is the number of the revision.
    pub(crate) fn event_revision(seq: i64, event: EventId, n: &[u8; 4]) -> SealContext<'_> {
        SealContext { part: n, ..of_event("event_revision", seq, event, "sealed") }
    }

    pub(crate) fn contact_write(contact: i64, slot: &[u8; 16]) -> SealContext<'_> {
        SealContext { part: slot, ..SealContext::new("contact_write", contact, "sealed") }
    }

    /// There is one row.
    pub(crate) fn shadow<'a>() -> SealContext<'a> {
        SealContext::new("shadow", 1, "sealed")
    }

    pub(crate) fn payload_shape<'a>(id: i64) -> SealContext<'a> {
        SealContext::new("payload_shape", id, "sealed")
    }

    pub(crate) fn command_body<'a>(id: i64) -> SealContext<'a> {
        SealContext::new("command", id, "body")
    }

    pub(crate) fn suppression_label<'a>(id: i64) -> SealContext<'a> {
        SealContext::new("suppression", id, "label")
    }

    pub(crate) fn attempt_message(job: i64, identity: StableId, n_and_start: &[u8; 12]) -> SealContext<'_> {
        let stable = Some(identity);
        SealContext { part: n_and_start, stable, ..SealContext::new("attempt", job, "message") }
    }

    /// Distinguishes an attempt from the others of its job.
    pub(crate) fn attempt_part(n: u32, started_at: i64) -> [u8; 12] {
        let mut part = [0; 12];
        part[..4].copy_from_slice(&n.to_be_bytes());
        part[4..].copy_from_slice(&started_at.to_be_bytes());
        part
    }
}

impl Reader<'_> {
    pub(crate) fn opened(
        &self,
        row: &Row<'_>,
        column: usize,
        place: SealContext<'_>,
    ) -> rusqlite::Result<Option<Vec<u8>>> {
        match row.get_ref(column)?.as_blob_or_null().map_err(|error| wrong(column, &error.to_string()))? {
            Some(sealed) => self.key_store.unseal(self.connection, self.changes, place, sealed).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn opened_text(&self, row: &Row<'_>, column: usize, place: SealContext<'_>) -> rusqlite::Result<String> {
        let opened = self.opened(row, column, place)?.unwrap_or_default();
        String::from_utf8(opened).map_err(|error| wrong(column, &error.to_string()))
    }

    fn opened_json(
        &self,
        row: &Row<'_>,
        column: usize,
        place: SealContext<'_>,
    ) -> rusqlite::Result<Option<Arc<Value>>> {
        let opened = self.opened(row, column, place)?;
        let parsed = opened.map(|bytes| serde_json::from_slice(&bytes)).transpose();
        parsed.map(|value| value.map(Arc::new)).map_err(|error| wrong(column, &error.to_string()))
    }

    /// A failure with its message from the next column.
    fn failure<'p>(
        &self,
        row: &Row<'_>,
        column: usize,
        message: impl FnOnce() -> rusqlite::Result<SealContext<'p>>,
    ) -> rusqlite::Result<Option<Failure>> {
        let Some(failure) = json::<Failure>(row, column)? else { return Ok(None) };
        Ok(Some(Failure { message: self.opened_text(row, column + 1, message()?)?, ..failure }))
    }

    /// The event of a job and its place among the event's jobs.
    pub(crate) fn job_identity(&self, job: i64) -> rusqlite::Result<StableId> {
        let mut statement = self.prepare_cached(include_str!("sql/job_identity.sql"))?;
        statement.query_row([job], |row| Ok(StableId { owner: row.get(0)?, index: row.get(1)? }))
    }

    /// The columns of `event.sql`.
    pub(crate) fn event_row(&self, row: &Row<'_>) -> rusqlite::Result<EventRecord> {
        let (seq, id) = (row.get(0)?, EventId(row.get(1)?));
        Ok(EventRecord {
            seq,
            id,
            generation: row.get(2)?,
            key_text: self.opened_text(row, 3, place::key_text(seq, id))?,
            flow: text(row, 4)?,
            source: text(row, 5)?,
            event_type: row.get(6)?,
            received_at: time(row, 7)?,
            persisted_at: time(row, 8)?,
            occurred_at: maybe_time(row, 9)?,
            expires_at: time(row, 10)?,
            revision: text(row, 11)?,
            verified_by: row.get(12)?,
            trace: row.get(13)?,
            first_job: JobId(row.get(14)?),
            jobs: row.get(15)?,
            variant_of: row.get(16)?,
        })
    }

    /// The columns of `event_body.sql`. The normalized event is as it was edited last.
    pub(crate) fn body_row(&self, row: &Row<'_>) -> rusqlite::Result<EventBody> {
        let mut body = self.accepted_body_row(row)?;
        if let Some((n, edited)) = self.edited_of_body(row)? {
            (body.edits, body.normalized) = (n, edited);
        }
        Ok(body)
    }

    /// The same without edits. The normalized event has the identity that was supplied for it.
    pub(crate) fn accepted_body_row(&self, row: &Row<'_>) -> rusqlite::Result<EventBody> {
        let opened = self.opened(row, 0, place::body(row.get(1)?, EventId(row.get(2)?)))?;
        let mut body = opened.as_deref().and_then(body_of).ok_or_else(|| wrong(0, "a body has three parts"))?;
        if let Some(supplied) = self.supplied_of_body(row)? {
            body.normalized = supplied.apply(&body.normalized);
            body.supplied = supplied.identity;
        }
        Ok(body)
    }

    /// The body among the columns of `variants.sql`.
    pub(crate) fn variant_body_row(&self, seq: EventSeq, row: &Row<'_>) -> rusqlite::Result<Option<EventBody>> {
        let n = row.get::<_, i64>(0)?.to_be_bytes();
        let opened = self.opened(row, 6, place::variant(seq, EventId(row.get(7)?), &n))?;
        opened.map(|bytes| body_of(&bytes).ok_or_else(|| wrong(6, "a body has three parts"))).transpose()
    }

    /// Failure message of a job; empty if it has none.
    pub(crate) fn message_of(&self, job: JobId) -> rusqlite::Result<String> {
        let mut statement = self.prepare_cached(include_str!("sql/job_message.sql"))?;
        let identity = self.job_identity(job.0)?;
        statement.query_row([job.0], |row| self.opened_text(row, 0, place::job_message(job.0, identity)))
    }

    /// The columns of `job.sql`.
    pub(crate) fn job_row(&self, row: &Row<'_>) -> rusqlite::Result<JobRecord> {
        let id = row.get(0)?;
        Ok(JobRecord {
            id: JobId(id),
            seq: row.get(1)?,
            worker: text(row, 2)?,
            queue: text(row, 3)?,
            revision: text(row, 4)?,
            entity: row.get::<_, i64>(5)? as u64,
            state: JobState::from_code(row.get(6)?).ok_or_else(|| wrong(6, "unknown job state"))?,
            step: row.get(7)?,
            attempts: row.get(8)?,
            attempts_total: row.get(9)?,
            destination: text(row, 20)?,
            order: lane_order_from_code(row.get(21)?),
            term: Term(row.get(22)?),
            due_at: time(row, 10)?,
            verifying: row.get(11)?,
            created_at: time(row, 12)?,
            updated_at: time(row, 13)?,
            finished_at: maybe_time(row, 14)?,
            replays: row.get(15)?,
            imported: row.get(23)?,
            failure: self.failure(row, 16, || Ok(place::job_message(id, self.job_identity(id)?)))?,
            dead_letter_queue: row.get(18)?,
            result: match row.get_ref(19)? {
                ValueRef::Null => None,
                _ => self.opened_json(row, 19, place::job_result(id, self.job_identity(id)?))?,
            },
        })
    }

    /// The columns of `effects.sql`.
    pub(crate) fn effect_row(&self, row: &Row<'_>) -> rusqlite::Result<EffectRecord> {
        let (job, key) = (row.get(0)?, row.get(3)?);
        Ok(EffectRecord {
            job: JobId(job),
            step: row.get(1)?,
            step_id: row.get(2)?,
            key: EffectKey(key),
            action: row.get(4)?,
            destination: row.get(5)?,
            class: EffectClass::parse(&text(row, 6)?).ok_or_else(|| wrong(6, "unknown effect class"))?,
            state: EffectState::parse(&text(row, 7)?).ok_or_else(|| wrong(7, "unknown effect state"))?,
            attempts: row.get(8)?,
            absent_reads: row.get(9)?,
            reads: row.get(10)?,
            result: self.opened_json(row, 11, place::effect_result(job, &key))?,
            first_at: time(row, 12)?,
            last_at: time(row, 13)?,
        })
    }

    /// The recorded output of an internal step.
    pub(super) fn step_output(&self, effect: &EffectColumns) -> rusqlite::Result<Value> {
        let Some(sealed) = &effect.result else { return Ok(Value::Null) };
        let context = place::effect_result(effect.job, &effect.key);
        let opened = self.key_store.unseal(self.connection, self.changes, context, sealed)?;
        serde_json::from_slice(&opened).map_err(|error| wrong(0, &error.to_string()))
    }

    /// The columns of `attempts.sql`.
    pub(crate) fn attempt_row(&self, row: &Row<'_>) -> rusqlite::Result<AttemptRecord> {
        let (job, n, started_at) = (row.get(0)?, row.get(1)?, row.get(4)?);
        let part = place::attempt_part(n, started_at);
        Ok(AttemptRecord {
            job: JobId(job),
            n,
            step: row.get(2)?,
            kind: if &*text(row, 3)? == "read" { AttemptKind::Read } else { AttemptKind::Call },
            started_at: Time(started_at),
            ended_at: time(row, 5)?,
            outcome: row.get(6)?,
            failure: self.failure(row, 7, || Ok(place::attempt_message(job, self.job_identity(job)?, &part)))?,
        })
    }
}
