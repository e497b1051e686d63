//! The configuration in force, and older revisions of it for the jobs that were accepted under them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use sluice_connectors::{Connectors, OutboundSettings};
use sluice_domain::config::Config;
use sluice_domain::run::{ConfigRevision, RunConfig};
use sluice_ledger::Ledger;

use crate::config::{self, Files, SecretStore};

/// A revision, ready to be used.
#[derive(Debug)]
pub struct LoadedRevision {
    /// What it says.
    pub config: Arc<Config>,
    /// Names this revision.
    pub revision: Arc<str>,
    /// The secrets that its steps use.
    pub secrets: Arc<SecretStore>,
    /// Its destinations.
    pub connectors: Connectors,
    /// Every secret that it was read with. Another one makes another `Live` of the same revision.
    seen: SecretStore,
}

impl LoadedRevision {
    /// Prepares the destinations of a configuration.
    pub fn new(config: Config, secrets: SecretStore) -> Result<LoadedRevision, sluice_connectors::BuildProblem> {
        let connectors = Connectors::new(config.destinations.values(), &OutboundSettings::default())?;
        Ok(LoadedRevision {
            revision: Arc::from(config.revision.0.as_str()),
            config: Arc::new(config),
            secrets: Arc::new(secrets),
            connectors,
            seen: SecretStore::default(),
        })
    }

    /// The same, which remembers every secret that it was read with.
    pub fn read_with(self, seen: SecretStore) -> LoadedRevision {
        LoadedRevision { seen, ..self }
    }

    /// As a run needs it.
    pub fn for_run(&self) -> ConfigRevision {
        ConfigRevision { name: self.revision.clone(), config: self.config.clone(), secrets: self.secrets.clone() }
    }

    /// Whether both come from the same files and the same secrets.
    pub fn is_same(&self, other: &LoadedRevision) -> bool {
        self.revision == other.revision && self.seen.is_same(&other.seen)
    }
}

/// Older revisions that are kept ready. A job of another one compiles it again.
const OLDER_MAX: usize = 16;

/// Every revision that a job may need. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Revisions {
    current: Arc<ArcSwap<LoadedRevision>>,
    older: Arc<Mutex<HashMap<Arc<str>, Arc<LoadedRevision>>>>,
    secrets: Arc<dyn config::SecretSource + Send + Sync>,
}

impl Revisions {
    /// Starts with the revision in force.
    pub fn new(current: LoadedRevision, secrets: Arc<dyn config::SecretSource + Send + Sync>) -> Revisions {
        Revisions { current: Arc::new(ArcSwap::from_pointee(current)), older: Arc::default(), secrets }
    }

    /// Where secrets are looked up.
    pub fn secrets(&self) -> &Arc<dyn config::SecretSource + Send + Sync> {
        &self.secrets
    }

    /// The revision in force.
    pub fn current(&self) -> Arc<LoadedRevision> {
        self.current.load_full()
    }

    /// Puts another one in force. The one before stays ready for its jobs.
    pub fn replace(&self, next: LoadedRevision) {
        let next = Arc::new(next);
        let before = self.current.swap(next.clone());
        if !before.seen.is_same(&next.seen)
            && let Ok(mut older) = self.older.lock()
        {
            // They hold secrets that may work no more; each is read anew when a job needs it.
            older.clear();
        }
        if before.revision != next.revision {
            self.remember(before);
        }
    }

    fn remember(&self, live: Arc<LoadedRevision>) {
        let Ok(mut older) = self.older.lock() else { return };
        if older.len() >= OLDER_MAX {
            older.clear();
        }
        older.insert(live.revision.clone(), live);
    }

    /// A revision by its name, if it is ready.
    pub fn ready(&self, revision: &Arc<str>) -> Option<Arc<LoadedRevision>> {
        let current = self.current.load();
        if current.revision == *revision {
            return Some(current.clone());
        }
        self.older.lock().ok().and_then(|older| older.get(revision).cloned())
    }

    /// A revision by its name, read from the ledger if it is not ready. `None` if it is unknown or does not compile any
    /// more (a secret is gone, say).
    pub async fn get(&self, revision: &Arc<str>, ledger: &Ledger) -> Option<Arc<LoadedRevision>> {
        if let Some(ready) = self.ready(revision) {
            return Some(ready);
        }
        let files = ledger.revision(revision.clone()).await.ok()??;
        let directory = self.current().config.directory.clone();
        let files = Files::from_texts(serde_json::from_str::<Vec<(String, String)>>(&files).ok()?).within(directory);
        let compiled = config::compile(&files, &*self.secrets);
        let live = Arc::new(LoadedRevision::new(compiled.config?, compiled.secrets).ok()?);
        self.remember(live.clone());
        Some(live)
    }

    /// The configuration of a run under this revision, which is compiled from the ledger if need be.
    pub async fn for_run(&self, revision: &Arc<str>, ledger: &Ledger) -> RunConfig {
        let pinned = self.get(revision, ledger).await;
        RunConfig { pinned: pinned.map(|pinned| pinned.for_run()), active: self.current().for_run() }
    }

    /// The connectors to a destination: of the active revision if it has the destination, else of this one.
    pub fn connectors(&self, revision: &Arc<str>, destination: &str) -> Connectors {
        let current = self.current();
        if current.config.destinations.contains_key(destination) {
            return current.connectors.clone();
        }
        self.ready(revision).unwrap_or(current).connectors.clone()
    }
}
