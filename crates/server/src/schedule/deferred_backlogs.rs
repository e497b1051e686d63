//! Backlogs that are longer than memory: new jobs of theirs need not be announced, since they are loaded later.
//!
//! The ledger evaluates this after a commit, and the scheduler updates it before it reads. Whichever comes first, no job is
//! missed: either the job is announced, or it was committed before the read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

/// Destinations by worker.
type Backlogs = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct DeferredBacklogs(Arc<RwLock<Backlogs>>);

impl DeferredBacklogs {
    /// Whether new jobs of this worker and destination are deferred to a later load.
    pub(super) fn has(&self, worker: &str, destination: &str) -> bool {
        let deferred = self.0.read().unwrap_or_else(PoisonError::into_inner);
        deferred.get(worker).is_some_and(|destinations| destinations.contains(destination))
    }

    /// Replaces all of them.
    pub(super) fn set<'a>(&self, backlogs: impl Iterator<Item = (&'a Arc<str>, &'a Arc<str>)> + Clone) {
        if self.equals(backlogs.clone()) {
            return;
        }
        let mut deferred = Backlogs::new();
        for (worker, destination) in backlogs {
            deferred.entry(worker.clone()).or_default().insert(destination.clone());
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = deferred;
    }

    fn equals<'a>(&self, backlogs: impl Iterator<Item = (&'a Arc<str>, &'a Arc<str>)> + Clone) -> bool {
        let count = backlogs.clone().count();
        let deferred = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let has = |(worker, destination): (&Arc<str>, &Arc<str>)| {
            deferred.get(worker).is_some_and(|destinations| destinations.contains(destination))
        };
        count == deferred.values().map(BTreeSet::len).sum::<usize>() && { backlogs }.all(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_deferred_until_it_is_replaced() {
        let deferred = DeferredBacklogs::default();
        let [a, b, crm]: [Arc<str>; 3] = ["a".into(), "b".into(), "crm".into()];
        assert!(!deferred.has("a", "crm"));
        deferred.set([(&a, &crm)].into_iter());
        assert!(deferred.has("a", "crm") && !deferred.has("b", "crm") && !deferred.has("a", ""));
        deferred.set([(&b, &crm)].into_iter());
        assert!(!deferred.has("a", "crm") && deferred.has("b", "crm"), "as many, but another one");
        deferred.set([(&b, &crm), (&a, &crm)].into_iter());
        assert!(deferred.has("a", "crm") && deferred.has("b", "crm"));
        deferred.set([].into_iter());
        assert!(!deferred.has("a", "crm") && !deferred.has("b", "crm"));
    }
}
