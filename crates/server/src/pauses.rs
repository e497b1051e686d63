//! What is paused, and what that means for workers and destinations.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use sluice_domain::config::Config;
use sluice_domain::schedule::PauseTarget;
use sluice_domain::time::Time;
use sluice_ledger::{Pause, PauseRecord};
use tokio::sync::{Mutex, MutexGuard, Notify};

use crate::OWN_ACTOR;

/// What replays are called in a pause list: nobody and nothing replays while they are paused.
pub(crate) const REPLAYS: &str = "replays";

/// Actor and reason of the pause of a destination that rejected the credentials. A restart recognises it by them.
const UNAUTHORIZED: (&str, &str) = (OWN_ACTOR, "the destination rejected the credentials");

/// The pause of a destination that rejected the credentials.
pub(crate) fn of_unauthorized(destination: &str, at: Time) -> Pause {
    let (actor, reason) = UNAUTHORIZED;
    Pause { target: format!("destination:{destination}"), actor: actor.to_owned(), reason: reason.to_owned(), at }
}

/// Whether a destination is paused because it rejected the credentials.
pub(crate) fn is_unauthorized(pauses: &[PauseRecord], destination: &str) -> bool {
    let is_of = |pause: &PauseRecord| pause.target.strip_prefix("destination:") == Some(destination);
    pauses.iter().any(|pause| is_of(pause) && (pause.actor.as_str(), pause.reason.as_str()) == UNAUTHORIZED)
}

/// Whether replays are paused, by whom and why.
pub(crate) fn of_replays(pauses: &[PauseRecord]) -> Option<&PauseRecord> {
    pauses.iter().find(|pause| pause.target == REPLAYS)
}

/// The workers that are paused: by their own name, or with their queue.
pub(crate) fn workers(config: &Config, pauses: &[PauseRecord]) -> BTreeSet<String> {
    let mut paused = BTreeSet::new();
    for pause in pauses {
        match pause.target.split_once(':') {
            Some(("worker", name)) => drop(paused.insert(name.to_owned())),
            Some(("queue", queue)) => paused.extend(config.consumers(queue).map(|worker| worker.name.clone())),
            _ => {}
        }
    }
    paused
}

/// The destinations that are paused.
fn destinations(pauses: &[PauseRecord]) -> impl Iterator<Item = &str> {
    pauses.iter().filter_map(|pause| pause.target.strip_prefix("destination:"))
}

/// The sources that are paused.
pub(crate) fn sources(pauses: &[PauseRecord]) -> HashSet<String> {
    pauses.iter().filter_map(|pause| pause.target.strip_prefix("source:").map(str::to_owned)).collect()
}

/// Everything that the scheduler must not start.
pub(crate) fn targets(config: &Config, pauses: &[PauseRecord]) -> HashSet<PauseTarget> {
    let workers = workers(config, pauses).into_iter().map(|name| PauseTarget::Worker(Arc::from(name)));
    workers.chain(destinations(pauses).map(|name| PauseTarget::Destination(Arc::from(name)))).collect()
}

/// The durable pauses that the scheduler has. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AppliedPauses {
    targets: Arc<Mutex<HashSet<PauseTarget>>>,
    inserted: Arc<Notify>,
}

impl AppliedPauses {
    /// Held from the read of the ledger's pauses until they are applied.
    pub(crate) async fn lock(&self) -> MutexGuard<'_, HashSet<PauseTarget>> {
        self.targets.lock().await
    }

    /// The scheduler has paused this destination by itself, and that is durable now. It may have been resumed since.
    pub(crate) async fn insert(&self, destination: Arc<str>) {
        self.targets.lock().await.insert(PauseTarget::Destination(destination));
        self.inserted.notify_one();
    }

    /// Returns after an [`insert`](AppliedPauses::insert).
    pub(crate) async fn inserted(&self) {
        self.inserted.notified().await;
    }
}
