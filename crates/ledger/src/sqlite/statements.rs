//! Statements that nearly every operation needs: looked up once for each batch instead of once for each operation.

use rusqlite::{CachedStatement, Connection};

/// Statement prepared once per batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum StatementId {
    InsertEvent,
    InsertBody,
    InsertJob,
    JobHead,
    SettleJob,
    WriteEffect,
    InsertAttempt,
}

const TEXTS: [&str; 7] = [
    include_str!("sql/insert_event.sql"),
    include_str!("sql/insert_event_body.sql"),
    include_str!("sql/insert_job.sql"),
    include_str!("sql/job_head.sql"),
    include_str!("sql/settle_job.sql"),
    include_str!("sql/write_effect.sql"),
    include_str!("sql/insert_attempt.sql"),
];

pub(super) struct Statements<'a> {
    connection: &'a Connection,
    found: [Option<CachedStatement<'a>>; TEXTS.len()],
}

impl<'a> Statements<'a> {
    pub fn new(connection: &'a Connection) -> Statements<'a> {
        Statements { connection, found: [const { None }; TEXTS.len()] }
    }

    pub fn get(&mut self, which: StatementId) -> rusqlite::Result<&mut CachedStatement<'a>> {
        let at = which as usize;
        if self.found[at].is_none() {
            self.found[at] = Some(self.connection.prepare_cached(TEXTS[at])?);
        }
        Ok(self.found[at].as_mut().expect("it was found"))
    }
}

impl std::fmt::Debug for Statements<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} statements", self.found.iter().flatten().count())
    }
}
