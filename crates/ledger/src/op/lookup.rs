//! Lookups in the indexes, which belong to the writer.

use sluice_domain::contact::ContactId;
use sluice_domain::key::KeyDigest;
use sluice_domain::upsert::RecordIdentity;

use crate::filter::Page;
use crate::record::EventSeq;

/// Looks up events by their keys, and contacts by their digests.
#[derive(Clone, Debug)]
pub struct KeyLookup {
    pub keys: Vec<KeyDigest>,
    pub contacts: Vec<KeyDigest>,
}

/// Looks up events by what refers to them.
#[derive(Clone, Debug)]
pub enum EventLookup {
    /// A trace id: 32 hexadecimal digits.
    Trace(String),
    /// The id of a record at a destination, as an effect returned it.
    Record(String),
    /// The identity of a record.
    Identity(RecordIdentity),
}

/// Looks up the events of a contact and of those that are merged into it.
#[derive(Clone, Copy, Debug)]
pub struct ContactEvents {
    pub contact: ContactId,
    pub page: Page,
}

/// Looks up contacts by their identifiers.
#[derive(Clone, Debug)]
pub struct ContactLookup {
    pub identifiers: Vec<KeyDigest>,
}

/// The result of a [`KeyLookup`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundKeys {
    /// Events that have one of the keys, expired ones too.
    pub seqs: Vec<EventSeq>,
    /// Events of the contacts. Some may have been pruned.
    pub contact_events: Vec<EventSeq>,
}
