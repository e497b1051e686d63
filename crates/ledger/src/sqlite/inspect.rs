//! Looking at a ledger from outside: whether it is whole, and whether its books balance. A node may run meanwhile; nothing is
//! written, nothing is opened that is sealed, and each look is short, so that no snapshot is held for long.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use sluice_domain::event::EventId;
use sluice_domain::job::{EffectKey, JobId};
use sluice_domain::time::Time;

use super::{Role, open};
use crate::Error;

/// Rows that are looked at in one snapshot.
const SLICE: i64 = 20_000;

/// What a check goes over.
#[derive(Clone, Copy, Debug)]
enum Over {
    Events,
    Jobs,
}

/// One thing that must hold of every row.
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

const CHECKS: [Check; 13] = [
    check(2, ATOMIC, Over::Events, include_str!("sql/verify/event_jobs.sql")),
    check(2, ATOMIC, Over::Jobs, include_str!("sql/verify/job_event.sql")),
    check(3, "an event has a name and a key", Over::Events, include_str!("sql/verify/event_name.sql")),
    check(20, "a job that is alive can be worked on", Over::Events, include_str!("sql/verify/event_body.sql")),
    check(29, "the configuration of every event is kept", Over::Events, include_str!("sql/verify/event_revision.sql")),
    check(36, STATES, Over::Jobs, include_str!("sql/verify/job_state.sql")),
    check(36, STATES, Over::Jobs, include_str!("sql/verify/job_running.sql")),
    check(21, "a dead letter says why", Over::Jobs, include_str!("sql/verify/job_dead.sql")),
    check(22, FENCING, Over::Jobs, include_str!("sql/verify/effect_job.sql")),
    check(22, FENCING, Over::Jobs, include_str!("sql/verify/attempt_job.sql")),
    check(9, "an intent belongs to an attempt under way", Over::Jobs, include_str!("sql/verify/effect_open.sql")),
    check(12, ABSORBING, Over::Jobs, include_str!("sql/verify/effect_again.sql")),
    check(
        13,
        "what nobody knows is read back before it is sent again",
        Over::Jobs,
        include_str!("sql/verify/effect_blind.sql"),
    ),
];

/// The first row that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InvariantViolation {
    /// The number of the invariant.
    pub number: u32,
    /// What it says.
    pub invariant: String,
    /// The row, and what is wrong with it.
    pub row: String,
}

/// What a look over the whole ledger found.
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    /// Events that there are, the newest one's number.
    pub events: u64,
    /// Jobs likewise.
    pub jobs: u64,
    /// Checks that were made.
    pub checks: u32,
    /// The first broken row of each check that failed.
    pub broken: Vec<InvariantViolation>,
}

/// What became of what one source sent on one day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// The day, as `2026-11-15`.
    pub day: String,
    /// Who sent.
    pub source: String,
    /// Requests that were answered 202.
    pub accepted: u64,
    /// Of these, repeats.
    pub duplicate: u64,
    /// Everything about them is done.
    pub done: u64,
    /// Nothing had to be done.
    pub noop: u64,
    /// Something failed for good.
    pub dead: u64,
    /// Something is still to be done.
    pub waiting: u64,
    /// Something may have happened, and a person has to say.
    pub unknown: u64,
    /// Something was given up by a person.
    pub dropped: u64,
    /// What is left over: pruned since, or lost.
    pub remainder: i64,
}

/// A try of a job, as it was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEntry {
    /// Whose.
    pub job: JobId,
    /// Which one, from 1.
    pub n: u32,
    /// What came of it.
    pub outcome: String,
}

/// A ledger, looked at from outside.
#[derive(Debug)]
pub struct Inspector {
    connection: Connection,
}

impl Inspector {
    /// Opens the ledger in a directory for looking, whether a node runs or not.
    pub fn open(directory: &Path) -> Result<Inspector, Error> {
        Ok(Inspector { connection: open(directory, Role::Read)? })
    }

    /// Looks at every row. `progress` hears how many of how many rows are done.
    pub fn verify(&self, mut progress: impl FnMut(u64, u64)) -> Result<Verification, Error> {
        let (last_event, last_job): (i64, i64) =
            self.connection
                .query_row(include_str!("sql/verify/bounds.sql"), [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows = |over| match over {
            Over::Events => last_event,
            Over::Jobs => last_job,
        };
        let total: i64 = CHECKS.iter().map(|check| rows(check.over)).sum::<i64>() + last_job;
        let mut done = 0;
        let mut broken = Vec::new();
        let mut said = |rows: i64| {
            done += rows;
            progress(done.unsigned_abs(), total.unsigned_abs());
        };
        for Check { number, name, over, sql } in CHECKS {
            let row = in_slices(rows(over), &mut said, |after, upto| {
                self.connection.prepare_cached(sql)?.query_row([after, upto], |row| row.get(0)).optional()
            })?;
            broken.extend(row.map(|row| InvariantViolation { number, invariant: name.to_owned(), row }));
        }
        let keys = in_slices(last_job, &mut said, |after, upto| self.strange_key(after, upto))?;
        let invariant = "an effect keeps its key".to_owned();
        broken.extend(keys.map(|row| InvariantViolation { number: 14, invariant, row }));
        for (number, name, sql) in [
            (3, "a name belongs to one event", include_str!("sql/verify/names.sql")),
            (20, "every event was counted when it was accepted", include_str!("sql/verify/source_day_counts.sql")),
        ] {
            let row: Option<String> = self.connection.query_row(sql, [], |row| row.get(0)).optional()?;
            broken.extend(row.map(|row| InvariantViolation { number, invariant: name.to_owned(), row }));
        }
        Ok(Verification {
            events: last_event.unsigned_abs(),
            jobs: last_job.unsigned_abs(),
            checks: CHECKS.len() as u32 + 3,
            broken,
        })
    }

    /// An effect whose key is not what its event, worker and step make of it.
    fn strange_key(&self, after: i64, upto: i64) -> rusqlite::Result<Option<String>> {
        let mut statement = self.connection.prepare_cached(include_str!("sql/verify/effect_keys.sql"))?;
        let mut rows = statement.query([after, upto])?;
        while let Some(row) = rows.next()? {
            let (step, worker): (String, String) = (row.get(1)?, row.get(3)?);
            let (key, event): ([u8; 16], [u8; 16]) = (row.get(2)?, row.get(4)?);
            if EffectKey::new(EventId(event), &worker, &step).0 != key {
                return Ok(Some(format!(
                    "the effect `{step}` of job_{} has another key than it must",
                    row.get::<_, i64>(0)?
                )));
            }
        }
        Ok(None)
    }

    /// Every attempt to reach a destination, in the order of jobs. Reading back what an earlier one left is none.
    pub fn tries(&self) -> Result<Vec<AttemptEntry>, Error> {
        let mut statement = self.connection.prepare_cached(include_str!("sql/verify/calls.sql"))?;
        let rows = statement
            .query_map([], |row| Ok(AttemptEntry { job: JobId(row.get(0)?), n: row.get(1)?, outcome: row.get(2)? }))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// What became of everything that was accepted since then, by day and source.
    pub fn balance(&self, since: Time) -> Result<Vec<Balance>, Error> {
        let day = since.to_jiff().strftime("%Y-%m-%d").to_string();
        let first = Time::parse(&format!("{day}T00:00:00Z")).unwrap_or(since);
        let mut statement = self.connection.prepare_cached(include_str!("sql/balance.sql"))?;
        let rows = statement.query_map(params![day, first.0], |row| {
            let count =
                |column: usize| row.get::<_, Option<i64>>(column).map(|count| count.unwrap_or(0).unsigned_abs());
            let (firsts, duplicate) = (count(2)?, count(3)?);
            let explained = count(4)?;
            Ok(Balance {
                day: row.get(0)?,
                source: row.get(1)?,
                accepted: firsts + duplicate,
                duplicate,
                done: count(5)?,
                noop: count(6)?,
                dead: count(7)?,
                waiting: count(8)?,
                unknown: count(9)?,
                dropped: count(10)?,
                remainder: firsts as i64 - explained as i64,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

/// Looks slice by slice until something is found.
fn in_slices(
    last: i64,
    said: &mut impl FnMut(i64),
    mut look: impl FnMut(i64, i64) -> rusqlite::Result<Option<String>>,
) -> Result<Option<String>, Error> {
    let mut after = 0;
    let mut found = None;
    while after < last {
        let upto = (after + SLICE).min(last);
        if found.is_none() {
            found = look(after, upto)?;
        }
        said(upto - after);
        after = upto;
    }
    Ok(found)
}
