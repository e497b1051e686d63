//! The active revision, and older revisions for jobs accepted under them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use sluice_connectors::{Connectors, OutboundSettings};
use sluice_domain::config::Config;
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::run::{ConfigRevision, RunConfig};
use sluice_ledger::Ledger;

use crate::config::{self, Files, Noted, SecretStore};

/// Compiled revision with its connectors.
#[derive(Debug)]
pub struct LoadedRevision {
    pub config: Arc<Config>,
    pub revision: Arc<str>,
    /// Secrets used by steps at run time.
    pub secrets: Arc<SecretStore>,
    pub connectors: Connectors,
    /// All secrets read during compilation, to detect a changed secret.
    seen: SecretStore,
}

impl LoadedRevision {
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

    /// Sets the secrets read during compilation.
    pub(crate) fn read_with(self, seen: SecretStore) -> LoadedRevision {
        LoadedRevision { seen, ..self }
    }

    /// As a run needs it.
    pub fn for_run(&self, pseudonyms: &PseudonymKey) -> ConfigRevision {
        ConfigRevision {
            name: self.revision.clone(),
            config: self.config.clone(),
            secrets: self.secrets.clone(),
            pseudonyms: pseudonyms.clone(),
        }
    }

    /// Same files and same secrets.
    pub(crate) fn is_same(&self, other: &LoadedRevision) -> bool {
        self.revision == other.revision && self.seen.is_same(&other.seen)
    }
}

/// Cached older revisions. Others are compiled again on use.
const OLDER_MAX: usize = 16;

/// Active and older revisions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Revisions {
    current: Arc<ArcSwap<LoadedRevision>>,
    older: Arc<Mutex<HashMap<Arc<str>, Arc<LoadedRevision>>>>,
    secrets: Arc<dyn config::SecretSource + Send + Sync>,
    pseudonyms: PseudonymKey,
}

impl Revisions {
    pub fn new(
        current: LoadedRevision,
        secrets: Arc<dyn config::SecretSource + Send + Sync>,
        pseudonyms: PseudonymKey,
    ) -> Revisions {
        Revisions { current: Arc::new(ArcSwap::from_pointee(current)), older: Arc::default(), secrets, pseudonyms }
    }

    /// The key of pseudonyms in keys, from the ledger.
    pub fn pseudonyms(&self) -> &PseudonymKey {
        &self.pseudonyms
    }

    pub fn secrets(&self) -> &Arc<dyn config::SecretSource + Send + Sync> {
        &self.secrets
    }

    pub fn current(&self) -> Arc<LoadedRevision> {
        self.current.load_full()
    }

    /// Activates a revision. The previous one stays cached for its jobs.
    pub fn replace(&self, next: Arc<LoadedRevision>) {
        let before = self.current.swap(next.clone());
        if !before.seen.is_same(&next.seen)
            && let Ok(mut older) = self.older.lock()
        {
            // Cached revisions have old secrets; they are compiled again on use.
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

    /// A revision by hash, if it is cached.
    pub fn ready(&self, revision: &Arc<str>) -> Option<Arc<LoadedRevision>> {
        let current = self.current.load();
        if current.revision == *revision {
            return Some(current.clone());
        }
        self.older.lock().ok().and_then(|older| older.get(revision).cloned())
    }

    /// A revision by hash, loaded from the ledger if it is not cached. `None` if it is unknown or no longer compiles,
    /// for example because a secret is missing.
    pub async fn get(&self, revision: &Arc<str>, ledger: &Ledger) -> Option<Arc<LoadedRevision>> {
        if let Some(ready) = self.ready(revision) {
            return Some(ready);
        }
        let files = ledger.revision(revision.clone()).await.ok()??;
        let directory = self.current().config.directory.clone();
        let files = Files::from_texts(serde_json::from_str::<Vec<(String, String)>>(&files).ok()?).within(directory);
        let noted = Noted::new(&*self.secrets);
        let compiled = config::compile(&files, &noted);
        let live = LoadedRevision::new(compiled.config?, compiled.secrets).ok()?.read_with(noted.seen());
        let live = Arc::new(live);
        self.remember(live.clone());
        Some(live)
    }

    /// The configuration of a run under this revision, which is compiled from the ledger if need be.
    pub(crate) async fn for_run(&self, revision: &Arc<str>, ledger: &Ledger) -> RunConfig {
        let pinned = self.get(revision, ledger).await;
        let run = |revision: Arc<LoadedRevision>| revision.for_run(&self.pseudonyms);
        RunConfig { pinned: pinned.map(run), active: run(self.current()) }
    }

    /// Connectors for a destination: of the active revision if it has the destination (its credentials and addresses
    /// are current), else of the revision the job was accepted under.
    pub fn connectors(&self, revision: &Arc<str>, destination: &str) -> Connectors {
        let current = self.current();
        if current.config.destinations.contains_key(destination) {
            return current.connectors.clone();
        }
        self.ready(revision).unwrap_or(current).connectors.clone()
    }
}
