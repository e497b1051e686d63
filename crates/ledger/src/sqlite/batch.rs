//! The state of a batch: one transaction of the writer.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;
use sluice_domain::duplicate_stats::DuplicateRequest;
use sluice_domain::event::MappingWarning;
use sluice_domain::history::Measure;
use sluice_domain::job::{JobId, JobState, Term};
use sluice_domain::outcome::Failure;
use sluice_domain::time::Time;

use super::content_cache::{ContentCache, Undo};
use super::counters::CounterChanges;
use super::key_index::KeyIndexes;
use super::key_store::{Changes, KeyStore, Sealer};
use super::late_identity::WaitingLinks;
use super::mac::{JobColumns, Mac};
use super::new_jobs::InsertedEvent;
use super::prune::PruneCursors;
use super::read_pool::Reader;
use super::row::wrong;
use super::search::SEARCH_MAX;
use super::statements::{StatementId, Statements};
use super::totals::{Names, TotalChanges, TotalKey, TotalRef};
use crate::fence::JobGuard;
use crate::op::ChangedJob;
use crate::record::{EventSeq, SourceDayCounts};
use crate::seal::{KeyId, SealContext, StableId};

/// The next free numbers, and where pruning continues. Reset when a batch is rolled back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    pub next_seq: i64,
    pub next_job: i64,
    pub next_contact: i64,
    pub next_binding: i64,
    pub next_contact_id: i64,
    pub next_identifier: i64,
    pub next_record_ref: i64,
    pub prune: PruneCursors,
}

#[derive(Debug)]
pub(super) struct Batch<'a, 'c> {
    pub connection: &'a Connection,
    pub statements: &'a mut Statements<'c>,
    pub key_store: &'a KeyStore,
    /// Changes of the sealing keys in this batch.
    pub key_changes: Changes,
    pub indexes: &'a mut KeyIndexes,
    pub counters: &'a mut Counters,
    pub names: &'a mut Names,
    pub now: Time,
    /// Events of this batch whose jobs are announced after the commit: all but the quarantined.
    pub inserted: Vec<InsertedEvent>,
    /// Quarantined jobs that this batch has released, announced after the commit.
    pub requeued: Vec<ChangedJob>,
    pub waiting: &'a mut WaitingLinks,
    pub contents: &'a mut ContentCache,
    pub content_undo: Vec<Undo>,
    pub source_days: BTreeMap<Arc<str>, SourceDayCounts>,
    /// Duplicates by source, kind and bucket of lateness.
    pub lateness: BTreeMap<(Arc<str>, Lateness, u32), i64>,
    /// Duplicates by their events.
    pub duplicates: BTreeMap<EventSeq, Vec<DuplicateRequest>>,
    /// Conversions that lost something, by source.
    pub mapping_warnings: BTreeMap<(Arc<str>, MappingWarning), i64>,
    pub totals: TotalChanges,
    pub counts: CounterChanges,
    /// Whether the batch changes what all nodes must agree on.
    pub is_change: bool,
    /// The change sequence after such a batch.
    pub change_seq: Option<u64>,
}

/// Whether a duplicate came within the lifetime of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lateness {
    Within = 0,
    AfterExpiry = 1,
}

/// The columns of a job that decide whether and how it is changed.
#[derive(Debug)]
pub(super) struct JobHead {
    pub id: JobId,
    pub contact: Option<i64>,
    pub guard: JobGuard,
    pub total: TotalKey,
    pub entity: i64,
    created_at: i64,
    /// `None` for a job that is older than the counts.
    pub effect_rows: Option<u32>,
    pub attempt_rows: Option<u32>,
    pub replays: u32,
    /// Sealed result of the job.
    pub result: Option<Vec<u8>>,
    /// The event and the place of the job among its jobs.
    pub identity: StableId,
}

/// Splits a failure into what is stored in the clear and its sealed message.
pub(super) fn sealed_failure(
    sealer: &Sealer,
    context: SealContext<'_>,
    failure: Option<&Failure>,
) -> (Option<String>, Option<Vec<u8>>) {
    let Some(failure) = failure else { return (None, None) };
    let message = sealer.seal(context, &[failure.message.as_bytes()]);
    let rest = Failure { message: String::new(), code: failure.code.clone(), ..*failure };
    (Some(serde_json::to_string(&rest).expect("plain data has a JSON form")), Some(message))
}

pub(super) fn sealed_json(sealer: &Sealer, context: SealContext<'_>, value: Option<&Value>) -> Option<Vec<u8>> {
    value.map(|value| {
        let text = serde_json::to_vec(value).expect("a value has a JSON form");
        sealer.seal(context, &[&text])
    })
}

impl Batch<'_, '_> {
    /// Writes what the batch has counted: one row for each kind instead of one for each operation.
    pub(super) fn finish(&mut self) -> rusqlite::Result<()> {
        for (_, counts) in std::mem::take(&mut self.source_days) {
            let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            self.cached(include_str!("sql/add_source_day_count.sql"))?.execute(params![
                counts.day,
                counts.source,
                count(counts.accepted),
                count(counts.duplicates),
                count(counts.clashes),
                count(counts.by_content)
            ])?;
        }
        for (seq, requests) in std::mem::take(&mut self.duplicates) {
            self.add_duplicates(seq, requests)?;
        }
        for ((source, kind, bucket), count) in std::mem::take(&mut self.lateness) {
            self.cached(include_str!("sql/add_lateness.sql"))?.execute(params![
                source.as_ref(),
                kind as i64,
                bucket,
                count
            ])?;
        }
        for ((source, warning), count) in std::mem::take(&mut self.mapping_warnings) {
            let add = include_str!("sql/add_mapping_warning.sql");
            self.cached(add)?.execute(params![
                source.as_ref(),
                warning.field,
                warning.code.as_str(),
                count,
                self.now.0
            ])?;
        }
        if self.is_change {
            let bump = include_str!("sql/bump_change_seq.sql");
            let seq = self.cached(bump)?.query_row([], |row| row.get::<_, i64>(0))?;
            self.change_seq = Some(seq.unsigned_abs());
        }
        self.counts.write(self.connection)?;
        self.totals.write(self.connection)
    }

    pub(super) fn cached(&self, sql: &str) -> rusqlite::Result<rusqlite::CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }

    pub(super) fn log(&self, at: Time, actor: &str, action: &str, object: &str, detail: &str) -> rusqlite::Result<()> {
        self.cached(include_str!("sql/insert_audit.sql"))?.execute(params![at.0, actor, action, object, detail])?;
        Ok(())
    }

    pub(super) fn source_day(&mut self, source: &Arc<str>) -> &mut SourceDayCounts {
        let now = self.now;
        self.source_days.entry(source.clone()).or_insert_with(|| SourceDayCounts {
            day: now.to_jiff().strftime("%Y-%m-%d").to_string(),
            source: source.to_string(),
            ..SourceDayCounts::default()
        })
    }

    /// `None` if there is no such job.
    pub(super) fn job_head(&mut self, id: JobId) -> rusqlite::Result<Option<JobHead>> {
        let names = &mut *self.names;
        let statement = self.statements.get(StatementId::JobHead)?;
        statement.query_row([id.0], |row| JobHead::read(id, row, names)).optional()
    }

    /// Keeps the list of deferred jobs: `head` is the job before a change, `next` where it waits afterwards, if it is deferred.
    pub(super) fn update_deferred(&self, head: &JobHead, next: Option<(&str, Time)>) -> rusqlite::Result<()> {
        let was_deferred = matches!(head.guard.state, JobState::Retrying | JobState::Waiting);
        match next {
            Some((destination, due_at)) => self.cached(include_str!("sql/insert_deferred.sql"))?.execute(params![
                head.id.0,
                destination,
                head.total.worker.as_ref(),
                head.entity,
                due_at.0
            ])?,
            None if was_deferred => self.cached(include_str!("sql/delete_deferred.sql"))?.execute([head.id.0])?,
            None => 0,
        };
        Ok(())
    }

    /// Counts a job under another kind, and its end.
    pub(super) fn move_total(&mut self, head: &JobHead, to: TotalRef<'_>) {
        self.totals.remove(head.total.as_ref());
        self.totals.add(to);
        if let Some(measure) = Measure::of_job_end(to.state, head.replays) {
            self.counts.add(measure, to.worker, to.state.as_str());
        }
    }

    /// The key of a contact, or the tenant's if there is none.
    pub(super) fn sealer(&self, contact: Option<i64>) -> rusqlite::Result<Sealer> {
        let found = match contact {
            Some(id) => {
                self.key_store.contact(self.connection, Some(&self.key_changes), id)?.map(|contact| (id, contact))
            }
            None => None,
        };
        Ok(match found {
            Some((id, contact)) => Sealer { id: KeyId::Contact(id), key: contact.key },
            None => self.key_store.tenant(&self.key_changes),
        })
    }

    /// Reads within the transaction.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader {
            connection: self.connection,
            key_store: self.key_store,
            changes: Some(&self.key_changes),
            search_max: SEARCH_MAX,
        }
    }
}

impl JobHead {
    fn read(id: JobId, row: &Row<'_>, names: &mut Names) -> rusqlite::Result<JobHead> {
        let mut name = |column: usize| -> rusqlite::Result<Arc<str>> {
            let text = row.get_ref(column)?.as_str_or_null().map_err(|error| wrong(column, &error.to_string()))?;
            Ok(names.intern(text.unwrap_or_default()))
        };
        let state = JobState::from_code(row.get(1)?).ok_or_else(|| wrong(1, "unknown job state"))?;
        Ok(JobHead {
            id,
            contact: row.get(0)?,
            guard: JobGuard { state, attempts_total: row.get(2)?, term: Term(row.get(3)?) },
            total: TotalKey {
                state,
                worker: name(4)?,
                queue: name(5)?,
                revision: name(6)?,
                destination: name(7)?,
                dead_letter_queue: name(8)?,
                wait: name(17)?,
            },
            entity: row.get(9)?,
            created_at: row.get(11)?,
            effect_rows: row.get(12)?,
            attempt_rows: row.get(13)?,
            replays: row.get(18)?,
            result: row.get(14)?,
            identity: StableId { owner: row.get(15)?, index: row.get(16)? },
        })
    }

    pub(super) fn count_effect(&mut self) {
        self.effect_rows = self.effect_rows.map(|rows| rows + 1);
    }

    pub(super) fn count_attempt(&mut self) {
        self.attempt_rows = self.attempt_rows.map(|rows| rows + 1);
    }

    /// `None` for a job that is older than MACs.
    pub(super) fn mac(&self, key_store: &KeyStore) -> Option<Mac> {
        let columns = JobColumns {
            id: self.id.0,
            event: self.identity.owner,
            worker: &self.total.worker,
            queue: &self.total.queue,
            entity: self.entity,
            created_at: self.created_at,
            contact: self.contact,
            effect_rows: self.effect_rows?,
            attempt_rows: self.attempt_rows?,
            result: self.result.as_deref(),
        };
        Some(columns.mac(key_store))
    }
}
