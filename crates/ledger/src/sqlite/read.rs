//! The read verbs on a snapshot. Sealed values are opened on the way out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{OptionalExtension, params};
use sluice_domain::duplicate_stats::DuplicateStats;
use sluice_domain::event::{LossCode, MappingWarning};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::ledger_clock::Steady;
use sluice_domain::time::Time;
use sluice_domain::wait::WaitReason;

use super::backlog::json_array;
use super::read_pool::{ReadPool, Reader};
use super::row::wrong;
use super::writer::read_change_seq;
use crate::read_store::prelude::*;
use crate::read_store::{ReadStore, read_verbs};

/// Jobs of one kind among which the oldest is looked for, in the order of their numbers: one that was replayed is younger than its number
/// says. A look must not read every job.
const OLDEST_OF: u32 = 200;

/// Runs each verb on a connection of its own, off the async threads.
macro_rules! read_on_pool {
    ($($(#[$doc:meta])* $verb:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        impl ReadStore for ReadPool {
            $(async fn $verb(&self, $($argument: $type),*) -> Result<$output, Error> {
                self.read(move |reader| reader.$verb($(&$argument),*)).await
            })*
        }
    };
}

read_verbs!(read_on_pool);

impl Reader<'_> {
    fn event_count(&self) -> rusqlite::Result<u64> {
        self.query_row(include_str!("sql/event_count.sql"), [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
    }

    fn pruned_totals(&self) -> rusqlite::Result<BTreeMap<String, u64>> {
        pruned_totals(self)
    }

    fn next_straggler(&self) -> rusqlite::Result<Option<Time>> {
        self.query_row(include_str!("sql/next_straggler.sql"), [], |row| {
            row.get::<_, Option<i64>>(0).map(|at| at.map(Time))
        })
    }

    fn clock(&self) -> rusqlite::Result<Option<ClockRecord>> {
        let newest: Option<i64> =
            self.query_row(include_str!("sql/newest_event_time.sql"), [], |row| row.get(0)).optional()?;
        let record = |row: &rusqlite::Row<'_>| {
            let millis = |column| row.get::<_, i64>(column).map(|ms| Duration::from_millis(ms.unsigned_abs()));
            Ok(ClockRecord {
                time: Time(row.get(0)?),
                steady: Steady { boot: row.get::<_, i64>(1)?.cast_unsigned(), elapsed: millis(2)? },
                allowance: millis(3)?,
                uncounted: millis(4)?,
                ahead: millis(5)?,
                scheduled: Time(row.get(6)?),
                scheduled_at_boot: Time(row.get(7)?),
            }
            .continued_from(Time(newest.unwrap_or(i64::MIN))))
        };
        self.query_row(include_str!("sql/clock.sql"), [], record).optional()
    }

    fn events(&self, seqs: &[EventSeq]) -> rusqlite::Result<Vec<(EventRecord, Option<EventBody>)>> {
        let mut found = Vec::with_capacity(seqs.len());
        for seq in seqs {
            let event = self
                .prepare_cached(include_str!("sql/event.sql"))?
                .query_row([seq], |row| self.event_row(row))
                .optional()?;
            if let Some(event) = event {
                let body = self.body(*seq)?;
                found.push((event, body));
            }
        }
        Ok(found)
    }

    pub(crate) fn body(&self, seq: EventSeq) -> rusqlite::Result<Option<EventBody>> {
        let mut statement = self.prepare_cached(include_str!("sql/event_body.sql"))?;
        statement.query_row([seq], |row| self.body_row(row)).optional()
    }

    fn events_after(&self, query: &StoredQuery) -> rusqlite::Result<Vec<StoredEvent>> {
        let mut statement = self.prepare_cached(include_str!("sql/events_after.sql"))?;
        let events = statement.query_map([query.after, i64::from(query.limit)], |row| self.event_row(row))?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        for event in events {
            let event = event?;
            let body = self.body(event.seq)?;
            let mut dropped = self.variants(&event.seq)?.kept;
            dropped.retain(|variant| variant.event.is_none());
            let stored = StoredEvent { event, body, dropped };
            bytes += stored.body_bytes();
            found.push(stored);
            if bytes > query.body_bytes_max {
                break;
            }
        }
        Ok(found)
    }

    /// Times ascend with sequence numbers, so the first event is found by bisection.
    fn event_span(&self, since: &Time) -> rusqlite::Result<Option<(EventSeq, EventSeq)>> {
        let (first, last) = self.bisect_events(include_str!("sql/event_time_from.sql"), *since)?;
        Ok((first <= last).then_some((first, last)))
    }

    fn variants(&self, event: &EventSeq) -> rusqlite::Result<Variants> {
        let mut statement = self.prepare_cached(include_str!("sql/variants.sql"))?;
        let mut rows = statement.query([event])?;
        let mut variants = Variants::default();
        while let Some(row) = rows.next()? {
            let became: Option<EventSeq> = row.get(5)?;
            let body = match became {
                Some(event) => self.body(event)?,
                None => self.variant_body_row(*event, row)?,
            };
            variants.further += row.get::<_, i64>(4)?.unsigned_abs();
            variants.kept.push(VariantRecord {
                received_at: Time(row.get(1)?),
                fingerprint: row.get(2)?,
                times: row.get::<_, i64>(3)?.unsigned_abs(),
                event: became,
                body,
            });
        }
        Ok(variants)
    }

    fn duplicate_stats(&self, source: &str) -> rusqlite::Result<DuplicateStats> {
        let mut counts = [BTreeMap::new(), BTreeMap::new()];
        let mut statement = self.prepare_cached(include_str!("sql/lateness.sql"))?;
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

    fn mapping_warnings(&self, source: &str) -> rusqlite::Result<Vec<MappingWarningCount>> {
        let mut statement = self.prepare_cached(include_str!("sql/mapping_warnings.sql"))?;
        let rows = statement.query_map([source], |row| {
            let code: String = row.get(1)?;
            Ok(LossCode::parse(&code).map(|code| (code, row.get(0), row.get::<_, i64>(2), row.get(3))))
        })?;
        let mut counts = Vec::new();
        for row in rows {
            if let Some((code, field, count, last_at)) = row? {
                let warning = MappingWarning { field: field?, code };
                counts.push(MappingWarningCount { warning, count: count?.unsigned_abs(), last_at: Time(last_at?) });
            }
        }
        Ok(counts)
    }

    pub(crate) fn job(&self, id: &JobId) -> rusqlite::Result<Option<JobRecord>> {
        self.prepare_cached(include_str!("sql/job.sql"))?.query_row([id.0], |row| self.job_row(row)).optional()
    }

    fn jobs(&self, ids: &[JobId]) -> rusqlite::Result<Vec<JobRecord>> {
        let mut jobs: Vec<JobRecord> = self
            .prepare_cached(include_str!("sql/load_jobs.sql"))?
            .query_map([json_array(ids.iter().map(|id| id.0))], |row| self.job_row(row))?
            .collect::<rusqlite::Result<_>>()?;
        jobs.sort_by_key(|job| job.id);
        Ok(jobs)
    }

    pub(crate) fn jobs_of_event(&self, event: &EventRecord) -> rusqlite::Result<Vec<JobRecord>> {
        self.prepare_cached(include_str!("sql/jobs_of_event.sql"))?
            .query_map([event.first_job.0, event.first_job.0 + i64::from(event.jobs)], |row| self.job_row(row))?
            .collect()
    }

    pub(super) fn effects(&self, job: &JobId) -> rusqlite::Result<Vec<EffectRecord>> {
        self.prepare_cached(include_str!("sql/effects.sql"))?.query_map([job.0], |row| self.effect_row(row))?.collect()
    }

    fn attempts(&self, job: &JobId) -> rusqlite::Result<Vec<AttemptRecord>> {
        self.prepare_cached(include_str!("sql/attempts.sql"))?
            .query_map([job.0], |row| self.attempt_row(row))?
            .collect()
    }

    fn dead_reasons(&self, since: &Time, limit: &u32) -> rusqlite::Result<Vec<Reason>> {
        let mut statement = self.prepare_cached(include_str!("sql/dead_reasons.sql"))?;
        let mut rows = statement.query([since.0, i64::from(*limit)])?;
        let mut reasons = Vec::new();
        while let Some(row) = rows.next()? {
            let newest = JobId(row.get(4)?);
            reasons.push(Reason {
                class: row.get(0)?,
                code: row.get(1)?,
                message: self.message_of(newest)?,
                count: row.get::<_, i64>(2)?.unsigned_abs(),
                last_at: Time(row.get(3)?),
            });
        }
        Ok(reasons)
    }

    fn pauses(&self) -> rusqlite::Result<Vec<PauseRecord>> {
        self.prepare_cached(include_str!("sql/pauses.sql"))?
            .query_map([], |row| {
                Ok(PauseRecord { target: row.get(0)?, at: Time(row.get(1)?), actor: row.get(2)?, reason: row.get(3)? })
            })?
            .collect()
    }

    fn revision(&self, hash: &str) -> rusqlite::Result<Option<String>> {
        self.prepare_cached(include_str!("sql/revision.sql"))?.query_row([hash], |row| row.get(0)).optional()
    }

    fn revision_history(&self, page: &Page) -> rusqlite::Result<Vec<RevisionRecord>> {
        self.prepare_cached(include_str!("sql/list_configured.sql"))?
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

    fn audit_entries(&self, filter: &AuditFilter, page: &Page) -> rusqlite::Result<ListPage<AuditRecord>> {
        let end: i64 = self.query_row(include_str!("sql/audit_end.sql"), [], |row| row.get(0))?;
        let (first, before) = filter.window(*page, end);
        let AuditFilter { actor, action, object, since, until } = filter;
        let (since, until) = (since.map(|at| at.0), until.map(|at| at.0));
        let entry = |row: &rusqlite::Row<'_>| {
            Ok(AuditRecord {
                id: row.get(0)?,
                at: Time(row.get(1)?),
                actor: row.get(2)?,
                action: row.get(3)?,
                object: row.get(4)?,
                detail: row.get(5)?,
            })
        };
        let entries = self
            .prepare_cached(include_str!("sql/list_audit.sql"))?
            .query_map(rusqlite::params![before, first, actor, action, object, since, until, page.limit], entry)?
            .collect::<rusqlite::Result<_>>()?;
        let older = include_str!("sql/audit_before.sql");
        let is_more = self.prepare_cached(older)?.query_row(rusqlite::params![first, since], |row| row.get(0))?;
        let time = include_str!("sql/audit_time_from.sql");
        let scanned_to = self.prepare_cached(time)?.query_row([first], |row| row.get(0).map(Time)).optional()?;
        Ok(filter.found(entries, *page, (first, scanned_to.filter(|_| is_more))))
    }

    fn balance_start(&self, day: &Time) -> rusqlite::Result<(Vec<SourceDayCounts>, Range<EventSeq>)> {
        let counts = self.source_day_counts(&day.to_jiff().strftime("%Y-%m-%d").to_string())?;
        Ok((counts, self.stored_within(&(*day..Time(i64::MAX)))?))
    }

    fn balance_part(&self, after: &EventSeq, limit: &u32) -> rusqlite::Result<BalancePart> {
        let last: Option<i64> = self.query_row(include_str!("sql/event_ends.sql"), [], |row| row.get(1))?;
        let until = (after + i64::from(*limit)).min(last.unwrap_or(0).max(*after));
        let mut part = BalancePart { looked_until: until, ..BalancePart::default() };
        let mut statement = self.prepare_cached(include_str!("sql/balance_part.sql"))?;
        let mut rows = statement.query([*after, until])?;
        while let Some(row) = rows.next()? {
            let outcome = match row.get::<_, i64>(2)? {
                6 => BalanceOutcome::Dead,
                5 => BalanceOutcome::Unknown,
                4 => BalanceOutcome::Waiting,
                3 => BalanceOutcome::Dropped,
                2 => BalanceOutcome::Done,
                _ => BalanceOutcome::Noop,
            };
            let count = row.get::<_, i64>(3)?.unsigned_abs();
            *part.counts.entry((row.get(0)?, row.get(1)?, outcome)).or_default() += count;
        }
        Ok(part)
    }

    fn source_day_counts(&self, since_day: &str) -> rusqlite::Result<Vec<SourceDayCounts>> {
        self.prepare_cached(include_str!("sql/source_day_counts.sql"))?
            .query_map([since_day], |row| {
                let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
                Ok(SourceDayCounts {
                    day: row.get(0)?,
                    source: row.get(1)?,
                    accepted: count(2)?,
                    duplicates: count(3)?,
                    clashes: count(4)?,
                    by_content: count(5)?,
                    pruned: count(6)?,
                })
            })?
            .collect()
    }

    fn change_seq(&self) -> rusqlite::Result<u64> {
        read_change_seq(self)
    }

    fn keys(&self) -> rusqlite::Result<KeysRecord> {
        self.key_store.describe(self)
    }

    pub(crate) fn live_lanes(&self) -> rusqlite::Result<Vec<LiveLane>> {
        self.prepare_cached(include_str!("sql/live_lanes.sql"))?
            .query_map([], |row| Ok(LiveLane { worker: row.get(0)?, destination: row.get(1)? }))?
            .collect()
    }

    pub(crate) fn job_totals(&self) -> rusqlite::Result<Vec<JobTotal>> {
        self.prepare_cached(include_str!("sql/job_totals.sql"))?
            .query_map([], |row| {
                Ok(JobTotal {
                    worker: row.get(0)?,
                    destination: row.get(1)?,
                    state: JobState::from_code(row.get(2)?).ok_or_else(|| wrong(2, "unknown job state"))?,
                    dead_letter_queue: row.get::<_, Option<Arc<str>>>(3)?.filter(|queue| !queue.is_empty()),
                    wait: WaitReason::parse(row.get_ref(4)?.as_str()?),
                    count: row.get::<_, i64>(5)?.unsigned_abs(),
                })
            })?
            .collect()
    }

    fn oldest_jobs(&self) -> rusqlite::Result<OldestJobs> {
        let (mut ready, mut waiting, mut dead) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for total in self.job_totals()? {
            match total.state {
                JobState::Queued | JobState::Running => drop(ready.insert((total.worker, total.destination))),
                JobState::Dead | JobState::Unknown => drop(dead.insert(total.dead_letter_queue)),
                state if state.is_live() => drop(waiting.insert(total.worker)),
                _ => {}
            }
        }
        let (mut live, mut dead_letters) = (BTreeMap::new(), BTreeMap::new());
        for (worker, destination) in ready {
            let of = params![destination.as_ref(), worker.as_ref(), OLDEST_OF];
            let oldest = self.oldest(include_str!("sql/oldest_ready.sql"), of)?;
            oldest.into_iter().for_each(|oldest| keep_oldest(&mut live, worker.clone(), oldest));
        }
        for worker in waiting {
            let oldest = self.oldest(include_str!("sql/oldest_waiting.sql"), params![worker.as_ref(), OLDEST_OF])?;
            oldest.into_iter().for_each(|oldest| keep_oldest(&mut live, worker.clone(), oldest));
        }
        for queue in dead {
            let oldest =
                self.oldest(include_str!("sql/oldest_dead_letter.sql"), params![queue.as_deref(), OLDEST_OF])?;
            oldest.into_iter().for_each(|oldest| keep_oldest(&mut dead_letters, queue.clone(), oldest));
        }
        Ok(OldestJobs { live: live.into_iter().collect(), dead_letters: dead_letters.into_iter().collect() })
    }

    /// `None` if there is no such job any more.
    fn oldest(&self, sql: &str, of: impl rusqlite::Params) -> rusqlite::Result<Option<Time>> {
        let oldest = self.prepare_cached(sql)?.query_row(of, |row| row.get::<_, Option<i64>>(0))?;
        Ok(oldest.map(Time))
    }

    fn pinned(&self) -> rusqlite::Result<Vec<PinnedRecord>> {
        self.prepare_cached(include_str!("sql/pinned.sql"))?
            .query_map([], |row| {
                Ok(PinnedRecord {
                    revision: row.get(0)?,
                    worker: row.get(1)?,
                    queue: row.get(2)?,
                    dead_letter_queue: row.get::<_, Option<String>>(3)?.filter(|queue| !queue.is_empty()),
                    live: row.get::<_, i64>(4)?.unsigned_abs(),
                    parked: row.get::<_, i64>(5)?.unsigned_abs(),
                })
            })?
            .collect()
    }
}

/// Rows that retention has deleted, by kind.
pub(super) fn pruned_totals(connection: &rusqlite::Connection) -> rusqlite::Result<BTreeMap<String, u64>> {
    let mut statement = connection.prepare_cached(include_str!("sql/pruned_totals.sql"))?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?;
    rows.collect()
}

fn keep_oldest<K: Ord>(times: &mut BTreeMap<K, Time>, key: K, time: Time) {
    let oldest = times.entry(key).or_insert(time);
    *oldest = time.min(*oldest);
}
