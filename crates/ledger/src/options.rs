//! What the owner of a ledger provides, and the counters that it reads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use sluice_domain::job::Term;
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::time::Time;
use tokio::sync::watch;

use crate::op::ChangedJob;
use crate::record::LoadedJob;
use crate::seal::RootKey;

/// Source of the wall-clock time.
pub type ClockFn = Arc<dyn Fn() -> Time + Send + Sync>;

/// What a process learns when it opens a ledger.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub term: Term,
    pub changes: watch::Receiver<u64>,
    pub pseudonyms: PseudonymKey,
}

/// Counters of the writer, for metrics.
#[derive(Debug, Default)]
pub struct Stats {
    /// Operations that wait for the writer.
    pub queued: AtomicU64,
    /// Committed transactions.
    pub batches: AtomicU64,
    /// Operations in all transactions.
    pub operations: AtomicU64,
    /// Time spent in transactions.
    pub commit_micros: AtomicU64,
    /// Pages in the write-ahead log.
    pub wal_pages: AtomicU64,
    /// Batches whose accepts were rejected because the disk was full.
    pub disk_full: AtomicU64,
    /// Whether the disk was full at the last attempt to write.
    pub is_disk_full: AtomicBool,
}

/// What the owner of a ledger provides.
pub struct LedgerOptions {
    pub clock: ClockFn,
    /// Whether new jobs of this worker are announced. Evaluated after the commit that creates them, when they can be read:
    /// an owner that first answers no and then reads the ledger finds every job that was not announced.
    pub wants_new_jobs: Box<dyn Fn(&str) -> bool + Send>,
    /// Called by the writer with the announced jobs of each commit, in order.
    pub on_new_jobs: Box<dyn Fn(Vec<LoadedJob>) + Send>,
    /// Called by the writer with the quarantined jobs that a commit has released.
    pub on_requeued: Box<dyn Fn(Vec<ChangedJob>) + Send>,
    /// Called once when the file can no longer be trusted; the process should end.
    pub on_fatal: Box<dyn Fn(&str) + Send>,
    /// Keys in memory before they are moved to a sorted run; `None` is the default. Small values are for tests.
    pub recent_keys_max: Option<usize>,
    /// Pages of the write-ahead log before the writer resets it; `None` is the default. Small values are for tests.
    pub wal_pages_max: Option<u64>,
    /// Time that a page of a list searches before it answers with what it has found; `None` is the default. Zero is for tests.
    pub search_max: Option<Duration>,
    /// Required for a ledger on disk.
    pub root_key: Option<RootKey>,
}

impl fmt::Debug for LedgerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerOptions").field("recent_keys_max", &self.recent_keys_max).finish_non_exhaustive()
    }
}

impl LedgerOptions {
    /// For tools that open a ledger while no node runs: no job is announced.
    pub fn quiet(clock: ClockFn) -> LedgerOptions {
        LedgerOptions {
            clock,
            wants_new_jobs: Box::new(|_| false),
            on_new_jobs: Box::new(|_| {}),
            on_requeued: Box::new(|_| {}),
            on_fatal: Box::new(|_| {}),
            recent_keys_max: None,
            wal_pages_max: None,
            search_max: None,
            root_key: None,
        }
    }

    pub fn with_root_key(self, root_key: RootKey) -> LedgerOptions {
        LedgerOptions { root_key: Some(root_key), ..self }
    }
}
