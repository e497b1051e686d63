//! Errors of the ledger.

use std::path::PathBuf;

/// A variant for each case that callers handle differently.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process has the data directory open.
    #[error("{} is in use by another process; stop that one first, or choose another directory with --data", path.display())]
    Locked { path: PathBuf },
    /// The data directory cannot be used.
    #[error("{}: {source}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    /// A newer build has written the ledger.
    #[error(
        "the ledger was written by a newer version (layout {found}, this build knows {known}); use that version or a newer one"
    )]
    NewerSchema { found: i64, known: i64 },
    /// The SQLite library is too old to be trusted.
    #[error("SQLite {version} can corrupt a write-ahead log; 3.51.3 or newer is needed")]
    Library { version: &'static str },
    /// The file system cannot do what is needed.
    #[error(
        "write-ahead logging is not possible here (journal mode is {mode}); is the data directory on a network file system?"
    )]
    JournalMode { mode: String },
    /// A root key is required.
    #[error("the ledger is sealed and no root key was given")]
    RootKeyMissing,
    /// The ledger was sealed with another root key.
    #[error(
        "the root key {given} does not open this ledger; give the one that it was sealed with, or restore it from your backup: without it nothing in the ledger can be read"
    )]
    RootKeyWrong {
        /// Id of the key that was given, as `sluice keys show` prints it.
        given: String,
    },
    /// A sealed value does not open: it was altered or moved, or its key is destroyed.
    #[error("{table} {row}: {column} cannot be opened; it was changed or moved, or its key is destroyed")]
    Sealed { table: &'static str, row: i64, column: &'static str },
    /// Too many operations wait for the writer.
    #[error("the ledger is overloaded")]
    Overloaded,
    /// There is no room on the disk for new events.
    #[error("the disk is full")]
    DiskFull,
    /// The write may or may not be durable.
    #[error("it is unknown whether the write happened: {message}")]
    InDoubt { message: String },
    /// The ledger has stopped.
    #[error("the ledger has stopped")]
    Failed,
    /// A read took too long and was interrupted.
    #[error("query exceeded 2 s; narrow the filter")]
    TooSlow,
    /// The operation cannot be written; nothing was.
    #[error("not written: {message}")]
    Refused { message: String },
    /// A thread could not be started.
    #[error("a thread could not be started: {source}")]
    Thread { source: std::io::Error },
    /// A read failed.
    #[error("reading the ledger failed: {message}")]
    Read { message: String },
}
