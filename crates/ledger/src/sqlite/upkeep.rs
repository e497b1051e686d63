//! Work of the writer between two batches: compaction of the key indexes, and checkpoints.

use std::sync::atomic::Ordering;

use rusqlite::Connection;
use sluice_domain::mutant::Mutant;

use super::PAGE_BYTES;
use super::key_index::KeyIndexes;
use super::writer::{Writer, is_fatal, is_full};
use crate::Error;

const MIB: u64 = 1024 * 1024;
/// Pages in the log from which the writer itself resets it between two batches: a checkpoint beside a busy writer never finds
/// the moment to, and the log would grow without bound.
pub(super) const WAL_PAGES_RESET: u64 = 64 * MIB / PAGE_BYTES;
/// The writer resets the log once no more pages than these are left to be moved, since every caller waits meanwhile; or when
/// the log is twice as long as it should be.
const WAL_PAGES_LEFT: u64 = 2 * MIB / PAGE_BYTES;
/// Pages in the log from which a checkpoint runs beside the writer.
pub(super) const WAL_PAGES_CHECKPOINT: u64 = 16 * MIB / PAGE_BYTES;

impl Writer {
    /// Compacts a slice of the key indexes and keeps the log within its bounds.
    pub(super) fn run_upkeep(&mut self) {
        if !self.compaction_paused && self.indexes.needs_compaction() {
            match self.compact() {
                Ok(()) => {}
                // Nothing that was not flushed may be built upon.
                Err(error) if is_fatal(&error) && !is_full(&error) => return self.fail(vec![], &error),
                Err(error) => self.reload_keys(&error),
            }
        }
        let pages = self.wal_pages.load(Ordering::Relaxed);
        self.stats.wal_pages.store(pages, Ordering::Relaxed);
        if self.checkpointer.is_paused() || Mutant::CheckpointNeverResets.is_on() {
            return;
        }
        let (moved, moving) = self.checkpointer.moved();
        let nearly_done = !moving && pages.saturating_sub(moved) <= WAL_PAGES_LEFT;
        if pages >= self.wal_pages_max && (nearly_done || pages >= 2 * self.wal_pages_max) {
            // RESTART, so that the next batch writes from the beginning of the log.
            if let Err(error) = self.connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())) {
                tracing::warn!(%error, "checkpoint failed; repeated after the next batch");
            }
        } else if pages >= self.wal_pages_max.min(self.next_checkpoint) {
            // Not after every batch: the pages that every batch changes would be copied each time.
            self.next_checkpoint = pages + WAL_PAGES_CHECKPOINT;
            self.checkpointer.wake();
        } else if pages + WAL_PAGES_CHECKPOINT < self.next_checkpoint {
            // The log was reset.
            self.next_checkpoint = WAL_PAGES_CHECKPOINT;
            self.checkpointer.log_reset();
        }
    }

    fn compact(&mut self) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        self.indexes.compact_slice(&self.connection)?;
        self.connection.execute_batch("COMMIT")
    }

    fn reload_keys(&mut self, error: &rusqlite::Error) {
        tracing::warn!(%error, "compaction of the key index failed; loading the index again");
        self.compaction_paused = true;
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        if let Err(error) = self.load_indexes() {
            self.fail(vec![], &error);
        }
    }

    fn load_indexes(&mut self) -> rusqlite::Result<()> {
        self.indexes = KeyIndexes::load(&self.connection, self.recent_keys_max)?;
        Ok(())
    }
}

/// Moves the log into the file and empties it before anything is built upon it. The last process may have stopped because a
/// flush failed. The system then shows pages that it has not written and will not write any more: what is appended to them
/// would be lost with the power.
pub(super) fn truncate_wal(connection: &Connection) -> Result<(), Error> {
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0)) {
        Ok(false) => {}
        Ok(true) => tracing::warn!("write-ahead log not truncated at startup: a reader is active"),
        Err(error) if is_full(&error) => {
            tracing::warn!(%error, "write-ahead log not truncated at startup: the disk is full");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
