//! Removal of expired rows, oldest first, a slice at a time.

use std::sync::Arc;

use rusqlite::params;
use sluice_domain::event::EventId;
use sluice_domain::job::JobState;

use super::batch::Batch;
use super::mac::body_pruned_mac;
use super::row::wrong;
use super::totals::TotalKey;
use crate::op::{Prune, Pruned};

impl Batch<'_, '_> {
    pub fn prune_slice(&mut self, prune: &Prune) -> rusqlite::Result<Pruned> {
        let bodies = self.prune_bodies(prune)?;
        let events = self.prune_events(prune)?;
        let expired = [prune.at.0, i64::from(prune.rows_max)];
        let marks = self.cached(include_str!("sql/delete_marks.sql"))?.execute(expired)?;
        let retries = self.cached(include_str!("sql/delete_retries.sql"))?.execute(expired)?;
        let proofs = self.cached(include_str!("sql/delete_proofs.sql"))?.execute(expired)?;
        let uses = self.cached(include_str!("sql/delete_cap_uses.sql"))?.execute(expired)?;
        self.totals.write(self.connection)?;
        self.cached(include_str!("sql/delete_empty_totals.sql"))?.execute([])?;
        let slices = [bodies, events, marks, retries, proofs, uses];
        let more = slices.iter().any(|rows| *rows >= prune.rows_max as usize);
        Ok(Pruned { rows: slices.iter().sum::<usize>() as u64, more })
    }

    fn prune_bodies(&mut self, prune: &Prune) -> rusqlite::Result<usize> {
        let mut bodies = Vec::new();
        let mut statement = self.cached(include_str!("sql/prunable_bodies.sql"))?;
        let mut rows = statement.query([])?;
        // Events are in the order in which they became durable, so the first young one ends the search.
        while bodies.len() < prune.rows_max as usize
            && let Some(row) = rows.next()?
            && row.get::<_, i64>(1)? < prune.bodies_before.0
        {
            if !row.get::<_, bool>(2)? {
                bodies.push((row.get::<_, i64>(0)?, EventId(row.get(3)?)));
            }
        }
        drop(rows);
        drop(statement);
        for (seq, event) in &bodies {
            let pruned = body_pruned_mac(self.key_store, *event);
            self.cached(include_str!("sql/mark_body_pruned.sql"))?.execute(params![seq, pruned])?;
            self.cached(include_str!("sql/delete_event_body.sql"))?.execute([seq])?;
            self.cached(include_str!("sql/delete_variants.sql"))?.execute([seq])?;
        }
        Ok(bodies.len())
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
        for (seq, first_job, end) in &events {
            self.cached(include_str!("sql/delete_event.sql"))?.execute([seq])?;
            self.cached(include_str!("sql/delete_event_body.sql"))?.execute([seq])?;
            self.cached(include_str!("sql/delete_variants.sql"))?.execute([seq])?;
            self.delete_jobs(*first_job, *end)?;
            self.cached(include_str!("sql/delete_effects.sql"))?.execute([first_job, end])?;
            self.cached(include_str!("sql/delete_attempts.sql"))?.execute([first_job, end])?;
            self.cached(include_str!("sql/delete_approvals.sql"))?.execute([first_job, end])?;
        }
        if let Some((last_seq, _, end)) = events.last() {
            // The numbers of the newest events must not be assigned again after a restart.
            self.cached(include_str!("sql/keep_last.sql"))?.execute([*last_seq, end - 1])?;
            let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
            self.cached(include_str!("sql/add_events_pruned.sql"))?.execute([count])?;
            self.keys.note_pruned();
        }
        Ok(events.len())
    }

    fn delete_jobs(&mut self, first: i64, end: i64) -> rusqlite::Result<()> {
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
        }
        Ok(())
    }
}
