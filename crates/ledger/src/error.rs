//! What can go wrong.

use std::path::PathBuf;

/// A variant for each thing that a caller does differently.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else has the data directory.
    #[error("{} is in use by another process; stop that one first, or choose another directory with --data", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The data directory cannot be used.
    #[error("{}: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A newer build has written here.
    #[error(
        "the ledger was written by a newer version (layout {found}, this build knows {known}); use that version or a newer one"
    )]
    NewerSchema {
        /// What is there.
        found: i64,
        /// What this build knows.
        known: i64,
    },
    /// The SQLite library is too old to be trusted.
    #[error("SQLite {version} can corrupt a write-ahead log; 3.51.3 or newer is needed")]
    Library {
        /// What was found.
        version: &'static str,
    },
    /// The file system cannot do what is needed.
    #[error(
        "write-ahead logging is not possible here (journal mode is {mode}); is the data directory on a network file system?"
    )]
    JournalMode {
        /// What was chosen instead.
        mode: String,
    },
    /// Nobody said what opens the ledger.
    #[error("the ledger is sealed and no root key was given")]
    RootKeyMissing,
    /// The ledger was sealed with another root key.
    #[error(
        "the root key {given} does not open this ledger; give the one that it was sealed with, or restore it from your backup: without it nothing in the ledger can be read"
    )]
    RootKeyWrong {
        /// The name of the key that was given; `sluice keys show` tells it.
        given: String,
    },
    /// A sealed value does not open: somebody has changed it or moved it, or its key is destroyed.
    #[error("{table} {row}: {column} cannot be opened; it was changed or moved, or its key is destroyed")]
    Sealed {
        /// The table.
        table: &'static str,
        /// The row.
        row: i64,
        /// The column.
        column: &'static str,
    },
    /// The writer has more to do than it should be asked to remember.
    #[error("the ledger is overloaded")]
    Overloaded,
    /// There is no room for new events.
    #[error("the disk is full")]
    DiskFull,
    /// Nobody knows whether it was written.
    #[error("it is unknown whether the write happened: {message}")]
    InDoubt {
        /// What the disk said.
        message: String,
    },
    /// The ledger has stopped.
    #[error("the ledger has stopped")]
    Failed,
    /// A question took too long and was cut off.
    #[error("query exceeded 2 s; narrow the filter")]
    TooSlow,
    /// The operation cannot be written, and nothing was.
    #[error("not written: {message}")]
    Refused {
        /// Why.
        message: String,
    },
    /// A thread could not be started.
    #[error("a thread could not be started: {source}")]
    Thread {
        /// Why.
        source: std::io::Error,
    },
    /// Reading failed.
    #[error("reading the ledger failed: {message}")]
    Read {
        /// What SQLite said.
        message: String,
    },
}
