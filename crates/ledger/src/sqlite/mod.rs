//! The embedded driver: one SQLite file, one writer thread, a few readers.

mod accept;
mod access;
mod alerts;
mod approvals;
mod attempt;
mod backlog;
mod batch;
mod blocked;
mod call_budgets;
mod caps;
mod checkpoint;
mod commands;
mod contact_keys;
mod contacts;
mod content_cache;
mod content_owner;
mod counters;
mod duplicates;
mod effect;
mod event_edit;
mod event_lists;
mod failure_groups;
mod history;
mod identity;
mod imports;
mod inspect;
mod key_index;
mod key_store;
mod late_identity;
mod lists;
mod mac;
#[cfg(test)]
mod migration_tests;
mod new_jobs;
mod operate;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod prepare_tests;
mod prune;
mod read;
mod read_pool;
mod references;
mod replays;
mod reserve_file;
mod responses;
mod row;
mod search;
mod shadow;
mod shapes;
mod statements;
mod step_result;
mod straggler;
mod totals;
mod upkeep;
mod write;
mod writer;

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use sluice_domain::mutant::Mutant;

use crate::seal::RootKey;
use crate::{Error, private_files};
pub use inspect::{AttemptEntry, Balance, Inspector, InvariantViolation, Verification};
use key_store::KeyStore;
pub(crate) use read_pool::ReadPool;
pub(crate) use writer::Writer;

/// Older versions can corrupt a write-ahead log that two connections reset at once.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// The newest schema that this build knows.
const SCHEMA_VERSION: i64 = 35;
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [
    include_str!("sql/0001_ledger.sql"),
    include_str!("sql/0002_playbooks.sql"),
    include_str!("sql/0003_guards.sql"),
    include_str!("sql/0004_configured.sql"),
    include_str!("sql/0005_room.sql"),
    include_str!("sql/0006_routing.sql"),
    include_str!("sql/0007_integrity.sql"),
    include_str!("sql/0008_proofs.sql"),
    include_str!("sql/0009_bindings.sql"),
    include_str!("sql/0010_clock.sql"),
    include_str!("sql/0011_stragglers.sql"),
    include_str!("sql/0012_waits.sql"),
    include_str!("sql/0013_find.sql"),
    include_str!("sql/0014_replays.sql"),
    include_str!("sql/0015_failure_class.sql"),
    include_str!("sql/0016_mapping_warnings.sql"),
    include_str!("sql/0017_schedule_clock.sql"),
    include_str!("sql/0018_contacts.sql"),
    include_str!("sql/0019_history.sql"),
    include_str!("sql/0020_alerts.sql"),
    include_str!("sql/0021_users.sql"),
    include_str!("sql/0022_credentials.sql"),
    include_str!("sql/0023_event_refs.sql"),
    include_str!("sql/0024_imports.sql"),
    include_str!("sql/0025_payloads.sql"),
    include_str!("sql/0026_shadow.sql"),
    include_str!("sql/0027_alert_severity.sql"),
    include_str!("sql/0028_responses.sql"),
    include_str!("sql/0029_late_identity.sql"),
    include_str!("sql/0030_lookups_and_duplicates.sql"),
    include_str!("sql/0031_call_budgets.sql"),
    include_str!("sql/0032_operators.sql"),
    include_str!("sql/0033_event_revisions.sql"),
    include_str!("sql/0034_openid.sql"),
    include_str!("sql/0035_history_rows.sql"),
];

const FILE_NAME: &str = "ledger.db";
const LOCK_NAME: &str = "lock";
/// Page size of a new file; an older file keeps its own. Two bodies of the usual length leave a third of a smaller page empty, and
/// each page costs two system calls on its way into the log and two more into the file.
const PAGE_BYTES: u64 = 8 * 1024;
/// Length to which the log file is truncated when it is reset. It normally does not grow longer; truncating it further each time
/// would make the file system allocate it again while callers wait.
const LOG_BYTES_KEPT: u64 = 144 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Write,
    Read,
}

/// Whether the directory contains a ledger.
pub(crate) fn exists_in(directory: &Path) -> bool {
    directory.join(FILE_NAME).is_file()
}

/// Whether this root key opens the ledger.
pub(crate) fn is_opened_by(directory: &Path, root_key: &RootKey) -> Result<bool, Error> {
    if !exists_in(directory) {
        return Ok(true);
    }
    Ok(KeyStore::is_opened_by(&open(directory, Role::Read)?, root_key)?)
}

/// Locks the data directory for this process, as long as the file handle lives.
pub(crate) fn lock(directory: &Path) -> Result<File, Error> {
    // It holds personal data.
    private_files::protect(directory).map_err(|source| Error::Directory { path: directory.to_owned(), source })?;
    let path = directory.join(LOCK_NAME);
    let opened = match private_files::create_file(&path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => File::options().write(true).open(&path),
        created => created,
    };
    let file = opened.map_err(|source| Error::Directory { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::Locked { path: directory.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(Error::Directory { path, source }),
    }
}

/// Whether a process has the data directory open.
pub(crate) fn is_locked(directory: &Path) -> std::io::Result<bool> {
    let file = match File::options().write(true).open(directory.join(LOCK_NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(std::fs::TryLockError::WouldBlock) => Ok(true),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Opens the file, migrates it, and checks that this build can work with it.
pub(crate) fn open(directory: &Path, role: Role) -> Result<Connection, Error> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(Error::Library { version: rusqlite::version() });
    }
    let path = directory.join(FILE_NAME);
    let flags = match role {
        Role::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        Role::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    if role == Role::Write {
        // SQLite would create it with the umask; its log and index files take the mode of this one.
        match private_files::create_file(&path) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => return Err(Error::Directory { path, source }),
            _ => {}
        }
    }
    let mut connection = Connection::open_with_flags(&path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(128);
    // Plans do not depend on bound values: otherwise some statements are prepared again each time they run.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if role == Role::Write {
        connection.execute_batch(&format!("PRAGMA page_size = {PAGE_BYTES}"))?;
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            return Err(Error::JournalMode { mode });
        }
        connection.execute_batch(&format!(
            "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = {LOG_BYTES_KEPT};
             PRAGMA cache_size = -16384;"
        ))?;
        if Mutant::CommitNotSynced.is_on() {
            connection.execute_batch("PRAGMA synchronous = OFF")?;
        }
        migrate(&mut connection)?;
    } else {
        connection.execute_batch("PRAGMA cache_size = -4096; PRAGMA query_only = ON;")?;
        check_version(&connection)?;
    }
    connection.execute_batch(
        "PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;
         PRAGMA foreign_keys = OFF;",
    )?;
    Ok(connection)
}

fn check_version(connection: &Connection) -> Result<i64, Error> {
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if found > SCHEMA_VERSION {
        return Err(Error::NewerSchema { found, known: SCHEMA_VERSION });
    }
    Ok(found)
}

/// Forward only; each migration and its version are one transaction.
fn migrate(connection: &mut Connection) -> Result<(), Error> {
    let from = check_version(connection)?;
    for (version, sql) in (1..).zip(MIGRATIONS).skip(usize::try_from(from).unwrap_or(0)) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(sql)?;
        transaction.execute_batch(&format!("PRAGMA user_version = {version}"))?;
        transaction.commit()?;
    }
    Ok(())
}

/// A sealed value that does not open, carried by an error of the driver.
#[derive(Debug, thiserror::Error)]
#[error("{table} {row}: {column} cannot be opened")]
pub(super) struct Unopened {
    table: &'static str,
    row: i64,
    column: &'static str,
}

/// The sealed value that does not open, if that is the error.
fn sealed_error(error: &rusqlite::Error) -> Option<Error> {
    let rusqlite::Error::FromSqlConversionFailure(_, _, cause) = error else { return None };
    let Unopened { table, row, column } = cause.downcast_ref()?;
    Some(Error::Sealed { table, row: *row, column })
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        sealed_error(&error).unwrap_or_else(|| Error::Read { message: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_schema_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path(), Role::Write).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
        let error = open(directory.path(), Role::Write).unwrap_err();
        assert!(matches!(error, Error::NewerSchema { found: 99, .. }), "{error}");
        assert!(error.to_string().contains("newer"), "{error}");
    }

    #[test]
    fn a_second_process_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let _held = lock(directory.path()).unwrap();
        assert!(matches!(lock(directory.path()), Err(Error::Locked { .. })));
    }

    #[test]
    fn every_commit_is_flushed() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(directory.path(), Role::Write).unwrap();
        let pragma =
            |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(pragma("synchronous"), 2);
        assert_eq!(pragma("wal_autocheckpoint"), 0);
        assert_eq!(pragma("mmap_size"), 0);
    }
}
