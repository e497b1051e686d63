//! Identities of events, and contacts.

use sluice_domain::contact::{Conflict, ContactId, Observation, SuppliedIdentity};
use sluice_domain::key::KeyDigest;
use sluice_domain::ops::StepResult;
use sluice_domain::time::Time;

use crate::record::EventSeq;

/// An operator or a lookup supplies an identity for a quarantined event.
#[derive(Clone, Debug)]
pub struct IdentifyEvent {
    pub seq: EventSeq,
    /// What the event says with the identity. Has an identifier.
    pub observation: Observation,
    pub supplied: SuppliedIdentity,
    /// Digest of the person, if known: whose key seals the identity.
    pub contact: Option<KeyDigest>,
    /// Outputs of the lookups that were made for the event, recorded with the release. Of one job; the first one under a key counts.
    pub outputs: Vec<StepResult>,
}

/// The lookups of a quarantined event ended without an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityLookupEnded {
    pub seq: EventSeq,
    /// With this one.
    pub tries: u32,
    /// When they are made again; `None` if they are not.
    pub due_at: Option<Time>,
    /// Code of the result.
    pub last: String,
}

/// The result of an [`IdentifyEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identified {
    /// The event belongs to this contact, and its jobs are queued.
    Done(ContactId),
    NotFound,
    /// No job of the event waits for an identity: it has one already, or was replayed or dropped.
    NotWaiting,
    /// The identifiers belong to several contacts, or contradict the one that they belong to. Nothing is written.
    Conflict(Vec<Conflict>),
}

/// Makes a contact part of another one.
#[derive(Clone, Debug)]
pub struct MergeContacts {
    /// Stays the contact of both.
    pub into: ContactId,
    pub contact: ContactId,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// Takes a contact out of the one that it is merged into, with what was merged into it before.
#[derive(Clone, Debug)]
pub struct SplitContact {
    pub contact: ContactId,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// What came of a merge or a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContactChange {
    Done,
    NotFound,
    /// A contact is not merged with itself.
    Same,
    /// The contact is part of this one already.
    MergedInto(ContactId),
    NotMerged,
    /// More than [`sluice_domain::contact::MEMBERS_MAX`] contacts would be one.
    TooMany,
    /// Live jobs of the contacts, and jobs whose write is still to be compared because a call may be applied late: their lanes must
    /// be empty first, since two lanes of one contact would have no order.
    Busy {
        jobs: u64,
    },
}

/// Why two contacts cannot be merged, each with the one that it is merged into.
pub(crate) fn merge_problem(
    into: (ContactId, Option<ContactId>),
    other: (ContactId, Option<ContactId>),
) -> Option<ContactChange> {
    match (into, other) {
        ((into, _), (other, _)) if into == other => Some(ContactChange::Same),
        (_, (_, Some(parent))) | ((_, Some(parent)), _) => Some(ContactChange::MergedInto(parent)),
        _ => None,
    }
}
