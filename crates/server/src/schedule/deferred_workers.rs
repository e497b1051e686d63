//! Workers with a longer backlog than is in memory: nobody need announce a fresh job of theirs, since it is read in its turn.
//!
//! The ledger asks after a commit, and the scheduler says that it listens again before it reads. Whichever comes first, no job is
//! missed: either the ledger hears of it and announces the job, or the job was there before the scheduler read.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

/// Their names, as the scheduler saw it last. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct DeferredWorkers(Arc<RwLock<BTreeSet<Arc<str>>>>);

impl DeferredWorkers {
    /// Whether the jobs of this worker are read in their turn.
    pub(super) fn has(&self, worker: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(worker)
    }

    /// These are behind, and nobody else.
    pub(super) fn set<'a>(&self, workers: impl Iterator<Item = &'a Arc<str>> + Clone) {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let same = workers.clone().count() == held.len() && workers.clone().all(|worker| held.contains(worker));
        drop(held);
        if !same {
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = workers.cloned().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_behind_is_known_until_said_otherwise() {
        let behind = DeferredWorkers::default();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        assert!(!behind.has("a"));
        behind.set([&a].into_iter());
        assert!(behind.has("a") && !behind.has("b"));
        behind.set([&b].into_iter());
        assert!(!behind.has("a") && behind.has("b"), "as many, but another");
        behind.set([&b, &a].into_iter());
        assert!(behind.has("a") && behind.has("b"));
        behind.set([].into_iter());
        assert!(!behind.has("a") && !behind.has("b"));
    }
}
