//! What is past its time is removed, from the oldest on, a slice at a time.

use super::apply::Batch;
use crate::op::{Prune, Reply};

impl Batch<'_, '_> {
    pub fn prune(&mut self, prune: &Prune) -> rusqlite::Result<Reply> {
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
            self.cached(include_str!("sql/delete_variants.sql"))?.execute([ord])?;
        }
        let events = self.prune_events(prune)?;
        let marks =
            self.cached(include_str!("sql/delete_marks.sql"))?.execute([prune.at.0, i64::from(prune.rows_max)])?;
        let retries =
            self.cached(include_str!("sql/delete_retries.sql"))?.execute([prune.at.0, i64::from(prune.rows_max)])?;
        let uses =
            self.cached(include_str!("sql/delete_uses.sql"))?.execute([prune.at.0, i64::from(prune.rows_max)])?;
        let slices = [bodies.len(), events, marks, retries, uses];
        Ok(Reply::Pruned { rows: slices.iter().sum::<usize>() as u64, more: slices.iter().any(|rows| *rows >= limit) })
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
            self.cached(include_str!("sql/delete_variants.sql"))?.execute([ord])?;
            self.cached(include_str!("sql/delete_jobs.sql"))?.execute([first_job, upto])?;
            self.cached(include_str!("sql/delete_effects.sql"))?.execute([first_job, upto])?;
            self.cached(include_str!("sql/delete_attempts.sql"))?.execute([first_job, upto])?;
            self.cached(include_str!("sql/delete_approvals.sql"))?.execute([first_job, upto])?;
        }
        if let Some((last_ord, _, upto)) = events.last() {
            // Were the newest of all to go, a restart would give their numbers out again.
            self.cached(include_str!("sql/keep_last.sql"))?.execute([*last_ord, upto - 1])?;
            self.keys.note_pruned();
        }
        Ok(events.len())
    }
}
