//! The statements that nearly every operation needs: each is looked up once for a batch instead of once for an operation.

use rusqlite::{CachedStatement, Connection};

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) enum StatementId {
    InsertEvent,
    InsertBody,
    InsertJob,
    JobContact,
    SettleJob,
    EffectAtOnce,
    InsertAttempt,
}

const TEXTS: [&str; 7] = [
    include_str!("sql/insert_event.sql"),
    include_str!("sql/insert_event_body.sql"),
    include_str!("sql/insert_job.sql"),
    include_str!("sql/job_contact.sql"),
    include_str!("sql/settle_job.sql"),
    include_str!("sql/effect_at_once.sql"),
    include_str!("sql/insert_attempt.sql"),
];

/// Those that a batch has needed so far.
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
