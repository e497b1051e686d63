//! Resources that a change removes while jobs need them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sluice_domain::config::Config;
use sluice_ledger::PinnedRecord;
use utoipa::ToSchema;

/// Removed resource that jobs need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stranded {
    /// worker, queue or destination.
    pub kind: String,
    pub name: String,
    pub live: u64,
    /// Dead and unknown jobs that need it for a replay.
    pub dead_letters: u64,
    pub why: String,
}

/// Destinations by (revision, worker).
pub(super) type Reached = BTreeMap<(String, String), BTreeSet<String>>;

/// Resources missing in `after` that jobs need. Those also missing in `before` were stranded earlier and are skipped.
pub(super) fn stranded(
    before: Option<&Config>,
    after: &Config,
    pinned: &[PinnedRecord],
    reached: &Reached,
) -> Vec<Stranded> {
    let mut found: BTreeMap<(&'static str, &str), (u64, u64)> = BTreeMap::new();
    let mut need = |kind: &'static str, name, record: &PinnedRecord| {
        if had(before, kind, name) && !has(after, kind, name) {
            let count = found.entry((kind, name)).or_default();
            count.0 += record.live;
            count.1 += record.parked;
        }
    };
    for record in pinned {
        need("worker", record.worker.as_str(), record);
        need("queue", record.queue.as_str(), record);
        if let Some(queue) = record.dead_letter_queue.as_deref().filter(|queue| *queue != record.queue) {
            need("queue", queue, record);
        }
        for destination in reached.get(&(record.revision.clone(), record.worker.clone())).into_iter().flatten() {
            need("destination", destination.as_str(), record);
        }
    }
    let tell = |((kind, name), (live, dead_letters)): ((&'static str, &str), _)| Stranded {
        kind: kind.to_owned(),
        name: name.to_owned(),
        live,
        dead_letters,
        why: why(kind).to_owned(),
    };
    found.into_iter().map(tell).collect()
}

fn why(kind: &str) -> &'static str {
    match kind {
        "worker" => {
            "live jobs keep their steps, run one at a time after a restart and cannot be paused; dead letters fail again if replayed with --latest-config"
        }
        "queue" => {
            "its dead letters are never dropped by retention, and its jobs cannot be replayed with --latest-config"
        }
        _ => "jobs keep its last address and limits, and it can no longer be paused or changed",
    }
}

fn had(before: Option<&Config>, kind: &str, name: &str) -> bool {
    before.is_none_or(|before| has(before, kind, name))
}

fn has(config: &Config, kind: &str, name: &str) -> bool {
    match kind {
        "worker" => config.workers.contains_key(name),
        "queue" => config.queues.contains_key(name),
        _ => config.destinations.contains_key(name),
    }
}

/// Destinations of the workers of a configuration.
pub(crate) fn reached(config: &Config) -> Reached {
    let of_worker = |worker: &sluice_domain::worker::Worker| {
        let outward = worker.steps.iter().chain(&worker.undo).filter(|step| !step.destination.is_empty());
        outward.map(|step| step.destination.to_string()).collect::<BTreeSet<String>>()
    };
    config.workers.iter().map(|(name, worker)| ((config.revision.0.clone(), name.clone()), of_worker(worker))).collect()
}
