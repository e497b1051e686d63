//! One operation, inside the transaction of its batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use sluice_domain::job::EffectState;
use sluice_domain::outcome::Failure;
use sluice_domain::time::Time;

use super::content_cache::{ContentCache, Undo};
use super::key_index::{KeyIndex, prefix};
use super::key_store::{Changes, KeyStore, Sealer};
use super::new_jobs::InsertedEvent;
use super::read_pool::Reader;
use super::row::place;
use super::statements::{StatementId, Statements};
use crate::op::{
    AttemptSettlement, Begin, DropJobs, EffectSettlement, NewRevision, Op, Replay, Reply, Resolution, Resolve, Rotate,
    Rotation, Settlement,
};
use crate::record::{AttemptKind, SourceDayCounts};
use crate::seal::{KeyId, SealContext};

/// The next free numbers. Reset when a batch is rolled back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    pub next_ord: i64,
    pub next_job: i64,
    pub next_contact: i64,
}

/// A batch under way.
#[derive(Debug)]
pub(super) struct Batch<'a, 'c> {
    pub connection: &'a Connection,
    pub often: &'a mut Statements<'c>,
    pub vault: &'a KeyStore,
    /// What this batch does to the keys that seal.
    pub key_changes: Changes,
    pub keys: &'a mut KeyIndex,
    pub contacts: &'a mut KeyIndex,
    pub counters: &'a mut Counters,
    pub now: Time,
    /// Events that come in with the commit, but for those that wait for a person.
    pub let_in: Vec<InsertedEvent>,
    /// Keys that found an owner, in case of a roll-back.
    pub taken: Vec<(u64, i64)>,
    /// The same of contacts.
    pub contacts_taken: Vec<(u64, i64)>,
    pub net: &'a mut ContentCache,
    /// Contents that are remembered, in case of a roll-back.
    pub remembered: Vec<Undo>,
    pub tallies: BTreeMap<Arc<str>, SourceDayCounts>,
    /// How many repeats of a source came so late, by bucket.
    pub lateness: BTreeMap<(Arc<str>, Lateness, u32), i64>,
}

/// When a repeat came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lateness {
    /// While its key was remembered.
    Within = 0,
    /// When its key had expired.
    AfterExpiry = 1,
}

/// What of a failure is kept in the clear, and its message, sealed.
pub(super) fn sealed_failure(
    sealer: &Sealer,
    place: SealContext<'_>,
    failure: Option<&Failure>,
) -> (Option<String>, Option<Vec<u8>>) {
    let Some(failure) = failure else { return (None, None) };
    let message = sealer.seal(place, &[failure.message.as_bytes()]);
    let rest = Failure { message: String::new(), code: failure.code.clone(), ..*failure };
    (Some(serde_json::to_string(&rest).expect("plain data has a JSON form")), Some(message))
}

pub(super) fn sealed_json(sealer: &Sealer, place: SealContext<'_>, value: Option<&Value>) -> Option<Vec<u8>> {
    value.map(|value| {
        let text = serde_json::to_vec(value).expect("a value has a JSON form");
        sealer.seal(place, &[&text])
    })
}

impl Batch<'_, '_> {
    pub fn apply(&mut self, op: &Op) -> rusqlite::Result<Reply> {
        match op {
            Op::Accept(event) => self.accept(event).map(Reply::from),
            Op::AcceptAll(events) => {
                let accepted = events.iter().map(|event| self.accept(event)).collect::<rusqlite::Result<_>>()?;
                Ok(Reply::Acceptances(accepted))
            }
            Op::Begin(begin) => self.begin(begin),
            Op::Settle(settlement) => self.settle(settlement),
            Op::BeginAndSettle(attempt) => self.settle_at_once(&attempt.0, &attempt.1),
            Op::SettleWithBudget(within) => self.settle_within(&within.0, &within.1),
            Op::Schedule { worker, rule, at } => {
                let mut keep = self.cached(include_str!("sql/keep_schedule.sql"))?;
                keep.query_row(params![worker, rule, at.0], |row| Ok(Reply::Since(Time(row.get(0)?))))
            }
            Op::Note(note) => self.note(note),
            Op::Mark(mark) => self.mark(mark),
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
            Op::Revision(NewRevision { hash, files, actor, reason, at }) => {
                let hash = hash.as_ref();
                self.cached(include_str!("sql/insert_revision.sql"))?.execute(params![hash, at.0, actor, files])?;
                let changed = self
                    .cached(include_str!("sql/insert_configured.sql"))?
                    .execute(params![hash, at.0, actor, reason])?;
                if changed > 0 {
                    self.audit(*at, actor, "configure", hash, reason)?;
                }
                Ok(Reply::Done)
            }
            Op::Audit { at, actor, action, object, detail } => {
                self.audit(*at, actor, action, object, detail)?;
                Ok(Reply::Done)
            }
            Op::Guard(op) => self.guard(op).map(Reply::Guard),
            Op::Prune(prune) => self.prune(prune),
            Op::Find(id) => self.keys.candidates(self.connection, prefix(&id.0)).map(Reply::Candidates),
            Op::Rotate(rotate) => self.rotate(rotate),
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
                count(tally.clashes),
                count(tally.by_content)
            ])?;
        }
        for ((source, kind, bucket), count) in std::mem::take(&mut self.lateness) {
            self.cached(include_str!("sql/add_lateness.sql"))?.execute(params![
                source.as_ref(),
                kind as i64,
                bucket,
                count
            ])?;
        }
        Ok(())
    }

    pub fn cached(&self, sql: &str) -> rusqlite::Result<rusqlite::CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }

    pub fn audit(&self, at: Time, actor: &str, action: &str, object: &str, detail: &str) -> rusqlite::Result<()> {
        self.cached(include_str!("sql/insert_audit.sql"))?.execute(params![at.0, actor, action, object, detail])?;
        Ok(())
    }

    pub fn tally(&mut self, source: &Arc<str>) -> &mut SourceDayCounts {
        let now = self.now;
        self.tallies.entry(source.clone()).or_insert_with(|| SourceDayCounts {
            day: now.to_jiff().strftime("%Y-%m-%d").to_string(),
            source: source.to_string(),
            ..SourceDayCounts::default()
        })
    }

    pub fn begin(&mut self, begin: &Begin) -> rusqlite::Result<Reply> {
        let current =
            self.cached(include_str!("sql/begin_job.sql"))?.execute(params![begin.job.0, begin.n, begin.at.0])?;
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
        self.cached(include_str!("sql/place_effect.sql"))?.execute(params![
            begin.job.0,
            begin.key.0,
            begin.step,
            begin.n
        ])?;
        Ok(Reply::AlreadyApplied)
    }

    pub fn settle(&mut self, settlement: &Settlement) -> rusqlite::Result<Reply> {
        let Some(sealer) = self.sealer_of_job(settlement)? else { return Ok(Reply::Stale) };
        if !self.settle_job(settlement, settlement.n, &sealer)? {
            return Ok(Reply::Stale);
        }
        if let Some(effect) = &settlement.effect {
            self.settle_effect(settlement, effect, &sealer)?;
        }
        if let Some(attempt) = &settlement.attempt {
            self.insert_attempt(settlement, attempt, &sealer)?;
        }
        Ok(Reply::Settled)
    }

    /// Moves the job on, if `tries` is still the number of its last try that is written down.
    pub fn settle_job(&mut self, settlement: &Settlement, tries: u32, sealer: &Sealer) -> rusqlite::Result<bool> {
        let (next, job) = (&settlement.next, settlement.job.0);
        let finished_at = (!next.state.is_live()).then_some(settlement.at.0);
        let (failure, message) = sealed_failure(sealer, place::job_message(job), next.failure.as_ref());
        let current = self.often.get(StatementId::SettleJob)?.execute(params![
            job,
            settlement.n,
            next.state.code(),
            next.step,
            next.attempts,
            next.due_at.0,
            next.verifying,
            failure,
            next.dead_letter_queue,
            sealed_json(sealer, place::job_result(job), next.result.as_deref()),
            settlement.at.0,
            finished_at,
            message,
            tries
        ])?;
        Ok(current > 0)
    }

    fn settle_effect(
        &self,
        settlement: &Settlement,
        effect: &EffectSettlement,
        sealer: &Sealer,
    ) -> rusqlite::Result<()> {
        let job = settlement.job.0;
        let result = sealed_json(sealer, place::effect_result(job, &effect.key.0), effect.result.as_deref());
        self.cached(include_str!("sql/settle_effect.sql"))?.execute(params![
            job,
            effect.key.0,
            effect.state.as_str(),
            result,
            effect.absent_reads,
            effect.reads,
            settlement.at.0,
            effect.step
        ])?;
        if matches!(effect.state, EffectState::NotApplied | EffectState::Skipped) {
            self.give_back(effect.key)?;
        }
        Ok(())
    }

    pub fn insert_attempt(
        &mut self,
        settlement: &Settlement,
        attempt: &AttemptSettlement,
        sealer: &Sealer,
    ) -> rusqlite::Result<()> {
        let kind = match attempt.kind {
            AttemptKind::Call => "call",
            AttemptKind::Read => "read",
        };
        let part = place::attempt_part(settlement.n, attempt.started_at.0);
        let at = place::attempt_message(settlement.job.0, &part);
        let (failure, message) = sealed_failure(sealer, at, attempt.failure.as_ref());
        self.often.get(StatementId::InsertAttempt)?.execute(params![
            settlement.job.0,
            settlement.n,
            attempt.step_id.as_ref(),
            kind,
            attempt.started_at.0,
            settlement.at.0,
            attempt.outcome,
            failure,
            message
        ])?;
        Ok(())
    }

    /// What seals the results of a job: the key of its contact, or the tenant's. `None` if there is no such job.
    pub fn sealer_of_job(&mut self, settlement: &Settlement) -> rusqlite::Result<Option<Sealer>> {
        let contact = self.often.get(StatementId::JobContact)?;
        match contact.query_row([settlement.job.0], |row| row.get::<_, Option<i64>>(0)).optional()? {
            None => Ok(None),
            Some(contact) => self.sealer(contact).map(Some),
        }
    }

    /// The key of a contact; the tenant's where there is none.
    pub fn sealer(&self, contact: Option<i64>) -> rusqlite::Result<Sealer> {
        let found = match contact {
            Some(id) => self.vault.contact(self.connection, Some(&self.key_changes), id)?.map(|contact| (id, contact)),
            None => None,
        };
        Ok(match found {
            Some((id, contact)) => Sealer { id: KeyId::Contact(id), key: contact.key },
            None => self.vault.tenant(&self.key_changes),
        })
    }

    /// Reads as the readers do, with what this batch has done.
    pub fn reader(&self) -> Reader<'_> {
        Reader { connection: self.connection, vault: self.vault, changes: Some(&self.key_changes) }
    }

    fn rotate(&mut self, rotate: &Rotate) -> rusqlite::Result<Reply> {
        let count = match &rotate.what {
            Rotation::Root(new) => {
                self.vault.rotate_root(self.connection, &mut self.key_changes, new)?;
                self.audit(rotate.at, &rotate.actor, "rotate", "root key", &new.id())?;
                0
            }
            Rotation::Tenant => {
                let version = self.vault.rotate_tenant(self.connection, &mut self.key_changes, rotate.at)?;
                self.audit(rotate.at, &rotate.actor, "rotate", "tenant key", &format!("version {version}"))?;
                u64::from(version)
            }
            Rotation::Contacts { rows_max } => self.vault.rewrap(self.connection, &self.key_changes, *rows_max)?,
        };
        Ok(Reply::Rotated(count))
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
        let (state, steps, word) = match resolve.resolution {
            Resolution::Happened => ("applied", 1, "happened"),
            Resolution::NotHappened => ("not_applied", 0, "did not happen"),
        };
        let worker: Option<String> = self
            .cached(include_str!("sql/resolve_job.sql"))?
            .query_row(params![resolve.job.0, steps, resolve.at.0], |row| row.get(0))
            .optional()?;
        let Some(worker) = worker else { return Ok(Reply::Jobs(vec![])) };
        if resolve.resolution == Resolution::NotHappened {
            self.cached(include_str!("sql/give_back_unknown.sql"))?.execute([resolve.job.0])?;
        }
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
                self.cached(include_str!("sql/release_marks.sql"))?.execute([job.0])?;
                changed.push((*job, Arc::from(worker)));
            }
        }
        Ok(Reply::Jobs(changed))
    }
}
