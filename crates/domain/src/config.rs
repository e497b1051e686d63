//! A whole configuration, as it is meant: valid by construction, immutable, passed down.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::destination::Destination;
use crate::flow::Flow;
use crate::policy::Policy;
use crate::template::Messages;
use crate::worker::{Queue, Worker};

/// Every flow, queue, worker and destination of one revision.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Names this revision: a digest of the files it was read from.
    pub revision: Revision,
    /// Where its files lie; scripts run there.
    pub directory: PathBuf,
    /// By name.
    pub flows: BTreeMap<String, Arc<Flow>>,
    /// By name.
    pub queues: BTreeMap<String, Queue>,
    /// By name.
    pub workers: BTreeMap<String, Arc<Worker>>,
    /// By name.
    pub destinations: BTreeMap<String, Destination>,
    /// By name.
    pub policies: BTreeMap<String, Arc<Policy>>,
    /// What `messaging.send_template` sends.
    pub messages: Messages,
}

impl Config {
    /// The workers that consume this queue, in the order of their names.
    pub fn consumers<'a>(&'a self, queue: &'a str) -> impl Iterator<Item = &'a Arc<Worker>> {
        self.workers.values().filter(move |worker| worker.queue == queue)
    }

    /// The playbooks for events of this type, in the order of their names.
    pub fn playbooks<'a>(&'a self, event_type: &'a str) -> impl Iterator<Item = &'a Arc<Worker>> {
        self.workers.values().filter(move |worker| worker.on.as_deref() == Some(event_type))
    }
}

/// Names a revision of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub String);

impl Revision {
    /// The revision of these files: any change of a name or a byte is another one.
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
