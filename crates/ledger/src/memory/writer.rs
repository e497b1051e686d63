//! The store behind the facade: a thread that applies what callers send, in their order.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use super::Store;
use crate::op::{Acceptance, Accepted, Op, Reply};
use crate::record::LoadedJob;
use crate::sqlite::Submission;
use crate::submission_queue::BatchReceiver;
use crate::{Error, LedgerOptions, Stats};

/// Operations that are applied in one go, at the most.
const BATCH_OPS_MAX: usize = 512;

/// Where a ledger in memory lies. What was written stays for as long as this is kept; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StoreHandle(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    store: Mutex<Store>,
    is_open: AtomicBool,
}

impl StoreHandle {
    /// An empty one.
    pub fn new() -> StoreHandle {
        StoreHandle::default()
    }

    /// Takes the place; it is free again once what is returned is dropped.
    pub(crate) fn lock(&self) -> Result<Shared, Error> {
        match self.0.is_open.swap(true, Ordering::AcqRel) {
            true => Err(Error::Locked { path: PathBuf::from(":memory:") }),
            false => Ok(Shared { held: self.0.clone() }),
        }
    }

    /// For reading, whoever writes.
    pub(crate) fn read(&self) -> MutexGuard<'_, Store> {
        self.0.store.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A place that is taken.
#[derive(Debug)]
pub(crate) struct Shared {
    held: Arc<Held>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.held.is_open.store(false, Ordering::Release);
    }
}

impl Shared {
    /// Works until it is told to end, or every sender is gone.
    pub fn run(self, mut operations: BatchReceiver<Submission>, options: &LedgerOptions, stats: &Stats) {
        let mut batch = Vec::with_capacity(BATCH_OPS_MAX);
        while operations.recv_batch(&mut batch, BATCH_OPS_MAX) > 0 {
            let started = Instant::now();
            let size = batch.len() as u64;
            stats.queued.fetch_sub(size, std::sync::atomic::Ordering::Relaxed);
            let closing = batch.iter().any(|envelope| matches!(envelope.op, Op::Close));
            self.commit(std::mem::take(&mut batch), options);
            stats.batches.fetch_add(1, Ordering::Relaxed);
            stats.operations.fetch_add(size, Ordering::Relaxed);
            stats.commit_micros.fetch_add(started.elapsed().as_micros() as u64, Ordering::Relaxed);
            if closing {
                break;
            }
        }
    }

    fn commit(&self, batch: Vec<Submission>, options: &LedgerOptions) {
        let now = (options.clock)();
        let mut fresh = Vec::new();
        let mut answers = Vec::with_capacity(batch.len());
        {
            let mut store = self.held.store.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for envelope in batch {
                let reply = store.apply(now, envelope.op);
                match &reply {
                    Reply::Accepted(accepted) => fresh.extend(announced(&store, accepted)),
                    Reply::Acceptances(all) => fresh.extend(all.iter().flat_map(|one| match one {
                        Acceptance::Accepted(accepted) => announced(&store, accepted),
                        Acceptance::Duplicate(_) => vec![],
                    })),
                    _ => {}
                }
                answers.push((envelope.reply, reply));
            }
        }
        fresh.retain(|fresh| (options.wants_new_jobs)(&fresh.job.worker));
        if !fresh.is_empty() {
            (options.on_new_jobs)(fresh);
        }
        for (waiting, reply) in answers {
            if let Some(waiting) = waiting {
                // Whoever asked may have hung up; what is written stays written.
                let _ = waiting.send(Ok(reply));
            }
        }
    }
}

/// The jobs of an event that are to be done now.
fn announced(store: &Store, accepted: &Accepted) -> Vec<LoadedJob> {
    if accepted.quarantined { vec![] } else { store.fresh(accepted.seq) }
}
