//! A statement is prepared once. SQLite prepares one anew whenever a parameter is bound that its plan might depend on, which
//! took a fifth of the writer's time before plans were fixed.

use rusqlite::StatementStatus;

use super::{Role, open};

/// Statements that run for every attempt, or for many jobs in a row.
const STATEMENTS: [&str; 4] = [
    include_str!("sql/begin_job.sql"),
    include_str!("sql/settle_job.sql"),
    include_str!("sql/replay_job.sql"),
    include_str!("sql/drop_job.sql"),
];

#[test]
fn the_statements_of_an_attempt_are_prepared_once() {
    let directory = tempfile::tempdir().unwrap();
    let connection = open(directory.path(), Role::Write).unwrap();
    for sql in STATEMENTS {
        let mut statement = connection.prepare(sql).unwrap();
        // No row matches: what counts is that other values are bound each time.
        for round in 1..5i64 {
            for parameter in 1..=statement.parameter_count() {
                statement.raw_bind_parameter(parameter, round).unwrap();
            }
            assert!(statement.raw_query().next().unwrap().is_none());
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{sql}");
    }
}
