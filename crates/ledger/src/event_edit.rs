//! Edits of events: what is asked of the ledger about them.

use sluice_domain::contact::{Conflict, Observation};
use sluice_domain::event_edit::BusyJob;
use sluice_domain::job::JobId;
use sluice_domain::key::KeyDigest;
use sluice_domain::replay::Reapply;
use sluice_domain::time::Time;

use crate::op::ChangedJob;
use crate::record::EventSeq;

/// Stores an edited event as a new revision and requeues its jobs.
#[derive(Clone, Debug)]
pub struct EditEvent {
    pub seq: EventSeq,
    /// The revision that was edited: 0 for the event as it was accepted.
    pub base: u32,
    /// The edited event as JSON.
    pub normalized: String,
    /// Paths that differ from the revision before. No values: they go to the audit trail.
    pub fields: Vec<String>,
    /// Digest of the person whose data the edited event holds, if known: whose key seals it.
    pub contact: Option<KeyDigest>,
    /// Digest of the entity that the edited event is about, if no contacts are kept.
    pub entity: u64,
    /// What the edited event says about its contact, if contacts are kept.
    pub observation: Option<Box<Observation>>,
    /// Applied effects of these classes are applied again.
    pub reapply: Reapply,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

impl EditEvent {
    /// Describes the edit in the audit trail.
    pub(crate) fn detail(&self, n: u32) -> String {
        format!("revision {n} of {}: {}", self.fields.join(", "), self.reason)
    }
}

/// The result of an [`EditEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edited {
    Done {
        revision: u32,
        jobs: Vec<ChangedJob>,
    },
    NotFound,
    /// The body has been deleted by retention.
    BodyRemoved,
    /// A job runs, waits, or has an effect of unknown outcome.
    Busy(BusyJob),
    /// A call of this job may still be applied late, with the content that is edited.
    LateCall(JobId),
    /// Another edit came first: this is the current revision.
    Outdated(u32),
    TooMany,
    /// The identifiers belong to several contacts, or contradict the one that they belong to. Nothing is written.
    Conflict(Vec<Conflict>),
}

/// A revision of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRevisionRecord {
    /// 0 for the event as it was accepted.
    pub n: u32,
    pub at: Time,
    /// Empty for the event as it was accepted.
    pub actor: String,
    pub reason: String,
    /// `None` once the key of its person is destroyed.
    pub normalized: Option<String>,
}
