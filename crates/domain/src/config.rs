//! A validated configuration: valid by construction, immutable, passed down.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::access::oidc::OidcSettings;
use crate::alert::AlertSettings;
use crate::contact::ContactRules;
use crate::destination::Destination;
use crate::flow::Flow;
use crate::policy::Policy;
use crate::template::Messages;
use crate::trace::TraceSettings;
use crate::worker::{Queue, Worker};

/// Every flow, queue, worker and destination of one revision.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Digest of the files that it was read from.
    pub revision: Revision,
    /// Directory of its files; scripts run there.
    pub directory: PathBuf,
    pub flows: BTreeMap<String, Arc<Flow>>,
    pub queues: BTreeMap<String, Queue>,
    pub workers: BTreeMap<String, Arc<Worker>>,
    pub destinations: BTreeMap<String, Destination>,
    pub policies: BTreeMap<String, Arc<Policy>>,
    /// How events become contacts; `None` if no contacts are kept.
    pub contacts: Option<Arc<ContactRules>>,
    pub alerts: AlertSettings,
    /// Where traces are sent.
    pub traces: Option<TraceSettings>,
    /// How users of the console sign in by an OpenID provider.
    pub oidc: Option<Arc<OidcSettings>>,
    /// Messages of `messaging.send_template`.
    pub messages: Messages,
}

impl Config {
    /// Workers that consume this queue, ordered by name.
    pub fn consumers<'a>(&'a self, queue: &'a str) -> impl Iterator<Item = &'a Arc<Worker>> {
        self.workers.values().filter(move |worker| worker.queue == queue)
    }

    /// Playbooks for events of this type, ordered by name.
    pub fn playbooks<'a>(&'a self, event_type: &'a str) -> impl Iterator<Item = &'a Arc<Worker>> {
        self.workers.values().filter(move |worker| worker.on.as_deref() == Some(event_type))
    }
}

/// Identifies a revision of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub String);

impl Revision {
    /// Digest of names and contents: any change of a name or a byte gives another revision.
    pub fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Revision {
        let mut hasher = blake3::Hasher::new();
        for (path, text) in files {
            for part in [path, text] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part.as_bytes());
            }
        }
        Revision(data_encoding::HEXLOWER.encode(&hasher.finalize().as_bytes()[..8]))
    }
}
