//! Accepts and their replies.

use std::sync::Arc;

use sluice_domain::duplicate_stats::DuplicateDifference;
use sluice_domain::event::EventId;
use sluice_domain::time::Time;

use crate::import::ImportStep;
use crate::record::{EventSeq, JobRecord, NewEvent};

/// The events of one request: accepted in one transaction or not at all.
#[derive(Clone, Debug)]
pub(crate) struct RequestEvents {
    pub events: Vec<NewEvent>,
    /// The events are rows of an import, which moves on with them.
    pub import: Option<ImportStep>,
}

/// The result of an accept.
#[derive(Clone, Debug)]
pub enum Acceptance {
    /// The event is new and durable.
    Accepted(Accepted),
    Duplicate(Duplicate),
    /// The proof of the request was used by another one; nothing was written.
    ProofUsed,
}

#[derive(Clone, Debug)]
pub struct Accepted {
    pub seq: EventSeq,
    pub id: EventId,
    /// The event with the same key and other content, if this one is accepted beside it.
    pub variant_of: Option<EventId>,
    /// Whether its jobs are dead letters: the sender asked for it, or the event clashed with another.
    pub quarantined: bool,
    /// Number of quarantined events that were released with its identity.
    pub released: u32,
}

/// A duplicate, with the result of the first event.
#[derive(Clone, Debug)]
pub struct Duplicate {
    /// The first event.
    pub id: EventId,
    pub key_text: String,
    /// When the first event arrived.
    pub received_at: Time,
    /// The source of the first event, and the name of the secret that verified it.
    pub source: Arc<str>,
    pub verified_by: Option<String>,
    pub by: MatchedBy,
    /// Whether the content differs from the first event's. It is stored beside it and nothing is done with it.
    pub clash: bool,
    /// Jobs of the first event.
    pub jobs: Vec<JobRecord>,
}

/// What a duplicate was recognized by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedBy {
    Key,
    /// The key of an adjacent time bucket.
    AdjacentKey,
    /// The same content under another key, within the content window or as signed content.
    Content,
}

impl MatchedBy {
    /// In what a duplicate differs from its event.
    pub(crate) fn difference(self, has_same_content: bool) -> DuplicateDifference {
        match self {
            MatchedBy::Content => DuplicateDifference::Key,
            _ if !has_same_content => DuplicateDifference::Content,
            MatchedBy::AdjacentKey => DuplicateDifference::TimeBucket,
            MatchedBy::Key => DuplicateDifference::Nothing,
        }
    }
}
