//! Removal of expired rows, oldest first, a slice at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::params;
use sluice_domain::event::EventId;
use sluice_domain::job::JobState;
use sluice_domain::time::Time;

use super::batch::Batch;
use super::mac::body_pruned_mac;
use super::row::wrong;
use super::totals::TotalKey;
use crate::op::{Prune, Pruned};

/// An event that may be deleted, with its jobs from `first_job` to before `end`.
#[derive(Debug)]
struct PrunableEvent {
    seq: i64,
    first_job: i64,
    end: i64,
    /// The day on which it was counted as accepted.
    day: String,
    source: String,
}

/// Rows that were deleted with their events.
#[derive(Debug, Default)]
struct PrunedRows {
    bodies: usize,
    jobs: usize,
    effects: usize,
    attempts: usize,
    approvals: usize,
}

/// Events that a slice reads for each row that it may delete. Those that must stay (live jobs, dead letters, remembered keys) are read and
/// passed over, and every caller of the writer waits meanwhile.
const WALKED_PER_ROW: usize = 40;

/// Sequence numbers behind which the next slice begins: zero, or where the last one stopped because it had read enough.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PruneCursors {
    bodies: i64,
    events: i64,
}

/// The walk of one slice over events, oldest first.
#[derive(Debug)]
struct PruneWalk {
    from: i64,
    /// Events that may still be read.
    left: usize,
    /// Where the next slice begins.
    next: i64,
}

impl PruneWalk {
    fn new(from: i64, prune: &Prune) -> PruneWalk {
        PruneWalk { from, left: prune.rows_max as usize * WALKED_PER_ROW, next: 0 }
    }

    /// Whether the walk ends with this event, after so many rows were found.
    fn ends_at(&mut self, seq: i64, found: usize, prune: &Prune) -> bool {
        self.left = self.left.saturating_sub(1);
        let is_full = found >= prune.rows_max as usize;
        if is_full {
            self.next = self.from;
        } else if self.left == 0 {
            self.next = seq;
        }
        is_full || self.left == 0
    }

    /// Whether events behind the walk were not read.
    fn is_cut(&self) -> bool {
        self.next > self.from
    }
}

impl Batch<'_, '_> {
    pub(super) fn prune_slice(&mut self, prune: &Prune) -> rusqlite::Result<Pruned> {
        let (bodies, bodies_cut) = self.prune_bodies(prune)?;
        let (events, events_cut) = self.prune_events(prune)?;
        let expired = [prune.at.0, i64::from(prune.rows_max)];
        let marks = self.cached(include_str!("sql/delete_marks.sql"))?.execute(expired)?;
        let retries = self.cached(include_str!("sql/delete_retries.sql"))?.execute(expired)?;
        let proofs = self.cached(include_str!("sql/delete_proofs.sql"))?.execute(expired)?;
        let bindings = self.cached(include_str!("sql/delete_key_bindings.sql"))?.execute(expired)?;
        if bindings > 0 {
            self.indexes.bindings.note_pruned();
        }
        let uses = self.cached(include_str!("sql/delete_cap_uses.sql"))?.execute(expired)?;
        let records = self.prune_record_refs(prune.rows_max)?;
        let waiting = self.prune_waiting(prune.at, prune.rows_max)?;
        let groups = self.prune_failure_groups(prune.at, prune.rows_max)?;
        let commands = self.prune_commands(prune.at, prune.rows_max)?;
        self.totals.write(self.connection)?;
        self.cached(include_str!("sql/delete_empty_totals.sql"))?.execute([])?;
        let kinds = [("body", bodies), ("mark", marks), ("retry", retries), ("proof", proofs), ("cap_use", uses)];
        let more =
            [("binding", bindings), ("waiting_event", waiting), ("failure_group", groups), ("command", commands)];
        kinds.into_iter().chain(more).try_for_each(|(kind, rows)| self.count_pruned(kind, rows))?;
        // References of records are an index of this driver: their rows are those of jobs, and do not count on their own.
        let slices = [bodies, events, marks, retries, proofs, bindings, uses, waiting, groups, commands];
        let is_full = |rows: usize| rows >= prune.rows_max as usize;
        let more = bodies_cut || events_cut || is_full(records) || slices.into_iter().any(is_full);
        Ok(Pruned { rows: slices.iter().sum::<usize>() as u64, more })
    }

    /// Of jobs that were pruned.
    fn prune_record_refs(&mut self, rows_max: u32) -> rusqlite::Result<usize> {
        let next_job = self.counters.next_job;
        let rows = self.cached(include_str!("sql/delete_record_refs.sql"))?.execute(params![next_job, rows_max])?;
        if rows > 0 {
            self.indexes.records.note_pruned();
        }
        Ok(rows)
    }

    /// Returns the number of bodies, and whether more events are to be read.
    fn prune_bodies(&mut self, prune: &Prune) -> rusqlite::Result<(usize, bool)> {
        let mut bodies = Vec::new();
        let mut walk = PruneWalk::new(self.counters.prune.bodies, prune);
        let mut statement = self.cached(include_str!("sql/prunable_bodies.sql"))?;
        let mut rows = statement.query([walk.from])?;
        // Events are in the order in which they became durable, so the first young one ends the search.
        while let Some(row) = rows.next()?
            && row.get::<_, i64>(1)? < prune.bodies_before.0
        {
            if !row.get::<_, bool>(2)? {
                bodies.push((row.get::<_, i64>(0)?, EventId(row.get(3)?)));
            }
            if walk.ends_at(row.get(0)?, bodies.len(), prune) {
                break;
            }
        }
        drop(rows);
        drop(statement);
        self.counters.prune.bodies = walk.next;
        for (seq, event) in &bodies {
            let pruned = body_pruned_mac(self.key_store, *event);
            self.cached(include_str!("sql/mark_body_pruned.sql"))?.execute(params![seq, pruned])?;
            self.cached(include_str!("sql/delete_event_body.sql"))?.execute([seq])?;
            self.delete_event_revisions(*seq)?;
            self.cached(include_str!("sql/delete_variants.sql"))?.execute([seq])?;
        }
        Ok((bodies.len(), walk.is_cut()))
    }

    /// Returns the number of events, and whether more are to be read.
    fn prune_events(&mut self, prune: &Prune) -> rusqlite::Result<(usize, bool)> {
        let mut events: Vec<PrunableEvent> = Vec::new();
        let mut walk = PruneWalk::new(self.counters.prune.events, prune);
        let mut statement = self.cached(include_str!("sql/prunable_events.sql"))?;
        let mut rows = statement.query([prune.at.0, walk.from])?;
        while let Some(row) = rows.next()?
            && row.get::<_, i64>(1)? < prune.events_before.0
        {
            if !row.get::<_, bool>(2)? {
                events.push(PrunableEvent {
                    seq: row.get(0)?,
                    first_job: row.get(3)?,
                    end: row.get::<_, i64>(3)? + row.get::<_, i64>(4)?,
                    day: Time(row.get(1)?).to_jiff().strftime("%Y-%m-%d").to_string(),
                    source: row.get(5)?,
                });
            }
            if walk.ends_at(row.get(0)?, events.len(), prune) {
                break;
            }
        }
        drop(rows);
        drop(statement);
        self.counters.prune.events = walk.next;
        let mut gone = PrunedRows::default();
        for event in &events {
            self.delete_event(event, &mut gone)?;
        }
        if let Some(last) = events.last() {
            // The numbers of the newest events must not be assigned again after a restart.
            self.cached(include_str!("sql/keep_last.sql"))?.execute([last.seq, last.end - 1])?;
            self.count_pruned_events(&events, &gone)?;
            self.indexes.keys.note_pruned();
            self.indexes.event_refs.note_pruned();
        }
        Ok((events.len(), walk.is_cut()))
    }

    fn delete_event(&mut self, event: &PrunableEvent, gone: &mut PrunedRows) -> rusqlite::Result<()> {
        let (seq, jobs) = ([event.seq], [event.first_job, event.end]);
        self.forget_waiting(event.seq)?;
        self.cached(include_str!("sql/delete_event.sql"))?.execute(seq)?;
        gone.bodies += self.cached(include_str!("sql/delete_event_body.sql"))?.execute(seq)?;
        self.cached(include_str!("sql/delete_event_identity.sql"))?.execute(seq)?;
        self.cached(include_str!("sql/delete_identity_lookup.sql"))?.execute(seq)?;
        self.cached(include_str!("sql/delete_event_duplicates.sql"))?.execute(seq)?;
        self.delete_event_revisions(event.seq)?;
        self.cached(include_str!("sql/delete_variants.sql"))?.execute(seq)?;
        self.cached(include_str!("sql/delete_response.sql"))?.execute(seq)?;
        gone.jobs += self.delete_jobs(event.first_job, event.end)?;
        self.cached(include_str!("sql/delete_stragglers.sql"))?.execute(jobs)?;
        gone.effects += self.cached(include_str!("sql/delete_effects.sql"))?.execute(jobs)?;
        gone.attempts += self.cached(include_str!("sql/delete_attempts.sql"))?.execute(jobs)?;
        gone.approvals += self.cached(include_str!("sql/delete_approvals.sql"))?.execute(jobs)?;
        Ok(())
    }

    /// Counts deleted events where they were counted as accepted, and every row by its kind.
    fn count_pruned_events(&self, events: &[PrunableEvent], gone: &PrunedRows) -> rusqlite::Result<()> {
        let mut by_source = BTreeMap::<(&str, &str), i64>::new();
        for event in events {
            *by_source.entry((&event.day, &event.source)).or_default() += 1;
        }
        for ((day, source), count) in by_source {
            self.cached(include_str!("sql/add_source_day_pruned.sql"))?.execute(params![day, source, count])?;
        }
        self.count_pruned("event", events.len())?;
        self.count_pruned("job", gone.jobs)?;
        self.count_pruned("effect", gone.effects)?;
        self.count_pruned("attempt", gone.attempts)?;
        self.count_pruned("approval", gone.approvals)?;
        self.count_pruned("body", gone.bodies)
    }

    pub(super) fn count_pruned(&self, kind: &str, rows: usize) -> rusqlite::Result<()> {
        if rows > 0 {
            let rows = i64::try_from(rows).unwrap_or(i64::MAX);
            self.cached(include_str!("sql/add_pruned.sql"))?.execute(params![kind, rows])?;
        }
        Ok(())
    }

    /// Returns the number of jobs.
    fn delete_jobs(&mut self, first: i64, end: i64) -> rusqlite::Result<usize> {
        let mut deleted = 0;
        let mut statement = self.connection.prepare_cached(include_str!("sql/delete_jobs.sql"))?;
        let mut rows = statement.query([first, end])?;
        while let Some(row) = rows.next()? {
            let mut name = |column: usize| -> rusqlite::Result<Arc<str>> {
                let text = row.get_ref(column)?.as_str_or_null().map_err(|error| wrong(column, &error.to_string()))?;
                Ok(self.names.intern(text.unwrap_or_default()))
            };
            let key = TotalKey {
                state: JobState::from_code(row.get(0)?).ok_or_else(|| wrong(0, "unknown job state"))?,
                worker: name(1)?,
                destination: name(2)?,
                dead_letter_queue: name(3)?,
                queue: name(4)?,
                revision: name(5)?,
                wait: Arc::default(),
            };
            self.totals.remove(key.as_ref());
            deleted += 1;
        }
        Ok(deleted)
    }
}
