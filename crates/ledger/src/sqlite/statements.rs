//! Statements that nearly every operation needs: looked up once for each batch instead of once for each operation.

use rusqlite::types::Null;
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

/// A value of a statement that runs again and again in a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound<'v> {
    Null,
    Number(i64),
    /// The same in most rows of a batch: a name of the configuration.
    Name(&'v str),
    /// Another one in every row.
    Text(&'v str),
    Blob(&'v [u8]),
}

impl<'v> Bound<'v> {
    pub(super) fn number(value: Option<i64>) -> Bound<'v> {
        value.map_or(Bound::Null, Bound::Number)
    }

    pub(super) fn name(value: Option<&'v str>) -> Bound<'v> {
        value.map_or(Bound::Null, Bound::Name)
    }

    pub(super) fn blob(value: Option<&'v [u8]>) -> Bound<'v> {
        value.map_or(Bound::Null, Bound::Blob)
    }
}

/// What a parameter of a statement is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Last {
    Unknown,
    Null,
    Number(i64),
    Name(String),
}

impl Last {
    fn is(&self, value: &Bound<'_>) -> bool {
        match (self, value) {
            (Last::Null, Bound::Null) => true,
            (Last::Number(last), Bound::Number(number)) => last == number,
            (Last::Name(last), Bound::Name(name)) => last == name,
            _ => false,
        }
    }

    fn set(&mut self, value: &Bound<'_>) {
        match (self, value) {
            (Last::Name(last), Bound::Name(name)) => {
                last.clear();
                last.push_str(name);
            }
            (last, Bound::Name(name)) => *last = Last::Name((*name).to_owned()),
            (last, Bound::Null) => *last = Last::Null,
            (last, Bound::Number(number)) => *last = Last::Number(*number),
            (last, Bound::Text(_) | Bound::Blob(_)) => *last = Last::Unknown,
        }
    }
}

struct Prepared<'a> {
    statement: CachedStatement<'a>,
    /// Of each parameter. A statement that returns to the cache of the connection loses its values.
    last: Vec<Last>,
}

impl Prepared<'_> {
    /// Binds what differs from the last time. A statement keeps its values when it is reset.
    fn bind(&mut self, values: &[Bound<'_>]) -> rusqlite::Result<()> {
        let Prepared { statement, last } = self;
        if last.len() != values.len() {
            let count = statement.parameter_count();
            if count != values.len() {
                return Err(rusqlite::Error::InvalidParameterCount(values.len(), count));
            }
            *last = vec![Last::Unknown; count];
        }
        for (index, (value, last)) in (1..).zip(values.iter().zip(last)) {
            if last.is(value) {
                continue;
            }
            match *value {
                Bound::Null => statement.raw_bind_parameter(index, Null),
                Bound::Number(number) => statement.raw_bind_parameter(index, number),
                Bound::Name(text) | Bound::Text(text) => statement.raw_bind_parameter(index, text),
                Bound::Blob(bytes) => statement.raw_bind_parameter(index, bytes),
            }?;
            last.set(value);
        }
        Ok(())
    }
}

pub(super) struct Statements<'a> {
    connection: &'a Connection,
    found: [Option<Prepared<'a>>; TEXTS.len()],
}

impl<'a> Statements<'a> {
    pub(super) fn new(connection: &'a Connection) -> Statements<'a> {
        Statements { connection, found: [const { None }; TEXTS.len()] }
    }

    pub(super) fn get(&mut self, which: StatementId) -> rusqlite::Result<&mut CachedStatement<'a>> {
        self.prepared(which).map(|prepared| &mut prepared.statement)
    }

    /// Executes a statement that is executed in no other way.
    pub(super) fn execute(&mut self, which: StatementId, values: &[Bound<'_>]) -> rusqlite::Result<()> {
        let prepared = self.prepared(which)?;
        prepared.bind(values)?;
        prepared.statement.raw_execute().map(drop)
    }

    fn prepared(&mut self, which: StatementId) -> rusqlite::Result<&mut Prepared<'a>> {
        let at = which as usize;
        if self.found[at].is_none() {
            let statement = self.connection.prepare_cached(TEXTS[at])?;
            self.found[at] = Some(Prepared { statement, last: Vec::new() });
        }
        Ok(self.found[at].as_mut().expect("it was found"))
    }
}

impl std::fmt::Debug for Statements<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} statements", self.found.iter().flatten().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_own_values_whatever_the_row_before_had() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE event_body (seq INTEGER, sealed ANY)").unwrap();
        let mut statements = Statements::new(&connection);
        let rows: [[Bound<'_>; 2]; 8] = [
            [Bound::Number(1), Bound::Name("a")],
            [Bound::Number(1), Bound::Name("a")],
            [Bound::Number(2), Bound::Name("b")],
            [Bound::Null, Bound::Text("b")],
            [Bound::Null, Bound::Blob(b"b")],
            [Bound::Number(0), Bound::Null],
            [Bound::Number(0), Bound::Name("")],
            [Bound::Null, Bound::Name("a")],
        ];
        for values in &rows {
            statements.execute(StatementId::InsertBody, values).unwrap();
        }
        let short = statements.execute(StatementId::InsertBody, &rows[0][..1]);
        assert!(matches!(short, Err(rusqlite::Error::InvalidParameterCount(1, 2))), "{short:?}");
        drop(statements);
        let mut statement = connection.prepare("SELECT seq, quote(sealed) FROM event_body ORDER BY rowid").unwrap();
        let read = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let read: Vec<(Option<i64>, String)> = read.map(Result::unwrap).collect();
        let expected = [
            (Some(1), "'a'"),
            (Some(1), "'a'"),
            (Some(2), "'b'"),
            (None, "'b'"),
            (None, "X'62'"),
            (Some(0), "NULL"),
            (Some(0), "''"),
            (None, "'a'"),
        ];
        assert_eq!(read, expected.map(|(seq, text)| (seq, text.to_owned())));
    }
}
