//! The contact: one person, whichever sources speak of them.
//!
//! Identifiers lead an event to its contact ([`identity`]); every field of a contact is a register ([`state`]) that the values of
//! all events are merged into; a write of the merged state sends what has changed since the last confirmed one ([`write`]). An event
//! that identifies no contact waits for an identity ([`late_identity`]).

pub mod identity;
mod late_identity;
mod rules;
mod state;
mod write;

use std::fmt;

use serde::Serialize;

use crate::digest::DigestContext;
pub use late_identity::{
    Correlation, CorrelationRule, IDENTITY_CONFLICT, IDENTITY_LOOKUPS_MAX, IDENTITY_MISSING, Link, RELEASE_ACTOR,
    SuppliedBy, SuppliedIdentity, SupplyProblem, WAIT_DEFAULT, WAIT_MAX, WAITING_EVENTS_MAX, WAITING_PER_LINK_MAX,
    awaits_identity, look_up_again_after,
};
pub use rules::{ContactRules, IdentifierRule, OnConflict, SourceTrust, TRUST_DEFAULT, TRUST_MAX};
pub use state::{
    CLOCK_SKEW_MAX, Conflict, ContactState, FIELDS_MAX, Lost, Observation, ObservedValue, Register, VALUE_BYTES_MAX,
    VALUES_MAX,
};
pub use write::{ContactView, ContactWrite, MergedWrite, SentFields, WriteCall, WriteRecord, WriteSlot, sent_fields};

/// Contacts that are merged into one, at most, that one included.
pub const MEMBERS_MAX: usize = 16;

/// Identifies a contact. Ascending in the order in which contacts were first seen.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContactId(pub i64);

impl ContactId {
    /// Parses `con_17`.
    pub fn parse(text: &str) -> Option<ContactId> {
        text.trim().strip_prefix("con_")?.parse().ok().filter(|id| *id > 0).map(ContactId)
    }

    /// Digest of the entity: lanes keep order per contact, whichever identifier an event carries.
    pub fn entity(self) -> u64 {
        static CONTEXT: DigestContext = DigestContext::new("sluice entity of a contact");
        u64::from_le_bytes(CONTEXT.of(|hasher| {
            hasher.update(&self.0.to_le_bytes());
        }))
    }
}

impl fmt::Display for ContactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "con_{}", self.0)
    }
}

impl fmt::Debug for ContactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for ContactId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contact_ids_round_trip() {
        assert_eq!(ContactId::parse(&ContactId(17).to_string()), Some(ContactId(17)));
        assert_eq!((ContactId::parse("con_0"), ContactId::parse("17")), (None, None));
        assert_ne!(ContactId(1).entity(), ContactId(2).entity());
    }
}
