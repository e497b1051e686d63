//! One operation, inside the transaction of its batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use sluice_domain::event::EventId;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::time::Time;

use super::keys::{Keys, prefix};
use super::row;
use crate::op::{Accepted, Begin, DropJobs, Duplicate, Op, Prune, Replay, Reply, Resolve, Settlement, Verdict};
use crate::record::{AttemptKind, EventRecord, Fresh, JobRecord, NewEvent, Tally};

/// The next free numbers. Reset when a batch is rolled back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    pub next_ord: i64,
    pub next_job: i64,
}

/// A batch under way.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub connection: &'a Connection,
    pub keys: &'a mut Keys,
    pub counters: &'a mut Counters,
    pub now: Time,
    /// Jobs that become runnable with the commit.
    pub fresh: Vec<Fresh>,
    /// Keys that found an owner, in case of a roll-back.
    pub taken: Vec<(u64, i64)>,
    pub tallies: BTreeMap<Arc<str>, Tally>,
}

fn json_text<T: Serialize>(value: &Option<T>) -> Option<String> {
    value.as_ref().map(|value| serde_json::to_string(value).expect("plain data has a JSON form"))
}

impl Batch<'_> {
    pub fn apply(&mut self, op: &Op) -> rusqlite::Result<Reply> {
        match op {
            Op::Accept(event) => self.accept(event),
            Op::Begin(begin) => self.begin(begin),
            Op::Settle(settlement) => self.settle(settlement),
            Op::Replay(replay) => self.replay(replay),
            Op::Resolve(resolve) => self.resolve(resolve),
            Op::Drop(drop) => self.drop_jobs(drop),
            Op::Pause { target, actor, reason, at } => {
                self.cached(include_str!("sql/upsert_pause.sql"))?.execute(params![target, at.0, actor, reason])?;
                self.audit(*at, actor, "pause", target, reason)?;
                Ok(Reply::Done)
            }
            Op::Resume { target, actor, at } => {
                self.cached(include_str!("sql/delete_pause.sql"))?.execute([target])?;
                self.audit(*at, actor, "resume", target, "")?;
                Ok(Reply::Done)
            }
            Op::Revision { hash, files, actor, at } => {
                let new = self
                    .cached(include_str!("sql/insert_revision.sql"))?
                    .execute(params![hash.as_ref(), at.0, actor, files])?;
                if new > 0 {
                    self.audit(*at, actor, "configure", hash, "")?;
                }
                Ok(Reply::Done)
            }
            Op::Audit { at, actor, action, object, detail } => {
                self.audit(*at, actor, action, object, detail)?;
                Ok(Reply::Done)
            }
            Op::Prune(prune) => self.prune(prune),
            Op::Find(id) => self.keys.candidates(self.connection, prefix(&id.0)).map(Reply::Candidates),
            Op::Close => Ok(Reply::Done),
        }
    }

    /// Writes the counts of the batch: one row for each source instead of one for each event.
    pub fn finish(&mut self) -> rusqlite::Result<()> {
        for (_, tally) in std::mem::take(&mut self.tallies) {
            let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            self.cached(include_str!("sql/add_tally.sql"))?.execute(params![
                tally.day,
                tally.source,
                count(tally.accepted),
                count(tally.duplicates),
                count(tally.clashes)
            ])?;
        }
        Ok(())
    }

    fn cached(&self, sql: &str) -> rusqlite::Result<rusqlite::CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }

    fn audit(&self, at: Time, actor: &str, action: &str, object: &str, detail: &str) -> rusqlite::Result<()> {
        self.cached(include_str!("sql/insert_audit.sql"))?.execute(params![at.0, actor, action, object, detail])?;
        Ok(())
    }

    fn tally(&mut self, source: &Arc<str>) -> &mut Tally {
        let now = self.now;
        self.tallies.entry(source.clone()).or_insert_with(|| Tally {
            day: now.to_jiff().strftime("%Y-%m-%d").to_string(),
            source: source.to_string(),
            ..Tally::default()
        })
    }

    fn accept(&mut self, event: &NewEvent) -> rusqlite::Result<Reply> {
        let key_prefix = prefix(&event.key.0);
        let mut generation = 0;
        for ord in self.keys.candidates(self.connection, key_prefix)?.into_iter().rev() {
            let owner = self
                .cached(include_str!("sql/event_key.sql"))?
                .query_row([ord], |row| {
                    Ok((row.get::<_, [u8; 16]>(1)?, row.get::<_, u32>(2)?, row.get::<_, i64>(3)?, row.get::<_, [u8; 16]>(4)?))
                })
                .optional()?;
            let Some((key, owner_generation, expires_at, fingerprint)) = owner else { continue };
            if key != event.key.0 {
                continue;
            }
            if expires_at <= event.received_at.0 {
                generation = owner_generation + 1;
                break;
            }
            return self.duplicate(event, ord, fingerprint != event.fingerprint);
        }
        self.take_in(event, key_prefix, generation)
    }

    fn duplicate(&mut self, event: &NewEvent, ord: i64, clash: bool) -> rusqlite::Result<Reply> {
        let first = self.cached(include_str!("sql/event.sql"))?.query_row([ord], row::event)?;
        let jobs = self.jobs_of(&first)?;
        let tally = self.tally(&event.source);
        tally.duplicates += 1;
        tally.clashes += u64::from(clash);
        Ok(Reply::Duplicate(Duplicate {
            id: first.id,
            key_text: first.key_text,
            received_at: first.received_at,
            clash,
            jobs,
        }))
    }

    fn jobs_of(&self, event: &EventRecord) -> rusqlite::Result<Vec<JobRecord>> {
        self.cached(include_str!("sql/jobs_of_event.sql"))?
            .query_map([event.first_job.0, event.first_job.0 + i64::from(event.jobs)], row::job)?
            .collect()
    }

    fn take_in(&mut self, event: &NewEvent, key_prefix: u64, generation: u32) -> rusqlite::Result<Reply> {
        let ord = self.counters.next_ord;
        let first_job = self.counters.next_job;
        let id = EventId::new(event.key, generation);
        let jobs = u32::try_from(event.jobs.len()).unwrap_or(u32::MAX);
        self.cached(include_str!("sql/insert_event.sql"))?.execute(params![
            ord,
            id.0,
            event.key.0,
            generation,
            event.key_text,
            event.flow.as_ref(),
            event.source.as_ref(),
            event.event_type,
            event.received_at.0,
            self.now.0,
            event.occurred_at.map(|at| at.0),
            event.expires_at.0,
            event.revision.as_ref(),
            event.verified_by,
            event.trace,
            event.fingerprint,
            first_job,
            jobs
        ])?;
        self.cached(include_str!("sql/insert_event_body.sql"))?.execute(params![
            ord,
            event.body.headers,
            event.body.raw,
            event.body.normalized
        ])?;
        for (offset, job) in event.jobs.iter().enumerate() {
            self.cached(include_str!("sql/insert_job.sql"))?.execute(params![
                first_job + i64::try_from(offset).unwrap_or(0),
                ord,
                job.worker.as_ref(),
                job.queue.as_ref(),
                event.revision.as_ref(),
                event.entity as i64,
                self.now.0
            ])?;
        }
        self.counters.next_ord += 1;
        self.counters.next_job += i64::from(jobs);
        self.take_key(key_prefix, ord);
        if id.0 != event.key.0 {
            // A later generation has a name of its own, by which it must be found too.
            self.take_key(prefix(&id.0), ord);
        }
        self.tally(&event.source).accepted += 1;
        self.announce(event, ord, id, generation, JobId(first_job));
        Ok(Reply::Accepted(Accepted { ord, id }))
    }

    fn take_key(&mut self, key_prefix: u64, ord: i64) {
        self.keys.insert(key_prefix, ord);
        self.taken.push((key_prefix, ord));
    }

    fn announce(&mut self, event: &NewEvent, ord: i64, id: EventId, generation: u32, first_job: JobId) {
        let record = Arc::new(EventRecord {
            ord,
            id,
            generation,
            key_text: event.key_text.clone(),
            flow: event.flow.to_string(),
            source: event.source.to_string(),
            event_type: event.event_type.clone(),
            received_at: event.received_at,
            persisted_at: self.now,
            occurred_at: event.occurred_at,
            expires_at: event.expires_at,
            revision: event.revision.to_string(),
            verified_by: event.verified_by.clone(),
            trace: event.trace.clone(),
            first_job,
            jobs: u32::try_from(event.jobs.len()).unwrap_or(u32::MAX),
        });
        for (offset, job) in (0..).zip(&event.jobs) {
            self.fresh.push(Fresh {
                job: JobRecord {
                    id: JobId(first_job.0 + offset),
                    ord,
                    worker: job.worker.clone(),
                    queue: job.queue.clone(),
                    revision: event.revision.clone(),
                    entity: event.entity,
                    state: JobState::Queued,
                    step: 0,
                    attempts: 0,
                    tries: 0,
                    due_at: self.now,
                    verifying: false,
                    created_at: self.now,
                    updated_at: self.now,
                    finished_at: None,
                    replays: 0,
                    failure: None,
                    dead_letter_queue: None,
                    result: None,
                },
                event: record.clone(),
                body: event.body.clone(),
            });
        }
    }

    fn begin(&mut self, begin: &Begin) -> rusqlite::Result<Reply> {
        let current = self.cached(include_str!("sql/begin_job.sql"))?.execute(params![begin.job.0, begin.n, begin.at.0])?;
        if current == 0 {
            return Ok(Reply::Stale);
        }
        let written = self.cached(include_str!("sql/begin_effect.sql"))?.execute(params![
            begin.job.0,
            begin.step,
            begin.step_id.as_ref(),
            begin.key.0,
            begin.action,
            begin.destination.as_ref(),
            begin.class.as_str(),
            begin.at.0,
            begin.n
        ])?;
        if written > 0 {
            return Ok(Reply::Begun);
        }
        // Another revision may have given its step another place, under which it is settled.
        self.cached(include_str!("sql/place_effect.sql"))?.execute(params![begin.job.0, begin.key.0, begin.step, begin.n])?;
        Ok(Reply::AlreadyApplied)
    }

    fn settle(&mut self, settlement: &Settlement) -> rusqlite::Result<Reply> {
        let next = &settlement.next;
        let finished_at = (!next.state.is_live()).then_some(settlement.at.0);
        let current = self.cached(include_str!("sql/settle_job.sql"))?.execute(params![
            settlement.job.0,
            settlement.n,
            next.state.code(),
            next.step,
            next.attempts,
            next.due_at.0,
            next.verifying,
            json_text(&next.failure),
            next.dead_letter_queue,
            json_text(&next.result),
            settlement.at.0,
            finished_at
        ])?;
        if current == 0 {
            return Ok(Reply::Stale);
        }
        if let Some(effect) = &settlement.effect {
            self.cached(include_str!("sql/settle_effect.sql"))?.execute(params![
                settlement.job.0,
                effect.step,
                effect.state.as_str(),
                json_text(&effect.result),
                effect.absent_reads,
                effect.reads,
                settlement.at.0
            ])?;
        }
        if let Some(attempt) = &settlement.attempt {
            let kind = match attempt.kind {
                AttemptKind::Call => "call",
                AttemptKind::Read => "read",
            };
            self.cached(include_str!("sql/insert_attempt.sql"))?.execute(params![
                settlement.job.0,
                settlement.n,
                attempt.step_id.as_ref(),
                kind,
                attempt.started_at.0,
                settlement.at.0,
                attempt.outcome,
                json_text(&attempt.failure)
            ])?;
        }
        Ok(Reply::Settled)
    }

    fn replay(&mut self, replay: &Replay) -> rusqlite::Result<Reply> {
        let mut changed = Vec::new();
        for job in &replay.jobs {
            let worker: Option<String> = self
                .cached(include_str!("sql/replay_job.sql"))?
                .query_row(params![job.0, replay.at.0, replay.revision.as_deref()], |row| row.get(0))
                .optional()?;
            if let Some(worker) = worker {
                self.audit(replay.at, &replay.actor, "replay", &job.to_string(), &replay.reason)?;
                changed.push((*job, Arc::from(worker)));
            }
        }
        Ok(Reply::Jobs(changed))
    }

    fn resolve(&mut self, resolve: &Resolve) -> rusqlite::Result<Reply> {
        let (state, steps, word) = match resolve.verdict {
            Verdict::Happened => ("applied", 1, "happened"),
            Verdict::DidNotHappen => ("not_applied", 0, "did not happen"),
        };
        let worker: Option<String> = self
            .cached(include_str!("sql/resolve_job.sql"))?
            .query_row(params![resolve.job.0, steps, resolve.at.0], |row| row.get(0))
            .optional()?;
        let Some(worker) = worker else { return Ok(Reply::Jobs(vec![])) };
        self.cached(include_str!("sql/resolve_effect.sql"))?.execute(params![resolve.job.0, state, resolve.at.0])?;
        let detail = format!("{word}: {}", resolve.reason);
        self.audit(resolve.at, &resolve.actor, "resolve", &resolve.job.to_string(), &detail)?;
        Ok(Reply::Jobs(vec![(resolve.job, Arc::from(worker))]))
    }

    fn drop_jobs(&mut self, drop: &DropJobs) -> rusqlite::Result<Reply> {
        let mut changed = Vec::new();
        for job in &drop.jobs {
            let worker: Option<String> = self
                .cached(include_str!("sql/drop_job.sql"))?
                .query_row(params![job.0, drop.at.0], |row| row.get(0))
                .optional()?;
            if let Some(worker) = worker {
                self.audit(drop.at, &drop.actor, "drop", &job.to_string(), &drop.reason)?;
                changed.push((*job, Arc::from(worker)));
            }
        }
        Ok(Reply::Jobs(changed))
    }

    fn prune(&mut self, prune: &Prune) -> rusqlite::Result<Reply> {
        let limit = prune.rows_max as usize;
        let mut bodies = Vec::new();
        let mut statement = self.cached(include_str!("sql/prunable_bodies.sql"))?;
        let mut rows = statement.query([])?;
        // Events lie in the order in which they became durable, so the first young one ends the search.
        while bodies.len() < limit
            && let Some(row) = rows.next()?
            && row.get::<_, i64>(1)? < prune.bodies_before.0
        {
            if !row.get::<_, bool>(2)? {
                bodies.push(row.get::<_, i64>(0)?);
            }
        }
        drop(rows);
        drop(statement);
        for ord in &bodies {
            self.cached(include_str!("sql/delete_event_body.sql"))?.execute([ord])?;
        }
        let events = self.prune_events(prune)?;
        Ok(Reply::Pruned { rows: (bodies.len() + events) as u64, more: bodies.len() >= limit || events >= limit })
    }

    fn prune_events(&mut self, prune: &Prune) -> rusqlite::Result<usize> {
        let mut events: Vec<(i64, i64, i64)> = Vec::new();
        let mut statement = self.cached(include_str!("sql/prunable_events.sql"))?;
        let mut rows = statement.query([prune.at.0])?;
        while events.len() < prune.rows_max as usize
            && let Some(row) = rows.next()?
            && row.get::<_, i64>(1)? < prune.events_before.0
        {
            if !row.get::<_, bool>(2)? {
                events.push((row.get(0)?, row.get(3)?, row.get::<_, i64>(3)? + row.get::<_, i64>(4)?));
            }
        }
        drop(rows);
        drop(statement);
        for (ord, first_job, upto) in &events {
            self.cached(include_str!("sql/delete_event.sql"))?.execute([ord])?;
            self.cached(include_str!("sql/delete_event_body.sql"))?.execute([ord])?;
            self.cached(include_str!("sql/delete_jobs.sql"))?.execute([first_job, upto])?;
            self.cached(include_str!("sql/delete_effects.sql"))?.execute([first_job, upto])?;
            self.cached(include_str!("sql/delete_attempts.sql"))?.execute([first_job, upto])?;
        }
        if let Some((last_ord, _, upto)) = events.last() {
            // Were the newest of all to go, a restart would give their numbers out again.
            self.cached(include_str!("sql/keep_last.sql"))?.execute([*last_ord, upto - 1])?;
            self.keys.note_pruned();
        }
        Ok(events.len())
    }
}
