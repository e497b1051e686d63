//! Inspection of a ledger from outside: whether its invariants hold, and what became of the accepted events. A node may run
//! meanwhile; nothing is written, and reads are short, so that no snapshot is held for long.

mod mac_checks;

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use sluice_domain::event::EventId;
use sluice_domain::job::{EffectKey, JobId};
use sluice_domain::time::Time;

use super::key_store::KeyStore;
use super::read::pruned_totals;
use super::{Role, open};
use crate::Error;
use crate::seal::RootKey;
use mac_checks::{MacChecks, job_name, readable};

/// Rows that are read in one snapshot.
const SLICE: i64 = 20_000;

#[derive(Clone, Copy, Debug)]
enum Over {
    Events,
    Jobs,
}

/// An invariant of every row.
struct Check {
    number: u32,
    name: &'static str,
    over: Over,
    sql: &'static str,
}

const fn check(number: u32, name: &'static str, over: Over, sql: &'static str) -> Check {
    Check { number, name, over, sql }
}

const ATOMIC: &str = "an event is there with all of its jobs, or not at all";
const ABSORBING: &str = "what is applied is not sent again";
const FENCING: &str = "nothing is of a later try than its job";
const STATES: &str = "a job is in a state that there is, and has an end when it is finished";
const COMPLETE: &str = "a job has every effect and attempt that was recorded";
const UNALTERED: &str = "rows are as they were written";
const COUNTED: &str = "kept totals and lists are what is there";

const CHECKS: [Check; 16] = [
    check(2, ATOMIC, Over::Events, include_str!("../sql/verify/event_jobs.sql")),
    check(2, ATOMIC, Over::Jobs, include_str!("../sql/verify/job_event.sql")),
    check(3, "an event has a name and a key", Over::Events, include_str!("../sql/verify/event_name.sql")),
    check(20, "a job that is alive can be worked on", Over::Events, include_str!("../sql/verify/event_body.sql")),
    check(
        29,
        "the configuration of every event is kept",
        Over::Events,
        include_str!("../sql/verify/event_revision.sql"),
    ),
    check(36, STATES, Over::Jobs, include_str!("../sql/verify/job_state.sql")),
    check(36, STATES, Over::Jobs, include_str!("../sql/verify/job_running.sql")),
    check(21, "a dead letter says why", Over::Jobs, include_str!("../sql/verify/job_dead.sql")),
    check(22, FENCING, Over::Jobs, include_str!("../sql/verify/effect_job.sql")),
    check(22, FENCING, Over::Jobs, include_str!("../sql/verify/attempt_job.sql")),
    check(9, "an intent belongs to an attempt under way", Over::Jobs, include_str!("../sql/verify/effect_open.sql")),
    check(12, ABSORBING, Over::Jobs, include_str!("../sql/verify/effect_again.sql")),
    check(
        13,
        "what nobody knows is read back before it is sent again",
        Over::Jobs,
        include_str!("../sql/verify/effect_blind.sql"),
    ),
    check(37, COMPLETE, Over::Jobs, include_str!("../sql/verify/effect_count.sql")),
    check(37, COMPLETE, Over::Jobs, include_str!("../sql/verify/attempt_count.sql")),
    check(38, COUNTED, Over::Jobs, include_str!("../sql/verify/deferred_jobs.sql")),
];

/// Invariants of the ledger as a whole.
const WHOLE_CHECKS: [(u32, &str, &str); 7] = [
    (3, "a name belongs to one event", include_str!("../sql/verify/names.sql")),
    (20, "every accepted event is there or was counted as pruned", include_str!("../sql/verify/source_day_counts.sql")),
    (38, COUNTED, include_str!("../sql/verify/event_count.sql")),
    (38, COUNTED, include_str!("../sql/verify/job_totals.sql")),
    (38, COUNTED, include_str!("../sql/verify/failure_groups.sql")),
    (20, "every job is there or was counted as pruned", include_str!("../sql/verify/pruned_jobs.sql")),
    (
        20,
        "every dead letter that retention dropped was counted",
        include_str!("../sql/verify/dropped_dead_letters.sql"),
    ),
];

/// The first row that violates an invariant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InvariantViolation {
    /// Number of the invariant.
    pub number: u32,
    pub invariant: String,
    /// The row, and what is wrong with it.
    pub row: String,
}

/// The result of [`Inspector::verify`].
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    /// Sequence number of the newest event.
    pub events: u64,
    /// Number of the newest job.
    pub jobs: u64,
    pub checks: u32,
    /// Rows that retention has deleted since the ledger was created, by kind.
    pub pruned: BTreeMap<String, u64>,
    /// The first violation of each check that failed.
    pub broken: Vec<InvariantViolation>,
}

/// What became of the events of one source and day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// `2026-11-15`, UTC.
    pub day: String,
    pub source: String,
    /// New events, without duplicates.
    pub accepted: u64,
    /// Duplicates, which are answered 202 too.
    pub duplicate: u64,
    /// Events whose jobs are all done.
    pub done: u64,
    /// Events for which nothing had to be done.
    pub noop: u64,
    /// Events with a dead job.
    pub dead: u64,
    /// Events with a live job.
    pub waiting: u64,
    /// Events with an effect of unknown outcome.
    pub unknown: u64,
    /// Events with a dropped job.
    pub dropped: u64,
    /// Events that retention has deleted since.
    pub pruned: u64,
    /// The rest: lost.
    pub remainder: i64,
}

/// A recorded call of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEntry {
    pub job: JobId,
    /// Number of the attempt, from 1.
    pub n: u32,
    pub outcome: String,
}

/// Reads a ledger from outside.
#[derive(Debug)]
pub struct Inspector {
    connection: Connection,
    key_store: Option<KeyStore>,
}

impl Inspector {
    /// Opens the ledger in a directory, whether a node runs or not. Without the root key, [`Inspector::verify`] cannot tell
    /// whether rows were altered.
    pub fn open(directory: &Path) -> Result<Inspector, Error> {
        Ok(Inspector { connection: open(directory, Role::Read)?, key_store: None })
    }

    /// The same with the root key.
    pub fn with_root_key(self, root_key: RootKey) -> Result<Inspector, Error> {
        let key_store = Some(KeyStore::open_existing(&self.connection, root_key)?);
        Ok(Inspector { key_store, ..self })
    }

    /// Checks every row. `progress` receives the number of rows that are done and of all rows.
    pub fn verify(&self, mut progress: impl FnMut(u64, u64)) -> Result<Verification, Error> {
        let (last_event, last_job): (i64, i64) =
            self.connection
                .query_row(include_str!("../sql/verify/bounds.sql"), [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows = |over| match over {
            Over::Events => last_event,
            Over::Jobs => last_job,
        };
        let with_keys = if self.key_store.is_some() { last_event + 3 * last_job } else { 0 };
        let total: i64 = CHECKS.iter().map(|check| rows(check.over)).sum::<i64>() + last_job + with_keys;
        let mut done = 0;
        let mut report = |rows: i64| {
            done += rows;
            progress(done.unsigned_abs(), total.unsigned_abs());
        };
        let mut broken = Vec::new();
        let mut add = |number: u32, name: &str, row: Option<String>| {
            broken.extend(row.map(|row| InvariantViolation { number, invariant: name.to_owned(), row }));
        };
        for Check { number, name, over, sql } in CHECKS {
            let row = in_slices(rows(over), &mut report, |range| {
                self.connection.prepare_cached(sql)?.query_row(range, |row| row.get(0)).optional()
            })?;
            add(number, name, row);
        }
        let key = in_slices(last_job, &mut report, |range| self.wrong_effect_key(range))?;
        add(14, "an effect keeps its key", key);
        for (number, name, sql) in WHOLE_CHECKS {
            add(number, name, self.connection.query_row(sql, [], |row| row.get(0)).optional()?);
        }
        let mut checks = CHECKS.len() + WHOLE_CHECKS.len() + 1;
        if let Some(key_store) = &self.key_store {
            let macs = self.mac_checks(key_store)?;
            add(39, UNALTERED, in_slices(last_job, &mut report, |range| macs.jobs(range))?);
            add(39, UNALTERED, in_slices(last_job, &mut report, |range| macs.effects(range))?);
            add(39, UNALTERED, in_slices(last_job, &mut report, |range| macs.attempts(range))?);
            add(39, UNALTERED, in_slices(last_event, &mut report, |range| macs.bodies(range))?);
            checks += 4;
        }
        let (events, jobs) = (last_event.unsigned_abs(), last_job.unsigned_abs());
        let pruned = pruned_totals(&self.connection)?;
        Ok(Verification { events, jobs, checks: checks as u32, pruned, broken })
    }

    fn mac_checks<'a>(&'a self, key_store: &'a KeyStore) -> rusqlite::Result<MacChecks<'a>> {
        let bounds = include_str!("../sql/verify/first_macs.sql");
        let (first_job, first_seq) = self.connection.query_row(bounds, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(MacChecks { connection: &self.connection, key_store, first_job, first_seq })
    }

    /// An effect whose key is not derived from its event, worker and step.
    fn wrong_effect_key(&self, range: [i64; 2]) -> rusqlite::Result<Option<String>> {
        let mut statement = self.connection.prepare_cached(include_str!("../sql/verify/effect_keys.sql"))?;
        let mut rows = statement.query(range)?;
        let check = |row: &Row<'_>| {
            let (job, step, worker): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(3)?);
            let (key, event): ([u8; 16], [u8; 16]) = (row.get(2)?, row.get(4)?);
            let differs = EffectKey::new(EventId(event), &worker, &step).0 != key;
            Ok(differs.then(|| format!("the effect `{step}` of job_{job} has another key than it must")))
        };
        while let Some(row) = rows.next()? {
            if let Some(found) = readable(row, job_name, check)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Every recorded call of a destination, in the order of jobs. Read-backs are not among them.
    pub fn calls(&self) -> Result<Vec<AttemptEntry>, Error> {
        let mut statement = self.connection.prepare_cached(include_str!("../sql/verify/calls.sql"))?;
        let rows = statement
            .query_map([], |row| Ok(AttemptEntry { job: JobId(row.get(0)?), n: row.get(1)?, outcome: row.get(2)? }))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// What became of the events that were accepted since a time, by day and source.
    pub fn balance(&self, since: Time) -> Result<Vec<Balance>, Error> {
        let day = since.to_jiff().strftime("%Y-%m-%d").to_string();
        let first = Time::parse(&format!("{day}T00:00:00Z")).unwrap_or(since);
        let mut statement = self.connection.prepare_cached(include_str!("../sql/balance.sql"))?;
        let rows = statement.query_map(params![day, first.0], |row| {
            let count =
                |column: usize| row.get::<_, Option<i64>>(column).map(|count| count.unwrap_or(0).unsigned_abs());
            let (firsts, duplicate) = (count(2)?, count(3)?);
            let (explained, pruned) = (count(4)?, count(5)?);
            Ok(Balance {
                day: row.get(0)?,
                source: row.get(1)?,
                accepted: firsts,
                duplicate,
                done: count(6)?,
                noop: count(7)?,
                dead: count(8)?,
                waiting: count(9)?,
                unknown: count(10)?,
                dropped: count(11)?,
                pruned,
                remainder: firsts as i64 - explained as i64 - pruned as i64,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

/// Reads range by range, each beyond its first number and up to its second, until a violation is found.
fn in_slices(
    last: i64,
    report: &mut impl FnMut(i64),
    mut check: impl FnMut([i64; 2]) -> rusqlite::Result<Option<String>>,
) -> Result<Option<String>, Error> {
    let mut after = 0;
    let mut found = None;
    while after < last {
        let end = (after + SLICE).min(last);
        if found.is_none() {
            found = check([after, end])?;
        }
        report(end - after);
        after = end;
    }
    Ok(found)
}
