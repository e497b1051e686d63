//! Commands of operators, and what a node records of its configuration.

use std::sync::Arc;

use sluice_domain::alert::AlertKind;
use sluice_domain::key::KeyDigest;
use sluice_domain::time::Time;

/// Stops a target until it is resumed.
#[derive(Clone, Debug)]
pub struct Pause {
    /// `destination:crm`, `worker:contact-upsert`, `source:website`.
    pub target: String,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

#[derive(Clone, Debug)]
pub struct Resume {
    pub target: String,
    pub actor: String,
    /// Empty if none was given.
    pub reason: String,
    pub at: Time,
}

/// An entry of the audit trail.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    pub at: Time,
    pub actor: String,
    pub action: String,
    pub object: String,
    pub detail: String,
}

/// A revision of the configuration that becomes active.
#[derive(Clone, Debug)]
pub struct NewRevision {
    /// Digest of its files.
    pub hash: Arc<str>,
    /// Path and text of each file, as JSON.
    pub files: String,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// The schedule of a worker.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub worker: String,
    /// As it is configured.
    pub rule: String,
    pub at: Time,
}

/// An operator marks an alert.
#[derive(Clone, Debug)]
pub struct MarkAlert {
    pub kind: AlertKind,
    /// Empty for the node.
    pub subject: String,
    pub mark: AlertMark,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertMark {
    Acknowledged,
    /// Changes until this time are not notified.
    SnoozedUntil(Time),
}

impl MarkAlert {
    /// As the audit trail names it.
    pub(crate) fn action(&self) -> &'static str {
        match self.mark {
            AlertMark::Acknowledged => "acknowledge",
            AlertMark::SnoozedUntil(_) => "snooze",
        }
    }

    /// As in the audit trail.
    pub(crate) fn object(&self) -> String {
        format!("alert:{}:{}", self.kind.name(), self.subject)
    }
}

/// Contacts that must not be written to.
#[derive(Clone, Debug)]
pub struct Suppress {
    /// Each with its masked form, which lists show.
    pub contacts: Vec<(KeyDigest, String)>,
    /// Empty means any channel.
    pub channel: String,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// Contacts that may be written to again.
#[derive(Clone, Debug)]
pub struct Unsuppress {
    pub contacts: Vec<KeyDigest>,
    /// Empty means any channel.
    pub channel: String,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// Turns safe mode on or off.
#[derive(Clone, Debug)]
pub struct SetSafeMode {
    /// `None` means all workers.
    pub worker: Option<String>,
    /// `None` turns it off.
    pub until: Option<Time>,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}
